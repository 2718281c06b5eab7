"""Elementwise ops: arithmetic, comparison, logic, bits, exponentials, trigonometry, rounding, complex, casts.

A rule is linear in `grad` and elementwise, so that forward mode is the same rule with the tangent as `grad`.
For complex operands a rule multiplies by the conjugate of the derivative; real ones never see a `conj`.
Conventions at kinks are PyTorch's: abs has derivative 0 at 0, equal operands of maximum share the gradient.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError
from ..ir.graph import Value
from ..ir.types import ANY, COMPLEX, EXACT, FLOAT, INEXACT, INTEGER, REAL, DType, bool_, c128, f32, f64, promote
from .define import Scalar, Tensor, composite, prim, zero_derivative
from .kinds import Elementwise

NUMBER = (*INTEGER, *INEXACT)
REAL_NUMBER = (*INTEGER, *FLOAT)


def conjugate(value: Value) -> Value:
    """conj(value) where that differs from value."""
    return conj(value) if value.dtype.is_complex else value


def rounded_once(body: Callable[..., Any]) -> Callable[..., Any]:
    """The body of a composite computed in f32 for f16 and bf16 operands, its constants too, and rounded at the end."""

    @wraps(body)
    def wide(**arguments: Any) -> Any:
        types = [item.type for item in arguments.values() if isinstance(item, Value)]
        narrow = promote(types) if types else None
        if narrow is None or narrow.compute is narrow:
            return body(**arguments)
        results = body(
            **{
                name: cast(item, narrow.compute) if isinstance(item, Value) and item.dtype.is_float else item
                for name, item in arguments.items()
            }
        )
        if isinstance(results, tuple):
            return tuple(cast(result, narrow) for result in results)
        return cast(results, narrow)

    return wide


def literal(value: Tensor | Scalar) -> Scalar | None:
    """The number that a 0-dim constant holds, or None."""
    if not isinstance(value, Value):
        return value
    if value.op is not None and value.op.name == "constant":
        return value.op.arguments["value"]
    return None


def boolean(value: Tensor | Scalar) -> Tensor | Scalar:
    """value != 0 as a bool."""
    if not isinstance(value, Value):
        return bool(value)
    return value if value.dtype is bool_ else ne(value, 0)


@prim(Elementwise("cast", promote="fixed", result="cast"), dtypes=ANY)
def cast(self: Tensor, dtype: DType) -> Tensor:
    """self converted to dtype."""


@cast.vjp
def cast_vjp(grad, self):
    return cast(grad, self.dtype)


# Arithmetic


@prim(Elementwise("add"))
def add(self: Tensor, other: Tensor, *, alpha: Scalar = 1) -> Tensor:
    """self + alpha * other."""
    return None if alpha == 1 else {"other": other * alpha, "alpha": 1}


@add.vjp
def add_vjp(grad):
    return grad, grad


@prim(Elementwise("sub"), dtypes=NUMBER)
def sub(self: Tensor, other: Tensor, *, alpha: Scalar = 1) -> Tensor:
    """self - alpha * other."""
    return None if alpha == 1 else {"other": other * alpha, "alpha": 1}


@sub.vjp
def sub_vjp(grad):
    return grad, -grad


@composite
def rsub(self: Tensor | Scalar, other: Tensor | Scalar, alpha: Scalar = 1) -> Tensor:
    """other - alpha * self."""
    return sub(other, self, alpha=alpha)


@prim(Elementwise("mul"))
def mul(self: Tensor, other: Tensor) -> Tensor:
    """self * other."""


@mul.vjp
def mul_vjp(grad, self, other):
    return grad * conjugate(other), grad * conjugate(self)


@prim(Elementwise("div", promote="float"))
def true_divide(self: Tensor, other: Tensor) -> Tensor:
    """self / other; integers become floats first."""


@true_divide.vjp
def true_divide_vjp(grad, result, other):
    scaled = grad / conjugate(other)
    return scaled, -scaled * conjugate(result)


@composite
def div(self: Tensor | Scalar, other: Tensor | Scalar, *, rounding_mode: str | None = None) -> Tensor:
    """self / other, rounded towards zero (trunc) or down (floor) if rounding_mode says so."""
    if rounding_mode is None:
        return true_divide(self, other)
    if rounding_mode == "trunc":
        return trunc_divide(self, other)
    if rounding_mode == "floor":
        return floor_divide(self, other)
    raise ArgumentError(f"rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")


@prim(Elementwise("trunc_divide"), dtypes=REAL_NUMBER)
def trunc_divide(self: Tensor, other: Tensor) -> Tensor:
    """self / other rounded towards zero; an integer divided by zero gives 0."""


@prim(Elementwise("floor_divide"), dtypes=REAL_NUMBER)
def floor_divide(self: Tensor, other: Tensor) -> Tensor:
    """self / other rounded down; an integer divided by zero gives 0."""


zero_derivative(trunc_divide, floor_divide)


@prim(Elementwise("remainder"), dtypes=REAL_NUMBER)
def remainder(self: Tensor, other: Tensor) -> Tensor:
    """self - floor(self / other) * other: the sign is that of other."""


@remainder.vjp
def remainder_vjp(grad, self, other):
    return grad, -grad * floor_divide(self, other)


@prim(Elementwise("fmod"), dtypes=REAL_NUMBER)
def fmod(self: Tensor, other: Tensor) -> Tensor:
    """self - trunc(self / other) * other: the sign is that of self."""


@fmod.vjp
def fmod_vjp(grad, self, other):
    return grad, -grad * trunc_divide(self, other)


@prim(Elementwise("neg"), dtypes=NUMBER)
def neg(self: Tensor) -> Tensor:
    """-self."""


@neg.vjp
def neg_vjp(grad):
    return -grad


@composite
def positive(self: Tensor) -> Tensor:
    """self."""
    return self


@prim(Elementwise("abs", result="real"), dtypes=NUMBER)
def abs(self: Tensor) -> Tensor:
    """|self|; the magnitude of a complex number."""


@abs.vjp
def abs_vjp(grad, self):
    return grad * sgn(self)


@abs.jvp
def abs_jvp(self, self_tangent):
    return real(self_tangent * conjugate(sgn(self)))


@composite
def absolute(self: Tensor) -> Tensor:
    """|self|."""
    return abs(self)


@prim(Elementwise("sign"), dtypes=REAL)
def sign(self: Tensor) -> Tensor:
    """-1, 0 or 1; 0 for nan."""


zero_derivative(sign)


@composite
def sgn(self: Tensor) -> Tensor:
    """self / |self|, 0 where self is 0."""
    if not self.dtype.is_complex:
        return sign(self)
    magnitude = abs(self)
    zero = eq(magnitude, 0)
    return where(zero, 0, self / where(zero, 1, magnitude))


@composite
def square(self: Tensor) -> Tensor:
    """self * self."""
    value = cast(self, "i64") if self.dtype is bool_ else self
    return value * value


@square.vjp
def square_vjp(grad, self):
    return grad * (2 * conjugate(self))


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


@prim(Elementwise("reciprocal", promote="float"), dtypes=INEXACT)
def reciprocal(self: Tensor) -> Tensor:
    """1 / self."""


@reciprocal.vjp
def reciprocal_vjp(grad, result):
    factor = conjugate(result)
    return -grad * (factor * factor)


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
    slope = where(eq(exponent, 0), 0, exponent * pow(self, exponent - 1))
    safe = eq(self, 0) if self.dtype.is_complex else eq(self, 0) & ge(exponent, 0)
    growth = where(safe, 0, result * log(self))
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


@composite
@rounded_once
def addcmul(self: Tensor | Scalar, tensor1: Tensor | Scalar, tensor2: Tensor | Scalar, *, value: Scalar = 1) -> Tensor:
    """self + value * tensor1 * tensor2."""
    product = mul(tensor1, tensor2)
    return add(self, product if value == 1 else product * value)


@composite
@rounded_once
def addcdiv(self: Tensor | Scalar, tensor1: Tensor | Scalar, tensor2: Tensor | Scalar, *, value: Scalar = 1) -> Tensor:
    """self + value * tensor1 / tensor2."""
    scaled = tensor1 if value == 1 else mul(tensor1, value)
    return add(self, true_divide(scaled, tensor2))


@composite
@rounded_once
def lerp(self: Tensor, end: Tensor, weight: Tensor | Scalar) -> Tensor:
    """self + weight * (end - self), computed from the nearer end."""
    span = end - self
    near, far = self + weight * span, end - span * (1 - weight)
    if not isinstance(weight, Value):
        return near if builtins.abs(weight) < 0.5 else far
    return where(lt(abs(weight), 0.5), near, far)


@lerp.vjp
def lerp_vjp(grad, self, end, weight):
    if not isinstance(weight, Value):
        factor = weight.conjugate() if isinstance(weight, builtins.complex) else weight
        return grad * (1 - factor), grad * factor, None
    factor = conjugate(weight)
    return grad * (1 - factor), grad * factor, grad * conjugate(end - self)


@prim(Elementwise("hypot"), dtypes=FLOAT)
def hypot(self: Tensor, other: Tensor) -> Tensor:
    """sqrt(self * self + other * other) without overflow."""


@hypot.vjp
def hypot_vjp(grad, result, self, other):
    return grad * (self / result), grad * (other / result)


@composite
def ldexp(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """self * 2 ** other; whole exponents leave the type of self."""
    whole = other.dtype.is_integer if isinstance(other, Value) else isinstance(other, int)
    if not (whole and isinstance(self, Value) and self.dtype.is_inexact):
        return mul(self, exp2(other))
    # The factor may be out of the range of a narrow type, while the product is not.
    wide = f64 if self.dtype.real is f64 else f32
    factor = exp2(cast(other, wide)) if isinstance(other, Value) else 2.0**other
    return cast(mul(self, factor), self.dtype)


# Extremes


@prim(Elementwise("maximum"), dtypes=REAL)
def maximum(self: Tensor, other: Tensor) -> Tensor:
    """The larger of the two; nan if one is nan."""


@maximum.vjp
def maximum_vjp(grad, self, other):
    half = grad * 0.5
    tie = eq(self, other)
    first = where(lt(self, other), 0, grad)
    second = where(lt(other, self), 0, grad)
    return where(tie, half, first), where(tie, half, second)


@prim(Elementwise("minimum"), dtypes=REAL)
def minimum(self: Tensor, other: Tensor) -> Tensor:
    """The smaller of the two; nan if one is nan."""


@minimum.vjp
def minimum_vjp(grad, self, other):
    half = grad * 0.5
    tie = eq(self, other)
    first = where(gt(self, other), 0, grad)
    second = where(gt(other, self), 0, grad)
    return where(tie, half, first), where(tie, half, second)


@prim(Elementwise("fmax"), dtypes=REAL)
def fmax(self: Tensor, other: Tensor) -> Tensor:
    """The larger of the two; the other one if one is nan."""


@fmax.vjp
def fmax_vjp(grad, self, other):
    first = ge(self, other) | isnan(other)
    return where(first, grad, 0), where(first, 0, grad)


@prim(Elementwise("fmin"), dtypes=REAL)
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
    result = self
    if min is not None:
        result = clamp_min(result, min)
    if max is not None:
        result = clamp_max(result, max)
    return result


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
    low = lt(self, min)
    return where(low | isnan(min) if isinstance(min, Value) else low, min, self)


@composite
def clamp_max(self: Tensor, max: Tensor | Scalar) -> Tensor:
    """self, but at most max."""
    high = gt(self, max)
    return where(high | isnan(max) if isinstance(max, Value) else high, max, self)


@composite
def clip(self: Tensor, min: Tensor | Scalar | None = None, max: Tensor | Scalar | None = None) -> Tensor:
    """self kept within min and max."""
    return clamp(self, min, max)


# Comparison and logic


@prim(Elementwise("eq", result="bool"))
def eq(self: Tensor, other: Tensor) -> Tensor:
    """self == other."""


@prim(Elementwise("ne", result="bool"))
def ne(self: Tensor, other: Tensor) -> Tensor:
    """self != other."""


@prim(Elementwise("lt", result="bool"), dtypes=REAL)
def lt(self: Tensor, other: Tensor) -> Tensor:
    """self < other."""


@prim(Elementwise("le", result="bool"), dtypes=REAL)
def le(self: Tensor, other: Tensor) -> Tensor:
    """self <= other."""


@prim(Elementwise("gt", result="bool"), dtypes=REAL)
def gt(self: Tensor, other: Tensor) -> Tensor:
    """self > other."""


@prim(Elementwise("ge", result="bool"), dtypes=REAL)
def ge(self: Tensor, other: Tensor) -> Tensor:
    """self >= other."""


@composite
def isclose(self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """|self - other| <= atol + rtol * |other|, or both equal."""
    close = eq(self, other)
    if equal_nan and self.dtype.is_inexact:
        close = close | (isnan(self) & isnan(other))
    if not self.dtype.is_inexact:
        self, other = cast(self, f64), cast(other, f64)
    distance = abs(self - other)
    return close | (isfinite(distance) & le(distance, atol + abs(other) * rtol))


@prim(Elementwise("isnan", result="bool"))
def isnan(self: Tensor) -> Tensor:
    """Whether self is nan."""


@prim(Elementwise("isinf", result="bool"))
def isinf(self: Tensor) -> Tensor:
    """Whether self is infinite."""


@prim(Elementwise("isfinite", result="bool"))
def isfinite(self: Tensor) -> Tensor:
    """Whether self is neither infinite nor nan."""


@composite
def isposinf(self: Tensor) -> Tensor:
    """Whether self is plus infinity."""
    return eq(self, math.inf) if self.dtype.is_float else isinf(self)


@composite
def isneginf(self: Tensor) -> Tensor:
    """Whether self is minus infinity."""
    return eq(self, -math.inf) if self.dtype.is_float else isinf(self)


@composite
def isreal(self: Tensor) -> Tensor:
    """Whether the imaginary part is zero."""
    return eq(imag(self), 0) if self.dtype.is_complex else eq(self, self) | isnan(self)


@prim(Elementwise("signbit", result="bool"), dtypes=REAL)
def signbit(self: Tensor) -> Tensor:
    """Whether the sign bit is set: also for -0.0."""


@prim(Elementwise("where", promote="where"))
def where(condition: Tensor, self: Tensor, other: Tensor) -> Tensor:
    """self where condition holds, other elsewhere."""
    if isinstance(condition, Value) and condition.dtype is not bool_ and condition.dtype.is_integer:
        return {"condition": ne(condition, 0)}
    return None


@where.vjp
def where_vjp(grad, condition):
    return None, where(condition, grad, 0), where(condition, 0, grad)


@prim(Elementwise("logical_and", result="bool"))
def logical_and(self: Tensor, other: Tensor) -> Tensor:
    """Both are nonzero."""
    return {"self": boolean(self), "other": boolean(other)}


@prim(Elementwise("logical_or", result="bool"))
def logical_or(self: Tensor, other: Tensor) -> Tensor:
    """One or both are nonzero."""
    return {"self": boolean(self), "other": boolean(other)}


@prim(Elementwise("logical_xor", result="bool"))
def logical_xor(self: Tensor, other: Tensor) -> Tensor:
    """Just one is nonzero."""
    return {"self": boolean(self), "other": boolean(other)}


@prim(Elementwise("logical_not", result="bool"))
def logical_not(self: Tensor) -> Tensor:
    """self is zero."""
    return {"self": boolean(self)}


@prim(Elementwise("bitwise_and"), dtypes=EXACT)
def bitwise_and(self: Tensor, other: Tensor) -> Tensor:
    """self & other, bit by bit."""


@prim(Elementwise("bitwise_or"), dtypes=EXACT)
def bitwise_or(self: Tensor, other: Tensor) -> Tensor:
    """self | other, bit by bit."""


@prim(Elementwise("bitwise_xor"), dtypes=EXACT)
def bitwise_xor(self: Tensor, other: Tensor) -> Tensor:
    """self ^ other, bit by bit."""


@prim(Elementwise("bitwise_not"), dtypes=EXACT)
def bitwise_not(self: Tensor) -> Tensor:
    """~self, bit by bit."""


@prim(Elementwise("bitwise_left_shift"), dtypes=INTEGER)
def bitwise_left_shift(self: Tensor, other: Tensor) -> Tensor:
    """self << other; 0 if other is negative or at least the number of bits."""


@prim(Elementwise("bitwise_right_shift"), dtypes=INTEGER)
def bitwise_right_shift(self: Tensor, other: Tensor) -> Tensor:
    """self >> other, the sign kept; just the sign if other is negative or at least the number of bits."""


# Exponentials and logarithms


@prim(Elementwise("exp", promote="float"), dtypes=INEXACT)
def exp(self: Tensor) -> Tensor:
    """e to the power of self."""


@exp.vjp
def exp_vjp(grad, result):
    return grad * conjugate(result)


@prim(Elementwise("exp2", promote="float"), dtypes=INEXACT)
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
    # The same infinity twice has no difference, but it has a sum.
    apart = where(eq(self, other), 0, self - other)
    return maximum(self, other) + log1p(exp(-abs(apart)))


@logaddexp.vjp
def logaddexp_vjp(grad, self, other):
    return grad * sigmoid(self - other), grad * sigmoid(other - self)


@composite
@rounded_once
def logaddexp2(self: Tensor, other: Tensor) -> Tensor:
    """log2(2 ** self + 2 ** other) without overflow."""
    apart = where(eq(self, other), 0, self - other)
    return maximum(self, other) + log1p(exp2(-abs(apart))) * (1 / math.log(2))


@logaddexp2.vjp
def logaddexp2_vjp(grad, self, other):
    apart = (self - other) * math.log(2)
    return grad * sigmoid(apart), grad * sigmoid(-apart)


@composite
@rounded_once
def xlogy(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """self * log(other), 0 where self is 0, nan where other is nan."""
    product = mul(self, log(other))
    return where(logical_and(eq(self, 0), logical_not(isnan(other))), 0, product)


@xlogy.vjp
def xlogy_vjp(grad, self, other):
    return where(eq(self, 0) & le(other, 0), 0, grad * log(other)), grad * true_divide(self, other)


@composite
@rounded_once
def special_xlog1py(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """self * log(1 + other), 0 where self is 0, nan where other is nan."""
    product = mul(self, log1p(other))
    return where(logical_and(eq(self, 0), logical_not(isnan(other))), 0, product)


@special_xlog1py.vjp
def special_xlog1py_vjp(grad, self, other):
    return where(eq(self, 0) & le(other, -1), 0, grad * log1p(other)), grad * true_divide(self, other + 1)


@composite
@rounded_once
def special_entr(self: Tensor) -> Tensor:
    """-self * log(self): 0 at 0, minus infinity below."""
    return where(lt(self, 0), -math.inf, where(eq(self, 0), 0, -self * log(self)))


@special_entr.vjp
def special_entr_vjp(grad, self):
    return grad * where(lt(self, 0), math.nan, -log(self) - 1)


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


@prim(Elementwise("asin", promote="float"), dtypes=INEXACT)
def asin(self: Tensor) -> Tensor:
    """The angle from -pi/2 to pi/2 whose sine is self."""


@asin.vjp
def asin_vjp(grad, self):
    return grad * conjugate(rsqrt(1 - self * self))


@prim(Elementwise("acos", promote="float"), dtypes=INEXACT)
def acos(self: Tensor) -> Tensor:
    """The angle from 0 to pi whose cosine is self."""


@acos.vjp
def acos_vjp(grad, self):
    return -grad * conjugate(rsqrt(1 - self * self))


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
    scaled = grad * reciprocal(self * self + other * other)
    return scaled * other, -scaled * self


@composite
def arctan2(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The angle of the point (other, self)."""
    return atan2(self, other)


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


