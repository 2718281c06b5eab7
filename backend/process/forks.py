"""Make forks wait until no thread compiles or imports. A fork copies only one thread of the process: locks held by
another one (of a module being imported, of LLVM, around LLVM) would stay locked in the child forever. A fork waits 30 s
at most (patience.py); then it goes ahead, and the child may hang: better than a parent that does.

A signal handler may raise anywhere in Python code, so `with` is used on locks implemented in C: acquiring and releasing
are one step each. `import smelt` imports this module before anything that loads the compiler.
"""

from __future__ import annotations

import os
import threading
from time import monotonic, sleep
from typing import Any

from ...ir.process import process
from .patience import PATIENCE


def is_mine(lock: Any) -> bool:
    """Whether the calling thread holds a reentrant lock, by notifying a condition, which only the owner may do."""
    try:
        threading.Condition(lock).notify()
    except RuntimeError:
        return False
    return True


class NoForks:
    """`with no_forks():` no other thread forks meanwhile. It is reentrant.

    A fork holds the locks of all threads. It takes all of them at once or none, so it never blocks a thread that
    another one inside is waiting for; while it tries, new callers wait, or it would never find all locks free.
    """

    def __init__(self) -> None:
        self.locks: dict[int, Any] = {}  # lock of each thread that was ever inside; held while inside
        self.others: list[Any] = []
        self.guard = threading.RLock()  # held by the forking thread
        self.forking = False  # new callers wait
        self.closed = False  # helpers wait, too
        self.held: dict[int, list[Any]] = {}  # locks that a forking thread holds or is about to take
        if hasattr(os, "register_at_fork"):
            # Python ignores exceptions in these functions. So each is registered twice: the second call completes a
            # first one that a signal handler interrupted.
            for _ in range(2):
                os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._in_child)

    def __call__(self, helps: bool = False) -> Any:
        """Return the calling thread's own lock. helps: the thread works for one that is inside and waits for it."""
        me = threading.get_ident()
        lock = self.locks.setdefault(me, threading.RLock()) if me not in self.locks else self.locks[me]
        while (self.closed or (self.forking and not helps)) and me not in self.held and not is_mine(lock):
            sleep(PATIENCE.door)
        return lock

    def hold_too(self, lock: Any) -> None:
        """Register a reentrant lock of another library that forks must hold, too, after all threads have left: threads
        inside may need it."""
        self.others.append(lock)

    def _before(self) -> None:
        me, end = threading.get_ident(), monotonic() + PATIENCE.fork
        held = self.held.setdefault(me, [])
        if None in held:
            return  # the end marker: all are held
        self.guard.acquire(timeout=PATIENCE.fork)
        self.forking = True
        while not self._hold(me, held) and monotonic() < end:
            sleep(PATIENCE.door)
        held.append(None)

    def _hold(self, me: int, held: list[Any]) -> bool:
        """Take all locks, or none if another thread holds one."""
        self.closed = True  # before the locks are listed: a thread with a new lock waits
        for lock in (*(lock for thread, lock in list(self.locks.items()) if thread != me), *self.others):
            held.append(lock)  # before acquiring, or an interrupt could lose it; _release skips those not held
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
            except RuntimeError:  # not acquired by this thread
                pass
            held.pop()

    def _after(self) -> None:
        me = threading.get_ident()
        if me in self.held:  # else the first call did everything
            self._release(self.held[me])
            self.closed = self.forking = False
            del self.held[me]
            self._release([self.guard])

    def _in_child(self) -> None:
        self._after()
        # No other thread exists in the child.
        me = threading.get_ident()
        self.locks = {me: self.locks[me]} if me in self.locks else {}
        self.guard, self.held = threading.RLock(), {}
        self.closed = self.forking = False


no_forks = process.keep("forks that wait", NoForks())
