"""A kernel once more, with other names for its memory and from other lines of the user's code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...ir.graph import Location
from ...kernels.loop.ir import (
    Alloc,
    Buffer,
    Concurrent,
    Fetch,
    Gemm,
    Kernel,
    Lead,
    Let,
    Load,
    Loop,
    Matrix,
    Pack,
    Site,
    Statement,
    Store,
    Transpose,
)


class Renaming:
    """Buffers by other names, statements from other lines."""

    def __init__(
        self,
        names: dict[str, str],
        starts: Sequence[tuple[str, str]],
        locations: dict[int, Location | None],
    ):
        self.names = names
        self.starts = starts  # of names of memory that a kernel has for itself
        self.locations = locations
        self.buffers: dict[int, Buffer] = {}  # by identity: most are mentioned many times

    def kernel(self, kernel: Kernel, name: str) -> Kernel:
        sites = tuple(Site(site.op, self.location(site.location)) for site in kernel.sites)
        return Kernel(name, tuple(map(self.buffer, kernel.buffers)), self.body(kernel.body), sites)

    def location(self, location: Location | None) -> Location | None:
        return self.locations.get(id(location), location)

    def buffer(self, buffer: Buffer) -> Buffer:
        known = self.buffers.get(id(buffer))
        if known is None:
            known = Buffer(self.name(buffer.name), buffer.dtype, buffer.shape, buffer.role)
            self.buffers[id(buffer)] = known
        return known

    def name(self, name: str) -> str:
        known = self.names.get(name)
        if known is None:
            known = name
            for start, other in self.starts:
                if name.startswith(start):
                    known = other + name[len(start) :]
                    break
            self.names[name] = known
        return known

    def matrix(self, matrix: Matrix) -> Matrix:
        buffer = self.buffer(matrix.buffer)
        return Matrix(buffer, matrix.offset, matrix.row_stride, matrix.column_stride, matrix.panel)

    def body(self, statements: Sequence[Statement]) -> tuple[Any, ...]:
        found: list[Any] = []
        for item in statements:
            change = _CHANGES.get(item.__class__)
            found.append(item if change is None else change(self, item))
        return tuple(found)

    def let(self, item: Let) -> Let:
        return Let(item.result, item.op, item.operands, self.location(item.origin))

    def load(self, item: Load) -> Load:
        return Load(item.result, self.buffer(item.buffer), item.index, item.guard, self.location(item.origin))

    def store(self, item: Store) -> Store:
        buffer, origin = self.buffer(item.buffer), self.location(item.origin)
        return Store(buffer, item.index, item.value, item.guard, item.combine, item.stream, origin)

    def loop(self, item: Loop) -> Loop:
        body = self.body(item.body)
        return Loop(item.kind, item.variable, item.start, item.stop, body, item.width, item.accumulators)

    def concurrent(self, item: Concurrent) -> Concurrent:
        return Concurrent(self.body(item.branches))

    def memory(self, item: Any) -> Any:
        return replace(item, buffer=self.buffer(item.buffer))

    def gemm(self, item: Gemm) -> Gemm:
        output, left, right = map(self.matrix, (item.output, item.left, item.right))
        return replace(item, output=output, left=left, right=right, origin=self.location(item.origin))

    def transpose(self, item: Transpose) -> Transpose:
        return replace(item, target=self.matrix(item.target), source=self.matrix(item.source))

    def pack(self, item: Pack) -> Pack:
        output, source = self.matrix(item.output), self.matrix(item.source)
        return replace(item, output=output, source=source, origin=self.location(item.origin))


_CHANGES: dict[type, Callable[[Renaming, Any], Any]] = {
    Let: Renaming.let,
    Load: Renaming.load,
    Store: Renaming.store,
    Loop: Renaming.loop,
    Concurrent: Renaming.concurrent,
    Fetch: Renaming.memory,
    Lead: Renaming.memory,
    Alloc: Renaming.memory,
    Gemm: Renaming.gemm,
    Transpose: Renaming.transpose,
    Pack: Renaming.pack,
}