@tanh.vjp
def tanh_vjp(grad, result):
    return tanh_backward(grad, result)


@composite
@rounded_once
def tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """grad_output * (1 - output ** 2)."""
    slope = conjugate(output)
    return grad_output * (1 - slope * slope)


@prim(Elementwise("asinh", promote="float"), dtypes=INEXACT)
def asinh(self: Tensor) -> Tensor:
    """log(self + sqrt(self ** 2 + 1))."""


@asinh.vjp
def asinh_vjp(grad, self):
    return grad * conjugate(rsqrt(self * self + 1))


@prim(Elementwise("acosh", promote="float"), dtypes=INEXACT)
def acosh(self: Tensor) -> Tensor:
    """log(self + sqrt(self ** 2 - 1))."""


@acosh.vjp
def acosh_vjp(grad, self):
    # Two roots: the product of the operands would choose the wrong branch for complex ones.
    return grad * conjugate(rsqrt(self - 1) * rsqrt(self + 1))


@prim(Elementwise("atanh", promote="float"), dtypes=INEXACT)
def atanh(self: Tensor) -> Tensor:
    """log((1 + self) / (1 - self)) / 2."""


@atanh.vjp
def atanh_vjp(grad, self):
    return grad / conjugate(1 - self * self)


@composite
@rounded_once
def sinc(self: Tensor) -> Tensor:
    """sin(pi self) / (pi self), 1 at 0."""
    angle = self * math.pi
    zero = eq(angle, 0)
    return where(zero, 1, sin(angle) / where(zero, 1, angle))


