"""The line of stages from a graph to object code; a cache hit skips all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...ir.graph import Graph
from ...kernels.loop.ir import Store, walk
from ...kernels.machine import Machine
from ...passes.fusion.fused import Fused
from ...passes.fusion.names import Interface, interface
from ...passes.memory.in_place import Times
from ...passes.memory.scratch import Arena, Memory
from ...passes.stages import (
    Finished,
    Kernels,
    Settings,
    cpu_loops,
    expect_libraries,
    find_in_place,
    fuse_graph,
    gather_kernels,
    make_kernels,
    plan_cpu_memory,
    simplify,
)
from ..artifact import Artifact, Overwrites, find_places
from ..options import CompileOptions
from ..report.measure import make_report
from ..report.timings import Stages
from ..stages import Line, Stage, StageHook, Streamed, Text, run_line
from .abi import FIRST_FREE
from .codegen.debug import readable_assembly, readable_text
from .codegen.emit import Layout, ModuleEmitter
from .llvm.engine import Started, engine
from .llvm.parts import SIZES, Module
from .microkernels.libraries import start
from .runtime.records import DATA_OFFSET
from .runtime.threads import get_num_threads


@dataclass
class Unit:
    """Machine code under construction: LLVM compiles the first kernels before the last is lowered."""

    emitter: ModuleEmitter
    code: Started
    threads: int


def start_libraries(expected: Sequence[str], machine: Machine) -> None:
    """Start to compile, in threads, the libraries of GEMM routines known to be needed."""
    start(expected, machine.vector_bits)


def begin(options: CompileOptions, machine: Machine) -> Unit:
    """Make an empty unit."""
    threads = get_num_threads()
    data_offset = None if options.addresses else DATA_OFFSET
    emitter = ModuleEmitter(machine, options.annotate, data_offset)
    return Unit(emitter, engine().start([], threads), threads)


def emit(unit: Unit, batch: Sequence[Finished]) -> None:
    """Emit kernels into the unit; hand parts that are long enough over to LLVM's threads."""
    for item in batch:
        start(item.libraries, unit.emitter.machine.vector_bits)
        assert item.scratch is not None
        unit.emitter.add(item.kernel, item.scratch, item.like)
    part = unit.emitter.next_part() if unit.threads > 1 else None
    if part is not None:
        engine().start([part], unit.threads, unit.code)


def finish(unit: Unit, interface: Interface, memory: Memory) -> Module:
    """Emit the function that runs the kernels; return the whole module."""
    return unit.emitter.finish(make_layout(interface, memory.arena))


def make_layout(interface: Interface, arena: Arena) -> Layout:
    """Return the slots of ctx, in the order in which Executable fills them."""
    sizes = {name: FIRST_FREE + number for number, name in enumerate(interface.sizes)}
    first = FIRST_FREE + len(sizes)
    pointers = {name: first + number for number, name in enumerate((*interface.params, *interface.results))}
    return Layout(sizes, pointers, arena)


def hand_over(unit: Unit, module: Module) -> None:
    """Hand the rest of the module over to LLVM's threads."""
    engine().start(module.parts(unit.threads), unit.threads, unit.code)


def describe(
    graph: Graph,
    simple: Graph,
    fused: Fused,
    interface: Interface,
    finished: Sequence[Finished],
    kernels: Kernels,
    memory: Memory,
    times: Times,
    unit: Unit,
) -> Artifact:
    """Make the artifact, without its machine code."""
    stores = [item for kernel in kernels for item in walk(kernel.body) if isinstance(item, Store)]
    streamed = {item.buffer.name for item in stores if item.stream}
    size = memory.arena.size
    report = make_report(simple, fused.launches, interface, kernels, size, memory.of_kernels, memory.own)
    return Artifact(
        stored=[(value.dtype, value.shape) for value in interface.stored],
        sources=interface.sources,
        scratch=memory.shared,
        alone=memory.lone,
        arena=size,
        products=sorted({name for item in finished for name in item.libraries}),
        is_long=unit.emitter.is_long,
        vector_bits=unit.emitter.machine.vector_bits,
        overwrites=Overwrites(times.reads, times.writes, times.same_place),
        streamed=[number for number, name in enumerate(interface.results) if name in streamed],
        places=find_places(graph, [site for kernel in kernels for site in kernel.sites]),
        report=report.lasting(),
        code=b"",
    )


def show_llvm(module: Module) -> Text:
    return Text(lambda: readable_text(module.text))


def show_assembly(module: Module) -> Text:
    return Text(lambda: "".join(map(readable_assembly, engine().assembly(module.whole().parts(1)))))


LINE: Line = (
    Stage("graph passes", simplify, ("graph", "settings", "hook"), "simple"),
    Stage("libraries", expect_libraries, ("simple", "settings"), "expected"),
    Stage("libraries", start_libraries, ("expected", "machine")),
    Stage("emit", begin, ("options", "machine"), "unit"),
    Stage("fuse", fuse_graph, ("simple", "settings"), "fused", shows="fuse"),
    Stage("fuse", interface, ("fused",), "interface"),
    Streamed(
        "loops",
        make_kernels,
        ("fused", "settings", "interface", "expected"),
        gather_kernels,
        shows="loops",
        whole=(
            Stage("memory", plan_cpu_memory, ("finished", "interface"), "memory"),
            Stage("memory", find_in_place, ("kernels", "interface"), "times"),
        ),
        each=(Stage("emit", emit, ("unit", "batch")),),
    ),
    Stage("emit", finish, ("unit", "interface", "memory"), "module"),
    Stage("emit", show_llvm, ("module",), shows="llvm"),
    Stage("emit", show_assembly, ("module",), shows="asm"),
    Stage("emit", hand_over, ("unit", "module")),
    Stage(
        "artifact",
        describe,
        ("graph", "simple", "fused", "interface", "finished", "kernels", "memory", "times", "unit"),
        "artifact",
    ),
)


def settings_for(options: CompileOptions, machine: Machine) -> Settings:
    """Make the passes' settings for this machine and the options."""
    early = get_num_threads() > 1 and not options.annotate
    return Settings(
        loops=partial(cpu_loops, machine),
        fusion={"max_cost": options.max_cost, "machine": machine},
        lowering={"machine": machine},
        rounding=options.rounding,
        special={"replaced": options.replaced, "shared": options.shared},
        verify=options.verify,
        check_bounds=options.check_bounds,
        machine=machine,
        first_batch=SIZES.least // SIZES.statement if early else 0,
        largest_batch=SIZES.most // SIZES.statement,
    )


def build(
    graph: Graph, options: CompileOptions, machine: Machine, timings: Stages, hook: StageHook | None
) -> tuple[Artifact, Started]:
    """Compile for a machine. The hook sees the program at every stage; str(thing) is its text. The machine code is
    still being made: the artifact has none yet."""
    if hook is not None:
        hook("graph", graph)
    known: dict[str, Any] = {"graph": graph, "options": options, "machine": machine, "hook": hook}
    made = run_line(LINE, known | {"settings": settings_for(options, machine)}, timings, hook)
    return made["artifact"], made["unit"].code
