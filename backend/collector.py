"""Python's search for cycles, put off while a program is compiled.

After every few hundred new objects Python searches the newest ones for cycles that nobody uses any more, and now and
then all objects of the process, which takes longer than most compilations where large libraries are loaded. A
compilation makes many objects at once, most of which live to its end: it is searched seldom, and nothing older is.
"""

from __future__ import annotations

import gc
import os
import threading
from types import TracebackType

SELDOM = (100_000, 100, 1_000_000)  # new objects for a search, searches for one of older objects, those for one of all

_lock = threading.Lock()
_inside = 0  # compilations of all threads
_usual = (0, 0, 0)


class seldom_collected:
    """While it is entered, by any thread, cycles are seldom searched for."""

    __slots__ = ()

    def __enter__(self) -> None:
        global _inside, _usual
        with _lock:
            if not _inside:
                _usual = gc.get_threshold()
                if _usual[0]:  # zero is never
                    gc.set_threshold(*map(max, _usual, SELDOM))
            _inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _inside
        with _lock:
            if _inside == 1:
                gc.set_threshold(*_usual)
            _inside = max(_inside - 1, 0)


def _in_child() -> None:
    """No other thread of before the fork compiles any more."""
    global _lock, _inside
    _lock = threading.Lock()
    if _inside:
        _inside = 0
        gc.set_threshold(*_usual)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