@sinc.vjp
def sinc_vjp(grad, self):
    angle = conjugate(self) * math.pi
    zero = eq(angle, 0)
    safe = where(zero, 1, angle)
    return grad * where(zero, 0, (cos(safe) - sin(safe) / safe) / safe * math.pi)


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


# Sigmoid and special functions


@prim(Elementwise("sigmoid", promote="float"), dtypes=INEXACT)
def sigmoid(self: Tensor) -> Tensor:
    """1 / (1 + exp(-self))."""


@sigmoid.vjp
def sigmoid_vjp(grad, result):
    return sigmoid_backward(grad, result)


@composite
@rounded_once
def sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """grad_output * output * (1 - output)."""
    slope = conjugate(output)
    return grad_output * (slope * (1 - slope))


@composite
@rounded_once
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """log(self / (1 - self)), self first kept within eps and 1 - eps if eps is given."""
    value = self if self.dtype.is_inexact else cast(self, f32)
    if eps is not None:
        value = clamp(value, eps, 1 - eps)
    return log(value / (1 - value))


@logit.vjp
def logit_vjp(grad, self, eps):
    return logit_backward(grad, self, eps)


@composite
@rounded_once
def logit_backward(grad_output: Tensor, self: Tensor, eps: float | None = None) -> Tensor:
    """grad_output / (self * (1 - self)); outside of eps to 1 - eps 0, without eps nan outside of 0 to 1."""
    low, outside = (0.0, math.nan) if eps is None else (eps, 0.0)
    inside = ge(self, low) & le(self, 1 - low)
    return where(inside, grad_output / (self * (1 - self)), outside)


