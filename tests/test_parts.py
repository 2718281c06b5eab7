"""Modules in parts that threads compile at the same time."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.cpu import libraries, products
from smelt.backend.cpu.cached import Kept
from smelt.backend.cpu.engine import Compiler, engine
from smelt.backend.cpu.image import Image
from smelt.backend.cpu.parts import LEAST, Module, Part, declaration
from smelt.backend.cpu.target import host
from smelt.ir.errors import CompileError


def chain(count: int) -> Module:
    """f0 calls f1, which calls f2, and so on; each adds its number. The last one is a plain one."""
    functions = []
    for number in range(count):
        padding = f"  ; {'.' * LEAST}\n"
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
    for item in started.parts:
        assert item.done.wait(60)  # nobody has asked for it
    image = Image(started.image())
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(image["f0"])(100) == 100 + sum(range(5))
    assert started.image() == engine().object_code(chain(5).parts(2), 1)


def test_who_waits_helps() -> None:
    started = engine().start(chain(5).parts(2), 1)  # no thread beside the caller's
    assert not any(item.done.is_set() for item in started.parts)
    assert Image(started.image())["f0"]


def test_an_interrupt_is_for_who_has_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who helps with a part of another module leaves it as it was."""
    first, second = (engine().start(chain(number).parts(1), 1) for number in (3, 9))
    usual, texts = Compiler.emit, []

    def interrupted(compiler: Compiler, text: str, *rest: bool) -> bytes:
        texts.append(text)
        if len(texts) == 1:
            raise KeyboardInterrupt
        return usual(compiler, text, *rest)

    monkeypatch.setattr(Compiler, "emit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first.image()
    assert "@f8(" in texts[0]
    for module in (second, first):
        assert Image(module.image())["f0"]


def test_who_waits_for_a_part_whose_thread_is_interrupted_compiles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started = engine().start([Part("define i64 @f() {\n  ret i64 1\n}", plain=True)], 1)
    usual, inside, go_on = Compiler.emit, threading.Event(), threading.Event()

    def interrupted(compiler: Compiler, *rest: Any) -> bytes:
        if not inside.is_set():
            inside.set()
            go_on.wait(60)
            raise KeyboardInterrupt
        return usual(compiler, *rest)

    monkeypatch.setattr(Compiler, "emit", interrupted)
    thread = threading.Thread(target=lambda: pytest.raises(KeyboardInterrupt, engine().take))
    thread.start()
    inside.wait(60)
    threading.Timer(0.2, go_on.set).start()
    assert Image(started.image())["f"]
    thread.join()


def test_no_threads_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
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
    monkeypatch.setattr(products, "_loaded", {})
    monkeypatch.setattr(Kept, "find", lambda kept: None)
    usual, bits = libraries.library, host().vector_bits
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
            ready.extend(products.find(name, bits) is None for name in ("f32", "f32 rest"))
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
