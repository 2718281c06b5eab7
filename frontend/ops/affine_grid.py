"""Grids of points for sampling of images: those of an affine map (grid_sample.py samples at them)."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim
from ..ir.types import DType
from . import pointwise, reduce
from .concat_pad import stack
from .create import iota, number_of
from .define import Tensor, composite
from .shapes import equal
from .view import reshape, select


def _points(count: Dim, align_corners: bool, dtype: DType) -> Tensor:
    """Return `count` points from -1 to 1: the edges are the outermost points or, unaligned, half a step beyond them."""
    place = iota((count,), dim=0, dtype=dtype)
    if count == 1:
        return place
    last = number_of(count - 1, dtype)
    ends = (2 * place - last) / last  # symmetric, so that rounding is
    return ends if align_corners else ends * (last / number_of(count, dtype))


def _coordinates(size: Sequence[Dim], align_corners: bool, dtype: DType) -> list[Tensor]:
    """Return x, y and, for volumes, z of the points of a grid; each broadcasts to [rows, columns, 1] and the like."""
    if len(size) not in (4, 5):
        raise ArgumentError(f"size is {list(size)}, expected batch, channels, and 2 or 3 sizes")
    found = []
    for after, count in enumerate(reversed(size[2:])):
        points = _points(count, align_corners, dtype)
        found.append(reshape(points, (count, *(1 for _ in range(after + 1)))))
    return found


@composite
def affine_grid_generator(theta: Tensor, size: Sequence[Dim], align_corners: bool) -> Tensor:
    """The points [batch, rows, columns, 2] that theta [batch, 2, 3] maps those from -1 to 1 to; in 3 dims likewise."""
    value = pointwise.convert(theta, theta.dtype.compute)
    points = _coordinates(size, align_corners, value.dtype)
    rank = len(points)
    if theta.ndim != 3 or not all(map(equal, theta.shape, (size[0], rank, rank + 1))):
        raise ShapeError(f"theta is {list(theta.shape)}, expected {[size[0], rank, rank + 1]}")
    shape = (size[0], *(1 for _ in points), rank)
    total = reshape(select(value, 2, rank), shape)
    for number, point in enumerate(points):
        total = total + point * reshape(select(value, 2, number), shape)
    return pointwise.convert(total, theta.dtype)


@composite
def affine_grid_generator_backward(grad: Tensor, size: Sequence[Dim], align_corners: bool) -> Tensor:
    """The gradient of affine_grid_generator by theta: grad times the points, added up."""
    value = pointwise.convert(grad, grad.dtype.compute)
    dims = tuple(range(1, len(size) - 1))
    points = _coordinates(size, align_corners, value.dtype)
    columns = [reduce.sum(value * point, dims) for point in points]
    return pointwise.convert(stack([*columns, reduce.sum(value, dims)], 2), grad.dtype)


affine_grid_generator.derivative = affine_grid_generator_backward
