"""Whether Numba runs kernels in its simulator."""

from __future__ import annotations

import os
import sys


def is_simulated() -> bool:
    """NUMBA_ENABLE_CUDASIM=1, before Numba is imported. It is not imported to know this: code that was found on disk
    runs without it."""
    numba = sys.modules.get("numba")
    if numba is not None:
        return bool(numba.config.ENABLE_CUDASIM)
    given = os.environ.get("NUMBA_ENABLE_CUDASIM", "0")
    return given.strip().isdecimal() and int(given) != 0
