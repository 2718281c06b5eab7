"""Searching for values among values, and indexing with indices that may be out of range."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ArgumentError, ShapeError
from ..ir.types import bool_, i32, i64
from . import minmax, pointwise, reduce
from .create import full, number_of
from .define import Scalar, Tensor, composite
from .indexing import gather, index, index_put, select_along
from .kinds import common_dtype
from .opdef import OpDef
from .shapes import equal
from .view import flatten, unsqueeze

# Elements of a sorted sequence: up to this length linear counting, beyond it binary search. Chosen, not measured.
COUNTED = 32


@composite(differentiable=False)
def isin(
    elements: Tensor | Scalar,
    test_elements: Tensor | Scalar,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Tensor:
    """Whether each of elements is equal to some of test_elements; with invert, to none."""
    if isinstance(test_elements, Tensor):
        value = unsqueeze(elements, -1) if isinstance(elements, Tensor) else elements
        found = reduce.any_true(pointwise.eq(value, flatten(test_elements)), -1)
    else:
        found = pointwise.eq(elements, test_elements)
    return pointwise.logical_not(found) if invert else found


@composite(differentiable=False)
def searchsorted(
    sorted_sequence: Tensor,
    self: Tensor | Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many elements of each sorted row are less than the values of self; with right, at most those."""
    if side not in (None, "left", "right"):
        raise ArgumentError(f"side is {side!r}, accepted are None, 'left' and 'right'")
    if side == "left" and right:
        raise ArgumentError("side is 'left' but right is True")
    sequence = sorted_sequence if sorter is None else gather(sorted_sequence, -1, sorter)
    compare = pointwise.le if right or side == "right" else pointwise.lt
    value = self if isinstance(self, Tensor) else full((), self, dtype=common_dtype((sequence, self)))
    shared = sequence.ndim == 1
    if not shared and (
        value.ndim != sequence.ndim
        or not all(equal(one, two) for one, two in zip(value.shape[:-1], sequence.shape[:-1]))
    ):
        raise ShapeError(
            f"self is {list(value.shape)}, expected the dims of sorted_sequence {list(sequence.shape)} but for the last"
        )
    length = sequence.shape[-1]
    if not isinstance(length, int) or length <= COUNTED:
        before = _is_before(compare, sequence if shared else unsqueeze(sequence, -2), unsqueeze(value, -1))
        return pointwise.convert(reduce.sum(before, -1), i32 if out_int32 else i64)
    found = full(value.shape, 0, dtype=i64)
    step = 1 << (length.bit_length() - 1)
    while step:
        # All elements before `found` are less; test whether the next `step` are, too.
        probe = found + step
        place = minmax.clamp_max(probe, length) - 1
        seen = select_along(sequence, 0, place) if shared else gather(sequence, -1, place)
        found = pointwise.where(_is_before(compare, seen, value) & (probe <= length), probe, found)
        step >>= 1
    return pointwise.convert(found, i32 if out_int32 else i64)


def _is_before(compare: OpDef, element: Tensor, value: Tensor) -> Tensor:
    """Whether an element of a sorted row comes before a value. NaNs sort last; a NaN value comes after all elements."""
    found = compare(element, value)
    return pointwise.logical_or(found, pointwise.isnan(value)) if value.dtype.is_float else found


@composite(differentiable=False)
def bucketize(self: Tensor | Scalar, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """How many boundaries are less than the values of self; with right, at most those."""
    if boundaries.ndim != 1:
        raise ShapeError(f"boundaries has {boundaries.ndim} dimensions, expected 1")
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)


@composite
def _unsafe_index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """self[indices]."""
    return index(self, indices)


@composite
def _unsafe_index_put(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """self with values written or added at indices."""
    return index_put(self, indices, values, accumulate)


def _inside(self: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return the indices clamped into range; those that are out of range are masked off."""
    found: list[Tensor | None] = []
    for item, size in zip(indices, self.shape):
        if item is not None:
            extent = number_of(size, item.dtype)
            item = minmax.clamp(item, -extent, extent - 1)  # type: ignore[operator]
        found.append(item)
    return found


def _check_mask(mask: Tensor) -> None:
    if mask.dtype is not bool_:
        raise ArgumentError(f"mask is {mask.dtype}, accepted is bool")


@composite
def _unsafe_masked_index(self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Scalar) -> Tensor:
    """self[indices] where mask holds, else fill; there the indices may be out of range."""
    _check_mask(mask)
    return pointwise.where(mask, index(self, _inside(self, indices)), pointwise.convert(full((), fill), self.dtype))


@composite
def _unsafe_masked_index_put_accumulate(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    """self with values added at indices where mask holds."""
    _check_mask(mask)
    return index_put(self, _inside(self, indices), pointwise.where(mask, values, 0), True)
