"""Normalisation: elementwise ops around reductions over the same dimensions, one kernel each.

Statistics of f16 and bf16 tensors are computed in f32 and the result is rounded once. Variances take two
passes: the mean first, then the mean square of the deviations. The forward ops that return their statistics
(`native_*`) are differentiated by the named backward ops, which read those statistics instead of computing
them again, unless they were rounded to f16 or bf16; a derivative of that derivative reaches the statistics too,
and `_statistics_gradient` takes it on to the input.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import ml_dtypes

from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import floor_divide
from ..ir.symbolic import Dim, product
from ..ir.types import DType, float_of
from .create import number_of, zeros
from .define import Size, Tensor, composite
from .elementary import rsqrt
from .pointwise import convert, widen
from .reduce import sum as total
from .reduce import total_over
from .shapes import divides, equal
from .view import alias, detach, expand, reshape

# Shared by all normalisations


def average(value: Tensor, dims: Sequence[int]) -> Tensor:
    """Return the mean over dims, which are kept."""
    count = number_of(product(value.shape[dim] for dim in dims), value.dtype)
    return total_over(value, dims, keepdim=True) / count


def _standardized(value: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return value with mean 0 and variance 1 over dims; the mean and the inverse deviation, dims kept."""
    middle = average(value, tuple(dims))
    centred = value - middle
    deviation = rsqrt(average(centred * centred, tuple(dims)) + eps)
    return centred * deviation, middle, deviation


def _statistics(
    saved: Sequence[Tensor], value: Tensor, dims: Sequence[int], eps: float, shape: Sequence[Dim]
) -> tuple[Tensor, Tensor]:
    """Return the mean and the inverse deviation that a norm used, in its compute type.

    A mean rounded to f16 or bf16 may be off by more than the deviation of its row, so such statistics are computed
    again, by the same ops as in the forward op: in a program with both they are common subexpressions."""
    if saved[0].dtype.compute is saved[0].dtype:
        return saved[0], saved[1]
    _standard, middle, deviation = _standardized(value, dims, eps)
    return reshape(middle, tuple(shape)), reshape(deviation, tuple(shape))


def _standardized_gradient(gradient: Tensor, standard: Tensor, rstd: Tensor, dims: Sequence[int]) -> Tensor:
    """Return the gradient through `_standardized`, from that of the standardized value."""
    dims = tuple(dims)
    slope = average(gradient * standard, dims)
    return rstd * (gradient - average(gradient, dims) - standard * slope)


def _statistics_gradient(
    value: Tensor,
    mean: Tensor | float,
    rstd: Tensor,
    mean_grad: Tensor | None,
    rstd_grad: Tensor | None,
    dims: Sequence[int],
) -> Tensor | None:
    """Return the part of the value's gradient that comes from the mean and the inverse deviation (dims kept)."""
    count = number_of(product(value.shape[dim] for dim in dims), value.dtype)
    result: Tensor | None = None
    if mean_grad is not None:
        result = expand(widen(mean_grad) / count, value.shape)
    if rstd_grad is not None:
        part = (mean - value) * (widen(rstd_grad) * rstd * rstd * rstd / count)
        result = part if result is None else result + part
    return result


