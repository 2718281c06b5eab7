"""Resizing of images: nearest pixels, and linear and cubic interpolation between pixels.

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

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.proofs import ceil_divide, non_negative
from ..ir.proofs import maximum as larger
from ..ir.symbolic import Dim
from ..ir.types import DType, f32, f64, i64
from . import minmax, pointwise, reduce, rounding
from .create import iota, number_of
from .define import Tensor, composite
from .derivatives import ShapeOf, forward_to
from .grid_sample import cubic
from .indexing import select_along
from .shapes import at_least, equal
from .view import alias, reshape
from .windows import CHAIN

Scale = float | None


class Tap(NamedTuple):
    """A pixel along one dim for each of some places of the result: its index, which may be out of range, and its
    weight (None: 1)."""

    place: Tensor
    weight: Tensor | None


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


class Mode:
    """A way to resize: the taps of a place of the result, and the places that may read a pixel."""

    def copies(self, axis: Axis) -> bool:
        """Whether the result is the image, for certain."""
        return isinstance(axis.size, int) and axis.size == axis.count and axis.given is None

    def taps(self, at: Tensor, axis: Axis) -> list[Tap]:
        """Return the taps of places `at`, an i64 tensor of any shape."""
        raise NotImplementedError

    def reach(self, axis: Axis, step: float | Tensor) -> tuple[float | Tensor, float | Tensor]:
        """Return low and high: the places that read pixel j are between j / step + low and j / step + high."""
        raise NotImplementedError

    def span(self, axis: Axis) -> Dim:
        """Return a number of places of which a pixel has no more readers, for a scale that is not given."""
        raise NotImplementedError


class Nearest(Mode):
    """The pixel below a point, computed in f32 as in PyTorch; `exact` counts from the centers of pixels."""

    def __init__(self, exact: bool):
        self.exact = exact

    def taps(self, at: Tensor, axis: Axis) -> list[Tap]:
        point = pointwise.cast(at, f32)
        step = axis.step(f32)
        found = pointwise.cast(rounding.floor((point + 0.5) * step if self.exact else point * step), i64)
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
        first = rounding.floor(point)
        part = point - first
        place = pointwise.cast(first, i64)
        return [Tap(place, 1.0 - part), Tap(minmax.minimum(place + 1, axis.last(i64)), part)]

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
        first = minmax.minimum(rounding.floor(point), axis.last(f64))
        part = minmax.clamp(point - first, 0.0, 1.0)
        place, last = pointwise.cast(first, i64), axis.last(i64)
        found = []
        for offset in (-1, 0, 1, 2):
            weight, _ = cubic(part if offset < 1 else 1.0 - part, offset in (0, 1))
            found.append(Tap(minmax.minimum(minmax.clamp_min(place + offset, 0), last), weight))
        return found


NEAREST, NEAREST_EXACT, LINEAR, CUBIC = Nearest(False), Nearest(True), Linear(), Cubic()


def _added(parts: Sequence[Tensor]) -> Tensor:
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return result


def _along(table: Tensor, dim: int, rank: int) -> Tensor:
    """Return a table for one dim, or for that one and the next, such that it broadcasts against a tensor of `rank`."""
    return reshape(table, (*table.shape, *(1 for _ in range(rank - dim - table.ndim))))


def resized(value: Tensor, dim: int, axis: Axis, mode: Mode) -> Tensor:
    """Return a tensor resized along one dim."""
    if mode.copies(axis):
        return value
    parts = []
    for place, weight in mode.taps(iota((axis.count,), dim=0, dtype=i64), axis):
        part = select_along(value, dim, place)
        if weight is not None:
            part = part * _along(pointwise.convert(weight, value.dtype), dim, part.ndim)
        parts.append(part)
    return _added(parts)


def _window(axis: Axis, mode: Mode) -> tuple[Tensor, Dim]:
    """Return the first place that may read each pixel, and the number of places from there on."""
    step = axis.step(f64)
    pixel = iota((axis.size,), dim=0, dtype=f64)
    if isinstance(step, Tensor):
        # A step of 0 (a single pixel, or a single place, with corners aligned) has all places.
        low, _ = mode.reach(axis, pointwise.where(step > 0, step, 1.0))
        first = pointwise.where(step > 0, rounding.floor(pixel / step + low) + 1, 0.0)
        return pointwise.cast(minmax.clamp_min(first, 0.0), i64), mode.span(axis)
    if step == 0:
        return pointwise.cast(pixel, i64) * 0, axis.count
    low, high = (float(bound) for bound in mode.reach(axis, step))  # type: ignore[arg-type]
    first = pointwise.cast(minmax.clamp_min(rounding.floor(pixel * (1 / step) + low) + 1, 0.0), i64)
    length: Dim = ceil(high - low - 1e-9)
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
    first, length = _window(axis, mode)
    pixel = iota((axis.size,), dim=0, dtype=i64)
    last = number_of(axis.count, i64) - 1
    if isinstance(length, int) and length <= CHAIN:
        parts = []
        for offset in range(length):
            at = first + offset
            weight = _share(at, pixel, last, axis, mode, grad.dtype)
            part = select_along(grad, dim, minmax.minimum(at, last))
            parts.append(part * _along(weight, dim, grad.ndim))
        return _added(parts)
    pixel = reshape(pixel, (axis.size, 1))
    at = reshape(first, (axis.size, 1)) + iota((axis.size, length), dim=1, dtype=i64)
    weight = _share(at, pixel, last, axis, mode, grad.dtype)
    found = select_along(grad, dim, minmax.minimum(at, last))
    return reduce.sum(found * _along(weight, dim, found.ndim), dim + 1)


def _share(at: Tensor, pixel: Tensor, last: int | Tensor, axis: Axis, mode: Mode, dtype: DType) -> Tensor:
    """Return the weight that places `at` give to a pixel; places after the last one give it none."""
    parts = []
    for place, weight in mode.taps(at, axis):
        one: Tensor | float = 1.0 if weight is None else weight
        parts.append(pointwise.where((place == pixel) & (at <= last), one, 0.0))
    return pointwise.convert(_added(parts), dtype)


# Arguments


def _axes(
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


def _all_dims(value: Tensor, axes: Sequence[Axis], mode: Mode, step: Step) -> Tensor:
    """Apply a step along each dim. The last dim is first, where adjacent elements of a result read far elements: it is
    done while the others are small."""
    for number in reversed(range(len(axes))):
        value = step(value, number + 2, axes[number], mode)
    return value


def _upsample(
    self: Tensor,
    output_size: Sequence[Dim],
    scales: Sequence[Scale],
    mode: Mode,
    align_corners: bool = False,
) -> Tensor:
    axes = _axes(self.shape, output_size, scales, align_corners)
    if isinstance(mode, Nearest):
        found = _all_dims(self, axes, mode, resized)
        return alias(found) if found is self else found
    if not self.dtype.is_float:
        raise DTypeError(f"self is {self.dtype}, expected a float type")
    value = pointwise.convert(self, self.dtype.compute)
    return pointwise.convert(_all_dims(value, axes, mode, resized), self.dtype)


def _backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    scales: Sequence[Scale],
    mode: Mode,
    align_corners: bool = False,
) -> Tensor:
    axes = _axes(input_size, output_size, scales, align_corners)
    expected = (*input_size[:2], *output_size)
    if grad_output.ndim != len(expected) or not all(map(equal, grad_output.shape, expected)):
        raise ShapeError(f"grad_output is {list(grad_output.shape)}, expected {list(expected)}")
    value = pointwise.convert(grad_output, grad_output.dtype.compute)
    return pointwise.convert(_all_dims(value, axes, mode, spread), grad_output.dtype)


# Ops


@composite
def upsample_nearest1d(
    self: Tensor,
    output_size: Sequence[Dim],
    scales: Scale = None,
) -> Tensor:
    """self with the last dim resized to output_size: the pixel at or before each point."""
    return _upsample(self, output_size, (scales,), NEAREST)


@composite
def upsample_nearest1d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    scales: Scale = None,
) -> Tensor:
    """grad_output added up at the pixels that upsample_nearest1d reads."""
    return _backward(grad_output, output_size, input_size, (scales,), NEAREST)


upsample_nearest1d.derivative = forward_to(upsample_nearest1d_backward, input_size=ShapeOf("self"))
upsample_nearest1d_backward.derivative = forward_to(upsample_nearest1d, self="grad")


@composite
def upsample_nearest2d(
    self: Tensor,
    output_size: Sequence[Dim],
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """self with the last two dims resized to output_size: the pixel at or before each point."""
    return _upsample(self, output_size, (scales_h, scales_w), NEAREST)


@composite
def upsample_nearest2d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """grad_output added up at the pixels that upsample_nearest2d reads."""
    return _backward(grad_output, output_size, input_size, (scales_h, scales_w), NEAREST)


upsample_nearest2d.derivative = forward_to(upsample_nearest2d_backward, input_size=ShapeOf("self"))
upsample_nearest2d_backward.derivative = forward_to(upsample_nearest2d, self="grad")


@composite
def upsample_nearest3d(
    self: Tensor,
    output_size: Sequence[Dim],
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """self with the last three dims resized to output_size: the pixel at or before each point."""
    return _upsample(self, output_size, (scales_d, scales_h, scales_w), NEAREST)


@composite
def upsample_nearest3d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """grad_output added up at the pixels that upsample_nearest3d reads."""
    return _backward(grad_output, output_size, input_size, (scales_d, scales_h, scales_w), NEAREST)


upsample_nearest3d.derivative = forward_to(upsample_nearest3d_backward, input_size=ShapeOf("self"))
upsample_nearest3d_backward.derivative = forward_to(upsample_nearest3d, self="grad")


@composite
def _upsample_nearest_exact1d(
    self: Tensor,
    output_size: Sequence[Dim],
    scales: Scale = None,
) -> Tensor:
    """self with the last dim resized to output_size: the pixel whose center is nearest to each point."""
    return _upsample(self, output_size, (scales,), NEAREST_EXACT)


@composite
def _upsample_nearest_exact1d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    scales: Scale = None,
) -> Tensor:
    """grad_output added up at the pixels that _upsample_nearest_exact1d reads."""
    return _backward(grad_output, output_size, input_size, (scales,), NEAREST_EXACT)


_upsample_nearest_exact1d.derivative = forward_to(_upsample_nearest_exact1d_backward, input_size=ShapeOf("self"))
_upsample_nearest_exact1d_backward.derivative = forward_to(_upsample_nearest_exact1d, self="grad")


@composite
def _upsample_nearest_exact2d(
    self: Tensor,
    output_size: Sequence[Dim],
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """self with the last two dims resized to output_size: the pixel whose center is nearest to each point."""
    return _upsample(self, output_size, (scales_h, scales_w), NEAREST_EXACT)


@composite
def _upsample_nearest_exact2d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """grad_output added up at the pixels that _upsample_nearest_exact2d reads."""
    return _backward(grad_output, output_size, input_size, (scales_h, scales_w), NEAREST_EXACT)


_upsample_nearest_exact2d.derivative = forward_to(_upsample_nearest_exact2d_backward, input_size=ShapeOf("self"))
_upsample_nearest_exact2d_backward.derivative = forward_to(_upsample_nearest_exact2d, self="grad")


@composite
def _upsample_nearest_exact3d(
    self: Tensor,
    output_size: Sequence[Dim],
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """self with the last three dims resized to output_size: the pixel whose center is nearest to each point."""
    return _upsample(self, output_size, (scales_d, scales_h, scales_w), NEAREST_EXACT)


@composite
def _upsample_nearest_exact3d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """grad_output added up at the pixels that _upsample_nearest_exact3d reads."""
    return _backward(grad_output, output_size, input_size, (scales_d, scales_h, scales_w), NEAREST_EXACT)


_upsample_nearest_exact3d.derivative = forward_to(_upsample_nearest_exact3d_backward, input_size=ShapeOf("self"))
_upsample_nearest_exact3d_backward.derivative = forward_to(_upsample_nearest_exact3d, self="grad")


@composite
def upsample_linear1d(
    self: Tensor,
    output_size: Sequence[Dim],
    align_corners: bool,
    scales: Scale = None,
) -> Tensor:
    """self with the last dim resized to output_size by linear interpolation."""
    return _upsample(self, output_size, (scales,), LINEAR, align_corners)


@composite
def upsample_linear1d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    align_corners: bool,
    scales: Scale = None,
) -> Tensor:
    """grad_output, weighted, added up at the pixels that upsample_linear1d reads."""
    return _backward(grad_output, output_size, input_size, (scales,), LINEAR, align_corners)


upsample_linear1d.derivative = forward_to(upsample_linear1d_backward, input_size=ShapeOf("self"))
upsample_linear1d_backward.derivative = forward_to(upsample_linear1d, self="grad")


@composite
def upsample_bilinear2d(
    self: Tensor,
    output_size: Sequence[Dim],
    align_corners: bool,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """self with the last two dims resized to output_size by linear interpolation."""
    return _upsample(self, output_size, (scales_h, scales_w), LINEAR, align_corners)


@composite
def upsample_bilinear2d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    align_corners: bool,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """grad_output, weighted, added up at the pixels that upsample_bilinear2d reads."""
    return _backward(grad_output, output_size, input_size, (scales_h, scales_w), LINEAR, align_corners)


upsample_bilinear2d.derivative = forward_to(upsample_bilinear2d_backward, input_size=ShapeOf("self"))
upsample_bilinear2d_backward.derivative = forward_to(upsample_bilinear2d, self="grad")


@composite
def upsample_trilinear3d(
    self: Tensor,
    output_size: Sequence[Dim],
    align_corners: bool,
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """self with the last three dims resized to output_size by linear interpolation."""
    return _upsample(self, output_size, (scales_d, scales_h, scales_w), LINEAR, align_corners)


@composite
def upsample_trilinear3d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    align_corners: bool,
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """grad_output, weighted, added up at the pixels that upsample_trilinear3d reads."""
    return _backward(grad_output, output_size, input_size, (scales_d, scales_h, scales_w), LINEAR, align_corners)


upsample_trilinear3d.derivative = forward_to(upsample_trilinear3d_backward, input_size=ShapeOf("self"))
upsample_trilinear3d_backward.derivative = forward_to(upsample_trilinear3d, self="grad")


@composite
def upsample_bicubic2d(
    self: Tensor,
    output_size: Sequence[Dim],
    align_corners: bool,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """self with the last two dims resized to output_size by cubic convolution."""
    return _upsample(self, output_size, (scales_h, scales_w), CUBIC, align_corners)


@composite
def upsample_bicubic2d_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    align_corners: bool,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """grad_output, weighted, added up at the pixels that upsample_bicubic2d reads."""
    return _backward(grad_output, output_size, input_size, (scales_h, scales_w), CUBIC, align_corners)


upsample_bicubic2d.derivative = forward_to(upsample_bicubic2d_backward, input_size=ShapeOf("self"))
upsample_bicubic2d_backward.derivative = forward_to(upsample_bicubic2d, self="grad")
