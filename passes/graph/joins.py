"""Joins of many parts: each element would be looked for among all of them."""

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
    """How many parts a join has. No measurement is recorded."""

    parts: int = 32  # at most, among which an element is looked for
    group: int = 16  # parts that are joined first, at least: of 4 elements each, they are a run that is joined in place


JOINS = JoinCosts()


@graph_pass("joins")
def joins(graph: Graph) -> Graph:
    """Join many parts in groups, and then these: a kernel of n parts takes n steps for each of their elements.

        %0 = cat(%x0, %x1, ..., %x999)  ->  %0 = cat(%x0, ..., %x15)
                                            ...
                                            %62 = cat(%0, %1, ..., %61)

    The groups are stored where the whole lies (passes/fusion/concat_in_place.py), so each element is copied once. Parts
    that can be stored there themselves are left alone.
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
