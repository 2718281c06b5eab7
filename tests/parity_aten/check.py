"""One call of an aten op: smelt against eager, forward, reverse, forward mode and second derivative."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import smelt
import torch
from parity.compare import difference
from parity_torch.cases import UNDEFINED, subjects
from smelt.ir.errors import SmeltError
from smelt.ir.graph import Value, plain
from smelt.torch.importer import Importer, Unsupported
from smelt.torch.rules import RANDOM
from support import from_torch
from time_limit import TimeIsUp, limited
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from .recorded import Call, calls_of

LIMIT = 20.0  # seconds of computing for a call
MODES = ("forward", "reverse", "tangent", "second")
# Ops whose numbers are drawn, by PyTorch's generator in eager and by smelt's.
DRAWN = re.compile(
    r".*(dropout|rand|normal$|bernoulli|poisson|multinomial|exponential|uniform|cauchy|geometric$|gamma$"
    r"|rrelu_with_noise$|binomial|dirichlet$)"
)
WIDE = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64,
        torch.complex64: torch.complex128}  # fmt: skip
_seen: set[tuple[Any, ...]] = set()  # keys of calls that this process has compared: subjects share many
Outcome = dict[str, Any]
Tensors = Sequence[torch.Tensor]


class Absent(Exception):
    """Eager does not have what would be compared."""


def answer(task: tuple[str, ...], skip: int, samples: int) -> Iterator[Outcome]:
    """How the calls of a subject's samples fare, from one on: the work of a process."""
    name, dtype = task
    torch.set_num_threads(1)
    try:
        calls = list(calls_of(subjects()[name], samples, getattr(torch, dtype)))
    except Exception as error:
        calls = []
        if not skip:
            yield {"passed": True, "why": f"no samples: {type(error).__name__}: {error}", "op": "", "modes": {}}
    for call in calls[skip:]:
        key = call.key()
        yield {"passed": True, "why": "as before", "op": "", "modes": {}} if key in _seen else check(call)
        _seen.add(key)


def check(call: Call) -> Outcome:
    """How each mode of a call fares: 'same', 'absent: why' (eager has none), 'refused: why' or 'wrong: why'."""
    modes: dict[str, str] = {}
    try:
        with limited(LIMIT), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Comparison(call).run(modes)
    except TimeIsUp:
        modes[next(mode for mode in MODES if mode not in modes)] = f"wrong: more than {LIMIT:.0f} s"
    wrong = next((f"{mode}: {why}" for mode, why in modes.items() if why.startswith("wrong")), "")
    return {"passed": not wrong, "why": wrong, "op": call.op, "modes": modes, "call": shown(call)}


def shown(call: Call) -> str:
    def short(item: Any) -> str:
        if isinstance(item, torch.Tensor):
            return f"{str(item.dtype).removeprefix('torch.')}{list(item.shape)}"
        if isinstance(item, (list, tuple)):
            return f"[{', '.join(map(short, item))}]"
        return repr(item)

    parts = [*map(short, call.args), *(f"{name}={short(item)}" for name, item in call.kwargs.items())]
    return f"{call.overload}({', '.join(parts)})"


