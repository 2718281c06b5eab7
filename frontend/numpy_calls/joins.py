"""NumPy's functions that join tensors, take them apart, and repeat or take elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.graph import Array, Value, current_location
from ..ir.symbolic import Expr
from ..ir.types import user_dtype
from ..ops.shapes import divides, equal
from ..promotion import in_dtype
from .common import call, dimension, is_int, numpys, refuse, tensor, together
from .data_sizes import repeated


def _sequence(arrays: Any, function: str) -> list[Any]:
    """Return the arrays to join; a single array stands for its slices along the first dim."""
    if isinstance(arrays, Value):
        if not arrays.ndim:
            raise ShapeError(f"numpy.{function} of a 0-dim tensor: expected a sequence", current_location())
        arrays = list(arrays)  # type: ignore[call-overload]
    found = list(arrays)
    if not found:
        raise ArgumentError(f"numpy.{function}: need at least one array", current_location())
    return found


def _joined(items: Sequence[Any], axis: Any, dtype: Any, casting: str, function: str) -> Any:
    refuse(function, casting=(casting, "same_kind"))
    values = list(map(tensor, items)) if dtype is not None else together(*items)
    if dtype is not None:
        wanted = user_dtype(dtype)
        for value in values:
            if not np.can_cast(value.dtype.numpy, wanted.numpy, "same_kind"):
                raise DTypeError(f"numpy.{function}: {value.dtype} does not cast to {wanted}", current_location())
        values = [Array(in_dtype(value, wanted)) for value in values]
    if axis is None:
        values, axis = [call("ravel", value) for value in values], 0
    ranks = {value.ndim for value in values}
    if len(ranks) > 1 or 0 in ranks:
        raise ShapeError(f"numpy.{function}: arrays of {sorted(ranks)} dims", current_location())
    return call("cat", values, axis)


@numpys(np.concatenate)
def concatenate(
    arrays: Any, axis: int | None = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    refuse("concatenate", out=(out, None))
    return _joined(_sequence(arrays, "concatenate"), axis, dtype, casting, "concatenate")


@numpys(np.stack)
def stack(arrays: Any, axis: int = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    refuse("stack", out=(out, None))
    values = list(map(tensor, _sequence(arrays, "stack")))
    first = values[0].type.shape
    if any(value.ndim != len(first) or not all(map(equal, value.type.shape, first)) for value in values):
        raise ShapeError("numpy.stack: all arrays must have the same shape", current_location())
    at = dimension(axis, values[0].ndim + 1)
    return _joined([call("unsqueeze", value, at) for value in values], at, dtype, casting, "stack")


@numpys(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    values = list(map(tensor, _sequence(tup, "vstack")))
    values = [call("reshape", value, (1, *(value.type.shape or (1,)))) if value.ndim < 2 else value for value in values]
    return _joined(values, 0, dtype, casting, "vstack")


@numpys(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    values = list(map(tensor, _sequence(tup, "hstack")))
    values = [value if value.ndim else call("reshape", value, (1,)) for value in values]
    return _joined(values, 0 if values[0].ndim == 1 else 1, dtype, casting, "hstack")


@numpys(np.array_split)
def parts(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.array_split."""
    sections = indices_or_sections
    if is_int(sections) and sections <= 0:
        raise ArgumentError(f"numpy.array_split into {sections} parts", current_location())
    wanted = int(sections) if is_int(sections) else tuple(np.asarray(sections).tolist())
    return list(call("tensor_split", tensor(ary), wanted, axis))


@numpys(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    a, sections = tensor(ary), indices_or_sections
    size = a.type.shape[dimension(axis, a.ndim)]
    if is_int(sections) and (sections <= 0 or not divides(size, int(sections))):
        raise ShapeError(f"numpy.split: {size} is no multiple of {sections}", current_location())
    return parts(a, sections, axis)


@numpys(np.take)
def take(a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise") -> Any:
    refuse("take", out=(out, None), mode=(mode, "raise"))
    x = tensor(a)
    if axis is None:
        return call("take", x, _integers(indices))
    return call("index", x, (*(None for _ in range(dimension(axis, x.ndim))), _integers(indices)))


def _integers(indices: Any) -> Any:
    """Return indices as integers: an empty list becomes an array of integers; bools are an error."""
    found = indices if isinstance(indices, Value) else np.asarray(indices)
    if not isinstance(found, Value) and not found.size:
        return found.astype(np.int64)
    if not (found.dtype.is_integer if isinstance(found, Value) else found.dtype.kind in "iu"):
        raise DTypeError(f"numpy.take: the indices are {found.dtype}, expected integers", current_location())
    return found


@numpys(np.repeat)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """np.repeat with one count or one for each element."""
    source = call("ravel", tensor(a)) if axis is None else tensor(a)
    along = 0 if axis is None else dimension(axis, source.ndim)
    if isinstance(repeats, Expr):
        return call("repeat_interleave", source, repeats, along)
    if isinstance(repeats, Value):
        return repeated(source, repeats, along)
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1:
        raise ArgumentError(f"numpy.repeat: repeats is {repeats!r}, expected integers", current_location())
    if (counts < 0).any():
        raise ArgumentError("numpy.repeat: repeats may not contain negative numbers", current_location())
    if counts.size == 1:
        return call("repeat_interleave", source, int(counts.reshape(())), along)
    size = source.type.shape[along]
    if not equal(size, len(counts)):
        raise ShapeError(f"numpy.repeat: {len(counts)} counts for {size} elements", current_location())
    return take(source, np.repeat(np.arange(len(counts)), counts), along)
