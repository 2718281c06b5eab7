"""The state of a process: all of it is known by name, and none of it grows with the functions that come and go."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import smelt
from smelt.ir.process import Process, process


def test_names_are_unique() -> None:
    own = Process()
    table = own.keep("a table", {})
    table[1] = 2
    assert own.entries() == {"a table": 1}
    with pytest.raises(ValueError, match="the process has two objects named 'a table'"):
        own.keep("a table", {})


def test_functions_that_are_gone_leave_nothing_behind() -> None:
    def compile_one(number: int) -> None:
        compiled = smelt.jit(lambda x: (x * number).sum())
        assert compiled(np.ones(3)) == 3 * number

    compile_one(1)
    gc.collect()
    before = process.entries()
    for number in range(40):
        compile_one(number)
    gc.collect()
    grown = {name: size for name, size in process.entries().items() if size > before.get(name, 0)}
    # Lines of errors have a bound of their own; registries and roles grow with classes and ops that are met.
    assert set(grown) <= {"lines of functions", "roles of statements", "statements without a body"}, grown
