"""Scatters and gathers: every way to share them out gives what updates in turn give, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt import CompileOptions, ops
from smelt.backend.compile import compile_graph
from smelt.backend.cpu.host import host
from smelt.backend.interp.loops import interpret_kernels
from smelt.ir.errors import IndexRangeError
from smelt.kernels.loop.ir import Kernel, Load, Loop, Store, walk
from smelt.kernels.loop.text import print_kernel
from smelt.kernels.machine import DEFAULT, ScatterTiling, Sharing
from smelt.passes.fusion.fuse import fuse
from smelt.passes.lower.lower import lower
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from smelt.passes.stages import cpu_loops, schedule
from support import evaluate, flatten, trace

RANDOM = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def kernels_of(function: Callable[..., Any], arrays: list[np.ndarray], bits: int = 256) -> list[Kernel]:
    seen: dict[str, Any] = {}
    compile_graph(trace(function, arrays), CompileOptions(vector_bits=bits, verify=True), seen.__setitem__)
    return list(seen["loops"])


def parallel_loops(kernel: Kernel) -> list[Loop]:
    return [item for item in walk(kernel.body) if isinstance(item, Loop) and item.kind == "parallel"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small scatters are shared out, too."""
    scatter = ScatterTiling(rows=4, row_bytes=8, chunk=8, tiles=3, slice=4)
    machine = host().machine.but(sharing=Sharing(updates=1), scatter=scatter)
    monkeypatch.setattr(host(), "machine", machine)


def in_turn(self: np.ndarray, index: np.ndarray, source: np.ndarray) -> np.ndarray:
    result = self.copy()
    for place, row in zip(index, source, strict=True):
        result[place] += row
    return result


def add_rows(self: Any, index: Any, source: Any) -> Any:
    return ops.index_add(self, 0, index, source)


def write_rows(self: Any, index: Any, source: Any) -> Any:
    return ops.index_copy(self, 0, index, source)


ROWS = (floats(13, 6), RANDOM.integers(0, 13, 29), floats(29, 6))
MANY = (floats(700, 40), RANDOM.integers(0, 700, 30_000), floats(30_000, 40))

WAYS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "rows added": (add_rows, ROWS),
    "rows written": (write_rows, ROWS),
    "rows of a batch": (
        lambda x, i, s: ops.index_add(x, 1, i, s),
        (floats(3, 5, 6), RANDOM.integers(0, 5, 9), floats(3, 9, 6)),
    ),
    "rows by two indices": (
        lambda x, i, j, s: ops.index_put(x, (i, j), s, True),
        (floats(3, 5, 6), RANDOM.integers(-3, 3, 29), RANDOM.integers(-5, 5, 29), floats(29, 6)),
    ),
    "indices around a dim": (
        lambda x, i, j, s: ops.index_put(x, (i, None, j), s, True),
        (floats(3, 4, 5), RANDOM.integers(0, 3, 29), RANDOM.integers(0, 5, 29), floats(29, 4)),
    ),
    "one row for all": (
        lambda x, i, s: ops.index_put(x, (i,), s, True),
        (floats(9, 4), RANDOM.integers(0, 9, 30), floats(4)),
    ),
    "in each row": (
        lambda x, i, s: ops.scatter_add(x, 1, i, s),
        (floats(6, 5), RANDOM.integers(0, 5, (6, 20)), floats(6, 20)),
    ),
    "in some rows": (
        lambda x, i, s: ops.scatter_add(x, 1, i, s),
        (floats(9, 5), RANDOM.integers(0, 5, (6, 20)), floats(7, 20)),
    ),
    "in each column": (
        lambda x, i, s: ops.scatter_add(x, 0, i, s),
        (floats(3, 11), RANDOM.integers(0, 3, (20, 11)), floats(20, 11)),
    ),
    "largest in each column": (
        lambda x, i, s: ops.scatter_reduce(x, 0, i, s, "amax"),
        (floats(3, 11), RANDOM.integers(0, 3, (20, 11)), floats(20, 11)),
    ),
    "numbers": (add_rows, (floats(9), RANDOM.integers(0, 9, 50), floats(50))),
    "messages": (
        lambda x, i, j, w: ops.index_add(ops.zeros_like(x), 0, j, ops.index_select(x, 0, i) * w),
        (floats(13, 6), RANDOM.integers(0, 13, 29), RANDOM.integers(0, 13, 29), floats(29, 1)),
    ),
}


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("name", WAYS)
def test_ways_to_share_out(name: str, bits: int, small: None) -> None:
    function, arrays = WAYS[name]
    (wanted,) = evaluate(function, arrays, "interp")
    for dynamic in (False, None):
        compiled = smelt.jit(function, options=CompileOptions(vector_bits=bits, verify=True), dynamic=dynamic)
        # Messages are scaled and added in one rounding.
        np.testing.assert_allclose(compiled(*arrays), wanted, rtol=0, atol=1e-6 if name == "messages" else 0)


