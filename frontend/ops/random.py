"""Random numbers: a pure function of a seed, of the op (its stream) and of the element's index.

Every random op is composed of one `random_bits`. The seed is a tensor of two integers, the key and an offset; by
default it is `seed_state`, which tracing replaces by a hidden parameter that advances with each call. The stream is
fixed when the op is made, so that a composite and its derivative, which both expand its body, see the same numbers, and
different ops see different ones.
"""

from __future__ import annotations

import math
from typing import Any

from ..ir.errors import ArgumentError
from ..ir.symbolic import Dim
from ..ir.types import DType, TensorType, bool_, f32, f64, i64
from . import activation, elementary, pointwise
from .create import full, number_of
from .define import Scalar, Size, Tensor, composite, prim, zero_derivative
from .kinds import Arguments, ElementBuilder, Generate, Index
from .shapes import broadcast
from .streams import Streams
from .view import expand

STREAMS: Any = Streams()

# Random bits of a number in [0, 1): the precision of its type near 1.
DIGITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}


def _zero_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    return builder.constant(0, i64)


@prim(Generate(lambda a: TensorType(i64, (2,)), _zero_element), differentiable=False)
def seed_state() -> Tensor:
    """The key and the offset of this call: zeros unless tracing puts a parameter in its place."""


def _bits_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    seed = arguments["seed"]
    place: Any = 0
    for position, size in zip(index, arguments["size"]):
        place = place * size + position
    key, offset = builder.load(seed, (0,)), builder.load(seed, (1,))
    return builder.scalar("philox", key, offset, builder.constant(arguments["stream"], i64), builder.index(place))


