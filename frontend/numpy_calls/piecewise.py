"""NumPy's elementwise functions that are no ufuncs: special values, parts of numbers, interpolation, pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.graph import Value, current_location
from ..ir.types import bool_, f64
from ..ops.shapes import equal
from ..promotion import result_dtype
from .common import arrays_together, call, dimension, inexact, numpys, refuse, tensor


@numpys(np.fix)
def fix(x: Any, out: None = None) -> Any:
    refuse("fix", out=(out, None))
    return np.where(tensor(x) >= 0, np.floor(x), np.ceil(x))


@numpys(np.sinc)
def sinc(x: Any) -> Any:
    return call("sinc", inexact(tensor(x)))


@numpys(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    given = tensor(x)
    if given.dtype.is_complex:
        parts = [call("nan_to_num", part, nan, posinf, neginf) for part in (np.real(given), np.imag(given))]
        return call("complex", *parts)
    return call("nan_to_num", given, nan, posinf, neginf) if given.dtype.is_inexact else given


@numpys(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    x = tensor(z)
    found = np.arctan2(np.imag(x), np.real(x)) if x.dtype.is_complex else np.arctan2(0, x)
    return found * (180 / np.pi) if deg else found


@numpys(np.isreal)
def isreal(x: Any) -> Any:
    return np.imag(tensor(x)) == 0


@numpys(np.iscomplex)
def iscomplex(x: Any) -> Any:
    return np.imag(tensor(x)) != 0


@numpys(np.isposinf)
def isposinf(x: Any, out: None = None) -> Any:
    refuse("isposinf", out=(out, None))
    return _infinite(x, False)


@numpys(np.isneginf)
def isneginf(x: Any, out: None = None) -> Any:
    refuse("isneginf", out=(out, None))
    return _infinite(x, True)


def _infinite(x: Any, is_negative: bool) -> Any:
    given = tensor(x)
    if given.dtype.is_complex:
        raise DTypeError(f"the sign of an infinity of {given.dtype}", current_location())
    found = np.isinf(given)
    return found & (given < 0 if is_negative else given > 0)


@numpys(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """np.piecewise: every function is called with the whole tensor, and the conditions choose."""
    given = tensor(x)
    conditions = [condlist] if isinstance(condlist, Value) or np.isscalar(condlist) else list(condlist)
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise ArgumentError(
            f"numpy.piecewise: {len(functions)} functions for {len(conditions)} conditions", current_location()
        )

    def values(function: Any) -> Any:
        found = function(given, *args, **kw) if callable(function) else function
        return call("cast", tensor(found), given.dtype)

    result = values(functions[-1]) if len(functions) > len(conditions) else np.zeros_like(given)
    for condition, function in zip(conditions, functions):
        mask = tensor(condition)
        result = np.where(mask if mask.dtype is bool_ else mask != 0, values(function), result)
    if not all(map(equal, result.type.shape, given.type.shape)) or result.ndim != given.ndim:
        raise ShapeError(f"numpy.piecewise makes {result.type} of {given.type}", current_location())
    return result


@numpys(np.choose)
def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """np.choose: native code reads the choices at an index that it checks."""
    refuse("choose", out=(out, None))
    index: Any = tensor(a)
    items = list(choices)
    if not items or not index.dtype.is_integer:
        raise ArgumentError(
            f"numpy.choose of {index.dtype} among {len(items)} choices, expected integers", current_location()
        )
    index, *broadcast = np.broadcast_arrays(index, *arrays_together(*items))
    index = call("cast", index, np.int64)
    count = len(items)
    if mode == "wrap":
        index = index % count
    elif mode == "clip":
        index = np.clip(index, 0, count - 1)
    elif mode == "raise":
        index = tensor(np.where(index < 0, count, index))
    else:
        raise ArgumentError(f"numpy.choose: mode is {mode!r}, expected 'raise', 'wrap' or 'clip'", current_location())
    return call("gather", np.stack(broadcast), 0, index[None])[0]


@numpys(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """np.interp: a binary search for the interval, and the line through its ends."""
    at, places, values = tensor(x), tensor(xp), tensor(fp)
    if places.ndim != 1 or values.ndim != 1 or not equal(places.type.shape[0], values.type.shape[0]):
        raise ShapeError(f"numpy.interp between {places.type} and {values.type}", current_location())
    at, places = call("cast", at, f64), call("cast", places, f64)
    values = call("cast", values, np.complex128 if values.dtype.is_complex else f64)
    if period is not None:
        if period == 0:
            raise ArgumentError("numpy.interp: period is 0", current_location())
        period = abs(period)
        at, places = at % period, places % period
        order = call("argsort", places)
        places, values = places[order], values[order]
        places = np.concatenate([places[-1:] - period, places, places[:1] + period])
        values = np.concatenate([values[-1:], values, values[:1]])
        left = right = None
    count = places.shape[0]
    interval = call("searchsorted", places, at, right=True) - 1
    inside = np.clip(interval, 0, np.maximum(count - 2, 0))
    above = np.minimum(inside + 1, count - 1)
    x0, x1, y0, y1 = (call("take", item, at_) for item in (places, values) for at_ in (inside, above))
    slope = (y1 - y0) / (x1 - x0)
    line = slope * (at - x0) + y0
    other = slope * (at - x1) + y1
    line = np.where(np.isnan(line), np.where(np.isnan(other) & (y0 == y1), y0, other), line)
    # The ends themselves, and all of a table of one number.
    line = np.where(at == x0, y0, np.where(at >= places[-1], values[-1], line))
    line = np.where(at < places[0], values[0] if left is None else left, line)
    line = np.where(at > places[-1], values[-1] if right is None else right, line)
    return line if equal(places.type.shape[0], 1) else np.where(np.isnan(at), at, line)


@numpys(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    """np.unwrap: jumps of more than half a period become their complements."""
    x = tensor(p)
    place = dimension(axis, x.ndim)
    step = np.diff(x, axis=place)
    least = period / 2 if discont is None else discont
    if step.dtype.is_integer and isinstance(period, int):
        half, odd = divmod(period, 2)
        on_boundary = not odd
    else:
        half, on_boundary = period / 2, True
    wrapped = (step + half) % period - half
    if on_boundary:
        wrapped = np.where((wrapped == -half) & (step > 0), half, wrapped)
    correction = np.where(np.abs(step) < least, 0, wrapped - step)
    rest = np.cumsum(correction, axis=place)
    first, others = (x[(slice(None),) * place + (part,)] for part in (slice(0, 1), slice(1, None)))
    kind = result_dtype(step, period)
    return np.concatenate([call("cast", item, kind) for item in (first, others + rest)], axis=place)
