"""Runs a drawn program through smelt in one of several ways and compares it with what PyTorch says."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import smelt
import torch
from smelt.backend.cuda import build as cuda
from smelt.backend.options import CompileOptions
from smelt.backend.report.timings import Stages
from smelt.ir.errors import (
    ArgumentError,
    DerivativeError,
    DTypeError,
    IndexRangeError,
    NumberRangeError,
    ShapeError,
    SmeltError,
)
from smelt.ir.graph import Graph
from smelt.ops.opdef import OpDef
from support import from_torch, to_torch

from .defects import put_back
from .draw import Drawer, Finding, drawable
from .habits import small_thresholds
from .oracle import Expected, expected
from .program import Program

_put_back: set[str] = set()
DERIVATIVES = ("reverse", "forward", "second", "nested", "training")
NUMPY = ("jit", "sizes", "reverse", "forward", "second", "nested", "simulator")  # ways through smelt.jit
DERIVATIVE_ROOM = 16.0
SIMULATED = 1000  # elements of a value
DIFFERENTIABLE = (np.float32, np.float64)
T = TypeVar("T")


def forward(tensors: list[torch.Tensor], function: Callable[..., Any]) -> list[torch.Tensor | None]:
    with torch.no_grad():
        return list(function(*tensors))


class Derivative:
    """The reverse or forward mode of a program by PyTorch, with respect to its real inputs.

    with_value: results are the weighted sum of the program's, which is differentiated, and then the gradients."""

    def __init__(self, program: Program, seed: int, mode: str, with_value: bool = False):
        self.program = program
        self.mode = mode
        self.with_value = with_value
        self.chosen = [at for at, array in enumerate(program.inputs) if getattr(array, "dtype", None) in DIFFERENTIABLE]
        self.random = np.random.default_rng(seed)
        self.weights: list[np.ndarray | None] = []
        self.directions: list[np.ndarray] = []

    def prepare(self) -> bool:
        """Draw weights of the results, or directions of the inputs; False if there is nothing to differentiate."""
        if not self.chosen:
            return False
        results = forward(self.program.tensors(), self.program.eager)
        self.weights = [self.numbers(from_torch(item)) if usable(item) else None for item in results]
        self.directions = [self.numbers(self.program.inputs[at]) for at in self.chosen]
        return any(item is not None for item in self.weights)

    def numbers(self, like: np.ndarray) -> np.ndarray:
        return np.asarray(self.random.integers(-4, 5, like.shape) / 2).astype(like.dtype)

    def eager(self, tensors: list[torch.Tensor], function: Callable[..., Any]) -> list[torch.Tensor | None]:
        tensors = [item.detach().clone() if isinstance(item, torch.Tensor) else item for item in tensors]
        leaves = [tensors[at].requires_grad_() for at in self.chosen]
        results = function(*tensors)
        pairs = [
            (item, to_torch(weight).to(item.dtype))
            for item, weight in zip(results, self.weights)
            if weight is not None and item.requires_grad
        ]
        value = [self.loss([item.detach() for item in results], to_torch)] if self.with_value else []
        if not pairs:
            return value + [torch.zeros_like(leaf) for leaf in leaves]
        outputs, seeds = [item for item, _ in pairs], [seed for _, seed in pairs]
        again = self.mode == "second"
        found = torch.autograd.grad(
            outputs, leaves, seeds, allow_unused=True, materialize_grads=True, create_graph=again
        )
        if again:
            directions = [to_torch(item).to(leaf.dtype) for item, leaf in zip(self.directions, leaves)]
            slopes = [(item, way) for item, way in zip(found, directions) if item.requires_grad]
            if not slopes:
                return [torch.zeros_like(leaf) for leaf in leaves]
            found = torch.autograd.grad(
                [item for item, _ in slopes],
                leaves,
                [way for _, way in slopes],
                allow_unused=True,
                materialize_grads=True,
            )
        return value + [item.detach() for item in found]

    def reached(self) -> list[int]:
        """The chosen inputs that some result depends on."""
        tensors = self.program.tensors()
        leaves = [tensors[at].requires_grad_() for at in self.chosen]
        outputs = [item.sum() for item in self.weighted(self.program.eager(*tensors)) if item.requires_grad]
        found = torch.autograd.grad(outputs, leaves, allow_unused=True) if outputs else [None] * len(leaves)
        return [at for at, item in zip(self.chosen, found) if item is not None]

    def of_chosen(self, function: Callable[..., Any], inputs: Any) -> Callable[..., Any]:
        """A function of all inputs as one of those that derivatives are taken by."""

        def some(*leaves: Any) -> Any:
            given = list(inputs)
            for at, leaf in zip(self.chosen, leaves):
                given[at] = leaf
            return function(*given)

        return some

    def weighted(self, results: Any) -> tuple[Any, ...]:
        """The results that can be differentiated."""
        return tuple(item for item, weight in zip(results, self.weights) if weight is not None)

    def loss(self, results: Any, convert: Callable[[np.ndarray], Any] = lambda weight: weight) -> Any:
        pairs = [(item, convert(weight)) for item, weight in zip(results, self.weights) if weight is not None]
        terms = [(item * weight).sum() for item, weight in pairs]
        return sum(terms[1:], terms[0])

    def gradient(self, *arrays: Any) -> tuple[Any, ...]:
        """The same by smelt's transforms."""
        loss = self.of_chosen(lambda *given: self.loss(self.program.traced(*given)), arrays)

        def slope(*leaves: Any) -> Any:
            gradients = smelt.grad(loss, tuple(range(len(leaves))))(*leaves)
            terms = [(item * way).sum() for item, way in zip(gradients, self.directions)]
            return sum(terms[1:], terms[0])

        leaves = [arrays[at] for at in self.chosen]
        numbers = tuple(range(len(leaves)))
        if self.with_value:
            value, gradients = smelt.value_and_grad(loss, numbers)(*leaves)
            return (value, *gradients)
        return smelt.grad(slope if self.mode == "second" else loss, numbers)(*leaves)


