"""Expansions of sin, cos, tan and their inverses.

From usual arguments a multiple of pi is subtracted: pi is held in parts whose products with a whole number are
exact or, with fma, rounded once. Large arguments are rare: they are reduced to a fraction of a turn, x / (2 pi)
modulo 1, by products that are exact: 1 / (2 pi) is held to as many digits as the largest x needs. Of those, the
digits whose product with x is a whole number of turns are left out, so a few pieces are enough for any x; which
ones, depends on the exponent of x.
"""

from __future__ import annotations

import math

from ...ir.record import Record
from ...ir.types import f32, f64
from .term import Term, fast_two_sum, fma, in_double, polynomial, rare, select, two_product, two_sum

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


# (sin(r) / r - 1) / r ** 2 + 1/8 in r * r, for |r| <= pi / 2: relative errors of sin 2 ** -26 (below 0.6, where r
# itself is less precise, 2 ** -29) and 2 ** -61
SIN = {
    f32: (-0.04166663810610771, 0.008333178237080574, -0.00019817400607280433, 2.6218456241622334e-06),
    f64: (
        -0.04166666666666666,
        0.008333333333333207,
        -0.0001984126984121248,
        2.755731921156934e-06,
        -2.50521069043825e-08,
        1.6058940998244298e-10,
        -7.643019197635912e-13,
        2.7214168572771027e-15,
    ),
}
# (sin(r) / r - 1) / r ** 2 and (cos(r) - 1) / r ** 2 in r * r, for |r| <= pi / 4
SHORT_SIN_F32 = (-0.166666641831398, 0.008332774043083191, -0.00019588520808611065)
SHORT_COS_F32 = (-0.5, 0.04166664555668831, -0.0013887366512790322, 2.4438371838186868e-05)
# (tan(r) / r - 1) / r ** 2 in r * r, for |r| <= pi / 4
TAN = {
    f32: (
        0.33333152532577515,
        0.1333892047405243,
        0.05340076610445976,
        0.02446899190545082,
        0.0030558293219655752,
        0.009424245916306973,
    ),
    f64: (
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
    ),
}
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


class Steps(Record):
    """The steps of an argument reduction: multiples of a part of a turn, counted from an offset."""

    of_turn: int
    offset: float = 0.0

    def nearest(self, turns: Term) -> Term:
        return (turns * self.of_turn - self.offset).op("round") + self.offset

    @property
    def radians(self) -> tuple[float, float]:
        return HALF_PI[0] * (4 / self.of_turn), HALF_PI[1] * (4 / self.of_turn)


QUARTERS, HALVES, ODD_QUARTERS = Steps(4), Steps(2), Steps(2, 0.5)


def reduce_single(x: Term, steps: Steps) -> tuple[Term, Term]:
    """For x >= 0 of f32: the step nearest to it (f64), and the rest in radians (f64)."""
    wide = x.cast(f64)
    pieces = [wide.constant(piece) for piece in SINGLE_RANGES[0][1]]
    for least, others in SINGLE_RANGES[1:]:
        beyond = wide >= least
        pieces = [select(beyond, other, piece) for other, piece in zip(others, pieces, strict=True)]
    first, second, third = pieces
    total, error = two_sum(fraction(wide * first), fraction(wide * second))
    error = fma(wide, third, error)
    step = steps.nearest(total + error)
    rest = fma(total, float(steps.of_turn), -step) + steps.of_turn * error
    return step, rest * steps.radians[0]


# For an f64 operand: pieces of 53 digits, as fractions. The operand is first divided by 2 ** (53 * j), into
# the range below 2 ** 105, and the pieces j to j + 3 are what matters.
DOUBLE_PIECES = tuple(math.ldexp(turn_piece(53 * index, 53), -53) for index in range(22))


