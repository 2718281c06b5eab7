"""Tables of the routines of matrix products, for native code. libraries.py, which takes LLVM, is loaded only to compile
what the cache does not have."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from ..abi import PRODUCT_TYPES, ROUTINES
from . import loaded


@lru_cache
def tables(names: frozenset[str], bits: int) -> ctypes.Array:
    """Addresses of the tables of element types, with the routines of the libraries that a graph needs."""
    missing = [name for name in names if loaded.find(name, bits) is not None]
    if missing:
        from .libraries import finish

        finish(missing, bits)
    types, size = len(PRODUCT_TYPES), len(ROUTINES)
    block = (ctypes.c_void_p * (types + types * size))()  # the tables stand behind their addresses
    for number, dtype in enumerate(PRODUCT_TYPES):
        images = [loaded.images[name, bits] for name in names if name.partition(" ")[0] == dtype]
        found = {symbol: image[symbol] for image in images for symbol in image.symbols}
        first = types + number * size
        block[number] = ctypes.addressof(block) + first * ctypes.sizeof(ctypes.c_void_p)
        block[first : first + size] = [found.get(f"{routine}.{dtype}") for routine in ROUTINES]
    return block
