"""What the tests share: evaluate a function on one of the back ends, and go between NumPy and torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import smelt
import torch
from smelt.backend.cpu.runtime.records import ALIGNMENT
from smelt.ir.asked import Asked
from smelt.ir.graph import Graph, Value, plain, replace_values
from smelt.ir.symbolic import evaluate as evaluated
from smelt.ir.types import TensorType, dtype
from smelt.ops.define import REGISTRY
from smelt.parts import cut

ALL_BACKENDS = ("interp", "cpu", "cuda")
# Numba's simulator of CUDA has a process of its own: it is switched on before Numba is imported.
_SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
BACKENDS = ("cuda",) if _SIMULATED else tuple(os.environ.get("SMELT_TEST_BACKENDS", "interp cpu").split())

TORCH_DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "f8_e4m3fn": torch.float8_e4m3fn,
    "f8_e5m2": torch.float8_e5m2,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
    "c128": torch.complex128,
}


def floats(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def flatten(results: Any) -> list[Any]:
    """A result, or several, as a list."""
    return list(results) if isinstance(results, (tuple, list)) else [results]


def trace(function: Callable[..., Any], arrays: Sequence[np.ndarray], name: str = "test") -> Graph:
    """The graph of a function over arrays of these types."""
    params = [Value(TensorType(dtype(a.dtype), a.shape), name=f"x{i}") for i, a in enumerate(arrays)]
    return Graph.build(name, params, flatten(function(*params)))


def evaluate(function: Callable[..., Any], arrays: Sequence[np.ndarray], backend: str) -> list[np.ndarray]:
    """The results of a function over traced tensors, on one back end."""
    if backend == "interp":
        return interpreted(function, arrays)(arrays)
    if backend in ("cpu", "cuda"):
        # The values themselves have PyTorch's operators, and integers become f32, which is PyTorch's default type.
        run = smelt.jit(lambda *params: function(*map(plain, params)), target=backend)
        return [np.asarray(result) for result in flatten(run(*arrays))]
    raise ValueError(f"no back end {backend!r}; there are {', '.join(ALL_BACKENDS)}")


def interpreted(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> Callable[..., list[np.ndarray]]:
    """A function of arrays of these types by the reference interpreter, part by part where data decide sizes."""
    params = [Value(TensorType(dtype(a.dtype), a.shape), name=f"x{i}") for i, a in enumerate(arrays)]
    with Asked({}) as found:
        results = flatten(function(*params))
    decisions = found.decisions
    graph = Graph.build("test", params, [*results, *(item.count for item in decisions)])
    parts = cut(graph, decisions, graph.results[len(results) :]) if decisions else []

    def run(given: Sequence[np.ndarray]) -> list[np.ndarray]:
        if not parts:
            return interpret(graph, given)
        known: dict[Value, np.ndarray] = dict(zip(params, given, strict=True))
        sizes: dict[str, int] = {}
        for part in parts:
            carriers = [
                np.empty(evaluated(item.shape[0], sizes), bool) for item in part.graph.params[len(part.takes) :]
            ]
            made = interpret(part.graph, [*(known[value] for value in part.takes), *carriers])
            known.update(zip(part.makes, made, strict=True))
            sizes |= {item.symbol.name: int(known[plain(item.count)]) for item in part.decides}
        return [known[value] for value in graph.results[: len(results)]]

    return run


def fitted(cotangent: Value, result: Value) -> Value:
    """The cotangent of a result; data may decide the result's size."""
    for dim, size in enumerate(result.shape):
        if not isinstance(size, int):
            places = REGISTRY["iota"]((size,), dim=0, dtype="i64")
            cotangent = REGISTRY["index_select"](cotangent, dim, places)
    return cotangent


def compiled(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a graph, compiled for the CPU."""
    return evaluate(lambda *params: replay(graph, params), arrays, "cpu")


def replay(graph: Graph, params: Sequence[Value]) -> list[Value]:
    """The results of a graph on other parameters."""
    known: dict[Value, Value] = dict(zip(graph.params, params, strict=True))
    for op in graph.ops:
        arguments = {name: replace_values(item, known) for name, item in op.arguments.items()}
        known.update(zip(op.results, flatten(op.defn.apply(arguments)), strict=True))
    return [known[result] for result in graph.results]


def interpret(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The reference interpreter."""
    from smelt.backend.interp.graph import interpret as run

    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in run(graph, list(arrays))]


def to_torch(array: np.ndarray) -> torch.Tensor:
    """A torch tensor with the same elements. NumPy has no bf16 of its own, so those travel as bits."""
    array = np.array(array, copy=True, order="C")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def from_torch(tensor: torch.Tensor) -> np.ndarray:
    """An array with the same elements."""
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    # Forced: a lazily conjugated or lazily zero tensor is made first.
    return tensor.detach().contiguous().numpy(force=True)


TESTS = Path(__file__).resolve().parent.parent
IMPORTED = (TESTS, TESTS / "helpers")  # what tests import is found here
# Tests that define ops do so when they are collected, some of them before the tests of all ops.
OWN_OPS = {name: op for name, op in REGISTRY.items() if op.function.__module__.startswith("smelt.")}
GUARD = 256
PATTERN = 0xAB


class Guarded:
    """An allocator that leaves a guard around every array."""

    def __init__(self) -> None:
        self.guards: list[np.ndarray] = []

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.full(count + 2 * GUARD + ALIGNMENT, PATTERN, np.uint8)
        start = GUARD + -(memory.ctypes.data + GUARD) % ALIGNMENT
        self.guards += [memory[:start], memory[start + count :]]
        return memory[start : start + count].view(dtype).reshape(shape)

    def empty_arrays(self, layouts: Any) -> list[np.ndarray]:
        return [self.empty(*layout) for layout in layouts]

    def intact(self) -> bool:
        return all((guard == PATTERN).all() for guard in self.guards)


def run(code: str, cwd: Path | None = None, **environment: str) -> str:
    """The output of a program in a process of its own, with this environment and no other; nothing is cached."""
    environment = {"SMELT_CACHE_DIR": "off", "PYTHONPATH": os.environ.get("PYTHONPATH", "")} | environment
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
