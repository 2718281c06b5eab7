"""The loops of a matrix product.

    parallel over panels: pack the right matrix, if several tiles share it
    parallel over tiles:  gemm of one tile

Element types without a product of their own are summed up in plain loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.graph import Op, Value
from ..ir.symbolic import Dim, ceil_divide, minimum
from ..kernels.gemm import BYTES, PACK_COLUMNS, PACK_DEPTH, RegisterTile, tile_shape
from ..kernels.loop_ir import Gemm, Matrix, Pack, Store
from .axes import strided_view

if TYPE_CHECKING:
    from .lower import Lowering


class Product:
    """Lowers one batched matrix product."""

    def __init__(self, lowering: Lowering, op: Op, bits: int):
        self.l = lowering
        self.op = op
        self.left: Value = op.arguments["self"]
        self.right: Value = op.arguments["mat2"]
        self.output = op.results[0]
        self.batch, self.rows, self.columns = self.output.shape
        self.depth = self.left.shape[2]
        self.bits = bits

    def build(self) -> None:
        self.l.members = set()
        empty = any(size == 0 for size in (*self.output.shape, self.depth))
        if self.output.dtype.name in BYTES and not empty:
            self._tiles()
        else:
            self._sums()
        self.l.floor = 0

    def _sums(self) -> None:
        """One element after the other."""
        lowering, dtype = self.l, self.output.dtype.compute
        variables = [lowering.new_variable(size) for size in self.output.shape]
        for variable, size in zip(variables, self.output.shape, strict=True):
            lowering.open(variable, 0, size)
        lowering.floor = 1
        b, i, j = (variable.expr() for variable in variables)
        inner = lowering.new_variable(self.depth)
        lowering.open(inner, 0, self.depth)
        k = inner.expr()
        factors = [lowering.element(self.left, (b, i, k)), lowering.element(self.right, (b, k, j))]
        ((total,),) = lowering.close([("add", (lowering.let("mul", dtype, factors),))])
        lowering.add(len(lowering.scopes) - 1, Store(lowering.buffer(self.output), (b, i, j), total))
        for _ in variables:
            lowering.close()

    def _matrix(self, value: Value) -> tuple[Matrix, tuple[Dim, ...]]:
        """A batched matrix where it lies: the first one, and all strides."""
        view = strided_view(value, lambda item: item in self.l.fused.inline)
        assert view is not None
        base, offset, strides = view
        return Matrix(self.l.buffer(base), offset, strides[1], strides[2]), strides

    def _tiles(self) -> None:
        lowering = self.l
        unit = RegisterTile(self.output.dtype.name, self.bits)
        height, width = tile_shape(self.batch, self.rows, self.columns, self.depth, unit)
        down, across = ceil_divide(self.rows, height), ceil_divide(self.columns, width)
        left, left_strides = self._matrix(self.left)
        right, right_strides = self._matrix(self.right)
        if down != 1:
            right, right_strides = self._packed(right, right_strides, unit.width)
        step = lowering.new_variable(self.batch * down * across)
        lowering.open(step, 0, self.batch * down * across)
        lowering.floor = 1
        at = step.expr() // (down * across)
        row, column = step.expr() // across % down * height, step.expr() % across * width
        output = lowering.buffer(self.output)
        lowering.add(
            1,
            Gemm(
                Matrix(output, (at * self.rows + row) * self.columns + column, self.columns, 1),
                moved(left, at * left_strides[0] + row * left_strides[1]),
                moved(right, at * right_strides[0] + column * right_strides[2]),
                minimum(height, self.rows - row),
                minimum(width, self.columns - column),
                self.depth,
                self.op.loc,
            ),
        )
        lowering.close()

    def _packed(self, source: Matrix, strides: tuple[Dim, ...], width: int) -> tuple[Matrix, tuple[Dim, ...]]:
        """A packed copy of the right matrix; one for all of the batch if it is the same everywhere."""
        lowering = self.l
        batch: Dim = 1 if strides[0] == 0 else self.batch
        panels = ceil_divide(self.columns, width)
        apart = self.depth * width
        buffer = lowering.temporary(self.output.dtype, [batch, panels, self.depth, width])
        down, across = ceil_divide(self.depth, PACK_DEPTH), ceil_divide(self.columns, PACK_COLUMNS)
        step = lowering.new_variable(batch * down * across)
        lowering.open(step, 0, batch * down * across)
        at = step.expr() // (down * across)
        row, column = step.expr() // across % down * PACK_DEPTH, step.expr() % across * PACK_COLUMNS
        lowering.add(
            1,
            Pack(
                Matrix(buffer, at * panels * apart + column * self.depth + row * width, width, apart, width),
                moved(source, at * strides[0] + row * strides[1] + column * strides[2]),
                minimum(PACK_DEPTH, self.depth - row),
                minimum(PACK_COLUMNS, self.columns - column),
                self.op.loc,
            ),
        )
        lowering.close()
        # From column to column it is as far as the depth, on the average: columns of tiles begin with a panel.
        return Matrix(buffer, 0, width, apart, width), (0 if batch == 1 else panels * apart, width, self.depth)


def moved(matrix: Matrix, distance: Dim) -> Matrix:
    """The same matrix, beginning further on."""
    return Matrix(matrix.buffer, matrix.offset + distance, matrix.row_stride, matrix.column_stride, matrix.panel)
