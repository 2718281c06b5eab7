"""Define the stages of a compile from a traced graph to finished kernels; backend/stages.py runs them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..ir.errors import CompileError, VerifyError
from ..ir.graph import Graph, Value
from ..ir.record import Record
from ..ir.types import TensorType
from ..kernels.gpu import GPU, Gpu
from ..kernels.loop.ir import Alloc, Buffer, Concurrent, Gemm, Kernel, Loop, Pack, Sort, Transpose, walk
from ..kernels.loop.text import identity, print_kernel
from ..kernels.loop.verify import verify_kernel, verify_kernels
from ..kernels.machine import Machine
from .fusion.fuse import fuse
from .fusion.fused import Fused
from .fusion.names import Interface
from .lower.kernel_reuse import Recurring
from .lower.libraries import expected_libraries, kernel_libraries
from .lower.lower import buffer_names, lower_launch
from .manager import PASSES, Pipeline
from .memory.arena import Plan, plan_memory
from .memory.in_place import Times, find_overwrites
from .memory.scratch import KernelScratch, Memory, plan_kernel, plan_program
from .pipelines import CUDA_LOOPS, LOOPS, graph_passes

Hook = Callable[[str, Any], None]
Special = Mapping[str, tuple[str, ...]]  # buffers of results that an option of CompileOptions lists, by the option
NONE: Special = MappingProxyType({})
Steps = Sequence[tuple[str, Mapping[str, Any]]]  # names of loop passes, each with its options
CALLS = (Alloc, Concurrent, Gemm, Loop, Pack, Sort, Transpose)  # statements without code of their own worth counting


class Settings(Record):
    """The settings of the passes that a target and the caller's options give."""

    loops: Callable[[Special], Steps]  # the loop passes of every kernel
    fusion: Mapping[str, Any]  # options of fuse
    lowering: Mapping[str, Any]  # options of lower_launch
    rounding: str = "kernel"
    special: Mapping[str, tuple[int, ...]] = MappingProxyType({})  # numbers of results, by the caller's option
    verify: bool = False
    check_bounds: bool = False
    machine: Machine | None = None  # a CPU; a GPU has no scratch of threads to plan, and no libraries to call
    first_batch: int = 0  # scalar statements that end the first batch of kernels; 0: all kernels are one batch
    largest_batch: int = 0  # scalar statements that end any later batch, at most


class Finished(Record):
    """A scheduled kernel, as code generation takes it."""

    kernel: Kernel
    like: int | None  # the number of an earlier kernel that is the same but for its names
    libraries: Sequence[str]  # that it calls
    scratch: KernelScratch | None


class Kernels(list[Kernel]):
    """The kernels of a graph; its text is theirs."""

    def __str__(self) -> str:
        return "\n\n".join(map(print_kernel, self))


def signature(kernels: Sequence[Kernel]) -> Graph:
    """Return a graph without ops, for kernels alone: its parameters are the buffers that they read and none of them
    stores, its results all that they store."""
    found: dict[str, Buffer] = {}
    for item in (item for kernel in kernels for item in kernel.buffers if item.role != "temp"):
        if item.name not in found or item.role == "out":
            found[item.name] = item
    params, results = (
        [
            Value(TensorType(item.dtype, item.shape), name=item.name.removeprefix("%"))
            for item in found.values()
            if item.role == role
        ]
        for role in ("in", "out")
    )
    return Graph(kernels[0].name if kernels else "kernels", params, [], results)


def simplify(graph: Graph, settings: Settings, hook: Hook | None) -> Graph:
    """Return the graph in primitives, without redundant work. The hook sees it after each pass."""
    return Pipeline(graph_passes(settings.rounding)).run(graph, verify_each=settings.verify, on_stage=hook)


def expect_libraries(simple: Graph, settings: Settings) -> list[str]:
    """Return the libraries of GEMM routines that are known to be called before kernels are lowered."""
    assert settings.machine is not None
    return expected_libraries(simple, settings.machine)


def fuse_graph(simple: Graph, settings: Settings) -> Fused:
    """Return the groups of ops that become one kernel each."""
    return fuse(simple, **settings.fusion)


def special_names(fused: Fused, special: Mapping[str, tuple[int, ...]]) -> Special:
    """Return the buffers of the results that options name."""
    results = fused.graph.results
    for name, numbers in special.items():
        for number in numbers:
            if not 0 <= number < len(results):
                raise CompileError(f"CompileOptions: {name} names result {number}; there are {len(results)}")
    return {
        name: tuple(f"%{fused.names[fused.stored(results[number])]}" for number in numbers)
        for name, numbers in special.items()
    }


def cpu_loops(machine: Machine, special: Special = NONE) -> Steps:
    """Return the loop passes that map a kernel to vectors and threads."""
    options: dict[str, dict[str, Any]] = {
        name: {"machine": machine} if "machine" in PASSES[name].options else {} for name in LOOPS
    }
    options["nontemporal"] |= special
    return list(options.items())


