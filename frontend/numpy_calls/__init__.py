"""NumPy's functions on traced tensors: np.sum(x, axis=0) is the op of the same meaning, with NumPy's types.

Each function has the supported parameters of NumPy's function, in NumPy's order. Other parameters, and functions that
are not here, are errors that name an alternative. A family of functions is a module, loaded when the first function is
called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..ir.errors import SmeltError, TraceError, suggest
from ..ir.graph import Value, current_location
from ..ir.open_size import expression
from ..ops.define import REGISTRY
from .common import FUNCTIONS
from .ufuncs import call_ufunc

__all__ = ["FAMILIES", "NEED_NOTHING", "ONLY_NUMPYS", "as_method", "call_function", "call_ufunc", "functions"]

FAMILIES = (
    "arrange", "choices", "creation", "data_sizes", "elements", "functional", "joins", "ordering", "piecewise",
    "polynomials", "products", "rearrange", "reductions", "statistics",
)  # fmt: skip

# Argument names that only NumPy has: a method called with one of them is NumPy's function.
ONLY_NUMPYS = frozenset(("axis", "axes", "keepdims", "ddof"))
# Methods that need no arguments in NumPy but do in PyTorch.
NEED_NOTHING = frozenset(("copy", "cumsum", "cumprod"))


def functions() -> dict[Any, Callable[..., Any]]:
    """Return the functions on traced tensors by those of NumPy."""
    for family in FAMILIES:
        import_module(f"{__name__}.{family}")
    return FUNCTIONS


def as_method(function: Any) -> Callable[..., Any]:
    """Return the method of traced tensors that is a function of NumPy."""

    def method(self: Value, *args: Any, **named: Any) -> Any:
        return functions()[function](self, *args, **named)

    return method


def call_function(self: Value, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run np.sum(x, axis=0) as the equivalent op, if there is one."""
    shown = f"{function.__module__}.{function.__name__}"
    own = functions().get(function)
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
