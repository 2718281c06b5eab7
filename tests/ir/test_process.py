"""The state of a process: all of it is known by name, and none of it grows with the functions that come and go."""

from __future__ import annotations

import gc
import importlib

import numpy as np
import pytest
import smelt
from smelt.ir.process import Process, process


def test_entries() -> None:
    own = Process()
    own.keep("a table", {})[1] = 2
    assert own.entries() == {"a table": 1}


def test_a_module_may_be_imported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an interrupt in its first import, or by IPython's autoreload."""
    import smelt.random

    seeds = smelt.random.next_seed()
    importlib.reload(smelt.random)
    smelt.manual_seed(3)
    assert smelt.random.next_seed()[0] != seeds[0] or seeds[0] == 3


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
