"""Quantisation to integers and back: per tensor, channel, token and group, and the choice of scales and zero points.

The ops are those of `torch.ops.quantized_decomposed`, and their arithmetic is PyTorch's to the last bit: per tensor and
channel the zero point is added after rounding, per token and group before; the scale is inverted once and multiplied.
"""

from __future__ import annotations

import math
from typing import Any

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.graph import Value
from ..ir.symbolic import product
from ..ir.types import DType, bf16, f16, f32, f64, i8, i16, i32, i64, u8
from .create import full, zeros_like
from .define import Scalar, Tensor, composite
from .minmax import clamp, clamp_min, maximum, minimum
from .pointwise import abs, cast, convert, ge, le, logical_and, round_off, sub, where
from .reduce import amax, amin
from .rounding import rint, rounded_product
from .shapes import dimension, equal
from .view import reshape

QUANTIZED = (u8, i8, i16, i32)
EPSILON = 2.0**-23  # of f32: the least scale of an asymmetric token
LEAST_RANGE = 1e-5  # the least magnitude of a symmetric token


def along(values: Tensor, axis: int, rank: int) -> Tensor:
    """Return a vector with one number for each channel, to be broadcast along axis."""
    return reshape(values, tuple(values.shape[0] if dim == axis else 1 for dim in range(rank)))


def single(value: Tensor, what: str) -> Tensor:
    """Return a tensor of one element without dimensions."""
    if not equal(product(value.shape), 1):
        raise ShapeError(f"{what} has shape {list(value.shape)}, expected one element")
    return reshape(value, ())


def _number(value: Tensor | Scalar, what: str) -> Any:
    """Return a parameter of a whole tensor as the number that PyTorch reads from it, in f32."""
    return cast(single(value, what), f32) if isinstance(value, Value) else value


def _inverse(scale: Tensor | Scalar) -> Any:
    """Return 1 / scale, computed in f64 and rounded to f32."""
    if isinstance(scale, Value):
        return cast(1.0 / cast(single(scale, "scale"), f64), f32)
    if not scale:
        raise ArgumentError("scale is 0, expected another number")
    return 1.0 / scale


def _full_precision(input: Tensor) -> Tensor:
    """Return an input of f16, bf16 or f32 in f32."""
    if input.dtype not in (f32, f16, bf16):
        raise DTypeError(f"input is {input.dtype}, accepted are f32, f16, bf16: cast it first")
    return convert(input, f32)


def _check_range(quant_min: Any, quant_max: Any, dtype: DType) -> None:
    """Raise unless an integer type holds the range of quantised numbers."""
    if dtype not in QUANTIZED:
        raise DTypeError(f"dtype is {dtype}, accepted are {', '.join(map(str, QUANTIZED))}")
    low, high = dtype.bounds
    for name, value in (("quant_min", quant_min), ("quant_max", quant_max)):
        if not isinstance(value, Value) and not low <= value <= high:
            raise ArgumentError(f"{name} is {value}, but {dtype} goes from {low} to {high}")


def _check_type(input: Tensor, dtype: DType) -> None:
    if input.dtype is not dtype:
        raise DTypeError(f"input is {input.dtype}, expected {dtype} (dtype)")


def _eager(value: Tensor) -> Tensor:
    """Return a result of f16 or bf16 rounded to its type at once, as eager code does."""
    return value if value.dtype.compute is value.dtype else round_off(value)


# Per tensor


@composite(differentiable=False)
def quantize_per_tensor(
    input: Tensor,
    scale: Tensor | Scalar,
    zero_point: Tensor | Scalar,
    quant_min: Tensor | Scalar,
    quant_max: Tensor | Scalar,
    dtype: DType,
) -> Tensor:
    """round(input * (1 / scale)) + zero_point, kept within quant_min and quant_max, as dtype."""
    _check_range(quant_min, quant_max, dtype)
    steps = rint(_full_precision(input) * _inverse(scale)) + _number(zero_point, "zero_point")
    return cast(clamp(steps, _number(quant_min, "quant_min"), _number(quant_max, "quant_max")), dtype)


@composite
def dequantize_per_tensor(
    input: Tensor,
    scale: Tensor | Scalar,
    zero_point: Tensor | Scalar,
    quant_min: Tensor | Scalar,
    quant_max: Tensor | Scalar,
    dtype: DType,
    *,
    out_dtype: DType | None = None,
) -> Tensor:
    """(input - zero_point) * scale, in out_dtype (f32)."""
    _check_type(input, dtype)
    wanted = out_dtype or f32
    return sub(cast(input, wanted), _number(zero_point, "zero_point")) * _number(scale, "scale")


