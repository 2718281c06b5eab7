"""NumPy's functions whose result has a size that data decide: nonzero, compress, unique, set functions, bincount."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentError
from ..ir.graph import Array, current_location, plain
from ..ir.types import f64, i64
from ..ops.unique import groups
from .common import arrays_together, call, dimension, numpys, refuse, tensor


def places(condition: Any) -> tuple[Any, ...]:
    """Return the indices of the nonzero elements, an array for each dim."""
    given = tensor(condition)
    if not given.ndim:
        raise ArgumentError("nonzero of a 0-dim tensor: make it one of 1 dim", current_location())
    found = call("nonzero", given)
    return tuple([call("select", found, 1, dim) for dim in range(given.ndim)])


@numpys(np.nonzero)
def nonzero(a: Any) -> tuple[Any, ...]:
    return places(a)


@numpys(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    return call("flatnonzero", tensor(a))


@numpys(np.argwhere)
def argwhere(a: Any) -> Any:
    return call("argwhere", tensor(a))


@numpys(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    return call("index_select", call("ravel", tensor(arr)), 0, call("flatnonzero", tensor(condition)))


@numpys(np.compress)
def compress(condition: Any, a: Any, axis: int | None = None, out: None = None) -> Any:
    refuse("compress", out=(out, None))
    given = tensor(condition)
    if given.ndim != 1:
        raise ArgumentError(f"numpy.compress: the condition has {given.ndim} dims, expected 1", current_location())
    source = call("ravel", tensor(a)) if axis is None else tensor(a)
    along = 0 if axis is None else dimension(axis, source.ndim)
    return call("index_select", source, along, call("flatnonzero", given))


@numpys(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """np.unique; the entries are sorted also where they need not be."""
    given = tensor(ar)
    along = None if axis is None else dimension(axis, given.ndim)
    rows = call("ravel", given) if along is None else call("movedim", given, along, 0)
    merges = equal_nan and along is None
    found = groups(plain(rows), "unique", True, return_inverse, return_counts, equal_nan=merges)
    values, first, inverse, counts = map(Array, found)
    if along is None and return_inverse:
        inverse = call("reshape", inverse, given.type.shape)
    values = values if along is None else call("movedim", values, 0, along)
    chosen = [(return_index, first), (return_inverse, inverse), (return_counts, counts)]
    others = [item for is_wanted, item in chosen if is_wanted]
    return (values, *others) if others else values


@numpys(np.unique_values)
def unique_values(x: Any) -> Any:
    return unique(x, equal_nan=False)


@numpys(np.unique_counts)
def unique_counts(x: Any) -> Any:
    return _named("UniqueCountsResult", unique(x, return_counts=True, equal_nan=False))


@numpys(np.unique_inverse)
def unique_inverse(x: Any) -> Any:
    return _named("UniqueInverseResult", unique(x, return_inverse=True, equal_nan=False))


@numpys(np.unique_all)
def unique_all(x: Any) -> Any:
    return _named("UniqueAllResult", unique(x, True, True, True, equal_nan=False))


def _named(name: str, found: tuple[Any, ...]) -> Any:
    from numpy.lib import _arraysetops_impl as own

    kind = getattr(own, name, None)
    return found if kind is None else kind(*found)


@numpys(np.union1d)
def union1d(ar1: Any, ar2: Any) -> Any:
    return unique(call("cat", [call("ravel", item) for item in arrays_together(ar1, ar2)]))


def _is_in(values: Any, others: Any) -> Any:
    """Whether each value is one of some others, by binary search."""
    ordered = call("sorted_values", others)
    last = call("searchsorted", ordered, values, right=True)
    return call("ne", call("searchsorted", ordered, values), last)


@numpys(np.intersect1d)
def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    refuse("intersect1d", return_indices=(return_indices, False))
    left, right = (call("ravel", item) for item in arrays_together(ar1, ar2))
    values = unique(left)
    return values[_is_in(values, right)]


@numpys(np.setdiff1d)
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    given = call("ravel", tensor(ar1))
    values = given if assume_unique else unique(given)
    left, right = arrays_together(values, call("ravel", tensor(ar2)))
    return values[call("logical_not", _is_in(left, right))]


@numpys(np.setxor1d)
def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    left, right = (call("ravel", item) for item in arrays_together(ar1, ar2))
    ones, others = setdiff1d(left, right), setdiff1d(right, left)
    return call("sorted_values", call("cat", [ones, others]))


@numpys(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    given = tensor(x)
    return call("bincount", given, None if weights is None else call("cast", tensor(weights), f64), minlength)


def repeated(source: Any, repeats: Any, along: int) -> Any:
    """Return a tensor with its elements repeated as often as a traced tensor says."""
    return call("repeat_interleave", source, call("cast", tensor(repeats), i64), along)
