"""Sizes that are left open: what Python computes with them is what it computes with numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
import pytest
import smelt
from size_trees import cases, expected, extents
from smelt.backend.compile import compile_graph
from smelt.backend.interp.graph import interpret
from smelt.backend.options import CompileOptions
from smelt.ir.errors import SmeltError
from smelt.ir.symbolic import evaluate

SIZES = [2, 3, 4, 5, 7, 8, 9, 12, 16, 33]


@pytest.mark.parametrize("seed", range(8))
def test_simplified_expressions_have_pythons_values(seed: int) -> None:
    """Quotients and remainders of numbers of any sign, by divisors of any sign."""
    for tree, made in cases(seed, 150):
        for numbers in itertools.product(SIZES[:6], repeat=3):
            sizes = dict(zip("NMK", numbers, strict=True))
            wanted = expected(tree, sizes)
            if wanted is not None:
                assert evaluate(made, sizes) == wanted, (tree, made, sizes)


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
def test_code_computes_sizes_as_python_does(target: str) -> None:
    chosen = [case for case in cases(100, 250) if not isinstance(case[1], int)]
    graph = extents([made for _, made in chosen])
    run = compile_graph(graph, CompileOptions()) if target == "cpu" else lambda arrays: interpret(graph, arrays)
    choose = random.Random(1)
    for _ in range(40):
        sizes = {name: choose.choice(SIZES) for name in "NMK"}
        with np.errstate(divide="ignore"):
            results = run([np.zeros(sizes[name], np.float32) for name in "NMK"])
        for (tree, made), result in zip(chosen, results, strict=True):
            wanted = expected(tree, sizes)
            if wanted is not None:
                assert int(result) == wanted, (tree, made, sizes)


def opened(function: Callable[..., Any], *extra: int) -> Any:
    """The compiled function, which has met two sizes."""
    compiled = smelt.jit(function)
    for size in (5, 6, *extra):
        compiled(np.ones(size))
    return compiled


DIVISIONS = {
    "by minus": lambda n: n // -3,
    "by difference": lambda n: 100 // (4 - n),
    "remainder": lambda n: 100 % (4 - n),
    "of minus": lambda n: -n // 3 + -n % 3,
    "twice": lambda n: (n // 2) // -2,
    "by itself": lambda n: -7 // n + 7 % -n,
    "mixed": lambda n: (n - 9) // (n - 20) + (n - 9) % (n - 20),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_by_what_may_be_negative(name: str) -> None:
    divide = DIVISIONS[name]
    compiled = smelt.jit(lambda x: (x * 0 + divide(x.shape[0]), divide(x.shape[0])))
    for size in (5, 6, 7, 8, 9, 13, 21, 40, 2, 3):
        result, number = compiled(np.ones(size))
        np.testing.assert_array_equal(result, np.full(size, float(divide(size))))
        assert number == divide(size)


def test_division_by_zero_is_pythons_error() -> None:
    compiled = opened(lambda x: x * (10 // (x.shape[0] - 7)))
    np.testing.assert_array_equal(compiled(np.ones(9)), np.full(9, 5.0))
    with pytest.raises(ZeroDivisionError):
        compiled(np.ones(7))


TABLE = {5: 1.0, 7: 2.0}
ANSWERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda n: TABLE.get(n, 0.5),
    "in dict": lambda n: 1.0 if n in TABLE else 0.5,
    "set": lambda n: 1.0 if n in {7, 9} else 0.5,
    "frozenset": lambda n: 1.0 if n in frozenset((7, 9)) else 0.5,
    "float": lambda n: 1.0 if n == 7.0 else 0.5,
    "no whole number": lambda n: 1.0 if n == 7.5 or n == float("nan") or n == float("inf") else 0.5,
    "not float": lambda n: 1.0 if n != 7.0 else 0.5,
    "numpy": lambda n: 1.0 if n == np.int64(7) else 0.5,
    "numpy left": lambda n: 1.0 if np.int32(7) == n else 0.5,
    "numpy float": lambda n: 1.0 if n == np.float32(7) else 0.5,
    "complex": lambda n: 1.0 if n == 7 + 0j else 0.5,
    "fraction": lambda n: 1.0 if n == Fraction(7) else 0.5,
    "decimal": lambda n: 1.0 if n == Decimal(7) else 0.5,
    "text": lambda n: {"7": 1.0}.get(str(n), 0.5),
    "formatted": lambda n: {"n=7": 1.0}.get(f"n={n}", 0.5),
    "digits": lambda n: {"007": 1.0}.get(f"{n:03}", 0.5),
    "tuple": lambda n: {(7, 1): 1.0}.get((n, 1), 0.5),
    "compound": lambda n: {8: 1.0}.get(n + 1, 0.5),
    "other": lambda n: 1.0 if n == "7" or n is None or n == None else 0.5,  # noqa: E711
    "match": lambda n: matched(n),
    "shown": lambda n: {"7": 1.0}.get(repr(n), 0.5),
    "shown in a tuple": lambda n: {"(7,)": 1.0}.get(str((n,)), 0.5),
    "isinstance": lambda n: 1.0 if isinstance(n, int) and isinstance(n, (str, int)) else 0.5,
    "abstract class": lambda n: 1.0 if isinstance(n, Integral) else 0.5,
    "no float": lambda n: 1.0 if isinstance(n, (float, np.integer)) else 0.5,
    "class": lambda n: 1.0 if n.__class__ is int else 0.5,
    "match class": lambda n: matched_class(n),
    "caught": lambda n: caught(n, Exception),
    "caught shape error": lambda n: caught(n, (TypeError, ValueError, smelt.SmeltError)),
    "caught and raised": lambda n: raised_anew(n),
}


def caught(n: Any, errors: Any) -> float:
    try:
        return math.sqrt(n)
    except errors:
        return 0.5


def raised_anew(n: Any) -> float:
    try:
        try:
            return math.sqrt(n)
        except Exception as error:
            raise TypeError("no root") from error
    except TypeError:
        return 0.5


def matched_class(n: Any) -> float:
    match n:
        case int():
            return 1.0
        case _:
            return 0.5


def matched(n: Any) -> float:
    match n:
        case 7:
            return 1.0
        case _:
            return 0.5


@pytest.mark.parametrize("name", ANSWERS)
def test_open_sizes_as_keys_and_beside_other_numbers(name: str) -> None:
    """Who asks for the number gets it, in a program of its own."""
    answer = ANSWERS[name]
    compiled = smelt.jit(lambda x: x * answer(x.shape[0]))
    for size in (5, 6, 7, 8, 9, 5, 7):
        np.testing.assert_array_equal(compiled(np.ones(size)), np.full(size, answer(size)))


def test_a_caught_question_decides_no_branch() -> None:
    """What the user does for shapes that do not fit is for those alone, also in an op of the user's."""

    def rows(x: Any) -> Any:
        try:
            return x.reshape(2, -1)
        except Exception:
            return x.reshape(1, -1)

    compiled = smelt.jit(rows)
    for size in (6, 8, 9, 7, 10, 12):
        assert compiled(np.ones(size)).shape == ((2, size // 2) if size % 2 == 0 else (1, size))


def test_sizes_beside_tensors_compare_as_tensors() -> None:
    compiled = opened(lambda x: (x.shape[0] == x, x.shape[0] > x), 7)
    x = np.arange(9.0)
    for found, wanted in zip(compiled(x), (x == 9, x < 9), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert compiled.compiles == 2


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_open_sizes_beside_narrow_integers(dtype: str) -> None:
    """NumPy's answers: right comparisons, and an error where the type does not hold the number."""
    operations: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda x, n: x + n,
        "*": lambda x, n: n * x,
        "<": lambda x, n: x < n,
        "==": lambda x, n: n == x,
        ">=": lambda x, n: n >= x,
        "2n": lambda x, n: x - 2 * n,
    }
    for operation in operations.values():
        compiled = smelt.jit(lambda x, operation=operation: operation(x, x.shape[0]))
        for size in (5, 6, 7, 100, 127, 128, 255, 256, 300, 9):
            x = (np.arange(size) % 100).astype(dtype)
            try:
                with np.errstate(over="ignore"):
                    wanted = operation(x, size)
            except OverflowError:
                with pytest.raises((SmeltError, OverflowError)):
                    compiled(x)
                continue
            found = compiled(x)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


def test_open_sizes_beside_scalars_of_numpy() -> None:
    """They are weak, as Python's integers are."""
    compiled = smelt.jit(lambda x, s: s + x.shape[0])
    for size in (5, 6, 7):
        result = compiled(np.ones(size), np.int32(3))
        assert result.dtype == np.int32 and result == 3 + size
