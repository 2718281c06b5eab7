"""NumPy's reductions and cumulative functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, DTypeError
from ..ir.graph import Value, current_location
from ..ir.types import bool_, u64, user_dtype
from ..promotion import apply_ufunc
from .common import call, dimension, inexact, is_int, numpys, refuse, tensor


def _reduced(name: str, a: Any, axis: Any, keepdims: Any, *args: Any, **named: Any) -> Any:
    """Reduce over axes; over none, axis=(), each element is reduced by itself."""
    if isinstance(axis, list):
        raise ArgumentError(f"axis is {axis}, expected an int, a tuple of ints or None", current_location())
    if isinstance(axis, tuple):
        if not axis:
            return call(name, call("unsqueeze", a, -1), -1, *args, **named)
        if len({dimension(entry, a.ndim) for entry in axis}) < len(axis):
            raise ArgumentError(f"axis {axis} names a dim twice", current_location())
    return call(name, a, axis, *args, keepdim=bool(keepdims), **named)


def _sum(name: str, neutral: int) -> Callable[..., Any]:
    def add(
        a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False, initial: Any = None,
        where: Any = True,
    ) -> Any:  # fmt: skip
        refuse(name, out=(out, None))
        x = tensor(a)
        found = _reduced(name, _chosen(x, where, neutral), axis, keepdims, dtype=total_dtype(x, dtype))
        if initial is None:
            return found
        begin = _initial(initial, found, name)
        return found + begin if neutral == 0 else found * begin

    return add


def total_dtype(x: Any, dtype: Any = None) -> Any:
    """Return the type of a total: sums and products of unsigned integers are u64, as in NumPy."""
    return u64 if dtype is None and x.dtype.kind == "u" else dtype


def _reduction(name: str, meet: Any) -> Callable[..., Any]:
    """Reduce with max or min; `meet` is the ufunc that takes an initial value in."""

    def reduction(
        a: Any, axis: Any = None, out: None = None, keepdims: Any = False, initial: Any = None, where: Any = True
    ) -> Any:
        refuse(name, out=(out, None))
        x = tensor(a)
        if where is not True and initial is None:
            raise ArgumentError(f"numpy.{name} with where= needs initial=", current_location())
        begin = None if initial is None else _initial(initial, x, name)
        found = _reduced(name, _chosen(x, where, begin), axis, keepdims)
        return found if begin is None else apply_ufunc(meet, found, begin)

    return reduction


def _truth(name: str, neutral: bool) -> Callable[..., Any]:
    def truth(a: Any, axis: Any = None, out: None = None, keepdims: Any = False, *, where: Any = True) -> Any:
        refuse(name, out=(out, None))
        return _reduced(name, _chosen(tensor(a), where, neutral), axis, keepdims)

    return truth


def _chosen(x: Any, where: Any, neutral: Any) -> Any:
    """Put a neutral number in place of the elements that do not count."""
    if where is True:
        return x
    mask = tensor(where)
    if mask.dtype is not bool_:
        raise DTypeError(f"where is {mask.dtype}, expected bool", current_location())
    return call("where", mask, x, neutral if isinstance(neutral, Value) else call("full_like", x, neutral))


def _initial(initial: Any, like: Any, name: str) -> Any:
    begin = tensor(initial)
    if begin.ndim or not np.can_cast(begin.dtype.numpy, like.dtype.numpy, "same_kind"):
        raise DTypeError(f"numpy.{name}: initial is {initial!r} for {like.dtype}", current_location())
    return call("cast", begin, like.dtype)


def _place(name: str) -> Callable[..., Any]:
    def place(a: Any, axis: int | None = None, out: None = None, *, keepdims: Any = False) -> Any:
        refuse(name, out=(out, None))
        x = tensor(a)
        if axis is not None and not is_int(axis):
            raise ArgumentError(f"axis is {axis!r}, expected an int or None", current_location())
        if axis is None and keepdims:
            return call("reshape", call(name, x), (1,) * x.ndim)
        return call(name, x, axis, bool(keepdims))

    return place


@numpys(np.mean)
def mean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False) -> Any:
    return _average("mean", a, axis, dtype, out, keepdims)


@numpys(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False) -> Any:
    return _average("nanmean", a, axis, dtype, out, keepdims)


def _average(name: str, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any) -> Any:
    refuse(name, out=(out, None))
    x = tensor(a)
    if dtype is None:
        return _reduced(name, inexact(x), axis, keepdims)
    wanted = user_dtype(dtype)
    if not wanted.is_inexact or (x.dtype.is_complex and not wanted.is_complex):
        raise DTypeError(f"numpy.{name} of {x.dtype} with dtype={wanted}: a mean is a float", current_location())
    return _reduced(name, call("cast", x, wanted), axis, keepdims)


def _spread(name: str) -> Callable[..., Any]:
    """Compute std or var with NumPy's divisor, the count minus `ddof` (default 0). PyTorch's default is 1."""

    def spread(
        a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: Any = False
    ) -> Any:
        refuse(name, out=(out, None))
        x = tensor(a)
        if dtype is not None and (x.dtype.is_complex or not user_dtype(dtype).is_float):
            raise DTypeError(f"numpy.{name} of {x.dtype} with dtype={user_dtype(dtype)}", current_location())
        given = inexact(x) if dtype is None else call("cast", x, dtype)
        return _reduced(name, given, axis, keepdims, correction=ddof)

    return spread


@numpys(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    x = tensor(a)
    chosen = x if x.dtype is bool_ else x != 0
    return _reduced("sum", chosen, axis, keepdims)


def _cumulative(name: str) -> Callable[..., Any]:
    """Apply a cumulative op along an axis; without one, along the flattened tensor."""

    def cumulative(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        refuse(name, out=(out, None))
        x = tensor(a)
        along = call("ravel", x) if axis is None else x
        return call(name, along, 0 if axis is None else axis, dtype=total_dtype(x, dtype))

    return cumulative


@numpys(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    refuse("trace", offset=(offset, 0), axis1=(axis1, 0), axis2=(axis2, 1), out=(out, None))
    x = tensor(a)
    found = call("trace", x if dtype is None else call("cast", x, dtype))
    wanted = total_dtype(x, dtype)
    return found if wanted is None else call("cast", found, wanted)


numpys(np.sum)(_sum("sum", 0))
numpys(np.prod)(_sum("prod", 1))
numpys(np.nansum)(_sum("nansum", 0))
numpys(np.std)(_spread("std"))
numpys(np.var)(_spread("var"))
numpys(np.max, np.amax)(_reduction("amax", np.maximum))
numpys(np.min, np.amin)(_reduction("amin", np.minimum))
numpys(np.any)(_truth("any_true", False))
numpys(np.all)(_truth("all_true", True))
numpys(np.argmax)(_place("argmax"))
numpys(np.argmin)(_place("argmin"))
numpys(np.cumsum)(_cumulative("cumsum"))
numpys(np.cumprod)(_cumulative("cumprod"))
