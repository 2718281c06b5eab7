"""A compiled graph: native code, and the call into it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.errors import IndexRangeError
from ...ir.graph import Value
from ...ir.symbolic import Dim, Expr, evaluate
from ...kernels.loop_ir import Gemm, Kernel, walk
from ...passes.fuse import Fused
from ...passes.memory import Plan
from ..arrays import as_plain
from ..interp.graph import bind_sizes
from ..report import Report
from .debug import readable_assembly
from .emit import (
    ALIGN,
    ARENA,
    ERROR,
    FIRST_FREE,
    PARALLEL,
    POOL,
    PRODUCTS,
    SCRATCH,
    SCRATCH_STRIDE,
    WORKERS,
    Layout,
    Module,
    ModuleEmitter,
)
from .engine import engine
from .threads import Pool, pool

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Executable:
    """Call it with arrays of the parameters' types; it returns the results as new arrays."""

    report: Report

    def __init__(self, fused: Fused, kernels: Sequence[Kernel], plan: Plan, vector_bits: int, annotate: bool = False):
        self.graph = fused.graph
        self.kernels = list(kernels)
        self.plan = plan
        self.sites = [site for kernel in kernels for site in kernel.sites]
        self.sizes = [symbol.name for symbol in self.graph.sizes]
        products = [item for kernel in kernels for item in walk(kernel.body) if isinstance(item, Gemm)]
        self.products = frozenset(item.output.buffer.dtype.name for item in products)
        self._results(fused)
        sizes = {name: FIRST_FREE + number for number, name in enumerate(self.sizes)}
        first = FIRST_FREE + len(sizes)
        pointers = {f"%{fused.names[param]}": first + number for number, param in enumerate(self.graph.params)}
        self.first_param = first
        self.first_result = first + len(self.graph.params)
        for number, value in enumerate(self.stored):
            pointers[f"%{fused.names[value]}"] = self.first_result + number
        self.layout = Layout(sizes, pointers, plan.offsets, self.first_result + len(self.stored))
        self.emitter = ModuleEmitter(self.layout, vector_bits, annotate, DATA_OFFSET)
        self.module = Module()
        self.frames: list[Frame] = []

    def _results(self, fused: Fused) -> None:
        """Where each result comes from: memory of its own, or a copy of a parameter or of another result."""
        self.stored: list[Value] = []
        self.sources: list[tuple[str, int]] = []
        position: dict[Value, int] = {}
        params = {param: number for number, param in enumerate(self.graph.params)}
        taken: set[int] = set()
        for value in self.graph.results:
            base = fused.stored(value)
            if base in params:
                self.sources.append(("parameter", params[base]))
                continue
            if base not in position:
                position[base] = len(self.stored)
                self.stored.append(base)
            how = "copy" if position[base] in taken else "own"
            taken.add(position[base])
            self.sources.append((how, position[base]))

    def emit(self) -> Module:
        self.module = self.emitter.emit(self.kernels)
        return self.module

    def assembly(self) -> str:
        """What the machine runs, with the user's lines if the module has them."""
        return readable_assembly(engine().assembly(self.module.text))

    def link(self) -> None:
        if self.products:
            from .gemm import tables

            self.tables = tables(self.products, self.emitter.vector_bits)
        address, self.keep = engine().link(engine().object_code(self.module.text), "run")
        self.run = _RUN(address)

    def sizes_of(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """What the symbolic sizes are for parameters of these shapes."""
        sizes: dict[str, int] = {}
        for param, shape in zip(self.graph.params, shapes, strict=True):
            for dim, size in zip(param.shape, shape, strict=True):
                if isinstance(dim, Expr) and dim.symbol is not None:
                    sizes[dim.symbol.name] = size
        return sizes

    def launcher(self, shapes: Sequence[tuple[int, ...]]) -> Launcher:
        """How to call this code for parameters of these shapes."""
        return Launcher(self, self.sizes_of(shapes))

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = list(map(as_plain, arrays))
        return Launcher(self, bind_sizes(self.graph, given))(given)

    def raise_index_error(self, error: Any) -> None:
        site = self.sites[error[1]]
        called = site.location.op if site.location and site.location.op else site.op
        raise IndexRangeError(
            f"{called}: index {error[2]} is out of range for a dimension of size {error[3]}", site.location
        )


class Frame:
    """The memory of one call: ctx, where an error is reported, the arena and the scratch of all threads."""

    def __init__(self, executable: Executable):
        self.workers = 0
        self.sizes: dict[str, int] | None = None  # of the launcher that it was last made fit for
        self.memory = np.empty(0, np.uint8)
        self.block = (ctypes.c_int64 * executable.layout.slots)()
        self.error = (ctypes.c_int64 * 4)()
        self.address = ctypes.addressof(self.block)
        self.block[ERROR] = ctypes.addressof(self.error)
        if executable.products:
            self.block[PRODUCTS] = ctypes.addressof(executable.tables)

    def fit(self, launcher: Launcher, threads: Pool) -> None:
        """Prepare for a launcher's sizes and as many threads as there are now."""
        block, self.sizes = self.block, launcher.sizes
        self.workers = max(threads.limit, threads.started)
        needed = launcher.arena_bytes + launcher.scratch_bytes * self.workers + ALIGN
        if len(self.memory) < needed:
            self.memory = np.empty(needed, np.uint8)
        base = self.memory.__array_interface__["data"][0]
        base += -base % ALIGN
        block[PARALLEL], block[POOL] = threads.parallel, threads.address
        block[ARENA], block[SCRATCH] = base, base + launcher.arena_bytes
        block[SCRATCH_STRIDE], block[WORKERS] = launcher.scratch_bytes, self.workers
        for number, name in enumerate(launcher.executable.sizes):
            block[FIRST_FREE + number] = launcher.sizes[name]


class Launcher:
    """The call into native code for one set of sizes: all that can be known beforehand is.

    Frames are kept and used again, for other sizes too; as many exist as there ever were calls at the same time.
    Arrays are passed as the addresses of their Python objects, in which native code finds the data (DATA_OFFSET).
    """

    def __init__(self, executable: Executable, sizes: dict[str, int]):
        self.executable = executable
        self.sizes = sizes
        scratch = max((evaluate(item, sizes) for item in executable.module.scratch), default=0)
        self.scratch_bytes = scratch + -scratch % ALIGN
        self.arena_bytes = evaluate(executable.plan.size, sizes)
        self.results = [(_shape(value.shape, sizes), value.dtype.numpy) for value in executable.stored]
        self.shapes = [_shape(value.shape, sizes) for value in executable.graph.results]
        # Whether the results are just the stored arrays, in order.
        self.plain = executable.sources == [("own", number) for number in range(len(self.results))] and all(
            shape == stored for shape, (stored, _) in zip(self.shapes, self.results, strict=True)
        )
        count = len(executable.graph.params) + len(self.results)
        self.pack = struct.Struct(f"{count}q").pack_into
        self.offset = 8 * executable.first_param
        self.frames = executable.frames
        self.run = executable.run

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        threads = pool()
        if threads.started < threads.limit:
            threads.ready()
        frames = self.frames
        try:
            frame = frames.pop()
        except IndexError:
            frame = Frame(self.executable)
        if frame.sizes is not self.sizes or frame.workers < threads.limit or frame.block[POOL] != threads.address:
            frame.fit(self, threads)
        results = [np.empty(shape, dtype) for shape, dtype in self.results]
        self.pack(frame.block, self.offset, *map(address_of, arrays), *map(address_of, results))
        self.run(frame.address)
        if frame.error[0]:
            self.executable.raise_index_error(frame.error)
        frames.append(frame)
        return results if self.plain else self._collect(arrays, results)

    def _collect(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        for shape, (how, number) in zip(self.shapes, self.executable.sources, strict=True):
            array = arrays[number] if how == "parameter" else results[number]
            shaped = array.reshape(shape)
            found.append(shaped if how == "own" else shaped.copy())
        return found


def _find_data_offset() -> int | None:
    """Where an array object holds the address of its data, by looking; None if it does not show."""
    probe = np.empty(3)
    data = probe.__array_interface__["data"][0]
    for offset in (16, 24, 32, 40):
        if ctypes.c_int64.from_address(id(probe) + offset).value == data:
            return offset
    return None


def _data_address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


# With an offset native code reads the data's address from the object; without one Python has to ask for it.
DATA_OFFSET = _find_data_offset()
address_of: Callable[[np.ndarray], int] = id if DATA_OFFSET is not None else _data_address


def _shape(shape: Sequence[Dim], sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(dim, sizes) for dim in shape)
