"""Calls on a new chunk of Python's stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from smelt.backend.room import with_room

CALLS = 3000
DEPTHS = 120  # more than enough to come to the end of a chunk


def deeper(depth: int, function: Callable[[], Any]) -> Any:
    return function() if depth == 0 else deeper(depth - 1, function)


def leaf(number: int) -> int:
    return number


def inner(number: int) -> int:
    return leaf(number)


def calls() -> int:
    return sum(inner(number) for number in range(CALLS))


def test_results_and_errors_come_through():
    assert with_room(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 // 0)


def test_calls_ask_for_no_memory_however_deep_they_are():
    resource = pytest.importorskip("resource")

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        with_room(calls)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with_room(calls)
    assert max(deeper(depth, faults) for depth in range(DEPTHS)) < CALLS / 4
