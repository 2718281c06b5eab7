"""A fork copies one thread of the process. What another one was in the midst of stays so in the child for ever: the
lock of a module that it was loading, LLVM's own locks, those around it. So forks wait until nobody compiles or loads.

smelt's package loads this module, before anything that could be in the midst of something.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType

LONGEST = 30.0  # seconds that a fork waits: better a child that may hang than a parent that does


class NoForks:
    """`with no_forks:` no other thread forks meanwhile. A thread that is inside may enter again."""

    def __init__(self) -> None:
        self.inside: dict[int, int] = {}  # how often each thread is
        self.changed = threading.Condition()
        self.forking = False
        self.others: list[tuple[Callable[[], object], Callable[[], object]]] = []
        self.held: list[Callable[[], object]] = []  # how to release those that the fork holds
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._in_child)

    def hold_too(self, acquire: Callable[[], object], release: Callable[[], object]) -> None:
        """A lock of another library, which forks are to hold when nobody is inside: those who are may need it."""
        self.others.append((acquire, release))

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self.changed:
            while self.forking and me not in self.inside:
                self.changed.wait()
            self.inside[me] = self.inside.get(me, 0) + 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        me = threading.get_ident()
        with self.changed:
            self.inside[me] -= 1
            if not self.inside[me]:
                del self.inside[me]
                self.changed.notify_all()

    def _before(self) -> None:
        self.changed.acquire()
        while self.forking:
            self.changed.wait()
        self.forking = True
        end, me = monotonic() + LONGEST, threading.get_ident()
        while any(thread != me for thread in self.inside) and monotonic() < end:
            self.changed.wait(end - monotonic())
        for acquire, release in self.others:
            acquire()
            self.held.append(release)

    def _after(self) -> None:
        while self.held:
            self.held.pop()()
        if self.forking:  # else this module was loaded between the two halves of a fork
            self.forking = False
            self.changed.notify_all()
            self.changed.release()

    def _in_child(self) -> None:
        while self.held:
            self.held.pop()()
        # Nobody else is here to leave, or to be told.
        me = threading.get_ident()
        self.inside = {me: self.inside[me]} if me in self.inside else {}
        self.forking, self.changed = False, threading.Condition()


no_forks = NoForks()
