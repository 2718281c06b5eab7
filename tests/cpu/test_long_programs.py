"""Long programs: work grows with their length, when they are compiled and when they run."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from smelt import ops
from smelt.kernels.loop.ir import Concurrent, Load, walk
from smelt.kernels.machine import DEFAULT
from smelt.passes.fusion.fuse import Fuser, fuse
from smelt.passes.graph.joins import JOINS
from smelt.passes.lower.lower import lower
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from support import compiled, floats, interpret, trace


def filtered(steps: int) -> Callable[..., Any]:
    """A Kalman filter, written out."""

    def run(z: Any, matrix: Any, row: Any, noise: Any) -> Any:
        x, variance, found = matrix[:, 0], noise, []
        for step in range(steps):
            x = matrix @ x
            variance = matrix @ variance @ ops.t(matrix) + noise
            gain = (variance @ ops.t(row)) / (row @ variance @ ops.t(row) + 1)
            x = x + gain @ (z[step] - row @ x)
            variance = variance - gain @ row @ variance
            found.append(x)
        return ops.stack(found)

    return run


def inputs(steps: int) -> list[np.ndarray]:
    return [floats(steps, 1), np.eye(2, dtype=np.float32), floats(1, 2), np.eye(2, dtype=np.float32)]


def calls(steps: int) -> int:
    """Function calls that the passes take."""
    graph = trace(filtered(steps), inputs(steps))
    profile = cProfile.Profile()
    profile.enable()
    lower(_named(graph))
    profile.disable()
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


def _named(graph: Any) -> Any:
    fused = fuse(Pipeline(GRAPH).run(graph), machine=DEFAULT)
    return fused


def test_passes_take_as_long_as_programs_are() -> None:
    calls(2)
    short, long = calls(40), calls(160)
    assert long < 4.6 * short


def test_groups_know_all_that_they_depend_on() -> None:
    """As if every group asked its producers, and these theirs."""
    fuser = Fuser(Pipeline(GRAPH).run(trace(filtered(12), inputs(12))), 1024, True, DEFAULT)
    fuser.run()
    partition = fuser.partition
    live = sum(1 << number for number in partition.groups)
    for number, group in partition.groups.items():
        found, pending = 0, partition.producers(group)
        while pending:
            producer = pending.pop()
            if not found >> producer.number & 1:
                found |= 1 << producer.number
                pending += partition.producers(producer)
        assert partition.dependences.ancestors[number] & live == found & live


@pytest.mark.parametrize("shape", [(1,), (4,), (100,), (3, 1)])
@pytest.mark.parametrize("dim", [0, -1])
def test_joins_of_many(shape: tuple[int, ...], dim: int) -> None:
    arrays = [floats(*shape, seed=seed) for seed in range(3)]

    def joined(*items: Any) -> Any:
        parts = [items[step % 3] * step if step % 2 else items[step % 3] for step in range(300)]
        return ops.cat(parts, dim), ops.stack(parts[:100]) + 1

    graph = trace(joined, arrays)
    for found, wanted in zip(compiled(graph, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_element_is_looked_for_among_few_and_copied_once() -> None:
    graph = trace(lambda *items: ops.stack([ops.exp(item) for item in items]), [floats(4)] * 500)
    *_, last = lower(_named(graph))
    assert [buffer.shape for buffer in last.buffers if buffer.role == "out"] == [(500, 4)]
    loops = [loop for item in last.body for loop in (item.branches if isinstance(item, Concurrent) else [item])]
    for loop in loops:
        assert sum(isinstance(item, Load) and item.guard is not None for item in walk([loop])) <= JOINS.parts