@prim(Elementwise("erf", promote="float"), dtypes=FLOAT)
def erf(self: Tensor) -> Tensor:
    """2/sqrt(pi) times the integral of exp(-t*t) from 0 to self."""


@erf.vjp
def erf_vjp(grad, self):
    return grad * (2 / math.sqrt(math.pi) * exp(-(self * self)))


@prim(Elementwise("erfc", promote="float"), dtypes=FLOAT)
def erfc(self: Tensor) -> Tensor:
    """1 - erf(self), precise where that is small."""


@erfc.vjp
def erfc_vjp(grad, self):
    return grad * (-2 / math.sqrt(math.pi) * exp(-(self * self)))


@prim(Elementwise("erfinv", promote="float"), dtypes=FLOAT)
def erfinv(self: Tensor) -> Tensor:
    """The value whose erf is self."""


@erfinv.vjp
def erfinv_vjp(grad, result):
    return grad * (math.sqrt(math.pi) / 2 * exp(result * result))


@prim(Elementwise("lgamma", promote="float"), dtypes=FLOAT)
def lgamma(self: Tensor) -> Tensor:
    """log(|Gamma(self)|)."""


@lgamma.vjp
def lgamma_vjp(grad, self):
    return grad * digamma(self)


@prim(Elementwise("digamma", promote="float"), dtypes=FLOAT)
def digamma(self: Tensor) -> Tensor:
    """The derivative of log(Gamma(self))."""


