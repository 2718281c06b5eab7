"""Sort once where both the elements and their places are wanted."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Graph, Op, Value
from ...ops.indexing import gather_along
from ...ops.ordering import sorted_places, sorted_values
from ..registry import graph_pass
from ..rewrite import rebuild


@graph_pass("sorts")
def sorts(graph: Graph) -> Graph:
    """Take sorted elements from their places where the graph has these too.

    %0 = sorted_values(%x) : f32[8, 100]    %0 = sorted_places(%x) : i64[8, 100]
    %1 = sorted_places(%x) : i64[8, 100] -> %1 = gather_along(%x, %0) {dim = -1} : f32[8, 100]
    """

    def key(op: Op) -> tuple[Any, ...]:
        return (op.arguments["self"], *(op.arguments[name] for name in ("descending", "start", "count")))

    wanted = {key(op) for op in graph.ops if op.defn is sorted_places}
    if not any(op.defn is sorted_values and key(op) in wanted for op in graph.ops):
        return graph
    made: dict[tuple[Any, ...], Value] = {}

    def visit(op: Op, arguments: dict[str, Any]) -> tuple[Value, ...] | None:
        if op.defn not in (sorted_places, sorted_values) or key(op) not in wanted:
            return None
        if key(op) not in made:
            made[key(op)] = sorted_places(**arguments)
        places = made[key(op)]
        return (places if op.defn is sorted_places else gather_along(arguments["self"], -1, places),)

    return rebuild(graph, visit, again=False)