class Refused(Finding):
    """smelt does not take arguments that it took alone."""


class IndexOutOfRange(Exception):
    """smelt says so; PyTorch does not look at the indices of some ops that have no elements or one."""


class NothingToCompare(Exception):
    """There is nothing to compare."""


def usable(item: torch.Tensor | None) -> bool:
    return item is not None and item.dtype in (torch.float32, torch.float64)


@contextmanager
def default_float(element: torch.dtype) -> Iterator[None]:
    """What integers become in PyTorch where an op needs floats."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(element)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def mode_of(way: str, seed: int) -> str | None:
    """How a way differentiates, if it does: the simulator does every other program."""
    if way in ("forward", "second"):
        return way
    return "reverse" if way in DERIVATIVES or (way == "simulator" and seed % 2 == 1) else None


def way_of(seed: int, ways: tuple[str, ...]) -> str:
    return random.Random(seed).choices(ways, [SHARES.get(way, 1) for way in ways])[0]


@cache
def ops_for(way: str) -> list[OpDef]:
    return [defn for defn in drawable() if way != "simulator" or "conv" not in defn.name]  # which are slow in it


def check(seed: int, ways: tuple[str, ...]) -> dict[str, Any]:
    """Draw the program of a seed and run it in one of the ways; what is wrong is in "failure"."""
    report: dict[str, Any] = {"seed": seed, "way": "draw"}
    way = way_of(seed, ways)
    # Derivatives at infinities and kinks are a matter of convention, and have a table of their own.
    drawer = Drawer(
        seed,
        ops_for(way),
        mode=mode_of(way, seed),
        numpy=way in NUMPY,
        most=SIMULATED if way == "simulator" else None,
    )
    try:
        with (
            warnings.catch_warnings(),
            default_float(torch.float64 if way in NUMPY else torch.float32),
            small_thresholds(drawer.habits.is_small and way != "simulator"),  # which takes its time for many blocks
        ):
            warnings.simplefilter("ignore")
            program = drawer.draw()
            report |= {"refused": drawer.refused, "typed": drawer.typed, "ops": [step.op for step in program.steps]}
            if not program.steps:
                return report | {"way": "empty"}
            report["way"] = way
            message, excused = WAYS[way](program, seed)
            report["excused"] = excused
            if message:
                small, message = smallest(program, message, lambda less: WAYS[way](less, seed)[0])
                report["failure"] = f"{message}\n{small!r}"
    except (NothingToCompare, IndexOutOfRange):
        report["way"] = "empty"
    except Finding as found:
        report["failure"] = str(found)
    return report


def smallest(program: Program, message: str, run: Callable[[Program], str]) -> tuple[Program, str]:
    """The first value that is wrong alone, with the steps that it needs; the whole program if none is."""
    for number in range(len(program.inputs), len(program.inputs) + sum(program.counts)):
        less = replace(program, results=[number]).needed()
        try:
            found = run(less)
        except (NothingToCompare, IndexOutOfRange, TypeError, AttributeError):
            continue  # a result that is no tensor
        if found:
            return less, found
    return program, message


def jitted(function: Callable[..., Any], arrays: list[np.ndarray]) -> list[Any]:
    return run_jitted(smelt.jit(function), arrays)


def proved(function: Callable[..., Any], arrays: list[np.ndarray]) -> list[Any]:
    """The results, and a proof that GPU kernels of the same graph stay in their memory and do not race."""
    found: list[Graph] = []
    module = sys.modules["smelt.jit"]
    compile_graph = module._compile  # type: ignore[attr-defined]

    def note(graph: Graph, options: Any) -> Any:
        found.append(graph)
        return compile_graph(graph, options)

    with patch.object(module, "_compile", note):
        results = jitted(function, arrays)
    for graph in found:
        cuda.build(graph, CompileOptions(target="cuda", verify=True), Stages(), None, False)
    return results


def run_jitted(function: Callable[..., Any], arrays: list[np.ndarray]) -> list[Any]:
    try:
        found = function(*arrays)
    except (DerivativeError, NumberRangeError) as error:
        raise NothingToCompare from error  # as NumPy, jit takes no number that is out of an array's range
    except IndexRangeError as error:
        raise IndexOutOfRange from error
    except (ArgumentError, DTypeError, ShapeError) as error:
        raise Refused(f"{type(error).__name__}: {error}") from error
    except SmeltError as error:
        raise Finding(f"{type(error).__name__}: {error}") from error
    return list(found) if isinstance(found, (tuple, list)) else [found]


def by_eager(program: Program) -> Expected:
    try:
        return expected(program, forward)
    except Exception as error:
        raise NothingToCompare from error  # PyTorch does not take the program in float64, or of another size


def by_jit(program: Program, seed: int) -> tuple[str, float]:
    return reported(by_eager(program), lambda: proved(program.traced, program.inputs))


def by_gradient(program: Program, seed: int, mode: str = "reverse") -> tuple[str, float]:
    derivative = prepared(program, seed, mode, with_value=mode == "reverse")
    known = derivatives(lambda: expected(program, derivative.eager))
    run = proved if mode == "reverse" else jitted
    return reported(known, lambda: run(derivative.gradient, program.inputs))


def prepared(program: Program, seed: int, mode: str, with_value: bool = False) -> Derivative:
    derivative = Derivative(program, seed, mode, with_value)
    try:
        is_ready = derivative.prepare()
    except Exception as error:
        raise NothingToCompare from error  # PyTorch does not take the program again
    if not is_ready:
        raise NothingToCompare
    return derivative


def derivatives(compute: Callable[[], Expected]) -> Expected:
    return replace(differentiated(compute), room=DERIVATIVE_ROOM, derivative=True)


def differentiated(compute: Callable[[], T]) -> T:
    try:
        return compute()
    except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
        raise NothingToCompare from error  # PyTorch has no derivative, or does not take the program again


def reported(known: Expected, run: Callable[[], list[Any]]) -> tuple[str, float]:
    try:
        return known.check(run())
    except (Refused, NothingToCompare, IndexOutOfRange):
        raise
    except Finding as found:
        return str(found), 0.0
    except Exception as error:
        return f"{type(error).__name__}: {error}", 0.0


def by_forward_mode(program: Program, seed: int) -> tuple[str, float]:
    derivative = prepared(program, seed, "forward")

    def eager(tensors: list[torch.Tensor], function: Callable[..., Any]) -> list[torch.Tensor | None]:
        chosen = [tensors[at] for at in derivative.chosen]
        directions = [to_torch(item).to(leaf.dtype) for item, leaf in zip(derivative.directions, chosen)]
        some = derivative.of_chosen(lambda *given: derivative.weighted(function(*given)), tensors)
        results, tangents = torch.func.jvp(some, tuple(chosen), tuple(directions))
        # A tangent is of its result's type, also where PyTorch has promoted it on the way.
        return [tangent.to(result.dtype) for result, tangent in zip(results, tangents)]

    def traced(*arrays: Any) -> Any:
        some = derivative.of_chosen(lambda *given: derivative.weighted(program.traced(*given)), arrays)
        return smelt.jvp(some, tuple(arrays[at] for at in derivative.chosen), tuple(derivative.directions))[1]

    known = derivatives(lambda: expected(program, eager))
    return reported(known, lambda: jitted(traced, program.inputs))


def by_nesting(program: Program, seed: int) -> tuple[str, float]:
    """The gradient by some inputs, as arrays, inside of a trace of the others, which the function closes over."""
    derivative = prepared(program, seed, "reverse")
    reached = differentiated(derivative.reached)
    if not reached:
        raise NothingToCompare
    inner = reached[: 1 + seed % len(reached)]
    outer = [at for at in range(len(program.inputs)) if at not in inner]
    wraps = [lambda function: function, smelt.jit][seed // 7 % 2]

    def traced(*others: Any) -> Any:
        known = dict(zip(outer, others))

        def loss(*leaves: Any) -> Any:
            given = known | dict(zip(inner, leaves))
            results = program.traced(*(given[at] for at in range(len(program.inputs))))
            return derivative.loss(results)

        numbers = tuple(range(len(inner)))
        arrays = [program.inputs[at] for at in inner]
        if seed // 14 % 2:
            return smelt.value_and_grad(wraps(loss), numbers)(*arrays)[1]
        return smelt.grad(wraps(loss), numbers)(*arrays)

    derivative.chosen = inner
    known = derivatives(lambda: expected(program, derivative.eager))
    return reported(known, lambda: jitted(traced, [program.inputs[at] for at in outer]))


def by_sizes(program: Program, seed: int) -> tuple[str, float]:
    """One jitted function, called with three sizes of some dimension: the later calls run code of dynamic size."""
    source = random.Random(seed)
    sizes = sorted({size for array in program.inputs for size in np.shape(array) if size > 1})
    if not sizes:
        raise NothingToCompare
    old = source.choice(sizes)
    function = smelt.jit(program.traced)
    excused = 0.0
    for new in (old, old + source.choice((1, 2, 13)), old + source.choice((3, 5, 30))):
        resized = replace(
            program,
            inputs=[resized_array(item, old, new) for item in program.inputs],
        )
        known = by_eager(resized)  # which may refuse it: an attribute has the old size
        try:
            message, excused = reported(known, lambda resized=resized: run_jitted(function, resized.inputs))
        except Refused as error:
            raise NothingToCompare from error  # what smelt takes may depend on the size
        if message:
            return f"size {new} in place of {old}: {message}", excused
    return "", excused


def resized_array(array: Any, old: int, new: int) -> Any:
    """The same elements over again; in order if they were, as those that are searched must be."""
    if not isinstance(array, np.ndarray):
        return array
    found = np.resize(array, tuple(new if size == old else size for size in array.shape))
    if array.ndim and array.shape[-1] > 1 and array.dtype.kind != "c":
        wide = array.astype(np.float64) if array.dtype.kind not in "biu" else array
        if np.array_equal(wide, np.sort(wide, axis=-1), equal_nan=wide.dtype.kind == "f"):
            found = np.sort(found.astype(wide.dtype), axis=-1).astype(array.dtype)
    return np.asarray(found)


def by_torch(program: Program, seed: int) -> tuple[str, float]:
    known = by_eager(program)
    with torch.no_grad():
        return compiled_by_torch(program, seed, known, lambda function: list(function(*program.tensors())))


def compiled_by_torch(
    program: Program, seed: int, known: Expected, run: Callable[[Callable[..., Any]], list[Any]]
) -> tuple[str, float]:
    """The results with smelt as the back end; what PyTorch itself cannot compile is not compared."""

    def results(backend: str) -> list[Any]:
        torch._dynamo.reset()
        function = torch.compile(program.function(), backend=backend, fullgraph=True, dynamic=seed % 3 == 0)
        return [None if item is None else from_torch(item) for item in run(function)]

    message, excused = reported(known, lambda: results("smelt"))
    if message and reported(known, lambda: results("aot_eager"))[0]:
        raise NothingToCompare
    return message, excused


def by_torch_training(program: Program, seed: int) -> tuple[str, float]:
    derivative = prepared(program, seed, "reverse")
    known = derivatives(lambda: expected(program, derivative.eager))

    return compiled_by_torch(program, seed, known, lambda function: derivative.eager(program.tensors(), function))


def by_simulator(program: Program, seed: int) -> tuple[str, float]:
    """Kernels for GPUs in Numba's simulator, which sees races; small programs, for it is slow."""
    function: Callable[..., Any] = program.traced
    known = by_eager(program)
    if seed % 2 and (derivative := Derivative(program, seed, "reverse")).prepare():
        function, known = derivative.gradient, derivatives(lambda: expected(program, derivative.eager))
    compiled = smelt.jit(function, options=CompileOptions(target="cuda", verify=True))
    return reported(known, lambda: [np.asarray(item) for item in run_jitted(compiled, program.inputs)])


