"""The routines of matrix products in this process: libraries.py makes them when they are not in the cache."""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache

from ...process.forks import no_forks
from ..abi import PRODUCT_TYPES, ROUTINES
from ..image.cached import Kept
from ..image.image import Image

_loaded: dict[tuple[str, int], Image] = {}  # by the names of libraries and the bits of vectors
_guard = threading.Lock()


def is_ready(name: str, bits: int) -> bool:
    return (name, bits) in _loaded


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
        if (name, bits) not in _loaded:
            _loaded[name, bits] = Image(code)


@lru_cache
def tables(names: frozenset[str], bits: int) -> ctypes.Array:
    """Addresses of the tables of element types, with the routines of the libraries that a graph needs."""
    missing = [name for name in names if find(name, bits) is not None]
    if missing:
        from .libraries import finish

        finish(missing, bits)
    types, size = len(PRODUCT_TYPES), len(ROUTINES)
    block = (ctypes.c_void_p * (types + types * size))()  # the tables stand behind their addresses
    for number, dtype in enumerate(PRODUCT_TYPES):
        images = [_loaded[name, bits] for name in names if name.partition(" ")[0] == dtype]
        found = {symbol: image[symbol] for image in images for symbol in image.symbols}
        first = types + number * size
        block[number] = ctypes.addressof(block) + first * ctypes.sizeof(ctypes.c_void_p)
        block[first : first + size] = [found.get(f"{routine}.{dtype}") for routine in ROUTINES]
    return block
