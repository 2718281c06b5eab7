"""Compiled code in the wild: bare machines, big arrays, and for a long time."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import smelt
from support import run

PROGRAM = """
import numpy as np
import smelt
from smelt import ops

@smelt.jit
def layer(x, w):
    return ops.gelu(x @ w).sum(1) + ops.softmax(x, 1)[:, 0]

x = np.random.default_rng(0).standard_normal((64, 32)).astype("float32")
w = np.random.default_rng(1).standard_normal((32, 16)).astype("float32")
result = layer(x, w)
assert result.shape == (64,) and np.isfinite(result).all()
print("fine")
"""


# Bare machines.


def test_no_compiler_no_home_no_environment() -> None:
    assert run(PROGRAM, PATH="", HOME="/nonexistent") == "fine"
    assert run(PROGRAM) == "fine"


def test_a_working_directory_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    folder.chmod(0o555)
    try:
        assert run(PROGRAM, cwd=folder, HOME=str(folder), TMPDIR="/nonexistent") == "fine"
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o755)


def test_a_compiler_that_is_too_old_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from llvmlite import binding
    from smelt.backend.cpu.host import host
    from smelt.backend.cpu.llvm.engine import Engine

    monkeypatch.setattr(binding, "llvm_version_info", (20, 1, 8))
    with pytest.raises(smelt.SmeltError, match=r"LLVM 20\.1\.8"):
        Engine(host())


def test_no_process_is_started() -> None:
    code = f"import os, subprocess\nos.fork = os.posix_spawn = subprocess.Popen = None\n{PROGRAM}"
    assert run(code) == "fine"


def test_import_loads_nothing_heavy() -> None:
    code = """
import sys
import smelt
print(sorted(set(sys.modules) & {"llvmlite", "scipy", "sympy", "torch", "numba"}))
"""
    assert run(code) == "[]"


def test_sympy_and_torch_are_not_loaded_by_compiling() -> None:
    code = f"{PROGRAM}\nlayer(x[:9], w)\nimport sys\nprint(sorted(set(sys.modules) & {{'sympy', 'torch', 'numba'}}))"
    assert run(code).splitlines() == ["fine", "[]"]


def test_the_process_ends_while_workers_sleep() -> None:
    code = f"import smelt\nsmelt.set_num_threads(4)\n{PROGRAM}\nlayer(np.tile(x, (500, 1)), w)"
    assert run(code) == "fine"


# Big arrays, and for a long time.


def test_big_arrays() -> None:
    data = np.ones((2**13, 2**12), np.float32)
    total, last = smelt.jit(lambda x: ((x * 2).sum(), (x + 1)[-1, -1]))(data)
    assert total == 2**26 and last == 2


def test_an_index_beyond_32_bits() -> None:
    # More than 2**32 bytes in one buffer; pages that nothing touches cost nothing.
    data = np.zeros((2**31 + 64,), np.int8)
    data[-1] = 7
    found = smelt.jit(lambda x, i: x[i])(data, np.array([2**31 + 63, 0]))
    np.testing.assert_array_equal(found, [7, 0])


RESIDENT = """
import gc
import numpy as np
import smelt
from smelt import ops

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

function = smelt.jit(lambda x: (ops.softmax(x, 1), x.T, (x @ x.T).sum(), x))
x = np.ones((200, 250), np.float32)
bad = smelt.jit(lambda x, i: x[i])

def turn(count):
    for number in range(count):
        function(x)
        try:
            bad(x, np.array([10**6]))
        except IndexError:
            pass
    gc.collect()

turn(100)
before = resident()
turn(1500)
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/statm")
def test_memory_does_not_grow() -> None:
    # Each turn makes 600 KB: one array in a hundred kept would be 9 MB.
    assert int(run(RESIDENT)) < 4_000_000


def test_results_and_inputs_are_released() -> None:
    import gc
    import weakref

    function = smelt.jit(lambda x: x * 2)
    given = np.ones(1000, np.float32)
    made = function(given)
    watched = [weakref.ref(given), weakref.ref(made)]
    del given, made
    gc.collect()
    assert [reference() for reference in watched] == [None, None]
