"""How large the cache of compiled code gets, and how long its users wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Chosen, not measured, but for what says so."""

    directory: int = 1 << 30  # bytes of all entries
    memory: int = 256  # entries of a cache without a directory
    entry: int = 1 << 28  # bytes of one that is read or written: about a hundred times the largest that was seen
    header: int = 1 << 24  # bytes of an entry's first lines
    facts: int = 1 << 16  # bytes of a fact file: they have some hundred
    touch: float = 600  # seconds: an entry's time of last use is as exact as this
    abandoned: float = 3600  # seconds after which what a process that died left half written is removed
    sweep: int = 16  # times that are stored until one looks at the size of the whole cache
    patience: float = (
        15.0  # seconds to wait for another process that compiles the same: most programs take less than one
    )
    pauses: tuple[float, float] = (0.002, 0.05)  # seconds between two looks meanwhile, at first and at last


LIMITS = CacheLimits()
