"""Map the dims of values to loop axes, through views.

An axis is one loop of a group; fusion maps the dims of every value that a group reads or makes to its axes. A
rigid view (permute, expand, a reshape that only adds or removes dims of size 1) renames dims, so axes pass
through it. A reshape that regroups dims is an alias: the same memory under another shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ...ir.graph import Op, Value
from ...ir.proofs import substitute
from ...ir.record import Record
from ...ir.symbolic import Dim, Expr, Symbol, contiguous_strides, same, symbols_of
from ...ir.types import TensorType
from ...ops.kinds import View

AxisSet = frozenset[int]
Axes = tuple[int | None, ...]  # of a value: the axis of each dim, None where the size is 1

ANY = -1  # in place of an axis: data chooses the index in that dim


class AxisUnion:
    """Union-find over axes; each has an extent."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.extent: list[Dim] = []

    def new(self, extent: Dim) -> int:
        """Add an axis."""
        self.parent.append(len(self.parent))
        self.extent.append(extent)
        return len(self.parent) - 1

    def over(self, shape: tuple[Dim, ...]) -> Axes:
        """Add axes for the dims of a shape."""
        return tuple(None if size == 1 else self.new(size) for size in shape)

    def find(self, axis: int) -> int:
        """Return the representative of an axis."""
        parent = self.parent
        while (above := parent[axis]) != axis:
            parent[axis] = axis = parent[above]
        return axis

    def join(self, axis: int, into: int) -> None:
        """Make two axes one: loops over the same iteration space."""
        assert same(self.extent[axis], self.extent[into]), f"{self.extent[axis]} and {self.extent[into]} are one axis"
        self.parent[axis] = into

    def root(self, axes: Axes) -> Axes:
        find = self.find
        return tuple([axis if axis is None or axis == ANY else find(axis) for axis in axes])

    def roots(self, axes: AxisSet) -> AxisSet:
        return frozenset(map(self.find, axes))


def present(axes: Axes) -> AxisSet:
    """Return the axes of a value's dims as a set."""
    return frozenset([axis for axis in axes if axis is not None])


def aligned(axes: Axes, value: Value) -> Axes:
    """Return the axes of an elementwise op's operand, given the result's: aligned at the end, none at size 1."""
    lead = len(axes) - value.ndim
    return tuple(None if size == 1 else axes[lead + dim] for dim, size in enumerate(value.shape))


def rigid_map(op: Op) -> tuple[int | None, ...] | None:
    """Return for each operand dim of a rigid view the result dim it becomes (None: of size 1); None for other ops."""
    kind = op.defn.kind
    if not isinstance(kind, View) or kind.rigid is None:
        return None
    return kind.rigid(op.arguments, op.results[0].shape)


def keeps_order(op: Op) -> bool:
    """Whether an op is a view with its operand's elements in the same row-major order."""
    kind = op.defn.kind
    return isinstance(kind, View) and kind.keeps_order


def is_alias(op: Op) -> bool:
    """Whether an op is a reshape that regroups dims: the same memory under another shape."""
    return keeps_order(op) and rigid_map(op) is None


BATCH = Symbol("%batch")


class BatchedMatrix(Record):
    """A batch of matrices in memory: the value that has the memory, where matrix number BATCH begins, and the strides.

    With a `panel` the layout is packed, in panels of so many columns: kernels/loop/ir.py, Matrix.
    """

    base: Value
    offset: Dim
    row_stride: Dim
    column_stride: Dim
    panel: int = 0

    def start(self, number: Dim) -> Dim:
        return substitute(self.offset, {BATCH: number})

    @property
    def is_one(self) -> bool:
        """Whether it is the same matrix for the whole batch."""
        return BATCH not in symbols_of(self.offset)


def batched_matrix(value: Value, inline: Callable[[Op], bool], panel: int = 0) -> BatchedMatrix | None:
    """Return a value of three dims as matrices in memory, if its views have strides for rows and columns or are packed
    in panels of the given width; else None."""
    shape = value.shape
    views: list[tuple[View, TensorType, tuple[tuple[str, Any], ...]]] = []
    while value.op is not None and inline(value.op):
        op = value.op
        if not isinstance(op.defn.kind, View):
            return None
        (value,) = op.operands
        views.append((op.defn.kind, value.type, tuple(op.attrs.items())))
    found = _strides(shape, tuple(views), value.shape, panel)
    return None if found is None else BatchedMatrix(value, *found)


@lru_cache(maxsize=1024)  # layers of a model have the same views
def _strides(
    shape: tuple[Dim, ...],
    views: tuple[tuple[View, TensorType, tuple[tuple[str, Any], ...]], ...],
    base: tuple[Dim, ...],
    panel: int,
) -> tuple[Dim, Dim, Dim, int] | None:
    """Return offset, strides and panel of memory seen through views: the last one first, with their operands' types."""
    names = (BATCH.name, "%row", "%column")
    symbols = [Symbol(name, 0, size - 1) for name, size in zip(names, shape, strict=True)]
    index: tuple[Dim, ...] = tuple(symbol.expr() for symbol in symbols)
    for kind, source, attributes in views:
        index = tuple(kind.index(index, {"self": Value(source), **dict(attributes)}))
    offset: Dim = 0
    for position, stride in zip(index, contiguous_strides(base), strict=True):
        offset = offset + position * stride
    batch, row, column = symbols
    strides = [offset.coefficient(symbol) if isinstance(offset, Expr) else 0 for symbol in (row, column)]
    if strides[1] is None and panel and base[-1] == panel:
        # Panels are whole: the padding after the last column is memory of the value, too.
        number, lane = Symbol("%panel", 0), Symbol("%lane", 0, panel - 1)
        offset = substitute(offset, {column: number.expr() * panel + lane.expr()})
        assert isinstance(offset, Expr)
        strides = [offset.coefficient(symbol) for symbol in (row, number)]
        if offset.coefficient(lane) != 1 or strides[0] != panel:
            return None
        symbols = [row, number, lane]
    else:
        symbols, panel = [row, column], 0
    if strides[0] is None or strides[1] is None:
        return None
    places: dict[Symbol, Dim] = {batch: BATCH.expr(), **dict.fromkeys(symbols, 0)}
    return substitute(offset, places), strides[0], strides[1], panel
