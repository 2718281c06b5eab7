"""Times that threads and forks wait for each other, in seconds."""

from __future__ import annotations

from ...ir.record import Record


class Patience(Record):
    """Waiting times in seconds; chosen, not measured."""

    look: float = 5e-5  # first interval of polling for a daemon thread
    longest_look: float = 2e-3  # longest interval
    begin: float = 0.2  # after which a thread that has not begun is taken not to begin
    fork: float = 30.0  # bound on the wait of a fork: better a child that may hang than a parent that does
    door: float = 2e-4  # interval of polling for a fork to end, or for locks to be free


PATIENCE = Patience()
