"""Make objects of which a process has one, on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ...ir.process import process
from .forks import no_forks

T = TypeVar("T")


class Once(Generic[T]):
    """A function that returns one object, made at the first call."""

    def __init__(self, name: str, make: Callable[[], T]):
        process.keep(name, self)
        self.make = make
        self.made: list[T] = []
        self.lock = threading.Lock()

    def __call__(self) -> T:
        if not self.made:
            with no_forks(), self.lock:
                if not self.made:
                    self.made.append(self.make())
        return self.made[0]
