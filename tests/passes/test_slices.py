"""Slices of computed values, and joins of them: neither needs memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from support import trace


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.1, 2.0, shape)


class NumpyOps:
    """The ops of these programs in NumPy, by the same names."""

    exp, sqrt, stack = np.exp, np.sqrt, np.stack

    @staticmethod
    def cat(values: Any, dim: int = 0) -> np.ndarray:
        return np.concatenate(values, dim)

    @staticmethod
    def sum(value: Any, dim: int) -> np.ndarray:
        return value.sum(dim)


def levels(xp: Any, x: Any, y: Any) -> Any:
    """Each level needs the one above: slices of what is computed, joined again."""
    root = xp.sqrt(x) / (y + 1.0)
    found = [root[0]]
    for level in range(1, 5):
        found.append(0.5 * found[-1] + root[level] * root[level - 1])
    return xp.stack(found, 0)


def stencil(xp: Any, x: Any, y: Any) -> Any:
    """Differences of products to all neighbours."""
    value = x * y + 1.0
    wide = value[:, 1:-1, :] * 2.0
    across = wide[:, :, 2:] - wide[:, :, :-2]
    return across + value[:, 2:, 1:-1] - value[:, :-2, 1:-1]


def strides(xp: Any, x: Any, y: Any) -> Any:
    value = xp.exp(x) * y
    return value[:, ::2][:, 1:4:2] + value[:, 1::2][:, 1:4:2]


def joined_columns(xp: Any, x: Any, y: Any) -> Any:
    return xp.cat([xp.exp(x) * y, xp.sqrt(x) + xp.exp(y), xp.sqrt(x[:, :, 3:] * y[:, :, 3:])], 2)


def joined_and_read(xp: Any, x: Any, y: Any) -> Any:
    """The joined value is read by a reduction, in another kernel."""
    whole = xp.cat([xp.exp(x) / y, xp.sqrt(x) * xp.exp(y)], 0)
    return xp.sum(whole * whole, 0)


def part_is_a_result(xp: Any, x: Any, y: Any) -> Any:
    first, second = xp.exp(x) / y, xp.sqrt(xp.exp(x))
    return first, xp.cat([first, second], 1)


def part_is_read_later(xp: Any, x: Any, y: Any) -> Any:
    first, second = xp.exp(x) / y, xp.sqrt(xp.exp(x) + y)
    whole = xp.cat([first, second], 1)
    return whole, xp.sum(first, 1), xp.exp(first.reshape(5, -1))


def joined_twice(xp: Any, x: Any, y: Any) -> Any:
    first, second = xp.exp(x) / y, xp.sqrt(xp.exp(x))
    return xp.cat([first, first], 0), xp.cat([first, second], 1), xp.stack([second, second], 1)


def rows_joined(xp: Any, x: Any, y: Any) -> Any:
    """The parts are made by kernels with reductions, one value of a part is needed again in its row."""
    scaled = xp.exp(x) / xp.sum(xp.exp(x), 2)[:, :, None]
    other = xp.exp(y) / xp.sum(xp.exp(y), 2)[:, :, None]
    return xp.cat([scaled, other], 1)


def narrow_parts(xp: Any, x: Any, y: Any) -> Any:
    return xp.stack([xp.exp(x) / y, xp.sqrt(x) * xp.exp(y)], -1)


# A program, and how many kernels it becomes.
PROGRAMS: list[tuple[Callable[..., Any], int]] = [
    (levels, 1),
    (stencil, 1),
    (strides, 1),
    (joined_columns, 1),
    (joined_and_read, 2),
    (part_is_a_result, 2),
    (part_is_read_later, 3),
    (joined_twice, 2),
    (rows_joined, 1),
    (narrow_parts, 2),
]


@pytest.mark.parametrize(("program", "most"), PROGRAMS, ids=lambda item: getattr(item, "__name__", ""))
@pytest.mark.parametrize("shape", [(5, 9, 80), (5, 30, 301)])
def test_programs(program: Callable[..., Any], most: int, shape: tuple[int, ...]) -> None:
    x, y = floats(*shape), floats(*shape, seed=1)
    compiled = smelt.jit(lambda x, y: program(ops, x, y))
    found, expected = compiled(x, y), program(NumpyOps, x, y)
    for one, other in zip(*((item if isinstance(item, tuple) else (item,)) for item in (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    assert len(compiled.report().kernels) <= most, compiled.report()


def test_open_sizes() -> None:
    """The kernels of another size, and of sizes left open."""
    compiled = smelt.jit(lambda x, y: (levels(ops, x, y), stencil(ops, x, y), joined_columns(ops, x, y)))
    for size in (40, 41, 77):
        x, y = floats(5, 9, size), floats(5, 9, size, seed=1)
        for one, program in zip(compiled(x, y), (levels, stencil, joined_columns), strict=True):
            np.testing.assert_allclose(one, program(NumpyOps, x, y), rtol=1e-12, atol=1e-14)


def test_a_product_takes_no_kernel_that_stores_parts() -> None:
    """What is joined may be read again by an op that a matrix product would take, with all that it reads."""

    def program(x: Any, w: Any) -> Any:
        part = ops.exp(x) / (x + 1.0)
        whole = ops.cat([part, ops.sqrt(x)], 0)
        return whole, x @ w + part

    x, w = floats(64, 64), floats(64, 64, seed=1)
    part = np.exp(x) / (x + 1)
    for one, other in zip(smelt.jit(program)(x, w), (np.concatenate([part, np.sqrt(x)]), x @ w + part), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_no_memory_for_what_is_sliced_or_joined() -> None:
    compiled = smelt.jit(lambda x, y: levels(ops, x, y))
    compiled(floats(5, 300, 300), floats(5, 300, 300))
    assert compiled.report().arena == "0 B"


@pytest.mark.parametrize("step", [1, 2, 3])
def test_slices_of_slices_of_an_open_size(step: int) -> None:
    """Their sizes are spelled in ways that cannot be told to be the same."""

    def program(x: Any) -> Any:
        every = (x * 2)[1::step]
        return every[1:] - every[:-1]

    compiled = smelt.jit(program)
    for size in (20, 21, 9, 70):
        x = floats(size)
        np.testing.assert_allclose(compiled(x), program(x), rtol=1e-12)
    assert compiled.compiles == 2


def test_a_size_that_cannot_be_told_keeps_its_own_slices_only() -> None:
    """The differences of `every` are of sizes in two spellings; those of `smooth` are computed in one kernel."""

    def program(x: Any, y: Any) -> Any:
        every, smooth = (x * 2)[1::2], y * 3 + 1
        return every[1:] - every[:-1], smooth[1:] - smooth[:-1]

    compiled = smelt.jit(program)
    for size in (20, 21, 9, 70):
        x, y = floats(size), floats(size) * 2
        for found, wanted in zip(compiled(x, y), program(x, y), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert compiled.compiles == 2
    refusals = str(compiled.report())
    assert "mul -> sub" in refusals
    assert "add -> sub" not in refusals


def test_the_program_grows_with_its_length_only() -> None:
    """Many slices of a long chain would be as many chains."""

    def program(x: Any, count: int) -> Any:
        value = x
        for _ in range(count):
            value = ops.exp(value) * 0.5
        return sum(value[level] for level in range(count))

    sizes = []
    for count in (40, 80):
        before = trace(lambda x, count=count: program(x, count), (floats(count, 50),))
        sizes.append(len(Pipeline(GRAPH).run(before).ops) / len(before.ops))
    assert sizes[1] < 1.1 * sizes[0] < 3.3
