"""NumPy's functions that make tensors: like another, diagonals, grids, sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.graph import current_location
from ..ir.types import user_dtype
from ..promotion import result_dtype
from .arrange import known_sizes
from .common import call, is_int, numpys, refuse, tensor


def _like(name: str) -> Callable[..., Any]:
    def like(a: Any, dtype: Any = None, *, shape: None = None) -> Any:
        refuse(name, shape=(shape, None))
        return call(name, tensor(a), dtype=dtype)

    return like


@numpys(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    x = tensor(a)
    wanted = x.dtype if dtype is None else user_dtype(dtype)
    if isinstance(fill_value, complex) and not wanted.is_complex:
        raise DTypeError(f"numpy.full_like: {fill_value} is no {wanted}", current_location())
    return call("full_like", x, fill_value, dtype=dtype)


def _triangle(name: str) -> Callable[..., Any]:
    return lambda m, k=0: call(name, tensor(m), k)


numpys(np.zeros_like)(_like("zeros_like"))
numpys(np.ones_like)(_like("ones_like"))
numpys(np.empty_like)(_like("empty_like"))
numpys(np.tril)(_triangle("tril"))
numpys(np.triu)(_triangle("triu"))


@numpys(np.diag)
def diag(v: Any, k: int = 0) -> Any:
    return call("diag", tensor(v), k)


@numpys(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    return call("diag_embed", call("ravel", tensor(v)), k)


@numpys(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return call("diagonal", tensor(a), offset, axis1, axis2)


@numpys(np.vander)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """np.vander: powers by cumulative products, as NumPy computes them."""
    given = tensor(x)
    if given.ndim != 1:
        raise ShapeError(f"numpy.vander of {given.type}: expected one dim", current_location())
    count = given.shape[0] if N is None else N
    if is_int(count) and count < 0:
        raise ArgumentError(f"numpy.vander: N is {N}, expected no negative number", current_location())
    wide = call("cast", given, result_dtype(given, np.empty(0, int)))[:, None]
    ones = np.ones_like(wide)
    if is_int(count) and count <= 1:
        return ones[:, :count]
    powers = np.cumprod(np.broadcast_to(wide, (wide.shape[0], count - 1)), axis=1)
    powers = np.concatenate([ones, call("cast", powers, wide.dtype)], axis=1)
    return powers if increasing else np.fliplr(powers)


@numpys(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"numpy.meshgrid: indexing is {indexing!r}, expected 'xy' or 'ij'", current_location())
    arrays = [call("ravel", tensor(item)) for item in xi]
    places = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        places[:2] = [1, 0]
    found = [
        call("reshape", x, tuple(-1 if at == place else 1 for at in range(len(arrays))))
        for x, place in zip(arrays, places)
    ]
    return tuple(found) if sparse else np.broadcast_arrays(*found)


@numpys(np.linspace)
def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    """np.linspace between tensors: start + i * step, with the end as it is given."""
    if not is_int(num) or num < 0:
        raise ArgumentError(f"numpy.linspace: num is {num!r}, expected an int that is not negative", current_location())
    kind = result_dtype(start, stop, 1.0)
    first, last = (call("cast", tensor(item), kind) for item in (start, stop))
    intervals = num - 1 if endpoint else num
    span = last - first
    step = span / intervals if intervals > 0 else span * np.nan
    counts = np.arange(num, dtype=first.dtype.numpy).reshape((-1,) + (1,) * span.ndim)
    found = counts * step + first if intervals > 0 else counts * span + first
    if endpoint and num > 1:
        found = np.concatenate([found[:-1], np.broadcast_to(last, (1, *span.shape))])
    if dtype is not None:
        wanted = user_dtype(dtype)
        found = call("cast", np.floor(found) if wanted.is_integer else found, wanted)
    found = np.moveaxis(found, 0, axis) if axis else found
    return (found, step) if retstep else found


def _places_of(make: Any, function: str) -> Callable[..., Any]:
    def places(arr: Any, k: int = 0) -> Any:
        x = tensor(arr)
        if x.ndim != 2:
            raise ShapeError(f"numpy.{function} of {x.type}: expected two dims", current_location())
        rows, columns = known_sizes(x, function)
        return make(rows, k, columns)

    return places


numpys(np.tril_indices_from)(_places_of(np.tril_indices, "tril_indices_from"))
numpys(np.triu_indices_from)(_places_of(np.triu_indices, "triu_indices_from"))
