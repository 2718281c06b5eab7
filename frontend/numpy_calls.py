"""NumPy's functions on traced tensors: np.sum(x, axis=0) is the op of the same meaning, with NumPy's types.

Each function has the supported parameters of NumPy's function, in NumPy's order. Other parameters, and functions that
are not here, are errors that name an alternative.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .ir.errors import ArgumentError, DTypeError, ShapeError, SmeltError, TraceError, suggest
from .ir.graph import Array, Value, current_location
from .ir.open_size import expression, open_shape, open_size
from .ir.symbolic import Expr
from .ir.types import bool_, f64, user_dtype
from .ops import shapes
from .ops.define import REGISTRY
from .ops.shapes import divides, equal
from .promotion import UFUNCS, apply_ufunc, in_dtype, meet

# The ops of ufunc methods.
UFUNC_METHODS = {
    ("add", "reduce"): "sum", ("multiply", "reduce"): "prod", ("maximum", "reduce"): "amax",
    ("minimum", "reduce"): "amin", ("logical_and", "reduce"): "all", ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumsum", ("multiply", "accumulate"): "cumprod", ("multiply", "outer"): "outer",
}  # fmt: skip

# Argument names that only NumPy has: a method called with one of them is NumPy's function.
ONLY_NUMPYS = frozenset(("axis", "axes", "keepdims", "ddof"))
# Methods that need no arguments in NumPy but do in PyTorch.
NEED_NOTHING = frozenset(("copy", "cumsum", "cumprod"))


def _op(name: str, *args: Any, **named: Any) -> Any:
    return REGISTRY[name](*args, **named)


def _tensor(item: Any) -> Any:
    """Return an operand as a tensor, where NumPy makes an array of it: numbers are not weak then."""
    if item.__class__ is Array and item.weak:
        return Array(item.value)
    return item if isinstance(item, Value) else Array(meet(item)[0])


def _together(*items: Any) -> list[Any]:
    """Return operands as tensors of NumPy's promoted type."""
    return list(map(Array, meet(*items)))


def _arrays_together(*items: Any) -> list[Any]:
    return _together(*map(_tensor, items))


def _inexact(x: Any) -> Any:
    """Return x, integers and bools as f64: the type of their means in NumPy."""
    return x if x.dtype.is_inexact else _op("cast", x, f64)


def _nothing(function: str, **options: Any) -> None:
    """Refuse options with values other than their no-op defaults."""
    for name, (value, default) in options.items():
        if value is not default and not (isinstance(value, (int, str)) and value == default):
            op = f": use smelt.ops.{function}" if function in REGISTRY and name != "out" else ""
            raise TraceError(f"numpy.{function} on a traced tensor takes no {name}={op}", current_location())


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    """Return checked dims for an int or a tuple of them."""
    found = axis if isinstance(axis, tuple) else (axis,)
    for entry in found:
        if not _is_int(entry) or not -rank <= entry < rank:
            raise ArgumentError(f"axis {entry!r} of a tensor of {rank} dims", current_location())
    places = tuple([int(entry) % rank for entry in found])
    if len(set(places)) < len(places):
        raise ArgumentError(f"axis {axis} names a dim twice", current_location())
    return places


def dimension(axis: Any, rank: int) -> int:
    """Return a dim counted from the front, from an int or a NumPy integer."""
    return shapes.dimension(int(axis) if isinstance(axis, np.integer) else axis, rank)


# Reductions


def _reduced(name: str, a: Any, axis: Any, keepdims: Any, *args: Any, **named: Any) -> Any:
    """Reduce over axes; over none, axis=(), each element is reduced by itself."""
    if isinstance(axis, list):
        raise ArgumentError(f"axis is {axis}, expected an int, a tuple of ints or None", current_location())
    if isinstance(axis, tuple):
        if not axis:
            return _op(name, _op("unsqueeze", a, -1), -1, *args, **named)
        if len({dimension(entry, a.ndim) for entry in axis}) < len(axis):
            raise ArgumentError(f"axis {axis} names a dim twice", current_location())
    return _op(name, a, axis, *args, keepdim=bool(keepdims), **named)


def _sum(name: str) -> Callable[..., Any]:
    def add(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False) -> Any:
        _nothing(name, out=(out, None))
        return _reduced(name, _tensor(a), axis, keepdims, dtype=dtype)

    return add


