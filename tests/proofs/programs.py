"""Graphs to prove things about: workloads, models, parity samples, random programs; forward and backward, of fixed and
of open sizes."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import fuzz.check as drawn
import numpy as np
import open_programs
import random_programs
import smelt
import smelt.torch
import torch
import torch_models
from parity.gaps import INTERNAL
from parity.runner import MODES, cases, entry_of
from smelt.ir.errors import SmeltError
from smelt.ir.graph import Graph
from smelt.ops.define import REGISTRY
from smelt.tools.workloads import names_smelt
from smelt.tools.workloads.suite import all_workloads
from support import trace

SIZES = ((3, 4), (5, 7), (18, 9))  # rows and columns of programs of open sizes


class Traced(Exception):
    """The graph is there: nobody wants its code."""


def graphs_of(function: Callable[..., Any], *calls: Sequence[Any]) -> list[Graph]:
    """The graphs that smelt.jit makes for calls. The last is not compiled. None for what smelt refuses."""
    found: list[Graph] = []
    module = sys.modules["smelt.jit"]
    compile_graph = module._compile  # type: ignore[attr-defined]
    last = False

    def note(graph: Graph, options: Any) -> Any:
        if graph.params:
            found.append(graph)
            if last:
                raise Traced
        return compile_graph(graph, options)

    jitted = smelt.jit(function)
    with patch.object(module, "_compile", note):
        for number, arguments in enumerate(calls, 1):
            last = number == len(calls)
            try:
                jitted(*arguments)
            except (Traced, SmeltError):
                continue
    return found


def workload(name: str) -> Iterator[tuple[str, Graph]]:
    item = all_workloads()[name]
    for graph in graphs_of(partial(item.function, names_smelt), item.make_inputs("small", item.dtype)):
        yield name, graph


def model(name: str) -> Iterator[tuple[str, Graph]]:
    """Inference and a training step through torch.compile, of fixed and of open sizes."""
    import smelt.torch.native as native

    for dynamic in (False, True):
        found: list[Graph] = []
        start_graph = native.start_graph

        def note(graph: Graph, *rest: Any, found: list[Graph] = found, start: Any = start_graph) -> Any:
            found.append(graph)
            return start(graph, *rest)

        torch._dynamo.reset()
        built, inputs = torch_models.make(name)
        compiled = torch.compile(built, backend="smelt", dynamic=dynamic)
        with patch.object(native, "start_graph", note):
            with torch.no_grad():
                torch_models.results(compiled, inputs)
            torch_models.gradients(built, compiled, inputs)
        yield from ((f"{name} {'of open sizes' if dynamic else ''}", graph) for graph in found)


def parity(name: str, few: bool) -> Iterator[tuple[str, Graph]]:
    """The samples of an op in all modes; few: one of each element type, and one of each derivative."""
    op = REGISTRY[name]
    entry = entry_of(op)
    if entry is None:
        return
    for mode in MODES:
        seen: set[str] = set()
        for case in cases(op, entry, mode):
            if few and (case.dtype in seen or (mode != "forward" and seen)):
                continue
            seen.add(case.dtype)
            try:
                if not case.prepare():
                    continue
                graph = trace(case.program, case.arrays)
            except Exception:
                continue  # the parity tests say so
            yield f"{mode} {case.name}", graph


def random_program(seed: int) -> Iterator[tuple[str, Graph]]:
    yield "", random_programs.build(random_programs.Seeded(seed)).graph


def open_program(seed: int) -> Iterator[tuple[str, Graph]]:
    """Values or gradients, for the first size and for all."""
    program = open_programs.draw(seed, inexact=seed % 2 == 0)

    def values(*inputs: Any) -> Any:
        return program.run(open_programs.SMELT, inputs)

    function = values
    if seed % 2:
        function = smelt.grad(lambda *inputs: sum(item.sum() for item in values(*inputs)), (0, 1, 2))
    for graph in graphs_of(function, *(program.inputs(*size) for size in SIZES)):
        yield "gradient" if seed % 2 else "values", graph


def drawn_program(seed: int) -> Iterator[tuple[str, Graph]]:
    """A program from the ops' schemas: its values or its gradient, every third for open sizes, too."""
    way = "reverse" if seed % 2 else "jit"
    drawer = drawn.Drawer(seed, drawn.ops_for(way), mode=drawn.mode_of(way, seed), numpy=True)
    with drawn.default_float(torch.float64):
        program = drawer.draw()
        if not program.steps:
            return
        function = program.traced
        if seed % 2:
            derivative = drawn.Derivative(program, seed, "reverse")
            try:
                if not derivative.prepare():
                    return
            except (RuntimeError, TypeError):
                return  # PyTorch does not take the program as a whole: there is no gradient to prove things about
            function = derivative.gradient
    calls = [program.inputs]
    sizes = sorted({size for array in program.inputs for size in np.shape(array) if size > 1})
    # The weights of a gradient have the sizes at hand.
    if seed % 3 == 0 and sizes and not seed % 2:
        old = random.Random(seed).choice(sizes)
        calls += [[drawn.resized_array(item, old, old + more) for item in program.inputs] for more in (2, 13)]
    for graph in graphs_of(function, *calls):
        yield way, graph


SEEDED: dict[str, Callable[[int], Iterator[tuple[str, Graph]]]] = {
    "random": random_program,
    "open": open_program,
    "drawn": drawn_program,
}
NAMED: dict[str, Callable[[], list[str]]] = {
    "workload": lambda: list(all_workloads()),
    "model": lambda: list(torch_models.MODELS),
    "parity": lambda: [name for name in sorted(REGISTRY) if name not in INTERNAL],
}


def graphs(kind: str, name: str, few: bool) -> Iterator[tuple[str, Graph]]:
    """The graphs of a task, each with what it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind in SEEDED:
            yield from SEEDED[kind](int(name))
        elif kind == "parity":
            yield from parity(name, few)
        else:
            yield from {"workload": workload, "model": model}[kind](name)
