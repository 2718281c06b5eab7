"""Second derivatives of every op of the registry, in all three orders of the modes, against finite differences.

The gradients that are differenced are those that test_parity.py compares with PyTorch. Nothing in the sweep names
an op; the points where a difference says nothing (ties) or where a rule is easily wrong (zeros) follow it.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from parity.gaps import INTERNAL
from parity.runner import entry_of
from parity.table import Call, make
from smelt import ops
from smelt.ir.graph import Value
from smelt.ops.define import REGISTRY
from smelt.ops.opdef import OpDef
from smelt.passes.autodiff.jvp import jvp
from smelt.passes.autodiff.vjp import vjp, zeros
from smelt.passes.manager import parse_pipeline
from support import OWN_OPS, evaluate, fitted, flatten, interpreted, trace

STEP = 1e-5
TOLERANCE = 2e-6  # of central differences of that step in f64
SMOOTH = 1e-2  # how much differences may differ from each other where there is no kink
MOST = 12  # samples of an op
OPS = sorted(name for name, op in OWN_OPS.items() if op.differentiable and name not in INTERNAL)


def filled(found: Sequence[Value | None], like: Sequence[Value]) -> list[Value]:
    return [zeros(same.type) if item is None else item for item, same in zip(found, like, strict=True)]


def fresh(values: Sequence[Value]) -> list[Value]:
    """The same values as inputs of a derivative of their own."""
    return [REGISTRY["alias"](value) for value in values]


@dataclass
class Program:
    """A function of arrays, all its results weighed with seeds and all its chosen inputs moved along tangents."""

    function: Callable[..., Any]
    arrays: list[np.ndarray]
    chosen: list[int]
    outputs: int | None = None

    def __post_init__(self) -> None:
        draw = np.random.default_rng(zlib.crc32(repr([item.shape for item in self.arrays]).encode()))
        results = evaluate(lambda *tensors: self.results(tensors), self.arrays, "interp")
        self.seeds = [np.asarray(draw.uniform(-1, 1, result.shape)) for result in results]
        self.tangents = [np.asarray(draw.uniform(-1, 1, self.arrays[place].shape)) for place in self.chosen]

    def results(self, tensors: Sequence[Value]) -> list[Value]:
        found = flatten(self.function(*tensors))[: self.outputs]
        return [item for item in found if isinstance(item, Value) and item.dtype.is_float]

    def of_chosen(self, tensors: Sequence[Value], points: Sequence[Value]) -> list[Value]:
        given = list(tensors)
        for place, point in zip(self.chosen, points, strict=True):
            given[place] = point
        return self.results(given)

    def split(self, tensors: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value], Sequence[Value]]:
        count = len(self.arrays)
        return tensors[:count], tensors[count : count + len(self.seeds)], tensors[count + len(self.seeds) :]

    def reverse(self, tensors: Sequence[Value], points: Sequence[Value], seeds: Sequence[Value]) -> list[Value]:
        inputs = fresh(points)
        results = self.of_chosen(tensors, inputs)
        return filled(vjp(results, list(map(fitted, seeds, results)), inputs), inputs)

    def forward(self, tensors: Sequence[Value], points: Sequence[Value], along: Sequence[Value]) -> list[Value]:
        inputs = fresh(points)
        results = self.of_chosen(tensors, inputs)
        return filled(jvp(results, inputs, along), results)

    def gradient(self, *given: Value) -> list[Value]:
        tensors, seeds, _along = self.split(given)
        return self.reverse(tensors, [tensors[place] for place in self.chosen], seeds)

    def forward_over_reverse(self, *given: Value) -> list[Value]:
        tensors, seeds, along = self.split(given)
        points = fresh([tensors[place] for place in self.chosen])
        return filled(jvp(self.reverse(tensors, points, seeds), points, along), points)

    def reverse_over_reverse(self, *given: Value) -> list[Value]:
        tensors, seeds, along = self.split(given)
        points = fresh([tensors[place] for place in self.chosen])
        return filled(vjp(self.reverse(tensors, points, seeds), along, points), points)

    def reverse_over_forward(self, *given: Value) -> list[Value]:
        tensors, seeds, along = self.split(given)
        points = fresh([tensors[place] for place in self.chosen])
        results = self.forward(tensors, points, along)
        return filled(vjp(results, list(map(fitted, seeds, results)), points), points)

    def evaluate(self, function: Callable[..., list[Value]]) -> list[np.ndarray]:
        arrays = [*self.arrays, *self.seeds, *self.tangents]
        return evaluate(function, arrays, "interp")

    def differences(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The change of the gradient along the tangents, and where that says what the derivative is: not at a kink."""
        arrays = [*self.arrays, *self.seeds, *self.tangents]
        gradient = interpreted(self.gradient, arrays)

        def gradients(distance: float) -> list[np.ndarray]:
            there = list(arrays)
            for place, tangent in zip(self.chosen, self.tangents, strict=True):
                there[place] = np.asarray(arrays[place] + distance * tangent)
            return gradient(there)

        found = []
        with np.errstate(invalid="ignore"):
            for behind, near_behind, here, near_ahead, ahead in zip(
                *(gradients(steps * STEP) for steps in (-1.0, -0.5, 0.0, 0.5, 1.0)), strict=True
            ):
                slope, near = (ahead - behind) / (2 * STEP), (near_ahead - near_behind) / STEP
                # A jump is as high from near as from far; a bend is not as steep on one side as on the other.
                unsteady = np.abs(slope - near), np.abs((ahead - here) - (here - behind)) / STEP
                smooth = np.maximum(*unsteady) < SMOOTH * np.maximum(1.0, np.abs(slope))
                found.append((slope, smooth))
        return found

    def check(self) -> list[str]:
        """How the second derivatives disagree with differences of gradients, and with each other."""
        wrong = []
        modes = (self.forward_over_reverse, self.reverse_over_reverse, self.reverse_over_forward)
        results = [self.evaluate(mode) for mode in modes]
        for number, (slope, smooth) in enumerate(self.differences()):
            expected = np.where(smooth, slope, results[0][number])
            scale = max(1.0, np.abs(slope[smooth]).max(initial=0.0))
            for mode, found in zip(modes, results, strict=True):
                if not np.allclose(found[number], expected, rtol=TOLERANCE, atol=TOLERANCE * scale):
                    wrong.append(f"{mode.__name__}, input {number}:\n{found[number]}\nexpected\n{expected}")
        return wrong


