"""The routines of matrix products in this process: gemm.py writes them when they are not in the cache."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from .cached import Kept
from .context import PRODUCT_TYPES
from .image import Image
from .threads import get_num_threads

if TYPE_CHECKING:
    from .parts import Module

_loaded: dict[tuple[str, int], Image] = {}  # each has a table of routines
_guard = threading.Lock()


def object_code(modules: Sequence[Module], dtypes: Iterable[str], bits: int) -> list[bytes]:
    """The code of modules. The routines that they need and nobody has yet are compiled beside them."""
    missing = {dtype: kept for dtype in dtypes if (kept := _load(dtype, bits)) is not None}
    libraries: list[Module] = []
    for dtype in missing:
        from .gemm import library

        libraries.append(library(dtype, bits))
    from .engine import engine

    threads = get_num_threads()
    codes = engine().object_code(*(module.parts(threads) for module in (*modules, *libraries)), threads=threads)
    for (dtype, kept), code in zip(missing.items(), codes[len(modules) :], strict=True):
        kept.store(code)
        _link(dtype, bits, code)
    return codes[: len(modules)]


def _load(dtype: str, bits: int) -> Kept | None:
    """Make the routines of a type ready if the cache has them; else where to keep them."""
    if (dtype, bits) in _loaded:
        return None
    kept = Kept(f"matrix products of {dtype}", {"vector_bits": bits})
    code = kept.find()
    if code is None:
        return kept
    _link(dtype, bits, code)
    return None


def _link(dtype: str, bits: int, code: bytes) -> None:
    with _guard:
        if (dtype, bits) not in _loaded:
            _loaded[dtype, bits] = Image(code)


@lru_cache
def tables(dtypes: frozenset[str], bits: int) -> ctypes.Array:
    """Addresses of the tables of the element types that a graph needs."""
    if any(_load(dtype, bits) is not None for dtype in dtypes):
        object_code([], dtypes, bits)
    block = (ctypes.c_void_p * len(PRODUCT_TYPES))()
    for position, dtype in enumerate(PRODUCT_TYPES):
        if dtype in dtypes:
            block[position] = _loaded[dtype, bits]["routines"]
    return block
