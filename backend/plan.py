"""What every target needs of a fused graph beside kernels: names of buffers, sources of results, whom to blame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.graph import Graph, Location, Value
from ..kernels.loop.ir import Kernel, Site
from ..kernels.loop.text import print_kernel
from ..ops.create import constant
from ..passes.fusion.fused import Fused
from .artifact import Place, printed_ops

StageHook = Callable[[str, Any], None]


class Kernels(list[Kernel]):
    """The kernels of a graph; its text is theirs."""

    def __str__(self) -> str:
        return "\n\n".join(map(print_kernel, self))


def name_values(fused: Fused) -> None:
    """Names of buffers: the parameters' own, and numbers for the rest."""
    taken: set[str] = set()
    for param in fused.graph.params:
        name = param.name or f"p{len(taken)}"
        while name in taken:
            name += "_"
        taken.add(name)
        fused.names[param] = name
    number = constants = 0
    for op in fused.graph.ops:
        if op.defn is constant:
            # Numbered apart: the printer numbers only what has a line.
            fused.names[op.results[0]] = f"constant{constants}"
            constants += 1
            continue
        for value in op.results:
            name = f"t{number}"
            while name in taken:
                name += "_"
            fused.names[value] = name
            number += 1


def memory_names(fused: Fused) -> tuple[list[str], list[str]]:
    """The buffers that a call is given, and those that it returns."""
    given = [f"%{fused.names[value]}" for value in fused.graph.params]
    returned = [f"%{fused.names[fused.stored(value)]}" for value in fused.graph.results]
    return given, [name for name in returned if name not in given]


def result_sources(fused: Fused) -> tuple[list[Value], list[tuple[str, int]]]:
    """The values that native code stores, and where each result comes from: one of these, or a copy of a parameter
    or of another result."""
    stored: list[Value] = []
    sources: list[tuple[str, int]] = []
    position: dict[Value, int] = {}
    params = {param: number for number, param in enumerate(fused.graph.params)}
    taken: set[int] = set()
    for value in fused.graph.results:
        base = fused.stored(value)
        if base in params:
            sources.append(("parameter", params[base]))
            continue
        if base not in position:
            position[base] = len(stored)
            stored.append(base)
        how = "copy" if position[base] in taken else "own"
        taken.add(position[base])
        sources.append((how, position[base]))
    return stored, sources


def find_places(graph: Graph, sites: Sequence[Site]) -> list[Place]:
    """The op of the traced graph that each site belongs to: found by its location, which passes hand on."""
    numbers: dict[int, int] = {}
    for number, op in enumerate(printed_ops(graph)):
        if op.loc is not None:
            numbers.setdefault(id(op.loc), number)

    def place(op: str, location: Location | None) -> Place:
        if location is None:
            return Place(op, None, "")
        if id(location) in numbers:
            return Place(op, numbers[id(location)], "")
        called = "" if op.startswith("@") else location.op  # a kernel and its buffer say more
        return Place(op, numbers.get(id(location.outer)), called)

    return [place(site.op, site.location) for site in sites]
