"""Activation functions and their named backward ops.

The bodies select with `where`, so that forward mode, which differentiates the body, has PyTorch's slope at kinks.
"""

from __future__ import annotations

import math

from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import floor_divide
from .define import REGISTRY, Scalar, Tensor, composite
from .derivatives import forward_to
from .elementary import exp, expm1, log1p, sigmoid, tanh
from .minmax import clamp
from .pointwise import abs, ge, gt, le, lt, rounded_once, where
from .registry import as_held
from .shapes import dimension, divides, equal
from .special import normal_cdf, normal_density


@composite
def relu(self: Tensor) -> Tensor:
    """self where positive, else 0."""
    return where(lt(self, 0), 0, self)


@composite
def relu6(self: Tensor) -> Tensor:
    """self kept within 0 and 6."""
    return hardtanh(self, 0, 6)


@composite
@rounded_once
def threshold(self: Tensor, threshold: Scalar, value: Scalar) -> Tensor:
    """self where above threshold, else value."""
    return where(le(self, as_held(threshold, self.dtype)), as_held(value, self.dtype), self)


@composite
@rounded_once
def threshold_backward(grad_output: Tensor, self: Tensor, threshold: Scalar) -> Tensor:
    """grad_output where self is above threshold, else 0."""
    return where(le(self, threshold), 0, grad_output)


relu.slope = forward_to(threshold_backward, self="result", threshold=0)


threshold.derivative = threshold_backward


@composite
@rounded_once
def leaky_relu(self: Tensor, negative_slope: Scalar = 0.01) -> Tensor:
    """self where positive, else negative_slope * self."""
    return where(gt(self, 0), self, self * negative_slope)


@composite
@rounded_once
def leaky_relu_backward(grad_output: Tensor, self: Tensor, negative_slope: Scalar, self_is_result: bool) -> Tensor:
    """grad_output where self is positive, else negative_slope * grad_output."""
    return where(gt(self, 0), grad_output, grad_output * negative_slope)


leaky_relu.derivative = forward_to(leaky_relu_backward, self_is_result=False)


@composite
def prelu(self: Tensor, weight: Tensor) -> Tensor:
    """self where positive, else weight * self; one weight, or one for each channel (dimension 1)."""
    if weight.ndim == 1 and not equal(weight.shape[0], 1):
        channels = self.shape[1] if self.ndim > 1 else 1
        if not equal(weight.shape[0], channels):
            raise ShapeError(f"weight has {weight.shape[0]} elements, expected 1 or {channels} (the channels)")
    elif weight.ndim > 1:
        raise ShapeError(f"weight has {weight.ndim} dimensions, expected at most 1")
    if weight.ndim == 1:
        channel = min(1, self.ndim - 1)
        weight = weight.reshape(tuple(weight.shape[0] if dim == channel else 1 for dim in range(self.ndim)))
    return _prelu_kernel(self, weight)


@composite
def _prelu_kernel(self: Tensor, weight: Tensor) -> Tensor:
    """self where positive, else weight * self, with weight broadcast."""
    return where(gt(self, 0), self, weight * self)


