"""Modules in parts that threads compile at the same time."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.cpu.codegen.emit import ModuleEmitter
from smelt.backend.cpu.host import host
from smelt.backend.cpu.image.cached import Kept
from smelt.backend.cpu.image.image import Image
from smelt.backend.cpu.llvm.engine import Compiler, Engine, EngineLimits, Started, _native, engine
from smelt.backend.cpu.llvm.parts import SIZES, Module, Part, declaration
from smelt.backend.cpu.microkernels import libraries, loaded
from smelt.backend.options import CompileOptions
from smelt.backend.process.apart import Pauses
from smelt.ir.errors import CompileError
from smelt.passes.fusion.fuse import fuse
from smelt.passes.lower.libraries import expected_libraries, kernel_libraries
from smelt.passes.lower.lower import lower
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from support import run


def chain(count: int) -> Module:
    """f0 calls f1, which calls f2, and so on; each adds its number. The last one is a plain one."""
    functions = []
    for number in range(count):
        padding = f"  ; {'.' * SIZES.least}\n"
        call = f"  %deeper = call i64 @f{number + 1}(i64 %more)\n" if number + 1 < count else ""
        result = "%deeper" if call else "%more"
        functions.append(
            f"define i64 @f{number}(i64 %x) nounwind {{\n{padding}  %more = add i64 %x, {number}\n{call}"
            f"  ret i64 {result}\n}}"
        )
    return Module(hot=functions[:-1], plain=functions[-1:])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_functions_of_all_parts_find_each_other(threads: int) -> None:
    module = chain(9)
    parts = module.parts(threads)
    assert [part.plain for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) == (2 if threads == 1 else min(3 * threads, 8) + 1)
    for number in range(9):
        assert sum(f"define i64 @f{number}(" in part.text for part in parts) == 1
    code = engine().object_code(parts, threads)
    image = Image(code)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(image["f0"])(100) == 100 + sum(range(9))


def test_several_modules_are_told_apart() -> None:
    texts = [f"define i64 @answer() {{\n  ret i64 {number}\n}}" for number in range(4)]
    started = [engine().start([Part(text, plain=number % 2 == 0)], 3) for number, text in enumerate(texts)]
    for number, module in reversed(list(enumerate(started))):
        image = Image(module.image())
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(image["answer"])() == number


def test_what_llvm_refuses_is_an_error_and_nothing_worse() -> None:
    parts = [Part(text, plain=False) for text in ("define void @f() { ret void }", "define void @g() { return }")]
    for _ in range(2):
        with pytest.raises(CompileError, match="LLVM does not understand"):
            engine().object_code(parts, threads=2)
    code = engine().object_code(parts[:1], threads=2)
    assert Image(code)["f"]


def test_a_module_that_was_started_is_compiled_meanwhile() -> None:
    started = engine().start(chain(5).parts(2), 2)
    end = time.monotonic() + 60
    while not all(item.is_done for item in started.parts):  # nobody has asked for it
        assert time.monotonic() < end
        time.sleep(1e-3)
    image = Image(started.image())
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(image["f0"])(100) == 100 + sum(range(5))
    assert started.image() == engine().object_code(chain(5).parts(2), 1)


def test_a_module_that_no_thread_has_begun_with_is_compiled_when_it_is_asked_for() -> None:
    started = engine().start(chain(5).parts(2), 1)  # no thread beside the caller's
    assert all(item.waits for item in started.parts)
    assert Image(started.image())["f0"]


def test_a_thread_finds_what_comes_while_it_compiles() -> None:
    first = engine().start(chain(5).parts(1), 1)
    compiler = Compiler(engine()._machine)
    second = engine().start(chain(9).parts(1), 1)
    assert compiler.take(first.parts[0], 1 << 62)
    assert all(item.is_done for item in (*first.parts, *second.parts))
    assert not compiler.take(first.parts[0], 1)
    assert Image(second.image())["f0"]


def test_an_interrupt_leaves_parts_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (engine().start(chain(number).parts(1), 1) for number in (3, 9))
    usual, seen = Pauses.pause, []

    def interrupted(pauses: Pauses) -> None:
        seen.append(pauses)
        if len(seen) == 1:
            raise KeyboardInterrupt
        usual(pauses)

    monkeypatch.setattr(Pauses, "pause", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first.image()
    for module in (second, first):
        assert Image(module.image())["f0"]


def test_an_interrupt_while_a_part_is_added_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def append(self, *jobs: Any) -> None:
            usual.append(*jobs)
            raise KeyboardInterrupt

    usual = _native()
    first = engine().start(chain(3).parts(1), 1)
    with monkeypatch.context() as patch:
        patch.setattr(_native, "made", [Interrupted()])
        with pytest.raises(KeyboardInterrupt):
            engine().start(chain(5).parts(1), 1)
    third = engine().start(chain(9).parts(1), 1)
    assert Image(first.image())["f0"]
    assert Image(third.image())["f0"]


def test_a_part_that_llvm_does_not_end_with_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smelt.backend.cpu.llvm.engine, "LIMITS", EngineLimits(slow=0.0))
    with pytest.warns(RuntimeWarning, match="LLVM has been compiling f0, f1 for 0 seconds"):
        engine().object_code([Part("\n".join(chain(3).hot) + "\ndeclare i64 @f2(i64)", plain=False)])


ZEROS = ", ".join(f"i1 {'poison' if lane < 16 else 'false'}" for lane in range(64))
PLACES = ", ".join(f"i32 {lane if lane < 16 else 64 + lane}" for lane in range(64))
# LLVM 22 does not end with this where it has AVX-512.
ENDLESS = f"""define void @endless(ptr %p) #0 {{
  %a = load volatile <64 x i64>, ptr %p
  %m = load volatile <64 x i1>, ptr %p
  %x = load volatile <64 x i1>, ptr %p
  %y = shufflevector <64 x i1> %x, <64 x i1> <{ZEROS}>, <64 x i32> <{PLACES}>
  %z = and <64 x i1> %m, %y
  %w = zext <64 x i1> %z to <64 x i64>
  %s = add <64 x i64> %a, %w
  store <64 x i64> %s, ptr %p
  ret void
}}
attributes #0 = {{ "prefer-vector-width"="512" "min-legal-vector-width"="512" }}
"""


def test_an_interrupt_ends_a_process_whose_compiler_does_not_end() -> None:
    code = f"""
