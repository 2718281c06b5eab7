"""Reductions over every pattern of axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .define import Array, Function, Names, sizes, workload
from .pointwise import LONG, MATRIX, one, two

CUBE = sizes(tiny=(3, 4, 5), small=(16, 16, 16), medium=(32, 128, 64), large=(64, 1024, 64))


@workload("reduce", one, MATRIX)
def sum_rows(xp: Names, x: Array) -> Array:
    """The sum of each row."""
    return xp.sum(x, -1)


@workload("reduce", one, MATRIX)
def sum_columns(xp: Names, x: Array) -> Array:
    """The sum of each column."""
    return xp.sum(x, 0)


@workload("reduce", one, LONG)
def sum_all(xp: Names, x: Array) -> Array:
    """The sum of everything."""
    return xp.sum(x)


@sum_all.by_numba
def sum_all_numba(numba: Any) -> Function:
    @numba.njit(parallel=True, fastmath=True)
    def sum_all(x: Array) -> Array:
        total = x.dtype.type(0)
        for i in numba.prange(x.size):
            total += x[i]
        return total

    return sum_all


@workload("reduce", one, CUBE)
def sum_middle(xp: Names, x: Array) -> Array:
    """The sum over the middle of three axes."""
    return xp.sum(x, 1)


@workload("reduce", one, CUBE)
def sum_outer_and_inner(xp: Names, x: Array) -> Array:
    """The sum over the first and the last of three axes."""
    return xp.sum(x, (0, 2))


@workload("reduce", one, MATRIX)
def mean_rows(xp: Names, x: Array) -> Array:
    """The mean of each row."""
    return xp.mean(x, -1)


@workload("reduce", one, MATRIX)
def var_rows(xp: Names, x: Array) -> Array:
    """The variance of each row."""
    return xp.var(x, -1)


@var_rows.by_numba
def var_rows_numba(numba: Any) -> Function:
    @numba.njit(parallel=True, fastmath=True)
    def var_rows(x: Array) -> Array:
        result = np.empty(x.shape[0], x.dtype)
        for i in numba.prange(x.shape[0]):
            total = x.dtype.type(0)
            for j in range(x.shape[1]):
                total += x[i, j]
            mean = total / x.dtype.type(x.shape[1])
            square = x.dtype.type(0)
            for j in range(x.shape[1]):
                square += (x[i, j] - mean) * (x[i, j] - mean)
            result[i] = square / x.dtype.type(x.shape[1] - 1)
        return result

    return var_rows


@workload("reduce", one, MATRIX)
def var_columns(xp: Names, x: Array) -> Array:
    """The variance of each column."""
    return xp.var(x, 0)


@workload("reduce", one, LONG)
def var_all(xp: Names, x: Array) -> Array:
    """The variance of everything."""
    return xp.var(x)


@workload("reduce", one, MATRIX)
def largest_rows(xp: Names, x: Array) -> Array:
    """The largest number of each row, and where it is."""
    return xp.amax(x, -1), xp.argmax(x, -1)


@workload("reduce", one, MATRIX)
def logsumexp_rows(xp: Names, x: Array) -> Array:
    """log(sum(exp(x))) of each row."""
    return xp.logsumexp(x, -1)


@workload("reduce", two, LONG)
def squared_distance(xp: Names, x: Array, y: Array) -> Array:
    """The sum of (x - y)**2."""
    difference = x - y
    return xp.sum(difference * difference)


@workload("reduce", one, MATRIX)
def statistics_rows(xp: Names, x: Array) -> Array:
    """Smallest, largest, mean and variance of each row: four reductions of the same data."""
    return xp.amin(x, -1), xp.amax(x, -1), xp.mean(x, -1), xp.var(x, -1)


@workload("reduce", one, MATRIX)
def running_sum_rows(xp: Names, x: Array) -> Array:
    """The running sum along each row."""
    return xp.cumsum(x, -1)
