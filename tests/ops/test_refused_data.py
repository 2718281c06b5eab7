"""Numbers out of an op's domain, which only a run sees: smelt raises where PyTorch raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt import ops
from smelt.ir.errors import ArgumentError, AssertionFailed, IndexRangeError, ShapeError, SmeltError

INF, NAN = float("inf"), float("nan")
TABLE = np.arange(20, dtype=np.float32).reshape(10, 2)
BAGGED = np.array([1, 2, 3, 4, 5, 6])
NUMBERS = np.arange(1.0, 5.0)


def bags(mode: int, offsets: list[int]) -> tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]:
    return (
        lambda *given: ops._embedding_bag(*given, False, mode)[0],
        lambda *given: torch._embedding_bag(*given, False, mode)[0],
        (TABLE, BAGGED, np.array(offsets)),
    )


def segments(**marks: list[int]) -> tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]:
    ((name, numbers),) = marks.items()
    return (
        lambda data, given: ops.segment_reduce(data, "sum", **{name: given}),
        lambda data, given: torch.segment_reduce(data, "sum", **{name: given}),
        (NUMBERS, np.array(numbers)),
    )


def one(name: str, numbers: list[float], *rest: Any) -> tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]:
    return (
        lambda x: getattr(ops, name)(x, *rest),
        lambda x: getattr(torch, name)(x, *rest),
        (np.array(numbers, np.float32),),
    )


REFUSED = {
    "sums of bags that decrease": (bags(0, [0, 3, 1, 5]), AssertionFailed),
    "means of bags that decrease": (bags(1, [0, 3, 1, 5]), AssertionFailed),
    "bags after the first element": (bags(1, [1, 3]), AssertionFailed),
    "a negative bag": (bags(2, [0, -1, 3]), AssertionFailed),
    "a bag beyond the end": (bags(1, [0, 2, 9]), IndexRangeError),
    "a negative length": (segments(lengths=[3, -1, 2]), AssertionFailed),
    "lengths of too few": (segments(lengths=[1, 1]), IndexRangeError),
    "lengths of too many": (segments(lengths=[4, 4]), IndexRangeError),
    "segments that decrease": (segments(offsets=[0, 3, 2, 4]), AssertionFailed),
    "a range to NaN": (one("histc", [1, NAN, 2], 4), AssertionFailed),
    "a range to infinity": (one("histc", [INF, 1], 4), AssertionFailed),
    "a given range to infinity": (one("histc", [1], 4, 0, INF), ArgumentError),
    "edges to NaN": (one("histogram", [1, NAN, 2], 4), AssertionFailed),
    "no weight": (one("multinomial", [0, 0], 4, True), AssertionFailed),
    "a negative weight": (one("multinomial", [-1, 2], 4, True), AssertionFailed),
    "a weight of NaN": (one("multinomial", [1, NAN, 2], 1), AssertionFailed),
    "an infinite weight": (one("multinomial", [1, INF], 1), AssertionFailed),
}


@pytest.mark.parametrize("name", REFUSED)
def test_as_in_pytorch(name: str) -> None:
    (function, reference, given), error = REFUSED[name]
    with pytest.raises((RuntimeError, IndexError)):
        reference(*map(torch.from_numpy, given))
    with pytest.raises(error):
        smelt.jit(function)(*given)


def test_the_same_ops_take_what_is_in_their_domain() -> None:
    for function, reference, given in (
        bags(0, [0, 3, 3, 5]),
        bags(2, [0, 6, 6]),
        segments(lengths=[3, 0, 1]),
        segments(offsets=[1, 1, 2]),
        one("histc", [1, 1, 1], 4),
        one("histc", [1, NAN, INF], 4, 0, 2),
    ):
        np.testing.assert_array_equal(smelt.jit(function)(*given), reference(*map(torch.from_numpy, given)).numpy())


def test_indices_for_each_slice() -> None:
    given = np.array([1.0, 2.0]), np.array([0]), np.array([2.0, 3.0])
    with pytest.raises(ShapeError, match="index has 1 elements for 2 slices"):
        smelt.jit(lambda x, index, source: ops.index_reduce(x, 0, index, source, "prod"))(*given)


def test_a_negative_last_offset() -> None:
    function = smelt.jit(lambda dense, offsets: ops._padded_dense_to_jagged_forward(dense, [offsets]))
    with pytest.raises(SmeltError, match="the last offset is negative"):
        function(np.ones((2, 3)), np.array([0, 2, -1]))


def test_updates_of_nothing() -> None:
    checked = smelt.CompileOptions(verify=True)
    places, few = np.array([0, 1, 2]), np.array([0, 1, 7])
    add = smelt.jit(lambda x, index, source, rows: ops.index_add(x, 0, index, source[rows]), options=checked)
    for shape in ((0,), (0, 2), (0, 2, 2)):
        assert add(np.ones(shape), places, np.ones((3, *shape[1:])), places).shape == shape
        with pytest.raises(IndexRangeError):
            add(np.ones(shape), places, np.ones((3, *shape[1:])), few)
    no_bags = smelt.jit(
        lambda *given: ops._embedding_bag(*given, False, 1, include_last_offset=True)[0], options=checked
    )
    assert no_bags(TABLE, places, np.array([0])).shape == (0, 2)
