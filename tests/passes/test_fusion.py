"""Fusion and the loops it leads to: what may share a kernel, what must not, and what runs on many threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.cpu.host import host
from smelt.ir.proofs import floor_divide
from smelt.ir.symbolic import Symbol, symbols_of
from smelt.kernels.loop.analysis import stride
from smelt.kernels.loop.ir import Kernel, Load, Loop, walk
from smelt.kernels.loop.text import print_kernel
from smelt.kernels.machine import DEFAULT, PRESETS, Machine, Sharing
from smelt.passes import fusion
from smelt.passes.fusion.fuse import Fuser, fuse
from smelt.passes.fusion.fused import Fused
from smelt.passes.fusion.legality import kind_obstacle
from smelt.passes.fusion.reasons import Reason
from smelt.passes.lower.lower import lower
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from smelt.passes.stages import cpu_loops, schedule
from support import evaluate, flatten, trace


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def indices(size: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, size, shape)


def fused(function: Callable[..., Any], *arrays: np.ndarray, machine: Machine | None = None) -> Fused:
    """The kernels of a function before they are loops."""
    result = fuse(Pipeline(GRAPH).run(trace(function, arrays)), machine=machine)
    return result


def loops(function: Callable[..., Any], *arrays: np.ndarray) -> list[Kernel]:
    """The kernels of a function as the machine runs them."""
    return [schedule(kernel, cpu_loops(DEFAULT), True) for kernel in lower(fused(function, *arrays))]


def assert_agrees(function: Callable[..., Any], *arrays: np.ndarray) -> None:
    """Compiled and interpreted give the same."""
    for got, want in zip(evaluate(function, arrays, "cpu"), evaluate(function, arrays, "interp"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def plus_transposed(x: Any) -> Any:
    square = x[:, :30]
    waves = square.exp().sum(1, True) * square
    return waves + waves.permute((1, 0)), waves.sum(0)


def reductions_of_reductions(x: Any) -> Any:
    rows = x.exp().sum(1)
    mean = rows.mean()
    return mean, rows - mean, (x - rows[:, None]).sum(0), ((x - rows[:, None]) ** 2).mean()


def several_dims(x: Any) -> Any:
    blocks = x.reshape((5, 6, 10, 4))
    weights = (blocks - blocks.amax((1, 3), True)).exp()
    return weights / weights.sum((1, 3), True), weights.sum((0, 2)), weights.sum(1)


def joined(x: Any) -> Any:
    total, most = x.sum(1), x.amax(1)
    return ops.cat([total, most], 0), ops.cat([x.exp(), total[:, None]], 1).sum(1), total * most


def regrouped(x: Any) -> Any:
    total = x.reshape((30, 8, 5)).sum(2)
    most = total.reshape((24, 10)).amax(1)
    return most, total, most.reshape((2, 12)).sum(0), total.reshape(-1)


def broadcast_twice(x: Any) -> Any:
    column, square = x[:, 0], x[:, :30]
    return (
        column[:, None] * column[None, :] + square,
        (column[:, None] - column[None, :]).exp().sum(1),
        (square * column).sum(0) + column,
        (square * column[:, None]).sum(1),
    )


def products(x: Any) -> Any:
    gram = x @ x.permute((1, 0))
    return ops.cumsum(gram, 0), ops.cumsum(gram, 1).exp().sum(0), gram.sum(0)


PROGRAMS = (
    plus_transposed,
    reductions_of_reductions,
    several_dims,
    joined,
    regrouped,
    broadcast_twice,
    products,
)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_fused_programs_compute_what_they_say(
    program: Callable[..., Any], split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with reductions split, and threads woken, for the least amount of work."""
    if split:
        sharing = Sharing(worth=16, run=(32, 32), reduction=8, partial_elements=4)
        monkeypatch.setattr(host(), "machine", host().machine.but(sharing=sharing))
    assert_agrees(program, floats(30, 40))


def test_data_may_choose_in_a_dim_of_size_one() -> None:
    """A reduction's result has one place there, by whatever index it is read."""

    def function(x: Any, index: Any) -> Any:
        most = x.amax(1, True)
        return ops.index_select(most, 1, index), most * 2

    assert_agrees(function, floats(33, 16), np.zeros(1, np.int64))


def test_a_row_read_stays_in_its_row_when_the_kernel_grows() -> None:
    """A later reduction over the other dim must not turn rows into columns under a gather."""

    def function(x: Any, index: Any) -> Any:
        waves = x.exp().sin() + x.cos()
        chosen = ops.gather(waves, 1, index[:, None])[:, 0]
        return chosen - waves.sum(1), waves.sum(0), (waves - waves.amax(0)).sum(0)

    assert_agrees(function, floats(40, 50), indices(50, 40))


def test_several_gathers_of_one_row() -> None:
    def function(x: Any, first: Any, second: Any) -> Any:
        scores = ops.log_softmax(x, 1)
        return ops.gather(scores, 1, first[:, None]).sum(1) + ops.gather(scores, 1, second[:, None]).sum(1), scores

    assert_agrees(function, floats(40, 50), indices(50, 40), indices(50, 40)[::-1].copy())


