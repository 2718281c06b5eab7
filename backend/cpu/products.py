"""The routines of matrix products in this process: gemm.py writes them when they are not in the cache."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ..forks import no_forks
from .cached import Kept
from .context import PRODUCT_TYPES, ROUTINES
from .image import Image
from .threads import get_num_threads

if TYPE_CHECKING:
    from .parts import Module

_loaded: dict[tuple[str, int], Image] = {}  # by the names of libraries and the bits of vectors
_guard = threading.Lock()


def object_code(modules: Sequence[Module], names: Iterable[str], bits: int) -> list[bytes]:
    """The code of modules. The libraries of routines that they need and nobody has yet are compiled beside them."""
    missing = {name: kept for name in names if (kept := _load(name, bits)) is not None}
    libraries: list[Module] = []
    for name in missing:
        from .gemm import library

        libraries.append(library(name, bits))
    from .engine import engine

    threads = get_num_threads()
    codes = engine().object_code(*(module.parts(threads) for module in (*modules, *libraries)), threads=threads)
    for (name, kept), code in zip(missing.items(), codes[len(modules) :], strict=True):
        kept.store(code)
        _link(name, bits, code)
    return codes[: len(modules)]


def _load(name: str, bits: int) -> Kept | None:
    """Make a library ready if the cache has it; else where to keep it."""
    if (name, bits) in _loaded:
        return None
    kept = Kept(f"matrix products of {name}", {"vector_bits": bits})
    code = kept.find()
    if code is None:
        return kept
    _link(name, bits, code)
    return None


def _link(name: str, bits: int, code: bytes) -> None:
    with no_forks, _guard:
        if (name, bits) not in _loaded:
            _loaded[name, bits] = Image(code)


@lru_cache
def tables(names: frozenset[str], bits: int) -> ctypes.Array:
    """Addresses of the tables of element types, with the routines of the libraries that a graph needs."""
    if any(_load(name, bits) is not None for name in names):
        object_code([], names, bits)
    types, size = len(PRODUCT_TYPES), len(ROUTINES)
    block = (ctypes.c_void_p * (types + types * size))()  # the tables stand behind their addresses
    for number, dtype in enumerate(PRODUCT_TYPES):
        images = [_loaded[name, bits] for name in names if name.partition(" ")[0] == dtype]
        found = {symbol: image[symbol] for image in images for symbol in image.symbols}
        first = types + number * size
        block[number] = ctypes.addressof(block) + first * ctypes.sizeof(ctypes.c_void_p)
        block[first : first + size] = [found.get(f"{routine}.{dtype}") for routine in ROUTINES]
    return block
