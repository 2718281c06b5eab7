"""Calls of the user's functions from the compiler: bodies and rules of the user's ops hold handles and open sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..ir.graph import Handle, Value, plain
from ..ir.open_size import expression, open_size
from ..ir.symbolic import Expr


def call_users(function: Callable[..., Any], arguments: dict[str, Any], beside: Iterable[Any] = ()) -> Any:
    """Call a body or rule of the user's; return its result in the compiler's values and sizes.

    Where a size of an argument is open, or of the values `beside`, values become handles and expressions `OpenSize`s:
    Python asks them, and a question is never answered by the structure of an expression.
    """
    if not any(map(_has_open_size, (*arguments.values(), *beside))):
        return function(**arguments)
    return _plain(function(**{name: _seen(value) for name, value in arguments.items()}))


def as_handles(result: Any) -> Any:
    """Return the results of an op as handles."""
    if type(result) is Value:
        return Handle(result)
    return type(result)(map(as_handles, result)) if isinstance(result, (tuple, list)) else result


def _seen(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_seen, value))
    seen = getattr(value, "seen", None) if not isinstance(value, Value) else None
    return as_handles(open_size(value)) if seen is None else seen()


def _plain(result: Any) -> Any:
    if isinstance(result, dict):
        return {name: _plain(item) for name, item in result.items()}
    if type(result) in (tuple, list):
        return type(result)(map(_plain, result))
    return expression(plain(result))


def _has_open_size(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_open_size, value))
    return isinstance(value, Expr) or (isinstance(value, Value) and any(isinstance(dim, Expr) for dim in value.shape))
