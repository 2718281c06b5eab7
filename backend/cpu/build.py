"""A graph through all passes to object code: the work that a hit in the cache saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.graph import Graph, Location, Value
from ...ir.symbolic import Dim
from ...kernels.loop_ir import Gemm, Kernel, Site, walk
from ...kernels.loop_verify import verify_kernel
from ...passes.fuse import Fused, fuse
from ...passes.lower import lower
from ...passes.manager import PASSES, Pipeline
from ...passes.memory import plan_memory
from ...passes.overwrite import find_overwrites
from ...passes.pipelines import GRAPH, LOOPS
from ..account import make_report
from ..artifact import Artifact, Overwrites, Place, printed_ops
from ..options import CompileOptions
from ..stages import Stages
from .context import FIRST_FREE
from .debug import readable_assembly, readable_text
from .emit import Layout, ModuleEmitter
from .engine import engine
from .runtime import DATA_OFFSET
from .target import host

StageHook = Callable[[str, Any], None]


class Kernels(list[Kernel]):
    """The kernels of a graph; its text is theirs."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))


def build(graph: Graph, options: CompileOptions, stages: Stages, hook: StageHook) -> Artifact:
    """Compile for this machine. The hook sees the program at every stage; str(thing) is its text."""
    hook("graph", graph)
    with stages.timed("graph passes"):
        simple = Pipeline(GRAPH).run(graph, verify_each=options.verify, on_stage=hook)
    with stages.timed("fuse"):
        fused = fuse(simple, max_cost=options.max_cost)
    name_values(fused)
    hook("fuse", fused)
    bits = options.vector_bits or host().vector_bits
    with stages.timed("loops"):
        kernels = Kernels(schedule(kernel, bits, options.verify) for kernel in lower(fused, bits))
    hook("loops", kernels)
    with stages.timed("memory"):
        outside = {f"%{fused.names[value]}" for value in (*simple.params, *map(fused.stored, simple.results))}
        plan = plan_memory(kernels, outside)
    stored, sources = result_sources(fused)
    with stages.timed("emit"):
        layout = make_layout(fused, stored, plan.offsets)
        offset = None if options.addresses else DATA_OFFSET
        module = ModuleEmitter(layout, bits, options.annotate, offset).emit(kernels)
    hook("llvm", readable_text(module.text))
    if options.want_asm:
        hook("asm", readable_assembly(engine().assembly(module.text)))
    with stages.timed("llvm"):
        code = engine().object_code(module.text)
    names = [[f"%{fused.names[value]}" for value in values] for values in (simple.params, stored)]
    times = find_overwrites(kernels, *names)
    products = [item for kernel in kernels for item in walk(kernel.body) if isinstance(item, Gemm)]
    return Artifact(
        stored=[(value.dtype, value.shape) for value in stored],
        sources=sources,
        scratch=list(dict.fromkeys(module.scratch)),
        arena=plan.size,
        products=sorted({item.output.buffer.dtype.name for item in products}),
        vector_bits=bits,
        overwrites=Overwrites(times.reads, times.writes, times.same_place),
        places=find_places(graph, [site for kernel in kernels for site in kernel.sites]),
        report=make_report(simple, fused, kernels, plan.size).lasting(),
        code=code,
    )


def schedule(kernel: Kernel, bits: int, verify: bool) -> Kernel:
    """Vectors and threads."""
    for name in LOOPS:
        options = {"bits": bits} if name == "vectorize" else {}
        kernel = PASSES[name](kernel, **options)
        if verify:
            verify_kernel(kernel)
    return kernel


def name_values(fused: Fused) -> None:
    """Names of buffers: the parameters' own, and numbers for the rest."""
    taken: set[str] = set()
    for param in fused.graph.params:
        name = param.name or f"p{len(taken)}"
        while name in taken:
            name += "_"
        taken.add(name)
        fused.names[param] = name
    number = constants = 0
    for op in fused.graph.ops:
        if op.name == "constant":
            # Numbered apart: the printer numbers only what has a line.
            fused.names[op.results[0]] = f"constant{constants}"
            constants += 1
            continue
        for value in op.results:
            name = f"t{number}"
            while name in taken:
                name += "_"
            fused.names[value] = name
            number += 1


def result_sources(fused: Fused) -> tuple[list[Value], list[tuple[str, int]]]:
    """The values that native code stores, and where each result comes from: one of these, or a copy of a parameter
    or of another result."""
    stored: list[Value] = []
    sources: list[tuple[str, int]] = []
    position: dict[Value, int] = {}
    params = {param: number for number, param in enumerate(fused.graph.params)}
    taken: set[int] = set()
    for value in fused.graph.results:
        base = fused.stored(value)
        if base in params:
            sources.append(("parameter", params[base]))
            continue
        if base not in position:
            position[base] = len(stored)
            stored.append(base)
        how = "copy" if position[base] in taken else "own"
        taken.add(position[base])
        sources.append((how, position[base]))
    return stored, sources


def make_layout(fused: Fused, stored: Sequence[Value], offsets: dict[str, Dim]) -> Layout:
    """The slots of ctx, in the order that Executable fills them."""
    names = [symbol.name for symbol in fused.graph.sizes]
    sizes = {name: FIRST_FREE + number for number, name in enumerate(names)}
    outside = (*fused.graph.params, *stored)
    first = FIRST_FREE + len(sizes)
    pointers = {f"%{fused.names[value]}": first + number for number, value in enumerate(outside)}
    return Layout(sizes, pointers, offsets)


def find_places(graph: Graph, sites: Sequence[Site]) -> list[Place]:
    """The op of the traced graph that each site belongs to: found by its location, which passes hand on."""
    numbers: dict[int, int] = {}
    for number, op in enumerate(printed_ops(graph)):
        if op.loc is not None:
            numbers.setdefault(id(op.loc), number)

    def place(op: str, location: Location | None) -> Place:
        if location is None:
            return Place(op, None, "")
        if id(location) in numbers:
            return Place(op, numbers[id(location)], "")
        return Place(op, numbers.get(id(location.outer)), location.op)

    return [place(site.op, site.location) for site in sites]