@composite
@rounded_once
def _prelu_kernel_backward(grad_output: Tensor, self: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of self and, not yet summed over the broadcast dimensions, of weight."""
    positive = gt(self, 0)
    return where(positive, grad_output, weight * grad_output), where(positive, 0, self * grad_output)


_prelu_kernel.derivative = _prelu_kernel_backward


@composite
@rounded_once
def elu(self: Tensor, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> Tensor:
    """scale * self where positive, else scale * alpha * (exp(input_scale * self) - 1)."""
    scaled = self if input_scale == 1 else self * input_scale
    below = expm1(scaled)
    if alpha * scale != 1:
        below = below * (alpha * scale)
    return where(lt(self, 0), below, self if scale == 1 else self * scale)


@composite
@rounded_once
def elu_backward(
    grad_output: Tensor,
    alpha: Scalar,
    scale: Scalar,
    input_scale: Scalar,
    is_result: bool,
    self_or_result: Tensor,
) -> Tensor:
    """grad_output times the slope of elu, from its input or its result."""
    if is_result:
        below = grad_output * ((self_or_result + alpha * scale) * input_scale)
    else:
        # Clamped, so that the exponential does not overflow in the branch that `where` drops: its derivatives would
        # be NaN.
        # At the kink its slope is zero, as in PyTorch.
        growth = exp(where(ge(self_or_result, 0), 0, self_or_result) * input_scale)
        below = grad_output * (input_scale * alpha * scale) * growth
    return where(gt(self_or_result, 0), grad_output * scale, below)


elu.slope = forward_to(elu_backward, is_result=False, self_or_result="self")


SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


@composite
def selu(self: Tensor) -> Tensor:
    """elu with the alpha and scale that keep mean 0 and variance 1."""
    return elu(self, SELU_ALPHA, SELU_SCALE)


@composite
def celu(self: Tensor, alpha: Scalar = 1.0) -> Tensor:
    """self where positive, else alpha * (exp(self / alpha) - 1)."""
    if alpha == 0:
        raise ArgumentError("alpha must not be 0")
    return elu(self, alpha, 1, 1 / alpha)


# The tanh approximation is (1 + tanh(t)) / 2 with t = sqrt(2 / pi) * (x + 0.044715 * x ** 3), which is sigmoid(2 t).
GELU_SCALE = 2 * math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715


def check_approximate(approximate: str) -> None:
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"approximate must be 'none' or 'tanh', got {approximate!r}")


@composite
@rounded_once
def gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """self times the standard normal CDF of self."""
    check_approximate(approximate)
    if approximate == "tanh":
        return self * sigmoid(self * (GELU_SCALE + GELU_SCALE * GELU_CUBIC * (self * self)))
    return self * normal_cdf(self)


@composite
@rounded_once
def gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    """grad_output * (cdf(self) + self * pdf(self)) for the standard normal distribution."""
    check_approximate(approximate)
    if approximate == "tanh":
        squared = self * self
        gate = sigmoid(self * (GELU_SCALE + GELU_SCALE * GELU_CUBIC * squared))
        inner_slope = GELU_SCALE + 3 * GELU_SCALE * GELU_CUBIC * squared
        return grad_output * (gate * (1 + self * (1 - gate) * inner_slope))
    return grad_output * (normal_cdf(self) + self * normal_density(self))


gelu.derivative = gelu_backward


@composite
@rounded_once
def silu(self: Tensor) -> Tensor:
    """self * sigmoid(self)."""
    return self * sigmoid(self)


@composite
@rounded_once
def silu_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """grad_output * s * (1 + self * (1 - s)) with s = sigmoid(self)."""
    gate = sigmoid(self)
    return grad_output * (gate * (1 + self * (1 - gate)))


silu.derivative = silu_backward


@composite
@rounded_once
def mish(self: Tensor) -> Tensor:
    """self * tanh(log(1 + exp(self)))."""
    return self * mish_gate(self)


def mish_gate(x: Tensor) -> Tensor:
    """Return tanh(log(1 + exp(x))) as a quotient of polynomials in exp(x); from x = 20 on it is 1."""
    growth = exp(clamp(x, max=20))
    growth = growth * (growth + 2)
    return growth / (growth + 2)


@composite
@rounded_once
def mish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """grad_output * (t + self * sigmoid(self) * (1 - t * t)) with t = tanh(softplus(self))."""
    gate = mish_gate(self)
    return grad_output * (gate + self * sigmoid(self) * (1 - gate * gate))


mish.derivative = mish_backward


@composite
@rounded_once
def softplus(self: Tensor, beta: Scalar = 1, threshold: Scalar = 20) -> Tensor:
    """log(1 + exp(beta * self)) / beta; self itself where beta * self is above threshold."""
    scaled = self if beta == 1 else self * beta
    smooth = log1p(exp(scaled))
    return where(gt(scaled, threshold), self, smooth if beta == 1 else smooth / beta)


@composite
@rounded_once
def softplus_backward(grad_output: Tensor, self: Tensor, beta: Scalar, threshold: Scalar) -> Tensor:
    """grad_output * sigmoid(beta * self); grad_output itself where beta * self is above threshold."""
    scaled = self if beta == 1 else self * beta
    return where(gt(scaled, threshold), grad_output, grad_output * sigmoid(scaled))


softplus.slope = softplus_backward


@composite
@rounded_once
def log_sigmoid(self: Tensor) -> Tensor:
    """log(1 / (1 + exp(-self)))."""
    return where(lt(self, 0), self, 0) - log1p(exp(-abs(self)))


@log_sigmoid.vjp
def log_sigmoid_vjp(grad, self):
    return grad * sigmoid(-self)


@log_sigmoid.jvp
def log_sigmoid_jvp(self, self_tangent):
    return self_tangent * sigmoid(-self)


@composite
@rounded_once
def log_sigmoid_forward(self: Tensor) -> tuple[Tensor, Tensor]:
    """log_sigmoid(self), and exp(-|self|) for the backward op."""
    return log_sigmoid(self), exp(-abs(self))


@log_sigmoid_forward.vjp
def log_sigmoid_forward_vjp(grads, self):
    return grads[0] * sigmoid(-self)


@log_sigmoid_forward.jvp
def log_sigmoid_forward_jvp(self_tangent, self):
    return self_tangent * sigmoid(-self), None


@composite
@rounded_once
def log_sigmoid_backward(grad_output: Tensor, self: Tensor, buffer: Tensor) -> Tensor:
    """grad_output * sigmoid(-self); buffer is not needed for it."""
    return grad_output * sigmoid(-self)


@composite
def hardtanh(self: Tensor, min_val: Scalar = -1, max_val: Scalar = 1) -> Tensor:
    """self kept within min_val and max_val."""
    return clamp(self, min_val, max_val)


@composite
@rounded_once
def hardtanh_backward(grad_output: Tensor, self: Tensor, min_val: Scalar, max_val: Scalar) -> Tensor:
    """grad_output where self lies between min_val and max_val, else 0."""
    return where(gt(self, min_val) & lt(self, max_val), grad_output, 0)


hardtanh.slope = hardtanh_backward


@composite
@rounded_once
def hardsigmoid(self: Tensor) -> Tensor:
    """(self + 3) / 6 kept within 0 and 1."""
    return clamp(self + 3, 0, 6) / 6


@composite
@rounded_once
def hardsigmoid_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """grad_output / 6 where self lies between -3 and 3, else 0."""
    return where(gt(self, -3) & lt(self, 3), grad_output * (1 / 6), 0)


hardsigmoid.slope = hardsigmoid_backward


@composite
@rounded_once
def hardswish(self: Tensor) -> Tensor:
    """self * hardsigmoid(self)."""
    return self * clamp(self + 3, 0, 6) / 6


@composite
@rounded_once
def hardswish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """0 below -3, grad_output above 3, grad_output * (self / 3 + 0.5) between."""
    low, high = le(self, -3), ge(self, 3)
    # Clamped: in the branches that `where` drops the derivative of the slope would be 0 * inf.
    slope = where(low | high, 0, self) * (1 / 3) + 0.5
    return where(low, 0, where(high, grad_output, grad_output * slope))


hardswish.slope = hardswish_backward


@composite
def hardshrink(self: Tensor, lambd: Scalar = 0.5) -> Tensor:
    """0 where |self| is at most lambd, else self."""
    return where(ge(self, -lambd) & le(self, lambd), 0, self)


@composite
def hardshrink_backward(grad_out: Tensor, self: Tensor, lambd: Scalar) -> Tensor:
    """0 where |self| is at most lambd, else grad_out."""
    return where(lt(self, -lambd) | gt(self, lambd), grad_out, 0)


hardshrink.derivative = hardshrink_backward


@composite
@rounded_once
def softshrink(self: Tensor, lambd: Scalar = 0.5) -> Tensor:
    """self moved by lambd towards 0, and 0 within lambd of it."""
    # The product with 0 keeps a nan and the sign of zero.
    return where(gt(self, lambd), self - lambd, where(lt(self, -lambd), self + lambd, self * 0))


@composite
def softshrink_backward(grad_output: Tensor, self: Tensor, lambd: Scalar) -> Tensor:
    """0 where |self| is at most lambd, else grad_output."""
    return where(lt(self, -lambd) | gt(self, lambd), grad_output, 0)


softshrink.slope = softshrink_backward


@composite
@rounded_once
def tanhshrink(self: Tensor) -> Tensor:
    """self - tanh(self)."""
    return self - tanh(self)


@composite
@rounded_once
def softsign(self: Tensor) -> Tensor:
    """self / (1 + |self|)."""
    return self / (1 + abs(self))


def halves(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the first and second half of self along dim."""
    position = dimension(dim, self.ndim)
    size = self.shape[position]
    if not divides(size, 2):
        raise ShapeError(f"dimension {position} has size {size}, expected an even one")
    middle = floor_divide(size, 2)
    cut = REGISTRY["slice"]
    return cut(self, position, 0, middle), cut(self, position, middle, size)


@composite
@rounded_once
def glu(self: Tensor, dim: int = -1) -> Tensor:
    """The first half of self along dim times the sigmoid of the second half."""
    value, gate = halves(self, dim)
    return value * sigmoid(gate)


@composite
@rounded_once
def glu_backward(grad_output: Tensor, self: Tensor, dim: int) -> Tensor:
    """The gradients of both halves, side by side."""
    value, gate = halves(self, dim)
    opened = sigmoid(gate)
    scaled = grad_output * opened
    return REGISTRY["cat"]((scaled, scaled * value * (1 - opened)), dim)


glu.derivative = glu_backward
