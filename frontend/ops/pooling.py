"""Pooling: means and maxima over windows (windows.py).

The indices of maxima are row-major within the pooled dims. The derivative adds the gradient there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.proofs import non_negative
from ..ir.symbolic import product
from ..ir.types import DType, bool_, i64
from . import minmax, pointwise
from .concat_pad import constant_pad_nd
from .create import full, number_of
from .define import Tensor, composite
from .indexing import gather, scatter_add
from .view import expand, flatten, reshape, squeeze, unsqueeze
from .windows import (
    Lengths,
    Window,
    half_padded,
    lengths,
    window_max,
    window_sum,
    windows_over,
)

# Largest elements


def _max_pool(
    self: Tensor,
    rank: int,
    kernel_size: Lengths,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    ceil_mode: bool,
) -> tuple[Tensor, Tensor]:
    if self.dtype.is_complex or self.dtype is bool_:
        raise DTypeError(f"self is {self.dtype}, expected a real number type")
    windows = windows_over(self, rank, kernel_size, stride, padding, dilation, ceil_mode)
    half_padded(windows)
    value, number = window_max(self, windows)
    return value, pointwise.convert(number, i64)


def added_at(grad_output: Tensor, self: Tensor, indices: Tensor, rank: int) -> Tensor:
    """Return zeros in the shape of self with grad_output added at indices."""
    if grad_output.shape != indices.shape:
        raise ShapeError(f"grad_output is {list(grad_output.shape)}, indices {list(indices.shape)}: expected the same")
    zeros = full(flatten(self, -rank, -1).shape, 0, dtype=grad_output.dtype)
    placed = scatter_add(zeros, -1, flatten(indices, -rank, -1), flatten(grad_output, -rank, -1))
    return reshape(placed, self.shape)


def found_at(value: Tensor, indices: Tensor, rank: int) -> Tensor:
    """Return the elements of value at indices."""
    return reshape(gather(flatten(value, -rank, -1), -1, flatten(indices, -rank, -1)), indices.shape)


def _may_miss(self: Tensor, rank: int, padding: Lengths, dilation: Lengths) -> bool:
    """Whether a window may contain no element of self: it starts in the padding and its dilation steps over all of
    self. Its index may be out of range then, and it has no derivative."""
    steps = zip(self.shape[-rank:], lengths(padding, rank, "padding", 0), lengths(dilation, rank, "dilation", 1))
    return any(pad > 0 and not non_negative(size - step) for size, pad, step in steps)


def _max_pool_vjp(
    grad_output: Tensor, self: Tensor, rank: int, padding: Lengths, dilation: Lengths, indices: Tensor
) -> Tensor:
    if _may_miss(self, rank, padding, dilation):
        last = number_of(product(self.shape[-rank:]), i64) - 1
        grad_output = pointwise.where(indices <= last, grad_output, 0)
        indices = minmax.minimum(indices, last)
    return added_at(grad_output, self, indices, rank)


def _max_pool_jvp(self_tangent: Tensor, rank: int, padding: Lengths, dilation: Lengths, indices: Tensor) -> Tensor:
    if not _may_miss(self_tangent, rank, padding, dilation):
        return found_at(self_tangent, indices, rank)
    last = number_of(product(self_tangent.shape[-rank:]), i64) - 1
    return pointwise.where(indices <= last, found_at(self_tangent, minmax.minimum(indices, last), rank), 0)


@composite
def max_pool2d_with_indices(
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """The largest element of each window of the last two dims, and its row-major index."""
    return _max_pool(self, 2, kernel_size, stride, padding, dilation, ceil_mode)


@max_pool2d_with_indices.vjp
def max_pool2d_with_indices_vjp(grads, results, self, kernel_size, stride, padding, dilation, ceil_mode):
    return max_pool2d_with_indices_backward(
        grads[0], self, kernel_size, stride, padding, dilation, ceil_mode, results[1]
    )


@max_pool2d_with_indices.jvp
def max_pool2d_with_indices_jvp(self_tangent, results, padding, dilation):
    return _max_pool_jvp(self_tangent, 2, padding, dilation, results[1]), None


@composite
def max_pool2d_with_indices_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """grad_output added up at the indices of the largest elements."""
    return _max_pool_vjp(grad_output, self, 2, padding, dilation, indices)


@composite
def max_pool3d_with_indices(
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """The largest element of each window of the last three dims, and its row-major index."""
    return _max_pool(self, 3, kernel_size, stride, padding, dilation, ceil_mode)


@max_pool3d_with_indices.vjp
def max_pool3d_with_indices_vjp(grads, results, self, kernel_size, stride, padding, dilation, ceil_mode):
    return max_pool3d_with_indices_backward(
        grads[0], self, kernel_size, stride, padding, dilation, ceil_mode, results[1]
    )


@max_pool3d_with_indices.jvp
def max_pool3d_with_indices_jvp(self_tangent, results, padding, dilation):
    return _max_pool_jvp(self_tangent, 3, padding, dilation, results[1]), None


@composite
def max_pool3d_with_indices_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """grad_output added up at the indices of the largest elements."""
    return _max_pool_vjp(grad_output, self, 3, padding, dilation, indices)


def _row(value: Lengths) -> Lengths:
    """Convert an argument of a 1-dim pool to one of a 2-dim pool whose first dim has size 1."""
    return (1, value) if isinstance(value, int) else (1, *value) if value else ()


def _no_padding(value: Lengths) -> Lengths:
    return (0, value) if isinstance(value, int) else (0, *value)


@composite
def max_pool1d(
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window of the last dim."""
    values, _ = max_pool2d_with_indices(
        unsqueeze(self, -2), _row(kernel_size), _row(stride), _no_padding(padding), _row(dilation), ceil_mode
    )
    return squeeze(values, -2)


