"""Kernels that check their indices: the same results, and an error instead of a wild access."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from smelt import CompileOptions, ops
from smelt.backend.compile import compile_graph, graph_key
from smelt.backend.interp.loops import interpret_kernel
from smelt.ir.errors import ArgumentError, IndexRangeError
from smelt.kernels.loop.ir import Gemm, Kernel, Load, Loop, Statement, Store, Transpose
from smelt.kernels.loop.parser import parse_kernel
from smelt.passes import stages
from support import floats, interpret, trace

CHECKED = CompileOptions(check_bounds=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: ops.softmax(x @ w, -1),
        lambda x, w: ops.cumsum(x, 0) + 1,
        lambda x, w: x.T * w,
        lambda x, w: ops.cat([x, w.T], 0)[3:, ::2],
        lambda x, w: ops.gather(x, 1, (x > 0).cast("i64")),
        lambda x, w: ops.constant_pad_nd(x, (1, 2, 3, 0)),
        lambda x, w: x[0:0] + 1,
    ],
)
def test_results_are_the_same(function: Any) -> None:
    arrays = [floats(40, 33), floats(33, 40, seed=1)]
    graph = trace(function, arrays)
    got = compile_graph(graph, replace(CHECKED, verify=True))(arrays)
    for one, other in zip(got, interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def moved(kernel: Kernel, kind: type) -> Kernel:
    """A kernel whose accesses of one kind lie far behind their buffers."""

    def change(statement: Statement) -> Statement:
        if isinstance(statement, Loop):
            return replace(statement, body=tuple(map(change, statement.body)))
        if isinstance(statement, (Load, Store)) and isinstance(statement, kind):
            return replace(statement, index=(*statement.index[:-1], statement.index[-1] + 10**9))
        if isinstance(statement, Gemm) and kind is Gemm:
            return replace(statement, left=replace(statement.left, offset=statement.left.offset + 10**9))
        if isinstance(statement, Transpose) and kind is Transpose:
            return replace(statement, source=replace(statement.source, offset=statement.source.offset - 10**9))
        return statement

    return replace(kernel, body=tuple(map(change, kernel.body)))


@pytest.mark.parametrize(
    ("kind", "function", "message"),
    [
        (Load, lambda x: ops.exp(x), "@k0_exp, load of %x0: index 10000000"),
        (Store, lambda x: ops.exp(x), "@k0_exp, store to %t0: index 10000000"),
        (Gemm, lambda x: x @ x, "@k0_bmm, matrix in %x0: index 10000000"),
        (Transpose, lambda x: x.T + 1, "@k0_add, matrix in %x0: index -1000000000"),
    ],
)
def test_wild_accesses_are_errors(kind: type, function: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = stages.schedule
    monkeypatch.setattr(stages, "schedule", lambda kernel, *rest: moved(schedule(kernel, *rest), kind))
    with pytest.raises(IndexRangeError) as caught:
        compile_graph(trace(function, [floats(64, 64)]), CHECKED)([floats(64, 64)])
    assert message in str(caught.value)
    assert "test_check_bounds.py" in str(caught.value) or kind is Transpose


def test_part_of_the_key() -> None:
    graph = trace(lambda x: x + 1, [floats(3)])
    (checked, _), (plain, _) = graph_key(graph, CHECKED), graph_key(graph, CompileOptions())
    assert checked is not None and plain is not None and checked.name != plain.name


def test_for_the_cpu_alone() -> None:
    with pytest.raises(ArgumentError, match="check_bounds is for the target cpu"):
        CompileOptions(target="cuda", check_bounds=True)


@pytest.mark.parametrize("place", ["%i - 1", "%i + 1"])
def test_the_interpreter_of_loops_does_not_wrap(place: str) -> None:
    text = f"kernel @k(%x: f32[4], %y: out f32[4]) {{\n  vector<4> %i in 0..4 {{\n    %0 = load %x[{place}]\n"
    kernel = parse_kernel(text + "    store %y[%i], %0\n  }\n}")
    with pytest.raises(IndexRangeError, match="@k, %x: index (-1|4) is out of range for 4 elements"):
        interpret_kernel(kernel, {"%x": np.zeros(4, np.float32), "%y": np.zeros(4, np.float32)}, {})
