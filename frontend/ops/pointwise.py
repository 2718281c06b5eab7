"""Elementwise ops: casts, arithmetic, comparison, logic, bits, selection, the parts of complex numbers.

A derivative rule is linear in `grad` and elementwise, so forward mode is the same rule with the tangent as `grad`.
For complex operands a rule multiplies by the conjugate of the derivative; real ones never see a `conj`.
Conventions at kinks are PyTorch's: abs has derivative 0 at 0.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from ..ir.errors import ArgumentError
from ..ir.graph import Value
from ..ir.types import (
    ANY,
    COMPLEX,
    EXACT,
    FLOAT,
    INEXACT,
    INTEGER,
    REAL,
    STORAGE,
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    float_of,
    promote,
)
from .define import Scalar, Tensor, composite, constant, prim, zero_derivative
from .derivatives import forward_to
from .kinds import Elementwise, common_dtype
from .opdef import OpDef
from .registry import as_held, rounded

NUMBER = (*INTEGER, *INEXACT)
REAL_NUMBER = (*INTEGER, *FLOAT)


def conjugate(value: Value) -> Value:
    """Return conj(value); value itself if it is real."""
    return conj(value) if value.dtype.is_complex else value


def rounded_once(body: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a composite's body: f16 and bf16 operands and constants are computed in f32, the result is rounded
    once."""
    return _rounded_once(body, ())