def cuda_loops(special: Special = NONE, gpu: Gpu = GPU) -> Steps:
    """Return the loop passes that map a kernel to blocks, warps and threads."""
    options: dict[str, dict[str, Any]] = {"transpose": {"side": gpu.warp, "pad": 1}, "grid": {"gpu": gpu}}
    return [(name, options.get(name, {})) for name in CUDA_LOOPS]


def schedule(kernel: Kernel, steps: Steps, verify: bool) -> Kernel:
    """Return a kernel after loop passes. Proofs about its memory wait until all kernels are there."""
    for name, options in steps:
        kernel = PASSES[name](kernel, **options)
        if verify:
            verify_kernel(kernel, memory=False)
    return kernel


def make_kernels(
    fused: Fused, settings: Settings, interface: Interface, expected: Sequence[str] = ()
) -> Generator[list[Finished], None, list[Finished]]:
    """Yield the kernels of a program in batches, and return the last batch, once all kernels are proved.

    A batch ends when it is worth compiling by itself, and after a kernel that calls a library which is neither expected
    nor called before.
    """
    maker = Maker(fused, settings)
    called = set(expected)
    batch: list[Finished] = []
    batches = work = 0
    for number in range(len(fused.launches)):
        item = maker.make(number)
        batch.append(item)
        if settings.first_batch and item.like is None:
            work += sum(not isinstance(statement, CALLS) for statement in walk(item.kernel.body))
        is_enough = work >= min(settings.first_batch * (1 + batches), settings.largest_batch) > 0
        if number + 1 < len(fused.launches) and (is_enough or not called.issuperset(item.libraries)):
            called.update(item.libraries)
            yield batch
            batch, batches, work = [], batches + is_enough, 0
    if settings.verify:
        verify_kernels(maker.proved, interface.params, interface.results)
    return batch


class Maker:
    """Makes the kernels of launches: lowers and schedules them, or reuses the kernel of an equal launch."""

    def __init__(self, fused: Fused, settings: Settings):
        special = special_names(fused, settings.special)
        self.fused = fused
        self.settings = settings
        self.steps = settings.loops(special)
        self.recurring = Recurring(fused, special)
        self.taken = buffer_names(fused)
        self.made: list[Finished] = []
        self.proved: list[Kernel] = []  # kernels without checks of bounds, to be proved

    def make(self, number: int) -> Finished:
        like, kernel = self.recurring.find(number)
        if kernel is None:
            lowered = self.lower(number)
            kernel = schedule(lowered, self.steps, self.settings.verify)
            self.recurring.add(number, kernel)
        elif self.settings.verify:
            self.verify_reuse(number, kernel)
        self.proved.append(kernel)
        if self.settings.check_bounds:
            kernel = PASSES["check_bounds"](kernel)
        machine = self.settings.machine
        if like is not None:
            first = self.made[like]
            item = Finished(kernel, like, first.libraries, first.scratch)
        elif machine is None:
            item = Finished(kernel, None, (), None)
        else:
            item = Finished(kernel, None, kernel_libraries(lowered, machine), plan_kernel(kernel, machine))
        self.made.append(item)
        return item

    def lower(self, number: int) -> Kernel:
        return lower_launch(self.fused, number, self.taken, **self.settings.lowering)

    def verify_reuse(self, number: int, kernel: Kernel) -> None:
        """Raise VerifyError if the kernel of an earlier launch with other names is not the launch's own."""
        own = schedule(self.lower(number), self.steps, True)
        if _facts(own) != _facts(kernel):
            text = f"{print_kernel(kernel)}\n{print_kernel(own)}"
            raise VerifyError(f"@{kernel.name} with its names is not what lowering makes of it:\n{text}")


def gather_kernels(finished: Sequence[Finished]) -> Kernels:
    return Kernels(item.kernel for item in finished)


def _facts(kernel: Kernel) -> tuple[Any, ...]:
    """Return the facts that are equal for kernels that differ in the names of registers only."""
    return identity(kernel), kernel.name, kernel.buffers, kernel.sites


def plan_cpu_memory(finished: Sequence[Finished], interface: Interface) -> Memory:
    """Return the places of temporaries and scratch."""
    scratch = [item.scratch for item in finished if item.scratch is not None]
    return plan_program([item.kernel for item in finished], scratch, {*interface.params, *interface.results})


def plan_cuda_memory(kernels: Kernels, interface: Interface) -> Plan[str]:
    """Return the places of temporaries."""
    return plan_memory(kernels, {*interface.params, *interface.results})


def find_in_place(kernels: Kernels, interface: Interface) -> Times:
    """Return when kernels read parameters for the last time and write results for the first."""
    return find_overwrites(kernels, interface.params, interface.results)
