"""jit and derivatives inside each other, on arrays, closing over tensors of the traces around: as PyTorch's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt import ops
from smelt.ir.errors import TraceError

X, Y, Z = (np.linspace(low, low + 1, 4) for low in (0.5, 1.0, -0.25))
func = torch.func

# The same transformations by smelt and by PyTorch: of a function of a vector, at a point, to a vector.
SMELT: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "jit": lambda f, at: smelt.jit(f)(at),
    "grad": lambda f, at: smelt.grad(lambda v: f(v).sum())(at),
    "value_and_grad": lambda f, at: smelt.value_and_grad(lambda v: f(v).sum())(at)[1] * 2,
    "vjp": lambda f, at: smelt.vjp(f, at)[1](np.arange(1.0, 5.0))[0],
    "jvp": lambda f, at: smelt.jvp(f, (at,), (np.arange(1.0, 5.0),))[1],
}
ONES = torch.arange(1.0, 5.0, dtype=torch.float64)
TORCH: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "jit": lambda f, at: f(torch.tensor(at)),
    "grad": lambda f, at: func.grad(lambda v: f(v).sum())(torch.tensor(at)),
    "value_and_grad": lambda f, at: func.grad_and_value(lambda v: f(v).sum())(torch.tensor(at))[0] * 2,
    "vjp": lambda f, at: func.vjp(f, torch.tensor(at))[1](ONES)[0],
    "jvp": lambda f, at: func.jvp(f, (torch.tensor(at),), (ONES,))[1],
}


def nested(table: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Each transformation inside of the one before, at an array, of what closes over the arguments of all around."""
    points = (X, Y, Z)

    def inside(depth: int, *outer: Any) -> Any:
        if depth == len(names):
            total = 1.0
            for at, value in enumerate(outer):
                total = total * (value * value + at * value)
            return total
        return table[names[depth]](lambda value: inside(depth + 1, *outer, value), points[depth])

    return inside(0)


@pytest.mark.parametrize("names", [*itertools.product(SMELT, repeat=2)], ids="-".join)
def test_pairs(names: tuple[str, str]) -> None:
    np.testing.assert_allclose(nested(SMELT, names), nested(TORCH, names).numpy(), rtol=1e-12)


@pytest.mark.parametrize("names", [*itertools.product(SMELT, repeat=3)][::4], ids="-".join)
def test_triples(names: tuple[str, str, str]) -> None:
    np.testing.assert_allclose(nested(SMELT, names), nested(TORCH, names).numpy(), rtol=1e-12)


def test_second_order_through_a_closure() -> None:
    """The gradient of a step of gradient descent by its starting point and its rate."""

    def loss(w, x):
        return ((w * x - 1) ** 2).sum()

    def after_step(x, rate):
        w = np.ones(4) - rate * smelt.grad(lambda w: loss(w, x))(np.ones(4))
        return loss(w, x)

    def torch_after_step(x, rate):
        ones = torch.ones(4, dtype=torch.float64)
        return loss(ones - rate * func.grad(lambda w: loss(w, x))(ones), x)

    rate = np.asarray(0.1)
    found = smelt.grad(after_step, argnums=(0, 1))(X, rate)
    wanted = func.grad(torch_after_step, argnums=(0, 1))(torch.tensor(X), torch.tensor(rate))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-12)


def test_sizes_that_are_left_open() -> None:
    compiled = smelt.jit(lambda x: smelt.grad(lambda y: (y * x.sum() * x.shape[0]).sum())(Y))
    for size in (3, 5, 6, 7):
        np.testing.assert_allclose(compiled(np.ones(size)), np.full(4, float(size * size)))
    assert compiled.compiles == 2


def test_open_sizes_as_arguments() -> None:
    inner = smelt.jit(lambda x, n: x * n)
    compiled = smelt.jit(lambda x: inner(Y, x.shape[0]) + x.sum())
    for size in (3, 5, 6):
        np.testing.assert_allclose(compiled(np.ones(size)), Y * size + size)


def test_what_refers_to_nothing_traced_is_computed_at_once() -> None:
    """Its result is an array, whose numbers Python may use while it traces."""
    table = smelt.jit(lambda y: y * 2)

    def function(x):
        found = table(Y)
        assert isinstance(found, np.ndarray)
        slope = smelt.grad(lambda y: (y * y).sum())(Y)
        assert isinstance(slope, np.ndarray)
        return x * float(found[0]) + slope[1]

    np.testing.assert_allclose(smelt.jit(function)(X), X * 2 * Y[0] + 2 * Y[1])


def test_random_numbers_of_inner_functions_belong_to_the_outer_one() -> None:
    draw = smelt.jit(lambda y: y + ops.rand((4,)))
    compiled = smelt.jit(lambda x: draw(Y) + x)
    assert not np.array_equal(compiled(X), compiled(X))


def test_static_and_named_arguments_of_inner_functions() -> None:
    inner = smelt.jit(lambda y, *, scale, mode: y * scale if mode == "times" else y + scale, static_argnames="mode")
    compiled = smelt.jit(lambda x: (inner(Y, scale=x, mode="times"), inner(y=Y, mode="plus", scale=x)))
    for found, wanted in zip(compiled(X), (Y * X, Y + X), strict=True):
        np.testing.assert_allclose(found, wanted)


class Scaled:
    """Callable, equal to all of its kind, and not hashable."""

    def __init__(self, factor: float):
        self.factor = factor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaled)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x):
        return (x * x).sum() * self.factor

    def method(self, x):
        return (x * x).sum() * self.factor


@pytest.mark.parametrize("which", ["object", "method"])
def test_functions_are_remembered_as_themselves(which: str) -> None:
    for factor in (1.0, 3.0):
        scaled = Scaled(factor)
        function = scaled if which == "object" else scaled.method
        np.testing.assert_allclose(smelt.grad(function)(X), 2 * X * factor)


def test_tensors_of_a_trace_that_has_ended_are_refused() -> None:
    kept: list[Any] = []
    smelt.jit(lambda x: kept.append(x) or x * 2)(X)
    for call in (
        lambda: smelt.jit(lambda y: y + kept[0])(Y),
        lambda: smelt.grad(lambda y: (y * kept[0]).sum())(Y),
        lambda: smelt.jit(lambda x: smelt.grad(lambda y: (y * kept[0]).sum())(Y) + x)(X),
    ):
        with pytest.raises(TraceError, match="leaked"):
            call()