WAYS: dict[str, Callable[[Program, int], tuple[str, float]]] = {
    "jit": by_jit,
    "sizes": by_sizes,
    "reverse": by_gradient,
    "forward": by_forward_mode,
    "second": lambda program, seed: by_gradient(program, seed, "second"),
    "nested": by_nesting,
    "torch": by_torch,
    "training": by_torch_training,
}
# Programs of quick ways are many: those through Dynamo take five times as long.
SHARES = {"jit": 4, "sizes": 2, "reverse": 3, "simulator": 3}
# Numba's simulator is switched on before Numba is imported, for the whole process.
if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    WAYS["simulator"] = by_simulator


def answer(task: tuple[str, ...], skip: int, ways: tuple[str, ...], defect: str | None) -> Iterator[dict[str, Any]]:
    """The programs of a chunk, from one on: the work of a process."""
    if defect is not None and defect not in _put_back:
        put_back(defect)
        _put_back.add(defect)
    torch.set_num_threads(1)
    first, last = map(int, task)
    for seed in range(first + skip, last):
        try:
            report = check(seed, ways)
        except Exception as error:
            report = {"seed": seed, "way": "check", "failure": f"{type(error).__name__}: {error}"}
        yield {"passed": "failure" not in report, "why": report.get("failure", ""), **report}
