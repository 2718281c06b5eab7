"""Random numbers by rejection: of gamma, Dirichlet's, Poisson's and the binomial distribution.

A rejection sampler makes proposals until one is accepted. Here the number of proposals is fixed, so that the code is
straight and vectorises, and each element has the same numbers for any number of threads. ATTEMPTS is so large that all
are rejected less often than once in 10**14 numbers; then the last proposal counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..ir.errors import ArgumentError
from ..ir.types import DType, f64
from .create import full
from .define import Tensor, composite, zero_derivative
from .elementary import cos, exp, log, log1p, pow, sqrt
from .minmax import clamp_min, maximum, minimum
from .pointwise import (
    abs,
    bitwise_and,
    bitwise_right_shift,
    cast,
    convert,
    ge,
    gt,
    isnan,
    le,
    logical_and,
    logical_not,
    logical_or,
    lt,
    where,
    widen,
)
from .random import STREAMS, random_bits
from .reduce import sum as total
from .rounding import floor
from .shapes import broadcast
from .special import digamma, lgamma
from .view import expand, select

# Marsaglia's and Tsang's proposals for shapes of at least 1 are accepted with probability 0.95 and more, Hörmann's for
# Poisson's and binomial distributions of mean 10 and more with 0.85 and more.
GAMMA_ATTEMPTS = 12
COUNT_ATTEMPTS = 18
INVERSION = 10.0  # the mean below which counts are found by inversion of one number
STEPS = 48  # counts that inversion tells apart: more have a probability of 1e-16 at a mean of 10


class Draws:
    """Uniform and normal numbers for each element: `count` words of 64 random bits, read one after the other."""

    def __init__(self, like: Tensor, count: int, dtype: DType, seed: Tensor | None, stream: int):
        self.bits = random_bits((count, *like.shape), seed=seed, stream=stream)
        self.dtype = dtype
        self.next = 0

    def _word(self) -> Tensor:
        self.next += 1
        return select(self.bits, 0, self.next - 1)

    def uniform(self) -> Tensor:
        """Return numbers in (0, 1)."""
        digits = 52 if self.dtype is f64 else 23
        kept = bitwise_and(bitwise_right_shift(self._word(), 63 - digits), (1 << digits) - 1)
        return (cast(kept, self.dtype) + 0.5) * 2.0**-digits

    def normal(self) -> Tensor:
        """Return normally distributed numbers, by the Box-Muller transform of the halves of a word."""
        word = self._word()
        low, high = bitwise_and(word, (1 << 32) - 1), bitwise_and(bitwise_right_shift(word, 40), (1 << 24) - 1)
        radius = sqrt(log((cast(low, self.dtype) + 1) * 2.0**-32) * -2)
        return radius * cos(cast(high, self.dtype) * (2 * math.pi * 2.0**-24))


def _check_float(value: Tensor, name: str) -> None:
    if not value.dtype.is_float:
        raise ArgumentError(f"{name} is {value.type}, expected a float type")


# Gamma


def _gamma(shape: Tensor, draws: Draws) -> Tensor:
    """Return numbers of the gamma distribution of scale 1."""
    # A shape below 1 is one more, times a power of a uniform number.
    is_small = lt(shape, 1)
    third = where(is_small, shape + 1, shape) - 1 / 3
    scale = 1 / sqrt(third * 9)
    found = accepted = None
    for _ in range(GAMMA_ATTEMPTS):
        normal, even = draws.normal(), draws.uniform()
        root = normal * scale + 1
        cube = where(gt(root, 0), root * root * root, 1)
        fits = logical_and(gt(root, 0), lt(log(even), normal * normal * 0.5 + third * (1 - cube + log(cube))))
        if found is None or accepted is None:
            found, accepted = cube, fits
        else:
            found, accepted = where(accepted, found, cube), logical_or(accepted, fits)
    assert found is not None
    boost = where(is_small, pow(draws.uniform(), 1 / where(is_small, shape, 1)), 1)
    return found * third * boost


@composite
def _standard_gamma(self: Tensor, *, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """Distributed by the gamma distribution of shape self and scale 1."""
    _check_float(self, "self")
    value = widen(self)
    drawn = _gamma(value, Draws(self, 2 * GAMMA_ATTEMPTS + 1, value.dtype, seed, stream))
    # The smallest number of the type in place of 0, whose logarithm is infinite.
    return clamp_min(convert(drawn, self.dtype), _TINY[self.dtype.name])


_TINY = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}


@_standard_gamma.vjp
def _standard_gamma_vjp(grad, result, self):
    return {"self": grad * _standard_gamma_grad(self, result)}


# Coefficients of powers of log(x / shape) and log(shape), in the numerator and the denominator: the rational
# approximation that PyTorch uses.
_RATIO = (
    (0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1, 0.32668115, 0.10406089, 0.0014179084),
    (0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623),
    (0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-7),  # noqa: E501
)  # fmt: skip


def _small_gamma_slope(shape: Tensor, x: Tensor) -> Tensor:
    """Return the slope for a small x, by the power series of the distribution function."""
    numerator: float | Tensor = 1.0
    first, second = 1 / shape, 1 / (shape * shape)
    for place in range(1, 6):
        numerator = numerator * (-x / place)
        below = shape + place
        first = first + numerator / below
        second = second + numerator / (below * below)
    power = pow(x, shape)
    density = pow(x, shape - 1) * exp(-x)
    by_shape = (log(x) - digamma(shape)) * power * first - power * second
    found = -by_shape / density
    return where(isnan(found), 0, found)


def _large_gamma_slope(shape: Tensor, x: Tensor) -> Tensor:
    """Return the slope for a large shape, by Rice's saddle point expansion."""
    square = shape * shape
    left = shape * 24 * (shape * 12 + 1) + 1
    right = square * 1440 + x * 6 * (53 - x * 120) - x * x * 65 / shape + shape * (x * 3600 + 107)
    near = left * right / (square * square * 1244160)
    is_near = logical_and(le(shape * 0.9, x), le(x, shape * 1.1))
    # The expansion has a pole at x = shape.
    apart = where(is_near, shape * 2, x)
    ratio, gap = log(apart / shape), shape - apart
    root = sqrt(shape * 8)
    tail = pow(apart - shape - shape * ratio, -1.5)
    inner = root / gap + where(lt(apart, shape), -tail, tail)
    first = ratio * inner - sqrt(2 / shape) * (shape + apart) / (gap * gap)
    stirling = 1 + 1 / (shape * 12) * (1 + 1 / (shape * 24))
    return where(is_near, near, -stirling * apart * first / root)


