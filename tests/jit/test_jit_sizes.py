"""smelt.jit and sizes: what compiles again, and what Python may do with a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt import ops
from smelt.ir.errors import ShapeError
from support import floats

X = floats(3, 4)


def test_the_second_size_becomes_symbolic_and_the_third_compiles_nothing() -> None:
    function = smelt.jit(lambda x: ops.softmax(x, -1))
    for number, rows in enumerate((3, 5, 8, 100, 2, 3)):
        given = floats(rows, 4, seed=rows)
        wanted = torch.softmax(torch.from_numpy(given), -1).numpy()
        np.testing.assert_allclose(function(given), wanted, rtol=1e-5)
        assert function.compiles == min(number + 1, 2)


def test_sizes_that_cannot_be_told_apart_end_the_search() -> None:
    function = smelt.jit(lambda x, part: ops.slice_scatter(x, part, 0, 2, 5))
    for size, part in ((8, 3), (9, 3), (4, 2), (12, 3)):
        wanted = floats(size)
        wanted[2:5] = 0
        np.testing.assert_array_equal(function(floats(size), np.zeros(part, np.float32)), wanted)


def test_sizes_zero_and_one_compile_on_their_own() -> None:
    function = smelt.jit(lambda x, y: (x + y, x.sum()))
    for rows in (5, 6, 1, 0, 7, 1, 0):
        x, y = floats(rows, 4), floats(1, 4, seed=1)
        added, total = function(x, y)
        np.testing.assert_array_equal(added, x + y)
        np.testing.assert_allclose(total, x.sum(), rtol=1e-5, atol=1e-5)
    assert function.compiles == 4


def test_starting_at_one_row() -> None:
    function = smelt.jit(lambda x: x * 2 + x.shape[0])
    for rows in (1, 4, 9, 0, 1, 5):
        given = floats(rows, 3)
        np.testing.assert_array_equal(function(given), given * 2 + rows)
    assert function.compiles == 3


def test_sizes_that_were_equal_share_a_symbol() -> None:
    function = smelt.jit(lambda x, y: (x * y, x @ y.T))
    for rows in (3, 5, 7):
        x, y = floats(rows, 4), floats(rows, 4, seed=1)
        np.testing.assert_array_equal(function(x, y)[0], x * y)
    assert function.compiles == 2
    assert len({str(param.shape[0]) for param in function.latest.traced.graph.params}) == 1


def test_sizes_that_part_later_compile_once_more() -> None:
    function = smelt.jit(lambda x, y: x @ y)
    for rows, columns in ((3, 3), (4, 4), (5, 6), (7, 9), (2, 8)):
        x, y = floats(rows, 4), floats(4, columns)
        np.testing.assert_allclose(function(x, y), x @ y, rtol=1e-4, atol=1e-5)
    assert function.compiles == 3


def test_sizes_that_must_be_equal_are_settled_from_those_at_hand() -> None:
    function = smelt.jit(lambda x, y: x + y[1:])
    for size in (4, 6, 9):
        x, y = floats(size), floats(size + 1)
        np.testing.assert_array_equal(function(x, y), x + y[1:])
    assert function.compiles == 2


@pytest.mark.parametrize(
    "name, sizes, compiles",
    [
        ("halves", (4, 6, 10, 16, 2), 2),
        ("chunk", (5, 6, 7, 12, 31), 2),
        ("few", (3, 4, 5, 6), 4),
        ("tensor_split", (3, 6, 9, 7, 8, 10, 11), 4),
        ("pairs", (4, 6, 8, 5, 7, 9), 3),
        ("twice", (6, 12, 18, 15, 21), 3),
    ],
)
def test_remainders_are_settled_from_the_sizes_at_hand(name: str, sizes: Sequence[int], compiles: int) -> None:
    """One program for all sizes of the same remainder, where that decides."""
    programs = {
        "halves": (lambda x: x.reshape(2, -1, 3).sum(0), lambda x: x.reshape(2, -1, 3).sum(0)),
        "chunk": (lambda x: ops.chunk(x, 2)[1] * 2, lambda x: x[(len(x) + 1) // 2 :] * 2),
        # Too few for four parts of the same size or nearly: how many there are is another question for each.
        "few": (lambda x: ops.chunk(x, 4)[-1] * 2, lambda x: torch.from_numpy(x).chunk(4)[-1].numpy() * 2),
        "tensor_split": (lambda x: ops.tensor_split(x, 3)[1] * 2, lambda x: np.array_split(x, 3)[1] * 2),
        "pairs": (lambda x: x[1:] if x.shape[0] % 2 else x * 2, lambda x: x[1:] if len(x) % 2 else x * 2),
        "twice": (
            lambda x: x.reshape(3, -1, 3).sum(0) if x.shape[0] % 2 else x.reshape(2, -1, 3).sum(0),
            lambda x: x.reshape(3 if len(x) % 2 else 2, -1, 3).sum(0),
        ),
    }
    program, expected = programs[name]
    function = smelt.jit(program)
    for rows in sizes:
        given = floats(rows, 3)
        np.testing.assert_allclose(function(given), expected(given), rtol=1e-5, atol=1e-6)
    assert function.compiles == compiles


def test_negative_divisors_of_sizes() -> None:
    def program(x: Any) -> Any:
        size = x.shape[0]
        return x[(-size) % (-3) + 4 :], x[3 - 2 * ((-2 * size) // (-3)) :], x[size // -2 :]

    function = smelt.jit(program)
    for size in (6, 7, 8, 12):
        x = floats(size)
        for result, expected in zip(function(x), program(x), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_sizes_that_do_not_divide_are_named_in_the_error() -> None:
    function = smelt.jit(lambda x: x.reshape(2, -1))
    for rows in (4, 6, 8):
        function(floats(rows))
    with pytest.raises(ShapeError, match=r"\[7\] to \[2, -1\]: 7 elements do not divide by 2"):
        function(floats(7))
    np.testing.assert_array_equal(function(X.ravel()[:10]), X.ravel()[:10].reshape(2, -1))


def test_without_dynamic_every_size_compiles() -> None:
    function = smelt.jit(lambda x: x + x.shape[0], dynamic=False)
    for rows in (2, 3, 4, 3):
        given = floats(rows)
        np.testing.assert_array_equal(function(given), given + rows)
    assert function.compiles == 3


def test_another_dtype_or_rank_compiles_again() -> None:
    function = smelt.jit(lambda x: x * 2)
    for given in (X, X.astype("float64"), X[0], X.astype("int8"), X):
        result = function(given)
        assert result.dtype == given.dtype
        np.testing.assert_array_equal(result, given * 2)
    assert function.compiles == 4


def test_python_may_calculate_with_a_size() -> None:
    @smelt.jit
    def function(x: Any) -> Any:
        rows = x.shape[0]
        return x + rows, rows - x, x.sum() / rows, rows * x, rows + x.sum(), x[: rows // 2], x[rows - 1]

    for rows in (4, 6, 9):
        x = floats(rows, 3)
        wanted = (x + rows, rows - x, x.sum() / rows, rows * x, rows + x.sum(), x[: rows // 2], x[rows - 1])
        for result, expected in zip(function(x), wanted, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert function.compiles == 2


@pytest.mark.parametrize(
    "use",
    [
        lambda size: 1 / size,
        lambda size: size / 2,
        lambda size: size + 0.5,
        lambda size: size * 0.5,
        lambda size: size**0.5,
        lambda size: float(np.sqrt(float(size))),
        lambda size: 10.0 if size > 5 else 20.0,
        lambda size: 1.0 if size else 2.0,
        lambda size: float(len(range(size))),
    ],
)
def test_a_size_that_python_needs_is_compiled_in(use: Callable[[Any], float]) -> None:
    function = smelt.jit(lambda x: x * use(x.shape[0]))
    for rows in (4, 6, 9):
        x = floats(rows, 3)
        np.testing.assert_allclose(function(x), x * np.float32(use(rows)), rtol=1e-6)


def test_a_comparison_of_sizes_is_about_the_numbers() -> None:
    f = smelt.jit(lambda x, y: x * 2 if x.shape[0] == 8 or x.shape[0] == y.shape[0] + 1 else x)
    for size, other in ((4, 9), (6, 9), (8, 9), (7, 6), (9, 3)):
        expected = 2.0 if size == 8 or size == other + 1 else 1.0
        assert f(np.ones(size), np.ones(other))[0] == expected
