"""Pickling of objects that replace a function under its name: jitted functions, and ops that users define.

A pickler looks functions up by name, and finds the object that replaced the function. So each such object has a copy of
its function with the qualified name `f.plain`. By name (pickle; importable modules) the copy leads back to its owner.
By value (cloudpickle, as in joblib and Dask: functions of __main__, notebooks, lambdas) it carries the function's code,
and the other process makes a new owner.
"""

from __future__ import annotations

import sys
import weakref
from types import FunctionType
from typing import Any

from ..ir.process import process

_owners: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = process.keep("ops by function", weakref.WeakKeyDictionary())


def plain_copy(owner: Any, function: Any) -> Any:
    """Return the copy to pickle for a function; other callables are pickled themselves."""
    if not isinstance(function, FunctionType):
        return function
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    copy.__dict__.update(function.__dict__)
    copy.__doc__, copy.__module__ = function.__doc__, function.__module__
    copy.__qualname__ = f"{function.__qualname__}.plain"
    _owners[copy] = weakref.ref(owner)
    return copy


def is_named(function: Any) -> bool:
    """Whether a pickler finds the function itself under its name."""
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in getattr(function, "__qualname__", "<none>").split("."):
        found = getattr(found, part, None)
    return found is function


def owner_of(function: Any) -> Any:
    """Return the object that a copy was made for; None if the copy was unpickled by value."""
    known = _owners.get(function) if isinstance(function, FunctionType) else None
    return None if known is None else known()


def restored_name(function: Any) -> Any:
    """Give a copy that was unpickled by value its function's own name."""
    if isinstance(function, FunctionType):
        function.__qualname__ = function.__qualname__.removesuffix(".plain")
    return function
