"""Sorting: the order of the elements along a dimension. NaN is the largest; equal elements keep their order.

The two primitives sort rows, the last dimension; the public ops sort along any.
"""

from __future__ import annotations

from ..ir.errors import ArgumentError, ShapeError
from ..ir.types import REAL, i64
from .create import full
from .define import Tensor, composite, prim
from .indexing import gather_along, scatter_add
from .kinds import Sort
from .shapes import Dim, at_least, dimension
from .view import alias, transpose


def _check_rows(value: Tensor, count: Dim | None) -> None:
    if value.ndim == 0:
        raise ShapeError("a 0-dim tensor has no dimension to sort along")
    if count is not None and not (at_least(count, 0) and at_least(value.shape[-1], count)):
        raise ArgumentError(f"count is {count}, expected 0 to {value.shape[-1]}, the elements of a row")


@prim(Sort(places=True), dtypes=REAL, differentiable=False)
def sorted_places(self: Tensor, descending: bool = False, count: Dim | None = None) -> Tensor:
    """The places of the elements of each row in sorted order; with count, of the first ones."""
    _check_rows(self, count)
    return None


@prim(Sort(places=False), dtypes=REAL)
def sorted_values(self: Tensor, descending: bool = False, count: Dim | None = None) -> Tensor:
    """The elements of each row in sorted order; with count, the first ones."""
    _check_rows(self, count)
    return None


@sorted_values.vjp
def sorted_values_vjp(grad, self, descending, count):
    places = sorted_places(self, descending, count)
    return scatter_add(full(self.shape, 0, dtype=grad.dtype), -1, places, grad)


@sorted_values.jvp
def sorted_values_jvp(self_tangent, self, descending, count):
    return gather_along(self_tangent, -1, sorted_places(self, descending, count))


def _sorted(self: Tensor, dim: int, descending: bool, count: Dim | None = None) -> tuple[Tensor, Tensor]:
    """Return the first elements along a dimension in sorted order, and their places."""
    dim = dimension(dim, self.ndim)
    if self.ndim == 0:
        return alias(self), full((), 0, dtype=i64)
    rows = transpose(self, dim, -1)
    values, places = sorted_values(rows, descending, count), sorted_places(rows, descending, count)
    return transpose(values, dim, -1), transpose(places, dim, -1)


@composite
def sort(self: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Tensor, Tensor]:
    """The elements along dim in sorted order, and their places; equal elements keep their order."""
    return _sorted(self, dim, descending)


@composite(differentiable=False)
def argsort(self: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Tensor:
    """The places of the elements along dim in sorted order; equal elements keep their order."""
    return _sorted(self, dim, descending)[1]


@composite
def msort(self: Tensor) -> Tensor:
    """The elements along the first dimension in sorted order."""
    return _sorted(self, 0, False)[0]
