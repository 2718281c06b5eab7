"""Load the native code of a compiled graph, and call it: executable, frames, launcher."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ....ir.graph import Graph
from ....ir.record import Record
from ....ir.symbolic import evaluate
from ....kernels.machine import CACHE_LINE
from ...arrays import as_plain
from ...artifact import Artifact
from ...call_plan import CallPlan, SizedPlan, Sizes
from ...report.timings import Stages
from ...store.cache import Lookup
from ..abi import ALIGN, FIRST_FREE, Context, Problem
from ..image.image import Image
from ..runtime.allocator import empty_arrays
from ..runtime.records import DATA_OFFSET
from ..runtime.threads import get_num_threads, pool

if TYPE_CHECKING:
    from ...report.report import Report
    from ..runtime.openmp import Threads

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class FrameMemory(Record):
    """Bytes of a frame's memory; chosen, no measurement is recorded."""

    kept: int = 1 << 17  # of temporaries that a frame keeps between calls; larger memory is borrowed for each call
    # Between the scratch of two threads, at most: prefetches of one thread, by hardware or software, beyond its own end
    # would take lines of the other's scratch from the other's cache.
    gap: int = 1 << 14


MEMORY = FrameMemory()
_BYTE = np.dtype(np.uint8)
_NO_MEMORY = np.empty(0, _BYTE)


class Executable:
    """A compiled graph: takes arrays of the parameters' types, returns the results as new arrays."""

    target = "cpu"

    def __init__(self, graph: Graph, artifact: Artifact, cache: Lookup, stages: Stages):
        self.graph = graph
        self.artifact = artifact
        self.cache = cache
        self.stages = stages
        # Parameters of alignment 1: PyTorch's data is aligned to its elements, and NumPy flags arrays that are not.
        self.plan = plan = CallPlan.of(
            graph, artifact, artifact.stored, 1, dict.fromkeys(artifact.streamed, CACHE_LINE)
        )
        self.sizes = [symbol.name for symbol in plan.signature.symbols]
        self.first_param = FIRST_FREE + len(self.sizes)
        self.first_stored = self.first_param + len(plan.signature.types)
        self.slots = self.first_stored + len(plan.stored)
        self.frames: list[Frame] = []
        with stages.timed("link"):
            self.image = Image(artifact.code)
        self.run = _RUN(self.image["run"])
        if artifact.products:
            from ..microkernels.products import tables

            with stages.timed("matrix products"):
                self.tables = tables(frozenset(artifact.products), artifact.vector_bits)

    @property
    def report(self) -> Report:
        from ...report.report import Report

        return Report.read(self.artifact.report).here(get_num_threads(), self.cache, self.stages.seconds)

    def launcher(self, plan: SizedPlan) -> Launcher:
        """Make the launcher for a plan."""
        return Launcher(self, plan)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = list(map(as_plain, arrays))
        return Launcher(self, self.plan.for_arrays(given))(given)

    def raise_noted(self, problem: Problem) -> NoReturn:
        """Raise the error that native code noted in a frame."""
        self.plan.raise_error(problem.site, problem.index, problem.bound)


class Frame:
    """The memory of one call: ctx, the record for an error, the arena and the scratch of all threads."""

    def __init__(self, executable: Executable):
        self.workers = 0
        self.pool = 0  # address of the threads that it was last prepared for
        self.sizes: Sizes | None = None  # of the launcher that it was last prepared for
        self.memory = _NO_MEMORY
        self.block = (ctypes.c_int64 * executable.slots)()
        self.problem = Problem()
        self.address = ctypes.addressof(self.block)
        self.context = Context.from_buffer(self.block)
        self.context.error = ctypes.addressof(self.problem)
        if executable.artifact.products:
            self.context.products = ctypes.addressof(executable.tables)

    def fit(self, launcher: Launcher, threads: Threads) -> None:
        """Prepare ctx and memory for a launcher's sizes and the current number of threads."""
        self.prepare(launcher, threads)
        needed = launcher.memory_bytes(self.workers)
        kept = self.memory
        self.give_memory(launcher, kept if len(kept) >= needed else empty_arrays([((needed,), _BYTE)])[0])

    def prepare(self, launcher: Launcher, threads: Threads) -> None:
        """Prepare ctx but for the memory."""
        context, self.sizes = self.context, launcher.sizes
        self.workers = context.workers = max(threads.limit, threads.started)
        self.pool = context.pool = threads.address
        context.parallel, context.scratch_stride = threads.parallel, launcher.scratch_stride
        for number, name in enumerate(launcher.executable.sizes):
            self.block[FIRST_FREE + number] = launcher.sizes[name]

    def give_memory(self, launcher: Launcher, memory: np.ndarray) -> None:
        self.memory = memory
        base = memory.__array_interface__["data"][0]
        base += -base % ALIGN
        self.context.arena, self.context.scratch = base, base + launcher.arena_bytes


class Launcher:
    """Calls native code for one set of sizes, with all facts computed beforehand.

    Frames are reused, for other sizes too; their number is the peak of concurrent calls. A large arena goes back to
    the allocator after each call. Arrays are passed as the addresses of their Python objects, in which native code
    finds the data pointer (DATA_OFFSET).
    """

    def __init__(self, executable: Executable, plan: SizedPlan, threads: Callable[[], Threads] = pool):
        self.executable = executable
        self.plan = plan
        self.sizes = sizes = plan.sizes
        artifact = executable.artifact
        self.threads = threads if artifact.is_long else pool
        scratch = max((evaluate(item, sizes) for item in artifact.scratch), default=0)
        self.scratch_bytes = scratch + -scratch % ALIGN  # per thread
        self.scratch_stride = self.scratch_bytes + min(self.scratch_bytes, MEMORY.gap)
        self.alone_bytes = max((evaluate(item, sizes) for item in artifact.alone), default=0)
        self.arena_bytes = plan.arena_bytes
        self.stored, self.is_direct = plan.stored, plan.is_direct
        self.pack = struct.Struct(f"{executable.slots - executable.first_param}q").pack_into
        self.offset = 8 * executable.first_param
        self.frames = executable.frames
        self.run = executable.run

    def memory_bytes(self, workers: int) -> int:
        """Compute the bytes of a call with so many threads, including room for alignment."""
        scratch = self.scratch_stride * (workers - 1) + self.scratch_bytes
        return self.arena_bytes + max(scratch, self.alone_bytes) + ALIGN

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        stored = empty_arrays(self.stored)
        self.launch(*map(address_of, arrays), *map(address_of, stored))
        return stored if self.is_direct else self.plan.collect(arrays, stored)

    def launch(self, *addresses: int) -> None:
        """Run on parameters, then stored results: addresses of objects, or of data (CompileOptions.addresses)."""
        threads = self.threads()
        limit = threads.limit
        if threads.started < limit:
            threads.ready()
        frames = self.frames
        try:
            frame = frames.pop()
        except IndexError:
            frame = Frame(self.executable)
        if frame.sizes is not self.sizes or frame.workers < limit or frame.pool != threads.address:
            frame.fit(self, threads)
        self.pack(frame.block, self.offset, *addresses)
        threads.run(self.run, frame.address)
        if frame.problem.found:
            self.executable.raise_noted(frame.problem)
        if len(frame.memory) > MEMORY.kept:
            frame.memory, frame.sizes = _NO_MEMORY, None
        frames.append(frame)


def _data_address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


# With a known offset native code reads the data pointer from the object; else Python has to ask NumPy for it.
address_of: Callable[[np.ndarray], int] = id if DATA_OFFSET is not None else _data_address
