"""sin, cos, tan and their inverses as straight-line expansions.

The argument is reduced to a fraction of a turn, x / (2 pi) modulo 1, by products that are exact: 1 / (2 pi)
is held to as many digits as the largest x needs. Of those, the digits whose product with x is a whole number
of turns are left out, so a few pieces are enough for any x; which ones, depends on the exponent of x.
"""

from __future__ import annotations

import math

from ..ir.types import f32, f64
from .term import Term, fast_two_sum, fma, in_double, polynomial, select, two_product, two_sum

# The binary digits of 1 / (2 pi) after the point: 1216 of them, enough for the largest f64.
TURN_DIGITS = 1216
TURN = int(
    "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef1586dc91b8e909374b801924bba82"
    "7464873f877ac72c4a69cfba208d7d4baed1213a671c09ad17df904e64758e60d4ce7d272117e2ef7e4a0ec7fe"
    "25fff7816603fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9a797fa8b5d49eeb1faf97c5ecf41ce7de294a4"
    "ba9afed7ec47e357421580cc11bf1edaea",
    16,
)


def turn_piece(first: int, count: int) -> int:
    """The number made of `count` binary digits of 1 / (2 pi) from digit `first` on."""
    return (TURN >> (TURN_DIGITS - first - count)) & ((1 << count) - 1)


# (sin(r) / r - 1) / r ** 2 and (cos(r) - 1 + r ** 2 / 2) / r ** 4 in r * r, for |r| <= pi / 4
SIN = {
    f32: (-0.16666655242443085, 0.008332177996635437, -0.00019517242617439479),
    f64: (
        -0.16666666666666632,
        0.008333333333322417,
        -0.0001984126982980943,
        2.755731369241294e-06,
        -2.5050758183726614e-08,
        1.5896799168978067e-10,
    ),
}
COS = {
    f32: (0.04166664555668831, -0.0013887366512790322, 2.4438371838186868e-05),
    f64: (
        0.0416666666666666,
        -0.0013888888888874127,
        2.480158728948378e-05,
        -2.7557314352727567e-07,
        2.0875723319933033e-09,
        -1.1359649935930026e-11,
    ),
}
# (tan(r) / r - 1) / r ** 2 in r * r, for |r| <= pi / 4
TAN = (
    0.3333333333333333,
    0.13333333333334096,
    0.05396825396775577,
    0.02186948855269609,
    0.00886323520218255,
    0.0035921322764593325,
    0.001455796524837912,
    0.0005902692113547243,
    0.000238000817613553,
    0.00010080780181686384,
    2.933190411508372e-05,
    3.459271136640144e-05,
    -1.8760298202538204e-05,
    2.606631743324224e-05,
    -1.2723446876723729e-05,
    4.564141778187083e-06,
)
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)

# For an f32 operand: the least value of each range, and the pieces of 1 / (2 pi) that matter there. A piece
# of 29 digits times 24 of the operand is exact in f64. Digits above the first piece make whole turns.
SINGLE_RANGES = []
for _exponent in (0, 32, 64, 96):
    _first = 0 if _exponent == 0 else _exponent - 24
    SINGLE_RANGES.append(
        (
            2.0**_exponent,
            (
                math.ldexp(turn_piece(_first, 29), -_first - 29),
                math.ldexp(turn_piece(_first + 29, 29), -_first - 58),
                math.ldexp(turn_piece(_first + 58, 53), -_first - 111),
            ),
        )
    )


def fraction(x: Term) -> Term:
    """x less the nearest integer."""
    return x - x.op("round")


def reduce_single(x: Term) -> tuple[Term, Term]:
    """For x >= 0 of f32: the quarter turn nearest to it (f64), and the rest in radians (f64)."""
    wide = x.cast(f64)
    pieces = [wide.constant(piece) for piece in SINGLE_RANGES[0][1]]
    for least, others in SINGLE_RANGES[1:]:
        beyond = wide >= least
        pieces = [select(beyond, other, piece) for other, piece in zip(others, pieces, strict=True)]
    first, second, third = pieces
    total, error = two_sum(fraction(wide * first), fraction(wide * second))
    error = fma(wide, third, error)
    quarter = (4 * (total + error)).op("round")
    rest = fma(total, 4.0, -quarter) + 4 * error
    return quarter, rest * HALF_PI[0]