@digamma.vjp
def digamma_vjp(grad, self):
    return grad * trigamma(self)


@prim(Elementwise("trigamma", promote="float"), dtypes=FLOAT)
def trigamma(self: Tensor) -> Tensor:
    """The second derivative of log(Gamma(self))."""


@trigamma.vjp
def trigamma_vjp(grad, self):
    return grad * tetragamma(self)


@prim(Elementwise("tetragamma", promote="float"), dtypes=FLOAT, differentiable=False)
def tetragamma(self: Tensor) -> Tensor:
    """The third derivative of log(Gamma(self))."""


@composite
def polygamma(n: int, self: Tensor) -> Tensor:
    """The n-th derivative of digamma, for n = 0, 1, 2."""
    orders = (digamma, trigamma, tetragamma)
    if n not in range(len(orders)):
        raise ArgumentError(f"n must be 0, 1 or 2, got {n}")
    return orders[n](self)


# Rounding


@prim(Elementwise("floor"), dtypes=REAL_NUMBER)
def floor(self: Tensor) -> Tensor:
    """The largest integer not above self."""


@prim(Elementwise("ceil"), dtypes=REAL_NUMBER)
def ceil(self: Tensor) -> Tensor:
    """The smallest integer not below self."""


@prim(Elementwise("trunc"), dtypes=REAL_NUMBER)
def trunc(self: Tensor) -> Tensor:
    """self without its fraction."""