import signal
from smelt.backend.cpu.llvm.engine import engine
from smelt.backend.cpu.llvm.parts import Part

engine().object_code([Part("define void @f() {{ ret void }}", True)])
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    engine().object_code([Part({ENDLESS!r}, False)])
except KeyboardInterrupt:
    pass
print("done")
"""
    assert run(code) == "done"


def test_a_part_that_an_interrupt_kept_from_the_list_is_compiled_by_who_waits() -> None:
    lost = engine().start(chain(3).parts(1), 1)
    engine().first = engine().last = None
    assert Image(engine().object_code(chain(5).parts(2), 2))["f0"]
    assert Image(lost.image())["f0"]


def test_compiling_does_not_wait_for_pythons_lock() -> None:
    """Not even between two parts: this thread never gives it up."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        started = engine().start(chain(9).parts(2), 2)
        end = time.monotonic() + 30
        while all(item.waits for item in started.parts) and time.monotonic() < end:
            time.sleep(1e-3)  # until the thread has begun
        while not all(item.is_done for item in started.parts) and time.monotonic() < end:
            pass
    finally:
        sys.setswitchinterval(before)
    assert time.monotonic() < end
    assert Image(started.image())["f0"]


def test_no_threads_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smelt.backend.cpu.llvm.engine, "start_thread", lambda *arguments: False)
    assert Image(engine().object_code(chain(5).parts(2), 2))["f0"]


