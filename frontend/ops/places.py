"""Places of the true elements of a mask, which data count: what ops with sizes that data decide are made of."""

from __future__ import annotations

from ..ir.decided import decided, needed
from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim, contiguous_strides
from ..ir.types import bool_, i64
from . import pointwise, reduce
from .create import number_of
from .define import Tensor, prim
from .kinds import Compact
from .shapes import Shape, at_least
from .view import reshape


@prim(Compact(), dtypes=(bool_,), differentiable=False)
def true_places(self: Tensor, size: Dim, fill_value: int = -1) -> Tensor:
    """The places of the true elements of a 1-dim mask: the first size of them, then fill_value."""
    if self.ndim != 1:
        raise ShapeError(f"self has {self.ndim} dimensions, expected 1")
    if not at_least(size, 0):
        raise ArgumentError(f"size is {size}, expected at least 0")
    return {}  # type: ignore[return-value]


def truth(value: Tensor) -> Tensor:
    """Return which elements are not zero, as a 1-dim mask."""
    mask = value if value.dtype is bool_ else pointwise.ne(value, 0)
    return reshape(mask, (mask.type.numel,))


def places_of(mask: Tensor, op: str) -> Tensor:
    """Return the places of all true elements of a 1-dim mask: as many as data decide, for an op of this name."""
    return true_places(mask, decided(reduce.sum(mask), op))


def places_as_many(mask: Tensor, size: Dim, op: str) -> Tensor:
    """Return the places of all true elements of a 1-dim mask, of which there must be size."""
    count = decided(reduce.sum(mask), op)
    for gap in (count - size, size - count):
        if gap != 0:
            needed(gap, f"{size} values for the true elements of a mask")
    return true_places(mask, size)


def indices_at(places: Tensor, shape: Shape) -> list[Tensor]:
    """Return the index in each dim of row-major places."""
    found: list[Tensor] = []
    for size, stride in zip(shape, contiguous_strides(shape), strict=True):
        along = places if stride == 1 else pointwise.floor_divide(places, number_of(stride, i64))
        found.append(pointwise.remainder(along, number_of(size, i64)) if found else along)
    return found