# For an f64 operand: pieces of 53 digits, as fractions. The operand is first divided by 2 ** (53 * j), into
# the range below 2 ** 105, and the pieces j to j + 3 are what matters.
DOUBLE_PIECES = tuple(math.ldexp(turn_piece(53 * index, 53), -53) for index in range(22))


def reduce_double(x: Term) -> tuple[Term, Term, Term]:
    """For x >= 0 of f64: the quarter turn nearest to it, and the rest in radians as a sum of two."""
    pieces = [x.constant(piece) for piece in DOUBLE_PIECES]
    for step in (16, 8, 4, 2, 1):
        beyond = x >= 2.0 ** (52 + 53 * step)
        x = select(beyond, x * 2.0 ** (-53 * step), x)
        needed = step + 3
        pieces = [
            select(beyond, pieces[index + step], piece) if index + step < len(pieces) else piece
            for index, piece in enumerate(pieces[:needed])
        ]
    products = []
    for piece in pieces[:3]:
        products.append(two_product(x, piece))
        x = x * 2.0**-53
    (p0, e0), (p1, e1), (p2, e2) = products
    total, lost0 = two_sum(fraction(p0), fraction(e0))
    total, lost1 = two_sum(total, fraction(p1))
    total = fraction(total)
    total, lost2 = two_sum(total, e1)
    total, lost3 = two_sum(total, p2)
    low = ((lost0 + lost1) + lost2) + (lost3 + fma(x, pieces[3], e2))
    total, low = fast_two_sum(fraction(total), low)
    quarter = (4 * total).op("round")
    high, low = fast_two_sum(fma(total, 4.0, -quarter), 4 * low)
    half_pi, half_pi_low = HALF_PI
    rest, error = two_product(high, half_pi)
    return quarter, rest, error + fma(high, half_pi_low, low * half_pi)


def quarter_bits(quarter: Term) -> Term:
    """A small whole number as an integer; the last two bits count quarter turns."""
    magic = 1.5 * (2.0**23 if quarter.dtype is f32 else 2.0**52)
    return (quarter + magic).bits()


def sine_and_cosine(x: Term) -> tuple[Term, Term, Term]:
    """For x >= 0: sine and cosine of the rest, and the number of the quarter turn."""
    if x.dtype is f32:
        quarter, wide = reduce_single(x)
        rest = wide.cast(f32)
        low = (wide - rest.cast(f64)).cast(f32)
        bits = quarter_bits(quarter.cast(f32))
    else:
        quarter, rest, low = reduce_double(x)
        bits = quarter_bits(quarter)
    square = rest * rest
    cube = rest * square
    # sin(rest + low) = sin(rest) + low * cos(rest), and the like for the cosine.
    half = 0.5 * square
    base = 1 - half
    sine = rest + fma(cube, polynomial(square, SIN[x.dtype]), low * base)
    lost = (1 - base) - half
    cosine = base + (lost + fma(square * square, polynomial(square, COS[x.dtype]), -(rest * low)))
    return sine, cosine, bits


def with_sign_bit(value: Term, flag: Term) -> Term:
    """value negated where bit 1 of `flag` is set."""
    return (value.bits() ^ ((flag & 2) << (value.dtype.bits - 2))).float()


def sin(x: Term) -> Term:
    size = abs(x)
    sine, cosine, bits = sine_and_cosine(size)
    result = with_sign_bit(select((bits & 1).differs(0), cosine, sine), bits)
    # The sign of x, also that of zero.
    result = select(x.bits() < 0, -result, result)
    return select(size < tiny(x), x, result)


def cos(x: Term) -> Term:
    sine, cosine, bits = sine_and_cosine(abs(x))
    result = select((bits & 1).differs(0), sine, cosine)
    return with_sign_bit(result, bits + 1)


def tan(x: Term) -> Term:
    size = abs(x)
    if x.dtype is f32:
        quarter, rest = reduce_single(size)
        low = None
    else:
        quarter, rest, low = reduce_double(size)
    bits = quarter_bits(quarter)
    square = rest * rest
    bent = rest * square * polynomial(square, TAN)
    result = rest + bent
    if low is None:
        result = select((bits & 1).differs(0), -1 / result, result)
    else:
        bent = fma(low, fma(result, result, 1.0), bent)
        result, lost = fast_two_sum(rest, bent)
        inverse = -1 / result
        # One Newton step with the digits that the sum lost.
        inverse = fma(fma(result, inverse, 1.0) + lost * inverse, inverse, inverse)
        result = select((bits & 1).differs(0), inverse, result)
    result = result.cast(x.dtype)
    result = select(x.bits() < 0, -result, result)
    return select(size < tiny(x), x, result)


