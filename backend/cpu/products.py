"""The routines of matrix products in this process: gemm.py writes them when they are not in the cache."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from ...kernels.gemm import BYTES
from .cached import kept_code
from .engine import engine


@lru_cache
def library(dtype: str, bits: int) -> tuple[int, Any]:
    """The address of the table of routines, and what keeps it alive."""

    def compile() -> bytes:
        from .gemm import library_text

        return engine().object_code(library_text(dtype, bits))

    code = kept_code(f"matrix products of {dtype}", {"vector_bits": bits}, compile)
    addresses, kept = engine().link(code, "routines")
    return addresses["routines"], kept


@lru_cache
def tables(dtypes: frozenset[str], bits: int) -> ctypes.Array:
    """Addresses of the tables of the element types that a graph needs."""
    block = (ctypes.c_void_p * len(BYTES))()
    for position, dtype in enumerate(BYTES):
        if dtype in dtypes:
            block[position] = library(dtype, bits)[0]
    return block
