"""Pooling to a given number of windows. Window i of o over n elements is floor(i*n/o) to ceil((i+1)*n/o).

Element j of n is in the windows floor(j*o/n) to ceil((j+1)*o/n): the same rule with n and o exchanged. So summing over
windows is its own transpose, and the backward of a mean is a sum again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import floor_divide, remainder
from ..ir.symbolic import Dim
from ..ir.types import DType, float_of, i64
from . import pointwise, reduce
from .create import new_zeros, number_of, zeros_like
from .define import Tensor, composite
from .pooling import added_at, found_at
from .view import each_repeated, expand, replaced, reshape, squeeze, unsqueeze
from .windows import (
    Window,
    adaptive_bounds,
    adaptive_taps,
    largest,
    places,
    total,
    window_max,
    window_sum,
)

OutputSize = int | Sequence[Dim | None] | None


def _counts_of(self: Tensor, output_size: OutputSize, rank: int) -> tuple[Dim, ...]:
    """Return the number of windows along each of the last dims; None keeps a size."""
    if self.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"self has {self.ndim} dimensions, expected {rank + 1} or {rank + 2}")
    given = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,) * rank
    if len(given) != rank:
        raise ArgumentError(f"output_size is {output_size}, expected {rank} numbers")
    return tuple(size if count is None else count for count, size in zip(given, self.shape[-rank:]))


def _equal_windows(sizes: Sequence[Dim], counts: Sequence[Dim]) -> tuple[Window, ...] | None:
    """Return the windows if along every dim they have one length and are disjoint, else None."""
    found = []
    for size, count in zip(sizes, counts):
        if not isinstance(count, int) or count == 0 or remainder(size, count) != 0:
            return None
        length = floor_divide(size, count)
        if not isinstance(length, int) or length == 0:
            return None
        found.append(Window(size, length, length, 0, 1, count))
    return tuple(found)


def _total(value: Tensor, counts: Sequence[Dim]) -> Tensor:
    """The sum over each of counts windows."""
    rank = len(counts)
    if all(count == 1 for count in counts):
        return reduce.sum(value, tuple(range(-rank, 0)), True)
    windows = _equal_windows(value.shape[-rank:], counts)
    if windows is not None:
        return window_sum(value, windows)
    for dim, count in enumerate(counts, value.ndim - rank):
        size = value.shape[dim]
        if size == count:
            continue
        if size == 1:
            value = expand(value, replaced(value.shape, dim, count))
        elif isinstance(size, int) and isinstance(count, int) and count > 0 and count % size == 0:
            value = each_repeated(value, count // size, dim)
        else:
            value = total(adaptive_taps((value,), dim, count))
    return value


def _divisor(sizes: Sequence[Dim], counts: Sequence[Dim], dtype: DType) -> Tensor | int:
    """Return the number of elements of each window."""
    result: Tensor | int = 1
    for position, (size, count) in enumerate(zip(sizes, counts)):
        if count == 1:
            result = result * number_of(size, dtype)
        elif remainder(size, count) == 0:
            result = result * number_of(floor_divide(size, count), dtype)
        else:
            start, end, _ = adaptive_bounds(size, count)
            result = result * reshape(pointwise.cast(end - start, dtype), (count, *(1 for _ in counts[position + 1 :])))
    return result


def _adaptive_avg(self: Tensor, output_size: OutputSize, rank: int) -> Tensor:
    counts = _counts_of(self, output_size, rank)
    if 0 in counts:
        return new_zeros(self, (*self.shape[:-rank], *counts))  # no windows
    value = pointwise.convert(self, self.dtype.compute)
    average = _total(value, counts) / _divisor(self.shape[-rank:], counts, value.dtype)
    return pointwise.convert(average, float_of(self.dtype))


def _adaptive_avg_backward(grad_output: Tensor, self: Tensor, rank: int) -> Tensor:
    value = pointwise.convert(grad_output, grad_output.dtype.compute)
    sizes = self.shape[-rank:]
    if 0 in grad_output.shape[-rank:]:
        return zeros_like(self)
    shares = value / _divisor(sizes, grad_output.shape[-rank:], value.dtype)
    return pointwise.convert(_total(shares, sizes), grad_output.dtype)


@composite
def _adaptive_avg_pool2d(self: Tensor, output_size: OutputSize) -> Tensor:
    """The mean of each of output_size windows of the last two dims."""
    return _adaptive_avg(self, output_size, 2)


@composite
def _adaptive_avg_pool2d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """grad_output divided by the number of elements of each window, added to all of them."""
    return _adaptive_avg_backward(grad_output, self, 2)


_adaptive_avg_pool2d.derivative = _adaptive_avg_pool2d_backward


@_adaptive_avg_pool2d_backward.vjp
def _adaptive_avg_pool2d_backward_vjp(grad, grad_output):
    return {"grad_output": _adaptive_avg_pool2d(grad, grad_output.shape[-2:])}


@composite
def _adaptive_avg_pool3d(self: Tensor, output_size: OutputSize) -> Tensor:
    """The mean of each of output_size windows of the last three dims."""
    return _adaptive_avg(self, output_size, 3)


@composite
def _adaptive_avg_pool3d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """grad_output divided by the number of elements of each window, added to all of them."""
    return _adaptive_avg_backward(grad_output, self, 3)


_adaptive_avg_pool3d.derivative = _adaptive_avg_pool3d_backward


@_adaptive_avg_pool3d_backward.vjp
def _adaptive_avg_pool3d_backward_vjp(grad, grad_output):
    return {"grad_output": _adaptive_avg_pool3d(grad, grad_output.shape[-3:])}


@composite
def adaptive_avg_pool1d(self: Tensor, output_size: OutputSize) -> Tensor:
    """The mean of each of output_size windows of the last dim."""
    (count,) = _counts_of(self, output_size, 1)
    return squeeze(_adaptive_avg_pool2d(unsqueeze(self, -2), (1, count)), -2)


@composite
def adaptive_avg_pool2d(self: Tensor, output_size: OutputSize) -> Tensor:
    """The mean of each of output_size windows of the last two dims."""
    return _adaptive_avg_pool2d(self, output_size)


@composite
def adaptive_avg_pool3d(self: Tensor, output_size: OutputSize) -> Tensor:
    """The mean of each of output_size windows of the last three dims."""
    return _adaptive_avg_pool3d(self, output_size)


def _adaptive_max(self: Tensor, output_size: OutputSize, rank: int) -> tuple[Tensor, Tensor]:
    counts = _counts_of(self, output_size, rank)
    sizes = self.shape[-rank:]
    if 0 in counts:
        shape = (*self.shape[:-rank], *counts)  # no windows
        return new_zeros(self, shape), new_zeros(self, shape, dtype=i64)
    windows = _equal_windows(sizes, counts)
    if windows is not None:
        value, number = window_max(self, windows)
        return value, pointwise.convert(number, i64)
    value, number = self, expand(places(sizes), self.shape)
    # Starts at the last dim, so that of equal elements the first in row-major order is found.
    for dim, count in reversed(list(enumerate(counts, self.ndim - rank))):
        value, number = largest(adaptive_taps((value, number), dim, count))
    return value, pointwise.convert(number, i64)


@composite
def adaptive_max_pool2d(self: Tensor, output_size: OutputSize) -> tuple[Tensor, Tensor]:
    """The largest element of each of output_size windows of the last two dims, and its row-major index."""
    return _adaptive_max(self, output_size, 2)


@adaptive_max_pool2d.vjp
def adaptive_max_pool2d_vjp(grads, results, self):
    return adaptive_max_pool2d_backward(grads[0], self, results[1])


@adaptive_max_pool2d.jvp
def adaptive_max_pool2d_jvp(self_tangent, results):
    return found_at(self_tangent, results[1], 2), None


@composite
def adaptive_max_pool2d_backward(grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    """grad_output added up at the indices of the largest elements."""
    return added_at(grad_output, self, indices, 2)


@composite
def adaptive_max_pool3d(self: Tensor, output_size: OutputSize) -> tuple[Tensor, Tensor]:
    """The largest element of each of output_size windows of the last three dims, and its row-major index."""
    return _adaptive_max(self, output_size, 3)


@adaptive_max_pool3d.vjp
def adaptive_max_pool3d_vjp(grads, results, self):
    return adaptive_max_pool3d_backward(grads[0], self, results[1])


@adaptive_max_pool3d.jvp
def adaptive_max_pool3d_jvp(self_tangent, results):
    return found_at(self_tangent, results[1], 3), None


@composite
def adaptive_max_pool3d_backward(grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    """grad_output added up at the indices of the largest elements."""
    return added_at(grad_output, self, indices, 3)


@composite
def adaptive_max_pool1d(self: Tensor, output_size: OutputSize) -> tuple[Tensor, Tensor]:
    """The largest element of each of output_size windows of the last dim, and its index."""
    (count,) = _counts_of(self, output_size, 1)
    values, indices = adaptive_max_pool2d(unsqueeze(self, -2), (1, count))
    return squeeze(values, -2), squeeze(indices, -2)
