"""A graph compiled for CUDA, run in Numba's simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....ir.errors import range_error
from ....ir.graph import Graph
from ....ir.symbolic import Expr, evaluate
from ...arrays import as_plain, bind_sizes
from ...report.timings import Stages
from ...store.cache import Lookup
from ..program import Program
from .arrays import Argument, Constant, first_argument

if TYPE_CHECKING:
    from ...report.report import Report

ALL_THREADS = 1 << 31  # as many as there is work for


class Launcher:
    """The call for one set of sizes."""

    def __init__(self, executable: Executable, sizes: dict[str, int]):
        self.executable = executable
        self.sizes = sizes

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        return self.executable(arrays)


class Executable:
    """Call it with arrays of the parameters' types; it returns the results as new arrays of the same kind."""

    target = "cuda"

    def __init__(self, graph: Graph, program: Program, stages: Stages):
        from ..simulator.simulate import Simulated

        self.graph = graph
        self.program = program
        self.stages = stages
        self.simulated = Simulated(program)

    @property
    def report(self) -> Report:
        return report_of(self.program, Lookup("off", "the simulator compiles nothing"), self.stages)

    def launcher(self, shapes: Sequence[tuple[int, ...]]) -> Launcher:
        """How to call this code for parameters of these shapes."""
        return Launcher(self, sizes_of(self.graph, shapes))

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        results = self._run([as_plain(on_host(array)) for array in arrays])
        if first_argument(arrays) is None:
            return list(results)
        from numba import cuda

        return [cuda.to_device(result) for result in results]

    def _run(self, given: list[np.ndarray]) -> list[np.ndarray]:
        from ..simulator.simulate import shaped

        sizes = bind_sizes(self.graph, given)
        program = self.program
        memory, errors = self.simulated.run(dict(zip(program.params, given, strict=True)), sizes)
        raise_errors(self.graph, program, errors)
        stored: list[np.ndarray] = []
        for name, dtype, dims in program.stored:
            shape = tuple(evaluate(size, sizes) for size in dims)
            found = memory.get(name)
            stored.append(np.zeros(shape, dtype.numpy) if found is None else shaped(found, dtype, shape))
        results: list[np.ndarray] = []
        for value, (how, number) in zip(self.graph.results, program.sources, strict=True):
            array = given[number] if how == "parameter" else stored[number]
            shape = tuple(evaluate(size, sizes) for size in value.shape)
            results.append(array.reshape(shape) if how == "own" else array.reshape(shape).copy())
        return results


def on_host(array: Any) -> np.ndarray:
    """An array as the simulator takes it: its device arrays are the host's, too."""
    if isinstance(array, Argument):
        found = array.array.copy_to_host()
        return found if array.order is None else found.transpose(array.order)
    return array.array if isinstance(array, Constant) else array


def report_of(program: Program, cache: Lookup, stages: Stages) -> Report:
    """What was fused and what each kernel moves; `smelt explain --target cuda` says what it takes of a GPU."""
    from ...report.report import Report

    return Report.read(program.report).here(ALL_THREADS, cache, stages.seconds)


def sizes_of(graph: Graph, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """What the symbolic sizes are for parameters of these shapes."""
    sizes: dict[str, int] = {}
    for param, shape in zip(graph.params, shapes, strict=True):
        for dim, size in zip(param.shape, shape, strict=True):
            if isinstance(dim, Expr) and (symbol := dim.measured) is not None:
                sizes[symbol.name] = size
    return sizes


def raise_errors(graph: Graph, program: Program, errors: np.ndarray) -> None:
    """An index out of range, if kernels noted one."""
    for site, (failed, index, size) in enumerate(errors.reshape(-1, 3)):
        if failed:
            place = program.places[site]
            raise range_error(place.op, place.called, int(index), int(size), place.location(graph))
