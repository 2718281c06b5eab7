"""Expansions of the Bessel functions of orders 0 and 1, and of Airy's function.

Polynomials about zero, and from some place on polynomials of the slow factors beside exp or sin and cos. All is
computed in f64, with fewer terms for f32. As in PyTorch, infinity gives nan but for K and for what is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ...ir.types import DType, f64
from .bessel_fits import (
    AI_ABOVE,
    AI_F,
    AI_G,
    AI_MIDDLE,
    I0_FAR,
    I0_NEAR,
    I1_FAR,
    I1_NEAR,
    J0_NEAR,
    J1_NEAR,
    K0_FAR,
    K0_NEAR,
    K1_FAR,
    K1_NEAR,
    P0,
    P1,
    Q0,
    Q1,
    Y0_NEAR,
    Y1_NEAR,
)
from .term import Term, fma, polynomial, rare, select
from .trigonometry import cos, sin
from .vecmath import exp, log

Fit = Mapping[DType, tuple[float, ...]]
TWO_OVER_PI = 2 / math.pi


def good_to(function: Callable[[Term, DType], Term]) -> Callable[[Term], Term]:
    """The function of an f64 operand and of the type that the result is to be good to, as an expansion."""

    def call(x: Term) -> Term:
        return function(x.cast(f64), x.dtype).cast(x.dtype)

    call.__name__ = function.__name__
    return call


# I0 and I1

FAR = 12.0  # from here on by the factor of exp(x) / sqrt(x)
LESS = 6.0  # exp(x - LESS) does not overflow before I0(x) does


def near_zero(size: Term, fit: Fit, digits: DType) -> Term:
    return polynomial(size * size, fit[digits])


def slow_factor(size: Term, fit: Fit, digits: DType) -> Term:
    """I(size) * exp(-size) for size >= FAR."""
    return polynomial(2 * FAR / size - 1, fit[digits]) / size.op("sqrt")


def i0_far(size: Term, digits: DType) -> Term:
    return slow_factor(size, I0_FAR, digits) * math.exp(LESS) * exp(size - LESS)


def i1_far(size: Term, digits: DType) -> Term:
    return slow_factor(size, I1_FAR, digits) * math.exp(LESS) * exp(size - LESS)


@good_to
def i0(x: Term, digits: DType) -> Term:
    size = abs(x)
    return rare(~(size <= FAR), near_zero(size, I0_NEAR, digits), i0_far, size, digits)


@good_to
def i1(x: Term, digits: DType) -> Term:
    size = abs(x)
    near = size * near_zero(size, I1_NEAR, digits)
    return rare(~(size <= FAR), near, i1_far, size, digits).op("copysign", x)


def i0e_far(size: Term, digits: DType) -> Term:
    return slow_factor(size, I0_FAR, digits)


def i1e_far(size: Term, digits: DType) -> Term:
    return slow_factor(size, I1_FAR, digits)


@good_to
def i0e(x: Term, digits: DType) -> Term:
    size = abs(x)
    near = near_zero(size, I0_NEAR, digits) * exp(-size)
    return rare(~(size <= FAR), near, i0e_far, size, digits)


@good_to
def i1e(x: Term, digits: DType) -> Term:
    size = abs(x)
    near = size * near_zero(size, I1_NEAR, digits) * exp(-size)
    return rare(~(size <= FAR), near, i1e_far, size, digits).op("copysign", x)


# K0 and K1


def k0_near(x: Term, digits: DType) -> Term:
    """K0 for x <= 3/2: infinite at 0, nan below."""
    return polynomial(x * x, K0_NEAR[digits]) - log(x) * near_zero(x, I0_NEAR, digits)


def k1_near(x: Term, digits: DType) -> Term:
    bent = fma(log(x), near_zero(x, I1_NEAR, digits), polynomial(x * x, K1_NEAR[digits]))
    return select(x.equals(0), math.inf, fma(x, bent, 1 / x))


def scaled_far(x: Term, fit: Fit, digits: DType) -> Term:
    """K(x) * exp(x) for x >= 3/2."""
    return polynomial(4.5 / (x + 0.75) - 1, fit[digits]) / x.op("sqrt")


@good_to
def k0(x: Term, digits: DType) -> Term:
    return select(x <= 1.5, k0_near(x, digits), exp(-x) * scaled_far(x, K0_FAR, digits))


@good_to
def k1(x: Term, digits: DType) -> Term:
    return select(x <= 1.5, k1_near(x, digits), exp(-x) * scaled_far(x, K1_FAR, digits))


@good_to
def scaled_k0(x: Term, digits: DType) -> Term:
    return select(x <= 1.5, exp(x) * k0_near(x, digits), scaled_far(x, K0_FAR, digits))


@good_to
def scaled_k1(x: Term, digits: DType) -> Term:
    return select(x <= 1.5, exp(x) * k1_near(x, digits), scaled_far(x, K1_FAR, digits))


# J and Y: from WAVES on Hankel's form, P cos(x - turn) - Q sin(x - turn), whose turns are odd multiples of pi / 4

WAVES = 6.0


def place(x: Term) -> Term:
    return fma(x * x, 2 / WAVES**2, -1.0)


class Waves:
    """The parts of Hankel's form for x >= WAVES."""

    def __init__(self, x: Term, digits: DType):
        inverse = 1 / x
        self.place = fma(inverse * inverse, 2 * WAVES**2, -1.0)
        self.inverse = inverse
        self.digits = digits
        sine, cosine = sin(x), cos(x)
        self.total, self.difference = sine + cosine, sine - cosine
        self.size = x.op("sqrt") * math.sqrt(math.pi)

    def joined(self, first: Term, p: Fit, second: Term, q: Fit) -> Term:
        """(first * P + second * Q) / sqrt(pi x)."""
        quick = self.inverse * polynomial(self.place, q[self.digits])
        return fma(first, polynomial(self.place, p[self.digits]), second * quick) / self.size


