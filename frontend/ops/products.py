"""Derivatives of products, of any order, correct at factors of zero.

A product is a polynomial of its factors. The first derivative divides by each factor, and puts a constant in place of a
zero, so its value is right but its own derivative is not. So first derivatives are ops, whose derivative rules only
multiply: the derivative of a running product is a linear recurrence, and so is the derivative of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.symbolic import product
from ..ir.types import i64
from . import pointwise
from .concat_pad import constant_pad_nd, padding_of
from .create import iota, ones_like
from .define import Dims, Tensor, composite
from .minmax import clamp_min
from .pointwise import added, conjugate, times, where
from .reduce import prod, restored, sum
from .scan import running_product, running_sum, suffix_sum
from .shapes import dimensions
from .view import alias, flip, permute, reshape, slice


def _shifted(value: Tensor, dim: int, fill: int = 0) -> Tensor:
    """Return at each position along dim the element before it; fill at the first."""
    return slice(constant_pad_nd(value, padding_of(value.ndim, dim, 1, 0), fill), dim, 0, value.shape[dim])


def _following(value: Tensor, dim: int) -> Tensor:
    """Return at each position along dim the element after it; zero at the last."""
    return slice(constant_pad_nd(value, padding_of(value.ndim, dim, 0, 1)), dim, 1)


# Linear recurrences

# log2 of the largest open size along dim: 2**40 elements do not fit in memory.
LARGEST = 40


@composite
def linear_recurrence(self: Tensor, factor: Tensor, dim: int) -> Tensor:
    """self plus factor times the previous result, along dim."""
    size = self.shape[dim]
    steps = (size - 1).bit_length() if isinstance(size, int) else LARGEST
    places = iota(tuple(extent if axis == dim else 1 for axis, extent in enumerate(self.shape)), dim=dim, dtype=i64)
    flat = reshape(places, (size,))
    total, reach = self, factor
    # Recursive doubling: `total` sums the last 2**step terms, `reach` is the product of the factors over them.
    for step in range(steps):
        source = clamp_min(flat - 2**step, 0)
        inside = places >= 2**step
        total = total + reach * where(inside, total.index_select(dim, source), 0)
        reach = where(inside, reach * reach.index_select(dim, source), 0)
    return total


def _from_the_end(value: Tensor, factor: Tensor, dim: int) -> Tensor:
    """Return value plus factor times result, both of the next position: the transpose of the recurrence."""
    return flip(linear_recurrence(flip(value, dim), _shifted(flip(factor, dim), dim), dim), dim)


@linear_recurrence.vjp
def linear_recurrence_vjp(grad, result, factor, dim):
    by_self = _from_the_end(grad, conjugate(factor), dim)
    return by_self, by_self * conjugate(_shifted(result, dim))


@linear_recurrence.jvp
def linear_recurrence_jvp(self_tangent, factor_tangent, result, factor, dim):
    return linear_recurrence(added(self_tangent, times(factor_tangent, _shifted(result, dim))), factor, dim)


# Running products


def _around_first_zero(self: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the mask of the first zero, the mask of it and all after it, a divisor, and running products with that
    zero as 1.

    From the first zero on, only the derivative by that zero itself is nonzero; before it division is safe."""
    zero = self == 0
    seen = running_sum(pointwise.cast(zero, i64), dim)
    first = zero & (seen == 1)
    # The divisor is 1 at zeros, where the quotient is not used.
    return first, seen > 0, where(zero, 1, self), running_product(where(first, 1, self), dim)


@composite
def running_product_backward(grad_output: Tensor, self: Tensor, dim: int) -> Tensor:
    """The gradient of running_product by self, in one pass from the end."""
    if self.shape[dim] == 1:
        return alias(grad_output)
    first, after, divisor, products = _around_first_zero(self, dim)
    before = suffix_sum(grad_output * running_product(self, dim), dim) / divisor
    return where(first, suffix_sum(grad_output * products, dim), where(after, 0, before))


@composite
def running_product_jvp(tangent: Tensor, self: Tensor, dim: int) -> Tensor:
    """The change of running_product when self moves along tangent, in one pass."""
    if self.shape[dim] == 1:
        return alias(tangent)
    first, after, divisor, products = _around_first_zero(self, dim)
    before = running_product(self, dim) * running_sum(where(after, 0, tangent / divisor), dim)
    return where(after, products * running_sum(where(first, tangent, 0), dim), before)


@running_product.vjp
def running_product_by_self(grad, self, dim):
    return running_product_backward(grad, conjugate(self), dim)


@running_product.jvp
def running_product_along(self_tangent, self, dim):
    return running_product_jvp(self_tangent, self, dim)


