"""Expansions of the normal distribution's functions: erfcx, the logarithm of its mass, and the inverse of its mass."""

from __future__ import annotations

import math

from ...ir.types import DType, f32, f64
from .bessel import good_to
from .special import erf_near, erfcx_far
from .term import Term, fma, polynomial, select, two_product
from .vecmath import exp, log, log1p

# ndtri(1/2 + d) / d in d * d, for |d| <= 1/4
NDTRI_NEAR = {
    f32: (
        2.5066282764087733,
        2.624932209668518,
        5.773237353186719,
        15.601581140673563,
        49.9350377876679,
        86.54115094998842,
        1128.9476932752468,
    ),
    f64: (
        2.5066282746310007,
        2.6249349909537885,
        5.7725335385579015,
        15.667608985213157,
        47.03578283283503,
        149.83038498881936,
        496.22559458002127,
        1692.509965043831,
        5773.200518288449,
        23425.031726858444,
        25049.35683993618,
        871360.5879241334,
        -3609931.01268876,
        21475706.505049013,
    ),
}
# ndtri(q) / -s in (s - 4) / (s + 4) with s = sqrt(-2 log(q)), for q <= 1/4
NDTRI_TAIL = {
    f32: (
        0.8502981640716976,
        0.48619608437233114,
        -0.7586604526330997,
        0.9095012660936822,
        -1.017125446123752,
        1.094924382584686,
        -1.157108848045271,
        1.2068743922151524,
        -1.2475490518390122,
        1.295567983934161,
        -1.3632593318587378,
        1.3269873244691683,
        -1.103781958497809,
        1.2797131342224222,
        -2.2397885720693522,
        2.460191977507823,
        -1.0566447919920776,
    ),
    f64: (
        0.8502981640361664,
        0.4861960814530831,
        -0.7586604273274288,
        0.9095018369203501,
        -1.0171285338571527,
        1.0948931352828433,
        -1.1569626780930395,
        1.2075859322967237,
        -1.2509412074710466,
        1.2882977867471448,
        -1.3213521707652116,
        1.3507179756878211,
        -1.3772871543826477,
        1.4013801546452758,
        -1.4234783599087943,
        1.4438745643846036,
        -1.4632953021407569,
        1.4810084286254765,
        -1.493003780077426,
        1.5038839509377124,
        -1.5456387261230002,
        1.609795169944987,
        -1.5259222391430505,
        1.2302325540235213,
        -1.3479894962581582,
        2.4703787567496804,
        -3.148680597392729,
        1.0657354251611342,
        2.0920848498354734,
        -1.275315278903337,
        -3.8022912182636204,
        7.162884671543493,
        -5.557243264565108,
        2.1668807218115944,
        -0.3504360236861572,
    ),
}


@good_to
def erfcx(x: Term, digits: DType) -> Term:
    """Beside zero exp(x * x) (1 - erf(x)); on the negative side 2 exp(x * x) less its mirror image."""
    above = x >= 0.45
    size = abs(x)
    # Beyond 27 the exponential is infinite.
    limited = select(above, 0.0, select(size > 27.0, 27.0, x))
    square, lost = two_product(limited, limited)
    growth = exp(square) * (1 + lost)
    far = erfcx_far(size, digits)
    near = growth * (1 - erf_near(limited))
    return select(above, far, select(x < -1.0, 2 * growth - far, near))


@good_to
def log_ndtr(x: Term, digits: DType) -> Term:
    """From -1 to 2/3 the logarithm of the mass; below, of the slow factor beside the exponential; above, log1p."""
    lower, upper = x < -1.0, x > 0.65
    limited = select(x > 40.0, 40.0, x)
    part = limited * math.sqrt(0.5)
    factor = 0.5 * erfcx_far(abs(part), digits)
    mass = log(select(lower, factor, fma(erf_near(select(upper, 0.0, part)), 0.5, 0.5)))
    # Where the lower mass is wanted the exponential is not, and would be denormal.
    above = select(upper, limited, 0.0)
    square, lost = two_product(above, above)
    beyond = exp(-0.5 * square) * fma(factor, -0.5 * lost, factor)
    return select(upper, log1p(-beyond), select(lower, mass - 0.5 * x * x, mass))


@good_to
def ndtri(x: Term, digits: DType) -> Term:
    """From one half within 1/4, else from the logarithm of the smaller mass. nan outside of 0 to 1."""
    offset = x - 0.5
    near = offset * polynomial(offset * offset, NDTRI_NEAR[digits])
    mass = select(offset > 0, 1 - x, x)
    root = (-2 * log(mass)).op("sqrt")
    far = root * polynomial((root - 4) / (root + 4), NDTRI_TAIL[digits])
    far = select(mass.equals(0), math.inf, far).op("copysign", offset)
    return select(abs(offset) <= 0.25, near, far)
