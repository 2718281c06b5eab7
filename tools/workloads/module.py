"""Measure a PyTorch module in this process, which `smelt bench FILE.py:FUNCTION` starts for every setting.

The request is JSON on standard input, the results are JSON on standard output. Contenders are eager, and torch.compile
with smelt's back end and with Inductor. Each has a copy of the module; samples are interleaved as in measure.py.
Results are compared before that: accuracy.py.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import compilation_time_metrics

from ... import set_cache_dir
from ... import torch as smelt_torch
from ..program import load_module
from ..terminal import UsageError, UserError
from .accuracy import exact_results, excess, in_float64, kept
from .contenders import Prepared, arrays_of
from .measure import compare, describe, forget_compiled, memory_of, spread, take_turns, use_processors

# The names under which Inductor records the times of its own work.
INDUCTOR = ("_recursive_pre_grad_passes", "_recursive_joint_graph_passes", "compile_fx_inner")

RATE = 1e-6  # learning rate: tiny, since the loss, a sum of results, has no minimum

Run = Callable[[torch.nn.Module, Callable[..., Any], Any, Any], list[torch.Tensor]]


def main() -> None:
    request = json.load(sys.stdin)
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    use_processors(request["threads"])
    torch.set_num_threads(request["threads"])
    set_cache_dir(request["cache"])
    forget_compiled()
    try:
        found: dict[str, Any] = measure(request)
    except (UserError, UsageError) as error:
        found = {"refused": str(error)}
    channel.write(json.dumps(found) + "\n")
    channel.flush()


def measure(request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the results of each contender for the module."""
    torch.manual_seed(0)
    module, inputs = load_module(request["module"])
    module.train(request["train"])
    found: dict[str, dict[str, Any]] = {}
    prepared: list[Prepared] = []
    results: dict[str, list[torch.Tensor]] = {}
    if set(request["contenders"]) - {"eager"}:
        # Dynamo caches the files and classes that it has read: warm it up, or the first contender would pay for all.
        own = copy.deepcopy(module)
        with contextlib.suppress(Exception):  # errors are reported for each contender below
            bound(runner(request, "aot_eager"), own, compiled(own, "aot_eager"), inputs)()
        # Not between contenders: earlier ones would be recompiled during the timing.
        torch._dynamo.reset()
    for name in request["contenders"]:
        own = copy.deepcopy(module)
        if name != "eager":
            first_use(name)
        try:
            call = bound(runner(request, name), own, compiled(own, name), inputs)
            begin = time.perf_counter()
            torch.manual_seed(0)
            result = call()
            seconds = time.perf_counter() - begin
            results[name] = kept(result)
        except Exception as error:
            found[name] = {"error": describe(error)}
            continue
        found[name] = {"first_call": seconds, **shares(name)}
        prepared.append(Prepared(name, call, lambda: None))
    # The references are computed with the same weights.
    compare_results(TrainStep() if request["train"] else forward, module, inputs, results, found)
    del results
    gc.collect()
    gc.disable()
    if request["repeat"]:
        for name, times in take_turns(prepared, request["repeat"], request["seconds"]).items():
            found[name].update(
                median=statistics.median(times), minimum=min(times), samples=len(times), spread=spread(times)
            )
        for ready in prepared:
            found[ready.name]["memory"] = memory_of(ready)
    return found


def runner(request: dict[str, Any], name: str) -> Run:
    return TrainStep(request["optimizer"], name) if request["train"] else forward


def compare_results(run: Run, module: Any, inputs: Any, results: dict[str, Any], found: dict[str, Any]) -> None:
    """Compare the contenders' results, unless the module draws random numbers, which differ by contender."""
    try:
        if is_random(bound(run, module, module, inputs)):
            return
    except Exception:
        return  # eager's error is reported with its results
    wide, wide_inputs = in_float64(module, inputs)
    exact = exact_results(bound(run, wide, wide, wide_inputs))
    if exact is None:
        compare({name: arrays_of(result) for name, result in results.items()}, found)
        return
    own = copy.deepcopy(module)
    eager = results.get("eager") or kept(bound(run, own, own, inputs)())
    for name, result in results.items():
        error = excess(result, eager, exact)
        found[name]["difference"] = error if math.isfinite(error) else None
        found[name]["agrees"] = error <= 1.0
        found[name]["reference"] = "float64"


