"""Elementary functions: powers, exponentials, logarithms, trigonometric and hyperbolic functions.

Rules are written as in pointwise.py: linear in `grad`, times the conjugate of the derivative.
"""

from __future__ import annotations

import builtins
import math

import ml_dtypes

from ..ir.graph import Value
from ..ir.types import FLOAT, INEXACT, c128, f32, f64, float_of, i32
from .define import Scalar, Tensor, composite, prim
from .kinds import Elementwise, common_dtype
from .minmax import maximum
from .pointwise import (
    NUMBER,
    abs,
    added,
    cast,
    complex,
    conjugate,
    convert,
    eq,
    ge,
    gt,
    imag,
    le,
    lt,
    mul,
    real,
    reciprocal,
    rounded_once,
    times,
    where,
    widen,
)

# Powers


def literal(value: Tensor | Scalar) -> Scalar | None:
    """Return the number of a 0-dim constant, or None."""
    if not isinstance(value, Value):
        return value
    if value.op is not None and value.op.name == "constant":
        return value.op.arguments["value"]
    return None


@prim(Elementwise("sqrt", promote="float"), dtypes=INEXACT)
def sqrt(self: Tensor) -> Tensor:
    """The square root of self."""


@sqrt.vjp
def sqrt_vjp(grad, result):
    return grad / (2 * conjugate(result))


@prim(Elementwise("rsqrt", promote="float"), dtypes=INEXACT)
def rsqrt(self: Tensor) -> Tensor:
    """1 / sqrt(self)."""


@rsqrt.vjp
def rsqrt_vjp(grad, result):
    factor = conjugate(result)
    return grad * (-0.5 * (factor * factor * factor))


@prim(Elementwise("pow"), dtypes=NUMBER)
def pow(self: Tensor, exponent: Tensor) -> Tensor:
    """self to the power of exponent; for integers a negative exponent gives 0 unless self is 1 or -1."""


@pow.vjp
def pow_vjp(grad, result, self, exponent):
    number = literal(exponent)
    if number is not None:
        if number == 0:
            return None, None
        if number == 1:
            return grad, None
        slope = self * 2 if number == 2 else pow(self, number - 1) * number
        return grad * conjugate(slope), None
    # At exponent 0 the slope is 0, but its derivative by the exponent is 1 / self, so the formula must keep it if
    # finite.
    least = float(ml_dtypes.finfo(self.dtype.real.numpy).smallest_normal)
    flat = eq(exponent, 0) & ~ge(abs(self), least)
    slope = where(flat, 0, exponent * pow(where(flat, 1, self), exponent - 1))
    safe = eq(self, 0) if self.dtype.is_complex else eq(self, 0) & ge(exponent, 0)
    growth = where(safe, 0, result * log(where(safe, 1, self)))
    return grad * conjugate(slope), grad * conjugate(growth)


@composite
def float_power(self: Tensor | Scalar, exponent: Tensor | Scalar) -> Tensor:
    """self to the power of exponent, computed in double precision."""
    parts = [
        item.dtype.is_complex if isinstance(item, Value) else isinstance(item, builtins.complex)
        for item in (self, exponent)
    ]
    wide = c128 if builtins.any(parts) else f64
    base, power = (cast(item, wide) if isinstance(item, Value) else item for item in (self, exponent))
    return pow(base, power)


@prim(Elementwise("hypot"), dtypes=FLOAT, commutes=True)
def hypot(self: Tensor, other: Tensor) -> Tensor:
    """sqrt(self * self + other * other) without overflow."""


@hypot.vjp
def hypot_vjp(grad, result, self, other):
    return grad * (self / result), grad * (other / result)


# Exponentials and logarithms


@prim(Elementwise("exp", promote="float"), dtypes=INEXACT, never_negative=True)
def exp(self: Tensor) -> Tensor:
    """e to the power of self."""


