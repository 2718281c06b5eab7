"""Expansions of exp, log, pow and hyperbolic functions, straight-line, for f32 and f64.

They hold over the whole domain: infinities, nan, denormals and the sign of zero. Polynomials are minimax fits
of the remainder after the leading terms, which are exact. f32 functions that matter for speed work in f32; the
others compute in f64 and round once. tests/ops/test_vecmath.py has a bound on the error of each.
"""

from __future__ import annotations

import math

from ...ir.record import Record
from ...ir.types import f32, f64
from .basic import integer_power
from .term import Term, fast_two_sum, fma, in_double, polynomial, rare, select, two_product

LN2 = math.log(2)
LOG2E = 1 / LN2


class Format(Record):
    """The constants of a float type. Adding `magic` rounds to an integer and leaves it in the low bits."""

    digits: int  # bits of the fraction
    bias: int
    magic: float
    lowest: float  # exp below this is 0
    highest: float  # and above this infinite
    usual: float  # up to this size exp and its inverse are normal numbers
    ln2: tuple[float, float]
    exp: tuple[float, ...]  # (exp(r) - 1) / r for |r| <= ln(2) / 2
    exp2: tuple[float, ...]  # (2 ** r - 1) / r for |r| <= 1 / 2
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
    usual=86.9,
    ln2=(0.6931471824645996, -1.9046542121259336e-09),
    exp=(
        1.0,
        0.4999999403953552,
        0.1666652113199234,
        0.04166826605796814,
        0.008368677459657192,
        0.001382073387503624,
    ),
    exp2=(
        0.6931471824645996,
        0.24022647738456726,
        0.05550359934568405,
        0.009618505835533142,
        0.0013390806270763278,
        0.0001532646274426952,
    ),
    sqrt_half=0x3F3504F3,
)
F64 = Format(
    digits=52,
    bias=1023,
    magic=1.5 * 2.0**52,
    lowest=-746.0,
    highest=710.0,
    usual=707.0,
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    exp=(
        1.0,
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
    exp2=(),
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


def times_power(x: Term, shifted: Term, fmt: Format) -> Term:
    """x * 2 ** n, where n is shifted by `magic` and neither the product nor x leaves the normal numbers."""
    return (x.bits() + (shifted.bits() << fmt.digits)).float()


def reduce_exponent(x: Term, fmt: Format) -> tuple[Term, Term]:
    """n and r with x = n * ln(2) + r and |r| <= ln(2) / 2; n is still shifted by `magic`."""
    shifted = fma(x, LOG2E, fmt.magic)
    n = shifted - fmt.magic
    high, low = fmt.ln2
    return shifted, fma(n, -low, fma(n, -high, x))


def exp_fraction(r: Term, fmt: Format) -> Term:
    """exp(r) - 1 for |r| <= ln(2) / 2, good to a fraction of the last digit of exp(r)."""
    if r.dtype is f32:
        return r * polynomial(r, fmt.exp)
    return fma(r * r, polynomial(r, fmt.exp[1:]), r)


def exp(x: Term) -> Term:
    fmt = format_of(x)
    # Numbers far below are not rare: a mask before a softmax consists of them.
    vanishes = x < fmt.lowest
    return rare(~((abs(x) < fmt.usual) | vanishes), select(vanishes, 0.0, usual_exp(x)), exp_extreme, x)


def usual_exp(x: Term) -> Term:
    """exp where it and its inverse are normal numbers."""
    fmt = format_of(x)
    shifted, r = reduce_exponent(x, fmt)
    fraction = polynomial(r, (1.0, *fmt.exp)) if x.dtype is f32 else 1 + exp_fraction(r, fmt)
    return times_power(fraction, shifted, fmt)


def exp_extreme(x: Term) -> Term:
    """exp where it may overflow, vanish or be denormal."""
    return exp_pair(x, x.constant(0.0))


def exp_pair(x: Term, low: Term) -> Term:
    """exp(x + low) for a small low."""
    fmt = format_of(x)
    shifted, r = reduce_exponent(limited(x, fmt.lowest, fmt.highest), fmt)
    return scaled(1 + exp_fraction(r + low, fmt), shifted_integer(shifted, fmt), fmt)


def exp2(x: Term) -> Term:
    fmt = format_of(x)
    shifted = x + fmt.magic
    fraction = exp2_fraction(x - (shifted - fmt.magic), fmt)
    usual = abs(x) < fmt.bias - 2.0
    return rare(~usual, times_power(fraction, shifted, fmt), exp2_extreme, x)


def exp2_fraction(r: Term, fmt: Format) -> Term:
    """2 ** r for |r| <= 1/2."""
    if r.dtype is f32:
        return polynomial(r, (1.0, *fmt.exp2))
    high, low = fmt.ln2
    product, lost = two_product(r, high)
    return 1 + exp_fraction(product + fma(r, low, lost), fmt)


def exp2_extreme(x: Term) -> Term:
    """exp2 where it may overflow, vanish or be denormal."""
    fmt = format_of(x)
    x = limited(x, -2.0 * fmt.bias, fmt.bias + 2.0)
    shifted = x + fmt.magic
    return scaled(exp2_fraction(x - (shifted - fmt.magic), fmt), shifted_integer(shifted, fmt), fmt)


def expm1(x: Term) -> Term:
    """2 ** n * expm1(r) + (2 ** n - 1), at half the size so that n may be the largest exponent."""
    fmt = format_of(x)
    shifted, r = reduce_exponent(limited(x, -2.0 * fmt.digits, fmt.highest), fmt)
    rest = r * r * polynomial(r, fmt.exp[1:])
    scale = power_of_two(shifted_integer(shifted, fmt) - 1, fmt)
    # scale * r + (scale - 1/2) with its rounding error, before the small rest.
    base = scale - 0.5
    total = fma(scale, r, base)
    error = fma(scale, r, base - total)
    result = 2 * (total + fma(scale, rest, error))
    return select(abs(x) < 2.0 ** (-fmt.digits - 2), x, result)


# Logarithms: of 1 + f for sqrt(1/2) <= 1 + f < sqrt(2), and a multiple of the exponent


class Base(Record):
    """A logarithm: of 2 in two parts, and log(1 + f) = slope * f + f * polynomial(f) for f32."""

    name: str
    two: tuple[float, float]
    slope: float
    fraction: tuple[float, ...]
    natural: tuple[float, float]  # of e in two parts, for f64

    def __str__(self) -> str:
        return self.name


NATURAL = Base(
    "e",
    two=(0.6931471805599453, 2.3190468138462996e-17),
    slope=1.0,
    fraction=(
        0.0,
        -0.49999988079071045,
        0.33333325386047363,
        -0.25001609325408936,
        0.20002013444900513,
        -0.16608451306819916,
        0.141805961728096,
        -0.1324710100889206,
        0.12914639711380005,
        -0.07624686509370804,
    ),
    natural=(1.0, 0.0),
)
BASE_2 = Base(
    "2",
    two=(1.0, 0.0),
    slope=1.0,
    fraction=(
        0.4426950514316559,
        -0.7213475108146667,
        0.4808965027332306,
        -0.3606826066970825,
        0.2886188328266144,
        -0.23995117843151093,
        0.20415540039539337,
        -0.1882621794939041,
        0.18687847256660461,
        -0.11639093607664108,
    ),
    natural=(1.4426950408889634, 2.0355273740931033e-17),
)
BASE_10 = Base(
    "10",
    two=(0.3010299956639812, -2.8037281277851704e-18),
    slope=0.4375,
    fraction=(
        -0.0032055180054157972,
        -0.21714718639850616,
        0.1447647511959076,
        -0.10858087241649628,
        0.08687043190002441,
        -0.07212501019239426,
        0.061526015400886536,
        -0.05751032382249832,
        0.05648088827729225,
        -0.033664703369140625,
    ),
    natural=(0.4342944819032518, 1.098319650216765e-17),
)
BASE_10_TWO_F32 = (0.3010300099849701, -1.432098883924482e-08)
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


class Split(Record):
    """x = 2 ** n * (1 + f) for a positive normal number, with sqrt(1/2) <= 1 + f < sqrt(2)."""

    n: Term  # a float
    f: Term
    inverse: Term  # 2 ** -n


def split_exponent(x: Term) -> Split:
    fmt = format_of(x)
    one = (1 << fmt.digits) - 1
    if x.dtype is f32:
        offset = x.bits() - fmt.sqrt_half
        n = (offset >> fmt.digits).cast(f32)
        above = offset & ~one
        inverse = (fmt.one - above).float()
    else:
        # Few machines convert integers of 64 bits: this one is put into the low digits of a large float.
        offset = x.bits() + (fmt.one - fmt.sqrt_half)
        above = offset & ~one
        large = (fmt.bias + fmt.digits) << fmt.digits
        n = (offset.op("lshr", fmt.digits) | large).float() - (2.0**fmt.digits + fmt.bias)
        inverse = (2 * fmt.one - above).float()
    return Split(n, ((offset & one) + fmt.sqrt_half).float() - 1, inverse)


def unusual(x: Term, limit: int) -> Term:
    """Whether x is anything but a normal number below 2 ** limit: one comparison of its bits, moved to the low end."""
    fmt = format_of(x)
    least = 1 << (x.dtype.bits - 1)
    smallest, largest = 1 << fmt.digits, (fmt.bias + limit) << fmt.digits
    return x.bits() + (least - smallest) >= largest - smallest - least


def log_fraction(f: Term) -> Term:
    """log(1 + f) - f in f64."""
    half = 0.5 * (f * f)
    s = f / (2 + f)
    z = s * s
    return s * fma(z, polynomial(z, LOG_F64), half) - half


def joined_log(n: Term, f: Term, base: Base) -> Term:
    """The logarithm of 2 ** n * (1 + f)."""
    if f.dtype is f32:
        bent = polynomial(f, base.fraction)
        if base.slope == 1:
            return fma(n, base.two[0], fma(f, bent, f))
        two, two_low = BASE_10_TWO_F32
        return fma(n, two, fma(f, base.slope, fma(f, bent, n * two_low)))
    slope, slope_low = base.natural
    two, two_low = base.two
    rest = log_fraction(f)
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
    parts = split_exponent(x)
    return rare(unusual(x, format_of(x).bias + 1), joined_log(parts.n, parts.f, base), log_unusual, x, base)


def log_unusual(x: Term, base: Base) -> Term:
    """The logarithm also of denormal numbers, of zero, infinity and negative numbers."""
    return log_limits(x, joined_log(*split_lifted(x), base))


def split_lifted(x: Term) -> tuple[Term, Term]:
    """n and f of x = 2 ** n * (1 + f), also of denormal numbers."""
    fmt = format_of(x)
    tiny = x < 2.0 ** (1 - fmt.bias)
    lift = fmt.digits + 2
    parts = split_exponent(select(tiny, x * 2.0**lift, x))
    return parts.n - select(tiny, x.constant(float(lift)), 0.0), parts.f


def log(x: Term) -> Term:
    return logarithm(x, NATURAL)


def log2(x: Term) -> Term:
    return logarithm(x, BASE_2)


def log10(x: Term) -> Term:
    return logarithm(x, BASE_10)


def log1p(x: Term) -> Term:
    """log(1 + x), with the rounding error of 1 + x put back into the fraction."""
    total = 1 + x
    above = x > 1
    lost = select(above, x.constant(1.0), x) - (total - select(above, x, 1.0))
    parts = split_exponent(total)
    result = joined_log(parts.n, fma(lost, parts.inverse, parts.f), NATURAL)
    return rare(unusual(total, 100), result.op("copysign", x), log1p_unusual, x)


def log1p_unusual(x: Term) -> Term:
    """log1p of large numbers, of infinity and of numbers not above -1."""
    return select(x > 1, log_unusual(x, NATURAL), select(x.equals(-1), -math.inf, x * math.nan))


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
    n, f = split_lifted(x)
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


# exp(2 r) for |r| <= ln(2) / 4: the scaled coefficients are exact.
EXP_TWICE_F32 = tuple(coefficient * 2.0**power for power, coefficient in enumerate((1.0, *F32.exp)))


def tanh(x: Term) -> Term:
    size = abs(x)
    if x.dtype is f32:
        square = x * x
        near = fma(x * square, polynomial(square, TANH_F32), x)
        size = select(size > 9.5, 9.5, size)
        shifted = fma(size, 2 * LOG2E, F32.magic)
        r = fma(shifted - F32.magic, -0.5 * LN2, size)
        far = 1 - 2 / (times_power(polynomial(r, EXP_TWICE_F32), shifted, F32) + 1)
        return select(size >= 0.6, far, near).op("copysign", x)
    growth = expm1(2 * limited(size, 0.0, 25.0))
    return (growth / (growth + 2)).op("copysign", x)


def sigmoid(x: Term) -> Term:
    """exp(x) / (1 + exp(x)), with the rounding error of the sum put into the quotient."""
    fmt = format_of(x)
    growth = usual_exp(x)
    total = 1 + growth
    lost = growth - (total - 1)
    inverse = 1 / total
    result = growth * inverse
    result = fma(fma(-lost, result, fma(-total, result, growth)), inverse, result)
    return rare(~(abs(x) < fmt.usual), result, sigmoid_extreme, x)


def sigmoid_extreme(x: Term) -> Term:
    return select(x > 0, 1.0, exp_extreme(x))


# (sinh(r) / r - 1) / r ** 2 and (cosh(r) - 1) / r ** 2 in r * r, for |r| <= ln(2) / 2
SINH_F32 = (0.1666666716337204, 0.00833317544311285, 0.0001997408107854426)
COSH_F32 = (0.5, 0.041666459292173386, 0.0013935437891632318)


class Hyperbolic(Record):
    """With x = n * ln(2) + r: 2 ** n / 2, 2 ** -n / 2, their sum and difference, r, sinh(r) - r and cosh(r) - 1."""

    up: Term
    down: Term
    total: Term
    difference: Term
    r: Term
    sine: Term
    cosine: Term


def hyperbolic_parts(size: Term) -> Hyperbolic:
    """For f32, 0 <= size <= F32.usual."""
    shifted, r = reduce_exponent(size, F32)
    scale = shifted.bits() << F32.digits
    half = F32.one - (1 << F32.digits)
    up, down = (scale + half).float(), (half - scale).float()
    square = r * r
    sine, cosine = r * square * polynomial(square, SINH_F32), square * polynomial(square, COSH_F32)
    return Hyperbolic(up, down, up + down, up - down, r, sine, cosine)


def sinh(x: Term) -> Term:
    if x.dtype is f64:
        return precise_sinh(x)
    size = abs(x)
    parts = hyperbolic_parts(size)
    small = fma(parts.total, parts.sine, parts.difference * parts.cosine)
    result = parts.difference + fma(parts.total, parts.r, small)
    return rare(~(size < F32.usual), result.op("copysign", x), in_double(precise_sinh), x)


def cosh(x: Term) -> Term:
    if x.dtype is f64:
        return precise_cosh(x)
    size = abs(x)
    parts = hyperbolic_parts(size)
    small = fma(parts.difference, parts.sine, fma(parts.total, parts.cosine, parts.down))
    result = parts.up + fma(parts.difference, parts.r, small)
    return rare(~(size < F32.usual), result, in_double(precise_cosh), x)


def precise_sinh(x: Term) -> Term:
    """From expm1 near 0; far out half of exp(x / 2) squared, which overflows only with the result."""
    size = abs(x)
    growth = expm1(size)
    near = 0.5 * (growth + growth / (growth + 1))
    half = exp(0.5 * size)
    return select(size < 22.0, near, 0.5 * half * half).op("copysign", x)


def precise_cosh(x: Term) -> Term:
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


# (atanh(x) / x - 1) / x ** 2 in x * x, for |x| <= 1/2
ATANH_F32 = (
    0.33333301544189453,
    0.2000245451927185,
    0.14223745465278625,
    0.11816761642694473,
    0.05158964917063713,
    0.17639920115470886,
)


def atanh(x: Term) -> Term:
    size = abs(x)
    far = 0.5 * log1p(2 * size / (1 - size))
    if x.dtype is f32:
        square = x * x
        near = fma(size * square, polynomial(square, ATANH_F32), size)
        far = select(size < 0.5, near, far)
    return far.op("copysign", x)
