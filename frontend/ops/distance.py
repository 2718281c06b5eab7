"""Distances between vectors, and vectors scaled by their length."""

from __future__ import annotations

import math

from ..ir.errors import ShapeError
from ..ir.types import f64, i64
from . import elementary, pointwise, reduce
from .create import full, iota
from .define import Scalar, Tensor, composite
from .derivatives import forward_to
from .indexing import index_add, select_along
from .minmax import clamp_min
from .shapes import broadcast, dimension, equal
from .view import alias, cyclic_shift, expand, transpose, unsqueeze


def _norm(difference: Tensor, p: float) -> Tensor:
    if difference.shape[-1] == 0:
        return full(difference.shape[:-1], 0, dtype=difference.dtype)
    if p == 0:  # the number of differences; NaN if any is NaN
        differs = pointwise.convert(pointwise.ne(difference, 0), difference.dtype)
        return reduce.sum(pointwise.where(pointwise.isnan(difference), difference, differs), -1)
    return reduce.linalg_vector_norm(difference, p, -1)


def _slope(difference: Tensor, distance: Tensor, p: float) -> Tensor:
    """Return the derivative of the norm by each element of the difference; zero where it does not exist."""
    sign, size, length = pointwise.sign(difference), pointwise.abs(difference), unsqueeze(distance, -1)
    if p == 0:
        return full(difference.shape, 0, dtype=difference.dtype)
    if p == 1:
        return pointwise.where(pointwise.isnan(difference), difference, sign)
    if math.isinf(p):
        return pointwise.where(size == length, sign, 0)
    zero = length == 0
    safe = pointwise.where(zero, 1, length)
    if p == 2:
        return pointwise.where(zero, 0, difference / safe)
    # The branch that `where` drops needs a finite derivative, too.
    gone = zero | (difference == 0)
    return pointwise.where(gone, 0, sign * (pointwise.where(gone, 1, size) / safe) ** (p - 1))


def _differences(x1: Tensor, x2: Tensor) -> Tensor:
    """Return every row of x1 minus every row of x2."""
    for name, value in (("x1", x1), ("x2", x2)):
        if value.ndim < 2:
            raise ShapeError(f"{name} has {value.ndim} dimensions, expected at least 2")
    if not equal(x1.shape[-1], x2.shape[-1]):
        raise ShapeError(f"x2 has {x2.shape[-1]} columns, expected {x1.shape[-1]} (those of x1)")
    return unsqueeze(x1, -2) - unsqueeze(x2, -3)


