"""The passes that map loops to the grid of a GPU: they keep the meaning, and what they make of typical trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from loop_programs import PROGRAMS, SYMBOLIC, assert_close, assert_round_trip, numbers, trace
from random_programs import Seeded, build, disagreement
from smelt.backend.interp.loops import interpret_kernels
from smelt.ir.graph import Graph
from smelt.ir.parser import parse_graph
from smelt.kernels.gpu import GPU, Gpu
from smelt.kernels.loop.ir import Kernel, Loop, walk
from smelt.kernels.loop.text import print_kernel
from smelt.passes.fusion.fuse import fuse
from smelt.passes.fusion.fused import Fused
from smelt.passes.lower.lower import lower
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from smelt.passes.stages import cuda_loops, schedule
from support import interpret

RANDOM_PROGRAMS = range(3000, 3040)


def lowered(graph: Graph) -> tuple[Fused, list[Kernel]]:
    """A graph of any ops, after all graph passes, as kernels of serial loops for a GPU."""
    fused = fuse(Pipeline(GRAPH).run(graph, verify_each=True), whole_rows=False)
    return fused, lower(fused, gpu=True)


def scheduled(graph: Graph, gpu: Gpu = GPU) -> tuple[Fused, list[Kernel]]:
    fused, kernels = lowered(graph)
    return fused, [schedule(kernel, cuda_loops(gpu=gpu), True) for kernel in kernels]


def assert_meaning(graph: Graph, arrays: Sequence[np.ndarray], gpu: Gpu = GPU) -> None:
    fused, kernels = scheduled(graph, gpu)
    for kernel in kernels:
        assert_round_trip(kernel)
    for wanted, found in zip(interpret(fused.graph, arrays), interpret_kernels(fused, kernels, arrays), strict=True):
        assert_close("\n".join(map(print_kernel, kernels)), wanted, found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_meaning(name: str) -> None:
    function, arrays = PROGRAMS[name]
    assert_meaning(trace(function, arrays, None), arrays)


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str) -> None:
    function, arrays = PROGRAMS[name]
    assert_meaning(trace(function, arrays, SYMBOLIC[name]), arrays)


@pytest.mark.parametrize("name", ["softmax", "cumsum", "argmax", "column sums", "sum of the middle", "layer_norm"])
def test_small_programs_scheduled_like_large_ones(name: str) -> None:
    """Rows of few elements that a block of threads shares."""
    function, arrays = PROGRAMS[name]
    assert_meaning(trace(function, arrays, None), arrays, GPU.but(alone=1, warp_row=2))


def test_random_programs() -> None:
    for seed in RANDOM_PROGRAMS:
        program = build(Seeded(seed))
        fused, kernels = scheduled(program.graph)
        for kernel in kernels:
            assert_round_trip(kernel)
        wanted = interpret(fused.graph, program.inputs)
        difference = disagreement(program, wanted, interpret_kernels(fused, kernels, program.inputs))
        assert not difference, f"seed {seed}: {difference}\n{fused}\n" + "\n".join(map(print_kernel, kernels))


def test_every_tree_is_mapped() -> None:
    """Nothing is left that one thread of the whole grid would run alone."""
    for name, (function, arrays) in PROGRAMS.items():
        _, kernels = scheduled(trace(function, arrays, None))
        for kernel in kernels:
            outermost = [item for item in kernel.body if isinstance(item, Loop)]
            assert all(loop.kind in ("grid", "block", "warp") for loop in outermost), f"{name}\n{print_kernel(kernel)}"
            assert not any(isinstance(item, Loop) and item.kind == "parallel" for item in walk(kernel.body))


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("%0 = exp(%x) : f32[64, 4096]\n  return %0", {"grid", "vector"}),
        ("%0 = sum(%x) {dim = (1)} : f32[64]\n  return %0", {"block", "thread", "vector"}),
        ("%0 = sum(%x) {dim = (0)} : f32[4096]\n  return %0", {"grid", "serial"}),
    ],
)
def test_kinds_of_loops(text: str, kinds: set[str]) -> None:
    _, kernels = scheduled(parse_graph(f"graph @f(%x: f32[64, 4096]) {{\n  {text}\n}}"))
    found = {item.kind for kernel in kernels for item in walk(kernel.body) if isinstance(item, Loop)}
    assert found == kinds, "\n".join(map(print_kernel, kernels))


def test_names_do_not_meet() -> None:
    text = "graph @f(%g0: f32[7, 12], %g1: f32[7, 12]) {\n  %0 = add(%g0, %g1) : f32[7, 12]\n  return %0\n}"
    arrays = [numbers(7, 12), numbers(7, 12, seed=1)]
    assert_meaning(parse_graph(text), arrays)