def is_inexact(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and (item.is_floating_point() or item.is_complex())


class Comparison:
    """A call as functions of its inexact tensors, PyTorch's and smelt's, and what they are given in each mode."""

    def __init__(self, call: Call):
        self.call = call
        self.tensors = call.tensors()
        self.places = [at for at, item in enumerate(self.tensors) if is_inexact(item)]
        self.random = np.random.default_rng(7)
        self.inexact: list[int] = []  # results that are inexact tensors
        self.kept: list[int] = []  # those of them that have a gradient in eager

    def run(self, modes: dict[str, str]) -> None:
        try:
            results = self.eager(self.tensors)
        except Exception as error:
            modes["forward"] = f"absent: {text_of(error)}"
            return
        self.inexact = [at for at, item in enumerate(results) if is_inexact(item)]
        self.compare("forward", modes, results, [], lambda wide: self.eager(wide))
        name = self.call.op
        is_drawn = DRAWN.fullmatch(name) is not None or name in RANDOM or UNDEFINED.fullmatch(name) is not None
        narrow = any(item.dtype in (torch.float16, torch.bfloat16) for item in self.tensors)
        if modes["forward"] != "same" or is_drawn or narrow or not self.places:
            return
        cotangents = [self.draw(results[at]) for at in self.inexact]
        try:
            found = self.pull(self.tensors, cotangents)
        except Absent as error:
            modes["reverse"] = f"absent: {error}"
        else:
            self.compare("reverse", modes, found, cotangents, lambda wide, *more: self.pull(wide, more))
        tangents = [self.draw(self.tensors[at]) for at in self.places]
        try:
            found = self.push(self.tensors, tangents)
        except Absent as error:
            modes["tangent"] = f"absent: {error}"
        else:
            self.compare("tangent", modes, found, tangents, lambda wide, *more: self.push(wide, more))
        if modes["reverse"] != "same":
            return
        weights = [self.draw(self.tensors[at]) for at in self.places]
        try:
            found = self.pull_twice(self.tensors, cotangents, weights)
        except Absent as error:
            modes["second"] = f"absent: {error}"
        else:
            count = len(cotangents)
            self.compare(
                "second", modes, found, [*cotangents, *weights],
                lambda wide, *more: self.pull_twice(wide, more[:count], more[count:]),
            )  # fmt: skip

    def draw(self, like: torch.Tensor) -> torch.Tensor:
        numbers = self.random.uniform(-1, 1, tuple(like.shape))
        if like.is_complex():
            numbers = numbers + 1j * self.random.uniform(-1, 1, tuple(like.shape))
        return torch.from_numpy(np.asarray(numbers)).to(like.dtype)

    # PyTorch

    def eager(self, tensors: Tensors) -> list[Any]:
        """The results with these tensors in place of the recorded ones; None stands for what is no tensor."""
        leaves, spec = pytree.tree_flatten((self.call.args, self.call.kwargs))
        given = iter(tensors)
        args, kwargs = pytree.tree_unflatten(
            [next(given) if isinstance(item, torch.Tensor) else item for item in leaves], spec
        )
        torch.manual_seed(0)
        found = pytree.tree_leaves(self.call.overload(*args, **kwargs))
        return [item if isinstance(item, torch.Tensor) else None for item in found]

    def _attached(self, tensors: Tensors) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Fresh inputs that are differentiated by, and the inexact results."""
        given = [item.detach().clone(memory_format=torch.preserve_format) for item in tensors]
        inputs = [given[at].requires_grad_() for at in self.places]
        return inputs, [item for item in self.eager(given) if is_inexact(item)]

    def pull(self, tensors: Tensors, cotangents: Tensors, create_graph: bool = False) -> list[torch.Tensor | None]:
        try:
            inputs, results = self._attached(tensors)
            self.kept = [at for at, item in enumerate(results) if item.requires_grad]
            if not self.kept:
                raise Absent("no result has a gradient")
            chosen, weights = [results[at] for at in self.kept], [cotangents[at] for at in self.kept]
            found = list(torch.autograd.grad(chosen, inputs, weights, create_graph=create_graph, allow_unused=True))
        except RuntimeError as error:
            raise Absent(text_of(error)) from None
        self.inputs = inputs
        return found

    def pull_twice(self, tensors: Tensors, cotangents: Tensors, weights: Tensors) -> list[torch.Tensor | None]:
        seeds = [item.detach().clone().requires_grad_() for item in cotangents]
        first = self.pull(tensors, seeds, create_graph=True)
        pairs = [(item, weight) for item, weight in zip(first, weights) if item is not None and item.requires_grad]
        if not pairs:
            raise Absent("no gradient has a gradient")
        try:
            return list(
                torch.autograd.grad(
                    [item for item, _ in pairs],
                    [*self.inputs, *(seeds[at] for at in self.kept)],
                    [weight for _, weight in pairs],
                    allow_unused=True,
                )
            )
        except RuntimeError as error:
            raise Absent(text_of(error)) from None

    def push(self, tensors: Tensors, tangents: Tensors) -> list[torch.Tensor | None]:
        given = [item.detach().clone(memory_format=torch.preserve_format) for item in tensors]
        try:
            with forward_ad.dual_level():
                for at, tangent in zip(self.places, tangents):
                    given[at] = forward_ad.make_dual(given[at], tangent)
                results = [item for item in self.eager(given) if is_inexact(item)]
                found = [forward_ad.unpack_dual(item).tangent for item in results]
        except (RuntimeError, NotImplementedError) as error:
            raise Absent(text_of(error)) from None
        if all(item is None for item in found):
            raise Absent("no result has a tangent")
        return found

    # smelt

    def own(self, values: Sequence[Any]) -> list[Value]:
        """The results of smelt's op, by way of a graph of one node, as torch.compile makes it."""
        graph = torch.fx.Graph()
        leaves, spec = pytree.tree_flatten((self.call.args, self.call.kwargs))
        given, known = iter(zip(values, self.tensors)), {}
        for at, item in enumerate(leaves):
            if isinstance(item, torch.Tensor):
                value, tensor = next(given)
                leaves[at] = graph.placeholder(f"x{at}")
                leaves[at].meta["val"] = tensor
                known[leaves[at]] = value
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        node = graph.call_function(self.call.overload, args, kwargs)
        torch.manual_seed(0)
        node.meta["val"] = self.call.overload(*self.call.args, **self.call.kwargs)
        found = Importer({}, eager_random=False).call(node, known.__getitem__)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    def own_mode(self, mode: str, values: Sequence[Any], extra: Sequence[Any]) -> list[Any]:
        if mode == "forward":
            return self.own(values)

        def function(*inputs: Any) -> tuple[Any, ...]:
            given = list(values)
            for at, item in zip(self.places, inputs):
                given[at] = plain(item)
            results = self.own(given)
            return tuple(results[at] for at in self.inexact)

        def some(*inputs: Any) -> tuple[Any, ...]:
            results = function(*inputs)
            return tuple(results[at] for at in self.kept)

        inputs = [values[at] for at in self.places]
        if mode == "tangent":
            return list(smelt.jvp(function, tuple(inputs), tuple(extra))[1])
        if mode == "reverse":
            return list(smelt.vjp(some, *inputs)[1](tuple(extra[at] for at in self.kept)))
        count = len(extra) - len(inputs)
        seeds = [extra[at] for at in self.kept]

        def gradients(*both: Any) -> tuple[Any, ...]:
            return tuple(smelt.vjp(some, *both[: len(inputs)])[1](tuple(both[len(inputs) :])))

        return list(smelt.vjp(gradients, *inputs, *seeds)[1](tuple(extra[count:])))

    # Both

    def compare(
        self, mode: str, modes: dict[str, str], expected: Sequence[Any], extra: Tensors, reference: Callable[..., Any]
    ) -> None:
        arrays = [from_torch(item) for item in (*self.tensors, *extra)]
        count = len(self.tensors)

        def program(*values: Any) -> tuple[Any, ...]:
            given = list(map(plain, values))
            return tuple(
                item if isinstance(item, Value) else np.zeros(())
                for item in self.own_mode(mode, given[:count], given[count:])
            )

        try:
            found = smelt.jit(program)(*arrays)
        except (SmeltError, Unsupported) as error:
            modes[mode] = f"refused: {text_of(error)}"
            return
        except Exception as error:
            modes[mode] = f"wrong: {text_of(error)}"
            return
        name = self.call.op
        is_drawn = DRAWN.fullmatch(name) is not None or name in RANDOM or UNDEFINED.fullmatch(name) is not None
        exact = self.exact(expected, extra, reference)
        why = f"{len(found)} results, expected {len(expected)}" if len(found) != len(expected) else ""
        for at, (got, want) in enumerate(zip(found, expected)):
            if want is None or why:
                continue
            got, array = np.asarray(got), from_torch(want.detach())
            if is_drawn:
                why = "" if (got.shape, got.dtype) == (array.shape, array.dtype) else f"{got.dtype}{got.shape}"
            else:
                why = difference(got, array, lambda at=at: exact(at))
            why = why and f"result {at}: {why}"
        modes[mode] = f"wrong: {why}" if why else "same"

    def exact(
        self, expected: Sequence[Any], extra: Tensors, reference: Callable[..., Any]
    ) -> Callable[[int], np.ndarray | None]:
        """Eager's results in float64, worked out where they are asked for."""
        known: list[Any] = []

        def find(at: int) -> np.ndarray | None:
            if not known:
                try:
                    wide = [item.to(WIDE.get(item.dtype, item.dtype)) for item in self.tensors]
                    more = [item.to(WIDE.get(item.dtype, item.dtype)) for item in extra]
                    known.append(reference(wide, *more) if more else reference(wide))
                except Exception:  # an op of this type alone
                    known.append([])
            found = known[0]
            value = found[at] if len(found) == len(expected) else None
            return None if value is None else value.detach().numpy(force=True)

        return find


def text_of(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"
