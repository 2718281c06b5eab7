"""Absorb producers into scatters and scans: elementwise ops, views and gathers that nothing else reads.

The kernel of a scatter or scan reads each element of its operands once, so computing the element there costs no more
than before and saves a store and a load. An op with two large operands that were not materialised before is not
absorbed: both would have to be in memory, in place of its one result.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import Graph, Op, Value
from ...ir.proofs import non_negative
from ...ops.kinds import Elementwise, Gather, Kind, Scan, Scatter, View
from .costs import COSTS


def absorbed(graph: Graph, uses: dict[Value, list[Op]], is_free: Callable[[Op], bool]) -> set[Op]:
    """Find the ops that the scatter or scan that reads them computes itself. `is_free`: whether an op is inline."""
    results = set(graph.results)
    behind: dict[Op, Op] = {}  # the one scatter or scan that all readers lead to
    taken: dict[Op, int] = {}
    for op in reversed(graph.ops):
        if not isinstance(op.defn.kind, (Elementwise, View, Gather)) or op.results[0] in results:
            continue
        targets = {behind.get(user, user) for user in uses[op.results[0]]}
        if len(targets) != 1:
            continue
        (target,) = targets
        if all(user in behind or op.results[0] in read_once(user) for user in uses[op.results[0]]):
            taken[target] = taken.get(target, 0) + 1
            if taken[target] <= COSTS.absorbed:
                behind[op] = target
    stored: dict[Op, int] = {}  # large values that would be materialised if the op is absorbed
    for op in graph.ops:
        if op in behind:
            stored[op] = sum(_stored(op, value, stored, results, is_free) for value in dict.fromkeys(op.operands))
    found: set[Op] = set()
    for op in reversed(graph.ops):
        if op in behind and stored[op] <= 1:
            if all(user is behind[op] or user in found for user in uses[op.results[0]]):
                found.add(op)
    return found


def read_once(op: Op) -> set[Value]:
    """Return the operands whose elements the op's kernel reads once each."""
    kind = op.defn.kind
    if isinstance(kind, Scan):
        return {op.arguments["self"]}
    if not isinstance(kind, Scatter):
        return set()
    once = [op.arguments["self"], op.arguments["values" if "values" in op.arguments else "src"]]
    return {value for value in once if sum(operand is value for operand in op.operands) == 1}


def _stored(op: Op, value: Value, stored: dict[Op, int], results: set[Value], is_free: Callable[[Op], bool]) -> int:
    """Count the values, as large as the op's result, that are materialised for one operand if the op is absorbed."""
    source = value.op
    if source is None or value in results or (isinstance(kind := source.defn.kind, Kind) and kind.own_kernel):
        return 0  # in memory in any case
    if stored.get(source, 2) <= 1:
        return stored[source]
    if is_free(source) and not source.operands:
        return 0
    if isinstance(op.defn.kind, Gather) and value is op.arguments["self"]:
        return 0  # data chooses in it, so it is in memory
    smaller = non_negative(op.results[0].type.numel - 2 * value.type.numel)
    return 0 if smaller else 1
