"""Register passes by name.

    @graph_pass("cse")
    def cse(graph: Graph) -> Graph:
        '''Merge ops with equal operands and attributes into one.'''

A graph pass maps a graph to a graph; it is also applied to the graphs inside of a graph, such as the branches of a
cond. A loop pass maps a kernel to a kernel. The keyword parameters of a pass are its options.

manager.py imports every module that has passes. They only need this one, so after an interrupt in between a second
attempt registers all of them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from ..ir.errors import suggest
from ..ir.graph import Graph, Op, Value
from ..ir.process import process
from ..ir.record import Record
from ..ir.verify import STAGES
from .rewrite import rebuild, remake

PASSES: dict[str, Pass] = process.keep("passes", {})


class Pass(Record):
    """A named function over programs. After it, only the ops of `stage` are legal."""

    name: str
    kind: str
    function: Callable[..., Any]
    doc: str
    options: dict[str, inspect.Parameter]
    stage: str | None = None

    def __call__(self, program: Any, **options: Any) -> Any:
        if isinstance(program, Graph):
            program = map_nested(program, lambda graph: self(graph, **options))
        return self.function(program, **options)


def map_nested(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Return the graph with the graphs among its ops' attributes changed."""
    if Graph not in {item.__class__ for op in graph.ops for item in op.arguments.values()}:
        return graph
    done: set[Graph] = set()

    def visit(op: Op, arguments: dict[str, Any]) -> tuple[Value, ...] | None:
        # New ops are visited again, so the results of `change` are left alone.
        old = {key: item for key, item in arguments.items() if isinstance(item, Graph) and item not in done}
        new = {key: change(item) for key, item in old.items()}
        done.update(new.values())
        return remake(op, arguments | new) if any(new[key] is not old[key] for key in old) else None

    return rebuild(graph, visit)


def graph_pass(name: str, stage: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of a graph that returns a graph (or, for fuse, a graph with its kernels)."""
    return lambda function: _register(name, "graph", function, stage)


def loop_pass(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of a kernel that returns a kernel."""
    return lambda function: _register(name, "loop", function, None)


def _register(name: str, kind: str, function: Callable[..., Any], stage: str | None) -> Callable[..., Any]:
    other = PASSES[name].function.__module__ if name in PASSES else function.__module__
    if other != function.__module__:  # else it is imported once more, after an interrupt
        raise ValueError(f"pass {name} is defined twice: {other} and {function.__module__}")
    doc = inspect.getdoc(function) or ""
    if not doc and sys.flags.optimize < 2:  # python -OO drops docstrings
        raise ValueError(f"pass {name} has no docstring")
    if stage is not None and stage not in STAGES:
        raise ValueError(f"pass {name}: unknown stage {stage!r}{suggest(stage, STAGES)}")
    options = dict(list(inspect.signature(function).parameters.items())[1:])
    PASSES[name] = Pass(name, kind, function, doc, options, stage)
    return function
