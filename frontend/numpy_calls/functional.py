"""NumPy's functions that take functions, and questions about types."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, TraceError
from ..ir.graph import Value, current_location
from ..ir.types import dtype
from ..promotion import result_dtype
from .arrange import known_sizes
from .common import axes_of, call, dimension, numpys, tensor


@numpys(np.apply_along_axis)
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """np.apply_along_axis: the function is called for each slice while tracing."""
    x = tensor(arr)
    place = dimension(axis, x.ndim)
    others = [size for at, size in enumerate(known_sizes(x, "apply_along_axis")) if at != place]
    if not all(others):
        raise ArgumentError(f"numpy.apply_along_axis of {x.type}: there is no slice", current_location())
    rows = call("movedim", x, place, -1)
    found = [tensor(func1d(rows[at], *args, **kwargs)) for at in itertools.product(*map(range, others))]
    inner = tuple(found[0].type.shape)
    made = call("reshape", np.stack(found), (*others, *inner))
    # The dims of a result take the place of the axis.
    ahead = tuple(range(place))
    between = tuple(range(len(others), len(others) + len(inner)))
    return call("permute", made, (*ahead, *between, *range(place, len(others))))


@numpys(np.apply_over_axes)
def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Any:
    x = tensor(a)
    for place in axes_of(tuple(axes) if isinstance(axes, list) else axes, x.ndim):
        found = func(x, place)
        if np.ndim(found) == x.ndim - 1:
            found = np.expand_dims(found, place)
        if np.ndim(found) != x.ndim:
            raise ArgumentError("numpy.apply_over_axes: the function does not keep the dims", current_location())
        x = tensor(found)
    return x


@numpys(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """np.result_type; NumPy's type of the result, which is known while tracing."""
    items = [
        item if isinstance(item, (Value, np.ndarray, bool, int, float, complex)) else np.empty(0, item)
        for item in arrays_and_dtypes
    ]
    return result_dtype(*items).numpy


@numpys(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    return x.dtype.is_complex  # type: ignore[no-any-return]


@numpys(np.isrealobj)
def isrealobj(x: Any) -> bool:
    return not x.dtype.is_complex


@numpys(np.can_cast)
def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    if isinstance(from_, Value):
        raise TraceError("numpy.can_cast takes types: numpy.can_cast(x.dtype, to)", current_location())
    return np.can_cast(from_, dtype(to).numpy, casting)  # type: ignore[arg-type]


@numpys(*(getattr(np, name) for name in ("astype",) if hasattr(np, name)))
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: None = None) -> Any:
    return tensor(x).astype(dtype)
