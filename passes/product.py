"""The loops of a matrix product and of the elementwise ops that follow it.

    parallel over parts:  pack a matrix, if several tiles share it
    parallel over tiles:  gemm of one tile
                          loops over the tile: what follows

f16 and bf16 are copied to f32 first. So are complex matrices, to real ones of twice the depth: with (re, im) for each
element of the left matrix and ((re, im), (-im, re)) for each of the right one, the product is (re, im) again. Integers,
and vectors that lie along the depth, are summed up in plain loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..ir.graph import Value
from ..ir.symbolic import Dim, ceil_divide, floor_divide, minimum, remainder
from ..kernels.gemm import BYTES, PACK_COLUMNS, PACK_DEPTH, RegisterTile, tile_shape
from ..kernels.loop_ir import Alloc, Buffer, Gemm, Matrix, Operand, Pack, Store
from ..ops.kinds import Contract
from .axes import batched_matrix

if TYPE_CHECKING:
    from .fuse import Group
    from .lower import Lowering


@dataclass(frozen=True)
class Source:
    """The matrices that a product reads: where each of the batch begins, and how its rows and columns lie."""

    buffer: Buffer
    start: Callable[[Dim], Dim]
    row_stride: Dim
    column_stride: Dim
    is_one: bool = False  # the same for the whole batch
    panel: int = 0

    def at(self, number: Dim, row: Dim, column: Dim) -> Matrix:
        """Part of a matrix. That of a packed one begins with a panel."""
        step = self.column_stride // self.panel if self.panel else self.column_stride
        place = self.start(number) + row * self.row_stride + column * step
        return Matrix(self.buffer, place, self.row_stride, self.column_stride, self.panel)

    def transposed(self) -> Source:
        return replace(self, row_stride=self.column_stride, column_stride=self.row_stride)


class Product:
    """Lowers the group of one batched matrix product."""

    def __init__(self, lowering: Lowering, group: Group, bits: int):
        self.l = lowering
        self.group = group
        (self.op,) = (op for op in group.ops if isinstance(op.defn.kind, Contract))
        self.left: Value = self.op.arguments["self"]
        self.right: Value = self.op.arguments["mat2"]
        self.output = self.op.results[0]
        self.batch, self.rows, self.columns = self.output.shape
        self.depth = self.left.shape[2]
        self.outputs = set(group.outputs)
        self.bits = bits
        self.dtype = self.output.dtype.compute.real  # that of the product in memory
        self.parts = 2 if self.output.dtype.is_complex else 1

    def build(self) -> None:
        self.l.members = set(self.group.ops) - {self.op}
        empty = any(size == 0 for size in (*self.output.shape, self.depth))
        if self.dtype.name in BYTES and not empty and not self._is_dot():
            self._tiles()
        else:
            self._sums()

    def _is_dot(self) -> bool:
        """Whether a vector is multiplied by rows (or columns) of adjacent elements."""
        if self.output.dtype is not self.dtype:
            return False
        if self.columns == 1:
            return self._matrix(self.left).column_stride == 1
        return self.rows == 1 and self._matrix(self.right).row_stride == 1

    def _sums(self) -> None:
        """One element after the other."""
        lowering, dtype = self.l, self.output.dtype.compute
        index = self._loops(self.output.shape, (1, 1, 1))
        lowering.floor = 1
        b, i, j = index
        inner = lowering.new_variable(self.depth)
        lowering.open(inner, 0, self.depth)
        k = inner.expr()
        factors = [lowering.element(self.left, (b, i, k)), lowering.element(self.right, (b, k, j))]
        ((total,),) = lowering.close([("add", (lowering.let("mul", dtype, factors),))])
        self._store(index, total)
        self._follow(index, total)
        self._close()

    def _store(self, index: tuple[Dim, Dim, Dim], element: Operand) -> None:
        if self.output in self.outputs:
            self.l.store(self.output, index, element)

    def _follow(self, index: tuple[Dim, Dim, Dim], element: Operand) -> None:
        """What follows an element of the product."""
        shaped = self.group.product
        assert shaped is not None
        axes = self.l.fused.axes
        place: tuple[Dim, ...] = tuple(index)
        if shaped.shape != self.output.shape:
            # The same rows, counted in other dims.
            row = index[0] * self.rows + index[1]
            place = index[2:]
            for size in reversed(shaped.shape[1:-1]):
                place = (remainder(row, size), *place)
                row = floor_divide(row, size)
            if shaped.ndim > 1:
                place = (row, *place)
        coordinate = {
            axis: at for axis, at in zip(axes.root(self.group.touch[shaped]), place, strict=True) if axis is not None
        }
        self.l.scopes[-1].memo[(shaped, self.l._place(shaped, place))] = element
        for value in self.group.outputs:
            if value is not self.output:
                at = tuple(0 if axis is None else coordinate[axis] for axis in axes.root(self.group.touch[value]))
                self.l.store(value, at, self.l.element(value, at))

    def _matrix(self, value: Value) -> Source:
        """A batched matrix where it lies."""
        view = batched_matrix(value, lambda item: item in self.l.fused.inline)
        assert view is not None
        return Source(self.l.buffer(view.base), view.start, view.row_stride, view.column_stride, view.is_one)

    def _copied(self, value: Value, columns: int) -> Source:
        """A copy of a batched matrix in the type of the product, with each element as a row, or square, of parts."""
        lowering = self.l
        batch, rows, across = value.shape
        lines = columns if value is self.right else 1
        shape = (batch, rows * lines, across * columns)
        buffer = lowering.temporary(self.dtype, shape)
        index = self._loops(value.shape, (1, 1, 1))
        lowering.floor = 1
        b, i, j = index
        element = lowering.element(value, index)
        parts: list[Operand] = [element]
        if columns == 2:
            real, imaginary = (lowering.let(name, self.dtype, [element]) for name in ("real", "imag"))
            parts = [real, imaginary, lowering.let("neg", self.dtype, [imaginary]), real]
        for number, part in enumerate(parts[: lines * columns]):
            place = (b, i * lines + number // columns, j * columns + number % columns)
            lowering.add(len(lowering.scopes) - 1, Store(buffer, place, part, origin=self.op.loc))
        self._close()
        return Source(buffer, lambda number: number * (shape[1] * shape[2]), shape[2], 1)

    def _operand(self, value: Value) -> Source:
        return self._matrix(value) if self.output.dtype is self.dtype else self._copied(value, self.parts)

    def _tiles(self) -> None:
        lowering = self.l
        unit = RegisterTile(self.dtype.name, self.bits)
        columns, depth = self.columns * self.parts, self.depth * self.parts
        height, width = tile_shape(self.batch, self.rows, columns, depth, unit)
        down, across = ceil_divide(self.rows, height), ceil_divide(columns, width)
        left, right = self._operand(self.left), self._operand(self.right)
        if across != 1:
            left = self._packed(left.transposed(), depth, self.rows, unit.rows)
        if down != 1:
            right = self._packed(right, depth, columns, unit.width)
        at, row, column = self._loops((self.batch, down, across), (1, height, width))
        inside = len(lowering.scopes) - 1
        lowering.floor = inside
        many, wide = minimum(height, self.rows - row), minimum(width, columns - column)
        direct = self.output in self.outputs and self.output.dtype is self.dtype
        if direct:
            place = (at * self.rows + row) * columns + column
            target = Matrix(lowering.buffer(self.output), place, columns, 1)
        else:
            tile = Buffer(f"%{lowering.name}.tile", self.dtype, (height, width), "scratch")
            lowering.add(inside, Alloc(tile))
            target = Matrix(tile, 0, width, 1)
        lowering.add(
            inside,
            Gemm(
                target,
                left.at(at, 0, row) if left.panel else left.at(at, row, 0),
                right.at(at, 0, column),
                many,
                wide,
                depth,
                self.op.loc,
            ),
        )
        if len(self.group.ops) > 1 or not direct:
            i, j = lowering.new_variable(many), lowering.new_variable(wide // self.parts)
            lowering.open(i, 0, many)
            lowering.open(j, 0, wide // self.parts)
            index = (at, row + i.expr(), column // self.parts + j.expr())
            if direct:
                element = lowering.load_buffer(target.buffer, index)
            else:
                places = [(i.expr(), j.expr() * self.parts + part) for part in range(self.parts)]
                loaded = [lowering.load_buffer(target.buffer, place) for place in places]
                element = lowering.let("complex", self.output.dtype, loaded) if self.parts == 2 else loaded[0]
                self._store(index, element)
            self._follow(index, element)
        self._close()

    def _loops(self, counts: Sequence[Dim], lengths: Sequence[int]) -> tuple[Dim, Dim, Dim]:
        """Open a loop for each count that is not 1; gives where an iteration begins, with so much in each."""
        starts: list[Dim] = []
        for count, length in zip(counts, lengths, strict=True):
            if count == 1:
                starts.append(0)
                continue
            variable = self.l.new_variable(count)
            self.l.open(variable, 0, count)
            starts.append(variable.expr() * length)
        if len(self.l.scopes) == 1:
            self.l.open(self.l.new_variable(1), 0, 1)
        first, second, third = starts
        return first, second, third

    def _close(self) -> None:
        while len(self.l.scopes) > 1:
            self.l.close()
        self.l.floor = 0

    def _packed(self, source: Source, depth: Dim, columns: Dim, width: int) -> Source:
        """A packed copy of a matrix; one for all of the batch if it is the same everywhere."""
        lowering = self.l
        batch: Dim = 1 if source.is_one else self.batch
        panels, apart = ceil_divide(columns, width), depth * width
        buffer = lowering.temporary(self.dtype, [batch, panels, depth, width])
        each: Dim = 0 if source.is_one else panels * apart
        target = Source(buffer, lambda number: number * each, width, apart, source.is_one, width)
        long = PACK_COLUMNS // width * width
        counts = (batch, ceil_divide(depth, PACK_DEPTH), ceil_divide(columns, long))
        at, row, column = self._loops(counts, (1, PACK_DEPTH, long))
        lowering.add(
            len(lowering.scopes) - 1,
            Pack(
                target.at(at, row, column),
                source.at(at, row, column),
                minimum(PACK_DEPTH, depth - row),
                minimum(long, columns - column),
                self.op.loc,
            ),
        )
        self._close()
        return target
