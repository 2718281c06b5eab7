"""`smelt bench --calls`: the overhead of a call beside its kernels, by part."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import jit, ops
from ..jit import Jitted
from .terminal import heading, table, time_text

ROUNDS = 15
SECONDS = 2e-3  # least duration of a round


def show_calls() -> None:
    """Print a table: a row for each kind of call, a column for each part of its time."""
    rows: list[tuple[str, ...]] = [("call", "whole", "Python", "guards", "results", "kernels", "made by")]
    for name, (function, args, kwargs) in kinds_of_calls().items():
        parts = measure(jit(function), args, kwargs)
        rows.append((name, *map(time_text, parts), "native code") if len(parts) == 5 else python_row(name, parts[0]))
    print(heading("\na call, by parts"))
    print(table(rows, right=range(1, 6)))


def python_row(name: str, whole: float) -> tuple[str, ...]:
    return (name, time_text(whole), "-", "-", "-", "-", "Python")


def kinds_of_calls() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    def array(*shape: int) -> np.ndarray:
        return np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    def update(parameters: list[Any], gradients: list[Any], means: list[Any], squares: list[Any]) -> Any:
        means = [0.9 * mean + 0.1 * gradient for mean, gradient in zip(means, gradients)]
        squares = [0.99 * square + 0.01 * gradient**2 for square, gradient in zip(squares, gradients)]
        moved = [item - 1e-3 * m / (s**0.5 + 1e-8) for item, m, s in zip(parameters, means, squares)]
        return moved, means, squares

    three = tuple(array(64, 64) for _ in range(3))
    small = tuple(array(8, 8) for _ in range(3))
    weights = {f"layer{number}": {"weight": array(8, 8), "bias": array(8)} for number in range(4)}

    def layers(x: Any, params: dict[str, Any]) -> Any:
        for layer in params.values():
            x = x * layer["weight"] + layer["bias"]
        return x

    def multiply_add(x: Any, y: Any, z: Any) -> Any:
        return ops.tanh(x * y + z)

    many = tuple([array(4, 4) for _ in range(48)] for _ in range(4))
    return {
        "3 arrays, 64 x 64": (multiply_add, three, {}),
        "3 arrays, 8 x 8": (multiply_add, small, {}),
        "3 arrays by name": (multiply_add, (), dict(zip("xyz", small))),
        "an array and 2 numbers": (lambda x, a, b: x * a + b, (small[0], 2.5, 3), {}),
        "random numbers": (lambda x: ops.dropout(x, 0.5), small[:1], {}),
        "8 results": (lambda x: [x + number for number in range(8)], small[:1], {}),
        "a dict of 4 dicts of 2 arrays": (layers, (small[0], weights), {}),
        "4 lists of 48 arrays, 144 results": (update, many, {}),
    }


def measure(function: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, ...]:
    """Return the seconds of a whole call, of Python around native code, of guards, of making results and of kernels;
    only of the whole if the call takes the Python path."""
    for _ in range(4):
        function(*args, **kwargs)
    if not function.recent:
        return (fastest(lambda: function(*args, **kwargs)),)
    enter = function.recent[0][0]
    # All guards pass but the last one: an unexpected keyword.
    more = {**kwargs, "": None}
    kernels, nothing = native_calls(function)
    whole, native, refused, run, empty = fastest_of(
        lambda: function(*args, **kwargs), lambda: enter(args, kwargs), lambda: enter(args, more), kernels, nothing
    )
    kernel = max(run - empty, 0.0)
    guards = min(refused, native)
    return whole, max(whole - native, 0.0), guards, max(native - guards - kernel, 0.0), kernel


def native_calls(function: Jitted) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return a call of the kernels alone, on fixed arrays, and a call of an empty native function."""
    from ..backend.cpu.call.executable import Frame, address_of
    from ..backend.cpu.image.image import Image
    from ..backend.cpu.llvm.engine import engine
    from ..backend.cpu.llvm.parts import Part
    from ..backend.cpu.runtime.threads import pool

    ((types, shapes), bound) = next(iter(function.exact.items()))
    launcher = bound.launch
    frame = Frame(launcher.executable)
    frame.fit(launcher, pool())
    params = bound.complete([np.ones(shape, dtype) for shape, dtype in zip(shapes, types[2])])
    results = [np.empty(shape, dtype) for shape, dtype in launcher.stored]
    launcher.pack(frame.block, launcher.offset, *map(address_of, params), *map(address_of, results))
    text = "define void @nothing(ptr %ctx) { ret void }"
    code = engine().object_code([Part(text, plain=True)])
    image = Image(code)
    empty = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(image["nothing"])

    def kernels() -> tuple[Any, ...]:
        launcher.run(frame.address)
        return params, results

    def nothing() -> tuple[Any, ...]:
        empty(frame.address)
        return image, results

    return kernels, nothing


def fastest(call: Callable[[], Any]) -> float:
    return fastest_of(call)[0]


def fastest_of(*calls: Callable[[], Any]) -> list[float]:
    """Return the seconds per call of the fastest round of each function; rounds are interleaved."""
    counts, best = [], []
    for call in calls:
        begin = time.perf_counter()
        call()
        counts.append(max(int(SECONDS / (time.perf_counter() - begin)), 10))
        best.append(float("inf"))
    for _ in range(ROUNDS):
        for position, (call, count) in enumerate(zip(calls, counts)):
            begin = time.perf_counter()
            for _ in range(count):
                call()
            best[position] = min(best[position], (time.perf_counter() - begin) / count)
    return best
