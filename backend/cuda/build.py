"""A graph through all passes to the source of CUDA kernels and the order of their launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.graph import Graph
from ...ir.symbolic import Dim
from ...ir.types import DType
from ...kernels.loop_ir import Kernel
from ...kernels.loop_verify import verify_kernel
from ...passes.fuse import fuse
from ...passes.lower import lower
from ...passes.manager import PASSES, Pipeline
from ...passes.memory import plan_memory
from ...passes.pipelines import CUDA_LOOPS, GRAPH
from ..account import make_report
from ..artifact import Place
from ..options import CompileOptions
from ..plan import Kernels, StageHook, find_places, name_values, result_sources
from ..report import Report
from ..stages import Stages
from .launch import Launch
from .module import emit_module

SIDE = 32  # of the blocks that are transposed in shared memory: a warp reads or writes a row of one at a time


@dataclass(frozen=True)
class Program:
    """All that a call needs: source, launches, and where every buffer lies."""

    source: str
    launches: Sequence[Launch]
    params: Sequence[str]  # names of buffers
    stored: Sequence[tuple[str, DType, tuple[Dim, ...]]]  # results: buffer, type, shape
    sources: Sequence[tuple[str, int]]  # of each result, as an Artifact has it
    offsets: dict[str, Dim]  # of temporaries in the arena
    arena: Dim  # bytes
    places: Sequence[Place]  # by site
    report: Report  # without what is known only in the process at hand


def build(graph: Graph, options: CompileOptions, stages: Stages, hook: StageHook, simulated: bool) -> Program:
    """The program of a graph. The hook sees it at every stage; str(thing) is its text."""
    hook("graph", graph)
    with stages.timed("graph passes"):
        simple = Pipeline(GRAPH).run(graph, verify_each=options.verify, on_stage=hook)
    with stages.timed("fuse"):
        fused = fuse(simple, max_cost=options.max_cost, whole_rows=False)
    name_values(fused)
    hook("fuse", fused)
    with stages.timed("loops"):
        kernels = Kernels(schedule(kernel, options.verify) for kernel in lower(fused, gpu=True))
    hook("loops", kernels)
    stored, sources = result_sources(fused)
    with stages.timed("memory"):
        outside = {f"%{fused.names[value]}" for value in (*simple.params, *map(fused.stored, simple.results))}
        plan = plan_memory(kernels, outside)
    with stages.timed("emit"):
        module = emit_module(kernels, simulated)
    hook("cuda", module.source)
    return Program(
        source=module.source,
        launches=module.launches,
        params=[f"%{fused.names[value]}" for value in simple.params],
        stored=[(f"%{fused.names[value]}", value.dtype, value.shape) for value in stored],
        sources=sources,
        offsets=plan.offsets,
        arena=plan.size,
        places=find_places(graph, [site for kernel in kernels for site in kernel.sites]),
        report=make_report(simple, fused, kernels, plan.size),
    )


def schedule(kernel: Kernel, verify: bool) -> Kernel:
    """Blocks, warps and threads."""
    for name in CUDA_LOOPS:
        options = {"side": SIDE, "pad": 1} if name == "transpose" else {}
        kernel = PASSES[name](kernel, **options)
        if verify:
            verify_kernel(kernel)
    return kernel
