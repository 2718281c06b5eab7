"""The dimension order of arguments in memory; passes/graph/layout.py has that of results.

No argument is copied just to be row-major. One with another order of dims, such as x.T, is passed as it lies in
memory, and the program reads it through `permute`.
"""

from __future__ import annotations

import numpy as np

from .backend.arrays import as_plain, is_plain
from .ir.types import Order


def in_memory(array: np.ndarray) -> tuple[np.ndarray, Order | None]:
    """Return the array with its dims in memory order, and that order unless it is the array's own; copies if it has
    to."""
    if is_plain(array):
        return array, None
    if array.ndim > 1:
        order = tuple(sorted(range(array.ndim), key=lambda dim: -array.strides[dim]))
        turned = array.transpose(order)
        if is_plain(turned):
            return turned, order
    return as_plain(array), None