def reduce_double(x: Term, steps: Steps) -> tuple[Term, Term, Term]:
    """For x >= 0 of f64: the step nearest to it, and the rest in radians as a sum of two."""
    pieces = [x.constant(piece) for piece in DOUBLE_PIECES]
    for skipped in (16, 8, 4, 2, 1):
        beyond = x >= 2.0 ** (52 + 53 * skipped)
        x = select(beyond, x * 2.0 ** (-53 * skipped), x)
        needed = skipped + 3
        pieces = [
            select(beyond, pieces[index + skipped], piece) if index + skipped < len(pieces) else piece
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
    step = steps.nearest(total)
    high, low = fast_two_sum(fma(total, float(steps.of_turn), -step), steps.of_turn * low)
    radians, radians_low = steps.radians
    rest, error = two_product(high, radians)
    return step, *fast_two_sum(rest, error + fma(high, radians_low, low * radians))


def reduce_large(x: Term, steps: Steps) -> tuple[Term, Term, Term]:
    """For any x >= 0: the rest in radians as a sum of two, and the number of the step, in the last bits."""
    if x.dtype is f64:
        step, rest, low = reduce_double(x, steps)
    else:
        step, wide = reduce_single(x, steps)
        rest = wide.cast(f32)
        step, low = step.cast(f32), (wide - rest.cast(f64)).cast(f32)
    return rest, low, (step - steps.offset + MAGIC[x.dtype]).bits()


def negated_if_odd(value: Term, bits: Term) -> Term:
    """value negated where the last bit of `bits` is set."""
    return (value.bits() ^ (bits << (value.dtype.bits - 1))).float()


def with_sign_of(value: Term, x: Term) -> Term:
    """value negated where x has its sign bit set."""
    return (value.bits() ^ (x.bits() ^ abs(x).bits())).float()


# pi / 2 in parts. The product of a whole number with the first one, taken off its argument, leaves no error.
# None is negative, so that a zero keeps its sign.
HALF_PI_PARTS = {
    f32: (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15),
    f64: (1.5707963267948966, 6.123233995736765e-17, 1.0828566739219139e-32),
}
# Below this the parts are enough.
USUAL = {f32: 2.0**16, f64: 2.0**20}
MAGIC = {f32: 1.5 * 2.0**23, f64: 1.5 * 2.0**52}


def sine(rest: Term) -> Term:
    """sin for |rest| <= pi / 2. Most of the square's term, which is large near pi / 2, is multiplied exactly."""
    square = rest * rest
    # Of a zero it is 0, not -0, thanks to the sum: the result then has the sign of the operand.
    bent = fma(rest * -0.125, rest, fma(square, polynomial(square, SIN[rest.dtype]), 0.0))
    return fma(rest, bent, rest)


def without_steps(x: Term, n: Term, step: int) -> Term:
    """x - n * step * pi / 2."""
    for part in HALF_PI_PARTS[x.dtype]:
        x = fma(n, -step * part, x)
    return x


def sin(x: Term) -> Term:
    """The sine of x reduced by the nearest multiple of pi."""
    shifted = fma(x, 1 / math.pi, MAGIC[x.dtype])
    result = negated_if_odd(sine(without_steps(x, shifted - MAGIC[x.dtype], 2)), shifted.bits())
    return rare(~(abs(x) < USUAL[x.dtype]), result, sin_large, x)


def sin_large(x: Term) -> Term:
    rest, _, bits = reduce_large(abs(x), HALVES)
    return with_sign_of(negated_if_odd(sine(rest), bits), x)


def cos(x: Term) -> Term:
    usual = cos_single(x) if x.dtype is f32 else cos_double(x)
    return rare(~(abs(x) < USUAL[x.dtype]), usual, cos_large, x)


def cos_double(x: Term) -> Term:
    """The sine, negated, of x reduced by the nearest odd multiple of pi / 2."""
    shifted = fma(x, 1 / math.pi, -0.5) + MAGIC[x.dtype]
    rest = without_steps(x, (shifted - MAGIC[x.dtype]) + 0.5, 2)
    return negated_if_odd(-sine(rest), shifted.bits())


def cos_single(x: Term) -> Term:
    """Reduces by the nearest multiple of pi / 2: by an odd one, small operands would be rounded twice."""
    shifted = fma(x, 2 / math.pi, MAGIC[x.dtype])
    rest = without_steps(x, shifted - MAGIC[x.dtype], 1)
    square = rest * rest
    sine = fma(rest * square, polynomial(square, SHORT_SIN_F32), rest)
    cosine = fma(square, polynomial(square, SHORT_COS_F32), 1.0)
    bits = shifted.bits()
    return negated_if_odd(select((bits & 1).differs(0), sine, cosine), (bits + 1).op("lshr", 1))


def cos_large(x: Term) -> Term:
    rest, _, bits = reduce_large(abs(x), ODD_QUARTERS)
    return negated_if_odd(-sine(rest), bits)


def tan(x: Term) -> Term:
    size = abs(x)
    shifted = fma(size, 2 / math.pi, MAGIC[x.dtype])
    n = shifted - MAGIC[x.dtype]
    first, second, third = HALF_PI_PARTS[x.dtype]
    base = fma(n, -first, size)
    product, lost = two_product(n, second)
    rest, low = fast_two_sum(base, -product)
    low = fma(n, -third, low - lost)
    result = with_sign_of(tangent(rest, low, shifted.bits()), x)
    return rare(~(size < USUAL[x.dtype]), result, tan_large, x)


def tan_large(x: Term) -> Term:
    rest, low, bits = reduce_large(abs(x), QUARTERS)
    return with_sign_of(tangent(rest, low, bits), x)


def tangent(rest: Term, low: Term, bits: Term) -> Term:
    """tan(rest + low) for |rest| <= pi / 4, or -1 over it where the number of quarter turns is odd."""
    square = rest * rest
    # The slope of tan, for the low part, is 1 + 3/2 rest ** 2 to two digits.
    bent = fma(rest * square, polynomial(square, TAN[rest.dtype]), low * fma(square, 1.5, 1.0))
    result, lost = fast_two_sum(rest, bent)
    inverse = -1 / result
    # One Newton step with the digits that the sum lost.
    inverse = fma(fma(lost, inverse, fma(result, inverse, 1.0)), inverse, inverse)
    return select((bits & 1).differs(0), inverse, result)


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
    """For size > 1/2: root = sqrt((1 - size) / 2), its rounding error, and asin(root) - root."""
    square = (1 - size) * 0.5
    root = square.op("sqrt")
    # A few digits of it are enough: a quick division.
    lost = fma(-root, root, square).cast(f32) / select(root.equals(0), 1.0, 2 * root).cast(f32)
    return root, lost.cast(f64), root * square * polynomial(square, ASIN)


# (asin(x) / x - 1) / x ** 2 in x * x, for |x| <= sqrt(1/2)
ASIN_F32 = (
    0.16666622459888458,
    0.07502719014883041,
    0.044075146317481995,
    0.036048524081707,
    -0.0083211250603199,
    0.11099226772785187,
    -0.1408282071352005,
    0.1265658438205719,
)
# The first part is so small that taking off the leading part of an angle leaves less than 1 if the result is.
SINGLE_HALF_PI = (1.53125, 0.03954632679489662)


def half_angle_single(size: Term) -> tuple[Term, Term, Term]:
    """Whether size > 0.7; for asin of size, or of sqrt((1 - size) / 2): the operand, and the term to add."""
    beyond = size > 0.7
    half = fma(size, -0.5, 0.5)
    square = select(beyond, half, size * size)
    root = select(beyond, half.op("sqrt"), size)
    return beyond, root, root * square * polynomial(square, ASIN_F32)


def asin(x: Term) -> Term:
    """Beyond 0.7 (f32) or 1/2: pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    size = abs(x)
    high, low = HALF_PI
    if x.dtype is f32:
        beyond, root, bent = half_angle_single(size)
        high, low = SINGLE_HALF_PI
        far = fma(root, -2.0, high) + fma(bent, -2.0, low)
        return select(beyond, far, root + bent).op("copysign", x)
    square = x * x
    near = fma(x * square, polynomial(square, ASIN), x)
    root, lost, bent = half_angle(size)
    far = high - (2 * root - (low - 2 * (bent + lost)))
    return select(size > 0.5, far, near).op("copysign", x)


def acos(x: Term) -> Term:
    size = abs(x)
    high, low = HALF_PI
    if x.dtype is f32:
        beyond, root, bent = half_angle_single(size)
        high, low = SINGLE_HALF_PI
        # pi/2 - angle within 0.7, 2 angle above, pi - 2 angle below.
        turn = select(x < 0, x.constant(2.0), 0.0)
        factor = with_sign_of(select(beyond, x.constant(2.0), -1.0), x)
        turn = select(beyond, turn, 1.0)
        return fma(root, factor, turn * high) + fma(bent, factor, turn * low)
    square = x * x
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


# (atan(x) / x - 1) / x ** 2 in x * x, for |x| <= 1
ATAN_F32 = (
    -0.33333298563957214,
    0.1999852955341339,
    -0.1426401436328888,
    0.10950861126184464,
    -0.08399208635091782,
    0.05787891522049904,
    -0.03109363093972206,
    0.010866362601518631,
    -0.001782175968401134,
)


def atan(x: Term) -> Term:
    """Beyond 1: pi/2 - atan(1 / x)."""
    size = abs(x)
    if x.dtype is f32:
        steep = size > 1
        ratio = select(steep, -1 / size, size)
        square = ratio * ratio
        high, low = SINGLE_HALF_PI
        bent = fma(ratio * square, polynomial(square, ATAN_F32), select(steep, x.constant(low), 0.0))
        return (select(steep, high + ratio, ratio) + bent).op("copysign", x)
    angle = atan_quotient(select(size > 2.0**60, 2.0**60, size), x.constant(1.0))
    return select(size < 2.0**-27, x, angle.op("copysign", x))


def atan2(y: Term, x: Term) -> Term:
    """The smaller of |y| and |x| over the larger gives an angle from the nearest of 0, pi/2 and pi."""
    if x.dtype is f64:
        return precise_atan2(y, x)
    rise, run = abs(y), abs(x)
    steep, backward = rise > run, x.bits() < 0
    larger = select(steep, rise, run)
    ratio = select(steep, run, rise) / larger
    ratio = select(steep ^ backward, -ratio, ratio)
    turn = select(steep, 1.0, select(backward, x.constant(2.0), 0.0))
    square = ratio * ratio
    high, low = SINGLE_HALF_PI
    bent = fma(ratio * square, polynomial(square, ATAN_F32), turn * low)
    angle = (fma(turn, high, ratio) + bent).op("copysign", y)
    usual = (larger > 0) & (larger < math.inf)
    return rare(~usual, angle, in_double(precise_atan2), y, x)


def precise_atan2(y: Term, x: Term) -> Term:
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
