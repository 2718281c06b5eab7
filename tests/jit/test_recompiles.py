"""How often functions are compiled, what is said about it, and which sizes stay open."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
from numpy import ones
from smelt import ops

SIZES = (5, 6, 7, 8, 9)
SCALE = 3.0


def compiled_for(function: Callable[..., Any], sizes: tuple[int, ...] = SIZES) -> Any:
    """The compiled function, called with vectors of these sizes, as NumPy would have it."""
    compiled = smelt.jit(function)
    for size in sizes:
        x = np.arange(float(size))
        expected = np.asarray(function(x))
        found = compiled(x)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    return compiled


def with_default(x, *, by=None):
    return x / (len(x) if by is None else by) * SCALE


class Model:
    scale = 2.0

    def mean(self, x):
        return x.sum() * self.scale / len(x)


OPEN = {
    "len": lambda x: x / len(x),
    "keyword": with_default,
    "method": Model().mean,
    "inner function": lambda x: (lambda y: y * len(y))(x) + len(x),
    "comprehension": lambda x: sum(x * len(x) for _ in range(3)),
    "arange": lambda x: x * np.arange(x.shape[0]),
    "arange from": lambda x: x[2:] * np.arange(2, len(x)),
    "arange of floats": lambda x: x * np.arange(len(x), dtype=np.float64),
    "ones": lambda x: x + np.ones(x.shape),
    "imported": lambda x: x + ones(len(x)),
    "zeros": lambda x: x + np.zeros(x.shape, dtype=np.float64),
    "full": lambda x: x + np.full(x.shape, 2.5),
    "outer": lambda x: x[:, None] * np.arange(len(x))[None, :] + np.arange(len(x))[:, None],
    "where": lambda x: np.where(np.arange(len(x)) > 3, x, np.zeros(len(x))),
    "reshape": lambda x: x * np.arange(len(x)).reshape(-1),
    "astype": lambda x: x * np.arange(len(x)).astype(np.float64),
    "minus": lambda x: x - (-np.arange(len(x)) + 1),
    "result": lambda x: np.ones(x.shape),
    "gradient": lambda x: smelt.grad(lambda y: (y * y).sum() / len(y))(x),
}

# What NumPy does in place, or in ways of its own, is done by NumPy: a program for each size.
FIXED = {
    "in place": lambda x: changed(x),
    "stored": lambda x: filled(x),
    "sorted": lambda x: sorted_in_place(x),
    "range": lambda x: sum(x * i for i in range(len(x))),
    "sum": lambda x: x * np.arange(len(x)).sum(),
    "float": lambda x: x * float(len(x)),
}


def changed(x):
    first = np.ones(x.shape)
    second = first
    first += 1
    return x + second


def filled(x):
    result = np.zeros(x.shape)
    result[1:3] = 7
    return x + result


def sorted_in_place(x):
    numbers = np.arange(len(x)) * -1.0
    numbers.sort()
    return x * numbers


@pytest.mark.parametrize("name", OPEN)
def test_sizes_that_stay_open(name: str) -> None:
    assert compiled_for(OPEN[name]).compiles == 2


@pytest.mark.filterwarnings("ignore:.*was compiled")
@pytest.mark.parametrize("name", FIXED)
def test_what_needs_the_numbers_has_them(name: str) -> None:
    compiled_for(FIXED[name], (5, 6, 7))


@pytest.mark.parametrize("name", ["in place", "stored", "sorted", "sum"])
def test_what_needs_the_numbers_in_the_function_itself(name: str) -> None:
    function = {"in place": changed, "stored": filled, "sorted": sorted_in_place}.get(name, FIXED["sum"])
    compiled_for(function, (5, 6, 7))


def test_functions_that_look_at_their_globals_are_left_alone() -> None:
    def looks(x):
        assert globals()["SCALE"] == SCALE
        return x / len(x)

    def has_class(x):
        class Inner:
            scale = SCALE

        return x * Inner.scale / len(x)

    def compares(x, library):
        assert library is np
        return x / len(x)

    for function in (looks, has_class):
        compiled_for(function, (5, 6, 7))
    smelt.jit(compares, static_argnames="library")(np.ones(3), library=np)


MAKERS = {np.ones: 3.0}


def is_ones(x, make):
    return x * (1.0 if make is np.ones else 2.0) + len(x)


def from_a_table(x, make):
    return x * MAKERS.get(np.ones, 1.0) + MAKERS.get(make, 1.0) + len(x)


def with_an_order(x, make):
    return x[:3] * make((3,)) + np.zeros((3,), np.float32, "C") + np.full((3,), 2, np.int64, "F") + len(x)


def of_types(x, make):
    here = np.ones(len(x))
    known = type(here) is np.ndarray and isinstance(here, np.ndarray)
    return x * (2.0 if known and type(len(x)) is int and type(x.shape) is tuple else 1.0)


def caught_assignment(x, make):
    try:
        weights = make(len(x))
        weights[0] = 7
    except Exception:
        return x
    return x * weights


@pytest.mark.parametrize("function", [is_ones, from_a_table, with_an_order, of_types, caught_assignment])
def test_a_function_sees_no_stand_ins(function: Callable[..., Any]) -> None:
    """What it is traced with is told from the originals neither by identity nor by type nor by their arguments."""
    compiled = smelt.jit(function, static_argnames="make")
    for size in (4, 9, 16, 5, 7):
        x = np.arange(size) + 1.0
        np.testing.assert_array_equal(compiled(x, np.ones), function(x, np.ones))


def test_branches_on_sizes_limit_the_program() -> None:
    """Each side of a branch has one program, whatever the sizes."""

    def function(x):
        if x.shape[0] > 8:
            return x * 2
        return x * 3 if x.shape[0] >= 4 else x * 5

    compiled = compiled_for(function, (5, 6, 7, 9, 10, 30, 8, 3, 2, 9, 4, 1000))
    assert compiled.compiles == 4


def test_branches_on_two_sizes() -> None:
    compiled = smelt.jit(lambda x, y: x.sum() + y.sum() if x.shape[0] < y.shape[0] else x.sum() * y.sum())
    for first, second in ((5, 6), (7, 8), (9, 3), (10, 4), (5, 5), (3, 20)):
        x, y = np.ones(first), np.ones(second)
        assert compiled(x, y) == (first + second if first < second else first * second)
    assert compiled.compiles <= 4


def reasons(function: Callable[..., Any], *calls: Any, **options: Any) -> list[str]:
    compiled = smelt.jit(function, **options)
    for args, kwargs in calls:
        compiled(*args, **kwargs)
    found = compiled.report().reasons
    assert json.loads(compiled.report().json())["reasons"] == found
    assert all(reason in str(compiled.report()) for reason in found[1:])
    return found[1:]


def call(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def test_reports_say_why() -> None:
    x = np.ones((2, 3))
    assert reasons(lambda a, b: a + b, call(x, x), call(x, x.astype("f4"))) == ["b is float32 and was float64"]
    assert reasons(lambda a: a + 1, call(x), call(x[0])) == ["a has 1 dimensions and had 2"]
    (why,) = reasons(lambda a: a + 1, call(x), call(x.T))
    assert why.startswith("a lies in memory in another order")
    (why,) = reasons(lambda a: a["p"], call({"p": x}), call({"p": x, "q": x}))
    assert "nested as" in why and "'q'" in why
    static = reasons(lambda a, mode: a, call(x, mode="up"), call(x, "down"), static_argnames="mode")
    assert static == ["of the static argument mode = 'down'"]
    (why,) = reasons(lambda a: a + 1, call(x), call(np.ones((5, 3))))
    assert why == "a.shape[0] is 5 and was 2: it is left open from now on"
    (why,) = reasons(lambda a: a + 1, call(x), call(np.ones((1, 3))))
    assert why == "a.shape[0] is 1 and was 2: sizes 0 and 1 have versions of their own"
    (why,) = reasons(lambda a: a + 1, call(x), call(np.ones((4, 3))), dynamic=False)
    assert why == "a.shape[0] is 4 and was 2, and dynamic=False compiles for every size"


def test_reports_name_the_line_that_asked() -> None:
    def function(x):
        return x * float(x.shape[0])

    line = function.__code__.co_firstlineno + 1
    found = reasons(function, *(call(np.ones(size)) for size in (5, 6, 7)))
    assert found[-1] == (
        f"x.shape[0] is 7 and was 6; test_recompiles.py:{line} (return x * float(x.shape[0])): "
        "asks for the number of x.shape[0]"
    )


def test_one_warning_says_what_to_do() -> None:
    compiled = smelt.jit(lambda x: x * float(x.shape[0]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in range(5, 12):
            compiled(np.ones(size))
    (warning,) = caught
    text = str(warning.message)
    assert warning.filename == __file__
    assert "was compiled 4 times" in text and "x.shape[0] is 8 and was 7" in text and "float(x.shape[0])" in text
    assert "To compile less often" in text


def test_no_warning_where_all_is_well() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = smelt.jit(lambda x: x / len(x))
        for size in (5, 6, 7, 1, 0, 8):
            compiled(np.ones(size))
        fixed = smelt.jit(lambda x: x + 1, dynamic=False)
        for size in range(2, 8):
            fixed(np.ones(size))
            ops.exp(np.ones(size))
