"""Arguments of ops that are not tensors: their normal form, and the annotations that say which of them an op takes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError
from ..ir.graph import Value
from ..ir.symbolic import Expr
from .shapes import are_ints

_NOTHING = type(None)
# Classes of attributes by the words of annotations. A word that is not listed accepts any attribute.
_CLASSES: dict[str, tuple[type, ...]] = {
    "None": (_NOTHING,),
    "bool": (bool,),
    "int": (int, Expr),
    "Dim": (int, Expr),
    "float": (int, float, Expr),
    "Scalar": (bool, int, float, complex, Expr),
    "str": (str,),
}
_ALIASES = {
    "Size": "Sequence[Dim]",
    "Dims": "int | Sequence[int] | None",
    "Lengths": "int | Sequence[int]",
    "OutputSize": "int | Sequence[Dim | None] | None",
    "Reduction": "int | str",
}


class Accepted:
    """The classes of attributes that an annotation accepts."""

    def __init__(self, annotation: str):
        self.text = _ALIASES.get(annotation, annotation)
        self.classes: set[type] = set()
        self.items: list[Accepted] = []  # accepted items of sequences
        self.is_open = False
        for word in _alternatives(self.text):
            if word.startswith("Sequence["):
                self.items.append(accepted(word[len("Sequence[") : -1]))
            elif word in _ALIASES:
                other = accepted(word)
                self.classes |= other.classes
                self.items += other.items
            elif word in _CLASSES:
                self.classes.update(_CLASSES[word])
            else:
                self.is_open = True

    def takes(self, value: Any) -> bool:
        if self.is_open or value.__class__ in self.classes:
            return True
        if isinstance(value, tuple):
            return any(all(map(items.takes, value)) for items in self.items)
        return not isinstance(value, bool) and any(isinstance(value, item) for item in self.classes)


def _alternatives(annotation: str) -> list[str]:
    """Split "int | Sequence[Dim | None]" at the outer bars."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(annotation):
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and depth == 0:
            found.append(annotation[start:at].strip())
            start = at + 1
    return [*found, annotation[start:].strip()]


@lru_cache(maxsize=1024)
def accepted(annotation: str) -> Accepted:
    return Accepted(annotation)


def attribute(value: Any, annotation: str, what: str) -> Any:
    """Return an attribute in normal form (plain Python, hashable, printable); raise if its annotation does not accept
    it."""
    found = _normal(value, what)
    allowed = accepted(annotation)
    if not allowed.takes(found):
        raise ArgumentError(f"{what} is {found!r}, expected {allowed.text}")
    return found


def _normal(value: Any, what: str) -> Any:
    if value.__class__ is tuple and are_ints(value):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(_normal(item, what) for item in value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    if isinstance(value, Value):
        raise ArgumentError(f"{what} must be known while tracing, got the traced tensor {value!r}")
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(f"{what}: cannot use a {type(value).__name__} here") from None
    return value
