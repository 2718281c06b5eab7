"""NumPy's functions on traced tensors: np.exp(x) and np.sum(x, axis=0) are the ops of the same meaning.

What has no such op is an error that says why, and names what to write instead.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .ir.errors import ArgumentError, ShapeError, TraceError, suggest
from .ir.graph import Value, current_location
from .ir.types import bool_, f64
from .ops.define import NUMPY_NAMES, REGISTRY
from .ops.shapes import dimension, divides

UFUNCS = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "power": "pow",
    "absolute": "abs", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "equal": "eq", "not_equal": "ne", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "invert": "bitwise_not", "rint": "round",
    "mod": "remainder",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "conjugate": "conj",
}  # fmt: skip

COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))

# What methods of ufuncs are as ops.
UFUNC_METHODS = {
    ("add", "reduce"): "sum", ("multiply", "reduce"): "prod", ("maximum", "reduce"): "amax",
    ("minimum", "reduce"): "amin", ("logical_and", "reduce"): "all", ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumsum", ("multiply", "accumulate"): "cumprod", ("multiply", "outer"): "outer",
}  # fmt: skip

# NumPy's functions that mean the same as an op, once `axis` is called `dim`.
_SAME_NAME = (
    "sum", "prod", "argmax", "argmin", "stack", "einsum", "reshape", "tril", "triu", "outer", "broadcast_to", "squeeze",
    "swapaxes", "zeros_like", "ones_like", "full_like", "empty_like", "tile", "real", "imag", "ravel", "vdot", "kron",
    "hstack", "vstack", "trace", "nansum", "nanmean", "count_nonzero",
)  # fmt: skip
NUMPY_FUNCTIONS = {name: name for name in _SAME_NAME} | {
    "concatenate": "cat", "max": "amax", "min": "amin", "amax": "amax", "amin": "amin", "any": "any_true",
    "all": "all_true", "expand_dims": "unsqueeze", "moveaxis": "movedim",
}  # fmt: skip


# Names of arguments that only NumPy has: a method that is called with them is NumPy's function.
ONLY_NUMPYS = frozenset(("axis", "axes", "keepdims", "ddof"))
# Methods that NumPy calls without arguments and PyTorch does not.
NEED_NOTHING = frozenset(("copy", "cumsum", "cumprod"))


def _inexact(x: Any) -> Any:
    """Means of integers and bools are f64 in NumPy."""
    return x if not isinstance(x, Value) or x.dtype.is_inexact else REGISTRY["cast"](x.in_full(), f64)


def _mean(x: Value, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return REGISTRY["mean"](x if dtype is not None else _inexact(x), axis, keepdims, dtype=dtype)


def _sum(name: str) -> Callable[..., Any]:
    """In NumPy the type stands before keepdims."""

    def add(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
        return REGISTRY[name](a, axis, keepdims, dtype=dtype)

    return add


def _reduction(name: str) -> Callable[..., Any]:
    def reduction(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return REGISTRY[name](a, axis, keepdims)

    return reduction


def _like(name: str) -> Callable[..., Any]:
    return lambda a, dtype=None: REGISTRY[name](a, dtype=dtype)


def _cumulative(name: str) -> Callable[..., Any]:
    """Without an axis along all elements."""

    def cumulative(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
        along = REGISTRY["ravel"](x) if axis is None else x
        return REGISTRY[name](along, 0 if axis is None else axis, dtype=dtype)

    return cumulative


def dot(a: Any, b: Any) -> Any:
    """np.dot: a product of numbers, or a sum over the last dim of a and the last but one of b."""
    ranks = np.ndim(a), np.ndim(b)
    if 0 in ranks:
        return REGISTRY["mul"](a, b)
    if ranks[1] <= 2:
        return REGISTRY["matmul"](a, b)
    return REGISTRY["tensordot"](a, b, (ranks[0] - 1,), (ranks[1] - 2,))


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """np.clip: a bound beyond the numbers of an integer type is none."""
    low, high = a_min if min is None else min, a_max if max is None else max
    if isinstance(a, Value) and a.dtype.is_integer:
        smallest, largest = a.dtype.bounds
        low = None if isinstance(low, (int, np.integer)) and low < smallest else low
        high = None if isinstance(high, (int, np.integer)) and high > largest else high
    return a if low is None and high is None else REGISTRY["clamp"](a, low, high)


def _where(condition: Any, *choices: Any) -> Any:
    if len(choices) != 2:
        raise TraceError(
            "numpy.where of a condition alone on a traced tensor: data decides how many places there are. Use "
            "numpy.where(condition, a, b), or a sum of it",
            current_location(),
        )
    chosen = condition if not isinstance(condition, Value) or condition.dtype is bool_ else condition != 0
    return REGISTRY["where"](chosen, *choices)


def _flip(m: Value, axis: Any = None) -> Any:
    return REGISTRY["flip"](m, tuple(range(m.ndim)) if axis is None else axis)


def _roll(a: Value, shift: Any, axis: Any = None) -> Any:
    axes = () if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * (len(axes) or 1)
    return REGISTRY["roll"](a, tuple(shifts), tuple(axes) * (len(shifts) if len(axes) == 1 else 1))


def _take(a: Any, indices: Any, axis: int | None = None) -> Any:
    if axis is None:
        return REGISTRY["take"](a, _integers(indices))
    return REGISTRY["index"](a, (*(None for _ in range(dimension(axis, np.ndim(a)))), _integers(indices)))


def _integers(indices: Any) -> Any:
    """Indices as what an op takes: an empty list has integers, too."""
    if isinstance(indices, Value):
        return indices
    array = np.asarray(indices)
    return array if array.size else array.astype(np.int64)


def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """One number, or one for each element; these decide the shape and have to be known."""
    if isinstance(repeats, (int, np.integer)):
        return REGISTRY["repeat_interleave"](a, int(repeats), axis)
    source = REGISTRY["ravel"](a) if axis is None else a
    along = 0 if axis is None else axis
    return _take(source, np.repeat(np.arange(len(np.asarray(repeats))), repeats), along)


def _parts(a: Value, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.array_split."""
    sections = indices_or_sections
    wanted = int(sections) if isinstance(sections, (int, np.integer)) else tuple(np.asarray(sections).tolist())
    return list(REGISTRY["tensor_split"](a, wanted, axis))


