"""NumPy's ufuncs on traced tensors, and their methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import TraceError, suggest
from ..ir.graph import Value, current_location
from ..ops.define import REGISTRY
from ..promotion import UFUNCS, apply_ufunc
from .common import tensor
from .composed import composed

# NumPy's functions that are methods of ufuncs, and their ops where there is no such function.
REDUCE = {
    "add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min, "logical_and": np.all,
    "logical_or": np.any,
}  # fmt: skip
ACCUMULATE = {"add": np.cumsum, "multiply": np.cumprod}
ACCUMULATE_OPS = {"maximum": "cummax", "minimum": "cummin", "logaddexp": "logcumsumexp"}


def call_ufunc(self: Value, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """Run np.exp(x) or array + x as the equivalent op."""
    name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
    is_known = name in REGISTRY and REGISTRY[name].is_own  # a user's op of this name may mean something else
    if method == "__call__" and not options and (is_known or ufunc is np.divmod):
        # From Python numbers alone, operators make weak numbers and ufuncs make NumPy scalars, which are not weak.
        result = apply_ufunc(ufunc, *inputs)
        return tuple(map(tensor, result)) if isinstance(result, tuple) else tensor(result)
    own = composed(ufunc)
    if method == "__call__" and not options and own is not None:
        return own(*inputs)
    shown = f"numpy.{ufunc.__name__}"
    if method != "__call__":
        return _method(ufunc, method, inputs, options)
    if not is_known and own is None:
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


def _method(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Run np.add.reduce(x) and the like: NumPy's function of the same meaning, along the first dim unless told."""
    if method == "outer" and not options and len(inputs) == 2:
        left, right = map(tensor, inputs)
        return ufunc(REGISTRY["reshape"](left, (*left.type.shape, *(1,) * right.ndim)), right)
    table: dict[str, Any] = {"reduce": REDUCE, "accumulate": ACCUMULATE}.get(method, {})
    if ufunc.__name__ in table and len(inputs) == 1:
        return table[ufunc.__name__](*inputs, **{"axis": 0, **options})
    if len(inputs) == 1 and options.keys() <= {"axis"}:
        x, axis = tensor(*inputs), options.get("axis", 0)
        if ufunc is np.logaddexp and not x.dtype.is_inexact:
            x = REGISTRY["cast"](x, ufunc.resolve_dtypes((x.dtype.numpy, x.dtype.numpy, None))[-1])
        if method == "accumulate" and ufunc.__name__ in ACCUMULATE_OPS:
            found = REGISTRY[ACCUMULATE_OPS[ufunc.__name__]](x, axis)
            return found[0] if isinstance(found, tuple) else found
        if method == "reduce" and ufunc.__name__ == "logaddexp":
            return REGISTRY["logsumexp"](x, tuple(range(x.ndim)) if axis is None else axis)
    raise TraceError(
        f"numpy.{ufunc.__name__}.{method} on a traced tensor with these arguments: there is no op for it",
        current_location(),
    )
