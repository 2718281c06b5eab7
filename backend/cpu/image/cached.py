"""Make the keys of native code in the cache, and keep object code that every process shares."""

from __future__ import annotations

import hashlib
from typing import Any

import llvmlite

from ...store.cache import Key, current
from ...store.sources import fingerprint
from ..target import LEVEL, host


def native_key(title: str, text: str, options: dict[str, Any]) -> Key | None:
    """Make the key of a program's code for this machine; None if smelt's files changed since they were imported."""
    smelt = fingerprint(current().directory)
    if smelt is None:
        return None
    target = host()
    fields = {
        "options": options,
        "isa": [target.triple, *target.instructions],
        "llvm": {"llvmlite": llvmlite.__version__, "llvm": target.llvm, "level": LEVEL},
        "smelt": smelt,
    }
    return Key(title, hashlib.sha256(text.encode()).hexdigest(), fields)


class Kept:
    """An entry of the cache for object code that is the same in every process.

    The title stands in for the text, which depends on smelt's sources alone; these are a part of the key.
    """

    def __init__(self, title: str, options: dict[str, Any]):
        self.key = native_key(title, title, options) if current().is_on else None

    def find(self) -> bytes | None:
        return None if self.key is None else current().find(self.key, lambda about, code: code)[0]

    def store(self, code: bytes) -> None:
        if self.key is not None:
            current().store(self.key, {}, code)
