"""Runs an op's samples on a back end and compares them with torch.

All samples of an op, in all their element types, are one program: one compile. Where that program fails as a
whole they are run one by one, so that a failure has the name of its sample.
"""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from smelt.ir.asked import Asked
from smelt.ir.errors import AssertionFailed, SmeltError
from smelt.ir.graph import Value
from smelt.ir.types import TensorType, dtype
from smelt.ops.define import REGISTRY
from smelt.ops.opdef import OpDef
from support import evaluate, fitted, flatten, from_torch, to_torch

from .compare import difference, wide
from .table import (
    FULL,
    Call,
    D,
    Entry,
    Sample,
    T,
    binary,
    make,
    special_sample,
    ternary,
    torch_function,
    unary,
)

Results = list[np.ndarray | None]  # None: torch left it out

MODES = ("forward", "vjp", "jvp")
# Derivatives are compared in f64; every third sample in f32 too.
DERIVATIVE_SPREAD = 3
NAMESPACES = ("ops.aten", "nn.functional", "", "special", "linalg", "fft", "Tensor")
STEP = 1e-6
NUMERICAL = 100.0  # times the tolerance for finite differences
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)


@cache
def tables() -> dict[str, Entry]:
    """The entries of all families."""
    found: dict[str, Entry] = {}
    for path in sorted(Path(__file__).parent.glob("samples_*.py")):
        for name, item in import_module(f"{__package__}.{path.stem}").ENTRIES.items():
            if name in found:
                raise ValueError(f"the samples of {name} are given twice, the second time in {path.name}")
            found[name] = item
    return found


def generic(op: OpDef) -> Entry | None:
    """Samples for an op that no table names: one to three tensors and nothing else that must be given."""
    required = [parameter for parameter in op.parameters if parameter.required]
    if not required or not all(parameter.is_tensor and not parameter.is_list for parameter in required):
        return None
    return {1: unary(), 2: binary(mixed=False), 3: ternary()}.get(len(required))


def entry_of(op: OpDef) -> Entry | None:
    return tables().get(op.name) or generic(op)


def counterparts(op: OpDef, entry: Entry) -> list[Callable[..., Any]]:
    """torch's functions of that name. Which one takes the arguments is found by calling."""
    if callable(entry.torch):
        return [entry.torch]
    if entry.torch == "interp":
        return []
    if isinstance(entry.torch, str):
        found = torch_function(entry.torch)
        if found is None:
            raise ValueError(f"{op.name}: there is no torch.{entry.torch}")
        return [found]
    paths = (f"{space}.{op.name}" if space else op.name for space in NAMESPACES)
    return [function for function in map(torch_function, paths) if function is not None]


class Refused(Exception):
    """torch does not take these arguments."""


