"""NumPy's functions that stack, split, mirror, insert and delete, and that tell places of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ShapeError, TraceError
from ..ir.graph import Value, current_location
from ..ir.open_size import expression
from ..ops.shapes import equal
from ..promotion import result_dtype
from .common import axes_of, call, dimension, is_int, numpys, refuse, tensor


def known_sizes(x: Any, function: str) -> tuple[int, ...]:
    """Return the sizes of a tensor, which must be numbers: they decide which elements go where."""
    if not all(isinstance(size, int) for size in x.type.shape):
        raise TraceError(f"numpy.{function} of {x.type}: its sizes must be known while tracing", current_location())
    return tuple(x.type.shape)


def known_numbers(item: Any, function: str, name: str) -> np.ndarray:
    """Return an argument that decides shapes, which must be known while tracing."""
    if isinstance(expression(item), Value):
        raise TraceError(f"numpy.{function}: {name} must be known while tracing", current_location())
    return np.asarray(item)


def picked(x: Any, places: np.ndarray, axis: int) -> Any:
    """Return the slices of a tensor at known places of an axis."""
    return call("index_select", x, axis, np.asarray(places, np.int64))


# Ranks


def _at_least(item: Any, rank: int) -> Any:
    x = tensor(item)
    if x.ndim >= rank:
        return x
    if rank == 3:
        shape = {0: (1, 1, 1), 1: (1, -1, 1), 2: (*x.type.shape, 1)}[x.ndim]
    else:
        shape = (1,) * (rank - x.ndim) + tuple(x.type.shape)
    return call("reshape", x, shape)


def _all_at_least(rank: int, arrays: tuple[Any, ...]) -> Any:
    found = tuple(_at_least(item, rank) for item in arrays)
    return found[0] if len(found) == 1 else found


@numpys(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    return _all_at_least(1, arys)


@numpys(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    return _all_at_least(2, arys)


@numpys(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    return _all_at_least(3, arys)


@numpys(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    return tuple(call("broadcast_tensors", tuple(map(tensor, args))))


@numpys(*(getattr(np, name) for name in ("matrix_transpose",) if hasattr(np, name)))
def matrix_transpose(x: Any, /) -> Any:
    found = tensor(x)
    if found.ndim < 2:
        raise ShapeError(f"numpy.matrix_transpose of {found.type}: expected two dims or more", current_location())
    return call("transpose", found, -2, -1)


@numpys(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    x = tensor(a)
    place, rank = dimension(axis, x.ndim), x.ndim
    if not is_int(start) or not -rank <= start <= rank:
        raise ArgumentError(f"numpy.rollaxis: start is {start!r} for {rank} dims", current_location())
    target = start + rank if start < 0 else start
    target -= place < target
    order = [at for at in range(rank) if at != place]
    order.insert(target, place)
    return call("permute", x, tuple(order))


# Joins and parts


@numpys(np.dstack)
def dstack(tup: Any) -> Any:
    return np.concatenate([_at_least(item, 3) for item in tup], axis=2)


@numpys(np.column_stack)
def column_stack(tup: Any) -> Any:
    arrays = list(map(tensor, tup))
    return np.concatenate([call("reshape", x, (-1, 1)) if x.ndim < 2 else x for x in arrays], axis=1)


@numpys(np.block)
def block(arrays: Any) -> Any:
    """np.block: nested lists, the innermost joined along the last dim."""

    def depth(item: Any) -> int:
        if isinstance(item, tuple):
            raise ArgumentError("numpy.block takes lists, not tuples", current_location())
        if not isinstance(item, list):
            return 0
        depths = {depth(part) for part in item}
        if len(depths) != 1:
            raise ArgumentError("numpy.block: lists of one depth are expected, none empty", current_location())
        return 1 + depths.pop()

    def leaves(item: Any) -> list[Any]:
        return [leaf for part in item for leaf in leaves(part)] if isinstance(item, list) else [tensor(item)]

    levels = depth(arrays)
    rank = max(levels, *(leaf.ndim for leaf in leaves(arrays)), 0)

    def joined(item: Any, level: int) -> Any:
        if not isinstance(item, list):
            x = tensor(item)
            return call("reshape", x, (1,) * (rank - x.ndim) + tuple(x.type.shape))
        return np.concatenate([joined(part, level - 1) for part in item], axis=-level)

    return joined(arrays, levels)


@numpys(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    return np.concatenate([tensor(arr), tensor(values)], axis=axis)


def _split_along(ary: Any, sections: Any, axis: int, least: int, function: str) -> Any:
    x = tensor(ary)
    if x.ndim < least:
        raise ShapeError(f"numpy.{function} of {x.type}: expected {least} dims or more", current_location())
    return np.split(x, sections, axis=axis)


@numpys(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _split_along(ary, indices_or_sections, 1 if np.ndim(ary) > 1 else 0, 1, "hsplit")


@numpys(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _split_along(ary, indices_or_sections, 0, 2, "vsplit")


@numpys(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _split_along(ary, indices_or_sections, 2, 3, "dsplit")


@numpys(*(getattr(np, name) for name in ("unstack",) if hasattr(np, name)))
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    found = tensor(x)
    if not found.ndim:
        raise ShapeError("numpy.unstack of a 0-dim tensor", current_location())
    return tuple(call("unbind", found, dimension(axis, found.ndim)))


@numpys(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """np.insert at places that are known while tracing."""
    x = call("ravel", tensor(arr)) if axis is None else tensor(arr)
    along = 0 if axis is None else dimension(axis, x.ndim)
    size = known_sizes(x, "insert")[along]
    places = _places(np.arange(size)[obj] if isinstance(obj, slice) else obj, "insert")
    items = call("cast", tensor(values), x.dtype)
    if items.ndim > x.ndim:
        raise ShapeError(f"numpy.insert of {items.type} in {x.type}", current_location())
    items = call("reshape", items, (1,) * (x.ndim - items.ndim) + tuple(items.type.shape))
    count: Any = places.size
    if places.size == 1:
        # One place takes as many slices as there are; with a bare int, NumPy reads the first dim of values as the axis.
        items = items if places.ndim else call("movedim", items, 0, along)
        count = known_sizes(items, "insert")[along]
        places = np.full(count, places.reshape(()))
    try:
        order = np.insert(np.arange(size), places, size + np.arange(count))
    except (IndexError, ValueError) as error:
        raise ArgumentError(f"numpy.insert: {error}", current_location()) from None
    items = np.broadcast_to(items, tuple(count if at == along else entry for at, entry in enumerate(x.type.shape)))
    return picked(np.concatenate([x, items], axis=along), order, along)


@numpys(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """np.delete of places that are known while tracing."""
    x = call("ravel", tensor(arr)) if axis is None else tensor(arr)
    along = 0 if axis is None else dimension(axis, x.ndim)
    size = known_sizes(x, "delete")[along]
    try:
        order = np.delete(np.arange(size), obj if isinstance(obj, slice) else _places(obj, "delete", size))
    except (IndexError, ValueError) as error:
        raise ArgumentError(f"numpy.delete: {error}", current_location()) from None
    return picked(x, order, along)


def _places(obj: Any, function: str, size: int | None = None) -> np.ndarray:
    """Return known places as integers; a mask, with its size checked where that is given, as those of its Trues."""
    places = known_numbers(obj, function, "obj")
    if not places.size:
        return places.astype(np.int64)
    if places.dtype.kind == "b":
        if size is not None and places.shape != (size,):
            raise ArgumentError(f"numpy.{function}: a mask of {places.size} for {size} elements", current_location())
        places = np.flatnonzero(places)
    if places.dtype.kind not in "iu" or places.ndim > 1:
        raise ArgumentError(f"numpy.{function}: obj is {obj!r}, expected integers", current_location())
    return places


@numpys(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    """np.resize: the elements in order, repeated as often as needed."""
    x = call("ravel", tensor(a))
    places = np.resize(np.arange(known_sizes(x, "resize")[0]), new_shape)
    if not x.type.shape[0]:
        return call("zeros", places.shape, dtype=x.dtype)
    return call("take", x, places)


# Mirrors


@numpys(np.fliplr)
def fliplr(m: Any) -> Any:
    return _flipped(m, 1, "fliplr")


@numpys(np.flipud)
def flipud(m: Any) -> Any:
    return _flipped(m, 0, "flipud")


def _flipped(m: Any, axis: int, function: str) -> Any:
    x = tensor(m)
    if x.ndim <= axis:
        raise ShapeError(f"numpy.{function} of {x.type}: expected {axis + 1} dims or more", current_location())
    return call("flip", x, (axis,))


@numpys(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    x = tensor(m)
    if len(axes) != 2 or len(places := axes_of(tuple(axes), x.ndim)) != 2:
        raise ArgumentError(f"numpy.rot90: axes is {axes!r}, expected two dims", current_location())
    return call("rot90", x, int(k), places)


# Places of elements


@numpys(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    x, places = tensor(arr), tensor(indices)
    if axis is None:
        x, axis = call("ravel", x), 0
        if places.ndim != 1:
            raise ShapeError(f"numpy.take_along_axis: indices are {places.type}, expected one dim", current_location())
    if places.ndim != x.ndim:
        raise ShapeError(f"numpy.take_along_axis: indices are {places.type} for {x.type}", current_location())
    if not places.dtype.is_integer:
        raise ArgumentError(f"numpy.take_along_axis: indices are {places.dtype}, expected integers", current_location())
    at = dimension(axis, x.ndim)
    for place, (one, other) in enumerate(zip(x.type.shape, places.type.shape)):
        if place != at and not (equal(one, other) or equal(one, 1) or equal(other, 1)):
            raise ShapeError(f"numpy.take_along_axis: {places.type} and {x.type} do not broadcast", current_location())
    size = x.shape[at]
    places = call("cast", places, np.int64)
    return call("take_along_dim", x, np.where(places < 0, places + size, places), at)


@numpys(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    refuse("searchsorted", sorter=(sorter, None))
    if side not in ("left", "right"):
        raise ArgumentError(f"numpy.searchsorted: side is {side!r}, expected 'left' or 'right'", current_location())
    rows, values = tensor(a), tensor(v)
    if rows.ndim != 1:
        raise ShapeError(f"numpy.searchsorted in {rows.type}: expected one dim", current_location())
    if rows.dtype is not values.dtype:
        wanted = result_dtype(rows, values)
        rows, values = call("cast", rows, wanted), call("cast", values, wanted)
    return call("searchsorted", rows, values, right=side == "right")


@numpys(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    if isinstance(bins, Value):
        raise TraceError(
            "numpy.digitize by traced bins, which may rise or fall: use numpy.searchsorted", current_location()
        )
    edges, values = np.asarray(bins), tensor(x)
    rises = edges.ndim == 1 and bool(np.all(edges[1:] >= edges[:-1]))
    falls = edges.ndim == 1 and bool(np.all(edges[1:] <= edges[:-1]))
    if values.dtype.is_complex or not (rises or falls):
        raise ArgumentError("numpy.digitize: expected real numbers, and bins that rise or fall", current_location())
    side: Any = "left" if right else "right"
    return np.searchsorted(edges, values, side) if rises else len(edges) - np.searchsorted(edges[::-1], values, side)


@numpys(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    return call("isin", tensor(element), np.ravel(tensor(test_elements)), invert=bool(invert))


@numpys(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    refuse("unravel_index", order=(order, "C"))
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    x = tensor(indices)
    if not x.dtype.is_integer:
        raise ArgumentError(f"numpy.unravel_index of {x.dtype}: expected integers", current_location())
    total: Any = 1
    for size in sizes:
        total = total * size
    # The table holds the numbers of elements: reading it is how native code finds an index out of range.
    x = call("cast", x, np.int64)
    rest = call("take", call("arange", total, dtype=np.int64), np.where(x < 0, total, x))
    found = []
    for size in reversed(sizes):
        found.append(rest % size)
        rest = rest // size
    return tuple(reversed(found))


# In place


def _in_place(function: str, instead: str) -> Any:
    def changed(*args: Any, **named: Any) -> Any:
        raise TraceError(
            f"numpy.{function} changes an array in place; a traced tensor is never changed. Instead: {instead}",
            current_location(),
        )

    return changed


numpys(np.put_along_axis)(_in_place("put_along_axis", "x = smelt.ops.scatter(x, axis, indices, values)"))
numpys(np.fill_diagonal)(_in_place("fill_diagonal", "x = smelt.ops.diagonal_scatter(x, values)"))
numpys(np.put)(_in_place("put", "x = smelt.ops.index_put(x, [index], values)"))
numpys(np.place)(_in_place("place", "x = numpy.where(mask, values, x)"))
numpys(np.putmask)(_in_place("putmask", "x = numpy.where(mask, values, x)"))
numpys(np.copyto)(_in_place("copyto", "x = values"))
