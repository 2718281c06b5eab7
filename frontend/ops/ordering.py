"""Sorting: the order of the elements along a dimension. NaN is the largest; equal elements keep their order.

The two primitives sort rows, the last dimension; the public ops sort along any.
"""

from __future__ import annotations

from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import floor_divide
from ..ir.types import REAL, i64
from . import pointwise, reduce
from .create import full, iota, number_of
from .define import Scalar, Tensor, composite, prim
from .indexing import gather_along, scatter_add
from .kinds import Sort
from .minmax import clamp_min
from .rounding import ceil, floor, round
from .scan import running_max
from .shapes import Dim, at_least, dimension
from .view import alias, flatten, movedim, narrow, reshape, squeeze, transpose, unsqueeze


def _check_rows(value: Tensor, start: Dim, count: Dim | None) -> None:
    if value.ndim == 0:
        raise ShapeError("a 0-dim tensor has no dimension to sort along")
    end = start if count is None else start + count
    if not (at_least(start, 0) and at_least(end, start) and at_least(value.shape[-1], end)):
        raise ArgumentError(f"elements {start} to {end} are asked for, a row has {value.shape[-1]}")


@prim(Sort(places=True), dtypes=REAL, differentiable=False)
def sorted_places(self: Tensor, descending: bool = False, start: Dim = 0, count: Dim | None = None) -> Tensor:
    """The places of the elements of each row in sorted order; of count of them, from start on."""
    _check_rows(self, start, count)
    return None


@prim(Sort(places=False), dtypes=REAL)
def sorted_values(self: Tensor, descending: bool = False, start: Dim = 0, count: Dim | None = None) -> Tensor:
    """The elements of each row in sorted order; count of them, from start on."""
    _check_rows(self, start, count)
    return None


@sorted_values.vjp
def sorted_values_vjp(grad, self, descending, start, count):
    places = sorted_places(self, descending, start, count)
    return scatter_add(full(self.shape, 0, dtype=grad.dtype), -1, places, grad)


@sorted_values.jvp
def sorted_values_jvp(self_tangent, self, descending, start, count):
    return gather_along(self_tangent, -1, sorted_places(self, descending, start, count))


def _sorted(self: Tensor, dim: int, descending: bool, count: Dim | None = None) -> tuple[Tensor, Tensor]:
    """Return the first elements along a dimension in sorted order, and their places."""
    dim = dimension(dim, self.ndim)
    if self.ndim == 0:
        _check_rows(reshape(self, (1,)), 0, count)
        kept = (1,) if count is None else (count,)
        return (alias(self), full((), 0, dtype=i64)) if kept == (1,) else (full((0,), 0), full((0,), 0))
    rows = transpose(self, dim, -1)
    places = sorted_places(rows, descending, 0, count)
    # passes/graph/sorts.py: without the places, elements alone are sorted.
    values = sorted_values(rows, descending) if count is None else gather_along(rows, -1, places)
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