PLACES: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda m: m.zeros((29,), dtype=LONG[m]),
    "full": lambda m: m.full((29,), 5, dtype=LONG[m]),
    "expanded": lambda m: (m.full((1,), 3, dtype=LONG[m]) + 1).expand(29),
}
LONG: dict[Any, Any] = {ops: "i64", torch: torch.int64}
AT_ONE_PLACE: dict[str, Callable[..., Any]] = {
    "index_add": lambda m, x, i, s: m.index_add(x, 0, i, s),
    "index_copy": lambda m, x, i, s: m.index_copy(x, 0, i, s.expand(29, 6)),
    "index_put": lambda m, x, i, s: m.index_put(x, (i,), s),
    "index_put that adds": lambda m, x, i, s: m.index_put(x, (i,), s, True),
    "embedding's gradient": lambda m, x, i, s: m.embedding_dense_backward(s, i, 13, -1, False),
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", AT_ONE_PLACE)
def test_all_rows_go_to_one_place(name: str, places: str, small: None) -> None:
    """The place varies with nothing, and still its counter is read anew for each row."""
    x, s = floats(13, 6), floats(29, 6)
    if "copy" in name or name == "index_put":
        s = np.broadcast_to(s[:1], s.shape).copy()  # PyTorch does not say which of different rows stays
    function = AT_ONE_PLACE[name]
    torch_ops = torch.ops.aten if "embedding" in name else torch
    wanted = function(torch_ops, torch.from_numpy(x), PLACES[places](torch), torch.from_numpy(s))
    for dynamic in (False, None):
        compiled = smelt.jit(lambda x, s: function(ops, x, PLACES[places](ops), s), dynamic=dynamic)
        np.testing.assert_allclose(compiled(x, s), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WAYS)
def test_loops_of_the_ways(name: str, small: None) -> None:
    function, arrays = WAYS[name]
    graph = Pipeline(GRAPH).run(trace(function, arrays))
    fused = fuse(graph)
    kernels = [schedule(kernel, cpu_loops(DEFAULT), True) for kernel in lower(fused)]
    np.testing.assert_array_equal(
        interpret_kernels(fused, kernels, list(arrays))[0], evaluate(function, arrays, "interp")[0]
    )


def test_many_rows_are_shared_out_and_keep_their_order() -> None:
    (kernel,) = kernels_of(add_rows, list(MANY))
    assert len(parallel_loops(kernel)) == 2  # the sort, the tiles
    compiled = smelt.jit(add_rows)
    with smelt.threads(1):
        one = compiled(*MANY)
    with smelt.threads(2):
        two = compiled(*MANY)
    np.testing.assert_array_equal(one, in_turn(*MANY))
    np.testing.assert_array_equal(two, one)


def test_the_last_write_wins() -> None:
    self, index, source = MANY
    wanted = self.copy()
    for place, row in zip(index, source, strict=True):
        wanted[place] = row
    np.testing.assert_array_equal(smelt.jit(write_rows)(self, index, source), wanted)


def test_rows_and_columns_are_shared_out_in_one_region() -> None:
    along_rows = [floats(64, 50), RANDOM.integers(0, 50, (64, 1000)), floats(64, 1000)]
    along_columns = [floats(50, 256), RANDOM.integers(0, 50, (300, 256)), floats(300, 256)]
    for dim, arrays in ((1, along_rows), (0, along_columns)):
        (kernel,) = kernels_of(lambda x, i, s, dim=dim: ops.scatter_add(x, dim, i, s), arrays)
        assert len(kernel.body) == len(parallel_loops(kernel)) == 1


@pytest.mark.parametrize("place", [0, 4500, 29_999])
def test_an_index_out_of_range_is_reported(place: int) -> None:
    self, index, source = MANY
    index = index.copy()
    index[place] = 700
    with pytest.raises(IndexRangeError, match="index_add: index 700 is out of range for a dimension of size 700"):
        smelt.jit(add_rows)(self, index, source)


@pytest.mark.parametrize(
    "function", [lambda x, i: ops.embedding(x, i), lambda x, i: ops.gather(x, 0, i.expand((4, 3)))]
)
def test_nothing_is_read_of_an_empty_table(function: Callable[..., Any]) -> None:
    with pytest.raises(IndexRangeError, match="index 0 is out of range for a dimension of size 0"):
        smelt.jit(function)(
            np.empty((0, 3), np.float32), np.zeros((4, 1) if "gather" in function.__code__.co_names else 4, np.int64)
        )


def test_rows_are_read_without_guards_and_checked_once() -> None:
    arrays = [floats(50, 64), RANDOM.integers(0, 50, 40), floats(64)]
    (kernel,) = kernels_of(lambda t, i, w: ops.rms_norm(ops.embedding(t, i), (64,), w), arrays)
    loads = [item for item in walk(kernel.body) if isinstance(item, Load)]
    assert all(item.guard is None for item in loads)
    assert print_kernel(kernel).count("check") == 1


def test_data_chooses_among_one() -> None:
    table, index = floats(1), np.array([0, -1, 0])
    np.testing.assert_array_equal(smelt.jit(lambda x, i: x[i])(table, index), table[index])


# What a scatter or a scan computes itself.


def test_messages_are_never_stored() -> None:
    function, arrays = WAYS["messages"]
    (kernel,) = kernels_of(function, list(arrays))
    assert {item.buffer.name for item in walk(kernel.body) if isinstance(item, Store)} == {"%t3"}


def test_the_rows_of_a_gradient_are_never_stored() -> None:
    def gradient(table: Any, index: Any, weight: Any) -> Any:
        return smelt.grad(lambda table: ops.sum(ops.embedding(table, index) * weight))(table)

    table, index, weight = floats(30, 8), RANDOM.integers(0, 30, (4, 5)), floats(4, 5, 8)
    compiled = smelt.jit(gradient)
    wanted = np.zeros_like(table)
    np.add.at(wanted, index.reshape(-1), weight.reshape(-1, 8))
    np.testing.assert_allclose(compiled(table, index, weight), wanted, rtol=1e-6)
    assert len(compiled.report().kernels) == 1


def test_two_values_are_not_stored_for_one() -> None:
    def update(x: Any, i: Any, s: Any, t: Any) -> Any:
        left, right = ops.softmax(s, 1), ops.softmax(t, 1)
        return ops.index_add(x, 0, i, left * right)

    arrays = [floats(13, 6), RANDOM.integers(0, 13, 29), floats(29, 6), floats(29, 6)]
    first, second = kernels_of(update, arrays)
    assert len([buffer for buffer in first.buffers if buffer.role == "out"]) == 1
    assert "mul" not in print_kernel(second)


def test_what_others_read_is_stored() -> None:
    def update(x: Any, i: Any, s: Any) -> Any:
        doubled = s * 2
        return ops.index_add(x, 0, i, doubled), doubled + 1, ops.cumsum(s * 3, 1)

    # Whole numbers: sums are exact in any order.
    arrays = [np.rint(floats(13, 6) * 9), RANDOM.integers(0, 13, 29), np.rint(floats(29, 6) * 9)]
    for found, wanted in zip(flatten(smelt.jit(update)(*arrays)), evaluate(update, arrays, "interp"), strict=True):
        np.testing.assert_array_equal(found, wanted)
