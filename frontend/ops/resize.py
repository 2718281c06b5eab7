"""How images are resized, one dim at a time: places, pixels, and weights.

A resize works on one dim after the other. Along a dim, each element of the result has taps: the index of a pixel, and
its weight. Both depend on the place along that dim alone, so they are tables, and each pixel is read as often as it has
taps, not as often as all dims together have.

A gradient by the pixels gathers, too. A pixel's readers are adjacent elements of the result; a window holds them for
certain, and the taps of its elements say which of them read the pixel, and their weights. So the backward of a resize
is its transpose by construction, runs in parallel, and has the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import NamedTuple

from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import ceil_divide, non_negative
from ..ir.proofs import maximum as larger
from ..ir.symbolic import Dim
from ..ir.types import DType, Order, f32, f64, i32, i64, inverse, u8
from . import elementary, minmax, pointwise, reduce, rounding
from .create import iota, number_of
from .define import Tensor, constant
from .grid_sample import cubic
from .indexing import select_along
from .kinds import Elementwise
from .shapes import at_least, equal
from .view import permute, reshape
from .windows import CHAIN

Scale = float | None

# Length of a window, at most, that only rounding adds.
EXCESS = 1e-9


class Tap(NamedTuple):
    """A pixel along one dim for each of some places of the result: its index, which may be out of range, and its
    weight (None: 1)."""

    place: Tensor
    weight: Tensor | None


class Window(NamedTuple):
    """For each element of a result along a dim, the elements that it reads: adjacent ones from `first` on, so many of
    them; `own` is the element's index."""

    first: Tensor
    length: Dim
    own: Tensor


@dataclass(frozen=True)
class Axis:
    """One dim of a resize, from `size` pixels to `count`. A given scale is that of the result to the image; else it
    follows from the sizes, or from the distances between the outermost pixels if those are aligned."""

    size: Dim
    count: Dim
    scale: Scale = None
    align_corners: bool = False

    @property
    def given(self) -> float | None:
        """The given scale, where it counts."""
        return self.scale if self.scale is not None and self.scale > 0 and not self.align_corners else None

    def step(self, dtype: DType) -> float | Tensor:
        """Return the distance between adjacent elements of the result, in pixels."""
        if self.given is not None:
            return 1.0 / self.given
        size, count = (number_of(value - self.align_corners, dtype) for value in (self.size, self.count))
        if isinstance(size, int) and isinstance(count, int):
            return size / count if count else 0.0
        if not self.align_corners:
            return size / count
        return size / minmax.clamp_min(count, 1) if isinstance(count, Tensor) else size / count if count else 0.0

    def last(self, dtype: DType) -> int | Tensor:
        """Return the index of the last pixel."""
        return number_of(self.size, dtype) - 1


def _center(at: Tensor, axis: Axis) -> Tensor:
    """Return the point in the image, in pixels, of places of the result."""
    step = axis.step(f64)
    return at * step if axis.align_corners else (at + 0.5) * step - 0.5


def _rounded(value: Tensor) -> Tensor:
    """Return an integer as i64, from a table."""
    return pointwise.tabulated(pointwise.cast(value, i64))


