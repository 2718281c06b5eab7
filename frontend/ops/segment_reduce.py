"""Reductions of runs of slices, and of slices chosen by an index."""

from __future__ import annotations

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim, product
from ..ir.types import i64
from .checks import _functional_assert_async
from .concat_pad import constant_pad_nd
from .create import full, iota, number_of, zeros
from .define import Scalar, Tensor, composite
from .indexing import gather_along, scatter_combine, scatter_reduce
from .pointwise import convert, eq, ge, isnan, logical_and, logical_or, where
from .reduce import all_true
from .scan import cumsum
from .shapes import dimension, equal
from .view import expand, reshape, slice, unsqueeze

COMBINERS = {"sum": "add", "mean": "add", "max": "max", "min": "min", "prod": "mul"}
EMPTY = {"sum": 0.0, "mean": float("nan"), "max": float("-inf"), "min": float("inf"), "prod": 1.0}


@composite
def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """self with the slices of source reduced in at index along dim by prod, mean, amax or amin."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ArgumentError(f"reduce is {reduce!r}, accepted are 'prod', 'mean', 'amax' and 'amin'")
    if index.ndim > 1:
        raise ShapeError(f"index has {index.ndim} dimensions, expected 1")
    dim = dimension(dim, self.ndim)
    length = source.shape[dim] if source.ndim else 1
    if not equal(index.type.numel, length):
        raise ShapeError(f"index has {index.type.numel} elements for {length} slices of source")
    sizes = tuple(index.type.numel if at == dim else 1 for at in range(max(self.ndim, 1)))
    places = expand(reshape(index, sizes), source.shape if source.ndim else (1,))
    if self.ndim == 0:
        places = reshape(places, ())
    return scatter_reduce(self, dim, places, source, reduce, include_self=include_self)


def _in_order(marks: Tensor, are_offsets: bool) -> Tensor:
    """Return lengths or offsets, of which none may be negative; offsets never decrease."""
    if not are_offsets:
        return _functional_assert_async(all_true(ge(marks, 0)), "lengths has a negative number", marks)
    if marks.shape[1] == 0:
        raise ShapeError("offsets is empty, expected at least the first offset")
    rises = ge(slice(marks, 1, 1), slice(marks, 1, 0, marks.shape[1] - 1))
    holds = logical_and(all_true(rises), all_true(ge(slice(marks, 1, 0, 1), 0)))
    return _functional_assert_async(holds, "offsets has a negative or a decreasing number", marks)


class Segments:
    """The segments of a tensor, as [outer, elements along the axis, inner]."""

    def __init__(self, data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int, checked: bool):
        if (lengths is None) == (offsets is None):
            raise ArgumentError("give either lengths or offsets")
        axis = dimension(axis, data.ndim)
        given = offsets if lengths is None else lengths
        assert given is not None
        if given.ndim != axis + 1:
            raise ShapeError(f"lengths or offsets has {given.ndim} dimensions, expected {axis + 1} for axis {axis}")
        outer, size, inner = product(data.shape[:axis]), data.shape[axis], product(data.shape[axis + 1 :])
        marks = _in_order(reshape(convert(given, i64), (outer, given.shape[-1])), lengths is None)
        if lengths is None:
            self.count: Dim = given.shape[-1] - 1
            starts, ends = slice(marks, 1, 0, self.count), slice(marks, 1, 1)
            sizes = ends - starts
        else:
            self.count = given.shape[-1]
            sizes, ends = marks, cumsum(marks, 1)
        # The number of segments that end at an element or before it. Elements after all of them, and those before the
        # first offset, have the number of one more segment: out of range if that is to be checked, else of no use.
        ended = zeros((outer, size + 1), dtype=i64)
        ended = scatter_combine(ended, 1, ends, full(ends.shape, 1, dtype=i64), combine="add")
        numbers = slice(cumsum(ended, 1), 1, 0, size)
        if lengths is None:
            numbers = where(
                iota((1, size), dim=1, dtype=i64) < slice(marks, 1, 0, 1), number_of(self.count, i64), numbers
            )
        self.shape = (*data.shape[:axis], self.count, *data.shape[axis + 1 :])
        self.rows = (outer, size, inner)
        self.places = expand(unsqueeze(numbers, 2), self.rows)
        self.sizes = unsqueeze(sizes, 2)
        self.reduced = (outer, self.count, inner)
        self.more = 0 if checked else 1

    def combined(self, base: Tensor, rows: Tensor, combine: str) -> Tensor:
        """Combine the elements of each segment into base."""
        found = scatter_combine(self._with_one_more(base), 1, self.places, rows, combine=combine)
        return slice(found, 1, 0, self.count) if self.more else found

    def _with_one_more(self, value: Tensor) -> Tensor:
        return constant_pad_nd(value, (0, 0, 0, self.more)) if self.more else value

    def spread(self, value: Tensor) -> Tensor:
        """Return the segment's value at each element; 0 at one that is in none."""
        return gather_along(self._with_one_more(value), 1, self.places)


