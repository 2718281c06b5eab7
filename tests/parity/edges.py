"""Derivatives at the edges of every op that has them: zeros, ties, kinks, limits of domains, infinities.

Each sample of the parity tables is moved to an edge (all its numbers one number, or one of them a special one) and its
derivatives in both modes and of second order are compared with PyTorch's in f64. Where PyTorch has NaN there is nothing
to compare with.
"""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from smelt.ir.graph import Value
from smelt.ops.define import REGISTRY
from smelt.ops.opdef import OpDef
from smelt.passes.autodiff.jvp import jvp
from smelt.passes.autodiff.vjp import vjp, zeros
from support import evaluate, fitted, flatten, from_torch, to_torch

from .runner import REFUSALS, counterparts, entry_of, torch_call, torch_double_vjp, torch_jvp, torch_vjp
from .special import tensors
from .table import Call, Entry, make

TIES = (0.0, 1.0, -1.0, 0.5)  # all numbers of all tensors
PLACES = (0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 800.0, -800.0, 1e-200, np.inf, -np.inf)  # of one
SAMPLES = 4  # of an op
TOLERANCE = 1e-7

Derivative = Callable[..., list[Value]]


class Edge:
    """One call at an edge, with seeds for its results and tangents for its inputs."""

    def __init__(self, op: OpDef, entry: Entry, number: int, what: str, call: Call):
        self.op, self.entry, self.number, self.what, self.call = op, entry, number, what, call
        self.arrays, self.chosen = call.arrays, call.differentiate
        random = np.random.default_rng(zlib.crc32(op.name.encode()))
        results = evaluate(lambda *given: self.results(given), self.arrays, "interp")
        self.seeds = [np.asarray(random.uniform(0.5, 1, result.shape)) for result in results]
        self.tangents = [np.asarray(random.uniform(0.5, 1, self.arrays[at].shape)) for at in self.chosen]

    @property
    def name(self) -> str:
        return f"{self.number} {self.what}"

    def results(self, given: Sequence[Value]) -> list[Value]:
        args, kwargs = self.call.arguments(given, torch_side=False)
        found = flatten(self.op(*args, **kwargs))[: self.entry.outputs]
        return [item for item in found if isinstance(item, Value) and item.dtype.is_float]

    def ours(self, mode: str) -> list[np.ndarray]:
        count, seeds = len(self.arrays), len(self.seeds)

        def program(*given: Value) -> list[Value]:
            inputs, weights, along = given[:count], given[count : count + seeds], given[count + seeds :]
            points = [REGISTRY["alias"](inputs[at]) for at in self.chosen]

            def of(points: Sequence[Value]) -> list[Value]:
                moved = list(inputs)
                for at, point in zip(self.chosen, points, strict=True):
                    moved[at] = point
                return self.results(moved)

            def reverse(points: Sequence[Value]) -> list[Value]:
                inner = [REGISTRY["alias"](point) for point in points]
                results = of(inner)
                return filled(vjp(results, [*map(fitted, weights, results)], inner), inner)

            if mode == "reverse":
                return reverse(points)
            if mode == "forward":
                results = of(points)
                return filled(jvp(results, points, along), results)
            if mode == "forward over reverse":
                return filled(jvp(reverse(points), points, along), points)
            return filled(vjp(reverse(points), along, points), points)

        arrays = [*self.arrays, *self.seeds, *self.tangents]
        return evaluate(program, arrays, "interp")

    def theirs(self, mode: str) -> list[np.ndarray] | None:
        """PyTorch's, or None where it has none."""
        points = [to_torch(self.arrays[at]) for at in self.chosen]
        seeds, along = [to_torch(item) for item in self.seeds], [to_torch(item) for item in self.tangents]
        for function in counterparts(self.op, self.entry):

            def of(*points: torch.Tensor, function: Callable[..., Any] = function) -> list[torch.Tensor]:
                given = [to_torch(array) for array in self.arrays]
                for at, point in zip(self.chosen, points, strict=True):
                    given[at] = point
                found = torch_call(function, self.call, given)[: self.entry.outputs]
                return [item for item in found if item is not None and item.is_floating_point()]

            try:
                if mode == "reverse":
                    return [from_torch(item) for item in torch_vjp(of, points, seeds)] or None
                if mode == "forward":
                    forward = torch_jvp if self.entry.forward_mode else torch_double_vjp
                    return [from_torch(item) for item in forward(of, points, along)] or None
                return [from_torch(item) for item in twice(of, points, seeds, along)]
            except REFUSALS:
                continue
        return None

    def wrong(self, mode: str) -> str:
        """How the derivatives of a mode differ from PyTorch's, or nothing."""
        known = self.theirs("second" if "over" in mode else mode)
        if known is None:
            return ""
        found = self.ours(mode)
        if [item.shape for item in found] != [item.shape for item in known]:
            return ""  # a result that is not asked for is missing
        for number, (got, wanted) in enumerate(zip(found, known, strict=True)):
            with np.errstate(all="ignore"):
                size = np.abs(np.where(np.isfinite(wanted), wanted, 0)).max(initial=1.0)
                good = np.isclose(got, wanted, TOLERANCE, TOLERANCE * min(size, 10.0)) | np.isnan(wanted)
                if "inf" in self.what:
                    good |= np.isinf(wanted)  # of infinities only what is finite says something
            if not good.all():
                at = tuple(int(item) for item in np.argwhere(~good)[0])
                return f"{mode}, result {number}: at {list(at)} got {got[at]}, PyTorch {wanted[at]}"
        return ""