def added(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors."""
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return result


class Mode:
    """A way to resize: the taps of a place of the result, and the places that may read a pixel."""

    def copies(self, axis: Axis) -> bool:
        """Whether the result is the image, for certain."""
        return isinstance(axis.size, int) and axis.size == axis.count and axis.given is None

    def taps(self, at: Tensor, axis: Axis) -> list[Tap]:
        """Return the taps of places `at`, an i64 tensor of any shape.

        Kernels may contract arithmetic, each in its own way, so a rounded number has one kernel that computes it: the
        index that is read is the one that its weight is for."""
        raise NotImplementedError

    def reach(self, axis: Axis, step: float | Tensor) -> tuple[float | Tensor, float | Tensor]:
        """Return low and high: the places that read pixel j are between j / step + low and j / step + high."""
        raise NotImplementedError

    def span(self, axis: Axis) -> Dim:
        """Return a number of places of which a pixel has no more readers, for a scale that is not given."""
        raise NotImplementedError

    def pixels(self, axis: Axis) -> Window:
        """Return the pixels that each place reads."""
        raise NotImplementedError

    def share(self, at: Tensor, pixel: Tensor, axis: Axis) -> Tensor:
        """Return the weights of pixels at places of the result; both are i64."""
        parts = []
        for place, weight in self.taps(at, axis):
            parts.append(pointwise.where(place == pixel, 1.0 if weight is None else weight, 0.0))
        return added(parts)


class Nearest(Mode):
    """The pixel below a point, computed in f32 as in PyTorch; `exact` counts from the centers of pixels."""

    def __init__(self, exact: bool):
        self.exact = exact

    def taps(self, at: Tensor, axis: Axis) -> list[Tap]:
        point = pointwise.cast(at, f32)
        step = axis.step(f32)
        found = _rounded(rounding.floor((point + 0.5) * step if self.exact else point * step))
        return [Tap(minmax.minimum(found, axis.last(i64)), None)]

    def reach(self, axis: Axis, step: float | Tensor) -> tuple[float | Tensor, float | Tensor]:
        # A place more: the rounding of f32 may move a reader.
        start = -0.5 if self.exact else 0.0
        return start - 1.0, start + 1.0 / step

    def span(self, axis: Axis) -> Dim:
        return larger(1, ceil_divide(axis.count, axis.size) + 1)


class Linear(Mode):
    """The two pixels around a point."""

    radius = 1

    def copies(self, axis: Axis) -> bool:
        return isinstance(axis.size, int) and axis.size == axis.count  # whatever the scale that is given

    def taps(self, at: Tensor, axis: Axis) -> list[Tap]:
        here = pointwise.cast(at, f64)
        point = minmax.minimum(minmax.clamp_min(_center(here, axis), 0.0), axis.last(f64))
        if axis.given is not None and not (isinstance(axis.size, int) and isinstance(axis.count, int)):
            same = number_of(axis.size, i64) == number_of(axis.count, i64)
            point = pointwise.where(same, here, point)
        place = _rounded(rounding.floor(point))
        part = minmax.clamp(point - pointwise.cast(place, f64), 0.0, 1.0)
        return [Tap(place, 1.0 - part), Tap(minmax.minimum(place + 1, axis.last(i64)), part)]

    def pixels(self, axis: Axis) -> Window:
        own = iota((axis.count,), dim=0, dtype=i64)
        return Window(self.taps(own, axis)[0].place, 2 * self.radius, own)

    def reach(self, axis: Axis, step: float | Tensor) -> tuple[float | Tensor, float | Tensor]:
        radius = self.radius
        if axis.align_corners:
            return -radius / step, radius / step
        return (0.5 - radius) / step - 0.5, (0.5 + radius) / step - 0.5

    def span(self, axis: Axis) -> Dim:
        size, count = axis.size - axis.align_corners, axis.count - axis.align_corners
        return larger(1, ceil_divide(2 * self.radius * count, larger(1, size)))


class Cubic(Linear):
    """Cubic convolution of the four pixels around a point; outside the image are copies of its outermost pixels."""

    radius = 2

    def copies(self, axis: Axis) -> bool:
        return Mode.copies(self, axis)

    def taps(self, at: Tensor, axis: Axis) -> list[Tap]:
        point = _center(pointwise.cast(at, f64), axis)
        place, last = _rounded(minmax.minimum(rounding.floor(point), axis.last(f64))), axis.last(i64)
        part = minmax.clamp(point - pointwise.cast(place, f64), 0.0, 1.0)
        found = []
        for offset in (-1, 0, 1, 2):
            weight, _ = cubic(part if offset < 1 else 1.0 - part, offset in (0, 1))
            found.append(Tap(minmax.minimum(minmax.clamp_min(place + offset, 0), last), weight))
        return found


class Antialiased(Mode):
    """A filter on pixels around a point, as wide as the result's pixels where these are larger than the image's; its
    weights add up to 1. At its radius the filter is 0, so it does not matter on which side a pixel there is counted."""

    def __init__(self, radius: int, filter: Callable[[Tensor], Tensor]):
        self.radius = radius
        self.filter = filter

    def copies(self, axis: Axis) -> bool:
        return isinstance(axis.size, int) and axis.size == axis.count

    def _point(self, at: Tensor, axis: Axis) -> Tensor:
        """Return the point, in pixels, whose edges are integers here."""
        return (pointwise.cast(at, f64) + 0.5) * axis.step(f64)

    def _raw(self, at: Tensor, pixel: Tensor, axis: Axis) -> Tensor:
        """Return the weights, not yet divided by their sum."""
        apart = pointwise.cast(pixel, f64) + 0.5 - self._point(at, axis)
        inside = (pixel >= 0) & (pixel <= axis.last(i64))
        return pointwise.where(inside, self.filter(pointwise.abs(apart) / _stretch(axis.step(f64))), 0.0)

    def pixels(self, axis: Axis) -> Window:
        own = iota((axis.count,), dim=0, dtype=i64)
        step = axis.step(f64)
        first = rounding.floor(self._point(own, axis) - self.radius * _stretch(step) + 0.5)
        if isinstance(step, float):
            length: Dim = ceil(2 * self.radius * max(step, 1.0) - EXCESS)
        else:
            size, count = axis.size - axis.align_corners, larger(1, axis.count - axis.align_corners)
            length = larger(1, ceil_divide(2 * self.radius * larger(size, count), count))
        return Window(_rounded(minmax.clamp_min(first, 0.0)), length, own)

    def share(self, at: Tensor, pixel: Tensor, axis: Axis) -> Tensor:
        first, length, own = self.pixels(axis)
        own = reshape(own, (axis.count, 1))
        window = reshape(first, (axis.count, 1)) + iota((axis.count, length), dim=1, dtype=i64)
        total = reduce.sum(self._raw(own, window, axis), 1)
        total = pointwise.where(total == 0, 1.0, total)
        last = number_of(axis.count, i64) - 1
        return self._raw(at, pixel, axis) / select_along(total, 0, minmax.minimum(at, last))

    def reach(self, axis: Axis, step: float | Tensor) -> tuple[float | Tensor, float | Tensor]:
        radius = self.radius * _stretch(step)
        return (0.5 - radius) / step - 0.5, (0.5 + radius) / step - 0.5

    def span(self, axis: Axis) -> Dim:
        size, count = axis.size - axis.align_corners, axis.count - axis.align_corners
        return larger(2 * self.radius, ceil_divide(2 * self.radius * count, larger(1, size)))


def _stretch(step: float | Tensor) -> float | Tensor:
    return max(step, 1.0) if isinstance(step, float) else minmax.clamp_min(step, 1.0)


def _hat(apart: Tensor) -> Tensor:
    return minmax.clamp_min(1.0 - apart, 0.0)


def _keys(apart: Tensor) -> Tensor:
    """Return the cubic convolution of an antialiased resize, whose free parameter is not that of the others."""
    near = (1.5 * apart - 2.5) * apart * apart + 1.0
    far = ((2.5 - 0.5 * apart) * apart - 4.0) * apart + 2.0
    return pointwise.where(apart < 1.0, near, pointwise.where(apart < 2.0, far, 0.0))


ANTIALIASED_LINEAR, ANTIALIASED_CUBIC = Antialiased(1, _hat), Antialiased(2, _keys)
NEAREST, NEAREST_EXACT, LINEAR, CUBIC = Nearest(False), Nearest(True), Linear(), Cubic()


def _table(weight: Tensor, dtype: DType) -> Tensor:
    """Return weights as a table that kernels read."""
    return pointwise.tabulated(pointwise.convert(weight, dtype))


def _along(table: Tensor, dim: int, rank: int) -> Tensor:
    """Return a table for one dim, or for that one and the next, such that it broadcasts against a tensor of `rank`."""
    return reshape(table, (*table.shape, *(1 for _ in range(rank - dim - table.ndim))))


def windowed(value: Tensor, dim: int, window: Window, weight: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the weighted sums of windows along dim. `weight` takes indices of elements read, and of the result; it is
    zero for those that value does not have."""
    first, length, own = window
    last = number_of(value.shape[dim], i64) - 1
    if isinstance(length, int) and length <= CHAIN:
        parts = []
        for offset in range(length):
            at = first + offset
            part = select_along(value, dim, minmax.clamp(at, 0, last))
            parts.append(_weighted(part, _along(_table(weight(at, own), value.dtype), dim, part.ndim)))
        return added(parts)
    count = own.shape[0]
    at = reshape(first, (count, 1)) + iota((count, length), dim=1, dtype=i64)
    part = select_along(value, dim, minmax.clamp(at, 0, last))
    table = _table(weight(at, reshape(own, (count, 1))), value.dtype)
    return reduce.sum(_weighted(part, _along(table, dim, part.ndim)), dim + 1)


def _weighted(part: Tensor, weight: Tensor) -> Tensor:
    """Return a product that is zero where the weight is: NaN and inf outside of a window stay out."""
    return pointwise.where(weight == 0, 0.0, part * weight)


def resized(value: Tensor, dim: int, axis: Axis, mode: Mode) -> Tensor:
    """Return a tensor resized along one dim."""
    if mode.copies(axis):
        return value
    if isinstance(mode, Antialiased):
        return windowed(value, dim, mode.pixels(axis), lambda pixel, at: mode.share(at, pixel, axis))
    parts = []
    for place, weight in mode.taps(iota((axis.count,), dim=0, dtype=i64), axis):
        part = select_along(value, dim, place)
        if weight is not None:
            part = part * _along(_table(weight, value.dtype), dim, part.ndim)
        parts.append(part)
    return added(parts)


def _readers(axis: Axis, mode: Mode) -> tuple[Tensor, Dim]:
    """Return the first place that may read each pixel, and the number of places from there on."""
    step = axis.step(f64)
    pixel = iota((axis.size,), dim=0, dtype=f64)
    if isinstance(step, Tensor):
        # A step of 0 (a single pixel, or a single place, with corners aligned) has all places.
        low, _ = mode.reach(axis, pointwise.where(step > 0, step, 1.0))
        first = pointwise.where(step > 0, rounding.floor(pixel / step + low) + 1, 0.0)
        return _rounded(minmax.clamp_min(first, 0.0)), mode.span(axis)
    if step == 0:
        return pointwise.cast(pixel, i64) * 0, axis.count
    low, high = (float(bound) for bound in mode.reach(axis, step))  # type: ignore[arg-type]
    first = _rounded(minmax.clamp_min(rounding.floor(pixel * (1 / step) + low) + 1, 0.0))
    length: Dim = ceil(high - low - EXCESS)
    if isinstance(axis.size, int) and isinstance(axis.count, int):
        # A given scale may not fit the sizes: all places beyond the image read its last pixel.
        last = max(floor((axis.size - 1) / step + low) + 1, 0)
        length = min(max(length, axis.count - last), axis.count)
    elif axis.given is not None and not _fits(axis):
        length = axis.count
    return first, length


def _fits(axis: Axis) -> bool:
    """Whether a given scale is that of the sizes, for certain."""
    scale = axis.given
    return scale is not None and scale == int(scale) and non_negative(axis.size * int(scale) - axis.count)


def spread(grad: Tensor, dim: int, axis: Axis, mode: Mode) -> Tensor:
    """Return the transpose of `resized`: for each pixel the weighted sum of the places that read it."""
    if mode.copies(axis):
        return grad
    first, length = _readers(axis, mode)
    pixel = iota((axis.size,), dim=0, dtype=i64)
    last = number_of(axis.count, i64) - 1

    def weight(at: Tensor, pixel: Tensor) -> Tensor:
        return pointwise.where(at <= last, mode.share(at, pixel, axis), 0.0)

    return windowed(grad, dim, Window(first, length, pixel), weight)


# Bytes

# Weights of bytes are integers of so many bits, the sign included, and no finer than the other number of bits.
WEIGHT_BITS, FINEST = 15, 22


def rounded(value: Tensor, dim: int, axis: Axis, mode: Mode) -> Tensor:
    """Return u8 resized along one dim in integers: weights are multiples of a power of 2, as fine as 16 bits hold, and
    the sum is rounded to a byte, as in PyTorch and in Pillow."""
    if isinstance(axis.size, int) and axis.size == axis.count:
        return value
    first, length, own = mode.pixels(axis)
    count = axis.count
    at = reshape(first, (count, 1)) + iota((count, length), dim=1, dtype=i64)
    weights = mode.share(reshape(own, (count, 1)), at, axis)
    powers = elementary.exp2(iota((FINEST,), dim=0, dtype=f64) + 1.0)
    holds = rounding.floor(reduce.amax(weights) * powers + 0.5) < 2.0**WEIGHT_BITS
    bits = pointwise.cast(reduce.sum(holds), i32)
    scaled = weights * elementary.exp2(pointwise.cast(bits, f64))
    table = pointwise.cast(rounding.trunc(pointwise.where(scaled < 0, scaled - 0.5, scaled + 0.5)), i32)
    part = pointwise.cast(select_along(value, dim, minmax.clamp(at, 0, axis.last(i64))), i32)
    total = reduce.sum(part * _along(table, dim, part.ndim), dim + 1, dtype=i32)
    half = pointwise.bitwise_left_shift(constant(1, i32), bits - 1)
    return pointwise.cast(minmax.clamp(pointwise.bitwise_right_shift(total + half, bits), 0, 255), u8)


# Arguments


def axes_of(
    image: Sequence[Dim],
    output_size: Sequence[Dim],
    scales: Sequence[Scale],
    align_corners: bool,
) -> list[Axis]:
    """Return the resized dims, checked."""
    rank = len(scales)
    if len(image) != rank + 2:
        raise ShapeError(f"the image has {len(image)} dimensions, expected {rank + 2}: batch, channels and {rank} more")
    if len(output_size) != rank:
        raise ArgumentError(f"output_size is {list(output_size)}, expected {rank} sizes")
    axes = [Axis(size, count, scale, align_corners) for size, count, scale in zip(image[2:], output_size, scales)]
    for axis in axes:
        if not at_least(axis.size, 1) or not at_least(axis.count, 1):
            raise ShapeError(f"an image of {list(image[2:])} cannot become {list(output_size)}: sizes must be positive")
    return axes


Step = Callable[[Tensor, int, Axis, Mode], Tensor]


def all_dims(value: Tensor, axes: Sequence[Axis], mode: Mode, step: Step) -> Tensor:
    """Apply a step along each dim. The last dim is first, where adjacent elements of a result read far elements: it is
    done while the others are small. What is kept between the steps has the memory order of the image, so that channels
    which are last stay last; the values are the same in any order."""
    order = _memory_order(value)
    if order is not None:
        value = permute(value, order)
    for number in reversed(range(len(axes))):
        dim = number + 2 if order is None else order.index(number + 2)
        value = step(value, dim, axes[number], mode)
    return value if order is None else permute(value, inverse(order))


def _memory_order(value: Tensor) -> Order | None:
    """Return the dims of a permuted image in memory order, seen through elementwise ops; None if it is row-major."""
    source = value
    while source.op is not None and isinstance(source.op.defn.kind, Elementwise):
        alike = [operand for operand in source.op.operands if operand.shape == value.shape]
        if not alike:
            return None
        source = alike[0]
    if source.op is None or source.op.defn is not permute:
        return None
    dims = source.op.arguments["dims"]
    return tuple(dims.index(dim) for dim in range(value.ndim))


def checked_gradient(grad_output: Tensor, image: Sequence[Dim], output_size: Sequence[Dim]) -> Tensor:
    """Return a gradient in the type that it is computed in, checked against the shape of the result."""
    expected = (*image[:2], *output_size)
    if grad_output.ndim != len(expected) or not all(map(equal, grad_output.shape, expected)):
        raise ShapeError(f"grad_output is {list(grad_output.shape)}, expected {list(expected)}")
    return pointwise.convert(grad_output, grad_output.dtype.compute)