# Below, the gradient is the product of all earlier factors, times a recurrence from the end:
#     behind[i] = grad_output[i] + self[i + 1] * behind[i + 1]
# and the change is a recurrence too:
#     change[i] = self[i] * change[i - 1] + tangent[i] * (the product of all factors before)


@running_product_backward.vjp
def running_product_backward_vjp(grad, grad_output, self, dim):
    factors = conjugate(self)
    behind = _from_the_end(conjugate(grad_output), factors, dim)
    change = running_product_jvp(grad, factors, dim)
    through_products = running_product_backward(_following(grad * behind, dim), factors, dim)
    return change, behind * _shifted(change, dim) + through_products


@running_product_backward.jvp
def running_product_backward_jvp(grad_output_tangent, self_tangent, grad_output, self, dim):
    by_grad = by_self = None
    if grad_output_tangent is not None:
        by_grad = running_product_backward(grad_output_tangent, self, dim)
    if self_tangent is not None:
        behind = _from_the_end(grad_output, self, dim)
        change = _from_the_end(_following(self_tangent * behind, dim), self, dim)
        by_self = change * _shifted(running_product(self, dim), dim, 1)
        by_self = by_self + behind * _shifted(running_product_jvp(self_tangent, self, dim), dim)
    return added(by_grad, by_self)


@running_product_jvp.vjp
def running_product_jvp_vjp(grad, tangent, self, dim):
    direction, factors = conjugate(tangent), conjugate(self)
    behind = _from_the_end(grad, factors, dim)
    through_products = running_product_backward(_following(behind * direction, dim), factors, dim)
    change = running_product_jvp(direction, factors, dim)
    return running_product_backward(grad, factors, dim), behind * _shifted(change, dim) + through_products


@running_product_jvp.jvp
def running_product_jvp_jvp(tangent_tangent, self_tangent, result, tangent, self, dim):
    by_tangent = by_self = None
    if tangent_tangent is not None:
        by_tangent = running_product_jvp(tangent_tangent, self, dim)
    if self_tangent is not None:
        before = _shifted(running_product_jvp(self_tangent, self, dim), dim)
        by_self = linear_recurrence(tangent * before + self_tangent * _shifted(result, dim), self, dim)
    return added(by_tangent, by_self)


# Products over dimensions


@composite
def prod_of_others(self: Tensor, dim: Dims = None) -> Tensor:
    """For each element the product over dim of all others."""
    if product(self.shape[axis] for axis in dimensions(dim, self.ndim)) == 1:
        return ones_like(self)
    zero = self == 0
    factors = where(zero, 1, self)
    zeros = sum(zero, dim, True)
    others = prod(factors, dim, True) / factors
    return where((zeros == 0) | (zero & (zeros == 1)), others, 0)


@prod.vjp
def prod_vjp(grad, self, dim, keepdim):
    return restored(grad, self.shape, dim, keepdim) * prod_of_others(conjugate(self), dim)


@prod.jvp
def prod_jvp(self_tangent, self, dim, keepdim):
    return sum(self_tangent * prod_of_others(self, dim), dim, keepdim)


def _in_rows(function: Callable[..., Tensor], dims: Sequence[int], *values: Tensor) -> Tensor:
    """Apply a function along one dimension, the last, into which dims are merged; restore the shape."""
    shape = values[0].shape
    order = (*(axis for axis in range(len(shape)) if axis not in dims), *dims)
    moved = tuple(shape[axis] for axis in order)
    kept = moved[: len(shape) - len(dims)]
    rows = [reshape(permute(value, order), (*kept, product(shape[axis] for axis in dims))) for value in values]
    back = tuple(order.index(axis) for axis in range(len(shape)))
    return permute(reshape(function(*rows, len(kept)), moved), back)


def _change_of_others(tangent: Tensor, self: Tensor, dim: int) -> Tensor:
    """Return the tangent of the products of all other elements along dim: those before times those after."""
    backward, backward_tangent = flip(self, dim), flip(tangent, dim)
    before, before_change = (
        _shifted(running_product(self, dim), dim, 1),
        _shifted(running_product_jvp(tangent, self, dim), dim),
    )
    behind, behind_change = (
        flip(_shifted(running_product(backward, dim), dim, 1), dim),
        flip(_shifted(running_product_jvp(backward_tangent, backward, dim), dim), dim),
    )
    return before * behind_change + before_change * behind


@prod_of_others.vjp
def prod_of_others_vjp(grad, self, dim):
    # The matrix of second derivatives of a product is symmetric.
    dims = dimensions(dim, self.ndim)
    return _in_rows(_change_of_others, dims, grad, conjugate(self)) if dims else None


@prod_of_others.jvp
def prod_of_others_jvp(self_tangent, self, dim):
    dims = dimensions(dim, self.ndim)
    return _in_rows(_change_of_others, dims, self_tangent, self) if dims else None
