"""The state behind random ops: a key that the user sets, and an offset that every call advances."""

from __future__ import annotations

import threading

import numpy as np

_state = np.array([0, 0], np.int64)
_lock = threading.Lock()


def manual_seed(seed: int) -> None:
    """Start the random numbers anew from a seed."""
    with _lock:
        _state[0] = np.int64(np.uint64(seed & 0xFFFFFFFFFFFFFFFF))
        _state[1] = 0


def next_seed() -> np.ndarray:
    """The key and the offset of the next call that draws random numbers."""
    with _lock:
        current = _state.copy()
        _state[1] += 1
    return current
