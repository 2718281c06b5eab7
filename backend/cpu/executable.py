"""A compiled graph: native code, and the call into it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.errors import IndexRangeError
from ...ir.graph import Value
from ...ir.symbolic import Dim, Expr, evaluate
from ...kernels.loop_ir import Gemm, Kernel, walk
from ...passes.fuse import Fused
from ...passes.memory import Plan
from ..report import Report
from .debug import readable_assembly
from .emit import (
    ALIGN,
    ARENA,
    BLAS_TABLE,
    ERROR,
    FIRST_FREE,
    PARALLEL,
    POOL,
    SCRATCH,
    SCRATCH_STRIDE,
    Layout,
    Module,
    ModuleEmitter,
)
from .engine import engine
from .threads import pool

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Executable:
    """Call it with contiguous arrays of the parameters' types; it returns the results as new arrays."""

    report: Report

    def __init__(self, fused: Fused, kernels: Sequence[Kernel], plan: Plan, vector_bits: int, annotate: bool = False):
        self.graph = fused.graph
        self.kernels = list(kernels)
        self.plan = plan
        self.sites = [site for kernel in kernels for site in kernel.sites]
        self.sizes = [symbol.name for symbol in self.graph.sizes]
        self.uses_blas = any(isinstance(item, Gemm) for kernel in kernels for item in walk(kernel.body))
        self._results(fused)
        sizes = {name: FIRST_FREE + number for number, name in enumerate(self.sizes)}
        first = FIRST_FREE + len(sizes)
        pointers = {f"%{fused.names[param]}": first + number for number, param in enumerate(self.graph.params)}
        self.first_param = first
        self.first_result = first + len(self.graph.params)
        for number, value in enumerate(self.stored):
            pointers[f"%{fused.names[value]}"] = self.first_result + number
        self.layout = Layout(sizes, pointers, plan.offsets, self.first_result + len(self.stored))
        self.emitter = ModuleEmitter(self.layout, vector_bits, annotate)
        self.module = Module()

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
        address, self.keep = engine().link(engine().object_code(self.module.text), "run")
        self._run = _RUN(address)
        self._static = not self.sizes
        self._fixed = self._memory({}) if self._static else None

    def _memory(self, sizes: dict[str, int]) -> tuple[int, int]:
        """Bytes of the arena and of one thread's scratch."""
        scratch = max((evaluate(item, sizes) for item in self.module.scratch), default=0)
        return evaluate(self.plan.size, sizes), scratch

    def bind_sizes(self, arrays: Sequence[np.ndarray]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for param, array in zip(self.graph.params, arrays, strict=True):
            for dim, size in zip(param.shape, array.shape, strict=True):
                if isinstance(dim, Expr) and len(dim.terms) == 1 and len(dim.terms[0][0]) == 1 and dim.terms[0][1] == 1:
                    sizes[str(dim)] = size
        return sizes

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        sizes = {} if self._static else self.bind_sizes(arrays)
        arena_bytes, scratch_bytes = self._fixed or self._memory(sizes)
        threads = pool()
        threads.ready()
        workers = max(threads.limit, threads.started)
        results = [np.empty(_shape(value.shape, sizes), value.dtype.numpy) for value in self.stored]
        scratch_bytes += -scratch_bytes % ALIGN
        memory = np.empty(arena_bytes + scratch_bytes * workers + ALIGN, np.uint8)
        base = memory.__array_interface__["data"][0]
        base += -base % ALIGN
        block = (ctypes.c_int64 * self.layout.slots)()
        error = (ctypes.c_int64 * 4)()
        block[PARALLEL], block[POOL] = threads.parallel, threads.address
        block[ARENA], block[SCRATCH], block[SCRATCH_STRIDE] = base, base + arena_bytes, scratch_bytes
        block[ERROR] = ctypes.addressof(error)
        if self.uses_blas:
            from .blas import table

            block[BLAS_TABLE] = ctypes.addressof(table())
        for number, name in enumerate(self.sizes):
            block[FIRST_FREE + number] = sizes[name]
        for number, array in enumerate(arrays):
            block[self.first_param + number] = array.__array_interface__["data"][0]
        for number, array in enumerate(results):
            block[self.first_result + number] = array.__array_interface__["data"][0]
        self._run(ctypes.addressof(block))
        if error[0]:
            self._raise(error)
        return self._collect(arrays, results, sizes)

    def _raise(self, error: Any) -> None:
        site = self.sites[error[1]]
        called = site.location.op if site.location and site.location.op else site.op
        raise IndexRangeError(
            f"{called}: index {error[2]} is out of range for a dimension of size {error[3]}", site.location
        )

    def _collect(
        self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray], sizes: dict[str, int]
    ) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        for value, (how, number) in zip(self.graph.results, self.sources, strict=True):
            array = arrays[number] if how == "parameter" else results[number]
            shaped = array.reshape(_shape(value.shape, sizes))
            found.append(shaped if how == "own" else shaped.copy())
        return found


def _shape(shape: Sequence[Dim], sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(dim, sizes) for dim in shape)
