"""Sorting of rows: its working memory, and the order of elements in NumPy.

Native code sorts words: unsigned integers in the order of the elements (keys), with the place in the row behind the key
where places are wanted. All words of a row differ then, so that any way to sort them is stable.
"""

from __future__ import annotations

import numpy as np

from ..ir.proofs import ceil_divide
from ..ir.record import Record
from ..ir.symbolic import Dim
from ..ir.types import DType


class Sorting(Record):
    """How rows are sorted. Numbers of words or elements."""

    digit: int = 8  # bits of a digit of radix sort: as many write streams as an L1 cache holds lines of
    cost: int = 32  # work of an element, in additions: chosen, between those of short and of long rows
    spare: int = 64  # words beyond the row that a sorting network may fill with padding, at least two vectors


SORTING = Sorting()


def key_bits(dtype: DType) -> int:
    """Return the bits of a key."""
    return max(dtype.bits, 8)


def word_bits(dtype: DType, places: bool) -> int:
    """Return the bits of a word: a key, or a key and a place."""
    return (64 if key_bits(dtype) <= 32 else 128) if places else key_bits(dtype)


def sort_space(dtype: DType, places: bool, length: Dim) -> Dim:
    """Return the 64-bit words of working memory that a row needs: its words twice, and a counter for each value of each
    digit."""
    counters = key_bits(dtype) // SORTING.digit << SORTING.digit
    return ceil_divide(2 * length * word_bits(dtype, places), 64) + counters + 2 * SORTING.spare


def order(array: np.ndarray, descending: bool) -> np.ndarray:
    """Return the places of the elements of each row in stable sorted order, NaN as the largest."""
    if not descending:
        return np.argsort(array, axis=-1, kind="stable")
    # Back to front, so that equal elements keep their order.
    return array.shape[-1] - 1 - np.argsort(array[..., ::-1], axis=-1, kind="stable")[..., ::-1]
