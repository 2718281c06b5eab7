"""Resized images, in both memory orders."""

from __future__ import annotations

from collections.abc import Sequence

from .define import Array, Draw, Names, sizes, workload

IMAGES = sizes(tiny=(1, 3, 4), small=(1, 16, 8), medium=(2, 256, 8), large=(4, 256, 32))


def image_inputs(draw: Draw, batch: int, channels: int, size: int) -> Sequence[Array]:
    return [draw.normal(batch, channels, size, size)]


def last_inputs(draw: Draw, batch: int, channels: int, size: int) -> Sequence[Array]:
    return [draw.normal(batch, size, size, channels)]


@workload("upsample", image_inputs, IMAGES, has_numpy=False)
def upsample_nearest(xp: Names, images: Array) -> Array:
    """Eight times as many rows and columns, copies of the nearest pixel."""
    return xp.upsample(images, 8, "nearest")


@workload("upsample", image_inputs, IMAGES, has_numpy=False)
def upsample_bilinear(xp: Names, images: Array) -> Array:
    """Eight times as many rows and columns, by linear interpolation."""
    return xp.upsample(images, 8, "bilinear")


@workload("upsample", image_inputs, IMAGES, has_numpy=False)
def upsample_bicubic(xp: Names, images: Array) -> Array:
    """Eight times as many rows and columns, by cubic convolution."""
    return xp.upsample(images, 8, "bicubic")


@workload("upsample", last_inputs, IMAGES, has_numpy=False)
def upsample_bilinear_last(xp: Names, images: Array) -> Array:
    """The same by linear interpolation, of images whose channels are last in memory."""
    return xp.permute(xp.upsample(xp.permute(images, (0, 3, 1, 2)), 8, "bilinear"), (0, 2, 3, 1))
