"""NumPy's statistics: spreads, averages, covariances, differences, and reductions that leave NaN out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.graph import current_location
from ..ir.types import bool_
from ..ops.shapes import equal
from ..promotion import result_dtype
from .common import arrays_together, axes_of, call, dimension, inexact, is_int, numpys, refuse, tensor


@numpys(np.ptp)
def ptp(a: Any, axis: Any = None, out: None = None, keepdims: Any = False) -> Any:
    refuse("ptp", out=(out, None))
    x = tensor(a)
    if x.dtype is bool_:
        raise DTypeError("numpy.ptp of bool", current_location())
    return np.max(x, axis=axis, keepdims=keepdims) - np.min(x, axis=axis, keepdims=keepdims)


# Reductions that leave NaN out


def _filled(x: Any, value: float) -> Any:
    """Replace NaN by a number; integers and bools have none."""
    return np.where(np.isnan(x), np.asarray(value, x.dtype.numpy), x) if x.dtype.is_inexact else x


def _extreme(name: str, reduce: Any, least: float) -> Callable[..., Any]:
    def extreme(a: Any, axis: Any = None, out: None = None, keepdims: Any = False) -> Any:
        refuse(name, out=(out, None))
        x = tensor(a)
        if x.dtype.is_complex:
            raise DTypeError(f"numpy.{name} of {x.dtype}", current_location())
        found = reduce(_filled(x, least), axis=axis, keepdims=keepdims)
        if not x.dtype.is_inexact:
            return found
        nothing = np.all(np.isnan(x), axis=axis, keepdims=keepdims)
        return np.where(nothing, np.asarray(np.nan, x.dtype.numpy), found)

    return extreme


numpys(np.nanmax)(_extreme("nanmax", np.max, -np.inf))
numpys(np.nanmin)(_extreme("nanmin", np.min, np.inf))


@numpys(np.nanprod)
def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False) -> Any:
    refuse("nanprod", out=(out, None))
    return np.prod(_filled(tensor(a), 1), axis=axis, dtype=dtype, keepdims=keepdims)


@numpys(np.nancumsum)
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    refuse("nancumsum", out=(out, None))
    return np.cumsum(_filled(tensor(a), 0), axis=axis, dtype=dtype)


@numpys(np.nancumprod)
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    refuse("nancumprod", out=(out, None))
    return np.cumprod(_filled(tensor(a), 1), axis=axis, dtype=dtype)


@numpys(np.nanvar)
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: Any = False
) -> Any:
    refuse("nanvar", out=(out, None), dtype=(dtype, None))
    x = tensor(a)
    if not x.dtype.is_inexact:
        return np.var(x, axis=axis, ddof=ddof, keepdims=keepdims)
    valid = ~np.isnan(x)
    count = np.sum(valid, axis=axis, keepdims=True)
    middle = np.sum(_filled(x, 0), axis=axis, keepdims=True) / _like(count, x)
    offset = np.where(valid, x - middle, np.zeros((), x.dtype.numpy))
    squares = offset * offset if not x.dtype.is_complex else np.real(offset * np.conj(offset))
    total, count = (np.sum(item, axis=axis, keepdims=keepdims) for item in (squares, valid))
    freedom = _like(count, total) - np.asarray(ddof, total.dtype.numpy)
    return np.where(freedom > 0, total / freedom, np.asarray(np.nan, total.dtype.numpy))


@numpys(np.nanstd)
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: Any = False
) -> Any:
    return np.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims))


def _like(count: Any, x: Any) -> Any:
    return call("cast", count, x.dtype.real)


# Averages and covariances


@numpys(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: Any = False, *, keepdims: Any = False) -> Any:
    x = tensor(a)
    if weights is None:
        found = np.mean(x, axis=axis, keepdims=keepdims)
        total = call("full_like", found, 1) * np.asarray(_count(x, axis), found.dtype.numpy) if returned else None
        return (found, total) if returned else found
    w = tensor(weights)
    if w.ndim != x.ndim:
        if not is_int(axis) or w.ndim != 1:
            raise ShapeError(
                f"numpy.average: weights of {w.ndim} dims for {x.ndim}, expected as many, or one dim and an axis",
                current_location(),
            )
        place = dimension(axis, x.ndim)
        w = call("reshape", w, tuple(w.type.shape[0] if at == place else 1 for at in range(x.ndim)))
        if not equal(w.type.shape[place], x.type.shape[place]):
            raise ShapeError(f"numpy.average: {w.type} weights for dim {place} of {x.type}", current_location())
        w = np.broadcast_to(w, x.shape)
    elif not all(map(equal, w.type.shape, x.type.shape)):
        raise ShapeError(f"numpy.average: weights are {w.type}, the tensor is {x.type}", current_location())
    x, w = arrays_together(inexact(x), w)
    total = np.sum(w, axis=axis, keepdims=keepdims)
    found = np.sum(x * w, axis=axis, keepdims=keepdims) / total
    return (found, total) if returned else found


def _count(x: Any, axis: Any) -> Any:
    found = 1
    for place in range(x.ndim) if axis is None else axes_of(axis, x.ndim):
        found = found * x.shape[place]
    return found


@numpys(np.cov)
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None,
    fweights: None = None, aweights: None = None,
) -> Any:  # fmt: skip
    """np.cov: rows are variables, columns observations."""
    refuse("cov", fweights=(fweights, None), aweights=(aweights, None))
    if ddof is not None and not is_int(ddof):
        raise ArgumentError(f"numpy.cov: ddof is {ddof!r}, expected an int", current_location())
    x = _variables(m, rowvar)
    if y is not None:
        x = np.concatenate([x, _variables(y, rowvar)])
    x = call("cast", x, result_dtype(x, np.empty(0)))
    offset = x - np.mean(x, axis=1, keepdims=True)
    freedom = x.shape[1] - ((0 if bias else 1) if ddof is None else int(ddof))
    divisor = freedom if freedom > 0 else 0.0
    other = np.conj(offset) if x.dtype.is_complex else offset
    return np.squeeze(offset @ other.T / divisor)


def _variables(m: Any, rowvar: bool) -> Any:
    x = inexact(tensor(m))
    if x.ndim > 2:
        raise ShapeError(f"numpy.cov of {x.type}: expected one or two dims", current_location())
    if x.ndim < 2:
        return call("reshape", x, (1, -1))
    return x if rowvar or x.type.shape[0] == 1 else x.T


@numpys(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    found = cov(x, y, rowvar)
    if not found.ndim:
        return found / found
    spread = np.sqrt(np.real(call("diagonal", found)))
    found = found / spread[:, None] / spread[None, :]
    if found.dtype.is_complex:
        return call("complex", np.clip(np.real(found), -1, 1), np.clip(np.imag(found), -1, 1))
    return np.clip(found, -1, 1)


# Differences and integrals


@numpys(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    x = tensor(a)
    if not is_int(n) or n < 0:
        raise ArgumentError(f"numpy.diff: n is {n!r}, expected an int that is not negative", current_location())
    if n == 0:
        return x
    if not x.ndim:
        raise ShapeError("numpy.diff of a 0-dim tensor", current_location())
    place = dimension(axis, x.ndim)

    def joined(item: Any) -> Any:
        found = tensor(item)
        shape = tuple(1 if at == place else size for at, size in enumerate(x.shape))
        return found if found.ndim else np.broadcast_to(found, shape)

    parts = [joined(prepend)] if prepend is not None else []
    parts += [x] + ([joined(append)] if append is not None else [])
    x = np.concatenate(parts, axis=place) if len(parts) > 1 else x
    for _ in range(n):
        later, earlier = (_sliced(x, place, part) for part in (slice(1, None), slice(None, -1)))
        x = later != earlier if x.dtype is bool_ else later - earlier
    return x


def _sliced(x: Any, place: int, part: Any) -> Any:
    return x[(slice(None),) * place + (part,)]


@numpys(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    x = call("ravel", tensor(ary))
    if x.dtype is bool_:
        raise DTypeError("numpy.ediff1d of bool", current_location())
    middle = x[1:] - x[:-1]
    ends = [None if item is None else np.ravel(tensor(item)) for item in (to_begin, to_end)]
    for item in ends:
        if item is not None and not np.can_cast(item.dtype.numpy, x.dtype.numpy, "same_kind"):
            raise DTypeError(f"numpy.ediff1d: {item.dtype} does not cast to {x.dtype}", current_location())
    first, last = ([] if item is None else [call("cast", item, x.dtype)] for item in ends)
    return np.concatenate([*first, middle, *last]) if first or last else middle


@numpys(getattr(np, "trapezoid" if hasattr(np, "trapezoid") else "trapz"))
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    values = tensor(y)
    place = dimension(axis, values.ndim)
    if x is None:
        step = dx
    else:
        points = tensor(x)
        step = np.diff(points, axis=0 if points.ndim == 1 else place)
        if points.ndim == 1:
            step = call("reshape", step, tuple(-1 if at == place else 1 for at in range(values.ndim)))
    later, earlier = (_sliced(values, place, part) for part in (slice(1, None), slice(None, -1)))
    return np.sum(step * (later + earlier) / 2.0, axis=place)


@numpys(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """np.gradient: central differences inside, one-sided ones at the ends."""
    x = inexact(tensor(f))
    axes = tuple(range(x.ndim)) if axis is None else axes_of(axis, x.ndim)
    if edge_order not in (1, 2):
        raise ArgumentError(f"numpy.gradient: edge_order is {edge_order!r}, expected 1 or 2", current_location())
    if len(varargs) > 1 and len(varargs) != len(axes):
        raise ArgumentError(f"numpy.gradient: {len(varargs)} spacings for {len(axes)} axes", current_location())
    steps = varargs * len(axes) if len(varargs) == 1 else varargs or (1.0,) * len(axes)
    found = [_slope(x, step, place, edge_order) for step, place in zip(steps, axes)]
    return found[0] if len(axes) == 1 else tuple(found)


def _slope(x: Any, step: Any, place: int, edge_order: int) -> Any:
    size = x.type.shape[place]
    if isinstance(size, int) and size < edge_order + 1:
        raise ShapeError(f"numpy.gradient: {size} elements, expected at least {edge_order + 1}", current_location())

    def part(start: Any, stop: Any) -> Any:
        return _sliced(x, place, slice(start, stop))

    spacing = tensor(step) if np.ndim(step) else None
    if spacing is None:
        inner = (part(2, None) - part(None, -2)) / (2.0 * step)
        if edge_order == 1:
            first, last = (part(1, 2) - part(0, 1)) / step, (part(-1, None) - part(-2, -1)) / step
        else:
            first = (-1.5 / step) * part(0, 1) + (2.0 / step) * part(1, 2) + (-0.5 / step) * part(2, 3)
            last = (0.5 / step) * part(-3, -2) + (-2.0 / step) * part(-2, -1) + (1.5 / step) * part(-1, None)
        return np.concatenate([first, inner, last], axis=place)
    if spacing.ndim != 1 or not equal(spacing.type.shape[0], size):
        raise ShapeError(f"numpy.gradient: {spacing.type} places for {size} elements", current_location())
    widths = call("reshape", np.diff(spacing), tuple(-1 if at == place else 1 for at in range(x.ndim)))

    def width(start: Any, stop: Any) -> Any:
        return _sliced(widths, place, slice(start, stop))

    left, right = width(None, -1), width(1, None)
    inner = (
        -right / (left * (left + right)) * part(None, -2)
        + (right - left) / (left * right) * part(1, -1)
        + left / (right * (left + right)) * part(2, None)
    )
    if edge_order == 1:
        first = (part(1, 2) - part(0, 1)) / width(0, 1)
        last = (part(-1, None) - part(-2, -1)) / width(-1, None)
    else:
        a, b = width(0, 1), width(1, 2)
        first = (
            -(2.0 * a + b) / (a * (a + b)) * part(0, 1)
            + (a + b) / (a * b) * part(1, 2)
            - a / (b * (a + b)) * part(2, 3)
        )
        a, b = width(-2, -1), width(-1, None)
        last = (
            b / (a * (a + b)) * part(-3, -2)
            - (b + a) / (a * b) * part(-2, -1)
            + (2.0 * b + a) / (b * (a + b)) * part(-1, None)
        )
    return call("cast", np.concatenate([first, inner, last], axis=place), x.dtype)


# Comparisons of all elements


@numpys(np.isclose)
def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    x, y = tensor(a), tensor(b)
    y = call("cast", y, result_dtype(y, 1.0))
    found = (np.abs(x - y) <= atol + rtol * np.abs(y)) & np.isfinite(y) | (x == y)
    return found | (np.isnan(x) & np.isnan(y)) if equal_nan else found


@numpys(np.allclose)
def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    return np.all(np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan))


@numpys(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = tensor(a1), tensor(a2)
    if x.ndim != y.ndim or not all(map(equal, x.type.shape, y.type.shape)):
        return call("all_true", call("zeros", (1,), dtype=bool_))
    found = x == y
    if equal_nan and x.dtype.is_inexact and y.dtype.is_inexact:
        found = found | (np.isnan(x) & np.isnan(y))
    return np.all(found)