@good_to
def j0(x: Term, digits: DType) -> Term:
    size = abs(x)
    waves = Waves(size, digits)
    far = waves.joined(waves.total, P0, -waves.difference, Q0)
    return select(size <= WAVES, polynomial(place(size), J0_NEAR[digits]), far)


@good_to
def j1(x: Term, digits: DType) -> Term:
    size = abs(x)
    waves = Waves(size, digits)
    far = waves.joined(waves.difference, P1, waves.total, Q1)
    result = select(size <= WAVES, size * polynomial(place(size), J1_NEAR[digits]), far)
    return select(x.bits() < 0, -result, result)


@good_to
def y0(x: Term, digits: DType) -> Term:
    waves = Waves(x, digits)
    far = waves.joined(waves.difference, P0, waves.total, Q0)
    here = place(x)
    bent = log(x) * polynomial(here, J0_NEAR[digits])
    return select(x <= WAVES, fma(bent, TWO_OVER_PI, polynomial(here, Y0_NEAR[digits])), far)


@good_to
def y1(x: Term, digits: DType) -> Term:
    waves = Waves(x, digits)
    far = waves.joined(-waves.total, P1, waves.difference, Q1)
    here = place(x)
    bent = x * polynomial(here, J1_NEAR[digits])
    near = fma(fma(log(x), bent, -1 / x), TWO_OVER_PI, x * polynomial(here, Y1_NEAR[digits]))
    return select(x <= WAVES, select(x.equals(0), -math.inf, near), far)


@good_to
def airy_ai(x: Term, digits: DType) -> Term:
    size = abs(x)
    root = size.op("sqrt")
    angle = size * root * (2 / 3)
    middle = polynomial(fma(x, 1 / 1.75, 1.25 / 1.75), AI_MIDDLE[digits])
    step = root + 1
    above = polynomial(1 - (2 + math.sqrt(2)) / step, AI_ABOVE[digits]) * exp(-angle) / step.op("sqrt")
    inverse = 1 / angle
    here = fma(inverse * inverse, 24.0, -1.0)
    sine, cosine = sin(angle), cos(angle)
    bent = (sine - cosine) * inverse
    waves = fma(sine + cosine, polynomial(here, AI_F[digits]), bent * polynomial(here, AI_G[digits]))
    below = waves / (root * (2 * math.pi)).op("sqrt")
    return select(x > 0.5, above, select(x >= -3.0, middle, below))
