"""Image sampling at points between pixels, by interpolation.

An interpolation is a product of two 1-dim ones. Each axis has taps: an index, a weight, and the weight's slope. The
value is the sum over pairs of taps, and so are its derivatives by the image and by the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..ir.errors import ArgumentError, ShapeError
from ..ir.types import f64, i64
from . import pointwise, reduce, rounding
from .concat_pad import cat
from .create import full
from .define import Tensor, composite
from .indexing import gather, scatter_add
from .shapes import equal
from .view import expand, flatten, reshape, select, unsqueeze

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
SHARPNESS = -0.75  # the free parameter of cubic convolution, as in PyTorch


class Tap(NamedTuple):
    """A pixel's index along one axis, whether it is in the image, its weight, and the weight's derivative by the
    point."""

    place: Tensor
    inside: Tensor | None
    weight: Tensor | None
    slope: Tensor | None


def _clipped(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return x clamped to the image, and whether it was strictly inside: at the edge the derivative is zero."""
    above, below = x > 0, x < size - 1
    return pointwise.where(above, pointwise.where(below, x, size - 1.0), 0.0), above & below


def _mirrored(x: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return x reflected at low and high until it is between them, and the sign of the derivative."""
    if low == high:
        return x * 0, x * 0
    span = high - low
    distance = pointwise.abs(x - low)
    turns = rounding.floor(distance / span)
    rest = pointwise.fmod(distance, span)
    even = pointwise.remainder(turns, 2) == 0
    sign = pointwise.where(x < low, -1.0, 1.0)
    return pointwise.where(even, rest + low, high - rest), pointwise.where(even, sign, -sign)


def _brought_inside(x: Tensor, size: int, padding_mode: int, align_corners: bool) -> tuple[Tensor, Tensor | None]:
    """Return a point moved into the image by padding_mode, and the derivative of the move (None: 1)."""
    if padding_mode == ZEROS:
        return x, None
    if padding_mode == BORDER:
        clipped, free = _clipped(x, size)
        return clipped, pointwise.cast(free, x.dtype)
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    mirrored, sign = _mirrored(x, low, high)
    clipped, free = _clipped(mirrored, size)
    return clipped, pointwise.where(free, sign, 0.0)


def _tap(at: Tensor, size: int, weight: Tensor | None, slope: Tensor | None) -> Tap:
    """Return a tap at an integer; outside the image its index is 0 and its pixel counts as zero."""
    inside = (at >= 0) & (at <= size - 1)
    return Tap(pointwise.cast(pointwise.where(inside, at, 0.0), i64), inside, weight, slope)


def cubic(part: Tensor, near: bool) -> tuple[Tensor, Tensor]:
    """Return the weight of a pixel at a distance of part (near) or 1 + part, and its derivative; factored, which
    cancels less than the expanded polynomials."""
    a = SHARPNESS
    if near:
        return (part - 1) * (((a + 2) * part - 1) * part - 1), (3 * (a + 2) * part - 2 * (a + 3)) * part
    rest = part - 1
    return a * part * rest * rest, a * (3 * part - 1) * rest


def _place(point: Tensor, size: int, align_corners: bool) -> Tensor:
    """Convert a point from -1..1 to pixels."""
    return (point + 1) * ((size - 1) / 2) if align_corners else ((point + 1) * size - 1) / 2


def _taps(point: Tensor, size: int, mode: int, padding_mode: int, align_corners: bool) -> list[Tap]:
    """Return the taps along one axis for points from -1 to 1."""
    scale = (size - 1) / 2 if align_corners else size / 2
    if mode == BICUBIC:
        # In f64: derivatives vary so much between pixels that the rounding of x would dominate their error.
        x = _place(pointwise.convert(point, f64), size, align_corners)
        first = rounding.floor(x)
        part, first = (pointwise.convert(item, point.dtype) for item in (x - first, first))
        found = []
        for offset in (-1, 0, 1, 2):
            weight, slope = cubic(part if offset < 1 else 1 - part, offset in (0, 1))
            at, _ = _brought_inside(first + offset, size, padding_mode, align_corners)
            at = at if padding_mode == ZEROS else rounding.floor(at)
            found.append(_tap(at, size, weight, slope * (scale if offset < 1 else -scale)))
        return found
    x, factor = _brought_inside(_place(point, size, align_corners), size, padding_mode, align_corners)
    if mode == NEAREST:
        return [_tap(rounding.round(x), size, None, None)]
    first = rounding.floor(x)
    part = x - first
    growth = full((), scale, dtype=x.dtype) if factor is None else factor * scale
    return [_tap(first, size, 1 - part, -growth), _tap(first + 1, size, part, growth)]


def _product(*factors: Tensor | None) -> Tensor | None:
    """Return the product; None is 1."""
    result: Tensor | None = None
    for factor in factors:
        result = factor if result is None else result if factor is None else result * factor
    return result


class Sampling:
    """One grid over one image: all its pairs of taps."""

    def __init__(self, input: Tensor, grid: Tensor, mode: int, padding_mode: int, align_corners: bool):
        if input.ndim != 4 or grid.ndim != 4 or not equal(grid.shape[-1], 2):
            raise ShapeError(
                f"input is {list(input.shape)} and grid {list(grid.shape)}, "
                "expected [batch, channels, rows, columns] and [batch, rows, columns, 2]"
            )
        if not equal(input.shape[0], grid.shape[0]):
            raise ShapeError(f"grid has batch size {grid.shape[0]}, expected {input.shape[0]} (that of input)")
        if mode not in (BILINEAR, NEAREST, BICUBIC) or padding_mode not in (ZEROS, BORDER, REFLECTION):
            raise ArgumentError(f"interpolation_mode is {mode} and padding_mode {padding_mode}, expected 0, 1 or 2")
        self.batch, self.channels = input.shape[:2]
        self.sizes = tuple(int(size) for size in input.shape[2:])
        self.points = (self.batch, 1, *grid.shape[1:3])
        wide = pointwise.convert(grid, grid.dtype.compute)
        self.rows, self.columns = (
            _taps(reshape(select(wide, -1, axis), self.points), size, mode, padding_mode, align_corners)
            for axis, size in ((1, self.sizes[0]), (0, self.sizes[1]))
        )
        self.shape = (self.batch, self.channels, *grid.shape[1:3])

    def places(self, row: Tap, column: Tap) -> Tensor:
        """Return the index, within its plane, of the pixel that each element of the result reads."""
        return flatten(expand(row.place * self.sizes[1] + column.place, self.shape), 2)

    def inside(self, row: Tap, column: Tap) -> Tensor:
        return row.inside & column.inside  # type: ignore[operator]

    def read(self, input: Tensor, row: Tap, column: Tap) -> Tensor:
        """Return the pixels at a pair of taps, zero outside the image."""
        found = gather(flatten(input, 2), 2, self.places(row, column))
        return pointwise.where(self.inside(row, column), reshape(found, self.shape), 0)


@composite
def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """input at the points of grid, whose x and y go from -1 to 1 across the image."""
    sampling = Sampling(input, grid, interpolation_mode, padding_mode, align_corners)
    value = pointwise.convert(input, input.dtype.compute)
    total: Tensor | None = None
    for row in sampling.rows:
        for column in sampling.columns:
            pixel = sampling.read(value, row, column)
            weight = _product(row.weight, column.weight)
            part = pixel if weight is None else pixel * weight
            total = part if total is None else total + part
    assert total is not None
    return pointwise.convert(total, input.dtype)


@grid_sampler_2d.vjp
def grid_sampler_2d_vjp(grad, input, grid, interpolation_mode, padding_mode, align_corners):
    return grid_sampler_2d_backward(grad, input, grid, interpolation_mode, padding_mode, align_corners, (True, True))


@composite
def grid_sampler_2d_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor]:
    """The gradients of grid_sampler_2d by input, zeros where output_mask is false, and by grid."""
    sampling = Sampling(input, grid, interpolation_mode, padding_mode, align_corners)
    gradient = pointwise.convert(grad_output, grad_output.dtype.compute)
    value = pointwise.convert(input, input.dtype.compute)
    by_input = full(flatten(input, 2).shape, 0, dtype=value.dtype)
    by_point: list[Tensor | None] = [None, None]
    for row in sampling.rows:
        for column in sampling.columns:
            if output_mask[0]:
                weight = _product(row.weight, column.weight)
                part = gradient if weight is None else gradient * weight
                part = pointwise.where(sampling.inside(row, column), part, 0)
                by_input = scatter_add(by_input, 2, sampling.places(row, column), flatten(part, 2))
            if interpolation_mode != NEAREST:
                along = reduce.sum(gradient * sampling.read(value, row, column), 1, True)
                for axis, slope in enumerate(((column.slope, row.weight), (row.slope, column.weight))):
                    part = along * _product(*slope)
                    by_point[axis] = part if by_point[axis] is None else by_point[axis] + part
    found = [
        unsqueeze(select(full(sampling.points, 0, dtype=grid.dtype) if part is None else part, 1, 0), -1)
        for part in by_point
    ]
    return (
        reshape(pointwise.convert(by_input, input.dtype), input.shape),
        pointwise.convert(cat(found, -1), grid.dtype),
    )
