"""Pools at places that numbers choose: fractional pools, whose windows are random, and the inverse of maximum pools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.symbolic import Dim, product
from ..ir.types import i64
from . import pointwise, rounding
from .create import iota, new_zeros, number_of
from .define import Tensor, composite
from .indexing import gather, scatter
from .pooling import added_at, found_at
from .shapes import at_least, equal
from .view import expand, flatten, reshape, select, slice, unsqueeze
from .windows import Tap, largest

# Fractional pools


def _starts(sample: Tensor, size: Dim, count: Dim, kernel: int) -> Tensor:
    """Return the starts of `count` windows for each number of sample, in a new last dim; the last one ends the dim.

    A start is a truncated number, so each step is rounded to the type of sample, as in PyTorch."""
    place = expand(iota((count,), dim=0, dtype=i64), (*sample.shape, count))
    end = number_of(size, i64) - kernel
    if count == 1:
        return place * 0 + end
    real = sample.dtype
    step = number_of(size - kernel, real) / number_of(count - 1, real)  # type: ignore[operator]
    shift = unsqueeze(sample, -1)

    def whole(value: Tensor) -> Tensor:
        return pointwise.cast(rounding.trunc(value), i64)

    start = whole(_stored(_stored(pointwise.cast(place, real) + shift) * step)) - whole(_stored(shift * step))
    return pointwise.where(place == number_of(count, i64) - 1, end, start)


def _stored(value: Tensor) -> Tensor:
    """Return a value rounded to its type, also inside a kernel that computes in a wider one."""
    return value if value.dtype.compute is value.dtype else pointwise.round_off(value)


def _fractional(
    self: Tensor, rank: int, kernel_size: Sequence[int], output_size: Sequence[Dim], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the largest element of each window, and its row-major index in the last dims."""
    if self.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"self has {self.ndim} dimensions, expected {rank + 1} or {rank + 2}")
    if len(kernel_size) != rank or len(output_size) != rank:
        raise ArgumentError(f"kernel_size is {kernel_size} and output_size {output_size}, expected {rank} numbers each")
    if not self.dtype.is_float:
        raise DTypeError(f"self is {self.dtype}, expected a float type")
    if random_samples.dtype is not self.dtype:
        raise DTypeError(f"random_samples is {random_samples.dtype}, expected {self.dtype} (that of self)")
    value = self if self.ndim == rank + 2 else unsqueeze(self, 0)
    batch, channels, *sizes = value.shape
    given = random_samples.shape
    if len(given) != 3 or not at_least(given[0], batch) or not equal(given[1], channels) or not equal(given[2], rank):
        raise ShapeError(f"random_samples is {list(given)}, expected {[batch, channels, rank]}")
    for size, kernel, count in zip(sizes, kernel_size, output_size):
        if not at_least(size, kernel + count - 1):
            raise ShapeError(f"{count} windows of {kernel} do not fit a dimension of {size}")
    samples = slice(random_samples, 0, 0, batch)
    starts = []
    for dim, (size, kernel, count) in enumerate(zip(sizes, kernel_size, output_size)):
        # The numbers are in the order of the dims for 3, and in the opposite order for 2.
        chosen = select(samples, 2, dim if rank == 3 else rank - 1 - dim)
        start = _starts(chosen, size, count, kernel)
        ones = (*(1 for _ in output_size[:dim]), count, *(1 for _ in output_size[dim + 1 :]))
        starts.append(reshape(start, (batch, channels, *ones)))
    flat, shape = flatten(value, 2), (batch, channels, *output_size)

    def taps() -> Iterator[Tap]:
        for offsets in itertools.product(*map(range, kernel_size)):
            place: Tensor | None = None
            for start, offset, size in zip(starts, offsets, sizes):
                along = start + offset
                place = along if place is None else place * number_of(size, i64) + along
            assert place is not None
            place = flatten(expand(place, shape), 2)
            yield (gather(flat, 2, place), place), None

    found, at = (reshape(item, (*self.shape[:-rank], *output_size)) for item in largest(taps()))
    return found, at


@composite
def fractional_max_pool2d(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[Dim], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """The largest element of each of output_size windows that random_samples place, and its row-major index."""
    return _fractional(self, 2, kernel_size, output_size, random_samples)


@composite
def fractional_max_pool3d(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[Dim], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """The largest element of each of output_size windows that random_samples place, and its row-major index."""
    return _fractional(self, 3, kernel_size, output_size, random_samples)


@composite
def fractional_max_pool2d_backward(
    grad_output: Tensor, self: Tensor, kernel_size: Sequence[int], output_size: Sequence[Dim], indices: Tensor
) -> Tensor:
    """grad_output added up at the indices of the largest elements."""
    return added_at(grad_output, self, indices, 2)


@composite
def fractional_max_pool3d_backward(
    grad_output: Tensor, self: Tensor, kernel_size: Sequence[int], output_size: Sequence[Dim], indices: Tensor
) -> Tensor:
    """grad_output added up at the indices of the largest elements."""
    return added_at(grad_output, self, indices, 3)


@fractional_max_pool2d.vjp
def fractional_max_pool2d_vjp(grads, results, self, kernel_size, output_size):
    grad = fractional_max_pool2d_backward(grads[0], self, kernel_size, output_size, results[1])
    return {"self": grad}


@fractional_max_pool3d.vjp
def fractional_max_pool3d_vjp(grads, results, self, kernel_size, output_size):
    grad = fractional_max_pool3d_backward(grads[0], self, kernel_size, output_size, results[1])
    return {"self": grad}


@fractional_max_pool2d.jvp
def fractional_max_pool2d_jvp(self_tangent, results):
    return None if self_tangent is None else found_at(self_tangent, results[1], 2), None


@fractional_max_pool3d.jvp
def fractional_max_pool3d_jvp(self_tangent, results):
    return None if self_tangent is None else found_at(self_tangent, results[1], 3), None


# The inverse of maximum pools


def _unpooled(self: Tensor, indices: Tensor, output_size: Sequence[Dim], rank: int) -> Tensor:
    if self.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"self has {self.ndim} dimensions, expected {rank + 1} or {rank + 2}")
    if len(output_size) != rank:
        raise ArgumentError(f"output_size is {list(output_size)}, expected {rank} sizes")
    if len(indices.shape) != self.ndim or not all(map(equal, self.shape, indices.shape)):
        raise ShapeError(f"indices is {list(indices.shape)}, expected {list(self.shape)} (that of self)")
    leading = self.shape[:-rank]
    zeros = new_zeros(self, (*leading, product(output_size)))
    placed = scatter(zeros, -1, flatten(indices, -rank, -1), flatten(self, -rank, -1))
    return reshape(placed, (*leading, *output_size))


@composite
def max_unpool2d(self: Tensor, indices: Tensor, output_size: Sequence[Dim]) -> Tensor:
    """Zeros in output_size, with self at row-major indices into the last two dims; of equal ones, the last counts."""
    return _unpooled(self, indices, output_size, 2)


@max_unpool2d.vjp
def max_unpool2d_vjp(grad, indices):
    return {"self": found_at(grad, indices, 2)}


@composite
def max_unpool3d(
    self: Tensor, indices: Tensor, output_size: Sequence[Dim], stride: Sequence[int] = (), padding: Sequence[int] = ()
) -> Tensor:
    """Zeros in output_size, with self at row-major indices into the last three dims; of equal ones, the last counts."""
    return _unpooled(self, indices, output_size, 3)


@max_unpool3d.vjp
def max_unpool3d_vjp(grad, indices):
    return {"self": found_at(grad, indices, 3)}
