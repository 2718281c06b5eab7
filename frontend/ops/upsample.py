"""Resized images: nearest pixels, and linear and cubic interpolation between pixels (resize.py)."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import DTypeError
from ..ir.symbolic import Dim
from ..ir.types import u8
from . import pointwise
from .define import Tensor, composite
from .derivatives import ShapeOf, forward_to
from .resize import (
    ANTIALIASED_CUBIC,
    ANTIALIASED_LINEAR,
    CUBIC,
    LINEAR,
    NEAREST,
    NEAREST_EXACT,
    Mode,
    Nearest,
    Scale,
    all_dims,
    axes_of,
    checked_gradient,
    resized,
    rounded,
    spread,
)
from .view import alias


def _upsample(
    self: Tensor,
    output_size: Sequence[Dim],
    scales: Sequence[Scale],
    mode: Mode,
    align_corners: bool = False,
) -> Tensor:
    axes = axes_of(self.shape, output_size, scales, align_corners)
    if isinstance(mode, Nearest):
        found = all_dims(self, axes, mode, resized)
        return alias(found) if found is self else found
    if self.dtype is u8 and len(scales) == 2:
        return all_dims(self, axes, mode, rounded)
    if not self.dtype.is_float:
        raise DTypeError(f"self is {self.dtype}, expected a float type{' or u8' * (len(scales) == 2)}")
    value = pointwise.convert(self, self.dtype.compute)
    return pointwise.convert(all_dims(value, axes, mode, resized), self.dtype)


def _backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    scales: Sequence[Scale],
    mode: Mode,
    align_corners: bool = False,
) -> Tensor:
    axes = axes_of(input_size, output_size, scales, align_corners)
    value = checked_gradient(grad_output, input_size, output_size)
    return pointwise.convert(all_dims(value, axes, mode, spread), grad_output.dtype)


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


@composite
def _upsample_bilinear2d_aa(
    self: Tensor,
    output_size: Sequence[Dim],
    align_corners: bool,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """self with the last two dims resized to output_size by linear interpolation, without aliasing."""
    return _upsample(self, output_size, (scales_h, scales_w), ANTIALIASED_LINEAR, align_corners)


@composite
def _upsample_bilinear2d_aa_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    align_corners: bool,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """grad_output, weighted, added up at the pixels that _upsample_bilinear2d_aa reads."""
    return _backward(grad_output, output_size, input_size, (scales_h, scales_w), ANTIALIASED_LINEAR, align_corners)


_upsample_bilinear2d_aa.derivative = forward_to(_upsample_bilinear2d_aa_backward, input_size=ShapeOf("self"))
_upsample_bilinear2d_aa_backward.derivative = forward_to(_upsample_bilinear2d_aa, self="grad")


@composite
def _upsample_bicubic2d_aa(
    self: Tensor,
    output_size: Sequence[Dim],
    align_corners: bool,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """self with the last two dims resized to output_size by cubic convolution, without aliasing."""
    return _upsample(self, output_size, (scales_h, scales_w), ANTIALIASED_CUBIC, align_corners)


@composite
def _upsample_bicubic2d_aa_backward(
    grad_output: Tensor,
    output_size: Sequence[Dim],
    input_size: Sequence[Dim],
    align_corners: bool,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> Tensor:
    """grad_output, weighted, added up at the pixels that _upsample_bicubic2d_aa reads."""
    return _backward(grad_output, output_size, input_size, (scales_h, scales_w), ANTIALIASED_CUBIC, align_corners)


_upsample_bicubic2d_aa.derivative = forward_to(_upsample_bicubic2d_aa_backward, input_size=ShapeOf("self"))
_upsample_bicubic2d_aa_backward.derivative = forward_to(_upsample_bicubic2d_aa, self="grad")
