"""What makes two static arguments the same: nothing in them that a program could tell apart.

Python's own equality does not do: True == 1 == 1.0, 0.0 == -0.0, and a named tuple equals any tuple of its members.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_PLAIN = (str, int, bool, type(None))  # to a program, what is equal among those of one type is the same


def static_key(value: Any) -> Any:
    """A hashable value, with all types and signs in it."""
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
        parts = tuple(static_key(getattr(value, field.name)) for field in fields(value) if field.compare)
    # What says itself when it is equal is asked, too; it may hash what its parts do not.
    return kind, value, parts if _is_hashable(parts) else ()


def is_known_by_value(value: Any) -> bool:
    """Whether what is of the same type, and equal, has the same key: native code can see that much."""
    return type(value) in (int, str) or (type(value) is float and value != 0)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
