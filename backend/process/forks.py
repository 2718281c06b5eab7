"""A fork copies one thread of the process. What another one was in the midst of stays so in the child for ever: the
lock of a module that it was loading, LLVM's own locks, those around it. So forks wait until nobody compiles or loads.

A signal's handler may raise anywhere in Python code, so `with` takes locks of C here: they are acquired and released in
one step. smelt's package loads this module, before anything that could be in the midst of something.
"""

from __future__ import annotations

import os
import threading
from time import monotonic, sleep
from typing import Any

from ...ir.process import process
from .patience import PATIENCE


def is_mine(lock: Any) -> bool:
    """Whether the calling thread holds a reentrant lock: only then may it notify those that wait for a condition."""
    try:
        threading.Condition(lock).notify()
    except RuntimeError:
        return False
    return True


class NoForks:
    """`with no_forks():` no other thread forks meanwhile. A thread that is inside may enter again.

    A fork holds the lock of every thread. It takes all of them at once or none, so no thread that one inside waits for
    is kept out; meanwhile new callers wait at the door, or the fork would never find all locks free.
    """

    def __init__(self) -> None:
        self.locks: dict[int, Any] = {}  # of each thread that was ever inside, which it holds while it is
        self.others: list[Any] = []
        self.guard = threading.RLock()  # the thread that forks holds it
        self.forking = False  # callers wait at the door
        self.closed = False  # helpers, too
        self.held: dict[int, list[Any]] = {}  # the locks that a thread which forks holds, or was about to
        if hasattr(os, "register_at_fork"):
            # Python ignores what is raised in these functions, and goes on. So each is called twice: the second call
            # does what a signal's handler kept the first from.
            for _ in range(2):
                os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._in_child)

    def __call__(self, helps: bool = False) -> Any:
        """The calling thread's own lock. One that helps works for a thread that is inside, and waits for it."""
        me = threading.get_ident()
        lock = self.locks.setdefault(me, threading.RLock()) if me not in self.locks else self.locks[me]
        while (self.closed or (self.forking and not helps)) and me not in self.held and not is_mine(lock):
            sleep(PATIENCE.door)
        return lock

    def hold_too(self, lock: Any) -> None:
        """A reentrant lock of another library, which forks are to hold when nobody is inside: those who are may need
        it."""
        self.others.append(lock)

    def _before(self) -> None:
        me, end = threading.get_ident(), monotonic() + PATIENCE.fork
        held = self.held.setdefault(me, [])
        if None in held:
            return  # the end of the list: all is held
        self.guard.acquire(timeout=PATIENCE.fork)
        self.forking = True
        while not self._hold(me, held) and monotonic() < end:
            sleep(PATIENCE.door)
        held.append(None)

    def _hold(self, me: int, held: list[Any]) -> bool:
        """Take all locks if nobody else has one."""
        self.closed = True  # before the locks are listed: a thread whose lock is not among them waits
        for lock in (*(lock for thread, lock in list(self.locks.items()) if thread != me), *self.others):
            held.append(lock)  # first: what was not acquired after all is not released either
            if not lock.acquire(blocking=False):
                self._release(held)
                self.closed = False
                return False
        return True

    def _release(self, held: list[Any]) -> None:
        while held:
            try:
                while held[-1] is not None:
                    held[-1].release()
            except RuntimeError:  # another thread has it, or nobody
                pass
            held.pop()

    def _after(self) -> None:
        me = threading.get_ident()
        if me in self.held:  # else the first call did all
            self._release(self.held[me])
            self.closed = self.forking = False
            del self.held[me]
            self._release([self.guard])

    def _in_child(self) -> None:
        self._after()
        # Nobody else is here to leave.
        me = threading.get_ident()
        self.locks = {me: self.locks[me]} if me in self.locks else {}
        self.guard, self.held = threading.RLock(), {}
        self.closed = self.forking = False


no_forks = process.keep("forks that wait", NoForks())