@composite(differentiable=False)
def choose_qparams(input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: DType) -> tuple[Tensor, Tensor]:
    """The scale, at least eps, and the zero point that map the range of input to that of quant_min and quant_max."""
    low, high, is_valid = _extremes(input, quant_min, quant_max)
    scale = maximum(_eager(_eager(high - low) / float(quant_max - quant_min)), full((1,), eps, dtype=f32))
    zero_point = clamp(quant_min - cast(rint(low / scale), i32), quant_min, quant_max)
    return _parameters(scale, zero_point, is_valid)


@composite(differentiable=False)
def choose_qparams_symmetric(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: DType
) -> tuple[Tensor, Tensor]:
    """The scale, at least eps, that maps the magnitudes of input to half the range, and the middle of dtype."""
    low, high, is_valid = _extremes(input, quant_min, quant_max)
    scale = maximum(_eager(maximum(-low, high) / (float(quant_max - quant_min) / 2)), full((1,), eps, dtype=f32))
    return _parameters(scale, full((1,), 128 if dtype is u8 else 0, dtype=i64), is_valid)


def _extremes(input: Tensor, quant_min: int, quant_max: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the least and the largest number of input and of 0, and whether neither is an infinity that no finite
    number was compared with."""
    if input.dtype not in (f32, f16, bf16):
        raise DTypeError(f"input is {input.dtype}, accepted are f32, f16, bf16: cast it first")
    if quant_min >= quant_max:
        raise ArgumentError(f"quant_min is {quant_min}, expected less than quant_max ({quant_max})")
    low, high = amin(input), amax(input)
    is_valid = logical_and(low < math.inf, high > -math.inf)
    return minimum(low, zeros_like(low)), maximum(high, zeros_like(high)), is_valid


def _parameters(scale: Tensor, zero_point: Tensor, is_valid: Tensor) -> tuple[Tensor, Tensor]:
    """Return a scale and a zero point in f64 and i64; 1 and 0 if the range of numbers is not valid."""
    return where(is_valid, cast(scale, f64), 1.0), where(is_valid, cast(zero_point, i64), 0)


# Per channel


@composite(differentiable=False)
def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: DType
) -> Tensor:
    """As quantize_per_tensor, with a scale and a zero point for each place along axis."""
    _check_range(quant_min, quant_max, dtype)
    axis = dimension(axis, input.ndim)
    scales, zero_points = along(scales, axis, input.ndim), along(zero_points, axis, input.ndim)
    steps = rint(_full_precision(input) * (1.0 / scales)) + zero_points
    return cast(clamp(steps, quant_min, quant_max), dtype)


@composite
def dequantize_per_channel(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: DType,
    *,
    out_dtype: DType | None = None,
) -> Tensor:
    """As dequantize_per_tensor, with a scale and a zero point for each place along axis."""
    _check_type(input, dtype)
    axis = dimension(axis, input.ndim)
    # The difference is in the promoted type of input and zero_points, as in PyTorch: it wraps in a narrow one.
    moved = input if zero_points is None else input - along(zero_points, axis, input.ndim)
    return convert(moved * along(scales, axis, input.ndim), out_dtype or f32)


@composite
def fake_quant_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """input quantised and dequantised, with a scale and a zero point for each place along axis."""
    scales, zero_points, steps = _channel_steps(input, scales, zero_points, axis)
    return (clamp(steps, quant_min, quant_max) - zero_points) * scales


def _channel_steps(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    if input.dtype is not f32:
        raise DTypeError(f"input is {input.dtype}, expected f32: cast it first")
    axis = dimension(axis, input.ndim)
    scales = along(cast(scales, f32), axis, input.ndim)
    zero_points = along(cast(zero_points, i32), axis, input.ndim)
    return scales, zero_points, rint(input * (1.0 / scales)) + zero_points


@fake_quant_per_channel.vjp
def fake_quant_per_channel_vjp(grad, input, scales, zero_points, axis, quant_min, quant_max):
    steps = _channel_steps(input, scales, zero_points, axis)[2]
    return grad * logical_and(ge(steps, quant_min), le(steps, quant_max)), None, None


@fake_quant_per_channel.jvp
def fake_quant_per_channel_jvp(input_tangent, input, scales, zero_points, axis, quant_min, quant_max):
    return fake_quant_per_channel_vjp(input_tangent, input, scales, zero_points, axis, quant_min, quant_max)[0]


# Per token: a scale and a zero point for each vector along the last dimension


@composite(differentiable=False)
def choose_qparams_per_token(input: Tensor, dtype: DType) -> tuple[Tensor, Tensor]:
    """The scale of each token that maps its magnitudes to dtype (i8), and 0."""
    if dtype is not i8:
        raise DTypeError(f"dtype is {dtype}, expected i8")
    largest = amax(abs(input), -1, True)
    scales = _eager(clamp_min(cast(largest, f32) if largest.dtype is f16 else largest, LEAST_RANGE) / 127)
    return scales, zeros_like(scales)


@composite(differentiable=False)
def choose_qparams_per_token_asymmetric(input: Tensor, dtype: DType) -> tuple[Tensor, Tensor]:
    """The scale and the zero point of each token that map its range to -128..127."""
    low, high = amin(input, -1, True), amax(input, -1, True)
    low, high = minimum(low, zeros_like(low)), maximum(high, zeros_like(high))
    scale = _eager(clamp_min(_eager(_eager(high - low) / 255.0), EPSILON))
    below, above = _eager(low / scale), _eager(high / scale)
    # The end with the smaller error is kept exact.
    upper = _eager(_eager(-128 + below) + _eager(127 + above)) > 0
    zero_point = _eager(where(upper, -128 - below, 127 - above))
    return cast(scale, f64), cast(rint(clamp(zero_point, -128, 127)), i64)


@composite(differentiable=False)
def _choose_qparams_per_token_asymmetric_impl(input: Tensor, dtype: DType) -> tuple[Tensor, Tensor]:
    """The scale and the zero point of each token that map its range to -128..127."""
    return choose_qparams_per_token_asymmetric(input, dtype)


@composite(differentiable=False)
def quantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: DType
) -> Tensor:
    """round(input * (1 / scales) + zero_points), kept within quant_min and quant_max, as dtype."""
    _check_range(quant_min, quant_max, dtype)
    _check_tokens(input, scales, zero_points)
    steps = rint(rounded_product(input, 1.0 / scales) + zero_points)
    return cast(clamp(steps, quant_min, quant_max), dtype)


@composite
def dequantize_per_token(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: DType,
    output_dtype: DType = f32,
) -> Tensor:
    """(input - zero_points) * scales, as output_dtype."""
    return convert((input - zero_points) * scales, output_dtype)


def _check_tokens(input: Tensor, scales: Tensor, zero_points: Tensor) -> None:
    count = product(input.shape[:-1])
    for name, value in (("scales", scales), ("zero_points", zero_points)):
        if not equal(product(value.shape), count):
            raise ShapeError(f"{name} has {product(value.shape)} elements, expected {count} (the tokens of input)")


# Per group of group_size elements of a matrix's row


@composite(differentiable=False)
def quantize_per_channel_group(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: DType,
    group_size: int = 128,
) -> Tensor:
    """As quantize_per_token, with a scale and a zero point for each group_size elements of a row."""
    groups = _groups(input, scales, group_size)
    steps = rint(rounded_product(groups, 1.0 / reshape(scales, (-1, 1))) + reshape(zero_points, (-1, 1)))
    return reshape(cast(clamp(steps, quant_min, quant_max), dtype), input.shape)


@composite
def dequantize_per_channel_group(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    quant_min: int,
    quant_max: int,
    dtype: DType,
    group_size: int = 128,
    output_dtype: DType = f32,
) -> Tensor:
    """As dequantize_per_token, with a scale and a zero point for each group_size elements of a row."""
    groups = _groups(input, scales, group_size)
    moved = cast(groups, i32) if zero_points is None else groups - reshape(zero_points, (-1, 1))
    return convert(reshape(moved * reshape(scales, (-1, 1)), input.shape), output_dtype)


def _groups(input: Tensor, scales: Tensor, group_size: int) -> Tensor:
    """Return a matrix as rows of one group each."""
    if input.ndim != 2:
        raise ShapeError(f"operand 0 has {input.ndim} dimensions, expected 2")
    if group_size <= 1:
        raise ArgumentError(f"group_size is {group_size}, expected more than 1")
    columns = input.shape[1]
    if equal(scales.shape[-1], 1) and isinstance(columns, int) and group_size > columns:
        group_size = columns
    return reshape(input, (-1, group_size))
