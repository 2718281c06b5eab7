"""Compiled code of open sizes against torch, for all kinds of sizes, smaller ones than those that it was traced with
included: the same results, or an error where torch has one, and no memory that is not its own.

`--long` tries many more programs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from open_programs import SMELT, TORCH, Program, draw
from open_sizes import ALL_SIZES, ERRORS, FEW_SIZES, FIRST, all_sizes, compare, outcome
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.cpu.call import executable
from smelt.kernels.loop.ir import Kernel, Loop
from smelt.passes import stages
from smelt.passes.stages import schedule
from support import Guarded

PROGRAMS = 24
LONG_PROGRAMS = 1500
OUTSIDE = 777.0  # around arguments


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy with numbers around it that no result has."""
    memory = np.full(array.size + 128, OUTSIDE, array.dtype)
    inside = memory[64 : 64 + array.size].reshape(array.shape)
    inside[...] = array
    return inside


@contextmanager
def guarded_results() -> Iterator[None]:
    memory, before = Guarded(), executable.empty_arrays
    executable.empty_arrays = memory.empty_arrays  # type: ignore[assignment]
    try:
        yield
    finally:
        executable.empty_arrays = before
    assert memory.intact(), "something was written outside of a result"


OWN_ERRORS = (smelt.SmeltError, IndexError)  # a program asks for a part that a split does not have
# What torch says of pools and convolutions of nothing, where it would not have to.
NOTHING = ("(batch mode)", "Only zero batch")


def check(
    program: Program, compiled: Any, eager: Callable[..., Any], exact: Sequence[bool], sizes: Sequence[tuple[int, int]]
) -> Any:
    for rows, columns in all_sizes(program, sizes):
        arrays = program.inputs(rows, columns)
        wanted = outcome(eager, [torch.from_numpy(item) for item in arrays], ERRORS)
        arguments = [guarded(item) for item in arrays[:3]] + arrays[3:]
        what = f"{rows} x {columns} of\n{program}\n"
        with guarded_results():
            with smelt.threads(2):
                found = outcome(compiled, arguments, OWN_ERRORS)
            with smelt.threads(1):
                alone = outcome(compiled, arguments, OWN_ERRORS)
        if isinstance(wanted, Exception) and any(words in str(wanted) for words in NOTHING):
            continue
        compare(found, wanted, exact, what)
        if not isinstance(found, Exception) and not isinstance(alone, Exception):
            for one, other in zip(found, alone, strict=True):
                assert one.tobytes() == other.tobytes(), f"{what}: other bits of one thread"
    return compiled


def check_values(seed: int, sizes: Sequence[tuple[int, int]]) -> Any:
    program = draw(seed)
    compiled = smelt.jit(lambda *inputs: program.run(SMELT, inputs))
    return check(program, compiled, lambda *inputs: program.run(TORCH, inputs), program.exact, sizes)


def check_gradients(seed: int, sizes: Sequence[tuple[int, int]]) -> Any:
    program = draw(seed, inexact=False)

    def loss(library: Any, inputs: Sequence[Any]) -> Any:
        return sum(result.sum() for result in program.run(library, inputs))

    def eager(*inputs: torch.Tensor) -> list[torch.Tensor]:
        leaves = [item.requires_grad_() for item in inputs[:3]]
        value = loss(TORCH, [*leaves, inputs[3]])
        if not value.requires_grad:
            return [torch.zeros_like(item) for item in leaves]
        found = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
        return [item.detach() for item in found]

    compiled = smelt.jit(smelt.grad(lambda *inputs: loss(SMELT, inputs), (0, 1, 2)))
    return check(program, compiled, eager, (False,) * 3, sizes)


