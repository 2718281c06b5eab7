"""NumPy's sorts and order statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, DTypeError
from ..ir.graph import current_location
from ..ir.types import f64
from .common import axes_of, call, dimension, is_int, numpys, refuse, tensor


def _rows(name: str, a: Any, axis: Any) -> tuple[Any, int]:
    """Return a tensor to sort and the axis; None flattens."""
    x = tensor(a)
    if x.dtype.is_complex:
        raise DTypeError(f"numpy.{name} of {x.dtype}", current_location())
    if axis is None:
        return call("flatten", x), 0
    if not x.ndim:
        raise ArgumentError(f"numpy.{name} of a 0-dim tensor along axis {axis}", current_location())
    return x, dimension(axis, x.ndim)


def _sort(name: str, result: int) -> Callable[..., Any]:
    def sort(a: Any, axis: Any = -1, kind: Any = None, order: None = None, *, stable: Any = None) -> Any:
        # Every sort is stable: any kind is.
        refuse(name, order=(order, None))
        x, place = _rows(name, a, axis)
        return call("sort", x, place)[result]

    return sort


numpys(np.sort)(_sort("sort", 0))
numpys(np.argsort)(_sort("argsort", 1))


def _partition(name: str, result: int) -> Callable[..., Any]:
    def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: None = None) -> Any:
        # A sorted row is a partitioned one.
        refuse(name, kind=(kind, "introselect"), order=(order, None))
        x, place = _rows(name, a, axis)
        size = x.type.shape[place]
        for number in np.asarray(kth).reshape(-1):
            if not is_int(number):
                raise ArgumentError(f"numpy.{name}: kth is {kth!r}, expected ints", current_location())
            if isinstance(size, int) and not -size <= number < size:
                raise ArgumentError(f"numpy.{name}: kth is {number}, the axis has {size} elements", current_location())
        return call("sort", x, place)[result]

    return partition


numpys(np.partition)(_partition("partition", 0))
numpys(np.argpartition)(_partition("argpartition", 1))


@numpys(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Any:
    """np.lexsort: the last key is the first to decide."""
    items = [tensor(key) for key in keys]
    if not items:
        raise ArgumentError("numpy.lexsort: no keys", current_location())
    first, *others = items
    _, place = _rows("lexsort", first, axis)
    order = call("argsort", first, place)
    for key in others:
        order = np.take_along_axis(order, call("argsort", np.take_along_axis(key, order, place), place), place)
    return order


# Order statistics


def _apart(x: Any, axis: Any) -> tuple[Any, int, tuple[int, ...]]:
    """Return a tensor with the axes as one, its place, and the axes."""
    axes = tuple(range(x.ndim)) if axis is None else axes_of(axis, x.ndim)
    if len(axes) == 1:
        return x, axes[0], axes
    kept = [place for place in range(x.ndim) if place not in axes]
    moved = call("permute", x, (*kept, *axes))
    return call("reshape", moved, (*(x.type.shape[place] for place in kept), -1)), len(kept), axes


def _restored(found: Any, x: Any, axes: tuple[int, ...], lead: int) -> Any:
    """Return a result with axes of size 1 for those that were reduced, behind `lead` others."""
    for place in sorted(axes):
        found = np.expand_dims(found, lead + place)
    return found


def _statistics(name: str, op: str, scale: float, q_name: str) -> Callable[..., Any]:
    def statistic(
        a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
        keepdims: Any = False, *, weights: None = None,
    ) -> Any:  # fmt: skip
        refuse(name, out=(out, None), weights=(weights, None))
        shares, x = _shares(name, q, scale, q_name), tensor(a)
        if scale == 1 and np.asarray(q).dtype.kind != "f" and not x.dtype.is_float:
            raise DTypeError(f"numpy.{name} of {x.dtype} for q of whole numbers: give floats", current_location())
        own, given = x.dtype.numpy if x.dtype.is_float else np.dtype(np.float64), np.asarray(q).dtype
        if shares.ndim and (given if given.kind == "f" else np.dtype(np.float64)) != own:
            # NumPy subtracts in the tensor's type and interpolates in that of q.
            hint = f"numpy.{name} of {x.dtype} for {q_name} of {given}: give np.asarray({q_name}, {str(own)!r})"
            raise DTypeError(hint, current_location())
        if op == "nanquantile" and shares.ndim > 1:
            raise ArgumentError(
                f"numpy.{name}: {q_name} has {shares.ndim} dims, expected at most 1", current_location()
            )
        return _quantile(name, op, x, shares, axis, method, keepdims)

    return statistic


METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _shares(name: str, q: Any, scale: float, shown: str) -> np.ndarray:
    """Return the ranks asked for as shares of 1, known while tracing."""
    if not isinstance(q, (int, float, list, tuple, np.ndarray, np.generic)) or np.asarray(q).dtype.kind not in "iuf":
        raise ArgumentError(f"numpy.{name}: {shown} is {q!r}, expected numbers that are known", current_location())
    shares = np.asarray(q, np.float64) / scale
    if not bool(np.all((shares >= 0) & (shares <= 1))):
        raise ArgumentError(f"numpy.{name}: {shown} is {q!r}, expected 0 to {scale:g}", current_location())
    return shares


def _quantile(name: str, op: str, a: Any, shares: np.ndarray, axis: Any, method: str, keepdims: Any) -> Any:
    x = tensor(a)
    if method not in METHODS:
        raise ArgumentError(
            f"numpy.{name}: method is {method!r}, accepted are {', '.join(METHODS)}", current_location()
        )
    if x.dtype.is_complex or x.dtype.kind == "b":
        raise DTypeError(f"numpy.{name} of {x.dtype}", current_location())
    if not x.dtype.is_float:
        if method in METHODS[1:3] or method == "nearest":
            raise DTypeError(f"numpy.{name} of {x.dtype} by {method}: convert it to floats first", current_location())
        x = call("cast", x, f64)
    row, place, axes = _apart(x, axis)
    found = call(op, row, np.asarray(shares.reshape(-1), x.dtype.numpy), place, interpolation=method)
    rest = tuple(found.type.shape[1:])
    found = call("reshape", found, (*shares.shape, *rest))
    return _restored(found, x, axes, shares.ndim) if keepdims else found


numpys(np.quantile)(_statistics("quantile", "quantile", 1, "q"))
numpys(np.percentile)(_statistics("percentile", "quantile", 100, "q"))
numpys(np.nanquantile)(_statistics("nanquantile", "nanquantile", 1, "q"))
numpys(np.nanpercentile)(_statistics("nanpercentile", "nanquantile", 100, "q"))


def _median(name: str, op: str) -> Callable[..., Any]:
    def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
        refuse(name, out=(out, None))
        x = tensor(a)
        x = call("cast", x, f64) if x.dtype.kind == "b" else x
        return _quantile(name, op, x, np.asarray(0.5), axis, "linear", keepdims)

    return median


numpys(np.median)(_median("median", "quantile"))
numpys(np.nanmedian)(_median("nanmedian", "nanquantile"))