def _split(a: Value, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    sections = indices_or_sections
    if isinstance(sections, (int, np.integer)) and not divides(a.shape[axis], int(sections)):
        raise ShapeError(f"numpy.split: {a.shape[axis]} is no multiple of {sections}", current_location())
    return _parts(a, sections, axis)


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise ArgumentError(
            f"numpy.select: {len(condlist)} conditions and {len(choicelist)} choices", current_location()
        )
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        result = REGISTRY["where"](condition, choice, result)
    return result


def _pad(array: Value, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    """NumPy names the widths of the first dim first, PyTorch those of the last."""
    if mode != "constant" or np.ndim(constant_values):
        raise TraceError(
            "numpy.pad on a traced tensor writes one number around it: other modes are those of smelt.ops.pad, whose "
            f"widths begin with the last dim: {REGISTRY['pad'].signature()}",
            current_location(),
        )
    widths = np.broadcast_to(pad_width, (array.ndim, 2))[::-1]
    return REGISTRY["pad"](array, tuple(widths.ravel().tolist()), value=constant_values)


def _spread(name: str) -> Callable[..., Any]:
    """std and var: NumPy divides by the count less `ddof`, which is 0 unless told otherwise; PyTorch by one less."""

    def spread(x: Value, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
        return REGISTRY[name](_inexact(x), axis, correction=ddof, keepdim=keepdims)

    return spread


def _transpose(x: Value, axes: Any = None) -> Any:
    return x.T if axes is None else REGISTRY["permute"](x, axes)


def _size(x: Value, axis: int | None = None) -> Any:
    return x.type.numel if axis is None else x.shape[axis]


# NumPy's functions that need more than other names.
OTHERS: dict[Any, Callable[..., Any]] = {
    np.mean: _mean,
    np.sum: _sum("sum"),
    np.prod: _sum("prod"),
    np.nansum: _sum("nansum"),
    np.max: _reduction("amax"),
    np.min: _reduction("amin"),
    np.argmax: _reduction("argmax"),
    np.argmin: _reduction("argmin"),
    np.any: _reduction("any_true"),
    np.all: _reduction("all_true"),
    np.zeros_like: _like("zeros_like"),
    np.ones_like: _like("ones_like"),
    np.empty_like: _like("empty_like"),
    np.full_like: lambda a, fill_value, dtype=None: REGISTRY["full_like"](a, fill_value, dtype=dtype),
    np.tril: lambda m, k=0: REGISTRY["tril"](m, k),
    np.triu: lambda m, k=0: REGISTRY["triu"](m, k),
    np.tile: lambda A, reps: REGISTRY["tile"](A, reps),
    np.outer: lambda a, b: REGISTRY["outer"](REGISTRY["ravel"](a), REGISTRY["ravel"](b)),
    np.cumsum: _cumulative("cumsum"),
    np.cumprod: _cumulative("cumprod"),
    np.dot: dot,
    np.tensordot: lambda a, b, axes=2: REGISTRY["tensordot"](a, b, axes),
    np.clip: clip,
    np.where: _where,
    np.flip: _flip,
    np.roll: _roll,
    np.take: _take,
    np.repeat: _repeat,
    np.array_split: _parts,
    np.split: _split,
    np.select: _select,
    np.pad: _pad,
    np.copy: lambda a: REGISTRY["clone"](a),
    np.round: lambda a, decimals=0: REGISTRY["round"](a, decimals=decimals),
    np.std: _spread("std"),
    np.var: _spread("var"),
    np.transpose: _transpose,
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: _size,
}


def call_ufunc(self: Value, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """np.exp(x) and array + x: the op of the same meaning."""
    name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
    if method == "__call__" and not options and name in REGISTRY:
        if name in COMPARISONS and any(isinstance(item, (int, np.integer)) for item in inputs):
            return getattr(operator, name)(*inputs)
        return REGISTRY[name](*inputs)
    shown = f"numpy.{ufunc.__name__}"
    if method != "__call__":
        op = UFUNC_METHODS.get((ufunc.__name__, method))
        hint = f"use smelt.ops.{op}" if op else "there is no op for it"
        raise TraceError(f"{shown}.{method} on a traced tensor: {hint}", current_location())
    if name not in REGISTRY:
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
    """np.sum(x, axis=0): the op of the same meaning, where there is one."""
    shown = f"{function.__module__}.{function.__name__}"
    if function in OTHERS:
        try:
            inspect.signature(OTHERS[function]).bind(*args, **kwargs)
        except TypeError as error:
            if function.__name__ not in NUMPY_FUNCTIONS:
                raise TraceError(f"{shown} on a traced tensor: {error}", current_location()) from None
        else:
            return OTHERS[function](*args, **kwargs)
    name = NUMPY_FUNCTIONS.get(function.__name__)
    if name is not None and not set(kwargs) - {"axis", "keepdims", *REGISTRY[name].by_name}:
        renamed = {NUMPY_NAMES.get(key, key): value for key, value in kwargs.items()}
        return REGISTRY[name](*args, **renamed)
    op = REGISTRY.get(name or function.__name__)
    if op is None:
        hint = f"smelt.ops has no op of that name{suggest(function.__name__, REGISTRY)}"
    else:
        hint = f"use smelt.ops.{op.name}, whose arguments are {op.signature()}"
    raise TraceError(f"{shown} on a traced tensor: {hint}", current_location())
