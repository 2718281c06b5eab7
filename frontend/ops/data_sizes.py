"""Ops whose result has a size that data decide: nonzero, masked_select, unique, bincount, ...

All of them are made of one primitive, the places of a mask's true elements, whose size is an argument. It is a number,
the user's `size=`, or the symbol of a count that the program computes (`places_of`, ir/decided.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.decided import decided, needed
from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.symbolic import Dim, Expr, product
from ..ir.types import bool_, f32, f64, i64
from . import minmax, pointwise, reduce
from .concat_pad import cat, stack
from .create import full, iota, number_of
from .define import Scalar, Size, Tensor, composite
from .indexing import index_select, scatter_add, select_along
from .places import indices_at, places_of, true_places, truth
from .scan import cumsum
from .shapes import broadcast, dimension, equal
from .sorted_search import searchsorted
from .values import known_number
from .view import each_repeated, expand, reshape, unsqueeze


@composite(differentiable=False)
def nonzero_static(self: Tensor, *, size: Dim, fill_value: int = -1) -> Tensor:
    """The indices of the first size nonzero elements, a row each; rows beyond them are fill_value."""
    if not self.ndim:
        return full((size, 0), 0, dtype=i64)
    places = true_places(truth(self), size)
    indices = stack(indices_at(places, self.shape), 1)
    return pointwise.where(unsqueeze(places < 0, 1), fill_value, indices)


@composite(differentiable=False)
def nonzero(self: Tensor, *, size: Dim | None = None, fill_value: int = 0) -> Tensor:
    """The indices of the nonzero elements, a row each; with size, of the first size, then rows of fill_value."""
    if size is not None:
        return nonzero_static(self, size=size, fill_value=fill_value)
    places = places_of(truth(self), "nonzero")
    return stack(indices_at(places, self.shape), 1) if self.ndim else full((places.shape[0], 0), 0, dtype=i64)


@composite(differentiable=False)
def argwhere(self: Tensor, *, size: Dim | None = None, fill_value: int = 0) -> Tensor:
    """nonzero."""
    return nonzero(self, size=size, fill_value=fill_value)


@composite
def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements of self where mask holds, in row-major order."""
    if mask.dtype is not bool_:
        raise DTypeError(f"mask is {mask.dtype}, accepted is bool")
    shape = broadcast([self.shape, mask.shape])
    places = places_of(truth(expand(mask, shape)), "masked_select")
    return index_select(reshape(expand(self, shape), (product(shape),)), 0, places)


@composite(differentiable=False)
def flatnonzero(self: Tensor, *, size: Dim | None = None, fill_value: int = 0) -> Tensor:
    """The places of the nonzero elements of the flattened tensor; with size, of the first size, then fill_value."""
    mask = truth(self)
    return places_of(mask, "flatnonzero") if size is None else true_places(mask, size, fill_value)


@composite
def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0, *, length: Dim | None = None) -> Tensor:
    """How often each natural number occurs in self, or the sum of its weights; with length, of those below it."""
    if self.ndim != 1:
        raise ShapeError(f"self has {self.ndim} dimensions, expected 1")
    if not (self.dtype.is_integer or self.dtype is bool_):
        raise DTypeError(f"self is {self.dtype}, expected an integer type")
    if minlength < 0:
        raise ArgumentError(f"minlength is {minlength}, expected at least 0")
    numbers = pointwise.cast(self, i64)
    if weights is None or self.shape[0] == 0:  # PyTorch's counts of nothing are integers
        amounts = full(self.shape, 1, dtype=i64)
    else:
        if not equal(self.shape[0], weights.type.numel):
            raise ShapeError(f"weights {list(weights.shape)} for {self.shape[0]} numbers")
        amounts = weights if weights.dtype in (f32, f64) else pointwise.cast(weights, f64)
    if length is None and self.shape[0] == 0:
        length = minlength
    if length is None:
        # Together with -1: data may decide that there are no numbers.
        largest = reduce.amax(cat((numbers, full((1,), -1, dtype=i64))))
        length = decided(minmax.maximum(largest + 1, minlength), "bincount")
    else:
        # Numbers of length and more go to a place of their own, which is cut off.
        numbers = minmax.minimum(numbers, number_of(length, i64))
        return scatter_add(full((length + 1,), 0, dtype=amounts.dtype), 0, numbers, amounts).slice(0, 0, length)
    return scatter_add(full((length,), 0, dtype=amounts.dtype), 0, numbers, amounts)


