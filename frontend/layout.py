"""In which order arguments lie in memory; passes/graph/layout.py has that of results.

Nothing is transposed just to be row-major. An argument whose dims lie in another order, such as x.T, is taken as it
is; the program sees it through `permute`.
"""

from __future__ import annotations

import numpy as np

from .backend.arrays import as_plain, is_plain
from .passes.graph.layout import Order


def in_memory(array: np.ndarray) -> tuple[np.ndarray, Order | None]:
    """The array with its dims in the order of memory, and that order if it is not their own; a copy if need be."""
    if is_plain(array):
        return array, None
    if array.ndim > 1:
        order = tuple(sorted(range(array.ndim), key=lambda dim: -array.strides[dim]))
        turned = array.transpose(order)
        if is_plain(turned):
            return turned, order
    return as_plain(array), None
