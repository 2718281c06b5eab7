"""Native sorts of long rows: every type, ties, NaN, both zeros, parts of the order, and any number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.kernels.sort import order

CHECKED = smelt.CompileOptions(verify=True)
TYPES = ("f4", "f8", "f2", ml_dtypes.bfloat16, "i8", "i4", "i2", "i1", "u1", "?")


def rows(kind: Any, count: int, length: int, seed: int = 0) -> np.ndarray:
    """Random rows: the first with few different elements, others with NaN and zeros of both signs."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(kind)
    if dtype.kind in "iub":
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        found = random.integers(low, high, (count, length), endpoint=True, dtype="u1" if dtype.kind == "b" else dtype)
        found[0] %= 3 if dtype.kind != "b" else 2
        return found.astype(dtype)
    found = (random.standard_normal((count, length)) * 40).astype(dtype)
    found[0] = np.round(found[0].astype("f4") / 20)
    for value in (np.nan, -np.inf, np.inf, 0.0, -0.0, -0.0, 0.0):
        found[-1, random.integers(0, length, max(length // 9, 1))] = value
    return found


def wanted(x: np.ndarray, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    places = order(x.astype("f4") if x.dtype == ml_dtypes.bfloat16 else x, descending)
    return np.take_along_axis(x, places, -1), places


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype and found.tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.fixture
def threads() -> Iterator[Any]:
    before = smelt.get_num_threads()
    yield smelt.set_num_threads
    smelt.set_num_threads(before)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_rows_of_any_length(kind: Any, descending: bool) -> None:
    """Networks, insertion and radix sort; of elements alone and of their places."""
    places = smelt.jit(lambda x: ops.sorted_places(x, descending), options=CHECKED)
    values = smelt.jit(lambda x: ops.sorted_values(x, descending), options=CHECKED)
    for length in (1, 2, 15, 16, 17, 24, 25, 255, 257, 2048, 2049, 5000):
        x = rows(kind, 3, length, length)
        for found, expected in zip((values(x), places(x)), wanted(x, descending), strict=True):
            assert_same(found, expected)


@pytest.mark.parametrize("kind", ["f4", "f2", "i4", "u1", "f8"])
@pytest.mark.parametrize("count", [1, 50, 300])
def test_a_few_of_long_rows(kind: str, count: int) -> None:
    """The selection: of random, of sorted and of equal elements."""
    few = smelt.jit(lambda x: ops.topk(x, count), options=CHECKED)
    for length in (600, 5000, 5013):
        x = rows(kind, 5, length)
        x[1], x[2], x[3] = np.sort(x[1]), np.sort(x[2])[::-1], x[3, 0]
        for found, expected in zip(few(x), wanted(x, True), strict=True):
            assert_same(found, expected[:, :count])


@pytest.mark.parametrize("kind", ["f4", "f8", "i1"])
def test_any_number_of_threads(kind: str, threads: Any) -> None:
    x = rows(kind, 40, 3000)
    compiled = smelt.jit(lambda x: (ops.sorted_values(x), ops.sorted_places(x, True)), options=CHECKED)
    expected = wanted(x, False)[0], wanted(x, True)[1]
    for number in (1, 2, 3):
        threads(number)
        for found, item in zip(compiled(x), expected, strict=True):
            assert_same(found, item)


def test_nothing_is_written_beyond_what_is_kept() -> None:
    for start, count in ((0, 0), (0, 1), (3, 0), (5, 7), (99, 1), (100, 0)):
        x = rows("f4", 4, 100)
        for op, expected in zip((ops.sorted_values, ops.sorted_places), wanted(x, False), strict=True):
            found = smelt.jit(lambda x: op(x, False, start, count), options=CHECKED)(x)  # noqa: B023
            assert_same(found, expected[:, start : start + count])
