"""The reference interpreter as an executable: a graph behind the interface of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...ir.graph import Graph
from ..artifact import Overwrites
from ..call_plan import CallPlan, SizedPlan
from ..report.report import Report
from ..report.timings import Stages
from ..store.cache import Lookup
from .graph import interpret


class Interpreted:
    """Call it with arrays of the parameters' types; it returns the results as new arrays."""

    def __init__(self, target: str, graph: Graph, cache: Lookup, stages: Stages):
        self.target = target
        self.graph = graph
        self.cache = cache
        self.stages = stages
        results = range(len(graph.results))
        # Every result is an array of its own, none lies in a parameter's memory, and there are no temporaries.
        made = SimpleNamespace(
            sources=[("own", number) for number in results],
            arena=0,
            overwrites=Overwrites([1] * len(graph.params), [0] * len(results), []),
            places=(),
        )
        self.plan = CallPlan.of(graph, made, [(value.dtype, value.shape) for value in graph.results], 1, {})

    @property
    def report(self) -> Report:
        report = Report(self.graph.name, len(self.graph.ops), [], [], "0 B", "0 B", "0 B")
        return report.here(1, self.cache, self.stages.seconds)

    def launcher(self, plan: SizedPlan) -> Callable[[Sequence[Any]], list[np.ndarray]]:
        """Return the call for one set of sizes, which the interpreter reads from the arrays."""
        return self

    def __call__(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        return [np.array(result) for result in interpret(self.graph, arrays)]
