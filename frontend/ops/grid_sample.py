"""Image sampling at points between pixels, by interpolation.

An interpolation is a product of 1-dim ones, one for each dim. Each axis has taps: an index, a weight, and the weight's
slope. The value is the sum over all combinations of taps, and so are its derivatives by the image and by the points.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
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
    """One grid over one image or volume: all combinations of taps, one along each dim."""

    def __init__(
        self, input: Tensor, grid: Tensor, mode: int, padding_mode: int, align_corners: bool, rank: int = 2
    ) -> None:
        if input.ndim != rank + 2 or grid.ndim != rank + 2 or not equal(grid.shape[-1], rank):
            sizes = ", ".join(("depth", "rows", "columns")[-rank:])
            raise ShapeError(
                f"input is {list(input.shape)} and grid {list(grid.shape)}, "
                f"expected [batch, channels, {sizes}] and [batch, {sizes}, {rank}]"
            )
        if not equal(input.shape[0], grid.shape[0]):
            raise ShapeError(f"grid has batch size {grid.shape[0]}, expected {input.shape[0]} (that of input)")
        if mode not in (BILINEAR, NEAREST, BICUBIC) or padding_mode not in (ZEROS, BORDER, REFLECTION):
            raise ArgumentError(f"interpolation_mode is {mode} and padding_mode {padding_mode}, expected 0, 1 or 2")
        if rank == 3 and mode == BICUBIC:
            raise ArgumentError("interpolation_mode is 2, expected 0 or 1: there is no cubic sampling of volumes")
        self.rank = rank
        self.batch, self.channels = input.shape[:2]
        self.sizes = tuple(int(size) for size in input.shape[2:])
        self.points = (self.batch, 1, *grid.shape[1:-1])
        wide = pointwise.convert(grid, grid.dtype.compute)
        # The last dim of a grid names the dims of the image from the last one on.
        self.taps = [
            _taps(reshape(select(wide, -1, rank - 1 - dim), self.points), size, mode, padding_mode, align_corners)
            for dim, size in enumerate(self.sizes)
        ]
        self.shape = (self.batch, self.channels, *grid.shape[1:-1])

    def combinations(self) -> Iterator[tuple[Tap, ...]]:
        return itertools.product(*self.taps)

    def places(self, taps: Sequence[Tap]) -> Tensor:
        """Return the index, within its plane, of the pixel that each element of the result reads."""
        place = taps[0].place
        for tap, size in zip(taps[1:], self.sizes[1:]):
            place = place * size + tap.place
        return flatten(expand(place, self.shape), 2)

    def inside(self, taps: Sequence[Tap]) -> Tensor:
        result = taps[0].inside
        for tap in taps[1:]:
            result = result & tap.inside  # type: ignore[operator]
        return result  # type: ignore[return-value]

    def read(self, input: Tensor, taps: Sequence[Tap]) -> Tensor:
        """Return the pixels at a combination of taps, zero outside the image."""
        found = gather(flatten(input, 2), 2, self.places(taps))
        return pointwise.where(self.inside(taps), reshape(found, self.shape), 0)

    def counted(self, part: Tensor, taps: Sequence[Tap]) -> Tensor:
        """Return a term, 0 outside a volume also where the point is NaN. In an image that is NaN, as in PyTorch."""
        return part if self.rank == 2 else pointwise.where(self.inside(taps), part, 0)


def _sampled(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool, rank: int
) -> Tensor:
    sampling = Sampling(input, grid, interpolation_mode, padding_mode, align_corners, rank)
    value = pointwise.convert(input, input.dtype.compute)
    total: Tensor | None = None
    for taps in sampling.combinations():
        pixel = sampling.read(value, taps)
        weight = _product(*(tap.weight for tap in taps))
        part = pixel if weight is None else sampling.counted(pixel * weight, taps)
        total = part if total is None else total + part
    assert total is not None
    return pointwise.convert(total, input.dtype)


def _gradients(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
    rank: int,
) -> tuple[Tensor, Tensor]:
    sampling = Sampling(input, grid, interpolation_mode, padding_mode, align_corners, rank)
    gradient = pointwise.convert(grad_output, grad_output.dtype.compute)
    value = pointwise.convert(input, input.dtype.compute)
    by_input = full(flatten(input, 2).shape, 0, dtype=value.dtype)
    by_point: list[Tensor | None] = [None] * rank
    for taps in sampling.combinations():
        if output_mask[0]:
            weight = _product(*(tap.weight for tap in taps))
            part = gradient if weight is None else gradient * weight
            part = pointwise.where(sampling.inside(taps), part, 0)
            by_input = scatter_add(by_input, 2, sampling.places(taps), flatten(part, 2))
        if interpolation_mode != NEAREST:
            along = reduce.sum(gradient * sampling.read(value, taps), 1, True)
            for dim, tap in enumerate(taps):
                others = [other.weight for other in taps if other is not tap]
                part = sampling.counted(along * _product(tap.slope, *others), taps)
                axis = rank - 1 - dim
                by_point[axis] = part if by_point[axis] is None else by_point[axis] + part
    found = [
        unsqueeze(select(full(sampling.points, 0, dtype=grid.dtype) if part is None else part, 1, 0), -1)
        for part in by_point
    ]
    return (
        reshape(pointwise.convert(by_input, input.dtype), input.shape),
        pointwise.convert(cat(found, -1), grid.dtype),
    )


@composite
def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """input at the points of grid, whose x and y go from -1 to 1 across the image."""
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners, 2)


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
    return _gradients(grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask, 2)


@composite
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """input at the points of grid, whose x, y and z go from -1 to 1 across the volume."""
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners, 3)


@grid_sampler_3d.vjp
def grid_sampler_3d_vjp(grad, input, grid, interpolation_mode, padding_mode, align_corners):
    return grid_sampler_3d_backward(grad, input, grid, interpolation_mode, padding_mode, align_corners, (True, True))


@composite
def grid_sampler_3d_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor]:
    """The gradients of grid_sampler_3d by input, zeros where output_mask is false, and by grid."""
    return _gradients(grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask, 3)
