"""Windows that slide over the last dims of a tensor: their geometry, and sums and maxima over them.

A window is decomposed: each of its elements (a tap) is a strided view of the whole tensor, and a pool is a chain of
elementwise ops over the taps. The chain vectorises along the rows of the result, while a reduction over 3 x 3 elements
would vectorise over 3. Large windows go one dim at a time, which takes the sum of their lengths instead of the product;
a single window over the whole tensor, as in a global pool, is a plain reduction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod

from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import ceil_divide, floor_divide
from ..ir.proofs import maximum as larger
from ..ir.proofs import minimum as smaller
from ..ir.symbolic import Dim, contiguous_strides, product
from ..ir.types import DType, i32, i64
from . import minmax, pointwise, reduce
from .concat_pad import constant_pad_nd
from .create import iota, number_of
from .define import Scalar, Tensor, constant
from .indexing import index_select, neutral, take
from .shapes import at_least
from .view import expand, flatten, reshape, select, slice, unfold

Lengths = int | Sequence[int]

# Taps of one chain: larger windows go one dim at a time. Chosen, not measured.
CHAIN = 32


def lengths(value: Lengths, rank: int, what: str, least: int) -> tuple[int, ...]:
    """Return one number for each dim; a single one stands for all."""
    given = (value,) if isinstance(value, int) else tuple(value)
    if len(given) not in (1, rank):
        raise ArgumentError(f"{what} is {value}, expected one number or {rank}")
    if any(item < least for item in given):
        raise ArgumentError(f"{what} is {value}, expected at least {least}")
    return given * rank if len(given) == 1 else given


class Window:
    """The windows along one dim: window i starts at i * stride - padding and has every dilation-th element."""

    def __init__(
        self, size: Dim, kernel: int, stride: int, padding: int, dilation: int, count: Dim, after: Dim = 0
    ) -> None:
        self.size = size
        self.kernel = kernel
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.count = count
        self.after = after  # padding needed at the end for the last window

    @property
    def span(self) -> int:
        return (self.kernel - 1) * self.dilation + 1

    @staticmethod
    def over(size: Dim, kernel: int, stride: int, padding: int, dilation: int = 1, ceil_mode: bool = False) -> Window:
        """Return the windows that fit a padded size; with ceil_mode the last one may extend past the end."""
        span = (kernel - 1) * dilation + 1
        room = size + 2 * padding - span
        count = (ceil_divide if ceil_mode else floor_divide)(room, stride) + 1
        if ceil_mode:
            # No window starts in the padding at the end.
            count = smaller(count, floor_divide(size + padding - 1, stride) + 1)
        if not at_least(count, 1):
            raise ShapeError(f"a window of {span} does not fit a dimension of {size}, padded {padding}")
        needed = (count - 1) * stride + span - size - padding
        # For an open size the excess is unknown; unfold drops elements that do not fill a window.
        after = max(needed, 0) if isinstance(needed, int) else larger(needed, padding) if ceil_mode else padding
        return Window(size, kernel, stride, padding, dilation, count, after)

    def starts(self, dtype: DType) -> Tensor:
        return iota((self.count,), dim=0, dtype=dtype) * self.stride - self.padding


def windows_over(
    self: Tensor,
    rank: int,
    kernel_size: Lengths,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    ceil_mode: bool,
) -> tuple[Window, ...]:
    """Return the windows along each of the last `rank` dims; with ceil_mode the last one may extend past the end."""
    if self.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"self has {self.ndim} dimensions, expected {rank + 1} or {rank + 2}")
    kernels = lengths(kernel_size, rank, "kernel_size", 1)
    found = []
    for size, kernel, step, pad, spread in zip(
        self.shape[-rank:],
        kernels,
        kernels if stride == () else lengths(stride, rank, "stride", 1),
        lengths(padding, rank, "padding", 0),
        lengths(dilation, rank, "dilation", 1),
    ):
        found.append(Window.over(size, kernel, step, pad, spread, ceil_mode))
    return tuple(found)


def half_padded(windows: Sequence[Window]) -> None:
    """Raise unless each window contains an element: padding of a pool is at most half a window."""
    for window in windows:
        if 2 * window.padding > window.kernel:
            raise ArgumentError(f"padding {window.padding} is more than half of a window of {window.kernel}")


def padded(value: Tensor, windows: Sequence[Window], fill: Scalar) -> Tensor:
    """Pad value with fill where windows reach beyond it."""
    pad = [amount for window in reversed(windows) for amount in (window.padding, window.after)]
    return constant_pad_nd(value, pad, fill) if any(amount != 0 for amount in pad) else value


def unfolded(value: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return all windows of a padded value; the positions within a window are the last dims, dilation included."""
    first = value.ndim - len(windows)
    for dim, window in enumerate(windows, first):
        value = unfold(value, dim, window.span, window.stride)
    return value


