"""The expansion of Hurwitz's zeta function: some terms of its sum, and Euler and Maclaurin's formula for the others."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir.types import DType, f32, f64
from .special import BERNOULLI, to_nearest_integer
from .term import Term, fma, rare, select, two_product
from .vecmath import exp, exp_pair, log, log_pair

TERMS = {f32: 6, f64: 10}  # of the sum itself
CORRECTIONS = {f32: 5, f64: 10}  # with Bernoulli's numbers
NUMBERS = (*BERNOULLI, 43867 / 798, -174611 / 330)
LARGEST = 2.0**900  # of exponents: larger ones give the same, and infinity would meet a logarithm of 0


def inverse_power(x: Term, base: Term, digits: DType) -> Term:
    """base ** -x for a positive base."""
    if digits is f32:
        return exp(-x * log(base))
    high, low = log_pair(base)
    exponent, rest = two_product(-x, high)
    rest = select(abs(exponent) < 1000.0, fma(-x, low, rest), 0.0)
    return exp_pair(exponent, rest)


def positive_zeta(x: Term, q: Term, digits: DType) -> Term:
    """zeta for x > 1 and q > 0."""
    count = TERMS[digits]
    total = x.constant(0.0)
    for step in reversed(range(count)):
        total = total + inverse_power(x, q + float(step), digits)
    start = q + float(count)
    last = inverse_power(x, start, digits)
    inverse = 1 / start
    square = inverse * inverse
    factors = [number / math.factorial(2 * k) for k, number in enumerate(NUMBERS, 1)][: CORRECTIONS[digits]]
    nested = x.constant(1.0)
    for k in reversed(range(1, len(factors))):
        steps = (x + float(2 * k - 1)) * (x + float(2 * k)) * square
        nested = fma(nested * steps, factors[k] / factors[k - 1], 1.0)
    rest = start / (x - 1)
    corrections = fma(x * inverse * nested, factors[0], 0.5) + rest
    # For large x the corrections diverge where they no longer matter.
    matter = last * (1 + rest) > 2.0**-60 * total
    return select(matter, fma(last, corrections, total), total)


def zeta_f32(x: Term, q: Term) -> Term:
    return positive_zeta(x, q, f32)


def zeta_f64(x: Term, q: Term) -> Term:
    return positive_zeta(x, q, f64)


SEPARATE: dict[DType, Callable[[Term, Term], Term]] = {f32: zeta_f32, f64: zeta_f64}


def reflected_zeta(x: Term, q: Term, digits: DType) -> Term:
    """zeta for q < 0 and whole x: the sum over all whole numbers, less that over those on the other side of q."""
    offset = to_nearest_integer(q)
    half = x * 0.5
    sign = select(half.op("trunc").differs(half), x.constant(-1.0), 1.0)

    def at(place: Term) -> Term:
        return rare(x > 1, x, SEPARATE[digits], x, place)

    size = inverse_power(x, abs(offset), digits)
    middle = select(offset < 0, sign * size, size)
    result = middle + (at(1 + offset) + sign * (at(1 - offset) - at(1 - q)))
    return select(x.op("trunc").equals(x), result, math.nan)


def zeta(x: Term, q: Term) -> Term:
    """The sum over k of 1 / (q + k) ** x."""
    digits = x.dtype
    x, q = x.cast(f64), q.cast(f64)
    exponent = select(x > LARGEST, LARGEST, x)
    above = q > 0
    result = positive_zeta(exponent, select(above, q, 1.0), digits)
    result = rare(q < 0, result, reflected_zeta, exponent, q, digits)
    result = select(x.op("isnan") | q.op("isnan"), x + q, result)
    result = select((q <= 0) & q.op("trunc").equals(q), math.inf, result)
    return select(x.equals(1), math.inf, select(x < 1, math.nan, result)).cast(digits)