def rounded_operands(*numbers: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As rounded_once, but the named operands, if they are numbers, are first rounded to the type of the tensors."""
    return lambda body: _rounded_once(body, numbers)


def _rounded_once(body: Callable[..., Any], numbers: tuple[str, ...]) -> Callable[..., Any]:
    @wraps(body)
    def wide(**arguments: Any) -> Any:
        types = [item.type for item in arguments.values() if isinstance(item, Value)]
        narrow = promote(types) if types else None
        if narrow is None or narrow.compute is narrow:
            return body(**arguments)
        for name in numbers:
            if not isinstance(arguments[name], Value):
                arguments[name] = rounded(arguments[name], narrow)
        results = body(**{name: _widened(item, narrow) for name, item in arguments.items()})
        if isinstance(results, tuple):
            return tuple(cast(result, narrow) for result in results)
        return cast(results, narrow)

    return wide


def _widened(item: Any, narrow: DType) -> Any:
    """Return an operand of an f16 or bf16 op in f32. A 0-dim tensor of another type is first rounded to the op's
    type."""
    if not isinstance(item, Value) or not (item.dtype.is_float or (item.dtype.is_integer and not item.shape)):
        return item
    return cast(item if item.shape else convert(item, narrow), narrow.compute)


def boolean(value: Tensor | Scalar) -> Tensor | Scalar:
    """value != 0 as a bool."""
    if not isinstance(value, Value):
        return bool(value)
    return value if value.dtype is bool_ else ne(value, 0)


@prim(Elementwise("cast", promote="fixed", result="cast"), dtypes=(*ANY, *STORAGE))
def cast(self: Tensor, dtype: DType) -> Tensor:
    """self converted to dtype."""


@cast.vjp
def cast_vjp(grad, self):
    return cast(grad, self.dtype)


@prim(Elementwise("round_off", promote="fixed"), dtypes=(f16, bf16))
def round_off(self: Tensor) -> Tensor:
    """self, which a kernel may hold in f32, rounded to its type."""


@round_off.vjp
def round_off_vjp(grad, self):
    return grad


@prim(Elementwise("tabulated", promote="fixed"), dtypes=(*INTEGER, *FLOAT))
def tabulated(self: Tensor) -> Tensor:
    """self, computed once and stored, not again by each kernel that reads it."""


@tabulated.vjp
def tabulated_vjp(grad):
    return grad


def convert(value: Tensor, dtype: DType) -> Tensor:
    """Return value as dtype; value itself if it has that type."""
    return value if value.dtype is dtype else cast(value, dtype)


def promoted(*items: Tensor | Scalar) -> list[Any]:
    """Return operands in their promoted type, numbers included: for scaling or comparing one of them."""
    wanted = common_dtype(items)
    return [convert(item, wanted) if isinstance(item, Value) else item for item in items]


def widen(value: Tensor) -> Tensor:
    """Return value in its compute type."""
    return convert(value, float_of(value.dtype).compute)


# Arithmetic


def _with_scaled(op: OpDef, self: Tensor | Scalar, other: Tensor | Scalar, alpha: Scalar) -> dict[str, Any] | Tensor:
    """Return the arguments of op on self and alpha * other in their promoted type, to which alpha is rounded; for f16
    and bf16 return the op's result, in which the product is not rounded."""
    if alpha == 1:
        return {}
    wanted = common_dtype((self, other))
    factor = rounded(alpha, wanted)
    if wanted.compute is wanted:
        return {"other": promoted(self, other)[1] * factor, "alpha": 1}
    left, right = (
        cast(convert(item, wanted), wanted.compute) if isinstance(item, Value) else rounded(item, wanted)
        for item in (self, other)
    )
    return cast(op(left, right * factor), wanted)


@prim(Elementwise("add"), commutes=True, keeps_sign=True)
def add(self: Tensor, other: Tensor, *, alpha: Scalar = 1) -> Tensor:
    """self + alpha * other."""
    return _with_scaled(add, self, other, alpha)


@add.vjp
def add_vjp(grad):
    return grad, grad


@prim(Elementwise("sub"), dtypes=NUMBER)
def sub(self: Tensor, other: Tensor, *, alpha: Scalar = 1) -> Tensor:
    """self - alpha * other."""
    return _with_scaled(sub, self, other, alpha)


@sub.vjp
def sub_vjp(grad):
    return grad, -grad


@composite
def rsub(self: Tensor | Scalar, other: Tensor | Scalar, alpha: Scalar = 1) -> Tensor:
    """other - alpha * self."""
    return sub(other, self, alpha=alpha)


@prim(Elementwise("mul", wide=("self", "other")), commutes=True, keeps_sign=True)
def mul(self: Tensor, other: Tensor) -> Tensor:
    """self * other."""


@mul.vjp
def mul_vjp(grad, self, other):
    return grad * conjugate(other), grad * conjugate(self)


def added(*parts: Tensor | None) -> Tensor | None:
    """Return the sum of derivatives; None is zero."""
    known = [part for part in parts if part is not None]
    total = known.pop(0) if known else None
    for part in known:
        total = total + part  # type: ignore[operator]
    return total


def times(tangent: Tensor | None, slope: Tensor) -> Tensor | None:
    """Return a tangent times a slope; None is zero."""
    return None if tangent is None else tangent * slope


@prim(Elementwise("div", promote="float", wide=("other",)), keeps_sign=True)
def true_divide(self: Tensor, other: Tensor) -> Tensor:
    """self / other; integers become floats first."""


@true_divide.vjp
def true_divide_vjp(grad, result, other):
    scaled = grad / conjugate(other)
    return scaled, -scaled * conjugate(result)


@true_divide.jvp
def true_divide_jvp(self_tangent, other_tangent, result, other):
    moved = None if other_tangent is None else -other_tangent * result
    return added(self_tangent, moved) / other


@composite
def div(self: Tensor | Scalar, other: Tensor | Scalar, *, rounding_mode: str | None = None) -> Tensor:
    """self / other; rounding_mode "trunc" rounds towards zero, "floor" down."""
    if rounding_mode is None:
        return true_divide(self, other)
    if rounding_mode == "trunc":
        return trunc_divide(self, other)
    if rounding_mode == "floor":
        return floor_divide(self, other)
    raise ArgumentError(f"rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")


@prim(Elementwise("trunc_divide", wide=("other",)), dtypes=REAL_NUMBER)
def trunc_divide(self: Tensor, other: Tensor) -> Tensor:
    """self / other rounded towards zero; an integer divided by zero gives 0."""


@prim(Elementwise("floor_divide", wide=("other",)), dtypes=REAL_NUMBER)
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


@prim(Elementwise("abs", result="real"), dtypes=NUMBER, never_negative=True)
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


@prim(Elementwise("reciprocal", promote="float"), dtypes=INEXACT)
def reciprocal(self: Tensor) -> Tensor:
    """1 / self."""


@reciprocal.vjp
def reciprocal_vjp(grad, result):
    factor = conjugate(result)
    return -grad * (factor * factor)


@composite
@rounded_operands("self", "tensor1", "tensor2")
def addcmul(self: Tensor | Scalar, tensor1: Tensor | Scalar, tensor2: Tensor | Scalar, *, value: Scalar = 1) -> Tensor:
    """self + value * tensor1 * tensor2."""
    self, tensor1, tensor2 = promoted(self, tensor1, tensor2)
    value = as_held(value, common_dtype((self, tensor1, tensor2)))
    # Not value * (tensor1 * tensor2): that product may overflow.
    return add(self, mul(tensor1 if value == 1 else mul(tensor1, value), tensor2))


@composite
@rounded_operands("self", "tensor1", "tensor2")
def addcdiv(self: Tensor | Scalar, tensor1: Tensor | Scalar, tensor2: Tensor | Scalar, *, value: Scalar = 1) -> Tensor:
    """self + value * tensor1 / tensor2."""
    self, tensor1, tensor2 = promoted(self, tensor1, tensor2)
    scaled = tensor1 if value == 1 else mul(tensor1, value)
    return add(self, true_divide(scaled, tensor2))


@composite
@rounded_once
def lerp(self: Tensor, end: Tensor, weight: Tensor | Scalar) -> Tensor:
    """self + weight * (end - self), computed from the nearer end."""
    # Integers become floats first: their difference may wrap.
    wanted = float_of(common_dtype((self, end, weight)))
    self, end = convert(self, wanted), convert(end, wanted)
    weight = convert(weight, wanted) if isinstance(weight, Value) else weight
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
    return grad * (1 - factor), grad * factor, grad * conjugate(convert(end, grad.dtype) - convert(self, grad.dtype))


# Comparison and logic


@prim(Elementwise("eq", result="bool"), commutes=True)
def eq(self: Tensor, other: Tensor) -> Tensor:
    """self == other."""


@prim(Elementwise("ne", result="bool"), commutes=True)
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


@prim(Elementwise("logical_and", result="bool"), commutes=True)
def logical_and(self: Tensor, other: Tensor) -> Tensor:
    """Both are nonzero."""
    return {"self": boolean(self), "other": boolean(other)}


@prim(Elementwise("logical_or", result="bool"), commutes=True)
def logical_or(self: Tensor, other: Tensor) -> Tensor:
    """One or both are nonzero."""
    return {"self": boolean(self), "other": boolean(other)}


@prim(Elementwise("logical_xor", result="bool"), commutes=True)
def logical_xor(self: Tensor, other: Tensor) -> Tensor:
    """Just one is nonzero."""
    return {"self": boolean(self), "other": boolean(other)}


@prim(Elementwise("logical_not", result="bool"))
def logical_not(self: Tensor) -> Tensor:
    """self is zero."""
    return {"self": boolean(self)}


@prim(Elementwise("bitwise_and"), dtypes=EXACT, commutes=True)
def bitwise_and(self: Tensor, other: Tensor) -> Tensor:
    """self & other, bit by bit."""


@prim(Elementwise("bitwise_or"), dtypes=EXACT, commutes=True)
def bitwise_or(self: Tensor, other: Tensor) -> Tensor:
    """self | other, bit by bit."""


@prim(Elementwise("bitwise_xor"), dtypes=EXACT, commutes=True)
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


conj.slope = forward_to(conj, self="grad")


@prim(Elementwise("complex", result="complex"), dtypes=(f32, f64))
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + 1j * imag."""


@complex.vjp
def complex_vjp(grad):
    return real(grad), imag(grad)


@complex.jvp
def complex_jvp(real, imag, real_tangent, imag_tangent):
    # Not real * 0, which is NaN for an infinity.
    none = constant(0.0, real.dtype)
    return complex(none if real_tangent is None else real_tangent, none if imag_tangent is None else imag_tangent)


@prim(Elementwise("angle", promote="float", result="real"), dtypes=INEXACT)
def angle(self: Tensor) -> Tensor:
    """The angle of a complex number; for a real one 0 or, if it is negative, pi."""


@angle.vjp
def angle_vjp(grad, self):
    if not self.dtype.is_complex:
        return None
    across, along = _turned(self)
    return complex(-across * grad, along * grad)


@angle.jvp
def angle_jvp(self, self_tangent):
    if not self.dtype.is_complex:
        return None
    across, along = _turned(self)
    return along * imag(self_tangent) - across * real(self_tangent)


def _turned(self: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of self over its squared magnitude, without squaring them; zero at the origin, where the angle
    is undefined."""
    size = abs(self)
    none = eq(size, 0)
    safe = where(none, 1, size)
    return where(none, 0, imag(self) / safe / safe), where(none, 0, real(self) / safe / safe)
