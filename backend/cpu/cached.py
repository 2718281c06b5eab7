"""Keys of native code, and object code by way of the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..cache import Key, current
from ..sources import fingerprint
from .engine import LEVEL, engine
from .target import host


def native_key(title: str, text: str, options: dict[str, Any]) -> Key | None:
    """The key of a program's code for this machine; None if smelt's own files changed since they were loaded."""
    smelt = fingerprint()
    if smelt is None:
        return None
    target = host()
    fields = {
        "options": options,
        "isa": [target.triple, *target.instructions],
        "llvm": {**versions(), "level": LEVEL},
        "smelt": smelt,
    }
    return Key(title, hashlib.sha256(text.encode()).hexdigest(), fields)


@lru_cache
def versions() -> dict[str, str]:
    import llvmlite
    import llvmlite.binding

    return {"llvmlite": llvmlite.__version__, "llvm": ".".join(map(str, llvmlite.binding.llvm_version_info))}


def object_code(title: str, text: str) -> bytes:
    """The object code of LLVM text that is the same in every process: from the cache, or compiled and put there."""
    return _kept(title, text, {}, lambda: engine().object_code(text))


def plain_code(title: str, text: str) -> bytes:
    """The same for code that was written to be compiled as it is."""
    return _kept(title, text, {"plain": True}, lambda: engine().plain_code(text))


def _kept(title: str, text: str, options: dict[str, Any], compile: Callable[[], bytes]) -> bytes:
    cache = current()
    key = native_key(title, text, options) if cache.is_on else None
    if key is None:
        return compile()
    found, _ = cache.find(key, lambda about, code: code)
    if found is None:
        found = compile()
        cache.store(key, {}, found)
    return found