def test_what_has_fewer_dims_is_not_stored_in_every_row() -> None:
    """exp(w) belongs to no row: neither its cost nor its store is repeated."""

    def function(x: Any, w: Any) -> Any:
        scale = w.exp()
        return x.sum(1) * 2, x.sum(0) * scale, scale

    x, w = floats(700, 256).astype(np.float32), floats(256).astype(np.float32)
    for groups in fused(function, x, w).launches:
        for group in groups:
            names = {op.name for op in group.ops}
            assert group.structure is not None and not ("exp" in names and group.structure.secondary)
    for got, want in zip(evaluate(function, [x, w], "cpu"), evaluate(function, [x, w], "interp"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_products_that_do_not_depend_on_each_other_share_regions() -> None:
    """A layer's gradients: two products of the same step, and a sum beside them. The next product needs one of them."""

    def gradients(x: Any, w: Any, dy: Any) -> Any:
        return x.mT @ (dy @ w.mT), x.mT @ dy, dy.sum(0)

    arrays = [floats(*shape).astype(np.float32) for shape in ((300, 200), (200, 100), (300, 100))]
    launches = [
        [op.name for group in groups for op in group.ops if op.name in ("bmm", "sum")]
        for groups in fused(gradients, *arrays, machine=PRESETS["x86-64-v4"]).launches
    ]
    assert launches == [["bmm", "bmm", "sum"], ["bmm"]]
    x, w, dy = arrays
    want = [x.T @ (dy @ w.T), x.T @ dy, dy.sum(0)]
    for threads in (1, 2):
        with smelt.threads(threads):
            for got, expected in zip(evaluate(gradients, arrays, "cpu"), want, strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)


def both_sums(x: Any) -> Any:
    return x.sum(0), x.sum(1)


def layer_norm_gradients(x: Any, w: Any, b: Any) -> Any:
    return smelt.vjp(lambda *inputs: ops.layer_norm(inputs[0], (256,), *inputs[1:]), x, w, b)[1](x)


@pytest.mark.parametrize(
    "function, arrays",
    [
        (both_sums, (floats(700, 256),)),
        (layer_norm_gradients, (floats(700, 256), floats(256), floats(256))),
    ],
)
def test_reductions_across_rows_run_along_memory_and_on_threads(
    function: Callable[..., Any], arrays: tuple[np.ndarray, ...]
) -> None:
    (kernel,) = loops(function, *arrays)
    first = kernel.body[0]
    assert isinstance(first, Loop) and first.kind == "parallel", print_kernel(kernel)
    vectors = [item for item in walk(kernel.body) if isinstance(item, Loop) and item.kind == "vector"]
    for loop in vectors:
        steps = [stride(item, loop.variable) for item in walk(loop.body) if isinstance(item, Load)]
        assert all(step in (0, 1) for step in steps), print_kernel(kernel)
    assert_agrees(function, *arrays)


def test_results_are_the_same_for_any_number_of_threads() -> None:
    arrays = (floats(700, 256), floats(256), floats(256))
    program = smelt.jit(layer_norm_gradients)
    with smelt.threads(1):
        alone = flatten(program(*arrays))
    with smelt.threads(4):
        together = flatten(program(*arrays))
    for left, right in zip(alone, together, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_quotient_keeps_the_ranges_of_its_own_symbols() -> None:
    """Programs share names of sizes, not their ranges."""
    m = Symbol("M", 2).expr()
    for least in (1000, 0):
        n = Symbol("N", least).expr()
        quotient = floor_divide(n * n + n * m, n + m)
        assert quotient == n
        assert {symbol.lower for symbol in symbols_of(quotient)} == {least}


def test_a_kernel_may_be_longer_than_the_stack() -> None:
    def chain(x, y):
        for _ in range(600):
            x = x * y + 0.5
        return x

    x, y = np.linspace(-1, 1, 40), np.full(40, 0.25)
    compiled = smelt.jit(chain, options=smelt.CompileOptions(max_cost=4096))
    np.testing.assert_allclose(compiled(x, y), chain(x, y), rtol=1e-12)
    assert len(compiled.report().kernels) == 1


def test_reasons_are_counted() -> None:
    """Each refusal has a reason; the report says how often each occurs, the most frequent one first."""
    compiled = smelt.jit(reductions_of_reductions)
    compiled(floats(64, 32))
    report = compiled.report()
    refusals = fused(reductions_of_reductions, floats(64, 32)).refusals
    assert sum(report.refused.values()) == len(report.refusals) > 0
    assert list(report.refused.values()) == sorted(report.refused.values(), reverse=True)
    assert {refusal.reason.name.lower() for refusal in refusals} == report.refused.keys()
    assert "not fused: " + ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in report.refused.items()) in str(
        report
    )


def test_every_reason_is_given_somewhere() -> None:
    texts = "".join(path.read_text() for path in sorted(Path(fusion.__file__).parent.glob("*.py")))
    assert all(f"Reason.{reason.name}(" in texts for reason in Reason)


def test_groups_that_cannot_be_one_stay_as_they_are() -> None:
    """Legality changes nothing: a refused merge leaves both groups and their axes."""
    graph = Pipeline(GRAPH).run(trace(lambda x: (x.exp().sum(0), x.exp().sum(1).cumsum(0)), (floats(64, 32),)))
    fuser = Fuser(graph, 1024, True, None)
    fuser.run()
    partition = fuser.partition
    first, *_, last = partition.groups.values()
    before = str(first), str(last), list(partition.axes.parent)
    assert kind_obstacle(partition, first, last, True) == Reason.OWN_KERNEL("running_sum")
    assert (str(first), str(last), list(partition.axes.parent)) == before
