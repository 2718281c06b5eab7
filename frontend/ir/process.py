"""The process: all mutable state that outlives a call, beside the registries (ops, passes, scalars,
PyTorch's ops).

    _lines: dict[int, Lines] = process.keep("lines of functions", {})

A module declares its own state where it uses it. `process` holds all of it by name, counts its entries, and runs the
handlers that restore it in forked children. Values of a context (ContextVar) and memoised pure functions (lru_cache)
are not kept here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sized
from typing import Any, TypeVar

T = TypeVar("T")


class Process:
    """The state of a process, by name."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def keep(self, name: str, thing: T) -> T:
        """Keep an object for the life of the process; return it.

        A module that an interrupt ended while it was imported is imported again: its new object takes the name.
        """
        self.kept[name] = thing
        return thing

    def in_child(self, function: Callable[[], None]) -> None:
        """Call a function in each forked child, after the functions registered earlier."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=function)

    def entries(self) -> dict[str, int]:
        """Return the number of entries of each object that is a container."""
        return {name: len(thing) for name, thing in self.kept.items() if isinstance(thing, Sized)}


process = Process()
