"""Work in threads of its own, where no handler of a signal raises: these run in the main thread alone.

`threading.Thread.start` is not interrupted safely, and waits for ever for a thread that had no memory to begin with.
"""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .forks import no_forks
from .patience import PATIENCE

T = TypeVar("T")


class Pauses:
    """Sleep for longer and longer, up to a part of the time that was waited so far: Ctrl-C interrupts that."""

    def __init__(self) -> None:
        self.begin = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin

    def pause(self) -> None:
        time.sleep(min(max(self.seconds / 16, PATIENCE.look), PATIENCE.longest_look))


def start_thread(function: Callable[..., Any], *arguments: Any) -> bool:
    """Start a daemon thread; False where the system allows no more of them."""
    try:
        _thread.start_new_thread(function, arguments)
    except (RuntimeError, MemoryError):
        return False
    return True


def apart(function: Callable[[], T]) -> T:
    """Call a function in another thread, and wait. Where no thread can begin, this one calls it."""
    begun = _thread.allocate_lock()
    done: list[Any] = [False, None, None]  # made now: later there may be no memory for it

    def work() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            with no_forks(helps=True):
                done[1] = function()
        except BaseException as error:
            done[2] = error
        done[0] = True

    if not start_thread(work):
        work()
    pauses = Pauses()
    while not done[0]:
        pauses.pause()
        if pauses.seconds > PATIENCE.begin and not begun.locked():
            work()
    if done[2] is not None:
        raise done[2]
    result: T = done[1]
    return result
