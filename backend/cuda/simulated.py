"""Whether Numba runs kernels in its simulator."""

from __future__ import annotations

import os
import sys


def is_simulated() -> bool:
    """Whether NUMBA_ENABLE_CUDASIM=1 is set, without importing Numba: cached code runs without it."""
    numba = sys.modules.get("numba")
    if numba is not None:
        return bool(numba.config.ENABLE_CUDASIM)
    given = os.environ.get("NUMBA_ENABLE_CUDASIM", "0")
    return given.strip().isdecimal() and int(given) != 0
