"""Code that leans on internals of CPython, NumPy or llvmlite looks first whether they are as it expects, and there is a
slower way if they are not: docs/decisions has the list. Here the look fails, and programs still give right results."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import llvmlite.binding as llvm
import numpy as np
import pytest
import smelt
from smelt.backend.cpu.call import entry
from smelt.backend.cpu.llvm import engine
from smelt.backend.cpu.runtime import allocator
from smelt.backend.process.forks import is_mine
from smelt.backend.process.stack_chunk import ROOM, ask_for_room
from smelt.ir.errors import CompileError
from support import run

PROGRAM = """
import os
import numpy as np
import smelt
from smelt import ops

rng = np.random.default_rng(0)
x, y = (rng.standard_normal((200, 300)).astype(np.float32) for _ in range(2))

@smelt.jit
def layer(x, y, b):
    return {"rows": ops.softmax(x @ y.T, 1), "all": (x * y + b, [x[0] - y[0]])}

def check():
    found, product = layer(x, y, 2.5), np.exp(x.astype(float) @ y.T)
    np.testing.assert_allclose(found["rows"], product / product.sum(1, keepdims=True), rtol=2e-3, atol=1e-6)
    np.testing.assert_allclose(found["all"][0], x * y + 2.5, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["all"][1][0], x[0] - y[0])

for _ in range(4):
    check()
if hasattr(os, "fork"):
    child = os.fork()
    if not child:
        check()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
smelt.empty_cache()
"""
# What makes the look fail, before anything is compiled; then what shows that the slower way was taken.
REFUSED = {
    "an array's data is not found in its object": (
        "from smelt.backend.cpu.runtime import records; records.DATA_OFFSET, records.HAS_ENTRY = None, False",
        "from smelt.backend.cpu.call import executable; assert executable.address_of is not id and not layer.recent",
    ),
    "objects have their fields elsewhere": (
        "from smelt.backend.cpu.call import entry; entry._layout_known = lambda: False",
        "assert not layer.recent",
    ),
    "arrays have their handlers elsewhere": (
        "from smelt.backend.cpu.call import entry; entry._handler_known = lambda: False",
        "assert not layer.recent",
    ),
    "NumPy's functions have another version": (
        "from smelt.backend.cpu.runtime import allocator; allocator._VERSIONS = ()",
        "assert allocator.allocator() is None and not layer.recent",
    ),
    "there is no allocator": (
        "from smelt.backend.cpu.runtime import allocator; allocator.HAS_ALLOCATOR = False",
        "assert allocator.allocator() is None",
    ),
    "llvmlite's functions are not known": (
        "from smelt.backend.cpu.llvm import engine; engine.internals_known = lambda: False",
        "assert {type(item) for item in engine.engine().compilers} == {engine.PublicCompiler}",
    ),
    "OpenMP's functions are missing": (
        "from smelt.backend.cpu.runtime import openmp; openmp._mapped_library = lambda: None",
        "from smelt.backend.cpu.runtime.threads import pool; assert openmp.openmp_threads() is pool()",
    ),
}
EMPTY_CACHE = "import os, tempfile; os.environ['SMELT_CACHE_DIR'] = tempfile.mkdtemp()\n"


@pytest.mark.parametrize("name", REFUSED)
def test_slower_ways_give_the_same(name: str) -> None:
    refuse, shown = REFUSED[name]
    run(f"{EMPTY_CACHE}{refuse}\n{PROGRAM}\n{shown}")


def test_all_is_as_expected_here() -> None:
    """The versions that the tests run with have the fast ways."""
    assert entry.native_code() is not None and allocator.allocator() is not None
    assert engine.internals_known()
    assert ask_for_room((lambda: None).__code__, ROOM).co_stacksize == ROOM


@pytest.mark.parametrize("missing", ("LLVMPY_ParseAssembly", "_lock"))
def test_another_llvmlite_is_noticed(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: getattr(llvm.ffi.lib, name) for name in (*engine.SIGNATURES, "_lock") if name != missing}
    monkeypatch.setattr(llvm.ffi, "lib", SimpleNamespace(**known))
    assert not engine.internals_known.__wrapped__()


def test_functions_with_other_arguments_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.SIGNATURES, "LLVMPY_ParseAssembly", 4)
    assert not engine.internals_known.__wrapped__()


def test_arrays_that_are_laid_out_otherwise_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(entry.ArrayObject):
        """Its sizes are where the strides are."""

        @property
        def sizes(self) -> object:
            return self.strides

    assert entry._layout_known()
    monkeypatch.setattr(entry, "ArrayObject", Other)
    assert not entry._layout_known()


def test_an_interpreter_that_refuses_large_frames() -> None:
    def refuse(**_: int) -> None:
        raise ValueError

    code = SimpleNamespace(replace=refuse)
    assert ask_for_room(code, ROOM) is code  # type: ignore[arg-type, comparison-overlap]


def test_whose_lock_it_is() -> None:
    lock, found = threading.RLock(), []
    assert not is_mine(lock)
    with lock:
        thread = threading.Thread(target=lambda: found.append(is_mine(lock)))
        thread.start()
        thread.join()
        assert is_mine(lock) and found == [False]
    assert not is_mine(lock)


def test_another_numba_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from smelt.backend.cuda.toolchain import compiler

    nvrtc = pytest.importorskip("numba.cuda.cudadrv.nvrtc")
    monkeypatch.delattr(nvrtc, "get_supported_ccs")
    with pytest.raises(CompileError, match="not numba-cuda of a version"):
        compiler.supported.__wrapped__()


def test_errors_of_public_functions() -> None:
    code = """
from smelt.backend.cpu.llvm import engine
engine.internals_known = lambda: False
from smelt.backend.cpu.llvm.parts import Part
from smelt.ir.errors import CompileError
for threads in (1, 2):
    try:
        engine.engine().object_code([Part("nothing", False), Part("define void @f() { ret void }", True)], threads)
    except CompileError as error:
        assert "does not understand" in str(error)
    else:
        raise AssertionError
"""
    run(code)


def test_results_are_ordinary_without_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "allocator", lambda: None)
    found = smelt.jit(lambda x: x + 1)(np.zeros(5000, np.float32))
    np.testing.assert_array_equal(found, np.ones(5000, np.float32))
