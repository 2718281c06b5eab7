"""Run a graph compiled for CUDA in Numba's simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....ir.graph import Graph
from ...arrays import as_plain
from ...call_plan import CallPlan, SizedPlan
from ...report.timings import Stages
from ...store.cache import Lookup
from ..program import Program
from .arrays import Argument, Constant, first_argument

if TYPE_CHECKING:
    from ...report.report import Report

ALL_THREADS = 1 << 31  # no limit: as many as there is work for


class Launcher:
    """Calls a program in the simulator for one set of sizes."""

    def __init__(self, executable: Executable, plan: SizedPlan):
        self.executable = executable
        self.plan = plan

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        return self.executable.run([as_plain(on_host(array)) for array in arrays], self.plan, first_argument(arrays))


class Executable:
    """A compiled graph: takes arrays of the parameters' types, returns the results as new arrays of the same kind."""

    target = "cuda"

    def __init__(self, graph: Graph, program: Program, cache: Lookup, stages: Stages):
        from ..simulator.simulate import Simulated

        self.graph = graph
        self.program = program
        self.plan = program.plan(graph)
        self.cache = cache
        self.stages = stages
        self.simulated = Simulated(program)

    @property
    def report(self) -> Report:
        return report_of(self.program, self.cache, self.stages)

    def launcher(self, plan: SizedPlan) -> Launcher:
        """Make the launcher for a plan."""
        return Launcher(self, plan)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        given = [as_plain(on_host(array)) for array in arrays]
        return self.run(given, self.plan.for_arrays(given), first_argument(arrays))

    def run(self, given: list[np.ndarray], plan: SizedPlan, like: Argument | None) -> list[Any]:
        """Run and return the results, as the simulator's device arrays if an argument was one."""
        from ..simulator.simulate import shaped

        program = self.program
        memory, errors = self.simulated.run(dict(zip(program.params, given, strict=True)), plan.sizes)
        raise_errors(self.plan, errors)
        stored: list[np.ndarray] = []
        for (name, dtype, _), (shape, kind) in zip(program.stored, plan.stored, strict=True):
            found = memory.get(name)
            stored.append(np.zeros(shape, kind) if found is None else shaped(found, dtype, shape))
        results = plan.collect(given, stored)
        if like is None:
            return results
        from numba import cuda

        return [cuda.to_device(result) for result in results]


def on_host(array: Any) -> np.ndarray:
    """Return an array in the host's memory; the simulator's device arrays are, too."""
    if isinstance(array, Argument):
        found = array.array.copy_to_host()
        return found if array.order is None else found.transpose(array.order)
    return array.array if isinstance(array, Constant) else array


def report_of(program: Program, cache: Lookup, stages: Stages) -> Report:
    """Make the report: fusion and bytes of each kernel; `smelt explain --target cuda` has its resources on a GPU."""
    from ...report.report import Report

    return Report.read(program.report).here(ALL_THREADS, cache, stages.seconds)


def raise_errors(plan: CallPlan, errors: np.ndarray) -> None:
    """Raise the first noted error. errors: for each site, whether it failed, the index, the size."""
    for site, (failed, number, size) in enumerate(errors.reshape(-1, 3)):
        if failed:
            plan.raise_error(site, int(number), int(size))
