"""Run pipelines of passes, also from text: "decompose,cse,fuse{max_cost=64}", with options in braces."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ..ir.errors import ArgumentError, VerifyError, suggest
from ..ir.graph import Graph
from ..ir.parser import Reader
from ..ir.record import Record
from ..ir.verify import verify_graph
from ..kernels.loop.verify import verify_kernel
from ..kernels.machine import PRESETS, Machine, machine
from . import MODULES
from .registry import PASSES as PASSES
from .registry import Pass

# Verifiers of a pass's result, by the pass's kind: functions of (program, stage).
VERIFIERS: dict[str, Callable[[Any, str | None], None]] = {
    # The last graph pass hands over a plan of kernels.
    "graph": lambda program, stage: verify_graph(program, stage) if isinstance(program, Graph) else None,
    "loop": lambda program, stage: verify_kernel(program),
}

NOUNS = {"graph": "graphs", "loop": "kernels"}


class Step(Record):
    """A pass and its options."""

    target: Pass
    options: dict[str, Any]

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={_written(value)}" for name, value in self.options.items())
        return f"{self.target.name}{{{shown}}}" if shown else self.target.name


def _written(value: Any) -> str:
    return repr(value.name if isinstance(value, Machine) else value)


class Pipeline:
    """Passes in order."""

    def __init__(self, names: Sequence[str | Step]):
        steps: list[Step] = []
        for name in names:
            steps.extend([name] if isinstance(name, Step) else parse_steps(name))
        self.steps = tuple(steps)
        for before, after in zip(self.steps, self.steps[1:]):
            if before.target.kind == "loop" and after.target.kind == "graph":
                raise ArgumentError(
                    f"{after.target.name} works on {NOUNS['graph']} and cannot follow {before.target.name}, "
                    f"which works on {NOUNS['loop']}"
                )

    def __str__(self) -> str:
        return ",".join(map(str, self.steps))

    def run(
        self,
        program: Any,
        *,
        verify_each: bool = False,
        on_stage: Callable[[str, Any], None] | None = None,
        timings: dict[str, float] | None = None,
    ) -> Any:
        """Run all passes and return the program; `on_stage(name, program)` sees each, seconds add up in `timings`."""
        stage: str | None = None
        for step in self.steps:
            target = step.target
            if target.kind == "graph" and not isinstance(program, Graph):
                raise ArgumentError(f"{target.name} works on graphs: fuse, which makes kernels of one, comes last")
            start = time.perf_counter()
            program = target(program, **step.options)
            if timings is not None:
                timings[target.name] = timings.get(target.name, 0.0) + time.perf_counter() - start
            stage = target.stage or stage
            if verify_each and target.kind in VERIFIERS:
                try:
                    VERIFIERS[target.kind](program, stage)
                except VerifyError as error:
                    error.message = f"after {step}: {error.message}"
                    raise
            if on_stage is not None:
                on_stage(target.name, program)
        return program


def parse_pipeline(text: str) -> Pipeline:
    """Parse a pipeline: "decompose,cse,fuse{max_cost=64}"."""
    return Pipeline(parse_steps(text))


def parse_steps(text: str) -> list[Step]:
    reader = Reader(text, "<pipeline>")
    steps: list[Step] = []
    while reader.token.kind != "end":
        steps.append(_step(reader))
        if not reader.accept(",") and reader.token.kind != "end":
            reader.fail("',' or '{'")
    return steps


def _step(reader: Reader) -> Step:
    token = reader.expect_kind("name", "the name of a pass")
    if token.text not in PASSES:
        known = ", ".join(sorted(PASSES))
        reader.fail_at(token.start, f"unknown pass {token.text!r}{suggest(token.text, PASSES)}; there are {known}")
    target = PASSES[token.text]
    if not reader.accept("{"):
        return Step(target, {})
    options: dict[str, Any] = {}
    for name, value, start in reader.separated("}", lambda: _option(reader, target)):
        if name in options:
            reader.fail_at(start, f"{target.name}: {name} is given twice")
        options[name] = value
    return Step(target, options)


def _option(reader: Reader, target: Pass) -> tuple[str, Any, int]:
    token = reader.expect_kind("name", "the name of an option")
    if token.text not in target.options:
        known = f"it has {', '.join(target.options)}" if target.options else "it has none"
        reader.fail_at(
            token.start,
            f"{target.name} has no option {token.text!r}{suggest(token.text, target.options)}; {known}",
        )
    reader.expect("=")
    start = reader.token.start
    value = reader.attribute()
    default = target.options[token.text].default
    if isinstance(default, Machine):
        try:
            value = machine(str(value))
        except LookupError:
            reader.fail_at(start, f"unknown machine {value!r}; there are {', '.join(PRESETS)}")
    wanted = int if default is None else type(default)
    if wanted in (bool, int, float, str) and not isinstance(value, wanted):
        if not (wanted is float and isinstance(value, int)):
            reader.fail_at(start, f"{target.name}: {token.text} takes a {wanted.__name__}, found {value!r}")
    return token.text, value, token.start


# Code that only rewrites or differentiates graphs does not import this module, and so loads none of them.
for _module in MODULES:
    import_module(f"{__package__}.{_module}")
