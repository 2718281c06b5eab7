"""A graph through all passes to the source of CUDA kernels and the order of their launches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...ir.graph import Graph
from ...kernels.gpu import GPU, Gpu
from ...kernels.loop.ir import Kernel, Loop, own_scratch, walk
from ...kernels.loop.verify import refuse, verify_kernel, verify_kernels
from ...passes.fusion.fuse import fuse
from ...passes.lower.lower import lower
from ...passes.manager import PASSES, Pipeline
from ...passes.memory.arena import plan_memory
from ...passes.memory.in_place import Times, find_overwrites
from ...passes.pipelines import CUDA_LOOPS, graph_passes
from ..artifact import Overwrites
from ..options import CompileOptions
from ..plan import Kernels, StageHook, find_places, memory_names, name_values, result_sources
from ..report.measure import make_report
from ..report.timings import Stages
from .codegen.launch import Launch
from .codegen.module import emit_module
from .program import Program


def build(
    graph: Graph, options: CompileOptions, stages: Stages, hook: StageHook, simulated: bool, small: bool = False
) -> Program:
    """The program of a graph. The hook sees it at every stage; str(thing) is its text. `small`: indices shall have 32
    bits, whatever the symbolic sizes; launch.fits(program.reaches, sizes) tells whether that is right for some."""
    hook("graph", graph)
    with stages.timed("graph passes"):
        simple = Pipeline(graph_passes(options.rounding)).run(graph, verify_each=options.verify, on_stage=hook)
    with stages.timed("fuse"):
        fused = fuse(simple, max_cost=options.max_cost, whole_rows=False)
    name_values(fused)
    hook("fuse", fused)
    with stages.timed("loops"):
        kernels = Kernels(schedule(kernel, options.verify) for kernel in lower(fused, gpu=True))
    hook("loops", kernels)
    if options.verify:
        verify_kernels(kernels, *memory_names(fused))
    stored, sources = result_sources(fused)
    with stages.timed("memory"):
        outside = {f"%{fused.names[value]}" for value in (*simple.params, *map(fused.stored, simple.results))}
        plan = plan_memory(kernels, outside)
    with stages.timed("emit"):
        module = emit_module(kernels, simulated, small)
    if options.verify:
        verify_scratch(kernels, module.common)
    hook("cuda", module.source)
    params = [f"%{fused.names[value]}" for value in simple.params]
    names = [f"%{fused.names[value]}" for value in stored]
    times = find_overwrites(kernels, params, names)
    return Program(
        source=module.source,
        launches=module.launches,
        params=params,
        stored=[(name, value.dtype, value.shape) for name, value in zip(names, stored, strict=True)],
        sources=sources,
        offsets=plan.offsets,
        arena=plan.size,
        overwrites=Overwrites(times.reads, times.writes, in_one_thread(times, kernels, module.launches)),
        places=find_places(graph, [site for kernel in kernels for site in kernel.sites]),
        report=make_report(simple, fused, kernels, plan.size).lasting(),
        reaches=tuple(module.reaches),
    )


def verify_scratch(kernels: Sequence[Kernel], common: Collection[tuple[str, str]]) -> None:
    """Raise VerifyError if scratch of a thread loop, which is each thread's own, lies where a team shares it."""
    for kernel in kernels:
        loops = [item for item in walk(kernel.body) if isinstance(item, Loop) and item.kind == "thread"]
        for buffer in own_scratch(loops):
            if (kernel.name, buffer.name) in common:
                refuse(kernel, None, f"{buffer.name} is each thread's own, and lies where its team shares it")


def in_one_thread(times: Times, kernels: Sequence[Kernel], launches: Sequence[Launch]) -> list[tuple[int, int]]:
    """The pairs of a result and a parameter where the thread that reads an element is the one that overwrites it.

    In a team all threads may read what one of them writes.
    """
    teams = {launch.kernel for launch in launches if launch.kind != "grid"}
    return [(result, param) for result, param in times.same_place if kernels[times.writes[result]].name not in teams]


def schedule(kernel: Kernel, verify: bool, gpu: Gpu = GPU) -> Kernel:
    """Blocks, warps and threads."""
    options: dict[str, dict[str, Any]] = {"transpose": {"side": gpu.warp, "pad": 1}, "grid": {"gpu": gpu}}
    for name in CUDA_LOOPS:
        kernel = PASSES[name](kernel, **options.get(name, {}))
        if verify:
            verify_kernel(kernel, memory=False)  # which build looks at, in the end
    return kernel