def compiled(module: torch.nn.Module, name: str) -> Callable[..., Any]:
    if name == "eager":
        return module
    compilation_time_metrics.clear()
    smelt_torch.reset_stats()
    return torch.compile(module, backend=name, dynamic=False)


def first_use(name: str) -> None:
    """Compile a small function, forward and backward, so that loading the compiler is not counted as the module's
    time."""
    small = torch.nn.Linear(4, 4)
    with torch.enable_grad():
        compiled(small, name)(torch.ones(2, 4)).sum().backward()


def bound(run: Run, module: torch.nn.Module, call: Callable[..., Any], inputs: Any) -> Callable[[], Any]:
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    return lambda: run(module, call, args, kwargs)


def forward(module: torch.nn.Module, call: Callable[..., Any], args: Any, kwargs: Any) -> list[torch.Tensor]:
    with torch.no_grad():
        return tensors_of(call(*args, **kwargs))


class TrainStep:
    """A training step, with its optimizer if there is one: the results and the gradients of all parameters."""

    def __init__(self, optimizer: str | None = None, contender: str = "eager"):
        self.optimizer, self.contender = optimizer, contender
        self.update: Callable[[], Any] | None = None
        self.weights: dict[int, torch.Tensor] = {}

    def __call__(self, module: torch.nn.Module, call: Callable[..., Any], args: Any, kwargs: Any) -> list[torch.Tensor]:
        module.zero_grad(set_to_none=True)
        result = call(*args, **kwargs)
        loss = getattr(result, "loss", None)
        tensors = tensors_of(result)
        if loss is None:
            loss = self.loss(tensors)
        loss.backward()
        if self.optimizer is not None:
            if self.update is None:
                step = getattr(torch.optim, self.optimizer)(module.parameters(), lr=RATE).step
                self.update = step if self.contender == "eager" else torch.compile(step, backend=self.contender)
            self.update()
        grads = [param.grad for param in module.parameters() if param.grad is not None]
        return [*tensors, *grads]

    def loss(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """Return the sum of all differentiable results, with varying weights.

        A plain sum, or a sum of squares, has almost no gradient through a norm or a softmax.
        """
        parts = []
        for number, item in enumerate(tensors):
            if item.requires_grad:
                weight = self.weights.get(number)
                if weight is None or weight.shape != item.shape or weight.dtype != item.dtype:
                    generator = torch.Generator().manual_seed(number)
                    # Representable in every type.
                    drawn = torch.randn(item.shape, generator=generator, dtype=torch.float32).bfloat16()
                    weight = self.weights[number] = drawn.to(item.device, item.dtype)
                parts.append((item * weight).sum())
        return torch.stack(parts).sum()


def tensors_of(result: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(result)
    if any(not isinstance(leaf, torch.Tensor) for leaf in leaves) and hasattr(result, "values"):
        leaves = torch.utils._pytree.tree_leaves(list(result.values()))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def is_random(call: Callable[[], Any]) -> bool:
    """Whether the seed changes the results."""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        found.append([item.clone() for item in call()])
    return not all(map(torch.equal, *found))


def shares(name: str) -> dict[str, float]:
    """Return the parts of the first call, in seconds."""
    if name == "smelt":
        receipt = smelt_torch.stats()
        return {part: receipt[f"{part}_ms"] / 1000 for part in ("dynamo", "aot", "compile")}
    if name != "inductor":
        return {}

    def spent(*names: str) -> float:
        return sum(sum(compilation_time_metrics.get(item, ())) for item in names)

    backend = spent("OutputGraph.call_user_compiler")
    own = spent(*INDUCTOR)
    late = spent("compile_fx.<locals>.bw_compiler")  # the backward graph, compiled on its first call
    dynamo = spent("_compile.compile_inner") - backend
    return {"dynamo": dynamo, "aot": max(backend + late - own, 0.0), "compile": own}


if __name__ == "__main__":
    main()
