"""How long threads and forks wait for each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds; chosen, not measured."""

    look: float = 5e-5  # after which a thread that waits for a daemon thread looks again, at first
    longest_look: float = 2e-3  # the same, at last
    begin: float = 0.2  # in which a thread that was started has begun, unless it cannot
    fork: float = 30.0  # that a fork waits: better a child that may hang than a parent that does
    door: float = 2e-4  # between two looks at a door that is closed, or at locks that others have


PATIENCE = Patience()