@composite
def _cdist_forward(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """The norm of order p of every row of x1 minus every row of x2."""
    return _norm(_differences(x1, x2), p)


@_cdist_forward.vjp
def _cdist_forward_vjp(grad, result, x1, x2, p):
    swapped = transpose(grad, -1, -2), x2, x1, p, transpose(result, -1, -2)
    return _cdist_backward(grad, x1, x2, p, result), _cdist_backward(*swapped)


@composite
def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The gradient of _cdist_forward by x1."""
    slope = _slope(_differences(x1, x2), cdist, p)
    shape = (*broadcast([x1.shape[:-2], x2.shape[:-2]]), *x1.shape[-2:])
    return expand(reduce.sum(unsqueeze(grad, -1) * slope, -2), shape)


@composite
def cdist(x1: Tensor, x2: Tensor, p: float = 2, compute_mode: int | None = None) -> Tensor:
    """The norm of order p of every row of x1 minus every row of x2."""
    return _cdist_forward(x1, x2, p, compute_mode)


def _pairs(self: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row numbers of each pair, first < second, in row-major order."""
    if self.ndim != 2:
        raise ShapeError(f"self has {self.ndim} dimensions, expected 2")
    rows = int(self.shape[0])
    count = rows * (rows - 1) // 2
    number = iota((count,), dim=0, dtype=i64)

    def pairs_before(row: Tensor) -> Tensor:
        return pointwise.floor_divide(row * (2 * rows - 1 - row), 2)

    # The root of a quadratic; rounding may be off by one.
    edge = 2 * rows - 1
    root = elementary.sqrt(edge * edge - 8 * pointwise.cast(number, f64))
    guess = pointwise.cast((edge - root) / 2, i64)
    guess = guess - pointwise.cast(pairs_before(guess) > number, i64)
    first = guess + pointwise.cast(pairs_before(guess + 1) <= number, i64)
    return first, number - pairs_before(first) + first + 1


@composite
def _pdist_forward(self: Tensor, p: float = 2.0) -> Tensor:
    """The norm of order p of the difference of each pair of rows."""
    first, second = _pairs(self)
    return _norm(select_along(self, 0, first) - select_along(self, 0, second), p)


@composite
def _pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Tensor:
    """The gradient of _pdist_forward."""
    first, second = _pairs(self)
    slope = _slope(select_along(self, 0, first) - select_along(self, 0, second), pdist, p)
    part = unsqueeze(grad, -1) * slope
    zeros = full(self.shape, 0, dtype=self.dtype)
    return index_add(index_add(zeros, 0, first, part), 0, second, -part)


_pdist_forward.derivative = forward_to(_pdist_backward, pdist="result")


@composite
def pdist(self: Tensor, p: float = 2) -> Tensor:
    """The norm of order p of the difference of each pair of rows."""
    return _pdist_forward(self, p)


@composite
def linalg_cross(self: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three elements along dim."""
    rank = max(self.ndim, other.ndim)
    axis = dimension(dim, rank) - rank
    shape = broadcast([self.shape, other.shape])
    if self.ndim != other.ndim or not equal(shape[axis], 3):
        raise ShapeError(f"shapes {list(self.shape)} and {list(other.shape)} must broadcast to 3 along dim {dim}")
    left, right = expand(self, shape), expand(other, shape)
    forward = cyclic_shift(left, (-1,), (axis,)) * cyclic_shift(right, (-2,), (axis,))
    return forward - cyclic_shift(left, (-2,), (axis,)) * cyclic_shift(right, (-1,), (axis,))


@composite
def renorm(self: Tensor, p: Scalar, dim: int, maxnorm: Scalar) -> Tensor:
    """The parts of self along dim, those with a norm of order p above maxnorm scaled down to it."""
    axis = dimension(dim, self.ndim)
    others = tuple(position for position in range(self.ndim) if position != axis)
    if not others:
        raise ShapeError(f"self has {self.ndim} dimensions, expected at least 2")
    if maxnorm == math.inf:  # the derivative would be 0 * inf
        return alias(self)
    value = pointwise.convert(self, self.dtype.compute)
    length = reduce.linalg_vector_norm(value, p, others, True)
    scale = pointwise.where(length > maxnorm, maxnorm / (length + 1e-7), 1.0)
    return pointwise.convert(value * scale, self.dtype)


@composite
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """input / max(norm of order p, eps) along dim."""
    return input / clamp_min(reduce.linalg_vector_norm(input, p, dim, True), eps)


@composite
def _weight_norm_interface(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """v * (g / norm of v over all dimensions but dim), and that norm."""
    dim = dimension(dim, v.ndim)
    others = tuple(position for position in range(v.ndim) if position != dim)
    value = pointwise.widen(v)
    length = elementary.sqrt(reduce.total_over(value * value, others, keepdim=True))
    return pointwise.convert(value * (pointwise.widen(g) / length), v.dtype), length


@composite
def _weight_norm_interface_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """The gradients of the first result of _weight_norm_interface by v and g."""
    dim = dimension(dim, saved_v.ndim)
    others = tuple(position for position in range(saved_v.ndim) if position != dim)
    gradient, value, length = pointwise.widen(grad_w), pointwise.widen(saved_v), pointwise.widen(saved_norms)
    along = reduce.total_over(gradient * value, others, keepdim=True)
    by_v = pointwise.widen(saved_g) * (gradient - value * (along / (length * length))) / length
    return pointwise.convert(by_v, saved_v.dtype), pointwise.convert(along / length, saved_g.dtype)
