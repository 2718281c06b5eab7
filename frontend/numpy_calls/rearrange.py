"""NumPy's functions that rearrange elements and pad."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ShapeError, TraceError
from ..ir.graph import current_location
from ..ops.shapes import equal
from .arrange import known_sizes, picked
from .common import axes_of, call, dimension, numpys, refuse, tensor


@numpys(np.reshape)
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    refuse("reshape", order=(order, "C"))
    return call("reshape", tensor(a), tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))


@numpys(np.ravel)
def ravel(a: Any, order: str = "C") -> Any:
    refuse("ravel", order=(order, "C"))
    return call("ravel", tensor(a))


@numpys(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if any(isinstance(size, (int, np.integer)) and size < 0 for size in sizes):
        raise ShapeError(f"numpy.broadcast_to {sizes}: sizes are not negative", current_location())
    return call("broadcast_to", tensor(array), sizes)


@numpys(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Any:
    x = tensor(a)
    if axis is None:
        return call("squeeze", x)
    axes = axes_of(axis, x.ndim)
    for entry in axes:
        if not equal(x.type.shape[entry], 1):
            raise ShapeError(f"numpy.squeeze of dim {entry}, whose size is {x.type.shape[entry]}", current_location())
    return call("squeeze", x, axes) if axes else x


@numpys(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Any:
    x = tensor(a)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    places = [dimension(entry, x.ndim + len(axes)) for entry in axes]
    if len(set(places)) < len(places):
        raise ArgumentError(f"axis {axes} names a dim twice", current_location())
    for place in sorted(places):
        x = call("unsqueeze", x, place)
    return x


@numpys(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return call("movedim", tensor(a), source, destination)


@numpys(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    return call("swapaxes", tensor(a), axis1, axis2)


@numpys(np.transpose)
def transpose(a: Any, axes: Any = None) -> Any:
    x = tensor(a)
    return x.T if axes is None else call("permute", x, tuple(axes))


@numpys(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    x = tensor(m)
    return call("flip", x, tuple(range(x.ndim)) if axis is None else axes_of(axis, x.ndim))


@numpys(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    axes = () if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * (len(axes) or 1)
    if axis is not None and len(axes) == 1:
        axes *= len(shifts)
    elif axis is not None and len(shifts) == 1:
        shifts *= len(axes)
    if axis is None and len(shifts) > 1:
        shifts = (sum(shifts),)
    return call("roll", tensor(a), shifts, axes) if shifts else tensor(a)


@numpys(np.tile)
def tile(A: Any, reps: Any) -> Any:
    times = tuple(reps) if isinstance(reps, (tuple, list)) else (reps,)
    if any(isinstance(count, (int, np.integer)) and count < 0 for count in times):
        raise ArgumentError(f"numpy.tile: reps is {reps!r}, expected no negative numbers", current_location())
    return call("tile", tensor(A), times)


# Modes of np.pad that repeat elements of the tensor.
REPEATING = frozenset(("edge", "reflect", "symmetric", "wrap"))


@numpys(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    """np.pad with numbers, or with elements of the tensor."""
    x = tensor(array)
    given = np.asarray(pad_width)
    if given.dtype.kind not in "iu" or (given < 0).any():
        raise ArgumentError(
            f"numpy.pad: pad_width is {pad_width!r}, expected integers that are not negative", current_location()
        )
    widths = _for_sides(given, x.ndim, "pad_width")
    if mode in REPEATING:
        sizes = known_sizes(x, "pad")
        for place, (size, ends) in enumerate(zip(sizes, widths.tolist())):
            if any(ends):
                x = picked(x, np.pad(np.arange(size), ends, mode), place)  # type: ignore[call-overload]
        return x
    if mode != "constant":
        raise TraceError(
            f"numpy.pad on a traced tensor has the modes constant, {', '.join(sorted(REPEATING))}; got {mode!r}",
            current_location(),
        )
    if not np.ndim(constant_values):
        # NumPy lists the widths of the first dim first, PyTorch those of the last.
        return call("pad", x, tuple(widths[::-1].ravel().tolist()), value=constant_values)
    numbers = _for_sides(np.asarray(constant_values), x.ndim, "constant_values")
    for place, (ends, values) in enumerate(zip(widths.tolist(), numbers)):
        for side in (0, 1):
            around = [0] * (2 * x.ndim)
            around[2 * (x.ndim - 1 - place) + side] = ends[side]
            x = call("pad", x, tuple(around), value=values[side].item())
    return x


def _for_sides(given: np.ndarray, rank: int, name: str) -> np.ndarray:
    """Return two numbers for each dim."""
    try:
        return np.broadcast_to(given, (rank, 2))
    except ValueError:
        raise ArgumentError(f"numpy.pad: {name} {given.tolist()!r} for {rank} dims", current_location()) from None
