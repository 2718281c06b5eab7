"""What a compiled function may be called with, and as: numbers, methods, copies in other processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops


@smelt.jit
def doubled(x: Any) -> Any:
    return x * 2.0


# Python numbers have no type of their own.


@pytest.mark.parametrize("number", [0.1, 16777217.0, 1e300, 5e-324, float("inf")])
def test_a_number_has_all_its_digits_where_it_meets_doubles(number: float) -> None:
    function = smelt.jit(lambda x, s: (x + s, x + s * 0.5, ops.where(x > 0, x, s)))
    zeros = np.zeros(3)
    for _ in range(3):  # compiled, by Python, by native code
        for found, expected in zip(function(zeros, number), (number, number * 0.5, number), strict=True):
            assert found.dtype == np.float64
            np.testing.assert_array_equal(found, np.full(3, expected))
    assert function.compiles == 1
    np.testing.assert_array_equal(ops.add(zeros, number), np.full(3, number))


def test_a_complex_number_too() -> None:
    function = smelt.jit(lambda x, s: x + s)
    np.testing.assert_array_equal(function(np.zeros(2, np.complex128), 0.1 + 0.2j), np.full(2, 0.1 + 0.2j))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
def test_the_type_of_the_result_is_numpys(dtype: str) -> None:
    function = smelt.jit(lambda x, s: x * s)
    for shape in ((3,), ()):
        given = np.ones(shape, dtype)
        expected = given * 0.1
        for _ in range(3):
            found = function(given, 0.1)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_numbers_and_arrays_of_one_element_are_told_apart() -> None:
    function = smelt.jit(lambda x, s: x * s)
    x = np.array(2, np.float32)
    for _ in range(4):
        assert function(x, 0.5).dtype == np.float32
        assert function(x, np.array(0.5)).dtype == np.float64
        assert function(x, np.float64(0.5)).dtype == np.float64


def test_derivatives_by_a_number() -> None:
    function = smelt.jit(lambda x, s: smelt.grad(lambda s: (x * s * s).sum())(s))
    assert function(np.ones(3), 0.5) == pytest.approx(3.0)
    assert function(np.ones(3, np.float32), 0.5) == pytest.approx(3.0)


# Functions as Python has them.


class Model:
    def __init__(self, scale: float):
        self.scale = scale

    @smelt.jit(static_argnames="self")
    def scaled(self, x: Any) -> Any:
        return x * self.scale

    @smelt.jit
    def refused(self, x: Any) -> Any:
        return x * self.scale


def test_methods() -> None:
    two, three = Model(2.0), Model(3.0)
    for _ in range(3):
        np.testing.assert_array_equal(two.scaled(np.ones(2)), [2, 2])
        np.testing.assert_array_equal(three.scaled(np.ones(2)), [3, 3])
    with pytest.raises(smelt.SmeltError, match="refused: an argument must be a tensor, got Model.*static_argnames"):
        two.refused(np.ones(2))


def test_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert copy.copy(doubled) is doubled and copy.deepcopy(doubled) is doubled
    with multiprocessing.get_context("spawn").Pool(1) as others:
        (found,) = others.map(doubled, [np.ones(2)])
    np.testing.assert_array_equal(found, [2, 2])


def test_static_arguments_must_be_hashable() -> None:
    function = smelt.jit(lambda x, names: x, static_argnames="names")
    with pytest.raises(smelt.SmeltError, match=r"the static argument names must be hashable, got \['a'\]"):
        function(np.ones(2), names=["a"])


# What is written for numbers.


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / np.sqrt(x.shape[0]),
        lambda x: x * {4: 1.0, 5: 2.0, 6: 3.0}[x.shape[0]],
        lambda x: x * [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0][x.shape[0]],
    ],
)
def test_sizes_that_must_be_numbers(function: Any) -> None:
    compiled = smelt.jit(function)
    for size in (4, 5, 6):
        np.testing.assert_allclose(compiled(np.ones(size)), function(np.ones(size)))


def test_a_mistake_shows_whatever_the_size() -> None:
    compiled = smelt.jit(lambda x: x * {4: 1.0}[x.shape[0]])
    compiled(np.ones(4))
    with pytest.raises(KeyError, match="5"):
        compiled(np.ones(5))
