"""Rearrangements: pixels and channels, windows as columns, complex numbers as pairs, blocks on a diagonal."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.proofs import floor_divide
from ..ir.symbolic import Dim, product
from ..ir.types import i64, promote
from . import pointwise
from .concat_pad import cat, constant_pad_nd, stack
from .create import full, iota
from .define import Tensor, composite
from .derivatives import forward_to
from .indexing import index_add
from .shapes import divides, equal
from .view import flatten, permute, reshape, select, slice
from .windows import Lengths, Window, lengths, padded, unfolded


def _quotient(size: Dim, divisor: Dim, what: str) -> Dim:
    if not divides(size, divisor):
        raise ShapeError(f"{what} has size {size}, expected a multiple of {divisor}")
    return floor_divide(size, divisor)


@composite
def pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    """Groups of upscale_factor**2 channels laid out as squares of pixels."""
    if self.ndim < 3 or upscale_factor < 1:
        raise ShapeError(
            f"self has {self.ndim} dimensions and the factor is {upscale_factor}, expected 3 and 1 or more"
        )
    batch, (channels, rows, columns) = self.shape[:-3], self.shape[-3:]
    factor, rank = upscale_factor, self.ndim - 3
    kept = _quotient(channels, factor * factor, "the dimension of channels")
    split = reshape(self, (*batch, kept, factor, factor, rows, columns))
    order = (*range(rank), *(rank + place for place in (0, 3, 1, 4, 2)))
    return reshape(permute(split, order), (*batch, kept, rows * factor, columns * factor))


@composite
def pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
    """Squares of downscale_factor pixels as channels: undoes pixel_shuffle."""
    if self.ndim < 3 or downscale_factor < 1:
        raise ShapeError(
            f"self has {self.ndim} dimensions and the factor is {downscale_factor}, expected 3 and 1 or more"
        )
    batch, (channels, rows, columns) = self.shape[:-3], self.shape[-3:]
    factor, rank = downscale_factor, self.ndim - 3
    high, wide = _quotient(rows, factor, "dimension -2"), _quotient(columns, factor, "dimension -1")
    split = reshape(self, (*batch, channels, high, factor, wide, factor))
    order = (*range(rank), *(rank + place for place in (0, 2, 4, 1, 3)))
    return reshape(permute(split, order), (*batch, channels * (factor * factor), high, wide))


@composite
def channel_shuffle(self: Tensor, groups: Dim) -> Tensor:
    """Channels in groups, taken one from each group in turn."""
    if self.ndim < 3:
        raise ShapeError(f"self has {self.ndim} dimensions, expected at least 3")
    batch, channels, *rest = self.shape
    each = _quotient(channels, groups, "the dimension of channels")
    split = reshape(self, (batch, groups, each, *rest))
    return reshape(permute(split, (0, 2, 1, *range(3, split.ndim))), self.shape)


@composite
def native_channel_shuffle(self: Tensor, groups: Dim) -> Tensor:
    """Channels in groups, taken one from each group in turn."""
    return channel_shuffle(self, groups)


# Windows as columns


def _column_windows(
    sizes: Sequence[Dim], kernel_size: Lengths, dilation: Lengths, padding: Lengths, stride: Lengths
) -> tuple[Window, ...]:
    found = []
    for size, kernel, spread, pad, step in zip(
        sizes,
        lengths(kernel_size, 2, "kernel_size", 1),
        lengths(dilation, 2, "dilation", 1),
        lengths(padding, 2, "padding", 0),
        lengths(stride, 2, "stride", 1),
    ):
        found.append(Window.over(size, kernel, step, pad, spread))
    return tuple(found)


@composite
def im2col(self: Tensor, kernel_size: Lengths, dilation: Lengths, padding: Lengths, stride: Lengths) -> Tensor:
    """The windows of the last two dims as columns: [batch, channels * elements of a window, windows]."""
    if self.ndim not in (3, 4):
        raise ShapeError(f"self has {self.ndim} dimensions, expected 3 or 4")
    windows = _column_windows(self.shape[-2:], kernel_size, dilation, padding, stride)
    value = unfolded(padded(self, windows, 0), windows)
    for dim, window in zip((-2, -1), windows):
        if window.dilation > 1:
            value = slice(value, dim, 0, None, window.dilation)
    rank = self.ndim
    columns = permute(value, (*range(rank - 2), rank, rank + 1, rank - 2, rank - 1))
    places = windows[0].kernel * windows[1].kernel
    return reshape(columns, (*self.shape[:-3], self.shape[-3] * places, windows[0].count * windows[1].count))


@im2col.vjp
def im2col_vjp(grad, self, kernel_size, dilation, padding, stride):
    return col2im(grad, self.shape[-2:], kernel_size, dilation, padding, stride)


@composite
def col2im(
    self: Tensor,
    output_size: Sequence[Dim],
    kernel_size: Lengths,
    dilation: Lengths,
    padding: Lengths,
    stride: Lengths,
) -> Tensor:
    """Columns in the layout of im2col, added up at the elements that im2col reads: its transpose."""
    if self.ndim not in (2, 3):
        raise ShapeError(f"self has {self.ndim} dimensions, expected 2 or 3")
    windows = _column_windows(output_size, kernel_size, dilation, padding, stride)
    inside = windows[0].kernel * windows[1].kernel
    count = windows[0].count * windows[1].count
    channels = _quotient(self.shape[-2], inside, "dimension -2")
    if not equal(self.shape[-1], count):
        raise ShapeError(f"self has {self.shape[-1]} columns, expected {count} (the windows of {list(output_size)})")
    batch = self.shape[:-2]
    shape = (windows[0].kernel, windows[1].kernel, windows[0].count, windows[1].count)
    width = output_size[1] + 2 * windows[1].padding
    place: Tensor | None = None
    for at, window in enumerate(windows):
        along = iota(shape, dim=at, dtype=i64) * window.dilation + iota(shape, dim=2 + at, dtype=i64) * window.stride
        place = along if place is None else place * width + along
    high = output_size[0] + 2 * windows[0].padding
    rows = product((*batch, channels))
    zeros = full((rows, high * width), 0, dtype=self.dtype)
    added = index_add(zeros, 1, flatten(place), reshape(self, (rows, inside * count)))
    crop = [-amount for window in reversed(windows) for amount in (window.padding, window.padding)]
    return constant_pad_nd(reshape(added, (*batch, channels, high, width)), crop)


col2im.derivative = forward_to(im2col, self="grad")


# Complex numbers as pairs


@composite
def view_as_real(self: Tensor) -> Tensor:
    """Complex numbers as pairs of a real and an imaginary part, along a new last dim."""
    if not self.dtype.is_complex:
        raise DTypeError(f"self is {self.dtype}, expected a complex type")
    return stack([pointwise.real(self), pointwise.imag(self)], -1)


@composite
def view_as_complex(self: Tensor) -> Tensor:
    """Pairs along the last dim as complex numbers."""
    if self.ndim == 0 or not equal(self.shape[-1], 2):
        raise ShapeError(f"self is {list(self.shape)}, expected a last dimension of size 2")
    return pointwise.complex(select(self, -1, 0), select(self, -1, 1))


@composite
def _conj(self: Tensor) -> Tensor:
    """The complex conjugate."""
    return pointwise.conj(self)


@composite
def _conj_physical(self: Tensor) -> Tensor:
    """The complex conjugate."""
    return pointwise.conj(self)


@composite
def block_diag(tensors: Sequence[Tensor]) -> Tensor:
    """Matrices along the diagonal of a larger one, which is zero elsewhere; vectors are rows."""
    if not tensors:
        raise ArgumentError("there is nothing to join: tensors is empty")
    blocks = []
    wanted = promote([value.type for value in tensors])  # 0-dim tensors take part as such, before they become matrices
    for position, value in enumerate(tensors):
        value = pointwise.convert(value, wanted)
        if value.ndim > 2:
            raise ShapeError(f"tensor {position} has {value.ndim} dimensions, expected at most 2")
        blocks.append(value if value.ndim == 2 else reshape(value, (1, product(value.shape))))
    total = sum(block.shape[1] for block in blocks)
    rows, before = [], 0
    for block in blocks:
        rows.append(constant_pad_nd(block, (before, total - before - block.shape[1])))
        before = before + block.shape[1]
    return cat(rows, 0)
