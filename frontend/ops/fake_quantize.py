"""Fake quantisation: floats rounded to the numbers that an integer type with a scale and a zero point can hold.

The gradient passes where the number is within the range (the straight-through estimator); the learnable forms have
gradients by scale and zero point, too. The arithmetic is that of PyTorch's kernels: f32 but for what a product in f64
rounds once, the inverse of the scale in f32, NaN as the least number.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ShapeError
from ..ir.graph import Value
from ..ir.types import DType, f32, f64, i32, i64
from .create import ones_like
from .define import Scalar, Tensor, composite
from .minmax import clamp
from .pointwise import (
    abs,
    added,
    cast,
    convert,
    ge,
    gt,
    isinf,
    le,
    logical_and,
    logical_not,
    logical_or,
    lt,
    ne,
    times,
    where,
)
from .quantize import along, single
from .reduce import amax, amin, total_over
from .rounding import rint, rounded_product, trunc
from .shapes import dimension, equal
from .view import reshape

EXACT = 2**23  # differences of integers up to this are exact in f32
SMALL_SCALE = float(np.float32(6.1e-5))  # a smaller scale of an observer is replaced by this


def _check_bounds(quant_min: int, quant_max: int) -> None:
    if quant_min > quant_max:
        raise ArgumentError(f"quant_min is {quant_min}, expected at most quant_max ({quant_max})")


def _within(steps: Tensor, quant_min: int, quant_max: int) -> Tensor:
    return logical_and(ge(steps, quant_min), le(steps, quant_max))


def _bounded(steps: Tensor, quant_min: int, quant_max: int) -> Tensor:
    """Return steps kept within the range; NaN becomes quant_min."""
    raised = where(gt(steps, quant_min), steps, quant_min)
    return where(lt(raised, quant_max), raised, quant_max)


def _levels(steps: Tensor, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    """Return the bounded steps less the zero point, rounded to f32 once."""
    exact = f32 if max(-quant_min, quant_max) <= EXACT else f64
    return cast(_bounded(cast(steps, exact), quant_min, quant_max) - _as(zero_point, exact), f32)


def _as(value: Any, dtype: DType) -> Any:
    return convert(value, dtype) if isinstance(value, Value) else value


def _per_tensor(self: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> tuple[Tensor, Tensor]:
    """Return self fake-quantised, and the mask of numbers in range; scale and zero_point are numbers or 0-dim f32."""
    working = self.dtype.compute
    if isinstance(scale, Value):
        inverse: Any = convert(1.0 / scale, working)
    else:
        scale = float(np.float32(scale))
        inverse = float(np.float32(1.0) / np.float32(scale)) if scale else float("inf")
    steps = rint(convert(self, working) * inverse) + _as(zero_point, working)
    result = _levels(steps, zero_point, quant_min, quant_max) * scale
    return convert(result, self.dtype), _within(steps, quant_min, quant_max)


def _fused(left: Tensor, right: Tensor, other: Tensor) -> Tensor:
    """Return left * right + other rounded to f32 once, as the fused multiply-add that PyTorch's kernels have there."""
    return cast(cast(left, f64) * cast(right, f64) + cast(other, f64), f32)


def _masked(grads: Any, results: Sequence[Tensor]) -> Tensor | None:
    return None if grads.known(0) is None else grads[0] * results[1]


