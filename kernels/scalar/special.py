"""Expansions of erf, the gamma function and their relatives.

erf and its inverse have f32 versions; the others compute in f64, some to fewer digits if that is all f32 needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.types import DType, f32, f64
from .term import Term, fma, horner, in_double, polynomial, rare, select, two_product
from .vecmath import (
    F32,
    F64,
    LOG2E,
    NATURAL,
    exp,
    exp2_fraction,
    format_of,
    joined_log,
    log,
    split_exponent,
    times_power,
)

# erf(x) / x - 1 in x * x, for |x| <= 1
ERF_F32 = (
    0.12837916612625122,
    -0.3761262595653534,
    0.11283578723669052,
    -0.026853347197175026,
    0.005187162198126316,
    -0.0007997853099368513,
    7.806903886375949e-05,
)
# -log2(erfc(x)) for x from 1 to where erf is 1, the more precise the larger erfc is: errors of erf below
# 2 ** -27 and 2 ** -56
ERF_TAIL = {
    f32: (
        0.0005103083676658571,
        1.6259751319885254,
        0.9207648038864136,
        0.14865180850028992,
        -0.031458642333745956,
        0.004241032991558313,
        -0.00026773716672323644,
    ),
    f64: (
        7.404678104749412e-07,
        1.6278995619591772,
        0.918483221723251,
        0.14816808261258485,
        -0.027393951350676647,
        -0.0005966106350225964,
        0.00276845670034844,
        -0.0011152679461343608,
        0.00019700754628337627,
        2.8166204710547932e-05,
        -3.25083607373493e-05,
        1.2376660072128332e-05,
        -3.051033780202567e-06,
        5.331741242424841e-07,
        -6.626809678874983e-08,
        5.612142245017013e-09,
        -2.914758018628862e-10,
        7.018900567797711e-12,
    ),
}
ERF_IS_ONE = {f32: 4.0, f64: 5.95}
# 2 ** -r for |r| <= 1/2, good enough for terms that are small against 1
EXP2_SHORT = {
    f32: (
        1.0,
        -0.6931470036506653,
        0.24022246897220612,
        -0.0555071085691452,
        0.009671292267739773,
        -0.0013269537594169378,
    ),
    f64: (
        1.0,
        -0.6931471805599453,
        0.2402265069591013,
        -0.05550410866482008,
        0.009618129107593952,
        -0.0013333558146776208,
        0.00015403530457344482,
        -1.5252733492079797e-05,
        1.321543515762336e-06,
        -1.0178199815241102e-07,
        7.073806033615497e-09,
        -4.4347625921973267e-10,
    ),
}
# erf(x) / x in x * x, for |x| <= 1, less the leading 2 / sqrt(pi)
ERF_F64 = (
    -0.3761263890318375,
    0.11283791670954885,
    -0.02686617064507787,
    0.0052239776248283985,
    -0.0008548326981424048,
    0.00012055331132913291,
    -1.4925595771418414e-05,
    1.6461008469235697e-06,
    -1.635039616600527e-07,
    1.4660328539833942e-08,
    -1.137495570359615e-09,
    5.96068628347296e-11,
)
TWO_OVER_ROOT_PI = (1.1283791670955126, 1.533545961316588e-17)
# erfc(x) * exp(x * x) * (1 + 2 x) in (x - 4) / (x + 4), for x >= 0.45
ERFCX = {
    f32: (
        1.2329951186265482,
        -0.13962111891008835,
        0.015379653797922577,
        0.06809713840318253,
        -0.10103914847167483,
        0.09373186567077404,
        -0.06632926597373105,
        0.03717218984303972,
        -0.01620392579296955,
        0.005021706350821682,
        -0.0007409553077941289,
        -0.0001908615946108105,
        0.00012869712058546874,
        -2.1926625469327183e-05,
    ),
    f64: (
        1.2329951186255526,
        -0.13962111684056253,
        0.015379652102620586,
        0.0680970542546934,
        -0.10103906603636995,
        0.0937328349983893,
        -0.06633036581035709,
        0.03716751553573729,
        -0.016197734083845037,
        0.005031970004509416,
        -0.0007577730808789065,
        -0.00019925690669896708,
        0.00015062066003729778,
        -2.439820074354639e-05,
        -1.1218879277092562e-05,
        5.7066833136758474e-06,
        2.875922504127444e-07,
        -8.196004948498611e-07,
        8.220546056950963e-08,
        1.0320896346180699e-07,
        -2.3114020343192446e-08,
        -9.60042864277106e-09,
        3.377661612566131e-09,
    ),
}


def erf_near(x: Term) -> Term:
    """erf for |x| <= 1 in f64."""
    square = x * x
    high, low = TWO_OVER_ROOT_PI
    return fma(x, high, x * fma(square, polynomial(square, ERF_F64), low))


def erfcx_far(x: Term, digits: DType) -> Term:
    """erfc(x) * exp(x * x) for x >= 0.45 of f64."""
    return 0.5 * polynomial(1 - 8 / (x + 4), ERFCX[digits]) / (x + 0.5)


def erfc_far(x: Term) -> Term:
    """erfc for x >= 0.45 in f64: exp of the square in two parts, times a slowly changing factor."""
    x = select(x > 28.0, 28.0, x)
    square, lost = two_product(x, x)
    factor = erfcx_far(x, f64)
    # The factor first: the exponential alone may be denormal.
    return exp(-square) * fma(factor, -lost, factor)


def erf(x: Term) -> Term:
    """Beyond 1: 1 - 2 ** -exponent."""
    size = abs(x)
    near = fma(x, polynomial(x * x, ERF_F32), x) if x.dtype is f32 else erf_near(x)
    limit = ERF_IS_ONE[x.dtype]
    exponent = polynomial(select(size > limit, limit, size), ERF_TAIL[x.dtype])
    fmt = format_of(x)
    shifted = fmt.magic - exponent
    rest = exponent + (shifted - fmt.magic)
    far = 1 - times_power(polynomial(rest, EXP2_SHORT[x.dtype]), shifted, fmt)
    return select(size >= 1.0, far, near).op("copysign", x)


# For f32: erfc(x) * exp(x * x) * (x + 5/2) in 1 / (x + 5/2), for 0.47 <= x <= 10.6
ERFCX_SHORT = (
    0.5642003194360846,
    1.4096916518904419,
    3.268357215729632,
    6.278884051831994,
    16.376567795061206,
    -14.17791975628086,
    140.60531211062795,
    -337.9724946829705,
    230.28935863086625,
)
# and 2 ** -r for |r| <= 1/2
EXP2_MIDDLE = (
    1.0,
    -0.6931472067028326,
    0.24022650922288757,
    -0.05550327226670302,
    0.009618056678524637,
    -0.0013400428177615838,
    0.0001546144469856913,
)


def erfc(x: Term) -> Term:
    if x.dtype is f64:
        far = erfc_far(abs(x))
        return select(x > 0.5, far, select(x < -1.0, 2 - far, 1 - erf_near(x)))
    size = abs(x)
    near = 1 - fma(x, polynomial(x * x, ERF_F32), x)
    far = erfc_far_single(select(size > 10.5, 10.5, size))
    return select(size > 0.47, select(x < 0, 2 - far, far), near)


def erfc_far_single(x: Term) -> Term:
    """erfc for 0.47 <= x <= 10.5: the exponential and the factor in f64, but for the division."""
    wide = x.cast(f64)
    exponent = wide * wide * LOG2E
    shifted = F64.magic - exponent
    growth = times_power(horner(exponent + (shifted - F64.magic), EXP2_MIDDLE), shifted, F64)
    divisor = wide + 2.5
    inverse = (1 / (x + 2.5)).cast(f64)
    inverse = fma(fma(-divisor, inverse, 1.0), inverse, inverse)
    return (growth * inverse * horner(inverse, ERFCX_SHORT)).cast(f32)


# -log2 of the normal distribution's mass beyond x, for 0 <= x <= 5.6: errors of the mass below 2 ** -25
NORMAL_TAIL = (
    1.0,
    1.1511058807373047,
    0.4591994881629944,
    0.05253177881240845,
    -0.007128881290555,
    0.000198401088709943,
    0.00015576613077428192,
    -3.187355468980968e-05,
    2.1114501578267664e-06,
)


def normal_cdf(x: Term) -> Term:
    """The mass of the standard normal distribution below x. In f32 a mass below 2 ** -26 becomes 0."""
    if x.dtype is f64:
        return fma(erf(x * math.sqrt(0.5)), 0.5, 0.5)
    size = abs(x)
    exponent = polynomial(size, NORMAL_TAIL)
    shifted = F32.magic - exponent
    fraction = exp2_fraction((F32.magic - shifted) - exponent, F32)
    beyond = fraction * ((shifted.bits() << F32.digits) + F32.one).float()
    beyond = select(size > 5.6, 0.0, beyond)
    return select(x < 0, beyond, 1 - beyond)


# erfinv(x) / x in x * x, for |x| <= 1/2
ERFINV = (
    0.886226925452758,
    0.23201366653466,
    0.12755617530419958,
    0.08655212938148653,
    0.06495961044845228,
    0.05173150940349069,
    0.0428321434098648,
    0.03652817803084424,
    0.03110290702133863,
    0.03183019222378272,
    0.007552016565633511,
    0.07562521099412066,
    -0.07915316114929002,
    0.11506944647382845,
)
# erfinv(x) / s in (s - 1) / (s + 1) with s = sqrt(-log(1 - x)), for x >= 1/2
ERFINV_TAIL = (
    0.6367161372381959,
    0.6826029178396743,
    -0.20251528423707507,
    -0.2576546413104308,
    0.12872132821669574,
    0.11253442585677725,
    -0.1140354355571486,
    -0.044404335285248446,
    0.08179002243806523,
    0.03905397657167128,
    -0.13868724847561636,
    0.10812618100322252,
    -0.03199949835371032,
)


# erfinv(x) / x in w - 7/2 with w = -log(1 - x * x) for w <= 7, that is |x| <= 0.9995
ERFINV_F32 = (
    1.7428299188613892,
    0.2353583425283432,
    -0.00671709468588233,
    -0.000481147289974615,
    0.00015860094572417438,
    -1.587125370861031e-05,
    -3.9779712324161665e-07,
    3.378401345344173e-07,
    -3.4336224530306936e-08,
    -2.412473332213949e-09,
    5.743637787603006e-10,
)


def erfinv(x: Term) -> Term:
    if x.dtype is f64:
        return precise_erfinv(x, True)
    parts = split_exponent(fma(-x, x, 1.0))
    place = -3.5 - joined_log(parts.n, parts.f, NATURAL)
    usual = abs(x) < 0.9995
    return rare(~usual, x * polynomial(place, ERFINV_F32), extreme_erfinv, x)


def extreme_erfinv(x: Term) -> Term:
    return precise_erfinv(x.cast(f64), False).cast(f32)


def precise_erfinv(x: Term, refined: bool) -> Term:
    """erfinv in f64, good to f32 unless refined."""
    size = abs(x)
    near = x * polynomial(x * x, ERFINV)
    rest = 1 - size
    root = (-log(select(rest > 0, rest, 1.0))).op("sqrt")
    far = root * polynomial((root - 1) / (root + 1), ERFINV_TAIL)
    if refined:
        # One Newton step towards erfc(far) = rest.
        far = far + (erfc_far(far) - rest) * exp(far * far) * (1 / TWO_OVER_ROOT_PI[0])
    far = select(size.equals(1), math.inf, far).op("copysign", x)
    return select(size <= 1.0, select(size <= 0.5, near, far), math.nan)


# The gamma function

# lgamma(2 + z) / z for |z| <= 1/2
LGAMMA = (
    0.42278433509846713,
    0.32246703342411326,
    -0.0673523010531956,
    0.020580808427777195,
    -0.007385551028938786,
    0.002890510331212649,
    -0.0011927539008921681,
    0.0005096695109266288,
    -0.00022315497916977606,
    9.945773335862882e-05,
    -4.4923712664847434e-05,
    2.0505138426006966e-05,
    -9.456360532365695e-06,
    4.3866530108045876e-06,
    -1.9741295150699606e-06,
    9.15598564215655e-07,
    -5.813128503455735e-07,
    2.829332808751588e-07,
)
# sin(pi x) / x and cos(pi x) in x * x, for |x| <= 1/2
SINPI = (
    3.141592653589793,
    -5.167712780049969,
    2.5501640398773002,
    -0.5992645293189429,
    0.0821458865730686,
    -0.007370430505570413,
    0.0004662998142975545,
    -2.190349179143555e-05,
    7.697767686720406e-07,
)
COSPI = (
    1.0,
    -4.934802200544676,
    4.058712126416497,
    -1.335262768843438,
    0.2353306301293525,
    -0.02580688873513895,
    0.0019295562621412018,
    -0.0001045665241638018,
    4.149531361999703e-06,
)
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def to_nearest_integer(x: Term) -> Term:
    """x less the nearest integer; 0 for whole numbers."""
    return x - x.op("round")


def sine_of_pi(offset: Term) -> Term:
    """sin(pi offset) for |offset| <= 1/2."""
    return offset * polynomial(offset * offset, SINPI)


@in_double
def lgamma(x: Term) -> Term:
    """log |Gamma|: a polynomial about 2, reached by steps of 1 from up to 8; Stirling's series beyond.

    Negative operands are reflected: Gamma(x) Gamma(-x) = -pi / (x sin(pi x)).
    """
    size = abs(x)
    large = size > 7.5
    # z = size + steps - 2 in [-1/2, 1/2], and the product of the factors on the way.
    low, lower = size < 1.5, size < 0.5
    z = size - select(low, select(lower, x.constant(0.0), 1.0), 2.0)
    product = select(low, select(lower, size * (size + 1), size), 1.0)
    for _ in range(5):
        above = z > 0.5
        product = select(above, product * (z + 1), product)
        z = select(above, z - 1, z)
    steps = log(select(large, size, product))
    near = fma(z, polynomial(z, LGAMMA), select(low, -steps, steps))
    inverse = 1 / size
    series = stirling(inverse, [number / (2 * k * (2 * k - 1)) for k, number in enumerate(BERNOULLI, 1)])
    far = fma(size - 0.5, steps - 1, inverse * series + (HALF_LOG_TWO_PI - 0.5))
    result = select(large, far, near)
    reflected = math.log(math.pi) - log(abs(size * sine_of_pi(to_nearest_integer(size)))) - result
    # Near zero the product of size and sine vanishes; there the function is -log(size) on both sides.
    result = select(x < -1e-100, reflected, result)
    # Zero and the negative whole numbers are poles.
    pole = (x <= 0) & x.op("round").equals(x)
    return select(pole | size.equals(math.inf), math.inf, result)


def stirling(inverse: Term, coefficients: Sequence[float]) -> Term:
    """Sum of coefficients[k] * inverse ** (2 k)."""
    return polynomial(inverse * inverse, coefficients)


@in_double
def digamma(x: Term) -> Term:
    """The asymptotic series from 8 on, the recurrence below it, reflection for negative operands."""
    negative = x < 0
    positive = select(negative, 1 - x, x)
    start = 8.0
    small = positive < start
    steps = 1 / (positive + (start - 1))
    for step in reversed(range(int(start) - 1)):
        steps = steps + 1 / (positive + float(step))
    far = select(small, positive + start, positive)
    inverse = 1 / far
    series = stirling(inverse, [number / (2 * k) for k, number in enumerate(BERNOULLI, 1)])
    result = log(far) - fma(inverse * inverse, series, 0.5 * inverse)
    result = select(small, result - steps, result)
    offset = to_nearest_integer(x)
    cotangent = polynomial(offset * offset, COSPI) / sine_of_pi(offset)
    result = select(negative, fma(cotangent, -math.pi, result), result)
    result = select(negative & x.op("round").equals(x), math.nan, result)
    return select(x.equals(0), (-x.constant(math.inf)).op("copysign", -x), select(x.equals(math.inf), x, result))


# From here on the eight terms of the series are enough for both orders.
SHIFT = 12


def derivative_of_digamma(x: Term, order: int) -> Term:
    """Up to its sign, for x > 0: order! times the sum over k of 1 / (x + k) ** (order + 1)."""
    small = x < SHIFT
    total = x.constant(0.0)
    for step in reversed(range(SHIFT)):
        inverse = 1 / (x + float(step))
        square = inverse * inverse
        total = total + (square if order == 1 else square * inverse)
    far = select(small, x + float(SHIFT), x)
    inverse = 1 / far
    square = inverse * inverse
    if order == 1:
        # 1/x + 1/(2 x^2) + sum of B_2k / x^(2k + 1)
        series = inverse * fma(stirling(inverse, BERNOULLI), square, fma(inverse, 0.5, 1.0))
        return select(small, total + series, series)
    # 1/x^2 + 1/x^3 + sum of (2k + 1) B_2k / x^(2k + 2)
    terms = [number * (2 * k + 1) for k, number in enumerate(BERNOULLI, 1)]
    series = square * fma(stirling(inverse, terms), square, inverse + 1)
    return select(small, 2 * total + series, series)


@in_double
def trigamma(x: Term) -> Term:
    """Reflected for negative operands: trigamma(x) + trigamma(1 - x) = (pi / sin(pi x)) ** 2."""
    low = x < 0
    result = derivative_of_digamma(select(low, 1 - x, x), 1)
    ratio = math.pi / sine_of_pi(to_nearest_integer(x))
    result = select(low, ratio * ratio - result, result)
    return select(x.equals(math.inf), 0.0, result)


@in_double
def tetragamma(x: Term) -> Term:
    """Reflected for negative operands: its mirror image less 2 pi ** 3 cos(pi x) / sin(pi x) ** 3."""
    low = x < 0
    result = -derivative_of_digamma(select(low, 1 - x, x), 2)
    offset = to_nearest_integer(x)
    sine = sine_of_pi(offset)
    bend = 2 * math.pi**3 * polynomial(offset * offset, COSPI) / (sine * sine * sine)
    result = select(low, result - bend, result)
    return select(x.equals(math.inf), 0.0, result)


def logaddexp(a: Term, b: Term) -> Term:
    """log(exp(a) + exp(b)); the same infinity twice has no difference, but it has a sum."""
    apart = select(a.equals(b), 0.0, a - b)
    return a.op("maximum", b) + (-abs(apart)).op("exp").op("log1p")
