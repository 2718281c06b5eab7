"""NumPy's functions that rearrange elements and pad."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ShapeError, TraceError
from ..ir.graph import current_location
from ..ops.define import REGISTRY
from ..ops.shapes import equal
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


@numpys(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    """np.pad: NumPy lists the widths of the first dim first, PyTorch those of the last."""
    if mode != "constant" or np.ndim(constant_values):
        raise TraceError(
            "numpy.pad on a traced tensor writes one number around it: other modes are those of smelt.ops.pad, whose "
            f"widths begin with the last dim: {REGISTRY['pad'].signature()}",
            current_location(),
        )
    x = tensor(array)
    given = np.asarray(pad_width)
    if given.dtype.kind not in "iu" or (given < 0).any():
        raise ArgumentError(
            f"numpy.pad: pad_width is {pad_width!r}, expected integers that are not negative", current_location()
        )
    try:
        widths = np.broadcast_to(given, (x.ndim, 2))[::-1]
    except ValueError:
        raise ArgumentError(f"numpy.pad: pad_width {pad_width!r} for {x.ndim} dims", current_location()) from None
    return call("pad", x, tuple(widths.ravel().tolist()), value=constant_values)
