"""What the families of NumPy's functions share: the table that they join, and the treatment of operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, TraceError
from ..ir.graph import Array, Value, current_location
from ..ir.process import process
from ..ir.types import f64
from ..ops import shapes
from ..ops.define import REGISTRY
from ..promotion import meet

FUNCTIONS: dict[Any, Callable[..., Any]] = process.keep("NumPy's functions", {})


def numpys(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function on traced tensors as those of NumPy."""

    def register(own: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(functions, own))
        return own

    return register


def call(name: str, *args: Any, **named: Any) -> Any:
    return REGISTRY[name](*args, **named)


def tensor(item: Any) -> Any:
    """Return an operand as a tensor, where NumPy makes an array of it: numbers are not weak then."""
    if item.__class__ is Array and item.weak:
        return Array(item.value)
    return item if isinstance(item, Value) else Array(meet(item)[0])


def together(*items: Any) -> list[Any]:
    """Return operands as tensors of NumPy's promoted type."""
    return list(map(Array, meet(*items)))


def arrays_together(*items: Any) -> list[Any]:
    return together(*map(tensor, items))


def inexact(x: Any) -> Any:
    """Return x, integers and bools as f64: the type of their means in NumPy."""
    return x if x.dtype.is_inexact else call("cast", x, f64)


def refuse(function: str, **options: Any) -> None:
    """Refuse options with values other than their no-op defaults."""
    for name, (value, default) in options.items():
        if value is not default and not (isinstance(value, (int, str)) and value == default):
            op = f": use smelt.ops.{function}" if function in REGISTRY and name != "out" else ""
            raise TraceError(f"numpy.{function} on a traced tensor takes no {name}={op}", current_location())


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """Return checked dims for an int or a tuple of them."""
    found = axis if isinstance(axis, tuple) else (axis,)
    for entry in found:
        if not is_int(entry) or not -rank <= entry < rank:
            raise ArgumentError(f"axis {entry!r} of a tensor of {rank} dims", current_location())
    places = tuple([int(entry) % rank for entry in found])
    if len(set(places)) < len(places):
        raise ArgumentError(f"axis {axis} names a dim twice", current_location())
    return places


def dimension(axis: Any, rank: int) -> int:
    """Return a dim counted from the front, from an int or a NumPy integer."""
    return shapes.dimension(int(axis) if isinstance(axis, np.integer) else axis, rank)


def is_int(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)
