"""Objects of which a process has one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


def around_forks(hold: Callable[[], object], release: Callable[[], object]) -> None:
    """Hold before each fork and release behind it, in both processes.

    A module that is loaded while another thread forks gets here between that fork's two halves: no release then of what
    was not held.
    """
    if not hasattr(os, "register_at_fork"):
        return
    held: list[bool] = []

    def before() -> None:
        hold()
        held.append(True)

    def after() -> None:
        if held:
            held.clear()
            release()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)


class Once(Generic[T]):
    """Call it for the object, which is made when first asked for.

    No fork while it is being made: the child would wait for a thread that it does not have.
    """

    def __init__(self, make: Callable[[], T]):
        self.make = make
        self.made: list[T] = []
        self.lock = threading.Lock()
        around_forks(self.lock.acquire, self.lock.release)

    def __call__(self) -> T:
        if not self.made:
            with self.lock:
                if not self.made:
                    self.made.append(self.make())
        return self.made[0]
