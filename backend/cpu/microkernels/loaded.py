"""The libraries of routines of matrix products that this process has loaded."""

from __future__ import annotations

import threading

from ....ir.process import process
from ...process.forks import no_forks
from ..image.cached import Kept
from ..image.image import Image

# By the names of libraries and the bits of vectors.
images: dict[tuple[str, int], Image] = process.keep("libraries that are loaded", {})
_guard = process.keep("lock of libraries", threading.Lock())


def is_ready(name: str, bits: int) -> bool:
    return (name, bits) in images


def find(name: str, bits: int) -> Kept | None:
    """Make a library ready if the cache has it; else where to keep it."""
    if is_ready(name, bits):
        return None
    kept = Kept(f"matrix products of {name}", {"vector_bits": bits})
    code = kept.find()
    if code is None:
        return kept
    add(name, bits, code)
    return None


def add(name: str, bits: int, code: bytes) -> None:
    with no_forks(), _guard:
        if (name, bits) not in images:
            images[name, bits] = Image(code)