def _reduction(name: str) -> Callable[..., Any]:
    def reduction(a: Any, axis: Any = None, out: None = None, keepdims: Any = False) -> Any:
        _nothing(name, out=(out, None))
        return _reduced(name, _tensor(a), axis, keepdims)

    return reduction


def _place(name: str) -> Callable[..., Any]:
    def place(a: Any, axis: int | None = None, out: None = None, *, keepdims: Any = False) -> Any:
        _nothing(name, out=(out, None))
        x = _tensor(a)
        if axis is not None and not _is_int(axis):
            raise ArgumentError(f"axis is {axis!r}, expected an int or None", current_location())
        if axis is None and keepdims:
            return _op("reshape", _op(name, x), (1,) * x.ndim)
        return _op(name, x, axis, bool(keepdims))

    return place


def _mean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False) -> Any:
    return _average("mean", a, axis, dtype, out, keepdims)


def _nanmean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: Any = False) -> Any:
    return _average("nanmean", a, axis, dtype, out, keepdims)


def _average(name: str, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any) -> Any:
    _nothing(name, out=(out, None))
    x = _tensor(a)
    if dtype is None:
        return _reduced(name, _inexact(x), axis, keepdims)
    wanted = user_dtype(dtype)
    if not wanted.is_inexact or (x.dtype.is_complex and not wanted.is_complex):
        raise DTypeError(f"numpy.{name} of {x.dtype} with dtype={wanted}: a mean is a float", current_location())
    return _reduced(name, _op("cast", x, wanted), axis, keepdims)


def _spread(name: str) -> Callable[..., Any]:
    """Compute std or var with NumPy's divisor, the count minus `ddof` (default 0). PyTorch's default is 1."""

    def spread(
        a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0, keepdims: Any = False
    ) -> Any:
        _nothing(name, out=(out, None))
        x = _tensor(a)
        if dtype is not None and (x.dtype.is_complex or not user_dtype(dtype).is_float):
            raise DTypeError(f"numpy.{name} of {x.dtype} with dtype={user_dtype(dtype)}", current_location())
        given = _inexact(x) if dtype is None else _op("cast", x, dtype)
        return _reduced(name, given, axis, keepdims, correction=ddof)

    return spread


def _count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    x = _tensor(a)
    chosen = x if x.dtype is bool_ else x != 0
    return _reduced("sum", chosen, axis, keepdims)