def _middle_gamma_slope(shape: Tensor, x: Tensor) -> Tensor:
    u, v = log(x / shape), log(shape)
    terms = [low + u * (middle + u * high) for low, middle, high in zip(*_RATIO)]
    above, below = (part[0] + v * (part[1] + v * (part[2] + v * part[3])) for part in (terms[:4], terms[4:]))
    return exp(above / below)


@composite(differentiable=False)
def _standard_gamma_grad(self: Tensor, output: Tensor) -> Tensor:
    """The derivative of a number of the gamma distribution by the shape self, along its quantile."""
    _check_float(self, "self")
    # Sums of a few large terms: f32 would keep five digits of them.
    shape, x = convert(self, f64), convert(output, f64)
    is_small, is_large = lt(x, 0.8), gt(shape, 8)
    small = _small_gamma_slope(shape, where(is_small, x, 0.5))
    large = _large_gamma_slope(where(is_large, shape, 9), where(is_small, 1, x))
    middle = _middle_gamma_slope(where(is_large, 1, shape), where(is_small, 1, x))
    return convert(where(is_small, small, where(is_large, large, middle)), self.dtype)


@composite(differentiable=False)
def _sample_dirichlet(self: Tensor, *, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """Distributed by Dirichlet's distribution of concentrations self along the last dimension."""
    drawn = widen(_standard_gamma(self, seed=seed, stream=stream))
    return convert(drawn / total(drawn, -1, True), self.dtype)


# Counts


def _inverted(even: Tensor, first: Tensor, ratio_of: Callable[[int], Tensor]) -> Tensor:
    """Return the count at which the sum of probabilities reaches a uniform number; they are given as the first, and as
    the ratio of each to the one before."""
    probability = reached = first
    found = full(even.shape, 0, dtype=even.dtype)
    for step in range(1, STEPS):
        found = where(gt(even, reached), float(step), found)
        probability = probability * ratio_of(step)
        reached = reached + probability
    return found


def _poisson(mean: Tensor, draws: Draws) -> Tensor:
    """Return counts of Poisson's distribution: by inversion for small means, by transformed rejection for others."""
    is_small = lt(mean, INVERSION)
    little = where(is_small, mean, 1)
    few = _inverted(draws.uniform(), exp(-little), lambda step: little / step)
    large = where(is_small, INVERSION, mean)
    b = sqrt(large) * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    height = 0.9277 - 3.6224 / (b - 2)
    logarithm = log(large)
    found = accepted = None
    for _ in range(COUNT_ATTEMPTS):
        u, v = draws.uniform() - 0.5, draws.uniform()
        us = 0.5 - abs(u)
        count = floor((a * 2 / us + b) * u + large + 0.43)
        whole = maximum(count, 0)
        # Far in the tail, the bound of the hat is not one: such proposals are rejected.
        possible = logical_and(ge(count, 0), logical_not(logical_and(lt(us, 0.013), gt(v, us))))
        exact = le(log(v * inverse / (a / (us * us) + b)), whole * logarithm - large - lgamma(whole + 1))
        quick = logical_and(ge(us, 0.07), le(v, height))
        fits = logical_or(quick, logical_and(possible, exact))
        if found is None or accepted is None:
            found, accepted = whole, fits
        else:
            found, accepted = where(accepted, found, whole), logical_or(accepted, fits)
    assert found is not None
    return where(is_small, few, found)


@composite
def poisson(self: Tensor, *, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """Counts of Poisson's distribution with mean self; a negative mean or NaN gives NaN."""
    _check_float(self, "self")
    mean = cast(self, f64)  # logarithms of factorials are large: f32 has no digits left for their differences
    is_mean = ge(mean, 0)
    drawn = _poisson(where(is_mean, mean, 1), Draws(self, 2 * COUNT_ATTEMPTS + 1, mean.dtype, seed, stream))
    return convert(where(is_mean, drawn, float("nan")), self.dtype)


def _binomial(count: Tensor, chance: Tensor, draws: Draws) -> Tensor:
    """Return counts of the binomial distribution with chances of at most a half."""
    mean = count * chance
    is_small = lt(mean, INVERSION)
    rest = 1 - chance
    odds = chance / rest
    trials = where(is_small, count, 1)
    few = _inverted(
        draws.uniform(), exp(trials * log1p(-chance)), lambda step: odds * clamp_min(trials - (step - 1), 0) / step
    )
    # Stands for all elements that inversion has: any distribution that the sampler takes.
    many, likely = where(is_small, 40, count), where(is_small, 0.5, chance)
    deviation = sqrt(many * likely * (1 - likely))
    b = deviation * 2.53 + 1.15
    a = b * 0.0248 + likely * 0.01 - 0.0873
    center = many * likely + 0.5
    height = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * deviation
    mode = floor((many + 1) * likely)
    logarithm = log(likely / (1 - likely))
    at_mode = lgamma(mode + 1) + lgamma(many - mode + 1)
    found = accepted = None
    for _ in range(COUNT_ATTEMPTS):
        u, v = draws.uniform() - 0.5, draws.uniform()
        us = 0.5 - abs(u)
        proposal = floor((a * 2 / us + b) * u + center)
        possible = logical_and(ge(proposal, 0), le(proposal, many))
        whole = minimum(maximum(proposal, 0), many)
        quick = logical_and(ge(us, 0.07), le(v, height))
        exact = le(
            log(v * alpha / (a / (us * us) + b)),
            at_mode - lgamma(whole + 1) - lgamma(many - whole + 1) + (whole - mode) * logarithm,
        )
        fits = logical_and(possible, logical_or(quick, exact))
        if found is None or accepted is None:
            found, accepted = whole, fits
        else:
            found, accepted = where(accepted, found, whole), logical_or(accepted, fits)
    assert found is not None
    return where(is_small, minimum(few, count), found)


@composite
def binomial(count: Tensor, prob: Tensor, *, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """Numbers of successes among count trials, each with probability prob; NaN if there is no such distribution."""
    _check_float(count, "count")
    _check_float(prob, "prob")
    shape = broadcast([count.shape, prob.shape])
    trials, chance = (expand(cast(item, f64), shape) for item in (count, prob))
    is_one = logical_and(ge(trials, 0), logical_and(ge(chance, 0), le(chance, 1)))
    trials, chance = where(is_one, floor(trials), 1), where(is_one, chance, 0.5)
    is_likely = gt(chance, 0.5)
    draws = Draws(trials, 2 * COUNT_ATTEMPTS + 1, trials.dtype, seed, stream)
    drawn = _binomial(trials, where(is_likely, 1 - chance, chance), draws)
    found = where(is_likely, trials - drawn, drawn)
    return convert(where(is_one, found, float("nan")), count.dtype)


zero_derivative(poisson, binomial)
