"""Random numbers of other distributions, by formulas over uniform and normal ones, in the shape and type of self."""

from __future__ import annotations

import math

from ..ir.errors import ArgumentError
from ..ir.symbolic import Dim
from ..ir.types import bool_, f32, i64
from . import elementary, pointwise
from .define import Scalar, Tensor, composite, zero_derivative
from .minmax import clamp_min
from .random import STREAMS, rand, randint, randn, random_bits, rrelu_with_noise_functional
from .rounding import ceil
from .view import select


def _even(self: Tensor, seed: Tensor | None, stream: int) -> Tensor:
    """Draw uniform numbers in [0, 1), in the compute type."""
    return rand(self.shape, dtype=self.dtype.compute if self.dtype.is_float else f32, seed=seed, stream=stream)


@composite
def exponential(self: Tensor, lambd: float = 1.0, *, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """Exponentially distributed with rate lambd."""
    if not lambd > 0:
        raise ArgumentError(f"lambd is {lambd}, expected more than 0")
    return pointwise.convert(-elementary.log1p(-_even(self, seed, stream)) / lambd, self.dtype)


@composite
def cauchy(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, seed: Tensor | None = None, stream: int = STREAMS
) -> Tensor:
    """Distributed by Cauchy's law around median with scale sigma."""
    turn = elementary.tan((_even(self, seed, stream) - 0.5) * math.pi)
    return pointwise.convert(turn * sigma + median, self.dtype)


@composite
def log_normal(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, seed: Tensor | None = None, stream: int = STREAMS
) -> Tensor:
    """exp of normally distributed numbers with mean and std."""
    wide = self.dtype.compute
    drawn = elementary.exp(randn(self.shape, dtype=wide, seed=seed, stream=stream) * std + mean)
    return pointwise.convert(drawn, self.dtype)


@composite
def geometric(self: Tensor, p: float, *, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """The number of trials up to the first success, each with probability p, by inversion."""
    if not 0 < p < 1:
        raise ArgumentError(f"p is {p}, expected between 0 and 1")
    drawn = ceil(elementary.log1p(-_even(self, seed, stream)) / math.log1p(-p))
    return pointwise.cast(clamp_min(drawn, 1.0), self.dtype)


@composite
def random(
    self: Tensor, low: int = 0, high: int | None = None, *, seed: Tensor | None = None, stream: int = STREAMS
) -> Tensor:
    """Whole numbers in [low, high); without high, all that the type represents exactly."""
    if high is None:
        high = _largest(self) + 1
    if high - low == 1 << 64:
        return random_bits(self.shape, seed=seed, stream=stream)
    return randint(low, high, self.shape, dtype=self.dtype, seed=seed, stream=stream)


def _largest(self: Tensor) -> int:
    """Return the largest whole number up to which a type has all of them."""
    if self.dtype is bool_:
        return 1
    if self.dtype.is_integer:
        return self.dtype.bounds[1]
    digits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
    if self.dtype.name not in digits:
        raise ArgumentError(f"self is {self.type}, expected real numbers")
    return 1 << digits[self.dtype.name]


zero_derivative(exponential, cauchy, log_normal, geometric, random)


@composite
def rrelu_with_noise(
    self: Tensor,
    noise: Tensor,
    lower: Scalar = 0.125,
    upper: Scalar = 1 / 3,
    training: bool = False,
    generator: None = None,
    *,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> Tensor:
    """self where positive, else times a random slope from lower to upper (their mean if not training)."""
    return rrelu_with_noise_functional(self, noise, lower, upper, training, seed=seed, stream=stream)[0]


# Seeds as tensors


@composite(differentiable=False)
def seed(*, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """A random whole number, for other random ops."""
    return random_bits((), seed=seed, stream=stream)


@composite(differentiable=False)
def seeds(count: Dim, *, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """Random whole numbers, for other random ops."""
    return random_bits((count,), seed=seed, stream=stream)


@composite(differentiable=False)
def lookup_seed(seeds: Tensor, index: Dim) -> Tensor:
    """One of several seeds."""
    if seeds.dtype is not i64 or seeds.ndim != 1:
        raise ArgumentError(f"seeds is {seeds.type}, expected i64 of one dimension")
    return select(seeds, 0, index)