def programs(op: OpDef) -> list[tuple[int, Program]]:
    """What the samples of an op say about its derivatives."""
    entry = entry_of(op)
    if entry is None or not entry.derivative or "f64" not in entry.dtypes:
        return []
    found = []
    for number, sample in enumerate(entry.samples):
        if not {"vjp", "jvp"} <= set(sample.modes) or (sample.dtypes is not None and "f64" not in sample.dtypes):
            continue
        call = make(sample, "f64", f"{op.name}-{number}")
        if call.differentiate and all(call.arrays[place].dtype == np.float64 for place in call.differentiate):
            found.append((number, call))
    every = -(-len(found) // MOST)
    return (
        [
            (number, Program(calling(op, call), call.arrays, call.differentiate, entry.outputs))
            for number, call in found[::every]
        ]
        if found
        else []
    )


def calling(op: OpDef, call: Call) -> Callable[..., Any]:
    def function(*tensors: Value) -> Any:
        args, kwargs = call.arguments(tensors, torch_side=False)
        return op(*args, **kwargs)

    return function


@pytest.mark.parametrize("name", OPS)
def test_second_derivatives(name: str) -> None:
    for number, program in programs(REGISTRY[name]):
        wrong = program.check()
        assert not wrong, f"sample {number}: {wrong[0]}"


INFINITE = -math.inf


def scattered_product(x: Value) -> Any:
    """Two numbers, each times some of the other four."""
    return ops.scatter_reduce(x[:2], 0, np.array([0, 0, 1, 0]), x[2:], "prod")


POINTS: dict[str, tuple[Callable[[Value], Any], list[float]]] = {
    "prod, a zero": (ops.prod, [1.0, 0.0, 2.0]),
    "prod, two zeros": (ops.prod, [1.0, 0.0, 0.0, 3.0]),
    "prod, three zeros": (ops.prod, [0.0, 0.0, 2.0, 0.0]),
    "scattered product, a zero": (lambda x: scattered_product(x), [1.0, 2.0, 0.0, 3.0, 4.0, 5.0]),
    "scattered product, two zeros": (lambda x: scattered_product(x), [0.0, 2.0, 0.0, 3.0, 4.0, 0.0]),
    "scattered product, three zeros": (lambda x: scattered_product(x), [0.0, 0.0, 0.0, 0.0, 4.0, 0.0]),
    "cumprod, a zero": (lambda x: ops.cumprod(x, 0), [1.0, 0.0, 2.0]),
    "cumprod, two zeros": (lambda x: ops.cumprod(x, 0), [1.0, 0.0, 0.0, 3.0]),
    "cumprod, zeros at the ends": (lambda x: ops.cumprod(x, 0), [0.0, 2.0, 3.0, 0.0]),
    "cummax, ties": (lambda x: ops.cummax(x, 0)[0] ** 2, [1.0, 3.0, 3.0, 2.0, 3.0]),
    "cummin, ties": (lambda x: ops.cummin(x, 0)[0] ** 2, [3.0, 1.0, 1.0, 2.0, 1.0]),
    "max, ties": (lambda x: ops.max(x, 0)[0] ** 2, [1.0, 3.0, 3.0]),
    "amax, ties": (lambda x: ops.amax(x, 0) ** 2, [1.0, 3.0, 3.0]),
    "norm of zeros": (ops.norm, [0.0, 0.0]),
    "norm of order 3 of zeros": (lambda x: ops.norm(x, 3), [0.0, 0.0]),
    "std of equal numbers": (ops.std, [2.0, 2.0, 2.0]),
    "logcumsumexp": (lambda x: ops.logcumsumexp(x, 0), [0.3, -0.2, 0.5]),
    "logcumsumexp, ties": (lambda x: ops.logcumsumexp(x, 0), [1.0, 1.0, 1.0]),
    "logcumsumexp, far apart": (lambda x: ops.logcumsumexp(x, 0), [1e4, 0.0, -1e4, 1e4 + 1]),
    "logcumsumexp, nothing between": (lambda x: ops.logcumsumexp(x, 0), [0.0, INFINITE, 2.0]),
    "logsumexp, ties": (lambda x: ops.logsumexp(x, 0), [1.0, 1.0, 1.0]),
    "logsumexp, far apart": (lambda x: ops.logsumexp(x, 0), [1e4, INFINITE, 1e4 + 1]),
    "sinc of zero": (ops.sinc, [0.0, 1e-3]),
}


@pytest.mark.parametrize("name", POINTS)
def test_second_derivatives_at(name: str) -> None:
    function, point = POINTS[name]
    wrong = Program(lambda x: function(x), [np.array(point)], [0]).check()
    assert not wrong, wrong[0]


def third(function: Callable[[Value], Value], point: np.ndarray, inner: str) -> np.ndarray:
    """All third derivatives of a scalar function: the gradient of a second derivative."""

    def along(x: Value, first: Value, second: Value) -> Any:
        if inner == "forward":
            return smelt.jvp(lambda x: smelt.jvp(function, (x,), (first,))[1], (x,), (second,))[1]
        return (smelt.grad(lambda x: (smelt.grad(function)(x) * first).sum())(x) * second).sum()

    units = np.eye(len(point))
    return np.array([[smelt.grad(along)(point, one, other) for one in units] for other in units])


@pytest.mark.parametrize("inner", ["forward", "reverse"])
@pytest.mark.parametrize("point", [[1.0, 0.0, 2.0, 3.0], [0.0, 0.0, 2.0, 0.0], [2.0, 0.0, 0.0, 0.0]])
def test_third_derivatives_of_products_with_zeros(point: list[float], inner: str) -> None:
    array = np.array(point)
    places = range(len(point))

    def by_hand(length: int) -> np.ndarray:
        """Those of the product of the first factors: the product of all but three of them."""
        found = np.zeros((len(point),) * 3)
        for three in itertools.permutations(range(length), 3):
            found[three] = math.prod(point[place] for place in range(length) if place not in three)
        return found

    np.testing.assert_allclose(third(lambda x: ops.prod(x), array, inner), by_hand(len(point)))
    found = third(lambda x: ops.cumprod(x, 0).sum(), array, inner)
    np.testing.assert_allclose(found, sum(by_hand(place + 1) for place in places))


@pytest.mark.parametrize("name", ["prod", "cumprod"])
@pytest.mark.parametrize("factors", [[1 + 2j, 0.5j, 2 - 1j], [1 + 2j, 0, 2 - 1j, 0]])
def test_second_derivatives_of_complex_products(name: str, factors: list[complex]) -> None:
    x, *others = np.array(factors), np.arange(1.0, len(factors) + 1) + 1j, 2.0 - 1j * np.arange(len(factors))

    def gradient(x: Any, seed: Any, library: Any, conj: Callable[[Any], Any], real: Callable[[Any], Any]) -> Any:
        def product(x: Any) -> Any:
            # Written out, so that nothing needs to know about zeros.
            if library is torch.func:
                running = [x[0]]
                for place in range(1, len(factors)):
                    running.append(running[-1] * x[place])
                return running[-1] if name == "prod" else torch.stack(running)
            return ops.prod(x) if name == "prod" else ops.cumprod(x, 0)

        return library.grad(lambda x: real((product(x) * conj(seed)).sum()))(x)

    def ours(x: Any, seed: Any, along: Any) -> Any:
        first = gradient(x, seed, smelt, ops.conj, ops.real)
        return ops.real((first * ops.conj(along)).sum())

    def theirs(x: Any, seed: Any, along: Any) -> Any:
        first = gradient(x, seed, torch.func, torch.conj, torch.real)
        return torch.real((first * torch.conj(along)).sum())

    expected = torch.func.grad(theirs)(*(torch.tensor(item) for item in (x, *others)))
    np.testing.assert_allclose(smelt.grad(ours)(x, *others), expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("function", [lambda x: ops.prod(x), lambda x: ops.cumprod(x, 0).sum()])
def test_derivatives_of_products_make_no_matrix(function: Callable[[Value], Value]) -> None:
    x = np.ones(4096)
    graph = parse_pipeline("decompose").run(
        trace(lambda x: smelt.grad(lambda x: smelt.grad(function)(x).sum())(x), [x])
    )
    assert all(value.type.numel <= 2 * x.size for op in graph.ops for value in op.results)
