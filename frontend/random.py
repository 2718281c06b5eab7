"""The state behind random ops: a key that the user sets, and an offset that every call advances.

There is no lock, which a fork could leave held in the child: reading the state and counting are one atomic step each
under the GIL.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from .ir.errors import ArgumentError
from .ir.graph import current_location
from .ir.process import process


class _Random:
    """The key, and the offsets of the calls that draw random numbers."""

    state = 0, count()


_random = process.keep("random numbers", _Random())


def manual_seed(seed: int) -> None:
    """Restart the random numbers from a seed."""
    if not isinstance(seed, (int, np.integer)):
        raise ArgumentError(f"manual_seed: the seed must be an int, got {seed!r}", current_location())
    bits = int(seed) & 0xFFFFFFFFFFFFFFFF
    _random.state = bits - (bits >> 63 << 64), count()


def next_seed() -> np.ndarray:
    """Return the key and the offset for the next call that draws random numbers, as i64[2]; advances the offset."""
    key, offsets = _random.state
    return np.array((key, next(offsets)), np.int64)