def tiny(x: Term) -> float:
    """Below this, sin(x) and tan(x) round to x."""
    return 2.0**-12 if x.dtype is f32 else 2.0**-27


# (asin(x) / x - 1) / x ** 2 in x * x, for |x| <= 1/2
ASIN = (
    0.1666666666666666,
    0.07500000000002559,
    0.04464285713965909,
    0.03038194464628917,
    0.022372151549880672,
    0.017352946350423358,
    0.013961859551646373,
    0.011586106144113645,
    0.009481108917188964,
    0.01002357709177738,
    0.0006357198783031709,
    0.024928621896369674,
    -0.0262820368289005,
    0.03372052689433413,
)
# (atan(x) / x - 1) / x ** 2 in x * x, for |x| <= tan(pi / 8)
ATAN = (
    -0.333333333333332,
    0.19999999999954018,
    -0.1428571428024125,
    0.11111110785739894,
    -0.09090897824187189,
    0.07692061406797801,
    -0.06663117646697961,
    0.058479882390779725,
    -0.050397492814641204,
    0.03807580547541313,
    -0.017919453568971174,
)
QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)


def half_angle(size: Term) -> tuple[Term, Term, Term]:
    """For size > 1/2: root = sqrt((1 - size) / 2), what its rounding lost, and asin(root) - root."""
    square = (1 - size) * 0.5
    root = square.op("sqrt")
    lost = fma(-root, root, square) / select(root.equals(0), 1.0, 2 * root)
    return root, lost, root * square * polynomial(square, ASIN)


@in_double
def asin(x: Term) -> Term:
    """Beyond 1/2: pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    size = abs(x)
    square = x * x
    near = fma(x * square, polynomial(square, ASIN), x)
    root, lost, bent = half_angle(size)
    high, low = HALF_PI
    far = high - (2 * root - (low - 2 * (bent + lost)))
    return select(size > 0.5, far, near).op("copysign", x)


@in_double
def acos(x: Term) -> Term:
    size = abs(x)
    square = x * x
    high, low = HALF_PI
    near = high - (x + (x * square * polynomial(square, ASIN) - low))
    root, lost, bent = half_angle(size)
    small = 2 * (root + (bent + lost))
    return select(size > 0.5, select(x < 0, 2 * high - (small - 2 * low), small), near)


def atan_quotient(y: Term, x: Term) -> Term:
    """atan(y / x) for y, x >= 0 with one division: about 0, pi/4 or pi/2, whichever is near."""
    steep = y > 2.414213562373095 * x
    flat = y <= 0.41421356237309503 * x
    numerator = select(steep, -x, select(flat, y, y - x))
    divisor = select(steep, y, select(flat, x, y + x))
    quotient = numerator / divisor
    square = quotient * quotient
    high, low = QUARTER_PI
    base = select(steep, 2 * high, select(flat, x.constant(0.0), high))
    base_low = select(steep, 2 * low, select(flat, x.constant(0.0), low))
    return base + (quotient + fma(quotient * square, polynomial(square, ATAN), base_low))


@in_double
def atan(x: Term) -> Term:
    size = abs(x)
    angle = atan_quotient(select(size > 2.0**60, 2.0**60, size), x.constant(1.0))
    return select(size < 2.0**-27, x, angle.op("copysign", x))


@in_double
def atan2(y: Term, x: Term) -> Term:
    rise, run = abs(y), abs(x)
    # An infinite operand outweighs a finite one; two of them are equal.
    rise_infinite, run_infinite = rise.equals(math.inf), run.equals(math.inf)
    infinite = rise_infinite | run_infinite
    rise = select(infinite, select(rise_infinite, rise.constant(1.0), 0.0), rise)
    run = select(infinite, select(run_infinite, run.constant(1.0), 0.0), run)
    # Halved twice where the sum of both would overflow.
    large = (rise > 2.0**1021) | (run > 2.0**1021)
    rise = select(large, rise * 0.25, rise)
    run = select(large, run * 0.25, run)
    # 0 / 0 is the angle 0.
    run = select(rise.equals(0) & run.equals(0), 1.0, run)
    angle = atan_quotient(rise, run)
    high, low = HALF_PI
    angle = select(x.bits() < 0, 2 * high - (angle - 2 * low), angle).op("copysign", y)
    return select(x.op("isnan") | y.op("isnan"), x + y, angle)
