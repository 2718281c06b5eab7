"""Each graph pass keeps the meaning of a program: interpret before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_programs import Program, Seeded, build, disagreement
from smelt.ir.graph import Graph
from smelt.ir.types import inverse
from smelt.ir.verify import verify_graph
from smelt.ops.define import REGISTRY
from smelt.passes.graph.layout import result_orders, store_in_order
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from smelt.passes.registry import PASSES
from support import interpret, run, trace

RANDOM_PROGRAMS = 60
GRAPH_PASSES = sorted(name for name, item in PASSES.items() if item.kind == "graph")


def op(name: str) -> Callable[..., Any]:
    return REGISTRY[name]


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


def mlp(x: Any, w: Any, v: Any) -> Any:
    hidden = op("gelu")(op("layer_norm")(x @ w, (16,)))
    return op("log_softmax")(hidden @ v, 1)


def gradient(x: Any, w: Any, v: Any) -> Any:
    from smelt.passes.autodiff.vjp import vjp

    loss = op("sum")(op("square")(mlp(x, w, v)))
    return vjp([loss], [op("ones_like")(loss)], [x, w, v])


def identities(x: Any, y: Any) -> Any:
    """What simplify is made for: neutral elements, double negation, moves that cancel."""
    same = op("transpose")(op("transpose")(x, 0, 1), 0, 1)
    zero = (x * 1 + 0) - op("neg")(-x)
    return (
        same + zero,
        op("reshape")(op("reshape")(y, (2, 6)), (3, 4)) / 1,
        op("expand")(x, (3, 4)) * 0.5 * 2.0,
    )


def twice(x: Any, y: Any) -> Any:
    """The same thing computed twice, and something nobody needs."""
    op("exp")(x)
    return op("tanh")(x + y) * op("tanh")(x + y), op("tanh")(x + y)


def constants(x: Any) -> Any:
    """What can be computed at once, at the edges of the types."""
    big = op("full")((3,), 250, dtype="uint8") + op("full")((3,), 10, dtype="uint8")
    nan = op("full")((), float("nan"), dtype="f32")
    return x * (op("full")((), 2.0, dtype="f32") + 1), big, nan * 0, op("full")((2,), 1, dtype="i32") // 0


def movements(x: Any, y: Any) -> Any:
    joined = op("cat")([x, op("flip")(y, (0,))], 1)
    return (
        op("slice")(joined, 1, 2, 6),
        op("constant_pad_nd")(joined, (1, -1), 3.0)[1:, ::2],
        op("tril")(joined),
    )


PROGRAMS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "mlp": (mlp, [floats(5, 8), floats(8, 16), floats(16, 3)]),
    "gradient": (gradient, [floats(5, 8), floats(8, 16), floats(16, 3)]),
    "identities": (identities, [floats(3, 4), floats(3, 4)]),
    "twice": (twice, [floats(3, 4), floats(4)]),
    "constants": (constants, [floats(3)]),
    "movements": (movements, [floats(3, 4), floats(3, 4, seed=1)]),
}


def with_pass(name: str, graph: Graph) -> tuple[Graph, Graph]:
    """The graph before and after the pass. Passes other than decompose are given primitives."""
    if name != "decompose":
        graph = PASSES["decompose"](graph)
    after = PASSES[name](graph)
    # Fusion keeps its graph and adds the kernels to it.
    return graph, after if isinstance(after, Graph) else after.graph


def close(left: np.ndarray, right: np.ndarray) -> None:
    assert left.dtype == right.dtype and left.shape == right.shape
    if left.dtype.kind in "biu":
        np.testing.assert_array_equal(left, right)
    else:
        np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("program", sorted(PROGRAMS))
@pytest.mark.parametrize("name", GRAPH_PASSES)
def test_pass_on_program(name: str, program: str) -> None:
    function, arrays = PROGRAMS[program]
    before, after = with_pass(name, trace(function, arrays, program))
    verify_graph(after)
    for left, right in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        close(left, right)


@pytest.mark.parametrize("name", GRAPH_PASSES)
def test_pass_on_random_programs(name: str) -> None:
    for seed in range(RANDOM_PROGRAMS):
        program = build(Seeded(seed))
        before, after = with_pass(name, program.graph)
        verify_graph(after)
        if name == "layout":  # it permutes results: back to the order of their dims
            orders = [None if order is None else inverse(order) for order in result_orders(before)]
            after = store_in_order(after, orders)
        same(program, before, after, f"seed {seed}: {name} changed the meaning")


def test_graph_pipeline_on_random_programs() -> None:
    pipeline = Pipeline(GRAPH)
    for seed in range(RANDOM_PROGRAMS, 2 * RANDOM_PROGRAMS):
        program = build(Seeded(seed))
        after = pipeline.run(program.graph, verify_each=True)
        same(program, program.graph, after, f"seed {seed}: {pipeline} changed the meaning")
        again = pipeline.run(after, verify_each=True)
        same(program, program.graph, again, f"seed {seed}: {pipeline}, run twice, changed the meaning")


CHAINS = """
import numpy as np
import smelt
from smelt import ops

ends = [
    lambda x: x, lambda x: x.reshape(-1), lambda x: x.T, lambda x: x[1:, ::2], lambda x: x.sum(), lambda x: x.sum(-1),
    lambda x: ops.exp(x.T.reshape(-1)), lambda x: ops.softmax(x, -1), lambda x: x @ x, lambda x: ops.cat([x, x[:1]], 0),
]
for step in (lambda x: x * x, lambda x: x + x, lambda x: ops.where(x > 0, x, x * 2)):
    for end in ends:
        def chain(x):
            for _ in range(60):
                x = step(x)
            return end(x)

        smelt.jit(chain)(np.zeros((4, 4), np.float32))
    smelt.jit(smelt.grad(lambda x: chain(x).sum()))(np.zeros((4, 4), np.float32))
print("done")
"""


def test_what_is_read_twice_is_looked_at_once() -> None:
    """There are 2**60 ways from the result back to x: a pass that follows each of them never ends."""
    assert run(CHAINS) == "done"


def same(program: Program, before: Any, after: Any, message: str) -> None:
    left, right = interpret(before, program.inputs), interpret(after, program.inputs)
    difference = disagreement(program, left, right)
    assert not difference, f"{message}: {difference}\nbefore:\n{before}\nafter:\n{after}"
