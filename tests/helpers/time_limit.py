"""A bound on the processor time of a piece of work."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TimeIsUp(BaseException):
    """The work took too long. No `except Exception` on the way hides it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp inside of the block once it has computed for so many seconds (main thread only)."""

    def ring(*_: Any) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
