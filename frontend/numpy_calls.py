"""NumPy's functions on traced tensors: np.exp(x) and np.sum(x, axis=0) are the ops of the same meaning.

What has no such op is an error that says why, and names what to write instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .ir.errors import TraceError, suggest
from .ir.graph import Value, current_location
from .ops.define import NUMPY_NAMES, REGISTRY

UFUNCS = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "power": "pow",
    "float_power": "pow", "absolute": "abs", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "equal": "eq", "not_equal": "ne", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "invert": "bitwise_not", "rint": "round",
    "mod": "remainder",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "conjugate": "conj",
}  # fmt: skip

# What methods of ufuncs are as ops.
UFUNC_METHODS = {
    ("add", "reduce"): "sum", ("multiply", "reduce"): "prod", ("maximum", "reduce"): "amax",
    ("minimum", "reduce"): "amin", ("logical_and", "reduce"): "all", ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumsum", ("multiply", "accumulate"): "cumprod", ("multiply", "outer"): "outer",
}  # fmt: skip

# NumPy's functions that mean the same as an op, once `axis` is called `dim`.
_SAME_NAME = (
    "sum", "prod", "mean", "any", "all", "argmax", "argmin", "where", "stack", "einsum", "cumsum", "cumprod", "reshape",
    "flip", "roll", "tril", "triu", "tensordot", "outer", "dot", "broadcast_to", "squeeze", "swapaxes", "zeros_like",
    "ones_like", "full_like", "tile", "real", "imag",
)  # fmt: skip
NUMPY_FUNCTIONS = {name: name for name in _SAME_NAME} | {
    "concatenate": "cat", "max": "amax", "min": "amin", "amax": "amax", "amin": "amin", "clip": "clamp",
    "expand_dims": "unsqueeze", "moveaxis": "movedim",
}  # fmt: skip


def _spread(name: str) -> Callable[..., Any]:
    """std and var: NumPy divides by the count less `ddof`, which is 0 unless told otherwise; PyTorch by one less."""

    def spread(x: Value, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
        return REGISTRY[name](x, axis, correction=ddof, keepdim=keepdims)

    return spread


def _transpose(x: Value, axes: Any = None) -> Any:
    return x.T if axes is None else REGISTRY["permute"](x, axes)


def _size(x: Value, axis: int | None = None) -> Any:
    return x.type.numel if axis is None else x.shape[axis]


# NumPy's functions that need more than other names.
OTHERS: dict[Any, Callable[..., Any]] = {
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
            raise TraceError(f"{shown} on a traced tensor: {error}", current_location()) from None
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
