"""Make the keys of native code in the cache, and keep object code that every process shares."""

from __future__ import annotations

from typing import Any

import llvmlite

from ...store.cache import current, make_key
from ..host import LEVEL, host

NAME = "cpu"  # of the target


def environment() -> dict[str, Any]:
    """Return what decides native code beside the program and the options."""
    target = host()
    return {
        "isa": [target.triple, *target.instructions],
        "llvm": {"llvmlite": llvmlite.__version__, "llvm": target.llvm, "level": LEVEL},
    }


class Kept:
    """An entry of the cache for object code that is the same in every process.

    The title stands in for the text, which depends on smelt's sources alone; these are a part of the key.
    """

    def __init__(self, title: str, options: dict[str, Any]):
        self.key = make_key(NAME, title, title, options, environment()) if current().is_on else None

    def find(self) -> bytes | None:
        return None if self.key is None else current().find(self.key, lambda about, code: code)[0]

    def store(self, code: bytes) -> None:
        if self.key is not None:
            current().store(self.key, {}, code)
