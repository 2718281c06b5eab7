"""The line of stages from a graph to the source of CUDA kernels and the order of their launches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...ir.graph import Graph
from ...kernels.loop.ir import Kernel, Loop, own_scratch, walk
from ...kernels.loop.verify import refuse
from ...passes.fusion.fused import Fused
from ...passes.fusion.names import Interface, interface
from ...passes.memory.arena import Plan
from ...passes.memory.in_place import Times
from ...passes.stages import (
    Kernels,
    Settings,
    cuda_loops,
    find_in_place,
    fuse_graph,
    gather_kernels,
    make_kernels,
    plan_cuda_memory,
    simplify,
)
from ..artifact import Overwrites, find_places
from ..options import CompileOptions
from ..report.measure import make_report
from ..report.timings import Stages
from ..stages import Line, Stage, StageHook, Streamed, run_line
from .codegen.launch import Launch
from .codegen.module import Module, emit_module
from .program import Program


def source(module: Module, kernels: Kernels, settings: Settings) -> str:
    """Return the module's text; verify first that scratch of thread loops is not shared by a team."""
    if settings.verify:
        verify_scratch(kernels, module.common)
    return module.source


def describe(
    graph: Graph,
    simple: Graph,
    fused: Fused,
    interface: Interface,
    kernels: Kernels,
    plan: Plan[str],
    times: Times,
    module: Module,
    source: str,
) -> Program:
    """Make the program: all that a call needs but the machine code."""
    return Program(
        source=source,
        launches=module.launches,
        params=interface.params,
        stored=[
            (name, value.dtype, value.shape) for name, value in zip(interface.results, interface.stored, strict=True)
        ],
        sources=interface.sources,
        offsets=plan.offsets,
        arena=plan.size,
        overwrites=Overwrites(times.reads, times.writes, in_one_thread(times, kernels, module.launches)),
        places=find_places(graph, [site for kernel in kernels for site in kernel.sites]),
        report=make_report(simple, fused.launches, interface, kernels, plan.size).lasting(),
        reaches=tuple(module.reaches),
    )


def verify_scratch(kernels: Sequence[Kernel], common: Collection[tuple[str, str]]) -> None:
    """Raise VerifyError if scratch of a thread loop, which must be private to each thread, is in shared memory."""
    for kernel in kernels:
        loops = [item for item in walk(kernel.body) if isinstance(item, Loop) and item.kind == "thread"]
        for buffer in own_scratch(loops):
            if (kernel.name, buffer.name) in common:
                refuse(kernel, None, f"{buffer.name} is each thread's own, and lies where its team shares it")


def in_one_thread(times: Times, kernels: Sequence[Kernel], launches: Sequence[Launch]) -> list[tuple[int, int]]:
    """Keep the pairs of a result and a parameter of which each element is read by the thread that overwrites it.

    In a team all threads may read an element that one of them writes.
    """
    teams = {launch.kernel for launch in launches if launch.kind != "grid"}
    return [(result, param) for result, param in times.same_place if kernels[times.writes[result]].name not in teams]


LINE: Line = (
    Stage("graph passes", simplify, ("graph", "settings", "hook"), "simple"),
    Stage("fuse", fuse_graph, ("simple", "settings"), "fused", shows="fuse"),
    Stage("fuse", interface, ("fused",), "interface"),
    Streamed(
        "loops",
        make_kernels,
        ("fused", "settings", "interface"),
        gather_kernels,
        shows="loops",
        whole=(
            Stage("memory", plan_cuda_memory, ("kernels", "interface"), "plan"),
            Stage("memory", find_in_place, ("kernels", "interface"), "times"),
        ),
    ),
    Stage("emit", emit_module, ("kernels", "simulated", "small"), "module"),
    Stage("emit", source, ("module", "kernels", "settings"), "source", shows="cuda"),
    Stage(
        "program",
        describe,
        ("graph", "simple", "fused", "interface", "kernels", "plan", "times", "module", "source"),
        "program",
    ),
)


def settings_for(options: CompileOptions) -> Settings:
    """Make the passes' settings for a GPU and the options."""
    return Settings(
        loops=cuda_loops,
        fusion={"max_cost": options.max_cost, "whole_rows": False},
        lowering={"gpu": True},
        rounding=options.rounding,
        verify=options.verify,
    )


def build(
    graph: Graph,
    options: CompileOptions,
    timings: Stages,
    hook: StageHook | None,
    simulated: bool,
    small: bool = False,
) -> Program:
    """Return the program of a graph. The hook sees it at every stage; str(thing) is its text. `small`: indices shall
    have 32 bits, whatever the symbolic sizes; launch.fits(program.reaches, sizes) tells whether that is right for some.
    """
    if hook is not None:
        hook("graph", graph)
    known: dict[str, Any] = {"graph": graph, "settings": settings_for(options), "hook": hook}
    return run_line(LINE, known | {"simulated": simulated, "small": small}, timings, hook)["program"]