MODES = {"values": check_values, "gradients": check_gradients}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """torch warns of means of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Parts run on different workers.
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("mode", MODES)
def test_random_programs(mode: str, part: int, request: pytest.FixtureRequest) -> None:
    long = request.config.getoption("--long")
    for seed in range(part, LONG_PROGRAMS if long else PROGRAMS, 4):
        MODES[mode](seed, ALL_SIZES if long else (*FIRST, *FEW_SIZES))


# What fits the sizes that a program was traced with need not fit a smaller one.
F = torch.nn.functional
WEIGHT = np.ones((2, 2, 5), np.float32)
Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def both(function: Callable[[Any, Any], Any]) -> Pair:
    return lambda x: function(SMELT, x), lambda x: function(TORCH, x)


def convolution(**options: int) -> Pair:
    return both(lambda m, x: m.conv1d(x, WEIGHT if m is SMELT else torch.from_numpy(WEIGHT), **options))


VECTORS: dict[str, Pair] = {
    **{f"x[{at}]": both(lambda m, x, at=at: x[at]) for at in (-1, -3, -6, 0, 2, 5)},  # type: ignore[misc]
    **{
        f"narrow {start} {length}": both(lambda m, x, s=start, n=length: m.narrow(x, 0, s, n))  # type: ignore[misc]
        for start, length in ((0, 2), (3, 2), (-3, 2), (5, 1))
    },
    **{
        f"x[{start}:{end}]": both(lambda m, x, s=start, e=end: (x[s:e] + 1) * 2)  # type: ignore[misc]
        for start, end in ((1, -1), (-3, None), (3, 6), (-4, -2), (None, -5))
    },
    **{
        f"pad {edges}": both(lambda m, x, edges=edges: m.pad(x, edges, "constant", 1.0))  # type: ignore[misc]
        for edges in ((-1, -2), (-3, 0), (-3, 2), (0, -4), (2, 3), (-6, 0), (2, -5))
    },
    "as_strided": both(lambda m, x: m.as_strided(x, (3, 2), (2, 1))),
    "as_strided from 2": both(lambda m, x: m.as_strided(x, (3,), (1,), 2)),
    "unfold": both(lambda m, x: x.unfold(0, 4, 2)),
    "sums of windows": both(lambda m, x: x.unfold(0, 5, 1).sum(-1)),
    "amax of a slice": both(lambda m, x: m.amax(x[3:], 0)),
    "argmax of a slice": both(lambda m, x: m.argmax(x[3:], 0)),
    "min of a slice": both(lambda m, x: m.min(x[4:])),
    "softmax of a slice": both(lambda m, x: m.softmax(x[3:], 0)),
    "mean of a slice": both(lambda m, x: m.mean(x[3:], 0)),
    "cumsum of a slice": both(lambda m, x: m.cumsum(x[3:], 0)),
    "cummax of a slice": both(lambda m, x: m.cummax(x[3:], 0)[1]),
    "select_scatter": both(lambda m, x: m.select_scatter(x, x.sum(), 0, -4)),
    "slice_scatter": both(lambda m, x: m.slice_scatter(x, x[:2] * 2, 0, 3, 5)),
    "roll": both(lambda m, x: m.roll(x, [-11], [0]) * 2),
    "chunk": both(lambda m, x: m.chunk(x, 3, 0)[1]),
    "glu": both(lambda m, x: m.glu(x, -1)),
    "reshape": both(lambda m, x: x.reshape(2, -1)),
    "zeros": both(lambda m, x: m.zeros((x.shape[0] - 4, 2))),
    "arange": both(lambda m, x: m.arange(x.shape[0] - 4)),
    "steps": both(lambda m, x: x[4::3]),
    "stencil": both(lambda m, x: x[3:] * x[:-3] + x[1:-2]),
}
IMAGES: dict[str, Pair] = {
    "conv1d": convolution(),
    "conv1d by 2": convolution(stride=2),
    "conv1d spread": convolution(dilation=2, padding=2),
    "avg_pool1d": both(lambda m, x: m.avg_pool1d(x, 3)),
    "max_pool1d": both(lambda m, x: m.max_pool1d(x, 3, 2)),
    "max_pool1d ceil": both(lambda m, x: m.max_pool1d(x, 3, 2, 0, 1, True)),
    **{
        f"{mode} {edges}": both(lambda m, x, e=edges, mode=mode: m.pad(x, e, mode))  # type: ignore[misc]
        for mode in ("reflect", "replicate")
        for edges in ((1, 1), (2, 3), (4, 0))
    },
}


@pytest.mark.parametrize("name", [*VECTORS, *IMAGES])
def test_sizes_that_are_too_small(name: str) -> None:
    own, eager = VECTORS[name] if name in VECTORS else IMAGES[name]
    lead = () if name in VECTORS else (1, 2)
    compiled = smelt.jit(own)
    for size in (9, 10, 15, 7, 6, 5, 4, 3, 2, 1):
        x = (np.arange(np.prod((*lead, size))) % 5).astype(np.float32).reshape(*lead, size)
        with guarded_results():
            found = outcome(compiled, [guarded(x)], OWN_ERRORS)
        compare(found, outcome(eager, [torch.from_numpy(x)], ERRORS), [False], f"{name} of {size}")


def test_a_size_that_is_large_enough_is_left_open() -> None:
    """However large that is: one program serves all sizes that windows fit into, and smaller ones are errors at the
    line of the call."""
    compiled = smelt.jit(lambda x: x.unfold(0, 40, 1).sum(-1))
    for size in (100, 90, 40, 41, 3000):
        np.testing.assert_array_equal(compiled(np.ones(size, np.float32)), np.full(size - 39, 40, np.float32))
    assert compiled.compiles == 2
    with pytest.raises(smelt.SmeltError, match=r"test_open_sizes\.py:\d+: unfold: a window of 40 is larger"):
        compiled(np.ones(39, np.float32))


@pytest.mark.parametrize(
    ("left", "right", "more"),
    [
        (lambda x: ops.cat([x, x * 2], 1), lambda y: ops.cat([y, y + 1], 0), 0),  # 2 N = 2 M
        (lambda x: ops.cat([x, x[:, :1]], 1), lambda y: ops.cat([y, y[:3]], 0), 2),  # N + 1 = M + 3
        (lambda x: x, lambda y: y[4:], -4),  # N = M - 4
    ],
)
def test_sizes_that_must_be_equal_stay_open(left: Any, right: Any, more: int) -> None:
    """One of them is what the other says, whichever way the equation is written."""
    compiled = smelt.jit(lambda x, y: left(x) @ right(y))
    for size in (8, 9, 12, 31, 7):
        x = np.arange(3 * (size + more), dtype=np.float32).reshape(3, size + more)
        y = np.arange(4 * size, dtype=np.float32).reshape(size, 4) % 7
        expected = smelt.jit(left)(x) @ smelt.jit(right)(y)
        np.testing.assert_allclose(compiled(x, y), expected, rtol=1e-5)
    assert compiled.compiles == 2


def test_without_sizes_at_hand_a_program_is_for_those_that_fit() -> None:
    graph = smelt.jit(lambda x: x.unfold(0, 40, 1).amax(-1)).trace(smelt.spec("f32[N]"))
    assert "where N >= 40" in str(graph)


def test_a_vector_loop_of_fewer_than_no_iterations_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program has one, as far as we know; if it had, the tail would be stored in front of the result."""

    def shorter(kernel: Kernel, *rest: Any) -> Kernel:
        (loop,) = schedule(kernel, *rest).body
        assert isinstance(loop, Loop) and loop.kind == "vector"
        return replace(kernel, body=(replace(loop, stop=loop.stop - 40),))

    memory = Guarded()
    monkeypatch.setattr(stages, "schedule", shorter)
    monkeypatch.setattr(executable, "empty_arrays", memory.empty_arrays)
    graph = smelt.jit(lambda x: x * 40.25).trace(smelt.spec("f32[N]"))  # no other test has it: code is cached
    scaled = compile_graph(graph, smelt.CompileOptions())
    np.testing.assert_array_equal(scaled([np.ones(43, np.float32)])[0][:3], 40.25)
    for size in (10, 39, 40):
        scaled([np.ones(size, np.float32)])
    assert memory.intact()