def _masked_tangent(tangent: Tensor | None, results: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    return (None if tangent is None else tangent * results[1], *(None for _ in results[1:]))


# Per tensor


@composite
def fake_quantize_per_tensor_affine_cachemask(
    self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """(clamp(round(self / scale) + zero_point, quant_min, quant_max) - zero_point) * scale, and a mask of its range."""
    _check_bounds(quant_min, quant_max)
    if not quant_min <= zero_point <= quant_max:
        raise ArgumentError(f"zero_point is {zero_point}, expected {quant_min} to {quant_max}")
    return _per_tensor(self, scale, zero_point, quant_min, quant_max)


@fake_quantize_per_tensor_affine_cachemask.vjp
def fake_quantize_per_tensor_affine_cachemask_vjp(grads, results):
    return _masked(grads, results)


@fake_quantize_per_tensor_affine_cachemask.jvp
def fake_quantize_per_tensor_affine_cachemask_jvp(self_tangent, results):
    return _masked_tangent(self_tangent, results)


@composite
def fake_quantize_per_tensor_affine_cachemask_backward(grad: Tensor, mask: Tensor) -> Tensor:
    """grad where mask holds, 0 elsewhere."""
    return grad * mask


@composite
def _fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
    self: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """fake_quantize_per_tensor_affine_cachemask with tensors of one element; self where fake_quant_enabled is 0."""
    _check_bounds(quant_min, quant_max)
    steps = cast(cast(single(zero_point, "zero_point"), i32), f32)
    result, mask = _per_tensor(self, cast(single(scale, "scale"), f32), steps, quant_min, quant_max)
    enabled = ne(cast(single(fake_quant_enabled, "fake_quant_enabled"), i32), 0)
    return where(enabled, result, self), logical_or(mask, logical_not(enabled))


@_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.vjp
def _fake_quantize_per_tensor_affine_cachemask_tensor_qparams_vjp(grads, results):
    return {"self": _masked(grads, results)}


@_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.jvp
def _fake_quantize_per_tensor_affine_cachemask_tensor_qparams_jvp(self_tangent, results):
    return _masked_tangent(self_tangent, results)


@composite
def fake_quantize_per_tensor_affine(
    self: Tensor, scale: Tensor | Scalar, zero_point: Tensor | Scalar, quant_min: int, quant_max: int
) -> Tensor:
    """(clamp(round(self / scale) + zero_point, quant_min, quant_max) - zero_point) * scale."""
    if not isinstance(scale, Value) and not isinstance(zero_point, Value):
        return fake_quantize_per_tensor_affine_cachemask(self, scale, zero_point, quant_min, quant_max)[0]
    if not isinstance(scale, Value) or not isinstance(zero_point, Value):
        raise ArgumentError("scale and zero_point must both be tensors, or both numbers")
    enabled = ones_like(single(zero_point, "zero_point"))
    return _fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
        self, scale, zero_point, enabled, quant_min, quant_max
    )[0]


# Per channel


def _per_channel(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    working = self.dtype.compute
    scale = along(cast(scale, f32), axis, self.ndim)
    zero_point = along(zero_point, axis, self.ndim)
    inverse = convert(1.0 / scale, working)
    if zero_point.dtype.is_float:
        # A zero point between two integers is added before rounding.
        steps = rint(_fused(self, inverse, zero_point))
        levels = cast(_bounded(steps, quant_min, quant_max), f64) - cast(zero_point, f64)
        result = convert(levels * cast(scale, f64), working)
    else:
        steps = rint(convert(self, working) * inverse) + zero_point
        levels = convert(_levels(steps, zero_point, quant_min, quant_max), working)
        result = levels * convert(scale, working)
    return convert(result, self.dtype), _within(steps, quant_min, quant_max)


def _check_channels(self: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> int:
    axis = dimension(axis, self.ndim)
    for name, value in (("scale", scale), ("zero_point", zero_point)):
        if value.ndim != 1 or not equal(value.shape[0], self.shape[axis]):
            raise ShapeError(f"{name} has shape {list(value.shape)}, expected {[self.shape[axis]]} (dimension {axis})")
    return axis


@composite
def fake_quantize_per_channel_affine_cachemask(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """fake_quantize_per_tensor_affine_cachemask with a scale and a zero point for each place along axis."""
    _check_bounds(quant_min, quant_max)
    axis = _check_channels(self, scale, zero_point, axis)
    return _per_channel(self, scale, zero_point, axis, quant_min, quant_max)


@fake_quantize_per_channel_affine_cachemask.vjp
def fake_quantize_per_channel_affine_cachemask_vjp(grads, results):
    return {"self": _masked(grads, results)}


@fake_quantize_per_channel_affine_cachemask.jvp
def fake_quantize_per_channel_affine_cachemask_jvp(self_tangent, results):
    return _masked_tangent(self_tangent, results)


@composite
def fake_quantize_per_channel_affine_cachemask_backward(grad: Tensor, mask: Tensor) -> Tensor:
    """grad where mask holds, 0 elsewhere."""
    return grad * mask


@composite
def fake_quantize_per_channel_affine(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """fake_quantize_per_tensor_affine with a scale and a zero point for each place along axis."""
    return fake_quantize_per_channel_affine_cachemask(self, scale, zero_point, axis, quant_min, quant_max)[0]


# Learnable: with gradients by scale and zero point


@composite
def _fake_quantize_learnable_per_tensor_affine(
    self: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """fake_quantize_per_tensor_affine with the nearest zero point; grad_factor scales the gradients by parameters."""
    _check_bounds(quant_min, quant_max)
    nearest = clamp(rint(cast(single(zero_point, "zero_point"), f32)), quant_min, quant_max)
    return _per_tensor(self, cast(single(scale, "scale"), f32), nearest, quant_min, quant_max)[0]


def _backward_zero_point(zero_point: Tensor, quant_min: int, quant_max: int) -> Tensor:
    """Return the zero point as PyTorch's backward rounds it, which differs from its forward."""
    return trunc(clamp(cast(single(zero_point, "zero_point"), f32) + 0.5, quant_min, quant_max))


@composite(differentiable=False)
def _fake_quantize_learnable_per_tensor_affine_backward(
    grad: Tensor,
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of _fake_quantize_learnable_per_tensor_affine by self, scale and zero_point."""
    nearest = _backward_zero_point(zero_point, quant_min, quant_max)
    found = _learnable_gradients(
        grad, self, cast(single(scale, "scale"), f32), nearest, quant_min, quant_max, grad_factor
    )
    dims = range(self.ndim)
    return found[0], *(
        convert(reshape(total_over(part, dims), like.shape), like.dtype)
        for part, like in zip(found[1:], (scale, zero_point), strict=True)
    )


@_fake_quantize_learnable_per_tensor_affine.vjp
def _fake_quantize_learnable_per_tensor_affine_vjp(grad, self, scale, zero_point, quant_min, quant_max, grad_factor):
    return _fake_quantize_learnable_per_tensor_affine_backward(
        grad, self, scale, zero_point, quant_min, quant_max, grad_factor
    )


@_fake_quantize_learnable_per_tensor_affine.jvp
def _fake_quantize_learnable_per_tensor_affine_jvp(
    self_tangent, scale_tangent, zero_point_tangent, self, scale, zero_point, quant_min, quant_max, grad_factor
):
    nearest = _backward_zero_point(zero_point, quant_min, quant_max)
    slopes = _learnable_gradients(
        ones_like(self), self, cast(single(scale, "scale"), f32), nearest, quant_min, quant_max, grad_factor
    )
    moved = [None if item is None else single(item, "tangent") for item in (scale_tangent, zero_point_tangent)]
    return added(*map(times, (self_tangent, *moved), slopes))


@composite
def _fake_quantize_learnable_per_channel_affine(
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """_fake_quantize_learnable_per_tensor_affine with a scale and a zero point for each place along axis."""
    _check_bounds(quant_min, quant_max)
    axis = _check_channels(self, scale, zero_point, axis)
    nearest = cast(clamp(rint(zero_point), quant_min, quant_max), i32)
    return _per_channel(self, scale, nearest, axis, quant_min, quant_max)[0]


@composite(differentiable=False)
def _fake_quantize_learnable_per_channel_affine_backward(
    grad: Tensor,
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of _fake_quantize_learnable_per_channel_affine by self, scale and zero_point."""
    axis = _check_channels(self, scale, zero_point, axis)
    nearest = along(clamp(rint(cast(zero_point, f32)), quant_min, quant_max), axis, self.ndim)
    found = _learnable_gradients(
        grad, self, along(cast(scale, f32), axis, self.ndim), nearest, quant_min, quant_max, grad_factor
    )
    dims = tuple(dim for dim in range(self.ndim) if dim != axis)
    return found[0], *(
        convert(total_over(part, dims), like.dtype) for part, like in zip(found[1:], (scale, zero_point), strict=True)
    )


@_fake_quantize_learnable_per_channel_affine.vjp
def _fake_quantize_learnable_per_channel_affine_vjp(
    grad, self, scale, zero_point, axis, quant_min, quant_max, grad_factor
):
    return _fake_quantize_learnable_per_channel_affine_backward(
        grad, self, scale, zero_point, axis, quant_min, quant_max, grad_factor
    )


@_fake_quantize_learnable_per_channel_affine.jvp
def _fake_quantize_learnable_per_channel_affine_jvp(
    self_tangent, scale_tangent, zero_point_tangent, self, scale, zero_point, axis, quant_min, quant_max, grad_factor
):
    nearest = along(clamp(rint(cast(zero_point, f32)), quant_min, quant_max), axis, self.ndim)
    slopes = _learnable_gradients(
        ones_like(self), self, along(cast(scale, f32), axis, self.ndim), nearest, quant_min, quant_max, grad_factor
    )
    moved = [None if item is None else along(item, axis, self.ndim) for item in (scale_tangent, zero_point_tangent)]
    return added(*map(times, (self_tangent, *moved), slopes))


def _learnable_gradients(
    grad: Tensor, self: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient by self, and by scale and zero point before they are summed; scale and zero_point are f32."""
    if quant_min > 0 or quant_max < 0:
        raise ArgumentError(f"quant_min is {quant_min} and quant_max {quant_max}, expected a range that includes 0")
    value, along_result = convert(self, f32), convert(grad, f32)
    inverse = 1.0 / scale
    steps = rint(_fused(value, inverse, zero_point))
    inside = _within(steps, quant_min, quant_max)
    error = _fused(_bounded(steps, quant_min, quant_max) - zero_point, scale, -value)
    at_ends = along_result * (where(gt(steps, quant_max), quant_max, quant_min) - zero_point) * factor
    by_scale = where(inside, along_result * error * inverse * factor, at_ends)
    by_zero_point = where(inside, 0, -along_result * scale * factor)
    return convert(along_result * inside, self.dtype), by_scale, by_zero_point


# Moving averages of the range


@composite
def _fused_moving_avg_obs_fq_helper_functional(
    self: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """self fake-quantised by the moving average of its range, the mask, and the range, scale and zero point after."""
    if per_row_fake_quant and ch_axis != 0:
        raise ArgumentError(f"ch_axis is {ch_axis}, expected 0 with per_row_fake_quant")
    dims = tuple(range(1, self.ndim)) if per_row_fake_quant else tuple(range(self.ndim))
    observes = ne(single(observer_on, "observer_on"), 0)
    quantizes = ne(single(fake_quant_on, "fake_quant_on"), 0)
    ranges = []
    for running, now in ((running_min, amin(self, dims)), (running_max, amax(self, dims))):
        current = reshape(convert(now, running.dtype), running.shape)
        moved = running + rounded_product(current - running, averaging_const)
        ranges.append(where(observes, where(isinf(running), current, moved), running))
    low, high = ranges
    chosen_scale, chosen_zero = _chosen_parameters(low, high, quant_min, quant_max, symmetric_quant)
    scale_after = where(quantizes, convert(reshape(chosen_scale, scale.shape), scale.dtype), scale)
    zero_after = where(quantizes, convert(reshape(chosen_zero, zero_point.shape), zero_point.dtype), zero_point)
    if per_row_fake_quant:
        axis = _check_channels(self, scale_after, zero_after, 0)
        result, mask = _per_channel(self, scale_after, zero_after, axis, quant_min, quant_max)
    else:
        parts = cast(single(scale_after, "scale"), f32), cast(single(zero_after, "zero_point"), f32)
        result, mask = _per_tensor(self, *parts, quant_min, quant_max)
    return (
        where(quantizes, result, self),
        logical_or(mask, logical_not(quantizes)),
        *ranges,
        scale_after,
        zero_after,
    )


@_fused_moving_avg_obs_fq_helper_functional.vjp
def _fused_moving_avg_obs_fq_helper_functional_vjp(grads, results):
    return {"self": _masked(grads, results)}


@_fused_moving_avg_obs_fq_helper_functional.jvp
def _fused_moving_avg_obs_fq_helper_functional_jvp(self_tangent, results):
    return _masked_tangent(self_tangent, results)


@composite
def _fused_moving_avg_obs_fq_helper(
    self: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, Tensor]:
    """The first two results of _fused_moving_avg_obs_fq_helper_functional, which has the range after it, too."""
    return _fused_moving_avg_obs_fq_helper_functional(
        self, observer_on, fake_quant_on, running_min, running_max, scale, zero_point, averaging_const,
        quant_min, quant_max, ch_axis, per_row_fake_quant, symmetric_quant,
    )[:2]  # fmt: skip


def _chosen_parameters(
    low: Tensor, high: Tensor, quant_min: int, quant_max: int, symmetric: bool
) -> tuple[Tensor, Tensor]:
    """Return the scale and the zero point that map a range of f32 to integers, computed in f64 as in PyTorch."""
    span = quant_max - quant_min
    around_zero = logical_and(lt(low, 0), gt(high, 0))
    if symmetric:
        least, most = -(span // 2 + 1), span // 2
        largest = cast(where(gt(abs(low / least), abs(high / most)), abs(low / least), abs(high / most)), f64)
        low = where(around_zero, cast(largest * least, f32), low)
        high = where(around_zero, cast(largest * most, f32), high)
    low, high = where(lt(low, 0), low, 0.0), where(gt(high, 0), high, 0.0)
    scale = (cast(high, f64) - cast(low, f64)) / float(span)
    narrow = cast(scale, f32)
    scale = where(logical_or(narrow == 0, isinf(1.0 / narrow)), 0.1, scale)
    # A tiny scale is replaced, and the range widened in proportion.
    tiny = lt(scale, SMALL_SCALE)
    amplifier = cast(SMALL_SCALE / cast(scale, f32), f32)
    high = where(tiny, where(low == 0, SMALL_SCALE * span, high * amplifier), high)
    low = where(tiny, where(high == 0, -SMALL_SCALE * span, low * amplifier), low)
    scale = where(tiny, SMALL_SCALE, scale)
    below, above = cast(low, f64) / scale, cast(high, f64) / scale
    from_low = lt(abs(below) + builtins.abs(quant_min), abs(above) + builtins.abs(quant_max))
    exact = where(from_low, quant_min - below, quant_max - above)
    if symmetric:
        exact = where(around_zero, (quant_min + quant_max) / 2, exact)
    return cast(scale, f32), cast(clamp(rint(exact), quant_min, quant_max), i64)
