"""The larger and the smaller of two, and clamping. Equal operands of maximum and minimum share the gradient."""

from __future__ import annotations

from ..ir.errors import ArgumentError
from ..ir.graph import Value
from ..ir.types import REAL
from .define import Scalar, Tensor, composite, prim
from .kinds import Elementwise
from .pointwise import eq, ge, gt, isnan, le, lt, promoted, where


def _divided(grad: Tensor, tie: Tensor, first_loses: Tensor, second_loses: Tensor) -> tuple[Tensor, Tensor]:
    """Return grad where the operand is the chosen one, half of it where both are equal, else 0."""
    half = grad * 0.5
    return where(tie, half, where(first_loses, 0, grad)), where(tie, half, where(second_loses, 0, grad))


@prim(Elementwise("maximum"), dtypes=REAL, commutes=True)
def maximum(self: Tensor, other: Tensor) -> Tensor:
    """The larger of the two; nan if one is nan."""


@maximum.vjp
def maximum_vjp(grad, self, other):
    return _divided(grad, eq(self, other), lt(self, other), lt(other, self))


@prim(Elementwise("minimum"), dtypes=REAL, commutes=True)
def minimum(self: Tensor, other: Tensor) -> Tensor:
    """The smaller of the two; nan if one is nan."""


@minimum.vjp
def minimum_vjp(grad, self, other):
    return _divided(grad, eq(self, other), gt(self, other), gt(other, self))


@prim(Elementwise("fmax"), dtypes=REAL, commutes=True)
def fmax(self: Tensor, other: Tensor) -> Tensor:
    """The larger of the two; the other one if one is nan."""


@fmax.vjp
def fmax_vjp(grad, self, other):
    first = ge(self, other) | isnan(other)
    return where(first, grad, 0), where(first, 0, grad)


@prim(Elementwise("fmin"), dtypes=REAL, commutes=True)
def fmin(self: Tensor, other: Tensor) -> Tensor:
    """The smaller of the two; the other one if one is nan."""


@fmin.vjp
def fmin_vjp(grad, self, other):
    first = le(self, other) | isnan(other)
    return where(first, grad, 0), where(first, 0, grad)


@composite
def clamp(self: Tensor, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None) -> Tensor:
    """self kept within min and max; max wins if they cross."""
    if min is None and max is None:
        raise ArgumentError("give min, max or both")
    if max is None:
        return clamp_min(self, min)
    if min is None:
        return clamp_max(self, max)
    # In one type for both bounds: -1 has no effect in u8, which is too narrow if the other bound is 0.5.
    result, min, max = promoted(self, min, max)
    return clamp_max(clamp_min(result, min), max)


@clamp.vjp
def clamp_vjp(grad, self, min, max):
    inside = None
    below = above = None
    if min is not None:
        inside = ge(self, min)
        below = lt(self, min)
    if max is not None:
        inside = le(self, max) if inside is None else inside & le(self, max)
        above = gt(self, max)
    if min is not None and max is not None:
        # Where the bounds cross, the result is max.
        below = below & lt(min, max)
        above = above | lt(max, min)
    return (
        where(inside, grad, 0),
        where(below, grad, 0) if isinstance(min, Value) else None,
        where(above, grad, 0) if isinstance(max, Value) else None,
    )


@composite
def clamp_min(self: Tensor, min: Tensor | Scalar) -> Tensor:
    """self, but at least min."""
    return where(_replaces(lt(self, min), min), min, self)


@composite
def clamp_max(self: Tensor, max: Tensor | Scalar) -> Tensor:
    """self, but at most max."""
    return where(_replaces(gt(self, max), max), max, self)


def _replaces(beyond: Tensor, bound: Tensor | Scalar) -> Tensor:
    """Return the mask of elements that a bound replaces: those beyond it, or all if it is NaN."""
    if isinstance(bound, Value):
        return beyond | isnan(bound)
    return beyond if bound == bound else beyond | True


@composite
def clip(self: Tensor, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None) -> Tensor:
    """self kept within min and max."""
    return clamp(self, min, max)
