"""Convert arrays for native code: dense, aligned, in the machine's byte order."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_plain(array: Any) -> bool:
    """Whether native code can take an array without a copy."""
    if type(array) is not np.ndarray:
        return False
    flags = array.flags
    return flags.c_contiguous and flags.aligned and array.dtype.isnative


def as_plain(array: np.ndarray) -> np.ndarray:
    """Return the array itself if native code can take it, else a copy."""
    # ascontiguousarray would make a 0-dim array 1-dim.
    return array if is_plain(array) else np.array(array, order="C", dtype=array.dtype.newbyteorder("="))