@prim(Generate(lambda a: TensorType(i64, a["size"]), _bits_element), differentiable=False)
def random_bits(size: Size, *, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """64 random bits for each element, by Philox 4x32-10."""
    if seed is None:
        return {"seed": seed_state()}
    if seed.dtype is not i64 or seed.shape != (2,):
        raise ArgumentError(f"seed is {seed.type}, expected i64[2]: a key and an offset")
    return None


def _fraction(bits: Tensor, digits: int, dtype: DType) -> Tensor:
    """Convert the upper bits to a number in [0, 1)."""
    kept = pointwise.bitwise_and(pointwise.bitwise_right_shift(bits, 64 - digits), (1 << digits) - 1)
    return pointwise.cast(kept, dtype) * 2.0**-digits


def _check_float(dtype: DType) -> DType:
    if not dtype.is_float:
        raise ArgumentError(f"dtype is {dtype}, expected a float type")
    return dtype


@composite(differentiable=False)
def rand(size: Size, *, dtype: DType | None = None, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """Uniformly distributed in [0, 1)."""
    wanted = _check_float(dtype or f32)
    return pointwise.cast(
        _fraction(random_bits(size, seed=seed, stream=stream), DIGITS[wanted.name], wanted.compute), wanted
    )


@composite(differentiable=False)
def randn(size: Size, *, dtype: DType | None = None, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """Normally distributed with mean 0 and deviation 1, by the Box-Muller transform."""
    wanted = _check_float(dtype or f32)
    working = wanted.compute
    bits = random_bits(size, seed=seed, stream=stream)
    word = (1 << 32) - 1
    # Never 0, whose logarithm is infinite.
    radius = (pointwise.cast(pointwise.bitwise_and(bits, word), working) + 1) * 2.0**-32
    turn = _fraction(bits, 32 if working is f64 else 24, working)
    result = elementary.sqrt(elementary.log(radius) * -2) * elementary.cos(turn * (2 * math.pi))
    return pointwise.cast(result, wanted)


@composite(differentiable=False)
def rand_like(self: Tensor, *, dtype: DType | None = None, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """rand in the shape and type of self."""
    return rand(self.shape, dtype=dtype or self.dtype, seed=seed, stream=stream)


@composite(differentiable=False)
def randn_like(
    self: Tensor, *, dtype: DType | None = None, seed: Tensor | None = None, stream: int = STREAMS
) -> Tensor:
    """randn in the shape and type of self."""
    return randn(self.shape, dtype=dtype or self.dtype, seed=seed, stream=stream)


@composite(differentiable=False)
def randint(
    low: Dim,
    high: Dim,
    size: Size,
    *,
    dtype: DType | None = None,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> Tensor:
    """Integers uniformly distributed in [low, high)."""
    count = high - low
    if isinstance(count, int) and count <= 0:
        raise ArgumentError(f"high is {high}, expected more than low, which is {low}")
    bits = random_bits(size, seed=seed, stream=stream)
    if isinstance(count, int) and count <= 1 << 31:
        # The upper half of a 64-bit product: no division, negligible bias.
        word = pointwise.bitwise_and(bits, (1 << 32) - 1)
        place = pointwise.bitwise_right_shift(word * count, 32)
    else:
        place = pointwise.remainder(pointwise.bitwise_and(bits, (1 << 63) - 1), number_of(count, i64))
    return pointwise.cast(place + number_of(low, i64), dtype or i64)


@composite
def bernoulli(
    self: Tensor, p: Tensor | Scalar | None = None, *, seed: Tensor | None = None, stream: int = STREAMS
) -> Tensor:
    """1 with probability self (or p), else 0."""
    working = self.dtype.compute if self.dtype.is_float else f32
    drawn = rand(self.shape, dtype=working, seed=seed, stream=stream)
    chance = self if p is None else p
    if isinstance(chance, Tensor):
        chance = expand(pointwise.cast(chance, working), self.shape)
    return pointwise.cast(drawn < chance, self.dtype)


@composite
def uniform(
    self: Tensor, low: float = 0.0, high: float = 1.0, *, seed: Tensor | None = None, stream: int = STREAMS
) -> Tensor:
    """Uniformly distributed in [low, high), in the shape and type of self."""
    drawn = rand(self.shape, dtype=self.dtype, seed=seed, stream=stream)
    return drawn * (high - low) + low


@composite
def normal_functional(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, seed: Tensor | None = None, stream: int = STREAMS
) -> Tensor:
    """Normally distributed with mean and std, in the shape and type of self."""
    return randn(self.shape, dtype=self.dtype, seed=seed, stream=stream) * std + mean


zero_derivative(bernoulli, uniform, normal_functional)


@composite
def normal(
    mean: Tensor | Scalar,
    std: Tensor | Scalar = 1.0,
    size: Size = (),
    *,
    dtype: DType | None = None,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> Tensor:
    """Normally distributed with mean and std, of size or of the shape that these have together."""
    given = [item for item in (mean, std) if isinstance(item, Tensor)]
    shape = broadcast([item.shape for item in given]) if given else size
    return randn(shape, dtype=dtype or (given[0].dtype if given else f32), seed=seed, stream=stream) * std + mean


@composite
def native_dropout(
    input: Tensor, p: float, train: bool | None = True, *, seed: Tensor | None = None, stream: int = STREAMS
) -> tuple[Tensor, Tensor]:
    """input with elements zeroed with probability p and the others scaled by 1 / (1 - p), and the mask."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"p is {p}, expected 0 to 1")
    if train is False or p == 0:
        return input.alias(), full(input.shape, True, dtype=bool_)
    if p == 1:
        return full(input.shape, 0, dtype=input.dtype), full(input.shape, False, dtype=bool_)
    kept = rand(input.shape, dtype=f32, seed=seed, stream=stream) >= p
    return pointwise.where(kept, input * (1 / (1 - p)), 0), kept


@native_dropout.vjp
def native_dropout_vjp(grads, results, p, train):
    scale = 1.0 if train is False or p == 0 else 0.0 if p == 1 else 1 / (1 - p)
    return {"input": native_dropout_backward(grads[0], results[1], scale)}


@composite
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """grad_output scaled where the mask holds, zero elsewhere."""
    return pointwise.where(mask, grad_output * scale, 0)


@composite
def dropout(
    input: Tensor, p: float = 0.5, train: bool = True, *, seed: Tensor | None = None, stream: int = STREAMS
) -> Tensor:
    """input with elements zeroed with probability p and the others scaled by 1 / (1 - p), if training."""
    if not train:
        return input.alias()
    return native_dropout(input, p, True, seed=seed, stream=stream)[0]


@composite
def rrelu_with_noise_functional(
    self: Tensor,
    noise: Tensor,
    lower: Scalar = 0.125,
    upper: Scalar = 1 / 3,
    training: bool = False,
    generator: None = None,
    *,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> tuple[Tensor, Tensor]:
    """self where positive, else times a random slope from lower to upper (their mean if not training); the slopes."""
    if not training:
        return activation.leaky_relu(self, (lower + upper) / 2), noise.alias()  # type: ignore[operator]
    slopes = uniform(self, lower, upper, seed=seed, stream=stream)
    slopes = pointwise.where(self <= 0, slopes, 1.0)
    return self * slopes, pointwise.convert(slopes, noise.dtype)


@rrelu_with_noise_functional.vjp
def rrelu_with_noise_functional_vjp(grads, results, self, lower, upper, training):
    return {"self": rrelu_with_noise_backward(grads[0], self, results[1], lower, upper, training, False)}


@composite
def rrelu_with_noise_backward(
    grad_output: Tensor,
    self: Tensor,
    noise: Tensor,
    lower: Scalar,
    upper: Scalar,
    training: bool,
    self_is_result: bool,
) -> Tensor:
    """grad_output times the slopes of rrelu_with_noise_functional."""
    if training and upper - lower > 1e-6:  # type: ignore[operator]
        return grad_output * noise
    return activation.leaky_relu_backward(grad_output, self, (lower + upper) / 2, self_is_result)  # type: ignore[operator]
