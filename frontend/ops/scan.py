"""Cumulative ops: a combiner over all prefixes of one dimension.

The primitives `running_*` take tensors of at least one dimension; the public ops take 0-dim ones too.
"""

from __future__ import annotations

import math

from ..ir.errors import ShapeError
from ..ir.types import FLOAT, REAL, DType, f32, f64, float_of, i64
from . import elementary, pointwise
from .create import full, iota
from .define import Tensor, composite, prim
from .derivatives import forward_to
from .kinds import Scan
from .opdef import OpDef
from .pointwise import added, times
from .reduce import accumulable
from .shapes import dimension
from .view import alias, flip


def _along(value: Tensor, dim: int) -> dict:
    if value.ndim == 0:
        raise ShapeError("a 0-dim tensor has no dimension to work on")
    return {"dim": dimension(dim, value.ndim)}


@prim(Scan("add"))
def running_sum(self: Tensor, dim: int) -> Tensor:
    """The sum of all elements along dim up to each one."""
    return _along(self, dim)


def suffix_sum(value: Tensor, dim: int) -> Tensor:
    """Return the sum of all elements along dim from each one on."""
    return flip(running_sum(flip(value, dim), dim), dim)


@running_sum.vjp
def running_sum_vjp(grad, dim):
    return suffix_sum(grad, dim)


@prim(Scan("mul"))
def running_product(self: Tensor, dim: int) -> Tensor:
    """The product of all elements along dim up to each one."""
    return _along(self, dim)


@prim(Scan("logaddexp"), dtypes=FLOAT)
def running_logsumexp(self: Tensor, dim: int) -> Tensor:
    """The logarithm of the sum of exp(self) along dim up to each element, without overflow."""
    return _along(self, dim)


def _logarithms(value: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithms of the positive part of value, which includes NaN, and of its negative part."""
    return (
        pointwise.where(value <= 0, -math.inf, elementary.log(pointwise.where(value <= 0, 1, value))),
        pointwise.where(value < 0, elementary.log(pointwise.where(value < 0, -value, 1)), -math.inf),
    )


# exp(self - result) may over- or underflow where a sum of such terms does not, so the derivatives accumulate
# logarithms. Each derivative is linear, but its single steps are not differentiable, so each is an op, and their
# derivative rules use the two ops.


def _total(total: Tensor) -> Tensor:
    """Return the total with inf for -inf (an empty sum), so that exp(x - total) is 0 there."""
    return pointwise.where(total == -math.inf, math.inf, total)


@composite
def running_logsumexp_backward(grad_output: Tensor, self: Tensor, total: Tensor, dim: int) -> Tensor:
    """At position i along dim the sum over j >= i of grad_output[j] * exp(self[i] - total[j])."""
    total = _total(total)
    positive, negative = (
        elementary.exp(flip(running_logsumexp(flip(part - total, dim), dim), dim) + self)
        for part in _logarithms(grad_output)
    )
    return positive - negative


@composite
def running_logsumexp_jvp(tangent: Tensor, self: Tensor, total: Tensor, dim: int) -> Tensor:
    """At position i along dim the sum over j <= i of tangent[j] * exp(self[j] - total[i])."""
    total = _total(total)
    positive, negative = (elementary.exp(running_logsumexp(part + self, dim) - total) for part in _logarithms(tangent))
    return positive - negative


running_logsumexp.derivative = forward_to(running_logsumexp_backward, total="result")


@running_logsumexp.jvp
def running_logsumexp_along(self_tangent, result, self, dim):
    return running_logsumexp_jvp(self_tangent, self, result, dim)


@running_logsumexp_backward.vjp
def running_logsumexp_backward_vjp(grad, result, grad_output, self, total, dim):
    change = running_logsumexp_jvp(grad, self, total, dim)
    return change, grad * result, -grad_output * change


@running_logsumexp_backward.jvp
def running_logsumexp_backward_jvp(
    grad_output_tangent, self_tangent, total_tangent, result, grad_output, self, total, dim
):
    moved = added(grad_output_tangent, times(total_tangent, -grad_output))
    change = None if moved is None else running_logsumexp_backward(moved, self, total, dim)
    return added(change, times(self_tangent, result))


@running_logsumexp_jvp.vjp
def running_logsumexp_jvp_vjp(grad, result, tangent, self, total, dim):
    gradient = running_logsumexp_backward(grad, self, total, dim)
    return gradient, tangent * gradient, -grad * result


@running_logsumexp_jvp.jvp
def running_logsumexp_jvp_jvp(tangent_tangent, self_tangent, total_tangent, result, tangent, self, total, dim):
    moved = added(tangent_tangent, times(self_tangent, tangent))
    change = None if moved is None else running_logsumexp_jvp(moved, self, total, dim)
    return added(change, times(total_tangent, -result))


@prim(Scan("max"), dtypes=REAL)
def running_max(self: Tensor, dim: int) -> Tensor:
    """The largest of all elements along dim up to each one; NaN from the first NaN on."""
    return _along(self, dim)


@prim(Scan("min"), dtypes=REAL)
def running_min(self: Tensor, dim: int) -> Tensor:
    """The smallest of all elements along dim up to each one; NaN from the first NaN on."""
    return _along(self, dim)


def _last_index(value: Tensor, extremes: Tensor, dim: int) -> Tensor:
    """Return for each position the last index up to it at which the running extreme occurs."""
    hit = value == extremes
    if value.dtype.is_float:
        hit = hit | pointwise.isnan(value)
    places = iota(value.shape, dim=dim, dtype=i64)
    return running_max(pointwise.where(hit, places, 0), dim)


@running_max.vjp
@running_min.vjp
def running_extreme_vjp(grad, result, self, dim):
    zeros = full(self.shape, 0, dtype=grad.dtype)
    return zeros.scatter_add(dim, _last_index(self, result, dim), grad)


@running_max.jvp
@running_min.jvp
def running_extreme_jvp(self_tangent, result, self, dim):
    return self_tangent.gather(dim, _last_index(self, result, dim))


def _accumulated(scan: OpDef, self: Tensor, dim: int, dtype: DType | None) -> Tensor:
    """Apply a scan in the requested type; integers and bools accumulate as i64."""
    dim = dimension(dim, self.ndim)
    value = accumulable(self, dtype)
    return scan(value, dim) if self.ndim else alias(value)


@composite
def cumsum(self: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The sum of all elements along dim up to each one; integers and bools add up as i64."""
    return _accumulated(running_sum, self, dim, dtype)


@composite
def cumprod(self: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The product of all elements along dim up to each one; integers and bools multiply as i64."""
    return _accumulated(running_product, self, dim, dtype)


@composite
def logcumsumexp(self: Tensor, dim: int) -> Tensor:
    """The logarithm of the cumulative sum of exp(self), without overflow."""
    # f32 is summed up in f64: rounded to 24 bits, a logarithm of 10^4 is off by 5 * 10^-4, at each step, and so is
    # the derivative, which is the exponential of a difference of two.
    wanted = float_of(self.dtype)
    return pointwise.convert(_accumulated(running_logsumexp, self, dim, f64 if wanted is f32 else wanted), wanted)


def _extremes(scan: OpDef, self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    dim = dimension(dim, self.ndim)
    if self.ndim == 0:
        return alias(self), full((), 0, dtype=i64)
    values = scan(self, dim)
    return values, _last_index(self, values, dim)


@composite
def cummax(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The largest of all elements along dim up to each one, and its last index."""
    return _extremes(running_max, self, dim)


@composite
def cummin(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The smallest of all elements along dim up to each one, and its last index."""
    return _extremes(running_min, self, dim)
