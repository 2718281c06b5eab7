"""Calls on a new chunk of Python's stack."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from smelt.backend.process.stack_chunk import with_room
from support import run

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


def test_no_garbage_is_collected_meanwhile() -> None:
    assert not with_room(gc.isenabled) and gc.isenabled()
    assert not with_room(lambda: with_room(gc.isenabled) or gc.isenabled()) and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 // 0)
    assert gc.isenabled()
    gc.disable()
    try:
        assert not with_room(gc.isenabled) and not gc.isenabled(), "the caller wants none"
    finally:
        gc.enable()


LITTLE = """
import resource
import numpy as np
import smelt

x = np.ones((8, 8))
smelt.jit(lambda x: (x * 1.5).sum(0) + x)(x)
hard = resource.getrlimit(resource.RLIMIT_AS)[1]

def check(k):
    assert (smelt.jit(lambda x: (x * k).sum(0) + x)(x) == (x * k).sum(0) + x).all()

for left in (0, 100, 200, 400, 700, 1000, 3000, 5000, 6000):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (left << 10), hard))
    try:
        check(left + 2)
        print("compiled", left)
    except MemoryError:
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    check(left + 2)
print("done")
"""


def test_little_memory_is_a_memory_error_and_the_next_compile_works() -> None:
    pytest.importorskip("resource")
    assert run(LITTLE) == "done"
