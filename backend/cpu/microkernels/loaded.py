"""Load the libraries of GEMM routines; each process loads one at most once."""

from __future__ import annotations

import threading

from ....ir.process import process
from ...process.forks import no_forks
from ..image.cached import Kept
from ..image.image import Image

# By name of the library and bits of the vectors.
images: dict[tuple[str, int], Image] = process.keep("libraries that are loaded", {})
_guard = process.keep("lock of libraries", threading.Lock())


def is_ready(name: str, bits: int) -> bool:
    return (name, bits) in images


def find(name: str, bits: int) -> Kept | None:
    """Load a library if the cache has it; otherwise return the cache entry to store it in."""
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