def _reduction(reduce: str) -> str:
    if reduce not in COMBINERS:
        raise ArgumentError(f"reduce is {reduce!r}, accepted are {', '.join(map(repr, COMBINERS))}")
    return COMBINERS[reduce]


@composite
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Scalar | None = None,
) -> Tensor:
    """sum, mean, max, min or prod of consecutive slices along axis, whose numbers are lengths or begin at offsets."""
    if indices is not None:
        raise ArgumentError("indices is given: expected lengths or offsets, as in PyTorch")
    combine = _reduction(reduce)
    segments = Segments(data, lengths, offsets, axis, checked=offsets is None and not unsafe)
    start = EMPTY["sum" if reduce == "mean" else reduce] if initial is None else initial
    base = full(segments.reduced, start, dtype=data.dtype)
    found = segments.combined(base, reshape(data, segments.rows), combine)
    if reduce == "mean":
        sizes = convert(segments.sizes, data.dtype)
        is_empty = eq(sizes, 0)
        found = where(is_empty, EMPTY["mean"] if initial is None else initial, found / where(is_empty, 1, sizes))
    return reshape(found, segments.shape)


@composite
def _segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: Scalar | None = None,
) -> Tensor:
    """The gradient of segment_reduce by data; equal largest (or smallest) elements share it."""
    combine = _reduction(reduce)
    segments = Segments(data, lengths, offsets, axis, checked=False)
    rows, slope = reshape(data, segments.rows), reshape(grad, segments.reduced)
    if reduce == "mean":
        slope = slope / convert(where(eq(segments.sizes, 0), 1, segments.sizes), slope.dtype)
    if combine == "add":
        return reshape(segments.spread(slope), data.shape)
    if combine == "mul":
        start = full(segments.reduced, 1 if initial is None else initial, dtype=data.dtype)
        return reshape(segments.spread(slope) * others_product(start, segments, rows), data.shape)
    best = segments.spread(reshape(output, segments.reduced))
    is_best = convert(logical_or(eq(rows, best), isnan(rows)), slope.dtype)
    count = segments.combined(zeros(segments.reduced, dtype=slope.dtype), is_best, "add")
    share = slope / where(eq(count, 0), 1, count)
    return reshape(segments.spread(share) * is_best, data.shape)


def others_product(start: Tensor, segments: Segments, rows: Tensor) -> Tensor:
    """Return the product of start and all other elements of the segment."""
    is_zero = eq(rows, 0)
    zeros_in = segments.combined(convert(eq(start, 0), i64), convert(is_zero, i64), "add")
    nonzero = segments.combined(where(eq(start, 0), 1, start), where(is_zero, 1, rows), "mul")
    others = segments.spread(zeros_in) - convert(is_zero, i64)
    return where(eq(others, 0), segments.spread(nonzero) / where(is_zero, 1, rows), 0)
