"""Counts of elements in bins: histc, histogram, and histograms of several dimensions.

A bin has its left edge, and the last one its right edge, too. Elements outside of all bins, and NaN, are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim, product
from ..ir.types import i64
from .checks import _functional_assert_async
from .create import full, iota, number_of, zeros
from .define import Scalar, Tensor, composite, constant
from .indexing import index_add
from .minmax import clamp_max
from .pointwise import cast, convert, eq, ge, isfinite, le, logical_and, where
from .reduce import amax, amin
from .reduce import sum as total
from .sorted_search import searchsorted
from .view import reshape, select, slice


def _check(self: Tensor, bins: int) -> None:
    if not self.dtype.is_float:
        raise ArgumentError(f"self is {self.type}, expected a float type")
    if bins < 1:
        raise ArgumentError(f"bins is {bins}, expected 1 or more")


def _ends(value: Tensor, low: Scalar | None, high: Scalar | None, margin: float) -> tuple[Tensor, Tensor]:
    """Return the first and the last edge: those given or the smallest and the largest element; if they are equal, they
    are moved apart by the margin."""
    if low is not None and high is not None:
        if not low <= high:  # type: ignore[operator]
            raise ArgumentError(f"the range goes from {low} to {high}, expected an upper end that is not smaller")
        if not (math.isfinite(low) and math.isfinite(high)):  # type: ignore[arg-type]
            raise ArgumentError(f"the range goes from {low} to {high}, expected finite numbers")
        first, last = constant(low, value.dtype), constant(high, value.dtype)
    elif value.type.numel == 0:
        first, last = constant(0, value.dtype), constant(1, value.dtype)
    else:
        first, last = amin(value), amax(value)
        finite = logical_and(isfinite(first), isfinite(last))
        first = _functional_assert_async(finite, "the elements are not finite, so that they have no range", first)
    same = eq(first, last)
    return where(same, first - margin, first), where(same, last + margin, last)


def _edges(first: Tensor, last: Tensor, bins: int) -> Tensor:
    """Return bins + 1 edges in equal distances, each counted from the nearer end."""
    place = iota((bins + 1,), dim=0, dtype=i64)
    step = (last - first) / bins
    up, down = first + step * cast(place, first.dtype), last - step * cast(bins - place, first.dtype)
    return where(place < (bins + 1) // 2, up, down)


def _counted(places: Tensor, inside: Tensor, count: Dim, weight: Tensor | None, like: Tensor) -> Tensor:
    """Return the sum of weights (or the number) of the elements at each place; those that are not inside are left
    out."""
    items = full(places.shape, 1, dtype=like.dtype) if weight is None else convert(reshape(weight, (-1,)), like.dtype)
    found = index_add(zeros((count + 1,), dtype=like.dtype), 0, where(inside, places, number_of(count, i64)), items)
    return slice(found, 0, 0, count)


def _inside(value: Tensor, first: Tensor, last: Tensor) -> Tensor:
    return logical_and(ge(value, first), le(value, last))


@composite(differentiable=False)
def histc(self: Tensor, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Tensor:
    """The number of elements in each of bins of equal width from min to max; of all elements if these are equal."""
    _check(self, bins)
    value = reshape(self, (-1,))
    low, high = (None, None) if min == max else (min, max)
    first, last = _ends(value, low, high, 1.0)
    inside = _inside(value, first, last)
    scaled = where(inside, (value - first) / (last - first) * bins, 0)
    return _counted(clamp_max(cast(scaled, i64), bins - 1), inside, bins, None, self)


def _places(value: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bin of each element, and the mask of those that are in one."""
    last = edges.shape[0] - 1
    inside = _inside(value, select(edges, 0, 0), select(edges, 0, last))
    found = searchsorted(edges, value, right=True) - 1
    return where(eq(value, select(edges, 0, last)), number_of(last - 1, i64), found), inside


def _dense(counts: Tensor, *widths: Tensor) -> Tensor:
    """Return counts over their sum and over the volume of the bins."""
    counts = counts / total(counts)
    for dim, width in enumerate(widths):
        counts = counts / reshape(width, (1,) * dim + width.shape + (1,) * (len(widths) - 1 - dim))
    return counts


def _widths(edges: Tensor) -> Tensor:
    return slice(edges, 0, 1) - slice(edges, 0, 0, edges.shape[0] - 1)


@composite(differentiable=False)
def histogram(
    self: Tensor,
    bins: Tensor | Scalar = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """The number of elements (or the sum of their weights) in each bin, and the edges of the bins."""
    value = reshape(self, (-1,))
    if not isinstance(bins, (Tensor, int)):
        raise ArgumentError(f"bins is {bins!r}, expected a number of bins or a tensor of their edges")
    edges = _given_edges(bins, value) if isinstance(bins, Tensor) else _linear_edges(value, bins, range)
    counts = _counted(*_places(value, edges), edges.shape[0] - 1, weight, self)
    return _dense(counts, _widths(edges)) if density else counts, edges


def _given_edges(edges: Tensor, value: Tensor) -> Tensor:
    if edges.ndim != 1 or edges.dtype is not value.dtype or edges.shape[0] in (0, 1):
        raise ShapeError(f"bins is {edges.type}, expected two edges or more of {value.dtype} in one dimension")
    return edges


def _linear_edges(value: Tensor, bins: int, range: Sequence[float] | None) -> Tensor:
    _check(value, bins)
    low, high = (None, None) if range is None else range
    return _edges(*_ends(value, low, high, 0.5), bins)


def _columns(self: Tensor, count: int, range: Sequence[float] | None) -> list[tuple[Tensor, Sequence[float] | None]]:
    """Return each coordinate of the points, with its range."""
    if self.ndim < 2 or self.shape[-1] != count:
        raise ShapeError(f"self has shape {list(self.shape)}, expected points of {count} coordinates")
    if range is not None and len(range) != 2 * count:
        raise ArgumentError(f"range has {len(range)} numbers, expected {2 * count}: two for each coordinate")
    return [
        (reshape(select(self, -1, at), (-1,)), None if range is None else tuple(range[2 * at : 2 * at + 2]))
        for at, _ in enumerate((None,) * count)
    ]


@composite(differentiable=False)
def _histogramdd_bin_edges(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, ...]:
    """The edges of bins of equal width for each coordinate of points."""
    return tuple(
        _linear_edges(value, count, given) for count, (value, given) in zip(bins, _columns(self, len(bins), range))
    )


@composite(differentiable=False)
def _histogramdd_from_bin_cts(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    """The number of points (or the sum of their weights) in each of boxes, by the number of bins of each coordinate."""
    edges = _histogramdd_bin_edges(self, bins, range=range)
    return _histogramdd_from_bin_tensors(self, edges, weight=weight, density=density)


@composite(differentiable=False)
def _histogramdd_from_bin_tensors(
    self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """The number of points (or the sum of their weights) in each of boxes, by the edges of each coordinate's bins."""
    place: Tensor | None = None
    inside: Tensor | None = None
    shape = tuple(edges.shape[0] - 1 for edges in bins)
    for size, edges, (value, _) in zip(shape, bins, _columns(self, len(bins), None)):
        at, within = _places(value, _given_edges(edges, value))
        place = at if place is None else place * size + at
        inside = within if inside is None else logical_and(inside, within)
    assert place is not None and inside is not None
    found = reshape(_counted(place, inside, product(shape), weight, self), shape)
    return _dense(found, *map(_widths, bins)) if density else found