def _cumulative(name: str) -> Callable[..., Any]:
    """Apply a cumulative op along an axis; without one, along the flattened tensor."""

    def cumulative(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        _nothing(name, out=(out, None))
        x = _tensor(a)
        along = _op("ravel", x) if axis is None else x
        return _op(name, along, 0 if axis is None else axis, dtype=dtype)

    return cumulative


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    _nothing("trace", offset=(offset, 0), axis1=(axis1, 0), axis2=(axis2, 1), out=(out, None))
    return _op("trace", _tensor(a) if dtype is None else _op("cast", _tensor(a), dtype))


# Products


def dot(a: Any, b: Any, out: None = None) -> Any:
    """np.dot: a product of numbers, or a contraction of the last dim of a with the last but one of b."""
    _nothing("dot", out=(out, None))
    ranks = np.ndim(a), np.ndim(b)
    if 0 in ranks:
        return apply_ufunc(np.multiply, _tensor(a), _tensor(b))
    if ranks[1] <= 2:
        return apply_ufunc(np.matmul, a, b)
    left, right = _together(a, b)
    return _contracted(left, right, (ranks[0] - 1, ranks[1] - 2), "dot")


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    left, right = _arrays_together(a, b)
    return _contracted(left, right, axes, "tensordot")


def _contracted(left: Any, right: Any, axes: Any, function: str) -> Any:
    """Contract pairs of dims; their sizes must be equal, since NumPy, unlike PyTorch, does not broadcast them."""
    ranks = left.ndim, right.ndim
    if _is_int(axes):
        if not 0 <= axes <= min(ranks):
            raise ShapeError(
                f"numpy.{function} over {axes} dims of tensors of {ranks[0]} and {ranks[1]}", current_location()
            )
        axes = tuple(range(ranks[0] - axes, ranks[0])), tuple(range(axes))
    if not isinstance(axes, (tuple, list)) or len(axes) != 2:
        raise ArgumentError(f"numpy.{function}: axes is {axes!r}, expected an int or two lists", current_location())
    first, second = (_axes(tuple(item) if isinstance(item, list) else item, rank) for item, rank in zip(axes, ranks))
    if len(first) != len(second) or not all(
        equal(left.type.shape[i], right.type.shape[j]) for i, j in zip(first, second)
    ):
        raise ShapeError(
            f"numpy.{function}: dims {first} of {left.type} and {second} of {right.type} differ in size",
            current_location(),
        )
    return _op("tensordot", left, right, first, second)


def _outer(a: Any, b: Any, out: None = None) -> Any:
    _nothing("outer", out=(out, None))
    left, right = (_op("ravel", item) for item in _arrays_together(a, b))
    return _op("outer", left, right)


def _vdot(a: Any, b: Any) -> Any:
    left, right = (_op("ravel", item) for item in _arrays_together(a, b))
    return apply_ufunc(np.matmul, _op("conj", left) if left.dtype.is_complex else left, right)


def _kron(a: Any, b: Any) -> Any:
    return _op("kron", *_arrays_together(a, b))


def _einsum(subscripts: str, *operands: Any) -> Any:
    if not isinstance(subscripts, str):
        raise TraceError("numpy.einsum on traced tensors takes its subscripts as a text first", current_location())
    return _op("einsum", subscripts, _arrays_together(*operands))


# Choices


def clip(a: Any, a_min: Any = None, a_max: Any = None, out: None = None, *, min: Any = None, max: Any = None) -> Any:
    """np.clip: a bound beyond the range of an integer type has no effect."""
    _nothing("clip", out=(out, None))
    if (a_min is not None and min is not None) or (a_max is not None and max is not None):
        raise ArgumentError("numpy.clip: a bound is given twice", current_location())
    x = _tensor(a)
    low, high = expression((a_min if min is None else min, a_max if max is None else max))
    if x.dtype.is_integer:
        smallest, largest = x.dtype.bounds
        low = None if _is_int(low) and low < smallest else low
        high = None if _is_int(high) and high > largest else high
    if low is None and high is None:
        return apply_ufunc(np.positive, x)  # raises for bools, as NumPy does
    if low is None:
        return apply_ufunc(np.minimum, x, high)
    if high is None:
        return apply_ufunc(np.maximum, x, low)
    x, low, high = _together(x, low, high)
    return apply_ufunc(np.minimum, apply_ufunc(np.maximum, x, low), high)


def _is_int(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)


def _where(condition: Any, *choices: Any) -> Any:
    if len(choices) != 2:
        raise TraceError(
            "numpy.where of a condition alone on a traced tensor: the size of its result is data-dependent. Use "
            "numpy.where(condition, a, b), or a sum of it",
            current_location(),
        )
    given = _tensor(condition)
    return _op("where", given if given.dtype is bool_ else given != 0, *_together(*choices))


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    conditions = list(map(_tensor, condlist))
    if len(conditions) != len(choicelist) or not conditions:
        raise ArgumentError(
            f"numpy.select: {len(conditions)} conditions and {len(choicelist)} choices", current_location()
        )
    for condition in conditions:
        if condition.dtype is not bool_:
            raise DTypeError(f"numpy.select: a condition is {condition.dtype}, expected bool", current_location())
    *choices, result = _together(*choicelist, default)
    for condition, choice in zip(reversed(conditions), reversed(choices)):
        result = _op("where", condition, choice, result)
    return result


# Joins and parts


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
    _nothing(function, casting=(casting, "same_kind"))
    values = list(map(_tensor, items)) if dtype is not None else _together(*items)
    if dtype is not None:
        wanted = user_dtype(dtype)
        for value in values:
            if not np.can_cast(value.dtype.numpy, wanted.numpy, "same_kind"):
                raise DTypeError(f"numpy.{function}: {value.dtype} does not cast to {wanted}", current_location())
        values = [Array(in_dtype(value, wanted)) for value in values]
    if axis is None:
        values, axis = [_op("ravel", value) for value in values], 0
    ranks = {value.ndim for value in values}
    if len(ranks) > 1 or 0 in ranks:
        raise ShapeError(f"numpy.{function}: arrays of {sorted(ranks)} dims", current_location())
    return _op("cat", values, axis)


def _concatenate(
    arrays: Any, axis: int | None = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    _nothing("concatenate", out=(out, None))
    return _joined(_sequence(arrays, "concatenate"), axis, dtype, casting, "concatenate")


def _stack(arrays: Any, axis: int = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    _nothing("stack", out=(out, None))
    values = list(map(_tensor, _sequence(arrays, "stack")))
    first = values[0].type.shape
    if any(value.ndim != len(first) or not all(map(equal, value.type.shape, first)) for value in values):
        raise ShapeError("numpy.stack: all arrays must have the same shape", current_location())
    at = dimension(axis, values[0].ndim + 1)
    return _joined([_op("unsqueeze", value, at) for value in values], at, dtype, casting, "stack")


def _vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    values = list(map(_tensor, _sequence(tup, "vstack")))
    values = [_op("reshape", value, (1, *(value.type.shape or (1,)))) if value.ndim < 2 else value for value in values]
    return _joined(values, 0, dtype, casting, "vstack")


def _hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    values = list(map(_tensor, _sequence(tup, "hstack")))
    values = [value if value.ndim else _op("reshape", value, (1,)) for value in values]
    return _joined(values, 0 if values[0].ndim == 1 else 1, dtype, casting, "hstack")


def _parts(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.array_split."""
    sections = indices_or_sections
    if _is_int(sections) and sections <= 0:
        raise ArgumentError(f"numpy.array_split into {sections} parts", current_location())
    wanted = int(sections) if _is_int(sections) else tuple(np.asarray(sections).tolist())
    return list(_op("tensor_split", _tensor(ary), wanted, axis))


def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    a, sections = _tensor(ary), indices_or_sections
    size = a.type.shape[dimension(axis, a.ndim)]
    if _is_int(sections) and (sections <= 0 or not divides(size, int(sections))):
        raise ShapeError(f"numpy.split: {size} is no multiple of {sections}", current_location())
    return _parts(a, sections, axis)


def _take(a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise") -> Any:
    _nothing("take", out=(out, None), mode=(mode, "raise"))
    x = _tensor(a)
    if axis is None:
        return _op("take", x, _integers(indices))
    return _op("index", x, (*(None for _ in range(dimension(axis, x.ndim))), _integers(indices)))


def _integers(indices: Any) -> Any:
    """Return indices as integers: an empty list becomes an array of integers; bools are an error."""
    found = indices if isinstance(indices, Value) else np.asarray(indices)
    if not isinstance(found, Value) and not found.size:
        return found.astype(np.int64)
    if not (found.dtype.is_integer if isinstance(found, Value) else found.dtype.kind in "iu"):
        raise DTypeError(f"numpy.take: the indices are {found.dtype}, expected integers", current_location())
    return found


def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """np.repeat with one count or one for each element. Counts decide the shape, so they must be known while
    tracing."""
    source = _op("ravel", _tensor(a)) if axis is None else _tensor(a)
    along = 0 if axis is None else dimension(axis, source.ndim)
    if isinstance(repeats, (Value, Expr)):
        raise TraceError("numpy.repeat: repeats must be known while tracing", current_location())
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1:
        raise ArgumentError(f"numpy.repeat: repeats is {repeats!r}, expected integers", current_location())
    if (counts < 0).any():
        raise ArgumentError("numpy.repeat: repeats may not contain negative numbers", current_location())
    if counts.size == 1:
        return _op("repeat_interleave", source, int(counts.reshape(())), along)
    size = source.type.shape[along]
    if not equal(size, len(counts)):
        raise ShapeError(f"numpy.repeat: {len(counts)} counts for {size} elements", current_location())
    return _take(source, np.repeat(np.arange(len(counts)), counts), along)


# Shapes


def _reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    _nothing("reshape", order=(order, "C"))
    return _op("reshape", _tensor(a), tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))


def _ravel(a: Any, order: str = "C") -> Any:
    _nothing("ravel", order=(order, "C"))
    return _op("ravel", _tensor(a))


def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if any(isinstance(size, (int, np.integer)) and size < 0 for size in sizes):
        raise ShapeError(f"numpy.broadcast_to {sizes}: sizes are not negative", current_location())
    return _op("broadcast_to", _tensor(array), sizes)


def _squeeze(a: Any, axis: Any = None) -> Any:
    x = _tensor(a)
    if axis is None:
        return _op("squeeze", x)
    axes = _axes(axis, x.ndim)
    for entry in axes:
        if not equal(x.type.shape[entry], 1):
            raise ShapeError(f"numpy.squeeze of dim {entry}, whose size is {x.type.shape[entry]}", current_location())
    return _op("squeeze", x, axes) if axes else x


def _expand_dims(a: Any, axis: Any) -> Any:
    x = _tensor(a)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    places = [dimension(entry, x.ndim + len(axes)) for entry in axes]
    if len(set(places)) < len(places):
        raise ArgumentError(f"axis {axes} names a dim twice", current_location())
    for place in sorted(places):
        x = _op("unsqueeze", x, place)
    return x


def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return _op("movedim", _tensor(a), source, destination)


def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    return _op("swapaxes", _tensor(a), axis1, axis2)


def _transpose(a: Any, axes: Any = None) -> Any:
    x = _tensor(a)
    return x.T if axes is None else _op("permute", x, tuple(axes))


def _flip(m: Any, axis: Any = None) -> Any:
    x = _tensor(m)
    return _op("flip", x, tuple(range(x.ndim)) if axis is None else _axes(axis, x.ndim))


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    axes = () if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * (len(axes) or 1)
    if axis is not None and len(axes) == 1:
        axes *= len(shifts)
    elif axis is not None and len(shifts) == 1:
        shifts *= len(axes)
    if axis is None and len(shifts) > 1:
        shifts = (sum(shifts),)
    return _op("roll", _tensor(a), shifts, axes) if shifts else _tensor(a)


def _tile(A: Any, reps: Any) -> Any:
    times = tuple(reps) if isinstance(reps, (tuple, list)) else (reps,)
    if any(isinstance(count, (int, np.integer)) and count < 0 for count in times):
        raise ArgumentError(f"numpy.tile: reps is {reps!r}, expected no negative numbers", current_location())
    return _op("tile", _tensor(A), times)


def _pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    """np.pad: NumPy lists the widths of the first dim first, PyTorch those of the last."""
    if mode != "constant" or np.ndim(constant_values):
        raise TraceError(
            "numpy.pad on a traced tensor writes one number around it: other modes are those of smelt.ops.pad, whose "
            f"widths begin with the last dim: {REGISTRY['pad'].signature()}",
            current_location(),
        )
    x = _tensor(array)
    given = np.asarray(pad_width)
    if given.dtype.kind not in "iu" or (given < 0).any():
        raise ArgumentError(
            f"numpy.pad: pad_width is {pad_width!r}, expected integers that are not negative", current_location()
        )
    try:
        widths = np.broadcast_to(given, (x.ndim, 2))[::-1]
    except ValueError:
        raise ArgumentError(f"numpy.pad: pad_width {pad_width!r} for {x.ndim} dims", current_location()) from None
    return _op("pad", x, tuple(widths.ravel().tolist()), value=constant_values)


# Others


def _like(name: str) -> Callable[..., Any]:
    def like(a: Any, dtype: Any = None, *, shape: None = None) -> Any:
        _nothing(name, shape=(shape, None))
        return _op(name, _tensor(a), dtype=dtype)

    return like


def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    x = _tensor(a)
    wanted = x.dtype if dtype is None else user_dtype(dtype)
    if isinstance(fill_value, complex) and not wanted.is_complex:
        raise DTypeError(f"numpy.full_like: {fill_value} is no {wanted}", current_location())
    return _op("full_like", x, fill_value, dtype=dtype)


def _triangle(name: str) -> Callable[..., Any]:
    return lambda m, k=0: _op(name, _tensor(m), k)


def rounded(a: Any, decimals: int = 0, out: None = None) -> Any:
    """np.round."""
    _nothing("round", out=(out, None))
    x = _tensor(a)
    if x.dtype.is_inexact:
        return _op("round", x, decimals=decimals)
    if x.dtype is bool_ and not decimals:
        return apply_ufunc(np.rint, x)
    if x.dtype is bool_ or not _is_int(decimals) or decimals < 0:
        raise DTypeError(f"numpy.round of {x.dtype} to {decimals} decimals", current_location())
    return x


def _real(val: Any) -> Any:
    x = _tensor(val)
    return _op("real", x) if x.dtype.is_complex else x


def _imag(val: Any) -> Any:
    x = _tensor(val)
    return _op("imag", x) if x.dtype.is_complex else _op("zeros_like", x)


def _copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return _op("clone", _tensor(a))


def _size(a: Any, axis: int | None = None) -> Any:
    return open_size(a.type.numel if axis is None else a.type.shape[axis])


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _sum("sum"),
    np.prod: _sum("prod"),
    np.nansum: _sum("nansum"),
    np.mean: _mean,
    np.nanmean: _nanmean,
    np.std: _spread("std"),
    np.var: _spread("var"),
    np.max: _reduction("amax"),
    np.min: _reduction("amin"),
    np.amax: _reduction("amax"),
    np.amin: _reduction("amin"),
    np.any: _reduction("any_true"),
    np.all: _reduction("all_true"),
    np.argmax: _place("argmax"),
    np.argmin: _place("argmin"),
    np.count_nonzero: _count_nonzero,
    np.cumsum: _cumulative("cumsum"),
    np.cumprod: _cumulative("cumprod"),
    np.trace: _trace,
    np.dot: dot,
    np.tensordot: _tensordot,
    np.outer: _outer,
    np.vdot: _vdot,
    np.kron: _kron,
    np.einsum: _einsum,
    np.clip: clip,
    np.where: _where,
    np.select: _select,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.vstack: _vstack,
    np.hstack: _hstack,
    np.array_split: _parts,
    np.split: _split,
    np.take: _take,
    np.repeat: _repeat,
    np.reshape: _reshape,
    np.ravel: _ravel,
    np.broadcast_to: _broadcast_to,
    np.squeeze: _squeeze,
    np.expand_dims: _expand_dims,
    np.moveaxis: _moveaxis,
    np.swapaxes: _swapaxes,
    np.transpose: _transpose,
    np.flip: _flip,
    np.roll: _roll,
    np.tile: _tile,
    np.pad: _pad,
    np.zeros_like: _like("zeros_like"),
    np.ones_like: _like("ones_like"),
    np.empty_like: _like("empty_like"),
    np.full_like: _full_like,
    np.tril: _triangle("tril"),
    np.triu: _triangle("triu"),
    np.round: rounded,
    np.real: _real,
    np.imag: _imag,
    np.copy: _copy,
    np.shape: lambda a: open_shape(a.type.shape),
    np.ndim: lambda a: a.ndim,
    np.size: _size,
}


def call_ufunc(self: Value, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """Run np.exp(x) or array + x as the equivalent op."""
    name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
    is_known = name in REGISTRY and REGISTRY[name].is_own  # a user's op of this name may mean something else
    if method == "__call__" and not options and (is_known or ufunc is np.divmod):
        # From Python numbers alone, operators make weak numbers and ufuncs make NumPy scalars, which are not weak.
        result = apply_ufunc(ufunc, *inputs)
        return tuple(map(_tensor, result)) if isinstance(result, tuple) else _tensor(result)
    shown = f"numpy.{ufunc.__name__}"
    if method != "__call__":
        op = UFUNC_METHODS.get((ufunc.__name__, method))
        hint = f"use smelt.ops.{op}" if op else "there is no op for it"
        raise TraceError(f"{shown}.{method} on a traced tensor: {hint}", current_location())
    if not is_known:
        raise TraceError(
            f"{shown} on a traced tensor: smelt.ops has no op of that name{suggest(name, REGISTRY)}", current_location()
        )
    if "out" in options:
        raise TraceError(
            f"{shown} with out=, or an assignment such as `array += tensor`, writes a traced tensor into an array: its "
            f"values are only known when the compiled code runs. Use the result instead: array = array + tensor, or "
            f"smelt.ops.{name}",
            current_location(),
        )
    raise TraceError(
        f"{shown} on a traced tensor takes no {', '.join(f'{option}=' for option in options)}: "
        f"use smelt.ops.where for where=, and x.to(dtype) for dtype=",
        current_location(),
    )


def call_function(self: Value, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run np.sum(x, axis=0) as the equivalent op, if there is one."""
    shown = f"{function.__module__}.{function.__name__}"
    own = FUNCTIONS.get(function)
    if own is not None:
        try:
            bound = inspect.signature(own).bind(*args, **kwargs)
        except TypeError as error:
            hint = _hint(function.__name__)
            raise TraceError(f"{shown} on a traced tensor: {error}{hint and '; '}{hint}", current_location()) from None
        try:
            given, named = expression(bound.args), {name: expression(item) for name, item in bound.kwargs.items()}
            return own(*given, **named)
        except SmeltError as error:
            error.location, error.op = error.location or current_location(), error.op or function.__name__
            raise
    name = function.__name__
    hint = _hint(name) or f"smelt.ops has no op of that name{suggest(name, REGISTRY)}"
    raise TraceError(f"{shown} on a traced tensor: {hint}", current_location())


def _hint(name: str) -> str:
    op = REGISTRY.get(name)
    return "" if op is None or not op.is_own else f"use smelt.ops.{op.name}, whose arguments are {op.signature()}"