@dataclass
class Case:
    """One sample in one element type and mode."""

    op: OpDef
    entry: Entry
    number: int
    sample: Sample
    dtype: str
    mode: str
    call: Call = field(init=False)
    extra: list[np.ndarray] = field(default_factory=list)
    expected: Results | None = None
    numerical: bool = False  # the expected derivative is by finite differences

    def __post_init__(self) -> None:
        self.call = make(self.sample, self.dtype, f"{self.op.name}-{self.number}")

    @property
    def name(self) -> str:
        return f"{self.number}-{self.dtype}"

    @property
    def shown(self) -> str:
        """The arguments, for messages."""
        parts = [
            *map(show, self.sample.args),
            *(f"{key}={show(item)}" for key, item in self.sample.kwargs.items()),
        ]
        return f"({', '.join(parts)})"

    @property
    def arrays(self) -> list[np.ndarray]:
        return [*self.call.arrays, *self.extra]

    def prepare(self) -> bool:
        """Find what torch says, and whether there is something to compare."""
        try:
            forward = self.reference(self.call.arrays, [], "forward")
        except Refused:
            if self.dtype == "f64":
                raise
            # No kernel for this type in torch: the float64 result alone is the reference, if that is one.
            return self.mode == "forward" and self.dtype in ("f16", "bf16")
        if self.mode == "forward":
            self.expected = forward
            return True
        seed = zlib.crc32(f"{self.op.name}-{self.number}-{self.mode}".encode())
        random = np.random.default_rng(seed)
        if self.mode == "vjp":
            results = [item for item in forward[: self.entry.outputs] if item is not None]
            shapes = [(item.shape, item.dtype) for item in results if item.dtype.kind not in "biu"]
        else:
            shapes = [(self.call.arrays[at].shape, self.call.arrays[at].dtype) for at in self.call.differentiate]
        if not shapes or not self.call.differentiate:
            return False
        for shape, element in shapes:
            numbers = random.uniform(-1, 1, shape)
            if element.kind == "c":
                numbers = numbers + 1j * random.uniform(-1, 1, shape)
            self.extra.append(np.asarray(numbers).astype(element))
        self.expected = self.reference(self.call.arrays, self.extra, self.mode)
        return bool(self.expected)

    def exact(self, position: int) -> Callable[[], np.ndarray | None]:
        """The float64 result, when asked."""

        def compute() -> np.ndarray | None:
            if self.entry.torch == "interp":
                return None
            try:
                arrays, extra = (
                    [upcast(item) for item in self.call.arrays],
                    [upcast(item) for item in self.extra],
                )
                return wide(self.reference(arrays, extra, self.mode)[position])
            except (Refused, IndexError):
                return None

        return compute

    def reference(self, arrays: Sequence[np.ndarray], extra: Sequence[np.ndarray], mode: str) -> list[np.ndarray]:
        """What the results should be: torch's, or those of our own float64 interpretation."""
        if self.entry.torch == "interp" and mode == "forward":
            try:
                return self.own(arrays)
            except AssertionFailed as error:  # operands out of the op's domain, which PyTorch refuses too
                raise Refused from error
        functions = counterparts(self.op, self.entry)
        if not functions:
            if mode != "forward":
                return self.numeric(lambda *inputs: self.own(inputs), arrays, extra, mode)
            exact = self.own([upcast(array) for array in arrays])
            kinds = result_types(self.op, self.call, arrays)
            return [item.astype(kind) for item, kind in zip(exact, kinds)]
        error: Exception | None = None
        taken = None
        for function in functions:
            try:
                forward = torch_forward(function, self.call, arrays)
                taken = taken or function
                if mode == "forward":
                    return forward

                def inexact(*tensors: torch.Tensor, function: Callable[..., Any] = function) -> list[torch.Tensor]:
                    results = torch_call(function, self.call, tensors)[: self.entry.outputs]
                    found = [item for item in results if item is not None]
                    return [item for item in found if item.is_floating_point() or item.is_complex()]

                derivative = torch_vjp if mode == "vjp" else torch_jvp if self.entry.forward_mode else torch_double_vjp
                return torch_derivative(derivative, inexact, self.call.differentiate, arrays, extra)
            except REFUSALS as caught:
                error = error or caught
        if taken is None:
            raise Refused(f"torch: {error}")
        return self.numeric(lambda *inputs: torch_forward(taken, self.call, inputs), arrays, extra, mode)

    def own(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Our own interpretation."""

        def traced(*tensors: Value) -> list[Value]:
            args, kwargs = self.call.arguments(tensors, torch_side=False)
            return flatten(self.op(*args, **kwargs))

        return evaluate(traced, arrays, "interp")

    def numeric(
        self,
        forward: Callable[..., list[np.ndarray]],
        arrays: Sequence[np.ndarray],
        extra: Sequence[np.ndarray],
        mode: str,
    ) -> list[np.ndarray]:
        """The derivative by finite differences in float64, where nothing else knows it."""
        self.numerical = True
        chosen = self.call.differentiate
        points = [upcast(array) for array in arrays]
        if any(points[position].dtype.kind == "c" for position in chosen):
            return []

        def inexact(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
            results = [item for item in forward(*inputs)[: self.entry.outputs] if item is not None]
            return [item for item in results if item.dtype.kind == "f"]

        def along(directions: dict[int, np.ndarray]) -> list[np.ndarray]:
            ahead, behind = list(points), list(points)
            for position, direction in directions.items():
                ahead[position] = points[position] + STEP * direction
                behind[position] = points[position] - STEP * direction
            return [(high - low) / (2 * STEP) for high, low in zip(inexact(ahead), inexact(behind))]

        if mode == "jvp":
            slopes = along({position: upcast(item) for position, item in zip(chosen, extra)})
            kinds = [kind for kind in result_types(self.op, self.call, arrays) if kind.kind not in "biu"]
            return [item.astype(kind) for item, kind in zip(slopes, kinds)]
        gradients = []
        for position in chosen:
            gradient = np.zeros(points[position].shape)
            for place in np.ndindex(gradient.shape):
                direction = np.zeros(gradient.shape)
                direction[place] = 1.0
                slopes = along({position: direction})
                gradient[place] = sum(float((slope * upcast(item)).sum()) for slope, item in zip(slopes, extra))
            gradients.append(gradient.astype(arrays[position].dtype))
        return gradients

    def program(self, *tensors: Value) -> list[Value]:
        """The op, or its derivative, on traced tensors."""
        inputs, extra = tensors[: len(self.call.arrays)], tensors[len(self.call.arrays) :]
        args, kwargs = self.call.arguments(inputs, torch_side=False)
        results = flatten(self.op(*args, **kwargs))
        if self.mode == "forward":
            return results
        from smelt.passes.autodiff.jvp import jvp
        from smelt.passes.autodiff.vjp import vjp

        chosen = [inputs[position] for position in self.call.differentiate]
        inexact = [result for result in results[: self.entry.outputs] if result.dtype.is_inexact]
        if self.mode == "vjp":
            extra = [fitted(item, like) for item, like in zip(extra, inexact)]
            found, like = vjp(inexact, extra, chosen), chosen
        else:
            found, like = jvp(inexact, chosen, extra), inexact
        return [REGISTRY["zeros_like"](same) if item is None else item for item, same in zip(found, like)]

    def check(self, results: Sequence[np.ndarray], backend: str) -> str:
        """How the results disagree with what is expected, or nothing."""
        if self.expected is not None and len(results) != len(self.expected):
            return f"{len(results)} results, expected {len(self.expected)}"
        loose = self.entry.loose * (NUMERICAL if self.numerical else 1.0)
        # The interpreter rounds after every op of a composite; compiled code, like torch, once at the end.
        if backend == "interp" and self.op.is_composite and self.dtype in ("f16", "bf16"):
            loose = float("inf")
        for position, result in enumerate(results):
            known = None if self.expected is None else self.expected[position]
            if known is None and self.expected is not None:
                continue  # torch leaves out a result that was not asked for
            message = difference(result, known, self.exact(position), loose)
            if message:
                return f"result {position}: {message}" if len(results) > 1 else message
        return ""


def show(item: Any) -> str:
    if isinstance(item, T):
        return f"{item.dtype or 'tensor'}{list(item.shape)}"
    if isinstance(item, (tuple, list)):
        return f"[{', '.join(map(show, item))}]"
    return item.name if isinstance(item, D) else repr(item)


def upcast(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind in "biu" else wide(array)


def torch_call(function: Callable[..., Any], call: Call, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    args, kwargs = call.arguments(tensors, torch_side=True)
    results = flatten(function(*args, **kwargs))
    return [item for item in results if item is None or isinstance(item, torch.Tensor)]


def torch_forward(function: Callable[..., Any], call: Call, arrays: Sequence[np.ndarray]) -> Results:
    results = torch_call(function, call, [to_torch(array) for array in arrays])
    return [None if item is None else from_torch(item) for item in results]


def torch_derivative(
    derivative: Callable[..., list[torch.Tensor]],
    function: Callable[..., list[torch.Tensor]],
    positions: Sequence[int],
    arrays: Sequence[np.ndarray],
    extra: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """torch's vector-Jacobian or Jacobian-vector product; empty if nothing depends on the inputs."""

    def of_chosen(*chosen: torch.Tensor) -> list[torch.Tensor]:
        tensors = [to_torch(array) for array in arrays]
        for position, tensor in zip(positions, chosen):
            tensors[position] = tensor
        return function(*tensors)

    chosen = [to_torch(arrays[position]) for position in positions]
    return [from_torch(item) for item in derivative(of_chosen, chosen, [to_torch(item) for item in extra])]


def torch_vjp(
    function: Callable[..., list[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    for item in inputs:
        item.requires_grad_()
    pairs = [(item, grad) for item, grad in zip(function(*inputs), cotangents) if item.requires_grad]
    if not pairs:
        return []
    found = torch.autograd.grad(
        [item for item, _ in pairs],
        list(inputs),
        [grad for _, grad in pairs],
        allow_unused=True,
        materialize_grads=True,
    )
    return [item.detach() for item in found]


def torch_jvp(
    function: Callable[..., list[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Forward mode, or by differentiating the reverse mode's linear map where torch has no forward rule."""
    from torch.autograd import forward_ad

    try:
        with forward_ad.dual_level():
            results = function(*(forward_ad.make_dual(item, tangent) for item, tangent in zip(inputs, tangents)))
            found = [forward_ad.unpack_dual(item) for item in results]
            return [torch.zeros_like(item.primal) if item.tangent is None else item.tangent for item in found]
    except (RuntimeError, NotImplementedError):
        return torch_double_vjp(function, inputs, tangents)


def torch_double_vjp(
    function: Callable[..., list[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """The forward derivative as the derivative of the reverse mode, which is linear in its cotangents."""
    chosen = [item.detach().requires_grad_() for item in inputs]
    results = function(*chosen)
    # Any seed will do, as the reverse mode is linear in it; some of torch's formulas need it not to be zero.
    seeds = [torch.ones_like(item, requires_grad=True) for item in results]
    pairs = [(item, seed) for item, seed in zip(results, seeds) if item.requires_grad]
    if not pairs:
        return []
    gradients = torch.autograd.grad(
        [item for item, _ in pairs], chosen, [seed for _, seed in pairs],
        create_graph=True, allow_unused=True, materialize_grads=True,
    )  # fmt: skip
    linear = [(item, tangent) for item, tangent in zip(gradients, tangents) if item.requires_grad]
    return list(
        torch.autograd.grad(
            [item for item, _ in linear],
            seeds,
            [item for _, item in linear],
            allow_unused=True,
            materialize_grads=True,
        )
    )


def result_types(op: OpDef, call: Call, arrays: Sequence[np.ndarray]) -> list[np.dtype]:
    params = [Value(TensorType(dtype(array.dtype), array.shape)) for array in arrays]
    args, kwargs = call.arguments(params, torch_side=False)
    with Asked({}):
        return [result.dtype.numpy for result in flatten(op(*args, **kwargs))]


def elementwise(op: OpDef, call: Call) -> bool:
    """Whether the op comes down to elementwise primitives alone."""
    params = [Value(TensorType(dtype(array.dtype), array.shape)) for array in call.arrays]
    args, kwargs = call.arguments(params, torch_side=False)
    try:
        with Asked({}):
            pending = list(flatten(op(*args, **kwargs)))
    except SmeltError:
        # The sample itself will say so.
        return False
    seen: set[Value] = set(params)
    while pending:
        value = pending.pop()
        if value in seen or value.op is None:
            continue
        seen.add(value)
        defn = value.op.defn
        if defn.is_composite:
            pending.extend(defn.expand(value.op.arguments))
        elif defn.kind.name != "Elementwise" and defn.name != "constant":
            return False
        pending.extend(value.op.operands)
    return True


def cases(op: OpDef, entry: Entry, mode: str) -> list[Case]:
    """What to try of an op."""
    if mode != "forward" and not (entry.derivative and op.differentiable):
        return []
    chosen = entry.cases()
    if mode != "forward":
        chosen = [
            (number, element)
            for number, element in chosen
            if element in ("f64", "c128") or (element == "f32" and number % DERIVATIVE_SPREAD == 0)
        ]
    samples = list(entry.samples)
    if mode == "forward" and entry.special and samples and set(FULL) <= set(entry.dtypes):
        extra = special_sample(samples[0])
        if extra is not None and elementwise(op, make(samples[0], "f32", op.name)):
            chosen += [(len(samples), element) for element in entry.dtypes if element in ("f32", "f64", "f16", "bf16")]
            samples.append(extra)
    return [
        Case(op, entry, number, samples[number], element, mode)
        for number, element in chosen
        if mode in samples[number].modes
    ]


@dataclass(frozen=True)
class Failure:
    case: Case
    message: str

    @property
    def name(self) -> str:
        return self.case.name


@lru_cache(maxsize=1)  # the next test is of the same op on another back end
def prepared(op: OpDef, mode: str, only: str | None) -> tuple[list[Case], list[Failure]]:
    """Return an op's cases with what torch says of them, and those that failed already."""
    entry = entry_of(op)
    if entry is None:
        raise LookupError(f"{op.name} has no samples: add them to a table of tests/parity/samples_*.py")
    failures: list[Failure] = []
    ready: list[Case] = []
    for case in cases(op, entry, mode):
        if only is not None and case.name != only:
            continue
        try:
            if case.prepare() and traces(case):
                ready.append(case)
        except Exception as error:
            failures.append(Failure(case, f"{type(error).__name__}: {error}"))
    return ready, failures


def run(op: OpDef, mode: str, backend: str, only: str | None = None, spread: int = 1) -> list[Failure]:
    """Compare an op's samples, or one in `spread` of them, with torch; what disagrees is returned."""
    ready, early = prepared(op, mode, only)
    ready = ready[zlib.crc32(op.name.encode()) % min(spread, max(len(ready), 1)) :: spread]
    failures = list(early)
    for case, result in zip(ready, evaluate_all(ready, backend)):
        message = f"{type(result).__name__}: {result}" if isinstance(result, Exception) else case.check(result, backend)
        if message:
            failures.append(Failure(case, message))
    return failures


def traces(case: Case) -> bool:
    """Trace one case alone, so that its errors are its own."""
    params = [Value(TensorType(dtype(array.dtype), array.shape), name="x") for array in case.arrays]
    with Asked({}):
        case.program(*params)
    return True


def evaluate_all(ready: Sequence[Case], backend: str) -> list[Any]:
    """The results of all cases, from one program if that works."""
    if not ready:
        return []
    counts: list[int] = []

    def program(*tensors: Value) -> list[Value]:
        counts.clear()
        results: list[Value] = []
        at = 0
        for case in ready:
            found = case.program(*tensors[at : at + len(case.arrays)])
            at += len(case.arrays)
            counts.append(len(found))
            results.extend(found)
        return results

    try:
        flat = evaluate(program, [array for case in ready for array in case.arrays], backend)
    except Exception as error:
        if len(ready) == 1:
            return [error]
        return [evaluate_all([case], backend)[0] for case in ready]
    results = iter(flat)
    return [[next(results) for _ in range(count)] for count in counts]


def matching(gaps: dict[str, str], op: str, mode: str, backend: str, case: str) -> str | None:
    """The gap that covers a case: a pattern such as "erfinv/vjp/cpu/*-f32"."""
    for pattern in gaps:
        if fnmatch.fnmatchcase(f"{op}/{mode}/{backend}/{case}", pattern):
            return pattern
    return None