@composite
def fix(self: Tensor) -> Tensor:
    """self without its fraction."""
    return trunc(self)


@prim(Elementwise("round"), dtypes=REAL_NUMBER)
def rint(self: Tensor) -> Tensor:
    """The nearest integer, halves to the even one."""


zero_derivative(floor, ceil, trunc, rint)


@composite
def round(self: Tensor, *, decimals: int = 0) -> Tensor:
    """self rounded to `decimals` decimals, halves to even."""
    if decimals == 0:
        return rint(self)
    scale = 10.0 ** builtins.abs(decimals)
    return rint(self * scale) / scale if decimals > 0 else rint(self / scale) * scale


zero_derivative(round)


@prim(Elementwise("frac"), dtypes=FLOAT)
def frac(self: Tensor) -> Tensor:
    """self - trunc(self)."""


@frac.vjp
def frac_vjp(grad):
    return grad


@prim(Elementwise("copysign", promote="float"), dtypes=FLOAT)
def copysign(self: Tensor, other: Tensor) -> Tensor:
    """|self| with the sign of other."""


@copysign.vjp
def copysign_vjp(grad, result, self):
    return grad * where(eq(self, 0), 0, result / self), None


@prim(Elementwise("nextafter"), dtypes=FLOAT, differentiable=False)
def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """The number next to self towards other."""