@composite
def max_pool2d(
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window of the last two dims."""
    return max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)[0]


@composite
def max_pool3d(
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window of the last three dims."""
    return max_pool3d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)[0]


# Means


def _counts(window: Window, include: bool, dtype: DType) -> Tensor | int:
    """Return the number of elements that each window counts along its dim: with `include` the padding, but nothing
    beyond it."""
    reach = (window.count - 1) * window.stride + window.kernel - window.size - window.padding
    regular = isinstance(reach, int) and reach <= (window.padding if include else 0)
    if regular and (include or window.padding == 0):
        return window.kernel
    margin = window.padding if include else 0
    size = number_of(window.size, i64)
    start = window.starts(i64)
    end = minmax.clamp_max(start + window.kernel, size + margin)
    return pointwise.cast(end - (start if include else minmax.clamp_min(start, 0)), dtype)


def _divisor(windows: Sequence[Window], include: bool, override: int | None, dtype: DType) -> Tensor | int:
    """Return the divisor of each window's sum."""
    if override is not None:
        if override == 0:
            raise ArgumentError("divisor_override is 0")
        return override
    result: Tensor | int = 1
    for position, window in enumerate(windows):
        count = _counts(window, include, dtype)
        if isinstance(count, Tensor):
            count = reshape(count, (*count.shape, *(1 for _ in windows[position + 1 :])))
        result = result * count
    return result


def _avg_pool(
    self: Tensor,
    rank: int,
    kernel_size: Lengths,
    stride: Lengths,
    padding: Lengths,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    windows = windows_over(self, rank, kernel_size, stride, padding, 1, ceil_mode)
    half_padded(windows)
    value = pointwise.convert(self, self.dtype.compute)
    divisor = _divisor(windows, count_include_pad, divisor_override, value.dtype)
    rounding = None if value.dtype.is_inexact else "trunc"
    return pointwise.convert(pointwise.div(window_sum(value, windows), divisor, rounding_mode=rounding), self.dtype)


def _spread(value: Tensor, windows: Sequence[Window]) -> Tensor:
    """Apply the transpose of window_sum: add each element of value to all elements of its window."""
    rank = len(windows)
    for dim, window in enumerate(windows, value.ndim - rank):
        kernel, stride = window.kernel, window.stride
        shape = value.shape
        count = shape[dim]
        before = (0,) * (2 * (value.ndim - 1 - dim))
        if stride >= kernel:
            # The windows are disjoint: repeat, and leave the gaps.
            copies = expand(unsqueeze(value, dim + 1), (*shape[: dim + 1], kernel, *shape[dim + 1 :]))
            copies = constant_pad_nd(copies, (*before, 0, stride - kernel)) if stride > kernel else copies
            value = reshape(copies, (*shape[:dim], count * stride, *shape[dim + 1 :]))
            value = constant_pad_nd(value, (*before, -window.padding, window.size + window.padding - count * stride))
            continue
        if stride > 1:
            apart = constant_pad_nd(unsqueeze(value, dim + 1), (*before, 0, stride - 1))
            value = reshape(apart, (*shape[:dim], count * stride, *shape[dim + 1 :]))
        # An operand's element is in the windows that start at most kernel - 1 before it.
        first = kernel - 1 - window.padding
        value = constant_pad_nd(value, (*before, first, window.size + window.padding - value.shape[dim]))
        inner = tuple(Window(size, 1, 1, 0, 1, size) for size in value.shape[dim + 1 :])
        value = window_sum(value, (Window(value.shape[dim], kernel, 1, 0, 1, window.size), *inner))
    return value


def _avg_pool_backward(
    grad_output: Tensor,
    self: Tensor,
    rank: int,
    kernel_size: Lengths,
    stride: Lengths,
    padding: Lengths,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    windows = windows_over(self, rank, kernel_size, stride, padding, 1, ceil_mode)
    value = pointwise.convert(grad_output, grad_output.dtype.compute)
    divisor = _divisor(windows, count_include_pad, divisor_override, value.dtype)
    return pointwise.convert(_spread(value / divisor, windows), grad_output.dtype)


@composite
def avg_pool1d(
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of the last dim."""
    row = avg_pool2d(
        unsqueeze(self, -2), _row(kernel_size), _row(stride), _no_padding(padding), ceil_mode, count_include_pad
    )
    return squeeze(row, -2)


@composite
def avg_pool2d(
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The sum of each window of the last two dims, divided by the number of its elements."""
    return _avg_pool(self, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite
def avg_pool2d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths,
    padding: Lengths,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """grad_output divided by the number of elements of each window, added to all of them."""
    return _avg_pool_backward(
        grad_output, self, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


avg_pool2d.derivative = avg_pool2d_backward


@avg_pool2d_backward.vjp
def avg_pool2d_backward_vjp(grad, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    pooled = avg_pool2d(grad, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return {"grad_output": pooled}


@composite
def avg_pool3d(
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The sum of each window of the last three dims, divided by the number of its elements."""
    return _avg_pool(self, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite
def avg_pool3d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths,
    padding: Lengths,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """grad_output divided by the number of elements of each window, added to all of them."""
    return _avg_pool_backward(
        grad_output, self, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


avg_pool3d.derivative = avg_pool3d_backward


@avg_pool3d_backward.vjp
def avg_pool3d_backward_vjp(grad, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    pooled = avg_pool3d(grad, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return {"grad_output": pooled}
