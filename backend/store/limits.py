"""Limits of the disk cache: sizes in bytes, times in seconds."""

from __future__ import annotations

from ...ir.record import Record


class CacheLimits(Record):
    """Limits of the cache; chosen, not measured, but where the comment says so."""

    directory: int = 1 << 30  # bytes of all entries
    memory: int = 256  # entries kept in the process where there is no writable directory
    entry: int = 1 << 28  # bytes of an entry that is read or written: about a hundred times the largest seen
    header: int = 1 << 24  # bytes of an entry's first lines
    facts: int = 1 << 16  # bytes of a fact file: usual ones have some hundreds
    touch: float = 600  # seconds; resolution of an entry's time of last use
    abandoned: float = 3600  # seconds after which temporary files of dead processes are removed
    sweep: int = 16  # stores per check of the total size, on the average
    patience: float = (
        15.0  # seconds to wait for another process that compiles the same entry: most programs take less than one
    )
    pauses: tuple[float, float] = (0.002, 0.05)  # seconds between polls while waiting: the first and the longest


LIMITS = CacheLimits()
