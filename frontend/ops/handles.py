"""Conversion between values and handles, their form in bodies and rules of the user's ops."""

from __future__ import annotations

from typing import Any

from ..ir.graph import Handle, Value
from ..ir.open_size import open_size
from ..ir.symbolic import Expr


def as_handles(result: Any) -> Any:
    """Return the results of an op as handles."""
    if type(result) is Value:
        return Handle(result)
    return type(result)(map(as_handles, result)) if isinstance(result, (tuple, list)) else result


def as_users(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments for a body or rule of the user's: open sizes become `OpenSize`s, values with them handles."""
    if not any(map(_has_open_size, arguments.values())):
        return arguments
    return {name: _open_argument(value) for name, value in arguments.items()}


def _open_argument(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_open_argument, value))
    return as_handles(open_size(value))


def _has_open_size(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_open_size, value))
    return isinstance(value, Expr) or (isinstance(value, Value) and any(isinstance(dim, Expr) for dim in value.shape))