def _plus(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right


def _affine(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        value = value * widen(weight)
    return value if bias is None else value + widen(bias)


def _statistics_dtype(input: Tensor, *others: Tensor | None) -> DType:
    """Statistics are kept in the type of the parameters, or of the input if there are none."""
    return next((other.dtype for other in others if other is not None), input.dtype)


# Layer norm and RMS norm


def _normalized_dims(input: Tensor, normalized_shape: Sequence[Dim], **parameters: Tensor | None) -> tuple[int, ...]:
    """Return the last dimensions of the input, checked against normalized_shape."""
    sizes = tuple(normalized_shape)
    rank = len(sizes)
    tail = input.shape[input.ndim - rank :] if rank <= input.ndim else ()
    if not rank or len(tail) != rank or not builtins.all(equal(*pair) for pair in zip(tail, sizes, strict=True)):
        raise ShapeError(f"the last sizes of {list(input.shape)} must be normalized_shape {list(sizes)}")
    for name, value in parameters.items():
        if value is not None and value.shape != sizes:
            raise ShapeError(f"{name} has shape {list(value.shape)}, expected normalized_shape {list(sizes)}")
    return tuple(range(input.ndim - rank, input.ndim))


@composite
def layer_norm(
    input: Tensor,
    normalized_shape: Size,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias, over the last dimensions."""
    return native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


@composite
def native_layer_norm(
    input: Tensor, normalized_shape: Size, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """layer_norm, with the mean and 1 / sqrt(variance + eps) that it used."""
    dims = _normalized_dims(input, normalized_shape, weight=weight, bias=bias)
    standard, middle, deviation = _standardized(widen(input), dims, eps)
    kept = _statistics_dtype(input, weight, bias)
    return (
        convert(_affine(standard, weight, bias), float_of(input.dtype)),
        convert(middle, kept),
        convert(deviation, kept),
    )


@native_layer_norm.vjp
def native_layer_norm_vjp(grads, results, input, normalized_shape, weight, bias, eps):
    dims = range(input.ndim - len(normalized_shape), input.ndim)
    middle, deviation = _statistics(results[1:], widen(input), dims, eps, results[1].shape)
    by_input = by_weight = by_bias = None
    if grads.known(0) is not None:
        mask = (True, weight is not None, bias is not None)
        by_input, by_weight, by_bias = native_layer_norm_backward(
            grads[0], input, normalized_shape, middle, deviation, weight, bias, mask
        )
    extra = _statistics_gradient(widen(input), widen(middle), widen(deviation), grads.known(1), grads.known(2), dims)
    return _plus(by_input, extra), by_weight, by_bias


@composite
def native_layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Size,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool] = (True, True, True),
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of layer_norm by input, weight and bias; zeros where output_mask is false."""
    dims = _normalized_dims(input, normalized_shape)
    outer = range(input.ndim - len(dims))
    gradient, deviation = widen(grad_out), widen(rstd)
    standard = (widen(input) - widen(mean)) * deviation
    weighted = gradient if weight is None else gradient * widen(weight)
    by_input = _standardized_gradient(weighted, standard, deviation, dims)
    return _masked_gradients(
        output_mask,
        (by_input, input.shape, input.dtype),
        (total_over(gradient * standard, outer), normalized_shape, _statistics_dtype(input, weight)),
        (total_over(gradient, outer), normalized_shape, _statistics_dtype(input, bias)),
    )


def _masked_gradients(mask: Sequence[bool], *wanted: tuple[Tensor, Sequence[Dim], DType]) -> Any:
    """Each (gradient, shape, dtype) in that shape and dtype, or as zeros where the mask is false."""
    return tuple(
        convert(reshape(gradient, tuple(shape)) if gradient.shape != tuple(shape) else gradient, dtype)
        if keep
        else zeros(tuple(shape), dtype=dtype)
        for keep, (gradient, shape, dtype) in zip(mask, wanted, strict=True)
    )


@composite
def rms_norm(input: Tensor, normalized_shape: Size, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """input / sqrt(mean(input * input) + eps) * weight, over the last dimensions."""
    return _fused_rms_norm(input, normalized_shape, weight, eps)[0]


@composite
def _fused_rms_norm(
    input: Tensor, normalized_shape: Size, weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """rms_norm, with the 1 / sqrt(mean(input * input) + eps) that it used."""
    dims = _normalized_dims(input, normalized_shape, weight=weight)
    value = widen(input)
    least = float(ml_dtypes.finfo(value.dtype.numpy).eps) if eps is None else eps
    deviation = rsqrt(average(value * value, dims) + least)
    return convert(_affine(value * deviation, weight, None), float_of(input.dtype)), deviation


@_fused_rms_norm.vjp
def _fused_rms_norm_vjp(grads, results, input, normalized_shape, weight):
    deviation = results[1]
    by_input = by_weight = None
    if grads.known(0) is not None:
        by_input, by_weight = _fused_rms_norm_backward(
            grads[0], input, normalized_shape, deviation, weight, (True, weight is not None)
        )
    dims = range(input.ndim - len(normalized_shape), input.ndim)
    # 1 / sqrt(mean(x * x) + eps) is the inverse deviation of a value whose mean is 0.
    extra = _statistics_gradient(widen(input), 0.0, deviation, None, grads.known(1), dims)
    return _plus(by_input, extra), by_weight


@composite
def _fused_rms_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Size,
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: Sequence[bool] = (True, True),
) -> tuple[Tensor, Tensor]:
    """The gradients of rms_norm by input and weight; zeros where output_mask is false."""
    dims = _normalized_dims(input, normalized_shape)
    outer = range(input.ndim - len(dims))
    gradient, deviation = widen(grad_out), widen(rstd)
    standard = widen(input) * deviation
    weighted = gradient if weight is None else gradient * widen(weight)
    by_input = deviation * (weighted - standard * average(weighted * standard, dims))
    by_input, by_weight = _masked_gradients(
        output_mask,
        (by_input, input.shape, input.dtype),
        (total_over(gradient * standard, outer), normalized_shape, _statistics_dtype(input, weight)),
    )
    return by_input, by_weight


# Group norm and instance norm


def _grouped(value: Tensor, batch: Dim, channels: Dim, inner: Dim, group: int) -> Tensor:
    return reshape(value, (batch, group, floor_divide(channels, group), inner))


def _per_channel_of_group(value: Tensor | None, channels: Dim, group: int) -> Tensor | None:
    return None if value is None else reshape(value, (group, floor_divide(channels, group), 1))


@composite
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Each group of channels of each sample with mean 0 and variance 1, times weight plus bias by channel."""
    batch, channels, inner = _channel_sizes(input)
    return native_group_norm(input, weight, bias, batch, channels, inner, num_groups, eps)[0]


def _channel_sizes(input: Tensor) -> tuple[Dim, Dim, Dim]:
    if input.ndim < 2:
        raise ShapeError(f"input has {input.ndim} dimensions, expected at least 2 (batch, channels)")
    return input.shape[0], input.shape[1], product(input.shape[2:])


@composite
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: Dim,
    C: Dim,
    HxW: Dim,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """group_norm, with the mean and 1 / sqrt(variance + eps) of each group."""
    if group < 1 or not divides(C, group):
        raise ArgumentError(f"{C} channels do not divide into {group} groups")
    value = _grouped(widen(input), N, C, HxW, group)
    standard, middle, deviation = _standardized(value, (2, 3), eps)
    output = _affine(standard, _per_channel_of_group(weight, C, group), _per_channel_of_group(bias, C, group))
    kept = _statistics_dtype(input, weight, bias)
    return (
        reshape(convert(output, float_of(input.dtype)), input.shape),
        convert(reshape(middle, (N, group)), kept),
        convert(reshape(deviation, (N, group)), kept),
    )


@native_group_norm.vjp
def native_group_norm_vjp(grads, results, input, weight, bias, N, C, HxW, group, eps):
    middle, deviation = _statistics(
        results[1:], _grouped(widen(input), N, C, HxW, group), (2, 3), eps, results[1].shape
    )
    by_input = by_weight = by_bias = None
    if grads.known(0) is not None:
        mask = (True, weight is not None, bias is not None)
        by_input, by_weight, by_bias = native_group_norm_backward(
            grads[0], input, middle, deviation, weight, N, C, HxW, group, mask
        )
    kept = (N, group, 1, 1)
    extra = _statistics_gradient(
        _grouped(widen(input), N, C, HxW, group),
        reshape(widen(middle), kept),
        reshape(widen(deviation), kept),
        None if grads.known(1) is None else reshape(grads[1], kept),
        None if grads.known(2) is None else reshape(grads[2], kept),
        (2, 3),
    )
    if extra is not None:
        extra = reshape(extra, input.shape)
    return _plus(by_input, extra), by_weight, by_bias


@composite
def native_group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: Dim,
    C: Dim,
    HxW: Dim,
    group: int,
    output_mask: Sequence[bool] = (True, True, True),
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of group_norm by input, weight and bias; zeros where output_mask is false."""
    kept = (N, group, 1, 1)
    deviation = reshape(widen(rstd), kept)
    gradient = _grouped(widen(grad_out), N, C, HxW, group)
    standard = (_grouped(widen(input), N, C, HxW, group) - reshape(widen(mean), kept)) * deviation
    weighted = _affine(gradient, _per_channel_of_group(weight, C, group), None)
    parameter = _statistics_dtype(input, weight)
    return _masked_gradients(
        output_mask,
        (_standardized_gradient(weighted, standard, deviation, (2, 3)), input.shape, input.dtype),
        (total(gradient * standard, (0, 3)), (C,), parameter),
        (total(gradient, (0, 3)), (C,), parameter),
    )


@composite
def instance_norm(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Each channel of each sample with mean 0 and variance 1, times weight plus bias."""
    batch, channels, inner = _channel_sizes(input)
    if not use_input_stats:
        return batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
    if not isinstance(channels, int):
        raise ShapeError(f"the number of channels must be known while tracing, got {channels}")
    if channels == 0:
        return alias(input)
    return native_group_norm(input, weight, bias, batch, channels, inner, channels, eps)[0]


# Batch norm


def _by_channel(value: Tensor, rank: int) -> Tensor:
    """Reshape [C] to broadcast against [batch, C, ...]."""
    if value.ndim != 1:
        raise ShapeError(f"weight, bias and running statistics have one dimension, got {list(value.shape)}")
    return reshape(value, (value.shape[0], *(1,) * (rank - 2))) if rank > 2 else value


def _batch_dims(input: Tensor) -> tuple[int, ...]:
    if input.ndim < 2:
        raise ShapeError(f"input has {input.ndim} dimensions, expected at least 2 (batch, channels)")
    return tuple(dim for dim in range(input.ndim) if dim != 1)


@composite
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Each channel with mean 0 and variance 1 over the batch, times weight plus bias."""
    return native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@composite
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """batch_norm, with the mean and 1 / sqrt(variance + eps) of the batch; empty ones when not training."""
    dims = _batch_dims(input)
    kept = _statistics_dtype(input, weight, bias, running_mean)
    if training:
        standard, middle, deviation = _standardized(widen(input), dims, eps)
        channels = (input.shape[1],)
        saved = (convert(reshape(middle, channels), kept), convert(reshape(deviation, channels), kept))
    else:
        if running_mean is None or running_var is None:
            raise ArgumentError("running_mean and running_var must be given when not training")
        standard, _deviation = _standardized_by(input, running_mean, running_var, eps)
        saved = (zeros((0,), dtype=kept), zeros((0,), dtype=kept))
    weight, bias = (None if item is None else _by_channel(item, input.ndim) for item in (weight, bias))
    return (convert(_affine(standard, weight, bias), float_of(input.dtype)), *saved)


def _standardized_by(input: Tensor, running_mean: Tensor, running_var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return input standardized by running statistics, and the inverse deviation."""
    middle = _by_channel(widen(running_mean), input.ndim)
    deviation = rsqrt(_by_channel(widen(running_var), input.ndim) + eps)
    return (widen(input) - middle) * deviation, deviation


@native_batch_norm.vjp
def native_batch_norm_vjp(grads, results, input, weight, bias, running_mean, running_var, training, eps):
    return _batch_norm_gradients(grads, results, input, weight, bias, running_mean, running_var, training, eps)


def _batch_norm_gradients(grads, results, input, weight, bias, running_mean, running_var, training, eps):
    middle, deviation = results[1:3]
    if training:
        middle, deviation = _statistics(results[1:3], widen(input), _batch_dims(input), eps, middle.shape)
    found = {}
    if grads.known(0) is not None:
        mask = (True, weight is not None or not training, bias is not None or not training)
        found["input"], found["weight"], found["bias"] = native_batch_norm_backward(
            grads[0], input, weight, running_mean, running_var, middle, deviation, training, eps, mask
        )
        if not training:
            # The output is weight * (input - mean) * slope + bias with slope = 1 / sqrt(var + eps).
            slope = rsqrt(widen(running_var) + eps)
            factor = slope if weight is None else slope * widen(weight)
            found["running_mean"] = -widen(found["bias"]) * factor
            found["running_var"] = -0.5 * widen(found["weight"]) * slope * factor
    if training:
        extra = _statistics_gradient(
            widen(input),
            _by_channel(widen(middle), input.ndim),
            _by_channel(widen(deviation), input.ndim),
            None if grads.known(1) is None else _by_channel(grads[1], input.ndim),
            None if grads.known(2) is None else _by_channel(grads[2], input.ndim),
            _batch_dims(input),
        )
        found["input"] = _plus(found.get("input"), extra)
    return found


@composite
def _native_batch_norm_legit_functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """native_batch_norm, with the running statistics after this batch."""
    results = native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if not training:
        return (*results, running_mean, running_var)
    dims = _batch_dims(input)
    channels = (input.shape[1],)
    # The same ops as in native_batch_norm, so that the statistics are common subexpressions.
    value = detach(widen(input))
    middle = average(value, dims)
    centred = value - middle
    count = number_of(product(input.shape[dim] for dim in dims), value.dtype)
    variance = total(centred * centred, dims, True) / (count - 1)
    return (
        *results,
        _moved(running_mean, reshape(middle, channels), momentum),
        _moved(running_var, reshape(variance, channels), momentum),
    )


def _moved(running: Tensor, batch: Tensor, momentum: float) -> Tensor:
    return convert(widen(running) * (1 - momentum) + batch * momentum, running.dtype)


@_native_batch_norm_legit_functional.vjp
def _native_batch_norm_legit_functional_vjp(
    grads, results, input, weight, bias, running_mean, running_var, training, momentum, eps
):
    gradients = _batch_norm_gradients(grads, results, input, weight, bias, running_mean, running_var, training, eps)
    kept = 1 - momentum if training else 1.0
    for name, position in (("running_mean", 3), ("running_var", 4)):
        if grads.known(position) is not None:
            gradients[name] = _plus(gradients.get(name), grads[position] * kept)
    return gradients


@composite
def _native_batch_norm_legit(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """native_batch_norm, with or without running statistics, which stay as they are."""
    return native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


@composite
def _native_batch_norm_legit_no_training(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """native_batch_norm by running statistics."""
    return native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


@composite
def native_batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool] = (True, True, True),
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of batch_norm by input, weight and bias; zeros where output_mask is false."""
    dims = _batch_dims(input)
    gradient = widen(grad_out)
    weighted = gradient if weight is None else gradient * _by_channel(widen(weight), input.ndim)
    if train:
        if save_mean is None or save_invstd is None:
            raise ArgumentError("save_mean and save_invstd must be given when training")
        deviation = _by_channel(widen(save_invstd), input.ndim)
        standard = (widen(input) - _by_channel(widen(save_mean), input.ndim)) * deviation
        by_input = _standardized_gradient(weighted, standard, deviation, dims)
    else:
        if running_mean is None or running_var is None:
            raise ArgumentError("running_mean and running_var must be given when not training")
        standard, deviation = _standardized_by(input, running_mean, running_var, eps)
        by_input = weighted * deviation
    channels, parameter = (input.shape[1],), _statistics_dtype(input, weight)
    return _masked_gradients(
        output_mask,
        (by_input, input.shape, input.dtype),
        (total(gradient * standard, dims), channels, parameter),
        (total(gradient, dims), channels, parameter),
    )
