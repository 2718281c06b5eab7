"""NumPy's ufuncs on traced tensors, and their methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import TraceError, suggest
from ..ir.graph import Value, current_location
from ..ops.define import REGISTRY
from ..promotion import UFUNCS, apply_ufunc
from .common import tensor

# The ops of ufunc methods.
UFUNC_METHODS = {
    ("add", "reduce"): "sum", ("multiply", "reduce"): "prod", ("maximum", "reduce"): "amax",
    ("minimum", "reduce"): "amin", ("logical_and", "reduce"): "all", ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumsum", ("multiply", "accumulate"): "cumprod", ("multiply", "outer"): "outer",
}  # fmt: skip


def call_ufunc(self: Value, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """Run np.exp(x) or array + x as the equivalent op."""
    name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
    is_known = name in REGISTRY and REGISTRY[name].is_own  # a user's op of this name may mean something else
    if method == "__call__" and not options and (is_known or ufunc is np.divmod):
        # From Python numbers alone, operators make weak numbers and ufuncs make NumPy scalars, which are not weak.
        result = apply_ufunc(ufunc, *inputs)
        return tuple(map(tensor, result)) if isinstance(result, tuple) else tensor(result)
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