@composite(differentiable=False)
def heaviside(self: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, values at zero."""
    return where(eq(self, 0), values, cast(gt(self, 0), self.dtype))


@composite
def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """self with nan and the infinities replaced: by 0 and the largest finite numbers unless given."""
    if not self.dtype.is_inexact:
        return positive(self)
    if self.dtype.is_complex:
        return complex(nan_to_num(real(self), nan, posinf, neginf), nan_to_num(imag(self), nan, posinf, neginf))
    largest = LARGEST[self.dtype.name]
    result = where(isnan(self), 0.0 if nan is None else nan, self)
    result = where(eq(self, math.inf), largest if posinf is None else posinf, result)
    return where(eq(self, -math.inf), -largest if neginf is None else neginf, result)


LARGEST = {
    "f16": 65504.0,
    "bf16": float(np.ldexp(255.0, 120)),
    "f32": float(np.finfo(np.float32).max),
    "f64": float(np.finfo(np.float64).max),
}


# Complex numbers


@prim(Elementwise("real", result="real"))
def real(self: Tensor) -> Tensor:
    """The real part."""


@real.vjp
def real_vjp(grad, self):
    return cast(grad, self.dtype)


@real.jvp
def real_jvp(self_tangent):
    return real(self_tangent)


@prim(Elementwise("imag", result="real"), dtypes=COMPLEX)
def imag(self: Tensor) -> Tensor:
    """The imaginary part."""


@imag.vjp
def imag_vjp(grad, self):
    return grad * 1j


@imag.jvp
def imag_jvp(self_tangent):
    return imag(self_tangent)


@prim(Elementwise("conj"))
def conj(self: Tensor) -> Tensor:
    """The conjugate: the imaginary part with the other sign."""


@conj.vjp
def conj_vjp(grad):
    return conj(grad)


@conj.jvp
def conj_jvp(self_tangent):
    return conj(self_tangent)


@prim(Elementwise("complex", result="complex"), dtypes=(f32, f64))
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + 1j * imag."""


@complex.vjp
def complex_vjp(grad):
    return real(grad), imag(grad)


@complex.jvp
def complex_jvp(real, imag, real_tangent, imag_tangent):
    return complex(
        real * 0 if real_tangent is None else real_tangent, imag * 0 if imag_tangent is None else imag_tangent
    )


@prim(Elementwise("angle", promote="float", result="real"), dtypes=INEXACT)
def angle(self: Tensor) -> Tensor:
    """The angle of a complex number; for a real one 0 or, if it is negative, pi."""


@angle.vjp
def angle_vjp(grad, self):
    if not self.dtype.is_complex:
        return None
    across, along = imag(self), real(self)
    scale = grad / (across * across + along * along)
    return complex(-across * scale, along * scale)


@angle.jvp
def angle_jvp(self, self_tangent):
    if not self.dtype.is_complex:
        return None
    across, along = imag(self), real(self)
    turned = along * imag(self_tangent) - across * real(self_tangent)
    return turned / (across * across + along * along)


@composite
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * (cos(angle) + 1j * sin(angle))."""
    return complex(abs * cos(angle), abs * sin(angle))
