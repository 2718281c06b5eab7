"""One sample with one back end: what it computed, forward and backward, against eager."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from parity.compare import difference
from smelt import torch as smelt_torch
from time_limit import TimeIsUp, limited
from torch.utils import _pytree as pytree

from .cases import SEED, Run, Subject, subjects

LIMIT = 20.0  # seconds of computing for a sample
Outcome = dict[str, Any]


def answer(task: tuple[str, ...], skip: int, samples: int) -> Iterator[Outcome]:
    """How samples of a subject fare with a back end, from one on: the work of a process."""
    backend, name = task
    torch.set_num_threads(1)
    try:
        found = subjects()[name].samples(samples)
    except Exception as error:
        found = []
        if not skip:
            yield {"passed": True, "why": f"no samples: {type(error).__name__}: {error}", "void": True}
    for run in found[skip:]:
        yield check(subjects()[name], run, backend)


def check(subject: Subject, run: Run, backend: str) -> Outcome:
    """How a sample fares: passed, or why not, and what smelt and PyTorch ran of it."""

    try:
        with limited(LIMIT), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _check(run, subject.is_undefined, backend)
    except TimeIsUp:
        return {"passed": False, "why": f"time: more than {LIMIT:.0f} s"}


def _check(sample: Run, is_undefined: bool, backend: str) -> Outcome:
    try:
        expected = _evaluate(sample.copy())
        # Random places to choose from may be the same twice.
        is_random = not all(_same(expected, _evaluate(sample.copy(), SEED + more)) for more in range(1, 5))
        is_undefined = is_undefined or not _same(expected, _evaluate(sample.copy()))
    except Exception as error:
        return {"passed": True, "why": f"eager itself: {_text(error)}", "void": True}
    # Random numbers are compared where they are PyTorch's own; smelt's have the same types and shapes.
    ways: list[tuple[dict[str, str], bool]] = [({}, not is_undefined and not (is_random and backend == "smelt"))]
    if is_random and backend == "smelt":
        ways.append(({"rng": "eager"}, not is_undefined))
    outcome: Outcome = {"passed": True, "why": ""}
    for options, by_value in ways:
        torch._dynamo.reset()
        smelt_torch.reset_stats()
        try:
            run = sample.copy()
            target = _callable(run)
            extra = {"options": options} if options else {}
            compiled = torch.compile(target, backend=backend, fullgraph=True, dynamic=False, **extra)
            actual = _evaluate(run, compiled=compiled)
        except Exception as error:
            return {"passed": False, "why": _text(error)}
        if not options:
            outcome.update(_shares())
        why = _compare(actual, expected, sample, by_value)
        if why:
            return {**outcome, "passed": False, "why": why}
    return outcome


def _callable(run: Run) -> Callable[..., Any]:
    """The function under a frame of its own: Dynamo compiles frames, not functions of C."""
    if isinstance(run.function, torch.nn.Module):
        return run.function
    function = run.function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _evaluate(run: Run, seed: int = SEED, compiled: Callable[..., Any] | None = None) -> list[Any]:
    """The results and the gradients of a sum of them with arbitrary weights."""
    leaves = run.leaves()
    torch.manual_seed(seed)
    result = (run.function if compiled is None else compiled)(*run.args, **run.kwargs)
    found = [item.detach() if isinstance(item, torch.Tensor) else item for item in pytree.tree_leaves(result)]
    found = [item.clone() if isinstance(item, torch.Tensor) else item for item in found]
    if not leaves:
        return found
    outputs = [
        item
        for item in pytree.tree_leaves(run.result(result))
        if isinstance(item, torch.Tensor) and item.requires_grad and (item.is_floating_point() or item.is_complex())
    ]
    if outputs:
        weights = [_weights(item) for item in outputs]
        found += torch.autograd.grad(outputs, leaves, weights, allow_unused=True)
    return found


def _weights(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.linspace(-1.0, 1.5, tensor.numel(), dtype=torch.float64).reshape(tensor.shape).to(tensor.dtype)
    return made if tensor.layout is torch.strided else made.to_sparse(layout=tensor.layout)


def _shares() -> Outcome:
    totals = smelt_torch.stats()
    reasons = re.findall(r"PyTorch runs (\S+) \((\d+) times\): (.*)", smelt_torch.report())
    return {
        "native": totals["native_ops"],
        "fallback": totals["fallback_ops"],
        "reasons": [f"{name}: {why}" for name, _, why in reasons],
    }


def _same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(_differs(a, b, None) == "" for a, b in zip(left, right))


def _compare(actual: list[Any], expected: list[Any], sample: Run, by_value: bool) -> str:
    if len(actual) != len(expected):
        return f"mismatch: {len(actual)} results, expected {len(expected)}"
    exact: list[list[Any] | None] = []

    def wide(number: int) -> Callable[[], np.ndarray | None]:
        def find() -> np.ndarray | None:
            if not exact:
                try:
                    exact.append(_evaluate(sample.wide()))
                except Exception:  # an op of f32 alone
                    exact.append(None)
            found = exact[0]
            value = found[number] if found is not None and len(found) == len(expected) else None
            return value.numpy(force=True) if isinstance(value, torch.Tensor) else None

        return find

    for number, (got, want) in enumerate(zip(actual, expected)):
        if not by_value:
            if isinstance(want, torch.Tensor) and (got.shape != want.shape or got.dtype != want.dtype):
                return f"mismatch: {number}: {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
            continue
        why = _differs(got, want, wide(number))
        if why:
            return f"mismatch: result {number}: {why}"
    return ""


def _differs(got: Any, want: Any, exact: Callable[[], np.ndarray | None] | None) -> str:
    if type(got) is not type(want):
        return f"{type(got).__name__}, expected {type(want).__name__}"
    if not isinstance(want, torch.Tensor):
        return "" if got == want or got != got else f"{got}, expected {want}"
    if got.dtype != want.dtype or got.shape != want.shape or got.layout != want.layout:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    narrow = want.dtype in (torch.bfloat16, torch.float16, torch.complex32)
    if want.layout is not torch.strided or narrow or want.is_quantized:
        try:
            torch.testing.assert_close(got, want, equal_nan=True)
        except AssertionError as error:
            return _text(error)
        return ""
    arrays = [item.detach().numpy(force=True) for item in (got, want)]
    return difference(arrays[0], arrays[1], exact or (lambda: None))


def _text(error: BaseException) -> str:
    """An error on one line. What Dynamo wraps around a back end's error is left out."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    cause = getattr(error, "inner_exception", None)
    if cause is not None:
        return _text(cause)
    return f"{type(error).__name__}: {' '.join(lines[:4])[:300]}"
