"""Run work in other threads, where no signal handler raises: handlers run in the main thread alone.

`threading.Thread.start` is not used: an interrupt leaves it inconsistent, and it waits forever for a thread that could
not start for lack of memory.
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
    """Poll with growing intervals, a fraction of the time waited so far; Ctrl-C interrupts the sleep."""

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
    """Call a function in another thread and wait for its result. Where no thread can start, call it in this one."""
    begun = _thread.allocate_lock()
    done: list[Any] = [False, None, None]  # allocated now: later there may be no memory

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
