"""Distinct elements and rows: sorted or as they come, with the group of each element and the size of each group.

Elements in order, the first of each group is where an element differs from the one before it: a mask, whose count is
the size of the result (places.py). With `size` the result has that many entries: the first ones, or `fill_value` (the
first group without it) beyond the last; their counts are 0.
"""

from __future__ import annotations

from ..ir.errors import ShapeError
from ..ir.symbolic import Dim, product
from ..ir.types import i64
from . import minmax, pointwise
from .create import full, iota, number_of
from .define import Scalar, Tensor, composite
from .indexing import index_copy, index_select
from .ordering import sorted_places
from .places import places_of, true_places
from .reduce import any_true
from .scan import cumsum
from .shapes import dimension
from .view import movedim, reshape


def _numbers(count: Dim) -> Tensor:
    return iota((count,), dim=0, dtype=i64)


def _differs(rows: Tensor, equal_nan: bool) -> Tensor:
    """Return which rows begin a group: the first, and those that differ from the one before."""
    places = _numbers(rows.shape[0])
    before = index_select(rows, 0, minmax.maximum(places - 1, 0))
    new = pointwise.ne(rows, before)
    if equal_nan and rows.dtype.is_inexact:
        new = pointwise.logical_and(new, pointwise.logical_not(_are_nan(rows, before)))
    if rows.ndim > 1:
        new = any_true(new, tuple(range(1, rows.ndim)))
    return pointwise.logical_or(new, pointwise.eq(places, 0))


def _are_nan(left: Tensor, right: Tensor) -> Tensor:
    return pointwise.logical_and(pointwise.ne(left, left), pointwise.ne(right, right))


def _row_order(rows: Tensor) -> Tensor:
    """Return the places of rows in lexicographic order: a stable sort by each column, the last one first."""
    if rows.ndim == 1:
        return sorted_places(rows)
    flat = reshape(rows, (rows.shape[0], product(rows.shape[1:])))
    order = _numbers(rows.shape[0])
    if not isinstance(flat.shape[1], int):
        raise ShapeError(f"rows of the open size {flat.shape[1]} cannot be sorted: make it known while tracing")
    for column in reversed(range(flat.shape[1])):
        key = index_select(reshape(flat.slice(1, column, column + 1), (rows.shape[0],)), 0, order)
        order = index_select(order, 0, sorted_places(key))
    return order


def groups(
    rows: Tensor,
    op: str,
    is_sorted: bool,
    inverse: bool,
    counts: bool,
    size: Dim | None = None,
    fill_value: Scalar | None = None,
    equal_nan: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the distinct rows over the first dim, the place of the first of each, the number of each row's group, and
    how many rows each group has; empty tensors for what is not wanted."""
    length = rows.shape[0]
    order = _row_order(rows) if is_sorted else None
    ordered = rows if order is None else index_select(rows, 0, order)
    new = _differs(ordered, equal_nan)
    first = places_of(new, op) if size is None else true_places(new, size, -1)
    chosen = first if size is None else minmax.maximum(first, 0)
    if size is not None and length == 0:
        raise ShapeError("an empty tensor has no entries to fill size with")
    found = index_select(ordered, 0, chosen)
    if size is not None and fill_value is not None:
        mask = reshape(first < 0, (size, *(1 for _ in rows.shape[1:])))
        found = pointwise.where(mask, pointwise.cast(full((), fill_value, dtype=rows.dtype), rows.dtype), found)
    place = chosen if order is None else index_select(order, 0, chosen)
    number = totals = full((0,), 0, dtype=i64)
    if inverse:
        number = cumsum(pointwise.cast(new, i64), 0) - 1
        if order is not None:
            number = index_copy(full((length,), 0, dtype=i64), 0, order, number)
    if counts:
        later = pointwise.logical_and(new, pointwise.ne(_numbers(length), 0))
        following = true_places(later, first.shape[0], -1)
        ends = pointwise.where(following < 0, number_of(length, i64), following)
        totals = ends - first
        if size is not None:
            totals = pointwise.where(first < 0, 0, totals)
    return found, place, number, totals


def _of_elements(
    self: Tensor,
    op: str,
    is_sorted: bool,
    inverse: bool,
    counts: bool,
    size: Dim | None = None,
    fill_value: Scalar | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    found, _, number, totals = groups(
        reshape(self, (self.type.numel,)), op, is_sorted, inverse, counts, size, fill_value
    )
    return found, reshape(number, self.shape) if inverse else number, totals


def _of_slices(
    self: Tensor, op: str, dim: int, is_sorted: bool, inverse: bool, counts: bool, size: Dim | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    axis = dimension(dim, self.ndim)
    found, _, number, totals = groups(movedim(self, axis, 0), op, is_sorted, inverse, counts, size)
    return movedim(found, 0, axis), number, totals


@composite(differentiable=False)
def _unique(self: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """The distinct elements in order, and for each element the place of its equal there."""
    return _of_elements(self, "_unique", True, return_inverse, False)[:2]


@composite(differentiable=False)
def _unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct elements in order, for each element the place of its equal there, and how many there are of each."""
    return _of_elements(self, "_unique2", True, return_inverse, return_counts)


@composite(differentiable=False)
def unique(
    self: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    *,
    size: Dim | None = None,
    fill_value: Scalar | None = None,
) -> tuple[Tensor, ...]:
    """The distinct elements (or slices along dim) in order, with inverse and counts if wanted."""
    if dim is None:
        found, number, totals = _of_elements(self, "unique", True, return_inverse, return_counts, size, fill_value)
    else:
        found, number, totals = _of_slices(self, "unique", dim, True, return_inverse, return_counts, size)
    return (found, *((number,) if return_inverse else ()), *((totals,) if return_counts else ()))


@composite(differentiable=False)
def unique_dim(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct slices along dim in lexicographic order, with inverse and counts."""
    return _of_slices(self, "unique_dim", dim, True, True, True)


@composite(differentiable=False)
def unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The first element (or slice along dim) of each run of equal ones, with inverse and counts."""
    if dim is None:
        return _of_elements(self, "unique_consecutive", False, return_inverse, return_counts)
    return _of_slices(self, "unique_consecutive", dim, False, True, True)


@composite(differentiable=False)
def unique_dim_consecutive(
    self: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The first slice along dim of each run of equal ones, with inverse and counts."""
    return _of_slices(self, "unique_dim_consecutive", dim, False, True, True)
