"""Expansions of the incomplete gamma functions.

Of both parts the smaller one is computed, or nearly so: the lower one by its power series, the upper one by a continued
fraction or, near zero, by what the power series leaves of 1; and both by Temme's expansion where the operands are large
and near each other. All is computed in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...ir.types import DType, f32, f64
from .special import BERNOULLI, LGAMMA, stirling
from .term import Term, fma, loop, polynomial, rare, select, two_product, two_sum
from .vecmath import exp, exp_pair, expm1, log, log1p, log_fraction, log_pair

Step = Callable[..., Sequence[Term]]
NEAR = 0.3  # |x - a| / a, at most, for Temme's expansion
LARGE = 50.0  # and a, at least
# The places eta of -NEAR and NEAR: eta * eta / 2 = mu - log(1 + mu)
LOW, HIGH = -0.3366747508760714, 0.2743564671463348
# C_k of the expansion in (2 eta - LOW - HIGH) / (HIGH - LOW)
# fmt: off
TEMME = (
    (
        -0.3359443467520241, 0.02574271307086068, -0.0013927133389229197, 3.170164483823125e-05,
        3.3207509256176804e-06, -4.954145165764773e-07, 3.2216577700766336e-08, -4.207818706781066e-10,
        -1.5897987847194937e-10, 2.052715151879669e-11, -1.263197532123288e-12, 2.3348984088780753e-15,
        8.195327311468896e-15,
    ),
    (
        -0.0017410617389236613, -0.0011120751404667397, 0.0002556824076887573, -2.896916381125816e-05,
        1.7908352279766678e-06, 8.359012183089225e-09, -1.6110199882420155e-08, 2.0001617120365106e-09,
        -1.2201016076365142e-10, -9.61875620040602e-13, 1.1449720014084788e-12, -1.3383592705648542e-13,
    ),
    (
        0.004217894718573885, -0.0008338722132951833, 7.194401809245345e-05, 4.53779619490056e-07,
        -1.0088641575193918e-06, 1.472144247398394e-07, -1.0353581147030709e-08, -8.210726671852599e-11,
        1.205052538827945e-10, -1.560159471671136e-11,
    ),
    (
        0.0006418203000842933, 7.928133363406706e-05, -4.617104834720176e-05, 7.9030273055216e-06,
        -6.570240898841848e-07, -6.4701813691104655e-09, 1.0052899805076601e-08, -1.494269061496665e-09,
        1.0421878683332022e-10,
    ),
    (
        -0.0008866085393035431, 0.0002452265244683221, -2.7865358095937612e-05, -2.891121713524594e-07,
        6.340670315537493e-07, -1.1103433289473162e-07, 8.94821990628017e-09,
    ),
    (
        -0.0003343509853392766, -2.6761956355217407e-05, 2.766409317755501e-05, -5.926648649766862e-06,
        5.711736151755569e-07, 1.0783203179232861e-08,
    ),
    (
        0.0005500222255796088, -0.0001861190086850333, 2.5235385171878528e-05, 5.259389137109634e-07,
        -8.070328334227456e-07,
    ),
    (
        0.00034253809458583925, 2.2434316478182727e-05, -3.47056509504037e-05, 8.391058988634266e-06,
    ),
)
# fmt: on
# Terms that are smaller, relative to the sum, change nothing.
EPSILON = {f32: 2.0**-31, f64: 2.0**-54}
STIRLING_FROM = 8.0


def distance(a: Term, x: Term) -> tuple[Term, Term]:
    """mu = (x - a) / a, and mu - log(1 + mu)."""
    mu = (x - a) / a
    near = abs(mu) <= 0.29
    return mu, select(near, -log_fraction(select(near, mu, 0.0)), mu - log(x / a))


def gamma_above(a: Term) -> Term:
    """Gamma(1 + a) for 0 < a < STIRLING_FROM: a polynomial about 2, reached by steps of 1."""
    z = a - 1
    product = a.constant(1.0)
    for _ in range(int(STIRLING_FROM)):
        above = z > 0.5
        product = select(above, product * (z + 1), product)
        z = select(above, z - 1, z)
    low = z < -0.5
    product = select(low, product / (z + 2), product)
    z = select(low, z + 1, z)
    return product * exp(z * polynomial(z, LGAMMA))


def density(a: Term, x: Term) -> Term:
    """x ** a * exp(-x) / Gamma(a)."""
    _, bent = distance(a, x)
    inverse = 1 / a
    series = inverse * stirling(inverse, [number / (2 * k * (2 * k - 1)) for k, number in enumerate(BERNOULLI, 1)])
    far = (a * (0.5 / math.pi)).op("sqrt") * exp(-fma(a, bent, series))
    small = select(a < STIRLING_FROM, a, 1.0)
    high, low = log_pair(x)
    product, rest = two_product(small, high)
    exponent, lost = two_sum(product, -x)
    rest = select(abs(exponent) < 1000.0, fma(small, low, rest) + lost, 0.0)
    return select(a < STIRLING_FROM, small * exp_pair(exponent, rest) / gamma_above(small), far)


def gamma_series(digits: DType) -> Step:
    """Four terms with one division in each step: x ** n / ((a + 1) ... (a + n))."""

    def step(total: Term, term: Term, divisor: Term, x: Term) -> Sequence[Term]:
        first, second, third, fourth = (divisor + float(count) for count in range(1, 5))
        pair = third * fourth
        inverse = 1 / (first * second * pair)
        added = term * (x * inverse * fma(fma(x + fourth, x, pair), x, second * pair))
        square = x * x
        term = term * (square * square * inverse)
        return added > EPSILON[digits] * total, total + added, term, fourth, x

    step.__name__ = f"gamma_series_to_{digits}"
    return step


HUGE = 2.0**300


def gamma_fraction(digits: DType) -> Step:
    """The continued fraction with numerators count * (a - count), by the recurrence of its parts: four in a step."""

    def step(value: Term, p: Term, q: Term, p0: Term, q0: Term, b: Term, count: Term, a: Term) -> Sequence[Term]:
        for _ in range(4):
            numerator = count * (a - count)
            b, count = b + 2, count + 1
            p, p0 = fma(b, p, numerator * p0), p
            q, q0 = fma(b, q, numerator * q0), q
        following = p / q
        going = abs(following - value) > 2 * EPSILON[digits] * abs(following)
        large = abs(q) > HUGE
        p, q, p0, q0 = (select(large, part * (1 / HUGE), part) for part in (p, q, p0, q0))
        return going, following, p, q, p0, q0, b, count, a

    step.__name__ = f"gamma_fraction_to_{digits}"
    return step


def gamma_remainder(total: Term, term: Term, count: Term, a: Term, x: Term) -> Sequence[Term]:
    """Sum of a * (-x) ** n / ((a + n) * n!)."""
    term = -term * x / count
    part = term * a / (a + count)
    return abs(part) > EPSILON[f64] * abs(total), total + part, term, count + 1, a, x


def near_zero(a: Term, x: Term) -> Term:
    """The upper part for x <= 1.1 and a so small that it is no tiny part of 1."""
    low = a <= 0.5
    z = select(low, a, a - 1)
    bent = z * polynomial(z, LGAMMA)
    exponent = fma(a, log(x), -select(low, bent - log1p(z), bent))
    count = a.constant(1.0)
    first = -x * a / (a + 1)
    rest = loop(gamma_remainder, first, -x, count + 1, a, x)
    grown = expm1(exponent)
    return -grown - (1 + grown) * rest


def temme(a: Term, x: Term, sign: Term) -> Term:
    """The upper part for sign 1, the lower one for -1, where a is large and x is near."""
    mu, bent = distance(a, x)
    eta = (2 * bent).op("sqrt").op("copysign", mu)
    place = (2 * eta - (LOW + HIGH)) / (HIGH - LOW)
    inverse = 1 / a
    total = a.constant(0.0)
    for coefficients in reversed(TEMME):
        total = fma(total, inverse, polynomial(place, coefficients))
    exponent = a * bent
    root = exponent.op("sqrt").op("copysign", mu)
    rest = exp(-exponent) * total / (a * (2 * math.pi)).op("sqrt")
    return fma((sign * root).op("erfc"), 0.5, sign * rest)


def smaller_part(a: Term, x: Term, digits: DType) -> tuple[Term, Term]:
    """Whether it is the lower part, and a part: for positive finite operands."""
    logarithm = log(select(x <= 0.5, x, 0.5))
    remains = (x <= 1.1) & select(x <= 0.5, a * logarithm > -0.4, a < 1.1 * x)
    lower = ~remains & ((x <= 1.1) | (x < a))
    close = (a >= LARGE) & (abs(x - a) <= NEAR * a)
    factor = density(a, x)
    one = a.constant(1.0)
    # What vanishes, is near zero or takes Temme's expansion needs no steps. So divisors are not large.
    idle = factor.equals(0) | remains | close
    summed = lower & ~idle
    series = loop(gamma_series(digits), one, select(summed, one, 0.0), select(summed, a, 1.0), select(summed, x, 1.0))
    # For a = 1 the fraction ends with the first step.
    idle = idle | lower
    order = select(idle, 1.0, a)
    start = select(idle, 1.0, x + 1 - a)
    fraction = loop(gamma_fraction(digits), 1 / start, one, start, one * 0, one, start, one, order)
    part = factor * select(lower, series / a, fraction)
    part = select(factor.equals(0), 0.0, part)
    part = select(remains, near_zero(select(remains, a, 0.5), select(remains, x, 1.0)), part)
    return lower, rare(close, part, temme, select(close, a, LARGE), select(close, x, LARGE), select(lower, -one, 1.0))


def igamma(a: Term, x: Term) -> Term:
    return incomplete(a, x, True)


def igammac(a: Term, x: Term) -> Term:
    return incomplete(a, x, False)


def incomplete(a: Term, x: Term, wanted: bool) -> Term:
    """The lower part of Gamma(a) cut at x, if wanted, or the upper one, as a fraction of it."""
    dtype = a.dtype
    a, x = a.cast(f64), x.cast(f64)
    usual = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    lower, part = smaller_part(select(usual, a, 1.0), select(usual, x, 1.0), dtype)
    none, all = (0.0, 1.0) if wanted else (1.0, 0.0)
    result = select(lower if wanted else ~lower, part, 1 - part)
    # All is below an infinite x or a = 0, nothing below x = 0 or an infinite a; both at once say nothing.
    nothing, everything = x.equals(0) | a.equals(math.inf), x.equals(math.inf) | a.equals(0)
    result = select(nothing, none, select(everything, all, result))
    outside = (nothing & everything) | ~((a >= 0) & (x >= 0))
    return select(outside, math.nan, result).cast(dtype)
