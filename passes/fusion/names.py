"""Name the buffers of a fused graph, and list those of its call: parameters, stored arrays, sources of results."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...ir.graph import Graph, Value
from ...ir.record import Record
from ...ops.create import constant

if TYPE_CHECKING:
    from .fused import Fused


def name_values(graph: Graph) -> dict[Value, str]:
    """Return the name of each value's buffer: the parameters' own, and numbers for the rest."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for param in graph.params:
        name = param.name or f"p{len(taken)}"
        while name in taken:
            name += "_"
        taken.add(name)
        names[param] = name
    number = constants = 0
    for op in graph.ops:
        if op.defn is constant:
            # Numbered apart: the printer numbers only ops that have a line.
            names[op.results[0]] = f"constant{constants}"
            constants += 1
            continue
        for value in op.results:
            name = f"t{number}"
            while name in taken:
                name += "_"
            names[value] = name
            number += 1
    return names


class Interface(Record):
    """The buffers that a call provides and returns, and the refusals of fusion for the receipt."""

    sizes: list[str]  # symbols
    params: list[str]  # buffers
    stored: list[Value]  # values that kernels store for the caller
    results: list[str]  # the buffers of these
    sources: list[tuple[str, int]]  # of each result: "own" or a "copy" of a stored value, or of a "parameter"
    refusals: list[str]  # pairs that were not fused, and why
    refused: dict[str, int]  # how many for each reason


def interface(fused: Fused) -> Interface:
    """Return the buffers of a call of a fused graph's kernels."""
    graph, names = fused.graph, fused.names
    stored, sources = result_sources(fused)
    return Interface(
        [symbol.name for symbol in graph.sizes],
        [f"%{names[value]}" for value in graph.params],
        stored,
        [f"%{names[value]}" for value in stored],
        sources,
        [str(refusal) for refusal in fused.refusals],
        dict(Counter(refusal.reason.name.lower() for refusal in fused.refusals).most_common()),
    )


def result_sources(fused: Fused) -> tuple[list[Value], list[tuple[str, int]]]:
    """Return the values that kernels store, and where each result comes from: one of these, or a copy of a parameter
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
