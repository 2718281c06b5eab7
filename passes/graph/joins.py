"""Split joins of many parts into groups, as each element of a join is searched for among all its parts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ...ir.graph import Graph, Op, Value
from ...ir.record import Record
from ...ops.concat_pad import cat
from ...ops.kinds import Elementwise, Reduce
from ..fusion.axes import keeps_order
from ..fusion.costs import COSTS
from ..fusion.inline import static
from ..registry import graph_pass
from ..rewrite import rebuild


class JoinCosts(Record):
    """How many parts a join may have. No measurement is recorded."""

    parts: int = 32  # parts of one join, at most
    group: int = 16  # parts of a group, at least: with 4 elements in each, the group is long enough to join in place


JOINS = JoinCosts()


@graph_pass("joins")
def joins(graph: Graph) -> Graph:
    """Join many parts in groups, and then the groups: a kernel of n parts takes n steps for each element.

        %0 = cat(%x0, %x1, ..., %x999)  ->  %0 = cat(%x0, ..., %x15)
                                            ...
                                            %62 = cat(%0, %1, ..., %61)

    The groups are stored in place, in the memory of the whole (passes/fusion/concat_in_place.py), so each element is
    copied once. Joins whose parts can all be stored in place are left alone.
    """
    if not any(op.defn is cat and len(op.arguments["tensors"]) > JOINS.parts for op in graph.ops):
        return graph
    uses = graph.uses()
    results = set(graph.results)

    def is_stored_there(value: Value, dim: int) -> bool:
        run = 1
        for size in value.shape[dim:]:
            run *= static(size)
        while value.op is not None and keeps_order(value.op) and len(uses[value]) == 1:
            (value,) = value.op.operands
        makes = value.op is not None and isinstance(value.op.defn.kind, (Elementwise, Reduce))
        return makes and run >= COSTS.joined_run and value not in results and len(uses.get(value, ())) == 1

    def visit(op: Op, arguments: dict[str, Any]) -> Value | None:
        if op.defn is not cat or len(arguments["tensors"]) <= JOINS.parts:
            return None
        parts, dim = arguments["tensors"], arguments["dim"]
        if all(is_stored_there(value, dim) for value in parts):
            return None
        count = len(parts) // JOINS.group
        bounds = [number * len(parts) // count for number in range(count + 1)]
        groups = [parts[start:end] for start, end in pairwise(bounds)]
        return cat([cat(group, dim) for group in groups], dim)

    return rebuild(graph, visit)