def test_threads_that_never_begin_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those that have no memory for their first call."""
    monkeypatch.setattr(smelt.backend.cpu.llvm.engine, "start_thread", lambda *arguments: True)
    assert Image(engine().object_code(chain(5).parts(2), 2))["f0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_compiles_what_its_parent_had_started() -> None:
    started = engine().start(chain(9).parts(2), 2)
    child = os.fork()
    if not child:
        again = engine().object_code(chain(9).parts(2), 2)
        os._exit(0 if started.image() == again else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Image(started.image())["f0"]


def test_a_library_that_another_thread_just_stores_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    smelt.get_num_threads()  # the run time is stored before
    monkeypatch.setattr(loaded, "images", {})
    monkeypatch.setattr(Kept, "find", lambda kept: None)
    usual, bits = libraries.library, host().machine.vector_bits
    begun, storing, done = (threading.Event() for _ in range(3))
    ready: list[bool] = []

    def library(name: str, bits: int) -> Module:
        if name == "f32 rest":
            begun.set()
            storing.wait(60)
        return usual(name, bits)

    def store(kept: Kept, code: bytes) -> None:
        if not storing.is_set():
            storing.set()
            done.wait(60)

    def second() -> None:
        try:
            libraries.finish(["f32", "f32 rest"], bits)
            ready.extend(loaded.find(name, bits) is None for name in ("f32", "f32 rest"))
        finally:
            done.set()

    monkeypatch.setattr(libraries, "library", library)
    monkeypatch.setattr(Kept, "store", store)
    thread = threading.Thread(target=second)
    thread.start()
    begun.wait(60)
    libraries.finish(["f32"], bits)
    thread.join()
    assert ready == [True, True]


def test_a_declaration_has_types_and_no_names() -> None:
    text = "; what for\ndefine <16 x float> @rare.f(<16 x float> %a0, ptr noalias %b) noinline cold #0 {\n  ret\n}"
    assert declaration(text) == "declare <16 x float> @rare.f(<16 x float>, ptr noalias)"


def program(x: np.ndarray) -> tuple:
    y = ops.softmax(x, 1)
    return y @ x.mT, ops.sin(x * 1e6) + ops.log(y), ops.cumsum(x, 1), x.mT + 1


def test_layers_of_different_depths_share_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only the routines of products need to know is no part of the code."""
    emitted: list[Module] = []
    usual = ModuleEmitter.finish
    monkeypatch.setattr(ModuleEmitter, "finish", lambda *given: emitted.append(usual(*given)) or emitted[-1])
    rng = np.random.default_rng(0)
    x, first, second = (rng.standard_normal(shape).astype(np.float32) for shape in ((96, 80), (80, 288), (288, 288)))

    def two_layers(x: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return ops.gelu(ops.gelu(x @ first) @ second)

    compile_graph(smelt.jit(two_layers).trace(x, first, second), CompileOptions(verify=True))
    names = [re.findall(r"^define .*@(k\d+_bmm[\w.]*)", text, re.MULTILINE) for text in emitted[-1].hot]
    assert len(sum(names, [])) == 1
    result = smelt.jit(two_layers)(x, first, second)
    exact = smelt.jit(two_layers)(*(item.astype(np.float64) for item in (x, first, second)))
    np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows", [0, 1, 2, 48])
@pytest.mark.parametrize("columns", [1, 2, 48])
@pytest.mark.parametrize("dtype", ["float32", "float16", "complex128", "int64"])
def test_libraries_that_are_expected_are_needed(rows: int, columns: int, dtype: str) -> None:
    graph = smelt.jit(lambda x, y: x @ y).trace(np.ones((rows, 3), dtype), np.ones((3, columns), dtype))
    simple = Pipeline(GRAPH).run(graph)
    machine = host().machine
    fused = fuse(simple, machine=machine)
    needed = {name for kernel in lower(fused, machine) for name in kernel_libraries(kernel, machine)}
    expected = expected_libraries(simple, machine)
    assert set(expected) <= needed
    if rows > 1 and columns > 1 and dtype != "int64":
        assert expected == [{"float32": "f32", "float16": "f32", "complex128": "f64"}[dtype]]


def test_kernels_are_compiled_while_others_are_still_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function is in one part, with all that it needs; the first parts do not wait for the last kernel."""
    started: list[list[str]] = []
    usual = Engine.start

    def start(engine: Engine, parts: Sequence[Part], threads: int, module: Started | None = None) -> Started:
        started.append([part.text for part in parts])
        return usual(engine, parts, threads, module)

    def many(x: np.ndarray, at: np.ndarray) -> list:
        found = [ops.log(ops.sin(x * 1e6).sum(1)), x.mT + 1, x[at], ops.cumsum(x, 1), ops.tanh(x).amax(0)]
        return [*found, ops.erf(x.mT).sum(0), ops.pow(x, x).sum(), ops.lgamma(x).mean(0)]

    x = np.random.default_rng(0).random((70, 90), np.float32)
    at = np.array([3, 69, 0])
    with smelt.threads(1):
        alone = smelt.jit(many)(x, at)
    monkeypatch.setattr(Engine, "start", start)
    with smelt.threads(2):
        graph = smelt.jit(many).trace(x, at)
        found = compile_graph(graph, CompileOptions(verify=True))([x, at])
    for one, other in zip(alone, found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len([parts for parts in started if parts]) >= 3
    names = re.findall(r"^define .*?@([\w.]+)\(", "\n".join(sum(started, [])), re.MULTILINE)
    assert len(names) == len(set(names))


def test_code_is_the_same_for_any_number_of_threads() -> None:
    x = np.random.default_rng(0).standard_normal((70, 90)).astype(np.float32)
    found = []
    for count in (1, 2, 7):
        with smelt.threads(count):
            found.append([item.tobytes() for item in smelt.jit(program)(x)])
    assert found[0] == found[1] == found[2]


def test_threads_of_the_user_compile_at_the_same_time() -> None:
    results: dict[int, float] = {}

    def compile_one(number: int) -> None:
        function = smelt.jit(lambda x: ops.exp(x * number).sum())
        results[number] = float(function(np.ones(50, np.float64)))

    threads = [threading.Thread(target=compile_one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == pytest.approx({number: 50 * np.exp(number) for number in range(4)}, rel=1e-12)


def test_parts_that_are_done_are_forgotten() -> None:
    """Without threads, too: a process that compiles much keeps nothing of it here."""
    while (waiting := engine()._waiting()) is not None:  # that nobody ever asked for
        engine().take(waiting)
    started = engine().start(chain(3).parts(1), 1)
    first = weakref.ref(started.parts[0])
    assert Image(started.image())["f0"]
    del started
    assert Image(engine().object_code(chain(3).parts(1), 1))["f0"]
    assert first() is None