@exp.vjp
def exp_vjp(grad, result):
    return grad * conjugate(result)


@prim(Elementwise("exp2", promote="float"), dtypes=INEXACT, never_negative=True)
def exp2(self: Tensor) -> Tensor:
    """2 to the power of self."""


@exp2.vjp
def exp2_vjp(grad, result):
    return grad * (conjugate(result) * math.log(2))


@prim(Elementwise("expm1", promote="float"), dtypes=INEXACT)
def expm1(self: Tensor) -> Tensor:
    """exp(self) - 1, precise near 0."""


@expm1.vjp
def expm1_vjp(grad, result):
    return grad * (conjugate(result) + 1)


@composite
def ldexp(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """self * 2 ** other; integer exponents keep the type of self."""
    whole = other.dtype.is_integer if isinstance(other, Value) else isinstance(other, int)
    if not (whole and isinstance(self, Value) and self.dtype.is_inexact):
        return mul(self, exp2(other))
    # The factor may overflow a narrow type although the product does not.
    wide = f64 if self.dtype.real is f64 else f32
    factor = exp2(cast(other, wide)) if isinstance(other, Value) else 2.0**other
    return cast(mul(self, factor), self.dtype)


@prim(Elementwise("mantissa"), dtypes=FLOAT)
def mantissa(self: Tensor) -> Tensor:
    """self / 2 ** exponent(self), from 1/2 to 1 in magnitude; zero, infinities and nan as they are."""


@mantissa.vjp
def mantissa_vjp(grad, self):
    return ldexp(grad, -cast(exponent(self), i32))


@prim(Elementwise("exponent"), dtypes=FLOAT)
def exponent(self: Tensor) -> Tensor:
    """floor(log2(abs(self))) + 1, a whole number; 0 for zero, infinities and nan."""


@exponent.vjp
def exponent_vjp(grad):
    return None


@composite
def frexp(self: Tensor) -> tuple[Tensor, Tensor]:
    """mantissa(self), and exponent(self) as i32: self is mantissa * 2 ** exponent."""
    return mantissa(self), cast(exponent(self), i32)


@prim(Elementwise("log", promote="float"), dtypes=INEXACT)
def log(self: Tensor) -> Tensor:
    """The natural logarithm of self."""


@log.vjp
def log_vjp(grad, self):
    return grad / conjugate(self)


@prim(Elementwise("log2", promote="float"), dtypes=INEXACT)
def log2(self: Tensor) -> Tensor:
    """The logarithm of self to base 2."""


@log2.vjp
def log2_vjp(grad, self):
    return grad / (conjugate(self) * math.log(2))


@prim(Elementwise("log10", promote="float"), dtypes=INEXACT)
def log10(self: Tensor) -> Tensor:
    """The logarithm of self to base 10."""


@log10.vjp
def log10_vjp(grad, self):
    return grad / (conjugate(self) * math.log(10))


@prim(Elementwise("log1p", promote="float"), dtypes=INEXACT)
def log1p(self: Tensor) -> Tensor:
    """log(1 + self), precise near 0."""


@log1p.vjp
def log1p_vjp(grad, self):
    return grad / (conjugate(self) + 1)


@composite
@rounded_once
def logaddexp(self: Tensor, other: Tensor) -> Tensor:
    """log(exp(self) + exp(other)) without overflow."""
    self, other = widen(self), widen(other)  # differences of integers wrap
    # Equal infinities: their difference is NaN, but logaddexp is defined.
    apart = where(eq(self, other), 0, self - other)
    return maximum(self, other) + log1p(exp(-abs(apart)))


@logaddexp.vjp
def logaddexp_vjp(grad, self, other):
    return grad * sigmoid(self - other), grad * sigmoid(other - self)


@logaddexp.jvp
def logaddexp_jvp(self_tangent, other_tangent, self, other):
    # Not through the body, which has a kink at equal operands that the function does not have.
    return added(times(self_tangent, sigmoid(self - other)), times(other_tangent, sigmoid(other - self)))


@composite
@rounded_once
def logaddexp2(self: Tensor, other: Tensor) -> Tensor:
    """log2(2 ** self + 2 ** other) without overflow."""
    self, other = widen(self), widen(other)
    apart = where(eq(self, other), 0, self - other)
    return maximum(self, other) + log1p(exp2(-abs(apart))) * (1 / math.log(2))


@logaddexp2.vjp
def logaddexp2_vjp(grad, self, other):
    apart = (self - other) * math.log(2)
    return grad * sigmoid(apart), grad * sigmoid(-apart)


@logaddexp2.jvp
def logaddexp2_jvp(self_tangent, other_tangent, self, other):
    apart = (self - other) * math.log(2)
    return added(times(self_tangent, sigmoid(apart)), times(other_tangent, sigmoid(-apart)))


# Trigonometry


@prim(Elementwise("sin", promote="float"), dtypes=INEXACT)
def sin(self: Tensor) -> Tensor:
    """The sine of self."""


@sin.vjp
def sin_vjp(grad, self):
    return grad * conjugate(cos(self))


@prim(Elementwise("cos", promote="float"), dtypes=INEXACT)
def cos(self: Tensor) -> Tensor:
    """The cosine of self."""


@cos.vjp
def cos_vjp(grad, self):
    return -grad * conjugate(sin(self))


@prim(Elementwise("tan", promote="float"), dtypes=INEXACT)
def tan(self: Tensor) -> Tensor:
    """The tangent of self."""


@tan.vjp
def tan_vjp(grad, result):
    slope = conjugate(result)
    return grad * (slope * slope + 1)


def _unit_slope(self: Tensor) -> Tensor:
    """1 / sqrt(1 - self * self).

    For complex operands two roots, whose branch cuts are those of asin and acos. Differences keep the sign of a zero
    imaginary part, which tells the side of the cut; 1 - self and self + 1 would lose it."""
    if not self.dtype.is_complex:
        return rsqrt(1 - self * self)
    return rsqrt(-(self - 1)) * rsqrt(self - -1)


@prim(Elementwise("asin", promote="float"), dtypes=INEXACT)
def asin(self: Tensor) -> Tensor:
    """The angle from -pi/2 to pi/2 whose sine is self."""


@asin.vjp
def asin_vjp(grad, self):
    return grad * conjugate(_unit_slope(self))


@prim(Elementwise("acos", promote="float"), dtypes=INEXACT)
def acos(self: Tensor) -> Tensor:
    """The angle from 0 to pi whose cosine is self."""


@acos.vjp
def acos_vjp(grad, self):
    return -grad * conjugate(_unit_slope(self))


@prim(Elementwise("atan", promote="float"), dtypes=INEXACT)
def atan(self: Tensor) -> Tensor:
    """The angle from -pi/2 to pi/2 whose tangent is self."""


@atan.vjp
def atan_vjp(grad, self):
    return grad / conjugate(self * self + 1)


@prim(Elementwise("atan2", promote="float"), dtypes=FLOAT)
def atan2(self: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, self), from -pi to pi."""


@atan2.vjp
def atan2_vjp(grad, self, other):
    size = self * self + other * other
    # The angle of the origin is undefined: as in PyTorch, its gradient is zero.
    scaled = grad * reciprocal(where(size == 0, math.inf, size))
    return scaled * other, -scaled * self


@composite
def arctan2(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The angle of the point (other, self)."""
    return atan2(self, other)


@composite
@rounded_once
def deg2rad(self: Tensor) -> Tensor:
    """self * pi / 180."""
    return self * (math.pi / 180)


@composite
@rounded_once
def rad2deg(self: Tensor) -> Tensor:
    """self * 180 / pi."""
    return self * (180 / math.pi)


@composite
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * (cos(angle) + 1j * sin(angle))."""
    # Integers alone would become f32, beside f64 too.
    wanted = float_of(common_dtype((abs, angle)))
    abs, angle = convert(abs, wanted), convert(angle, wanted)
    return complex(abs * cos(angle), abs * sin(angle))


# Hyperbolic functions


@prim(Elementwise("sinh", promote="float"), dtypes=INEXACT)
def sinh(self: Tensor) -> Tensor:
    """(exp(self) - exp(-self)) / 2."""


@sinh.vjp
def sinh_vjp(grad, self):
    return grad * conjugate(cosh(self))


@prim(Elementwise("cosh", promote="float"), dtypes=INEXACT)
def cosh(self: Tensor) -> Tensor:
    """(exp(self) + exp(-self)) / 2."""


@cosh.vjp
def cosh_vjp(grad, self):
    return grad * conjugate(sinh(self))


@prim(Elementwise("tanh", promote="float"), dtypes=INEXACT)
def tanh(self: Tensor) -> Tensor:
    """sinh(self) / cosh(self)."""


@composite
@rounded_once
def tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """grad_output * (1 - output ** 2)."""
    slope = conjugate(output)
    return grad_output * (1 - slope * slope)


tanh.derivative = tanh_backward


@prim(Elementwise("asinh", promote="float"), dtypes=INEXACT)
def asinh(self: Tensor) -> Tensor:
    """log(self + sqrt(self ** 2 + 1))."""


@asinh.vjp
def asinh_vjp(grad, self):
    if not self.dtype.is_complex:
        return grad * rsqrt(self * self + 1)
    return grad * conjugate(_unit_slope(complex(-imag(self), real(self))))


@prim(Elementwise("acosh", promote="float"), dtypes=INEXACT)
def acosh(self: Tensor) -> Tensor:
    """log(self + sqrt(self ** 2 - 1))."""


@acosh.vjp
def acosh_vjp(grad, self):
    # As in PyTorch the slope of a real operand is an even function: it exists below -1, where the value is NaN.
    value = self if self.dtype.is_complex else abs(self)
    # Two roots: the root of the product would take the wrong branch for complex operands.
    return grad * conjugate(rsqrt(value - 1) * rsqrt(value - -1))


@prim(Elementwise("atanh", promote="float"), dtypes=INEXACT)
def atanh(self: Tensor) -> Tensor:
    """log((1 + self) / (1 - self)) / 2."""


@atanh.vjp
def atanh_vjp(grad, self):
    return grad / conjugate(1 - self * self)


@prim(Elementwise("sigmoid", promote="float"), dtypes=INEXACT, never_negative=True)
def sigmoid(self: Tensor) -> Tensor:
    """1 / (1 + exp(-self))."""


@composite
@rounded_once
def sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """grad_output * output * (1 - output)."""
    slope = conjugate(output)
    return grad_output * (slope * (1 - slope))


sigmoid.derivative = sigmoid_backward


@composite
@rounded_once
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """log(self / (1 - self)), self first kept within eps and 1 - eps if eps is given and not negative."""
    value = self if self.dtype.is_inexact else cast(self, f32)
    if eps is not None and eps >= 0:
        # The lower bound wins where they cross.
        value = where(lt(value, eps), eps, where(gt(value, 1 - eps), 1 - eps, value))
    return log(value / (1 - value))


@composite
@rounded_once
def logit_backward(grad_output: Tensor, self: Tensor, eps: float | None = None) -> Tensor:
    """grad_output / (self * (1 - self)); outside of eps to 1 - eps 0, without eps nan outside of 0 to 1."""
    low, outside = (0.0, math.nan) if eps is None or eps < 0 else (eps, 0.0)
    inside = ge(self, low) & le(self, 1 - low)
    value = where(inside, self, 0.5)  # keeps derivatives of the dropped branch finite
    return where(inside, grad_output / (value * (1 - value)), outside)


logit.slope = logit_backward