@composite
def topk(self: Tensor, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along dim in sorted order, and their places."""
    return _sorted(self, dim, largest, k)


# One element of each row.


def _chosen(rows: Tensor, place: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return the element at a place of each row, with the place; the rows were along `dim`."""
    value, place = (transpose(item, dim, -1) for item in (gather_along(rows, -1, place), place))
    return (value, place) if keepdim else (squeeze(value, dim), squeeze(place, dim))


def _rows(self: Tensor, dim: int) -> tuple[Tensor, int]:
    """Return a tensor with a dimension last, and its number; a 0-dim one as a row of one element."""
    dim = dimension(dim, self.ndim)
    return (transpose(self, dim, -1), dim) if self.ndim else (reshape(self, (1,)), 0)


def _back(found: tuple[Tensor, Tensor], self: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results of a 0-dim tensor as such."""
    return found if self.ndim else (reshape(found[0], ()), reshape(found[1], ()))


def _not_empty(rows: Tensor) -> None:
    if rows.shape[-1] == 0:
        raise ShapeError("no element to choose: the dimension has size 0")


@composite
def kthvalue(self: Tensor, k: Dim, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along dim, and its place."""
    rows, dim = _rows(self, dim)
    if not (at_least(k, 1) and at_least(rows.shape[-1], k)):
        raise ArgumentError(f"k is {k}, expected 1 to {rows.shape[-1]}, the elements along dim")
    return _back(_chosen(rows, sorted_places(rows, False, k - 1, 1), dim, keepdim), self)


def _nan(value: Tensor) -> Tensor | None:
    """Return which elements are NaN; None of a type without."""
    return pointwise.isnan(value) if value.dtype.is_float else None


def _median_place(rows: Tensor) -> Tensor:
    """Return the place of each row's lower median, or of its first NaN."""
    _not_empty(rows)
    place = sorted_places(rows, False, floor_divide(rows.shape[-1] - 1, 2), 1)
    nan = _nan(rows)
    if nan is None:
        return place
    return pointwise.where(reduce.any_true(nan, -1, True), reduce.argmax(pointwise.cast(nan, i64), -1, True), place)


def _nanmedian_place(rows: Tensor) -> Tensor:
    """Return the place of each row's lower median of what is not NaN."""
    nan = _nan(rows)
    if nan is None:
        return _median_place(rows)
    _not_empty(rows)
    count = reduce.sum(pointwise.cast(pointwise.logical_not(nan), i64), -1, True)
    middle = clamp_min(pointwise.bitwise_right_shift(count - 1, 1), 0)
    return gather_along(sorted_places(rows), -1, middle)


@composite
def median_of_all(self: Tensor, ignore_nan: bool = False) -> Tensor:
    """The lower median of all elements; NaN if there is one, unless they are ignored."""
    row = flatten(self)
    if row.shape[0] == 0:
        return full((), float("nan") if self.dtype.is_float else self.dtype.bounds[0], dtype=self.dtype)
    place = (_nanmedian_place if ignore_nan else _median_place)(row)
    return reshape(gather_along(row, 0, place), ())


def _share_of_median(self: Tensor, result: Tensor) -> Tensor:
    """Return 1 / n at each of the n elements that are equal to the median; 0 elsewhere. NaNs are equal here."""
    hit = pointwise.eq(self, result)
    if self.dtype.is_float:
        hit = pointwise.logical_or(hit, pointwise.logical_and(pointwise.isnan(self), pointwise.isnan(result)))
    mask = pointwise.cast(hit, self.dtype.compute)
    return pointwise.cast(mask / reduce.sum(mask), self.dtype)


@median_of_all.vjp
def median_of_all_vjp(grad, result, self):
    return grad * _share_of_median(self, result)


@median_of_all.jvp
def median_of_all_jvp(self_tangent, result, self):
    return reduce.sum(self_tangent * _share_of_median(self, result))


@composite
def median(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The lower median, NaN if there is one; along dim, with its place."""
    if dim is None:
        return median_of_all(self)
    rows, dim = _rows(self, dim)
    return _back(_chosen(rows, _median_place(rows), dim, keepdim), self)


@composite
def nanmedian(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """The lower median of what is not NaN; along dim, with its place."""
    if dim is None:
        return median_of_all(self, True)
    rows, dim = _rows(self, dim)
    return _back(_chosen(rows, _nanmedian_place(rows), dim, keepdim), self)


@composite
def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent element along dim, the smallest of several, and its last place. No two NaNs are equal."""
    rows, dim = _rows(self, dim)
    _not_empty(rows)
    places = sorted_places(rows)
    values = gather_along(rows, -1, places)
    number = iota(rows.shape, dim=rows.ndim - 1, dtype=i64)
    before = gather_along(values, -1, clamp_min(number - 1, 0))
    starts = running_max(pointwise.where(pointwise.ne(values, before), number, 0), rows.ndim - 1)
    last = reduce.argmax(number - starts, -1, True)
    return _back(_chosen(rows, gather_along(places, -1, last), dim, keepdim), self)


# Quantiles: between the elements at two ranks.

ROUNDED = {"lower": floor, "higher": ceil, "nearest": round}
INTERPOLATIONS = ("linear", "midpoint", *ROUNDED)


def _quantile(
    self: Tensor, q: Tensor | Scalar, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool
) -> Tensor:
    if interpolation not in INTERPOLATIONS:
        raise ArgumentError(f"interpolation is {interpolation!r}, accepted are {', '.join(INTERPOLATIONS)}")
    if not self.dtype.is_float:
        raise ArgumentError(f"self is {self.dtype}, expected a float type")
    if not isinstance(q, Tensor) and not 0 <= q <= 1:  # type: ignore[operator]
        raise ArgumentError(f"q is {q}, expected 0 to 1")
    share = q if isinstance(q, Tensor) else full((), q, dtype=self.dtype)
    if share.ndim > 1:
        raise ShapeError(f"q has {share.ndim} dimensions, expected a number or one dimension")
    rows = flatten(self) if dim is None or not self.ndim else movedim(self, dim, -1)
    _not_empty(rows)
    values = sorted_values(rows)
    working, length = rows.dtype.compute, rows.shape[-1]
    shares = pointwise.convert(reshape(share, (-1,)), working)
    if ignore_nan:
        numbers = pointwise.cast(pointwise.logical_not(pointwise.isnan(values)), working)
        ranks = clamp_min(shares * (reduce.sum(numbers, -1, True) - 1), 0)  # of NaNs alone, the first
    else:
        last = number_of(length - 1, working)
        ranks = pointwise.where(pointwise.isnan(narrow(values, -1, length - 1, 1)), last, shares * last)
    if interpolation in ROUNDED:
        ranks = ROUNDED[interpolation](ranks)
    low = floor(ranks)
    found = gather_along(values, -1, pointwise.cast(low, i64))
    if interpolation not in ROUNDED:
        above = gather_along(values, -1, pointwise.cast(ceil(ranks), i64))
        weight = pointwise.convert(ranks - low, rows.dtype) if interpolation == "linear" else 0.5
        found = pointwise.lerp(found, above, weight)
    if keepdim and dim is None:
        found = reshape(found, (*(1 for _ in self.shape), found.shape[-1]))
    elif keepdim and self.ndim and dim is not None:
        found = unsqueeze(found, dimension(dim, self.ndim))
    return movedim(found, -1, 0) if share.ndim else squeeze(found, -1)


@composite
def quantile(
    self: Tensor, q: Tensor | Scalar, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The elements at the ranks q * (n - 1) of the n elements along dim, interpolated; NaN if there is one."""
    return _quantile(self, q, dim, keepdim, interpolation, False)


@composite
def nanquantile(
    self: Tensor, q: Tensor | Scalar, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The elements at the ranks q * (n - 1) of the n elements along dim that are not NaN, interpolated."""
    return _quantile(self, q, dim, keepdim, interpolation, True)
