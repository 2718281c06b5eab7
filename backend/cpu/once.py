"""Objects of which a process has one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """Call it for the object, which is made when first asked for.

    No fork while it is being made: the child would wait for a thread that it does not have.
    """

    def __init__(self, make: Callable[[], T]):
        self.make = make
        self.made: list[T] = []
        lock = self.lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

    def __call__(self) -> T:
        if not self.made:
            with self.lock:
                if not self.made:
                    self.made.append(self.make())
        return self.made[0]