@composite
def repeat_interleave(
    self: Tensor, repeats: Tensor | Scalar | None = None, dim: int | None = None, *, output_size: Dim | None = None
) -> Tensor:
    """Each element along dim repeated in place, as often as repeats says; of repeats alone, the places repeated."""
    if repeats is None:
        return _repeated(self, output_size)
    source = reshape(self, (self.type.numel,)) if dim is None else self
    axis = 0 if dim is None else dimension(dim, self.ndim)
    length = source.shape[axis]
    number = known_number(repeats) if isinstance(repeats, Tensor) else repeats
    if number is not None or not isinstance(repeats, Tensor):
        if not isinstance(number, (int, Expr)):
            raise ArgumentError(f"repeats is {number!r}, expected an integer")
        return each_repeated(source, number, axis)
    if repeats.ndim > 1:
        raise ShapeError(f"repeats has {repeats.ndim} dimensions, expected at most 1")
    if not repeats.dtype.is_integer:
        raise DTypeError(f"repeats is {repeats.dtype}, expected an integer type")
    each = expand(reshape(repeats, (repeats.type.numel,)), (length,))
    return index_select(source, axis, _repeated(each, output_size))


def _repeated(repeats: Tensor, output_size: Dim | None) -> Tensor:
    """Return the place of each repeated element: the first one whose repeats, with all before it, are not used up."""
    if repeats.shape[0] == 0:
        return full((0,), 0, dtype=i64)
    counts = pointwise.cast(repeats, i64)
    if output_size is None:
        least = decided(reduce.amin(counts), "repeat_interleave")
        needed(least, "repeats are negative: the least of them")
        output_size = decided(reduce.sum(counts), "repeat_interleave")
    ends = cumsum(counts, 0)
    return searchsorted(ends, iota((output_size,), dim=0, dtype=i64), right=True)


def _offsets(offsets: Sequence[Tensor]) -> Tensor:
    if len(offsets) != 1:
        raise ArgumentError(f"{len(offsets)} tensors of offsets: one jagged dim is supported")
    return pointwise.cast(offsets[0], i64)


@composite
def _jagged_to_padded_dense_forward(
    values: Tensor, offsets: Sequence[Tensor], max_lengths: Size, padding_value: Scalar = 0.0
) -> Tensor:
    """Rows offsets[i] to offsets[i + 1] of values in result[i], padded or cut to max_lengths."""
    (offset,), (longest,) = [_offsets(offsets)], max_lengths
    starts, ends = offset.slice(0, 0, offset.shape[0] - 1), offset.slice(0, 1, offset.shape[0])
    places = unsqueeze(starts, 1) + iota((longest,), dim=0, dtype=i64)
    inside = places < unsqueeze(ends, 1)
    if values.shape[0] == 0:
        return full((*places.shape, *values.shape[1:]), padding_value, dtype=values.dtype)
    rows = select_along(values, 0, pointwise.where(inside, places, 0))
    return pointwise.where(reshape(inside, (*places.shape, *(1 for _ in values.shape[1:]))), rows, padding_value)


@composite
def _padded_dense_to_jagged_forward(dense: Tensor, offsets: Sequence[Tensor], total_L: Dim | None = None) -> Tensor:
    """The first offsets[i + 1] - offsets[i] rows of each dense[i], one after the other."""
    offset = _offsets(offsets)
    if total_L is None:
        last = reshape(offset.slice(0, offset.shape[0] - 1, offset.shape[0]), ())
        total_L = decided(last, "_padded_dense_to_jagged_forward")
        needed(total_L, "the last offset is negative")
    places = iota((total_L,), dim=0, dtype=i64)
    ends = offset.slice(0, 1, offset.shape[0])
    batch = searchsorted(ends, places, right=True)
    within = places - index_select(offset, 0, batch)
    longest = dense.shape[1]
    flat = reshape(dense, (dense.shape[0] * longest, *dense.shape[2:]))
    # Rows beyond the padded length are zeros.
    kept = within < longest
    rows = index_select(flat, 0, pointwise.where(kept, batch * longest + within, 0))
    return pointwise.where(reshape(kept, (total_L, *(1 for _ in dense.shape[2:]))), rows, 0)
