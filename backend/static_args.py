"""Compare static arguments: two are the same if a program cannot distinguish them.

Python's equality is not enough: True == 1 == 1.0, 0.0 == -0.0, and a named tuple equals any tuple of its members.
"""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import BuiltinFunctionType
from typing import Any

import numpy as np

_PLAIN = (str, int, bool, type(None))  # equal values of one of these types are the same to a program


def static_key(value: Any) -> Any:
    """Make a hashable key of a value, with all types and signs in it."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, float):
        return kind, float.hex(value)
    if isinstance(value, complex):
        return kind, float.hex(value.real), float.hex(value.imag)
    if isinstance(value, np.generic):
        return kind, repr(value)
    parts: Any = ()
    if isinstance(value, tuple):
        parts = tuple(map(static_key, value))
        if kind.__eq__ is tuple.__eq__:
            return kind, parts
    elif isinstance(value, frozenset):
        parts = frozenset(map(static_key, value))
    elif is_dataclass(kind):
        parts = tuple([static_key(getattr(value, name)) for name in _compared(kind)])
    elif kind in (list, dict, set, np.ndarray):  # inside of a dataclass with a hash of its own
        return kind, _contents(value)
    # An object with its own __eq__ is compared by that, too; it may be hashable where its parts are not.
    return kind, _snapshot(value), parts if _is_hashable(parts) else ()


def _contents(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, repr(value.tolist()) if value.dtype.hasobject else value.tobytes()
    if isinstance(value, dict):
        return tuple((static_key(name), static_key(item)) for name, item in value.items())
    return frozenset(map(static_key, value)) if isinstance(value, set) else tuple(map(static_key, value))


def _snapshot(value: Any) -> Any:
    """Copy a value if the copy compares equal: it then stays unchanged under mutation. Else return the value itself."""
    if type(value).__eq__ is not object.__eq__:
        with suppress(Exception):
            found = copy(value)
            if found == value and hash(found) == hash(value):
                return found
    return value


@lru_cache
def _compared(kind: type) -> tuple[str, ...]:
    """List the fields of a dataclass that take part in comparison."""
    return tuple(field.name for field in fields(kind) if field.compare)


def is_known_by_value(value: Any) -> bool:
    """Whether values of the same type that are equal have the same key: native code can compare these."""
    return type(value) in (int, str) or (type(value) is float and value != 0)


def is_fixed(value: Any) -> bool:
    """Whether a value's key never changes: native code may compare it by its address."""
    kind = type(value)
    if kind in (tuple, frozenset):
        return all(map(is_fixed, value))
    if isinstance(value, Enum):
        return kind.__eq__ in (object.__eq__, int.__eq__, str.__eq__)
    if kind in (*_PLAIN, float, complex, bytes, BuiltinFunctionType) or isinstance(value, np.dtype):
        return True
    if isinstance(value, np.generic):
        return not isinstance(value, np.void)
    return kind.__eq__ is object.__eq__ and kind.__hash__ is object.__hash__ and not is_dataclass(kind)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
