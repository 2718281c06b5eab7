"""Launches that do the same with other values: their kernels are one, with other names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from random_programs import Seeded, build, disagreement
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.ir.errors import VerifyError
from smelt.ir.graph import Graph, Value
from smelt.ir.types import TensorType, bool_, f64
from smelt.kernels.loop.ir import Kernel, walk
from smelt.kernels.loop.parser import parse_kernel
from smelt.kernels.loop.text import identity, print_kernel
from smelt.kernels.machine import DEFAULT
from smelt.passes.fusion.fuse import fuse
from smelt.passes.fusion.fused import Fused
from smelt.passes.lower.kernel_reuse import Recurring
from smelt.passes.lower.lower import buffer_names, lower_launch
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from smelt.passes.stages import cpu_loops, schedule
from support import evaluate, interpret, replay, trace


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, shape)


def norms(x, *weights):
    for weight in weights:
        x = ops.softmax(ops.matmul(x, weight), 1).cumsum(1)
        x = ops.layer_norm(x, (x.shape[1],)) + weight[0]
    return x


def turned(x, y, z):
    for item in (x, y, z):
        x = ops.exp(item.permute((1, 0)) + x).cumsum(0)
    return x


def chosen(x, places, other):
    return (x[places] * 2).cumsum(0)[other].cumsum(0)[places].cumsum(0)


def attention(x, *weights):
    for weight in weights:
        query = ops.matmul(x, weight).reshape((4, 32, 4, 16)).permute((0, 2, 1, 3))
        x = ops.scaled_dot_product_attention(query, query, query).permute((0, 2, 1, 3)).reshape((4, 32, 64))
        x = ops.gelu(x)
    return x


def joined(x, *weights):
    x = (x + weights[0]).cumsum(0)
    x = ops.cat([ops.sin(x), ops.cos(x)], 0).cumsum(0)[:50]
    x = (x + weights[1]).cumsum(0)
    x = ops.cat([ops.sin(x), ops.cos(x)], 0).cumsum(0)[:50]
    x = (x + weights[2]).cumsum(0)
    return ops.cat([ops.sin(x), ops.cos(x)], 0).cumsum(0)


INDICES = np.arange(40) % 7
CASES: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "norms": (norms, [floats(64, 96), *(floats(96, 96, seed=seed) for seed in (1, 2, 3))]),
    "turned": (turned, [floats(300, 300, seed=seed) for seed in range(3)]),
    "chosen": (chosen, [floats(7, 300), INDICES, INDICES[::-1].copy()]),
    "joined": (joined, [floats(50, 96, seed=seed) for seed in range(4)]),
    "attention": (attention, [floats(4, 32, 64), *(floats(64, 64, seed=seed) for seed in (1, 2, 3))]),
}


def prepared(function: Callable[..., Any], arrays: list[np.ndarray]) -> Fused:
    fused = fuse(Pipeline(GRAPH).run(trace(function, arrays)), machine=DEFAULT)
    return fused


def kernels(
    fused: Fused, special: Mapping[str, tuple[str, ...]] = {}
) -> tuple[list[Kernel], list[Kernel], list[int | None]]:
    """Each launch lowered for itself; the same with kernels that recur; and whose kernel each one is."""
    recurring, taken = Recurring(fused, special), buffer_names(fused)
    alone = [
        schedule(lower_launch(fused, number, taken, DEFAULT), cpu_loops(DEFAULT, special), True)
        for number in range(len(fused.launches))
    ]
    shared: list[Kernel] = []
    sources: list[int | None] = []
    for number, own in enumerate(alone):
        like, kernel = recurring.find(number)
        if kernel is None:
            recurring.add(number, own)
        shared.append(own if kernel is None else kernel)
        sources.append(like)
    return alone, shared, sources


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_with_other_names_is_what_lowering_would_make(name):
    function, arrays = CASES[name]
    alone, shared, sources = kernels(prepared(function, arrays))
    assert any(source is not None for source in sources)
    for own, other in zip(alone, shared, strict=True):
        assert identity(other) == identity(own)
        assert other.name == own.name
        assert other.buffers == own.buffers
        assert other.sites == own.sites
        lines = [[getattr(item, "origin", None) for item in walk(kernel.body)] for kernel in (other, own)]
        assert lines[0] == lines[1]


def test_layers_are_lowered_once():
    function, arrays = CASES["norms"]
    _, _, sources = kernels(prepared(function, arrays))
    assert sources == [None, None, None, 0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("name", CASES)
def test_results_are_right(name):
    function, arrays = CASES[name]
    for got, want in zip(evaluate(function, arrays, "cpu"), evaluate(function, arrays, "interp"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_names_are_those_of_the_launch_itself():
    function, arrays = CASES["norms"]
    _, shared, sources = kernels(prepared(function, arrays))
    for kernel, source in zip(shared, sources, strict=True):
        if source is not None:
            assert f"{shared[source].name}." not in print_kernel(kernel).replace("//", "")


def steps(*makers: Callable[[Any], Any]) -> Callable[..., Any]:
    """Sums of several functions of several arrays, in kernels of their own as each needs the one before."""

    def run(*arrays: Any) -> Any:
        total = arrays[0].cumsum(0)
        for array, make in zip(arrays, makers, strict=True):
            total = make(array + total).cumsum(0)
        return total

    return run


@pytest.mark.parametrize(
    "second, same",
    [
        (lambda x: ops.exp(x * 2.0), True),
        (lambda x: ops.exp(x * 3.0), False),
        (lambda x: ops.exp(x * -2.0), False),
        (lambda x: ops.exp2(x * 2.0), False),
        (lambda x: ops.exp(2.0 * x + 0.5), False),
        (lambda x: ops.exp(x * 2.0).flip((0,)), False),
    ],
)
def test_whatever_makes_a_difference_is_in_the_key(second, same):
    function = steps(lambda x: ops.exp(x * 2.0), second)
    _, _, sources = kernels(prepared(function, [floats(30, 40), floats(30, 40)]))
    assert any(source is not None for source in sources) == same


def one_line_then_two(x, i, j):
    x = (x[i] * x[j]).cumsum(0)
    y = x[i]
    return (y * x[j]).cumsum(0)


def two_lines_then_one(x, i, j):
    y = x[i]
    x = (y * x[j]).cumsum(0)
    return (x[i] * x[j]).cumsum(0)


@pytest.mark.parametrize("function", [one_line_then_two, two_lines_then_one])
def test_checks_blame_the_lines_of_their_own_launch(function):
    """Checks of one line have one site: launches that differ in that are different kernels."""
    places = np.arange(7)
    alone, shared, _ = kernels(prepared(function, [floats(7, 300), places, places]))
    assert [kernel.sites for kernel in shared] == [kernel.sites for kernel in alone]
    compile_graph(trace(function, [floats(7, 300), places, places]), CompileOptions(verify=True))


def test_verification_sees_other_names(monkeypatch):
    """With two of its buffers swapped a kernel is the same code, on other values."""
    right = Recurring.find

    def swapped(self: Recurring, number: int) -> Any:
        like, kernel = right(self, number)
        if kernel is not None:
            first, second = (buffer.name for buffer in kernel.buffers if buffer.role == "in")
            swap = {first: second, second: first}
            text = re.sub(r"%\w+", lambda match: swap.get(match[0], match[0]), print_kernel(kernel))
            assert identity(parse_kernel(text)) == identity(kernel)
            kernel = parse_kernel(text)
        return like, kernel

    monkeypatch.setattr(Recurring, "find", swapped)
    function, arrays = CASES["turned"]
    with pytest.raises(VerifyError, match="not what lowering makes of it"):
        compile_graph(trace(function, arrays), CompileOptions(verify=True))


def test_what_passes_treat_in_another_way_is_another_kernel():
    def again(x, y):
        return ops.exp(ops.exp(x).cumsum(0)).cumsum(0), y

    fused = prepared(again, [floats(50, 40), floats(3)])
    _, _, sources = kernels(fused)
    assert any(source is not None for source in sources)
    (result, _) = fused.graph.results
    names = (f"%{fused.names[fused.stored(result)]}",)
    for special in ({"replaced": names, "shared": ()}, {"replaced": (), "shared": names}):
        _, _, sources = kernels(fused, special)
        assert all(source is None for source in sources[-1:])


def test_a_buffer_may_have_the_name_of_a_variable():
    def function(*items):
        return [*(item.cumsum(0) for item in items), *(ops.softmax(item.permute((1, 0)), 1) for item in items)]

    for names in (("x", "i", "j", "kept0", "block0", "t0"), ("kept0", "t0", "block0", "i", "j", "x")):
        params = [Value(TensorType(f64, (80, 2000)), name=name) for name in names]
        graph = Graph.build("named", params, function(*params))
        arrays = [floats(80, 2000, seed=seed) for seed in range(len(names))]
        program = compile_graph(graph, CompileOptions(verify=True))
        for got, want in zip(program(arrays), interpret(graph, arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_the_order_of_terms_does_not_follow_the_names_of_buffers():
    def turned_in_strips(item):
        return ops.tanh(item.reshape((64, 40)).permute((1, 0)))

    param = Value(TensorType(f64, (40, 64)), name="a")
    graph = Graph.build("named", [param], [turned_in_strips(turned_in_strips(param))])
    compile_graph(graph, CompileOptions(verify=True))


@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_three_times(seed):
    """One after the other: each waits for the one before it, so their kernels recur."""
    program = build(Seeded(seed), 12)

    def chained(*params: Value) -> list[Value]:
        results: list[Value] = []
        given = list(params)
        for _ in range(3):
            results += replay(program.graph, given)
            nothing = ops.sum(results[-1].cast(f64)) * 0.0
            given = [item if item.dtype is bool_ else item + nothing.cast(item.dtype) for item in params]
        return results

    graph = trace(chained, program.inputs)
    got = compile_graph(graph, CompileOptions(verify=True))(program.inputs)
    want = interpret(program.graph, program.inputs)
    first, second, third = (got[number * len(want) : (number + 1) * len(want)] for number in range(3))
    for results in (first, second, third):
        assert not disagreement(program, results, want)
    for left, right in zip(second, third, strict=True):
        np.testing.assert_array_equal(left, right)
