"""Expansions of orthogonal polynomials whose degree is an operand: recurrences that run as long as a lane needs.

All is computed in f64. As in PyTorch the degree is cut to a whole number, and the result is 0 for negative degrees.
As there, what overflows on the way to the degree is nan: nothing knows its sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...ir.types import DType, f32, f64
from .term import Term, fma, loop, select
from .trigonometry import acos, cos, sin

Step = Callable[..., Sequence[Term]]


def of_degree(function: Callable[[Term, Term, DType], Term]) -> Callable[[Term, Term], Term]:
    """The function of an f64 operand, a degree that is a whole number, and the type of the result, as an expansion."""

    def call(x: Term, n: Term) -> Term:
        degree = n.cast(f64).op("trunc")
        # What no i64 holds is negative after PyTorch's conversion.
        known = (degree >= 0) & (degree < 2.0**63)
        result = function(x.cast(f64), select(known, degree, 0.0), x.dtype)
        return select(known, result, 0.0).cast(x.dtype)

    call.__name__ = function.__name__
    return call


def recurrence(step: Step, first: Term, x: Term, n: Term) -> Term:
    """The polynomial of degree n: 1 for 0, `first` for 1, then steps of (value, previous, degree of value, x, n)."""
    one = x.constant(1.0)
    value = loop(step, first, one, one, x, n)
    return select(n.equals(0), 1.0, value)


def goes_on(value: Term, degree: Term, n: Term) -> Term:
    return (degree < n) & value.equals(value)


def is_odd(n: Term) -> Term:
    half = n * 0.5
    return half.op("trunc").differs(half)


# Chebyshev's polynomials share a recurrence; within (-1, 1) they are quotients of sines and cosines

CLOSED = 8.0  # degrees above it are computed by the closed form, if |x| < 1


def chebyshev_step(value: Term, previous: Term, degree: Term, x: Term, n: Term) -> Sequence[Term]:
    return goes_on(value, degree, n), fma(2 * x, value, -previous), value, degree + 1, x, n


def chebyshev(first: Term, x: Term, n: Term, closed: Term, right: Term | float, left: Term | float) -> Term:
    """The values at 1 and, but for the sign of odd degrees, at -1 are known for any degree."""
    inside = (abs(x) < 1.0) & (n > CLOSED)
    edge = abs(x).equals(1)
    by_steps = recurrence(chebyshev_step, first, x, select(inside | edge, 0.0, n))
    result = select(inside, closed, by_steps)
    at_left = select(is_odd(n), -x.constant(1.0), 1.0) * left
    return select(edge, select(x > 0, x.constant(1.0) * right, at_left), result)


def chebyshev_t(x: Term, n: Term) -> Term:
    return chebyshev(x, x, n, cos(n * acos(x)), 1.0, 1.0)


def chebyshev_u(x: Term, n: Term) -> Term:
    angle = acos(x)
    return chebyshev(2 * x, x, n, sin((n + 1) * angle) / sin(angle), n + 1, n + 1)


def chebyshev_v(x: Term, n: Term) -> Term:
    angle = acos(x)
    return chebyshev(2 * x - 1, x, n, cos((n + 0.5) * angle) / cos(0.5 * angle), 1.0, 2 * n + 1)


def chebyshev_w(x: Term, n: Term) -> Term:
    angle = acos(x)
    return chebyshev(2 * x + 1, x, n, sin((n + 0.5) * angle) / sin(0.5 * angle), 2 * n + 1, 1.0)


def usual(function: Callable[[Term, Term], Term]) -> Callable[[Term, Term], Term]:
    return of_degree(lambda x, n, dtype: function(x, n))


def shifted(function: Callable[[Term, Term], Term]) -> Callable[[Term, Term], Term]:
    """The polynomial of 2 x - 1."""
    return of_degree(lambda x, n, dtype: function(fma(x, 2.0, -1.0), n))


# Hermite's polynomials of higher degree are nan, as in PyTorch
HIGHEST = {f32: 128.0, f64: 512.0}


def hermite_h_step(value: Term, previous: Term, degree: Term, x: Term, n: Term) -> Sequence[Term]:
    following = fma(2 * x, value, -2 * degree * previous)
    return goes_on(value, degree, n), following, value, degree + 1, x, n


def hermite_he_step(value: Term, previous: Term, degree: Term, x: Term, n: Term) -> Sequence[Term]:
    return goes_on(value, degree, n), fma(x, value, -degree * previous), value, degree + 1, x, n


@of_degree
def hermite_h(x: Term, n: Term, dtype: DType) -> Term:
    high = n > HIGHEST[dtype]
    return select(high, math.nan, recurrence(hermite_h_step, 2 * x, x, select(high, 0.0, n)))


@of_degree
def hermite_he(x: Term, n: Term, dtype: DType) -> Term:
    high = n > HIGHEST[dtype]
    return select(high, math.nan, recurrence(hermite_he_step, x, x, select(high, 0.0, n)))


def laguerre_step(value: Term, previous: Term, degree: Term, x: Term, n: Term) -> Sequence[Term]:
    inverse = 1 / (degree + 1)  # no step waits for the division of the one before
    following = fma((2 * degree + (1 - x)) * inverse, value, -degree * inverse * previous)
    return goes_on(value, degree, n), following, value, degree + 1, x, n


@of_degree
def laguerre_l(x: Term, n: Term, dtype: DType) -> Term:
    return recurrence(laguerre_step, 1 - x, x, select(x.equals(0), 0.0, n))


def legendre_step(value: Term, previous: Term, degree: Term, x: Term, n: Term) -> Sequence[Term]:
    inverse = 1 / (degree + 1)
    following = fma((2 * degree + 1) * inverse * x, value, -degree * inverse * previous)
    return goes_on(value, degree, n), following, value, degree + 1, x, n


@of_degree
def legendre_p(x: Term, n: Term, dtype: DType) -> Term:
    edge = abs(x).equals(1)
    result = recurrence(legendre_step, x, x, select(edge, 0.0, n))
    return select(edge & (x < 0) & is_odd(n), x.constant(-1.0), result)
