"""Name blocks, strip-mine loops into them and find the matrices of accesses, for both ways of transposing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from ...ir.proofs import ceil_divide, minimum, substitute
from ...ir.symbolic import Dim, Symbol, symbols_of
from ...kernels.loop.analysis import offset, step
from ...kernels.loop.ir import Buffer, Kernel, Load, Loop, Matrix, Store, names
from ...kernels.machine import CACHE_LINE, DEFAULT, Machine

BLOCK_UNIT = CACHE_LINE // 4  # elements; sides of blocks are multiples of it: a cache line of f32


class Names:
    """Fresh names for a kernel's blocks and their loops, and the options of blocks."""

    def __init__(self, kernel: Kernel, machine: Machine = DEFAULT, side: int = 0, pad: int = 0):
        self.machine = machine
        self.side = side  # of blocks, if it is given
        self.pad = pad
        self.kernel = kernel
        self.blocks = 0

    @cached_property
    def taken(self) -> set[str]:
        return names(self.kernel)

    def new(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def scratch(self, access: Load | Store, shape: tuple[Dim, ...]) -> Buffer:
        self.blocks += 1
        return Buffer(self.new(f"%block{self.blocks - 1}"), access.buffer.dtype, shape, "scratch")


def split(loop: Loop, size: int, names: Names) -> tuple[Loop, Loop]:
    """Strip-mine a loop: return the loop over blocks, without a body, and the loop over one block."""
    number = ceil_divide(loop.extent, size)
    block = Symbol(names.new(f"{loop.variable.name}.block"), 0, number - 1)
    start = loop.start + (0 if number == 1 else block.expr() * size)
    inner = replace(loop, start=start, stop=minimum(start + size, loop.stop))
    return Loop("serial", block, 0, number, ()), inner


def movable(access: Load | Store, variable: Symbol, known: frozenset[Symbol]) -> bool:
    """Whether an access has a constant stride of more than one element along a loop, no guard and no combiner.

    `known` are the loops whose variables it may name: indices that data chooses are none of them.
    """
    if access.guard is not None or (isinstance(access, Store) and access.combine is not None):
        return False
    place = offset(access.buffer, access.index)
    apart = step(place, variable)
    if apart is None or apart in (0, 1) or any(symbol.name.startswith("%") for symbol in symbols_of(apart)):
        return False
    return all(symbol in known for symbol in symbols_of(place) if symbol.name.startswith("%"))


def matrix(access: Load | Store, rows: Symbol, columns: Symbol, starts: Mapping[Symbol, Dim]) -> Matrix:
    """Return the block that an access touches; `starts`: where the loops over its rows and columns start."""
    place = offset(access.buffer, access.index)
    row_stride, column_stride = step(place, rows), step(place, columns)
    assert row_stride is not None and column_stride is not None
    return Matrix(access.buffer, substitute(place, starts), row_stride, column_stride)
