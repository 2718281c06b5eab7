"""Libraries of routines that are not in the cache are compiled while the program that needs them still goes through
its passes."""

from __future__ import annotations

from collections.abc import Iterable

from .cached import Kept
from .engine import Started, engine
from .gemm import library
from .products import add, find
from .threads import get_num_threads

_started: dict[tuple[str, int], tuple[Kept, Started]] = {}  # by names of libraries and bits of vectors


def start(names: Iterable[str], bits: int) -> None:
    """Let threads compile the libraries that nobody has yet."""
    for key in ((name, bits) for name in names):
        kept = None if key in _started else find(*key)
        if kept is not None:
            threads = get_num_threads()
            _started[key] = kept, engine().start(library(*key).parts(threads), threads)


def finish(names: Iterable[str], bits: int) -> None:
    """Make libraries ready."""
    start(names, bits)
    for key in ((name, bits) for name in names):
        if key in _started:
            kept, started = _started[key]
            try:
                code = started.image()
            finally:
                _started.pop(key, None)
            kept.store(code)
            add(*key, code)
