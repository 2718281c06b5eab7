"""Sorting: long and short rows, places, a few of many."""

from __future__ import annotations

from .define import Array, Names, sizes, workload
from .pointwise import one

LONG = sizes(tiny=(37,), small=(4096,), medium=(1 << 20,), large=(1 << 23,))
ROWS = sizes(tiny=(3, 7), small=(64, 64), medium=(4096, 256), large=(16384, 1024))
SCORES = sizes(tiny=(3, 60), small=(16, 1000), medium=(512, 32000), large=(2048, 50257))


@workload("sort", one, LONG)
def sort_long(xp: Names, x: Array) -> Array:
    """One long row in sorted order."""
    return xp.sort(x)


@workload("sort", one, LONG)
def argsort_long(xp: Names, x: Array) -> Array:
    """The places of one long row in sorted order."""
    return xp.argsort(x)


@workload("sort", one, ROWS)
def sort_rows(xp: Names, x: Array) -> Array:
    """Rows in sorted order."""
    return xp.sort(x)


@workload("sort", one, SCORES)
def topk_rows(xp: Names, x: Array) -> Array:
    """The 50 largest of each row."""
    return xp.topk(x, 50)


@workload("sort", one, ROWS)
def median_rows(xp: Names, x: Array) -> Array:
    """The lower median of each row."""
    return xp.lower_median(x)
