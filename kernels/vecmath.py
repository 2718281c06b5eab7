"""exp, log, pow and hyperbolic functions as straight-line expansions for f32 and f64.

They hold over the whole domain: infinities, nan, denormals and the sign of zero. Polynomials are minimax fits
of what is left after the leading terms, which are exact. f32 functions that matter for speed work in f32; the
others compute in f64 and round once. tests/test_vecmath.py has a bound on the error of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..ir.types import f32, f64
from .basic import integer_power
from .term import Term, fast_two_sum, fma, in_double, polynomial, select, two_product, two_sum

LN2 = math.log(2)
LOG2E = 1 / LN2


@dataclass(frozen=True)
class Format:
    """What depends on the float type. Adding `magic` rounds to an integer and leaves it in the low bits."""

    digits: int  # bits of the fraction
    bias: int
    magic: float
    lowest: float  # exp below this is 0
    highest: float  # and above this infinite
    ln2: tuple[float, float]
    exp: tuple[float, ...]  # (exp(r) - 1 - r) / r ** 2 for |r| <= ln(2) / 2
    sqrt_half: int  # the bits of sqrt(1 / 2)

    @property
    def one(self) -> int:
        """The bits of 1."""
        return self.bias << self.digits


F32 = Format(
    digits=23,
    bias=127,
    magic=1.5 * 2.0**23,
    lowest=-104.0,
    highest=89.0,
    ln2=(0.6931471824645996, -1.9046542121259336e-09),
    exp=(0.5, 0.16666541993618011, 0.04166628047823906, 0.008366644382476807, 0.001394660328514874),
    sqrt_half=0x3F3504F3,
)
F64 = Format(
    digits=52,
    bias=1023,
    magic=1.5 * 2.0**52,
    lowest=-746.0,
    highest=710.0,
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    exp=(
        0.5,
        0.16666666666666677,
        0.0416666666666667,
        0.008333333333321532,
        0.001388888888886681,
        0.0001984126988640069,
        2.4801587360664096e-05,
        2.7557243911925105e-06,
        2.7557242633870215e-07,
        2.5109147353728705e-08,
        2.0924490224687668e-09,
    ),
    sqrt_half=0x3FE6A09E667F3BCD,
)


def format_of(x: Term) -> Format:
    return F32 if x.dtype is f32 else F64


def limited(x: Term, low: float, high: float) -> Term:
    """x kept within low and high; nan stays."""
    x = select(x > high, high, x)
    return select(x < low, low, x)


def power_of_two(exponent: Term, fmt: Format) -> Term:
    """2 ** exponent for an integer in the range of normal numbers."""
    return ((exponent + fmt.bias) << fmt.digits).float()


def scaled(x: Term, exponent: Term, fmt: Format) -> Term:
    """x * 2 ** exponent in two steps, each in range: results may be denormal, and are rounded once."""
    half = exponent >> 1
    return x * power_of_two(half, fmt) * power_of_two(exponent - half, fmt)


def shifted_integer(shifted: Term, fmt: Format) -> Term:
    """The integer that was rounded by adding `magic`."""
    magic = fmt.bias + fmt.digits
    return shifted.bits() - ((magic << fmt.digits) | (1 << (fmt.digits - 1)))


def reduce_exponent(x: Term, fmt: Format) -> tuple[Term, Term, Term]:
    """n, r and low with x = n * ln(2) + r + low and |r| <= ln(2) / 2; n is still shifted by `magic`."""
    shifted = fma(x, LOG2E, fmt.magic)
    n = shifted - fmt.magic
    high, low = fmt.ln2
    return shifted, fma(n, -high, x), n * -low


def exp_reduced(shifted: Term, r: Term, low: Term, fmt: Format) -> Term:
    """2 ** n * exp(r + low), with what 1 + r loses put back."""
    total = 1 + r
    lost = (r - (total - 1)) + low
    rest = r + low
    result = total + fma(rest * rest, polynomial(rest, fmt.exp), lost)
    return scaled(result, shifted_integer(shifted, fmt), fmt)


def exp(x: Term) -> Term:
    fmt = format_of(x)
    return exp_reduced(*reduce_exponent(limited(x, fmt.lowest, fmt.highest), fmt), fmt)


def exp_pair(x: Term, low: Term) -> Term:
    """exp(x + low) for a small low."""
    fmt = format_of(x)
    shifted, r, rest = reduce_exponent(limited(x, fmt.lowest, fmt.highest), fmt)
    return exp_reduced(shifted, r, rest + low, fmt)


def exp2(x: Term) -> Term:
    fmt = format_of(x)
    x = limited(x, -2.0 * fmt.bias, fmt.bias + 2.0)
    shifted = x + fmt.magic
    fraction = x - (shifted - fmt.magic)
    high, low = fmt.ln2
    r, lost = two_product(fraction, high)
    return exp_reduced(shifted, r, fma(fraction, low, lost), fmt)


def expm1(x: Term) -> Term:
    """2 ** n * expm1(r) + (2 ** n - 1), at half the size so that n may be the largest exponent."""
    fmt = format_of(x)
    shifted, r, low = reduce_exponent(limited(x, -2.0 * fmt.digits, fmt.highest), fmt)
    r = r + low
    rest = r * r * polynomial(r, fmt.exp)
    scale = power_of_two(shifted_integer(shifted, fmt) - 1, fmt)
    # scale * r + (scale - 1/2) with its rounding error, before the small rest.
    base = scale - 0.5
    total = fma(scale, r, base)
    error = fma(scale, r, base - total)
    result = 2 * (total + fma(scale, rest, error))
    return select(abs(x) < 2.0 ** (-fmt.digits - 2), x, result)


# Logarithms: log(1 + f) = f - f * f / 2 + f ** 3 * polynomial(f) for sqrt(1/2) <= 1 + f < sqrt(2)

LOG_F32 = (
    0.33333316445350647,
    -0.25000810623168945,
    0.2000228762626648,
    -0.16624556481838226,
    0.14181171357631683,
    -0.131287083029747,
    0.1288178265094757,
    -0.0785990059375763,
)
# With s = f / (2 + f): log(1 + f) = 2 s + s ** 3 * polynomial(s * s)
LOG_F64 = (
    0.6666666666666734,
    0.39999999999414093,
    0.28571428742538746,
    0.22222198555801478,
    0.18183565319379938,
    0.15314022997432547,
    0.14796245530271146,
)


@dataclass(frozen=True)
class Base:
    """log of this base = slope * natural log; each number in two parts, so that products are precise."""

    slope: tuple[float, float]
    two: tuple[float, float]  # log(2)


NATURAL = {f32: Base((1.0, 0.0), F32.ln2), f64: Base((1.0, 0.0), F64.ln2)}
BASE_2 = {
    f32: Base((1.4426950216293335, 1.925963033500011e-08), (1.0, 0.0)),
    f64: Base((1.4426950408889634, 2.0355273740931033e-17), (1.0, 0.0)),
}
BASE_10 = {
    f32: Base((0.4342944920063019, -1.0103049952192578e-08), (0.3010300099849701, -1.432098883924482e-08)),
    f64: Base((0.4342944819032518, 1.098319650216765e-17), (0.3010299956639812, -2.8037281277851704e-18)),
}


def split_exponent(x: Term, fmt: Format) -> tuple[Term, Term, Term]:
    """For x > 0: n (a float), f and 2 ** -n with x = 2 ** n * (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2)."""
    tiny = x < 2.0 ** (1 - fmt.bias)
    lift = fmt.digits + 2
    bits = select(tiny, x * 2.0**lift, x).bits()
    biased = (bits + (fmt.one - fmt.sqrt_half)).op("lshr", fmt.digits)
    fraction = (bits - (biased << fmt.digits) + fmt.one).float()
    # The integer as a float: put into the low digits of a large one.
    large = (fmt.bias + fmt.digits) << fmt.digits
    n = (biased | large).float() - (2.0**fmt.digits + fmt.bias)
    inverse = ((2 * fmt.bias - biased) << fmt.digits).float()
    return n - select(tiny, x.constant(float(lift)), 0.0), fraction - 1, inverse


def log_fraction(f: Term) -> Term:
    """log(1 + f) - f."""
    square = f * f
    if f.dtype is f32:
        return fma(square, -0.5, f * square * polynomial(f, LOG_F32))
    half = 0.5 * square
    s = f / (2 + f)
    z = s * s
    return s * fma(z, polynomial(z, LOG_F64), half) - half


def joined_log(n: Term, f: Term, base: Base) -> Term:
    """The logarithm of 2 ** n * (1 + f)."""
    rest = log_fraction(f)
    slope, slope_low = base.slope
    two, two_low = base.two
    if slope != 1:
        rest = fma(f, slope_low, rest * slope)
    if two_low:
        rest = fma(n, two_low, rest)
    fraction = f + rest if slope == 1 else fma(f, slope, rest)
    return fma(n, two, fraction)


def log_limits(x: Term, result: Term, zero: float = 0.0) -> Term:
    """The result, but for infinity, for the place where the logarithm is -infinity, and below it."""
    result = select(x < math.inf, result, x)
    return select(x > zero, result, select(x.equals(zero), x.constant(-math.inf), math.nan))


def logarithm(x: Term, base: Base) -> Term:
    n, f, _ = split_exponent(x, format_of(x))
    return log_limits(x, joined_log(n, f, base))


def log(x: Term) -> Term:
    return logarithm(x, NATURAL[x.dtype])


def log2(x: Term) -> Term:
    return logarithm(x, BASE_2[x.dtype])


def log10(x: Term) -> Term:
    return logarithm(x, BASE_10[x.dtype])


def log1p(x: Term) -> Term:
    """log(1 + x), with what the sum 1 + x loses put back into the fraction."""
    fmt = format_of(x)
    total, lost = two_sum(x, 1.0)
    n, f, inverse = split_exponent(total, fmt)
    # Far out nothing of 1 is left, and the sum of infinities has no error.
    lost = select(total < 2.0 ** (fmt.digits + 4), lost * inverse, 0)
    result = log_limits(x, joined_log(n, f + lost, NATURAL[x.dtype]), -1.0)
    return select(abs(x) < 2.0 ** (-fmt.digits - 2), x, result)


# Powers

# (2 atanh(s) - 2 s - 2/3 s ** 3) / s ** 5 in s * s
LOG_TAIL = (
    0.3999999999999998,
    0.2857142857144511,
    0.22222222217536383,
    0.181818188703693,
    0.1538455686497399,
    0.1333631772050828,
    0.11674811231872778,
    0.11989081810451509,
)
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
LN2_SHORT = (0.6931471805598903, 5.497923018708371e-14)  # 42 bits: its product with an exponent is exact


def log_pair(x: Term) -> tuple[Term, Term]:
    """log(x) for positive finite x in f64 as a sum of two, good to about 2 ** -66."""
    n, f, _ = split_exponent(x, F64)
    divisor = 2 + f
    divisor_low = f - (divisor - 2)
    s = f / divisor
    s_low = (fma(-s, divisor, f) - s * divisor_low) / divisor
    z, z_low = two_product(s, s)
    z_low = fma(2 * s, s_low, z_low)
    third, third_low = TWO_THIRDS
    tail = z * polynomial(z, LOG_TAIL)
    factor, factor_low = fast_two_sum(z.constant(third), tail)
    factor_low = factor_low + third_low
    # s ** 3 * factor in two parts
    cubic, cubic_low = two_product(z, factor)
    cubic_low = cubic_low + fma(z, factor_low, z_low * factor)
    part, part_low = two_product(s, cubic)
    part_low = part_low + fma(s, cubic_low, s_low * cubic)
    high, low = fast_two_sum(2 * s, part)
    low = low + fma(s_low, 2.0, part_low)
    two, two_low = LN2_SHORT
    total, error = fast_two_sum(n * two, high)
    return fast_two_sum(total, error + fma(n, two_low, low))


def power(x: Term, y: Term) -> Term:
    """x ** y as in C: 1 for y = 0 or x = 1, signed for odd y, nan for negative x and fractional y."""
    if x.dtype.is_integer:
        return integer_power(x, y)
    if x.dtype is f32:
        return float_power(x.cast(f64), y.cast(f64), precise=False).cast(f32)
    return float_power(x, y, precise=True)


def float_power(x: Term, y: Term, precise: bool) -> Term:
    size = abs(x)
    if precise:
        high, low = log_pair(size)
        exponent, rest = two_product(y, high)
        rest = fma(y, low, rest)
        rest = select(abs(exponent) < 1000.0, rest, 0)
        result = exp_pair(exponent, rest)
    else:
        result = exp(y * log(size))
    extreme = size.equals(0) | size.equals(math.inf)
    result = select(extreme, select(size.equals(0) ^ (y < 0), x.constant(0.0), math.inf), result)
    whole = y.op("trunc").equals(y)
    half = y * 0.5
    odd = whole & half.op("trunc").differs(half) & (abs(y) < math.inf)
    result = select(odd, result.op("copysign", x), result)
    result = select((x < 0) & (x > -math.inf) & ~whole, math.nan, result)
    result = select(x.op("isnan") | y.op("isnan"), x + y, result)
    one = size.equals(1) & abs(y).equals(math.inf)
    return select(one | x.equals(1) | y.equals(0), 1, result)


@in_double
def cbrt(x: Term) -> Term:
    """A root from the logarithm, then one Newton step."""
    size = abs(x)
    usual = (size > 0) & (size < math.inf)
    # The step cubes the root: that must not be denormal.
    small = size < 2.0**-900
    size = select(small, size * 2.0**300, size)
    root = exp2(log2(size) * (1 / 3))
    square = root * root
    root = root - fma(square, root, -size) / (3 * square)
    root = select(small, root * 2.0**-100, root)
    return select(usual, root.op("copysign", x), x + x)


def hypot(x: Term, y: Term) -> Term:
    if x.dtype is f32:
        a, b = x.cast(f64), y.cast(f64)
        result = fma(a, a, b * b).op("sqrt").cast(f32)
    else:
        large = abs(x).op("maximum", abs(y))
        small = abs(x).op("minimum", abs(y))
        scale = select(large > 2.0**500, 2.0**-600, select(large < 2.0**-500, x.constant(2.0**600), 1.0))
        large, small = large * scale, small * scale
        result = fma(large, large, small * small).op("sqrt") / scale
    return select(x.op("isinf") | y.op("isinf"), math.inf, result)


# Hyperbolic functions

# (tanh(x) / x - 1) / x ** 2 in x * x, for |x| <= 0.625
TANH_F32 = (
    -0.3333328366279602,
    0.13331490755081177,
    -0.05374350771307945,
    0.020650610327720642,
    -0.005717066582292318,
)


def tanh(x: Term) -> Term:
    size = abs(x)
    if x.dtype is f32:
        square = x * x
        near = fma(x * square, polynomial(square, TANH_F32), x)
        far = 1 - 2 / (exp(2 * size) + 1)
        return select(size < 0.625, near, far).op("copysign", x)
    growth = expm1(2 * limited(size, 0.0, 25.0))
    return (growth / (growth + 2)).op("copysign", x)


def sigmoid(x: Term) -> Term:
    """exp(-|x|) never overflows, and is the numerator for negative x."""
    small = exp(-abs(x))
    total, lost = fast_two_sum(small.constant(1.0), small)
    numerator = select(x < 0, small, 1.0)
    inverse = 1 / total
    quotient = numerator * inverse
    # What is left of the numerator, also by what the sum lost.
    left = fma(-quotient, total, numerator) - quotient * lost
    return fma(left, inverse, quotient)


@in_double
def sinh(x: Term) -> Term:
    """From expm1 near 0; far out half of exp(x / 2) squared, which overflows only with the result."""
    size = abs(x)
    growth = expm1(size)
    near = 0.5 * (growth + growth / (growth + 1))
    half = exp(0.5 * size)
    return select(size < 22.0, near, 0.5 * half * half).op("copysign", x)


@in_double
def cosh(x: Term) -> Term:
    size = abs(x)
    growth = exp(size)
    half = exp(0.5 * size)
    return select(size < 22.0, fma(growth, 0.5, 0.5 / growth), 0.5 * half * half)


@in_double
def asinh(x: Term) -> Term:
    size = abs(x)
    square = size * size
    near = log1p(size + square / (1 + (square + 1).op("sqrt")))
    return select(size < 2.0**28, near, log(size) + LN2).op("copysign", x)


@in_double
def acosh(x: Term) -> Term:
    over = x - 1
    near = log1p(over + (over * (over + 2)).op("sqrt"))
    return select(x < 1, math.nan, select(x < 2.0**28, near, log(x) + LN2))


@in_double
def atanh(x: Term) -> Term:
    size = abs(x)
    return (0.5 * log1p(2 * size / (1 - size))).op("copysign", x)
