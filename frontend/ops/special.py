"""Special functions: products with logarithms, sinc, and the families of erf and Gamma."""

from __future__ import annotations

import math

from ..ir.errors import ArgumentError
from ..ir.graph import Value
from ..ir.types import FLOAT, float_of, i64
from .create import iota
from .define import Scalar, Tensor, composite, constant, prim
from .elementary import cos, exp, log, log1p, sin
from .kinds import Elementwise, common_dtype
from .opdef import OpDef
from .pointwise import (
    abs,
    added,
    conjugate,
    convert,
    eq,
    isnan,
    le,
    logical_and,
    logical_not,
    lt,
    mul,
    rounded_once,
    rounded_operands,
    true_divide,
    where,
)
from .reduce import sum
from .view import unsqueeze


def _in_one_type(self: Tensor | Scalar, other: Tensor | Scalar) -> list[Tensor]:
    """Return both operands in their promoted float type, so that logarithms of integers and numbers have its
    precision."""
    wanted = float_of(common_dtype((self, other)))
    return [convert(item, wanted) if isinstance(item, Value) else constant(item, wanted) for item in (self, other)]


@composite
@rounded_operands("self", "other")
def xlogy(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """self * log(other), 0 where self is 0, nan where other is nan."""
    self, other = _in_one_type(self, other)
    product = mul(self, log(other))
    return where(logical_and(eq(self, 0), logical_not(isnan(other))), 0, product)


def _by_factor(
    change: Tensor | None, self: Tensor | Scalar, other: Tensor | Scalar, product: OpDef, pole: int
) -> Tensor | None:
    """Return the derivative of self * log(other) by self: change * log(other), also where self is 0 and the logarithm
    is infinite or NaN."""
    if change is None:
        return None
    flat = logical_and(eq(self, 0), le(other, pole))
    # A change of 0 gives 0 whatever the logarithm is, so the product is xlogy itself.
    return where(flat, 0, product(change, where(flat, pole + 1, other)))


@xlogy.vjp
def xlogy_vjp(grad, self, other):
    self, other = _in_one_type(self, other)
    return _by_factor(grad, self, other, xlogy, 0), grad * true_divide(self, other)


@xlogy.jvp
def xlogy_jvp(self_tangent, other_tangent, self, other):
    self, other = _in_one_type(self, other)
    # Not through the body, which is constant where self is zero.
    by_other = None if other_tangent is None else other_tangent * true_divide(self, other)
    return added(_by_factor(self_tangent, self, other, xlogy, 0), by_other)


@composite
@rounded_operands("self", "other")
def special_xlog1py(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """self * log(1 + other), 0 where self is 0, nan where other is nan."""
    self, other = _in_one_type(self, other)
    product = mul(self, log1p(other))
    return where(logical_and(eq(self, 0), logical_not(isnan(other))), 0, product)


@special_xlog1py.vjp
def special_xlog1py_vjp(grad, self, other):
    self, other = _in_one_type(self, other)
    return _by_factor(grad, self, other, special_xlog1py, -1), grad * true_divide(self, other + 1)


@special_xlog1py.jvp
def special_xlog1py_jvp(self_tangent, other_tangent, self, other):
    self, other = _in_one_type(self, other)
    by_other = None if other_tangent is None else other_tangent * true_divide(self, other + 1)
    return added(_by_factor(self_tangent, self, other, special_xlog1py, -1), by_other)


@composite
@rounded_once
def special_entr(self: Tensor) -> Tensor:
    """-self * log(self): 0 at 0, minus infinity below."""
    return where(lt(self, 0), -math.inf, where(eq(self, 0), 0, self * -log(self)))  # unsigned types have no -self


@special_entr.vjp
def special_entr_vjp(grad, self):
    return special_entr_jvp(grad, self)


@special_entr.jvp
def special_entr_jvp(self_tangent, self):
    return self_tangent * where(lt(self, 0), math.nan, -log(self) - 1)


@composite
@rounded_once
def sinc(self: Tensor) -> Tensor:
    """sin(pi self) / (pi self), 1 at 0."""
    angle = self * math.pi
    zero = eq(angle, 0)
    return where(zero, 1, sin(angle) / where(zero, 1, angle))


@sinc.vjp
def sinc_vjp(grad, self):
    return sinc_jvp(grad, conjugate(self))


@sinc.jvp
def sinc_jvp(self_tangent, self):
    angle = self * math.pi
    return self_tangent * (-math.pi * angle * sinc_slope(angle, 1))


@composite
@rounded_once
def sinc_slope(self: Tensor, order: int) -> Tensor:
    """sin(self) / self after `order` repetitions of: differentiate, divide by -self."""
    # Near zero the quotients cancel, so a series is used. It has only even powers: the same on both sides.
    near = lt(abs(self), max(order, 1))
    square = self * self
    small, large = where(near, square, 0), where(near, 1, self)
    series: Tensor | float = 1.0
    for term in reversed(range(8 + 2 * order)):
        series = 1 - series * small * (1 / (2 * (term + 1) * (2 * (order + term) + 3)))
    series = series * (1 / math.prod(range(1, 2 * order + 2, 2)))
    before, quotient = cos(large), sin(large) / large
    for step in range(order):
        before, quotient = quotient, ((2 * step + 1) * quotient - before) / (large * large)
    return where(near, series, quotient)


@sinc_slope.vjp
def sinc_slope_vjp(grad, self, order):
    return sinc_slope_jvp(grad, conjugate(self), order)


@sinc_slope.jvp
def sinc_slope_jvp(self_tangent, self, order):
    return self_tangent * (-self * sinc_slope(self, order + 1))


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


@prim(Elementwise("normal_cdf", promote="float"), dtypes=FLOAT)
def normal_cdf(self: Tensor) -> Tensor:
    """The standard normal distribution function, precise beside 1: values below 2 ** -26 may become 0."""


@normal_cdf.vjp
def normal_cdf_vjp(grad, self):
    return grad * normal_density(self)


def normal_density(x: Tensor) -> Tensor:
    """The standard normal distribution's density."""
    return (2 * math.pi) ** -0.5 * exp(-0.5 * (x * x))


@prim(Elementwise("erfcx", promote="float"), dtypes=FLOAT)
def special_erfcx(self: Tensor) -> Tensor:
    """exp(self * self) * erfc(self)."""


@special_erfcx.vjp
def special_erfcx_vjp(grad, self, result):
    return grad * (2 * self * result - 2 / math.sqrt(math.pi))


@prim(Elementwise("log_ndtr", promote="float"), dtypes=FLOAT)
def special_log_ndtr(self: Tensor) -> Tensor:
    """The logarithm of the standard normal distribution function."""


@special_log_ndtr.vjp
def special_log_ndtr_vjp(grad, self):
    return grad * (math.sqrt(2 / math.pi) / special_erfcx(self * -math.sqrt(0.5)))


@prim(Elementwise("ndtri", promote="float"), dtypes=FLOAT)
def special_ndtri(self: Tensor) -> Tensor:
    """The number below which the standard normal distribution has the mass self."""


@special_ndtri.vjp
def special_ndtri_vjp(grad, result):
    return grad * (math.sqrt(2 * math.pi) * exp(0.5 * (result * result)))


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


@prim(Elementwise("tetragamma", promote="float"), dtypes=FLOAT)
def tetragamma(self: Tensor) -> Tensor:
    """The third derivative of log(Gamma(self))."""


@tetragamma.vjp
def tetragamma_vjp(grad, self):
    return grad * polygamma(3, self)


@composite(differentiable=False)
def without_derivative(self: Tensor) -> Tensor:
    """self, by which the function that takes it has no derivative."""
    return self.alias()


@prim(Elementwise("zeta", promote="float"), dtypes=FLOAT)
def hurwitz_zeta(self: Tensor, other: Tensor) -> Tensor:
    """special_zeta(self, other) as a function of other alone."""


@hurwitz_zeta.vjp
def hurwitz_zeta_vjp(grad, self, other):
    return grad * math.nan, grad * (-self * hurwitz_zeta(self + 1, other))


@composite
def special_zeta(self: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """The sum of (other + k) ** -self over whole k from 0: Hurwitz's zeta function."""
    return hurwitz_zeta(without_derivative(self) if isinstance(self, Value) else self, other)


def _gamma_density(a: Tensor, x: Tensor) -> Tensor:
    """x ** (a - 1) * exp(-x) / Gamma(a): the derivative of igamma by x."""
    return exp((a - 1) * log(x) - x - lgamma(a))


@prim(Elementwise("igamma", promote="float"), dtypes=FLOAT)
def lower_gamma(self: Tensor, other: Tensor) -> Tensor:
    """igamma(self, other) as a function of other alone."""


@lower_gamma.vjp
def lower_gamma_vjp(grad, self, other):
    return grad * math.nan, grad * _gamma_density(self, other)


@prim(Elementwise("igammac", promote="float"), dtypes=FLOAT)
def upper_gamma(self: Tensor, other: Tensor) -> Tensor:
    """igammac(self, other) as a function of other alone."""


@upper_gamma.vjp
def upper_gamma_vjp(grad, self, other):
    return grad * math.nan, grad * -_gamma_density(self, other)


@composite
def igamma(self: Tensor, other: Tensor) -> Tensor:
    """The integral of t ** (self - 1) * exp(-t) from 0 to other, divided by Gamma(self)."""
    return lower_gamma(without_derivative(self), other)


@composite
def igammac(self: Tensor, other: Tensor) -> Tensor:
    """1 - igamma(self, other), precise where that is small."""
    return upper_gamma(without_derivative(self), other)


@composite
@rounded_once
def polygamma(n: int, self: Tensor) -> Tensor:
    """The n-th derivative of digamma."""
    if n < 0:
        raise ArgumentError(f"n is {n}, expected at least 0")
    orders = (digamma, trigamma, tetragamma)
    if n < len(orders):
        return orders[n](self)
    # The factorial of a large n is infinite, as in PyTorch.
    size = math.factorial(n) if n <= 170 else math.inf
    return hurwitz_zeta(n + 1.0, self) * (size if n % 2 else -size)


@polygamma.vjp
def polygamma_vjp(grad, n, self):
    return grad * polygamma(n + 1, self)


@composite
@rounded_once
def mvlgamma(self: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions: lgamma(self - j/2) over j < p, and p(p-1)/4 log(pi)."""
    if p < 1:
        raise ArgumentError(f"p is {p}, expected at least 1")
    steps = iota((p,), dim=0, dtype=i64) / 2
    return sum(lgamma(unsqueeze(self, -1) - steps), -1) + p * (p - 1) / 4 * math.log(math.pi)
