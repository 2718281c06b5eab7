"""Make the tables of GEMM routines for native code. libraries.py, which loads LLVM, is imported only on a miss."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from ..abi import PRODUCT_TYPES, ROUTINES
from . import loaded


@lru_cache
def tables(names: frozenset[str], bits: int) -> ctypes.Array:
    """Make the tables, one for each element type, of the routines that a graph needs; return their addresses."""
    missing = [name for name in names if loaded.find(name, bits) is not None]
    if missing:
        from .libraries import finish

        finish(missing, bits)
    types, size = len(PRODUCT_TYPES), len(ROUTINES)
    block = (ctypes.c_void_p * (types + types * size))()  # addresses first, then the tables
    for number, dtype in enumerate(PRODUCT_TYPES):
        images = [loaded.images[name, bits] for name in names if name.partition(" ")[0] == dtype]
        found = {symbol: image[symbol] for image in images for symbol in image.symbols}
        first = types + number * size
        block[number] = ctypes.addressof(block) + first * ctypes.sizeof(ctypes.c_void_p)
        block[first : first + size] = [found.get(f"{routine}.{dtype}") for routine in ROUTINES]
    return block