MODES = ("reverse", "forward", "forward over reverse", "reverse over reverse")


def filled(found: Sequence[Value | None], like: Sequence[Value]) -> list[Value]:
    return [zeros(same.type) if item is None else item for item, same in zip(found, like, strict=True)]


def twice(
    function: Callable[..., list[torch.Tensor]],
    points: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor],
    along: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """PyTorch's second derivative: the gradient of the gradient, weighed with tangents."""
    chosen = [item.detach().requires_grad_() for item in points]
    pairs = [(item, seed) for item, seed in zip(function(*chosen), seeds, strict=True) if item.requires_grad]
    if not pairs:
        raise ValueError("nothing depends on the inputs")
    first = torch.autograd.grad(
        [item for item, _ in pairs], chosen, [seed for _, seed in pairs],
        create_graph=True, allow_unused=True, materialize_grads=True,
    )  # fmt: skip
    linear = [(item, tangent) for item, tangent in zip(first, along, strict=True) if item.requires_grad]
    if not linear:
        return [torch.zeros_like(item) for item in chosen]
    found = torch.autograd.grad(
        [item for item, _ in linear], chosen, [tangent for _, tangent in linear],
        allow_unused=True, materialize_grads=True,
    )  # fmt: skip
    return [item.detach() for item in found]


def edges(op: OpDef, spread: int = 1) -> Iterator[Edge]:
    """The samples of an op moved to edges, every `spread`-th of them."""
    entry = entry_of(op)
    if entry is None or not entry.derivative or "f64" not in entry.dtypes or not op.differentiable:
        return
    if entry.torch == "interp":
        return
    samples = [
        (number, sample)
        for number, sample in enumerate(entry.samples)
        if tensors(sample) and (sample.dtypes is None or "f64" in sample.dtypes)
    ]
    turn = zlib.crc32(op.name.encode())
    chosen = samples[:: -(-len(samples) // SAMPLES)] if samples else []
    for number, sample in chosen:
        for kind, values in (("all", TIES), ("one", PLACES)):
            for value in values:
                turn += 1
                if turn % spread:
                    continue
                call = make(sample, "f64", f"{op.name}-{number}")
                places = [
                    at for at in call.differentiate if call.arrays[at].dtype == np.float64 and call.arrays[at].size
                ]
                if not places or any(call.arrays[at].dtype != np.float64 for at in call.differentiate):
                    break
                if kind == "all":
                    for at in places:
                        call.arrays[at][...] = value
                else:
                    array = call.arrays[places[turn % len(places)]]
                    array.reshape(-1)[turn % array.size] = value
                try:
                    yield Edge(op, entry, number, f"{kind} {value}", call)
                except Exception as error:
                    raise AssertionError(f"{op.name} {number} {kind} {value}: {error}") from error


def run(op: OpDef, spread: int = 1, only: str = "*") -> Iterator[tuple[Edge, str]]:
    """The edges of an op at which derivatives differ from PyTorch's; those alone whose name matches a pattern."""
    for edge in edges(op, spread):
        if not fnmatch.fnmatchcase(f"{op.name} {edge.name}", only):
            continue
        for mode in MODES:
            try:
                message = edge.wrong(mode)
            except Exception as error:
                message = f"{mode}: {type(error).__name__}: {error}"
            if message:
                yield edge, message