# For each operand its element at one position of all windows; the mask of windows that have the position.
Tap = tuple[tuple[Tensor, ...], Tensor | None]


def taps(values: Sequence[Tensor], windows: Sequence[Window]) -> Iterator[Tap]:
    """Yield the taps of the windows in row-major order, for each of the padded values."""
    open_windows = [unfolded(value, windows) for value in values]
    for offsets in itertools.product(*(range(0, window.span, window.dilation) for window in windows)):
        found = []
        for value in open_windows:
            for offset in reversed(offsets):
                value = select(value, -1, offset)
            found.append(value)
        yield tuple(found), None


def adaptive_bounds(size: Dim, count: Dim) -> tuple[Tensor, Tensor, int]:
    """Return the starts and ends of `count` adaptive windows over `size` elements, and the longest length."""
    size, count = int(size), int(count)  # decide the number of taps, so they must be known
    place = iota((count,), dim=0, dtype=i64)
    start = pointwise.floor_divide(place * size, count)
    end = pointwise.floor_divide(place * size + (size + count - 1), count)
    longest = max((-(-(at + 1) * size // count) - at * size // count for at in range(count)), default=0)
    return start, end, longest


def adaptive_taps(values: Sequence[Tensor], dim: int, count: Dim) -> Iterator[Tap]:
    """Yield the taps of windows of different lengths along one dim."""
    size = values[0].shape[dim]
    start, end, longest = adaptive_bounds(size, count)
    trailing = (1,) * (values[0].ndim - 1 - dim)
    for offset in range(longest):
        place = start + offset
        chosen = minmax.clamp_max(place, size - 1)  # type: ignore[arg-type]
        valid = reshape(place < end, (count, *trailing))
        yield tuple(index_select(value, dim, chosen) for value in values), None if offset == 0 else valid


# Combining the taps


def total(found: Iterator[Tap]) -> Tensor:
    """Return the sum of the taps."""
    (result,), _ = next(found)
    for (value,), valid in found:
        result = result + (value if valid is None else pointwise.where(valid, value, 0))
    return result


def largest(found: Iterator[Tap]) -> tuple[Tensor, Tensor]:
    """Return the largest value of the taps, the first of equals, and its index; NaN counts as the largest."""
    (best, at), _ = next(found)
    for (value, place), valid in found:
        better = value > best
        if value.dtype.is_float:
            better = better | pointwise.isnan(value)
        if valid is not None:
            better = better & valid
        best, at = pointwise.where(better, value, best), pointwise.where(better, place, at)
    return best, at


def _single(windows: Sequence[Window]) -> bool:
    """Whether there is a single window, with more taps than a chain may have."""
    return all(window.count == 1 for window in windows) and prod(window.kernel for window in windows) > CHAIN


def _whole(value: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return the part of value in the single window."""
    for dim, window in enumerate(windows, value.ndim - len(windows)):
        first = -window.padding % window.dilation if window.padding else 0
        value = slice(value, dim, first, window.span - window.padding, window.dilation)
    return value


def window_sum(value: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return the sum over each window."""
    rank = len(windows)
    if _single(windows):
        part = _whole(value, windows)
        return reduce.sum(part, tuple(range(-rank, 0)), True)
    value = padded(value, windows, 0)
    if prod(window.kernel for window in windows) <= CHAIN:
        return total(taps((value,), windows))
    for at in reversed(range(rank)):
        value = total(taps((value,), along(windows, at)))
    return value


def along(windows: Sequence[Window], at: int) -> list[Window]:
    """Return windows that slide along one dim only; the dims after it are already combined and get windows of one
    element."""
    return [windows[at], *(Window(window.count, 1, 1, 0, 1, window.count) for window in windows[at + 1 :])]


def place_dtype(shape: Sequence[Dim]) -> DType:
    """Return the type of row-major indices into a shape."""
    total = product(shape)
    return i32 if isinstance(total, int) and total < 2**31 else i64


def places(shape: Sequence[Dim], windows: Sequence[Window] | None = None) -> Tensor:
    """Return for each position of the (padded) last dims its row-major index in shape."""
    dtype = place_dtype(shape)
    extent = tuple(shape)
    if windows is not None:
        extent = tuple(window.padding + window.size + window.after for window in windows)
    result: Tensor | None = None
    for dim, size in enumerate(shape):
        place = iota(extent, dim=dim, dtype=dtype)
        if windows is not None and windows[dim].padding:
            # Padding is never the maximum, unless all is -inf: then the first position after it is reported.
            place, step = place - windows[dim].padding, windows[dim].dilation
            place = minmax.maximum(place, pointwise.remainder(place, step)) if step > 1 else minmax.clamp_min(place, 0)
        result = place if result is None else result * number_of(size, dtype) + place
    assert result is not None
    return result


def window_max(value: Tensor, windows: Sequence[Window]) -> tuple[Tensor, Tensor]:
    """Return the largest element of each window, and its row-major index in the last dims of value."""
    rank = len(windows)
    if _single(windows):
        part = _whole(value, windows)
        shape = (*value.shape[:-rank], *(1 for _ in windows))
        flat = flatten(part, -rank, -1)
        number = reduce.argmax(flat, -1)
        if flat.dtype.is_float:
            # As in a chain of taps, the last NaN is reported.
            order = iota(flat.shape[-1:], dim=0, dtype=i64)
            last = reduce.amax(pointwise.where(pointwise.isnan(flat), order, -1), -1)
            number = pointwise.where(last >= 0, last, number)
        if part.shape != value.shape:
            number = take(flatten(_whole(places(value.shape[-rank:]), windows)), number)
        return reshape(reduce.amax(flat, -1), shape), reshape(number, shape)
    value = padded(value, windows, neutral("amax", value.dtype))
    if prod(window.kernel for window in windows) <= CHAIN:
        return _largest_directly(value, windows)
    number = expand(places(tuple(window.size for window in windows), windows), value.shape)
    for at in reversed(range(rank)):
        value, number = largest(taps((value, number), along(windows, at)))
    return value, number


def _largest_directly(value: Tensor, windows: Sequence[Window]) -> tuple[Tensor, Tensor]:
    """Compute window_max in one chain, in which an index is a constant: the distance from the window's start."""
    dtype = place_dtype([window.size for window in windows])
    counts = tuple(window.count for window in windows)
    strides = [number_of(stride, dtype) for stride in contiguous_strides(window.size for window in windows)]
    start: Tensor = constant(0, dtype)
    first: Tensor = constant(0, dtype)
    for dim, (window, stride) in enumerate(zip(windows, strides)):
        from_edge = iota(counts, dim=dim, dtype=dtype) * window.stride - window.padding
        start = start + from_edge * stride
        if window.padding:
            # If all is -inf, the first position inside is reported.
            outside = pointwise.floor_divide(minmax.clamp_max(from_edge, 0), window.dilation) * -window.dilation
            first = first + outside * stride
    offsets = itertools.product(*(range(0, window.span, window.dilation) for window in windows))
    found: list[Tap] = []
    for offset, ((item,), _) in zip(offsets, taps((value,), windows)):
        distance = constant(0, dtype)
        for step, stride in zip(offset, strides):
            distance = distance + step * stride
        found.append(((item, distance if found else first), None))
    best, at = largest(iter(found))
    return best, expand(start + at, best.shape)  # a window of one tap has an index without all dims
