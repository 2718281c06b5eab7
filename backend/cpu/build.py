"""A graph through all passes to object code: the work that a hit in the cache saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.errors import CompileError, VerifyError
from ...ir.graph import Graph, Value
from ...ir.proofs import is_multiple
from ...kernels.gemm import BYTES, RegisterTile, is_dots, pays_dots
from ...kernels.loop.ir import Gemm, Kernel, Store, walk
from ...kernels.loop.text import identity, print_kernel
from ...kernels.loop.verify import verify_kernel, verify_kernels
from ...kernels.machine import Machine
from ...ops.kinds import Contract
from ...ops.view import expand, permute, reshape
from ...passes.fusion.fuse import fuse
from ...passes.fusion.fused import Fused
from ...passes.lower.kernel_reuse import Recurring
from ...passes.lower.lower import buffer_names, lower_launch
from ...passes.manager import PASSES, Pipeline
from ...passes.memory.in_place import find_overwrites
from ...passes.pipelines import LOOPS, graph_passes
from ..artifact import Artifact, Overwrites
from ..options import CompileOptions
from ..plan import Kernels, StageHook, find_places, memory_names, name_values, result_sources
from ..report.measure import make_report
from ..report.timings import Stages
from .abi import FIRST_FREE
from .codegen.debug import readable_assembly, readable_text
from .codegen.emit import Layout, ModuleEmitter
from .codegen.scratch import Arena, most, plan_arena
from .llvm.engine import Started, engine
from .microkernels.libraries import start
from .runtime.records import DATA_OFFSET
from .runtime.threads import get_num_threads
from .target import host


def build(graph: Graph, options: CompileOptions, stages: Stages, hook: StageHook) -> tuple[Artifact, Started]:
    """Compile for this machine. The hook sees the program at every stage; str(thing) is its text. The machine code is
    still being made: the artifact has none yet."""
    hook("graph", graph)
    machine = host().machine.with_vector_bits(options.vector_bits)
    bits = machine.vector_bits
    with stages.timed("graph passes"):
        simple = Pipeline(graph_passes(options.rounding)).run(graph, verify_each=options.verify, on_stage=hook)
    start(expected_libraries(simple, machine), bits)  # which goes on meanwhile
    with stages.timed("fuse"):
        fused = fuse(simple, max_cost=options.max_cost, machine=machine)
    name_values(fused)
    hook("fuse", fused)
    special = {
        name: tuple(f"%{fused.names[fused.stored(_result(simple, name, number))]}" for number in numbers)
        for name, numbers in (("replaced", options.replaced), ("shared", options.shared))
    }
    emitter = ModuleEmitter(machine, options.annotate, None if options.addresses else DATA_OFFSET)
    threads = get_num_threads()
    code = engine().start([], threads)
    kernels, checked = Kernels(), Kernels()
    products: set[str] = set()
    taken = buffer_names(fused)
    recurring = Recurring(fused, special)
    for number in range(len(fused.launches)):
        with stages.timed("loops"):
            like, kernel = recurring.find(number)
            if kernel is None:
                lowered = lower_launch(fused, number, taken, machine)
                products.update(libraries([lowered], machine))
                start(products, bits)  # those that were not expected
                kernel = schedule(lowered, machine, options.verify, special)
                recurring.add(number, kernel)
            elif options.verify:
                lowered = schedule(lower_launch(fused, number, taken, machine), machine, True, special)
                if _facts(lowered) != _facts(kernel):
                    text = f"{print_kernel(kernel)}\n{print_kernel(lowered)}"
                    raise VerifyError(f"not what lowering makes of it, but like kernel {like}:\n{text}")
            kernels.append(kernel)
            if options.check_bounds:
                kernel = PASSES["check_bounds"](kernel)
                checked.append(kernel)
        with stages.timed("emit"):
            emitter.add(kernel, like)
            part = emitter.next_part() if threads > 1 and not options.want_asm else None
            if part is not None:
                engine().start([part], threads, code)
    if options.verify:
        verify_kernels(kernels, *memory_names(fused))
    if options.check_bounds:
        kernels = checked
    hook("loops", kernels)
    with stages.timed("memory"):
        outside = {f"%{fused.names[value]}" for value in (*simple.params, *map(fused.stored, simple.results))}
        scratch = emitter.scratch(False)
        own = most(scratch)
        plan = plan_arena(kernels, emitter.uses, outside, own)
    stored, sources = result_sources(fused)
    with stages.timed("emit"):
        module = emitter.finish(make_layout(fused, stored, plan))
    hook("llvm", readable_text(module.text))
    if options.want_asm:
        hook("asm", "".join(map(readable_assembly, engine().assembly(module.parts(1)))))
    engine().start(module.parts(threads), threads, code)
    names = [[f"%{fused.names[value]}" for value in values] for values in (simple.params, stored)]
    times = find_overwrites(kernels, *names)
    stores = [item for kernel in kernels for item in walk(kernel.body) if isinstance(item, Store)]
    streamed = {item.buffer.name for item in stores if item.stream}
    artifact = Artifact(
        stored=[(value.dtype, value.shape) for value in stored],
        sources=sources,
        scratch=scratch,
        alone=emitter.scratch(True),
        arena=plan.size,
        products=sorted(products),
        is_long=emitter.is_long,
        vector_bits=bits,
        overwrites=Overwrites(times.reads, times.writes, times.same_place),
        streamed=[number for number, name in enumerate(names[1]) if name in streamed],
        places=find_places(graph, [site for kernel in kernels for site in kernel.sites]),
        report=make_report(simple, fused, kernels, plan.size, emitter.scratch_of_kernels(), own).lasting(),
        code=b"",
    )
    return artifact, code


def _facts(kernel: Kernel) -> tuple[Any, ...]:
    """What two kernels have in common that do the same on the same buffers, whatever their registers are called."""
    return identity(kernel), kernel.name, kernel.buffers, kernel.sites


def _result(graph: Graph, option: str, number: int) -> Value:
    """The result that an option names."""
    if not 0 <= number < len(graph.results):
        raise CompileError(f"CompileOptions: {option} names result {number}; there are {len(graph.results)}")
    return graph.results[number]


def expected_libraries(graph: Graph, machine: Machine) -> list[str]:
    """Of the libraries that lowering will ask for, those that are known before it. Products of a vector may become
    plain loops, unless the machine multiplies their narrow type itself, and how many rows a tile has is not decided
    yet."""
    expected: set[str] = set()
    for op in graph.ops:
        if not isinstance(op.defn.kind, Contract):
            continue
        (result,) = op.results
        batch, rows, columns = result.shape
        depth = op.arguments["self"].shape[2]
        name, computed = result.dtype.name, result.dtype.compute.real.name
        if computed not in BYTES or 0 in (*result.shape, depth):
            continue
        own = name in BYTES or name in machine.dot_types
        adjacent = own and _is_transposed(op.arguments["mat2"])
        dots = adjacent and pays_dots(name, batch * rows, columns, depth)
        if dots or 1 not in (rows, columns):
            expected.add(f"{name} dots" if dots else name if own else computed)
    return sorted(expected)


def _is_transposed(value: Value) -> bool:
    """Whether a matrix looks like another one, transposed."""
    op = value.op
    while op is not None and op.defn in (reshape, expand):
        op = op.operands[0].op
    return op is not None and op.defn is permute and op.arguments["dims"][-1] != len(op.arguments["dims"]) - 1


def libraries(kernels: Sequence[Kernel], machine: Machine) -> list[str]:
    """The libraries of routines that matrix products call: for each element type one, one for rows that are left over
    when most of them are in whole register tiles, and one for dot products."""
    found: set[str] = set()
    for item in (item for kernel in kernels for item in walk(kernel.body) if isinstance(item, Gemm)):
        dtype = item.left.buffer.dtype.name
        if is_dots(item):
            found.add(f"{dtype} dots")
            continue
        found.add(dtype)
        if not is_multiple(item.rows, RegisterTile(dtype, machine).rows):
            found.add(f"{dtype} rest")
    return sorted(found)


def schedule(kernel: Kernel, machine: Machine, verify: bool, special: Mapping[str, tuple[str, ...]] = {}) -> Kernel:
    """Vectors and threads. `special`: names of results whose memory is, see CompileOptions."""
    for name in LOOPS:
        own = special if name == "stream" else {}
        planned = {"machine": machine} if "machine" in PASSES[name].options else {}
        kernel = PASSES[name](kernel, **planned, **own)
        if verify:
            verify_kernel(kernel, memory=False)  # which build looks at, in the end
    return kernel


def make_layout(fused: Fused, stored: Sequence[Value], arena: Arena) -> Layout:
    """The slots of ctx, in the order that Executable fills them."""
    names = [symbol.name for symbol in fused.graph.sizes]
    sizes = {name: FIRST_FREE + number for number, name in enumerate(names)}
    outside = (*fused.graph.params, *stored)
    first = FIRST_FREE + len(sizes)
    pointers = {f"%{fused.names[value]}": first + number for number, value in enumerate(outside)}
    return Layout(sizes, pointers, arena)
