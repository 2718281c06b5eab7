"""Sink slices towards the inputs, so that only the elements that are read are computed.

A value that is read by its slices (the levels of an ocean, the neighbours of a stencil) would have to be materialised
before its first reader runs. Where recomputing is cheaper, each slice is computed from slices of the operands instead,
in the kernel that reads it.

A region is the part of a value that is read: for each dim (start, end, step), or None for all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...ir.graph import Graph, Op, Value, operands_of
from ...ir.proofs import ceil_divide
from ...ir.record import Record
from ...ir.symbolic import Dim, Expr, UndecidedSize
from ...ops.kinds import Contract, Elementwise, Gather, Generate, Reduce, View
from ...ops.shapes import slice_of_slice
from ...ops.view import expand, reshape
from ...ops.view import slice as slice_
from ..fusion.axes import is_alias, rigid_map
from ..fusion.inline import elements, op_cost, static
from ..registry import graph_pass
from ..rewrite import rebuild, remake

Span = tuple[Dim, Dim, int]
Region = tuple[Span | None, ...]


class SliceCosts(Record):
    """When slices are sunk. Costs are in additions of one element. No measurement is recorded."""

    again: int = 48  # cost of recomputed elements, at most: less than storing and loading them
    load: int = 1  # cost of one more load of a value in memory
    fewer: int = 4  # ratio of the operand's to the result's elements from which a reduction counts as stored
    growth: int = 64  # ops that may be added to a graph, beside one for each that it has


COSTS = SliceCosts()


@graph_pass("slices")
def slices(graph: Graph) -> Graph:
    """Sink slices towards the inputs, even if several slices of a value are read.

        %0 = exp(%x) : f32[8, 100]                             %0 = slice(%x) {start = 0, end = 1} : f32[1, 100]
        %1 = slice(%0) {start = 0, end = 1} : f32[1, 100]  ->  %1 = exp(%0) : f32[1, 100]
        %2 = slice(%0) {start = 4, end = 5} : f32[1, 100]      %2 = slice(%x) {start = 4, end = 5} : f32[1, 100]
                                                               %3 = exp(%2) : f32[1, 100]

    Elements in overlapping slices are recomputed only where that is cheap, and values that are in memory anyway stay:
    results, operands of matrix products, and values computed on the tiles of one.
    """
    if not any(op.defn is slice_ for op in graph.ops):
        return graph
    wanted = regions(graph)
    if not wanted:
        return graph
    made: dict[tuple[Value, Region], Value] = {}

    def read(old: Value, new: Value, region: Region) -> Value:
        known = made.get((old, region))
        if known is not None:
            return known
        for dim, span in enumerate(region):
            if span is not None:
                new = slice_(new, dim, *span)
        return as_spelled(new, extents(old, region))

    def visit(op: Op, arguments: dict[str, Any]) -> Value | None:
        result = op.results[0]
        for region, parts in wanted.get(op, {}).items():
            if op.defn is slice_ and region == whole(result):
                moved = made.get((op.operands[0], parts[0]))
                return moved if moved is not None and moved.shape == result.shape else None
            pairs = zip(op.operands, operands_of(op.defn, arguments), strict=True)
            try:
                operands = [read(old, new, part) for (old, new), part in zip(pairs, parts, strict=True)]
                made[result, region] = taken(op, operands, region)
            except UndecidedSize:
                continue  # readers of this region slice the whole value
        return None

    return rebuild(graph, visit)


def taken(op: Op, operands: list[Value], region: Region) -> Value:
    """Compute a region of an op's result from the regions of its operands."""
    shape = extents(op.results[0], region)
    if op.defn is slice_:
        return as_spelled(operands[0], shape)
    if op.defn is expand or op.defn is reshape:
        return op.defn(operands[0], shape)
    items = iter(operands)
    inner = {name: next(items) if isinstance(item, Value) else item for name, item in op.arguments.items()}
    return as_spelled(remake(op, inner)[0], shape)


def as_spelled(value: Value, shape: tuple[Dim, ...]) -> Value:
    """Return the value if its sizes are the same expressions as its region's, else raise UndecidedSize. A slice of a
    slice of a dynamic size may have equal sizes in another form, and their equality could not be proved later."""
    for size, wanted in zip(value.shape, shape, strict=True):
        if size != wanted:
            raise UndecidedSize(size, wanted)
    return value


def regions(graph: Graph) -> dict[Op, dict[Region, tuple[Region, ...]]]:
    """Choose the regions in which results of elementwise ops and their views are computed, with the operands' regions.
    The whole of a slice comes last: it is a region of the sliced value."""
    kept: set[Value] = set()
    costs: dict[Value, float] = {}  # computed for the first op that needs it
    budget = len(graph.ops) + COSTS.growth
    demands: dict[Value, dict[Region, None]] = {}
    wanted: dict[Op, dict[Region, tuple[Region, ...]]] = {}
    computed = False
    for value in graph.results:
        demands.setdefault(value, {})[whole(value)] = None
    for op in reversed(graph.ops):
        result = op.results[0]
        everything = whole(result)
        found = demands.get(result, {})
        parts = [region for region in found if region != everything]
        if parts and isinstance(op.defn.kind, Elementwise):
            if not costs:
                kept = in_memory(graph)
                costs = chain_costs(graph, kept)
            again = sum(share(result, region) for region in found) - 1
            cheap = costs[result] < math.inf and again * costs[result] <= COSTS.again
            if cheap and result not in kept and len(parts) <= budget:
                budget -= len(parts)
                computed = True
            else:
                parts = []
        if not (parts or op.defn is slice_) or not through(op):
            for value in op.operands:
                demands.setdefault(value, {})[whole(value)] = None
            continue
        if everything in found or not parts:
            parts.append(everything)
        wanted[op] = {region: tuple(behind(op, region)) for region in parts}
        for places in wanted[op].values():
            for value, place in zip(op.operands, places, strict=True):
                demands.setdefault(value, {})[place] = None
        if op.defn is not slice_:
            wanted[op].pop(everything, None)
    return wanted if computed else {}


def in_memory(graph: Graph) -> set[Value]:
    """Return the values that are materialised in any case: results, operands of ops that are no loops over elements."""
    found: set[Value] = set()
    for op in reversed(graph.ops):
        kind = op.defn.kind
        regrouped = is_alias(op)
        seen = isinstance(kind, View) and op.results[0] in found
        if seen or regrouped or isinstance(kind, Gather) or (kind is not None and kind.own_kernel):
            found.update(op.operands)
    return found.union(graph.results)


def chain_costs(graph: Graph, kept: set[Value]) -> dict[Value, float]:
    """Return the cost of an element of each value, computed from memory; infinite if it needs another value stored."""
    costs: dict[Value, float] = dict.fromkeys(graph.params, COSTS.load)
    products: set[Value] = set()  # matrix products, and values computed on their tiles
    for op in graph.ops:
        kind, result = op.defn.kind, op.results[0]
        if isinstance(kind, Contract):
            products.add(result)
        if isinstance(kind, (Elementwise, View)) and not products.isdisjoint(op.operands):
            products.add(result)
        if result in products:
            cost = math.inf
        elif isinstance(kind, Elementwise):
            cost = op_cost(op) + sum(costs[value] for value in dict.fromkeys(op.operands))
        elif isinstance(kind, View):
            cost = costs[op.operands[0]]
            if op.operands[0].op is not None and op.operands[0] not in kept and not through(op):
                cost = math.inf
        elif isinstance(kind, Generate) and not op.operands:
            cost = 1 if result.shape else 0
        elif isinstance(kind, Reduce) and elements(result) * COSTS.fewer <= elements(op.operands[0]):
            cost = COSTS.load
        else:
            cost = math.inf
        for value in op.results:
            costs[value] = COSTS.load if value in kept and not isinstance(kind, View) else cost
    return costs


def through(op: Op) -> bool:
    """Whether a region of the result comes from one region of each operand."""
    if op.defn is slice_:
        start, end = op.arguments["start"], op.arguments["end"]
        return isinstance(start, Expr) or isinstance(end, Expr) or start < end
    return isinstance(op.defn.kind, Elementwise) or rigid_map(op) is not None


def behind(op: Op, region: Region) -> Iterator[Region]:
    """Yield the regions of the operands that a region of the result needs, of an op that a slice can go through."""
    if op.defn is slice_:
        (value,) = op.operands
        dim = op.arguments["dim"]
        span = (op.arguments["start"], op.arguments["end"], op.arguments["step"])
        inner = region[dim]
        if inner is not None:
            span = slice_of_slice(value.shape[dim], span, inner)
        yield normal(value, (*region[:dim], span, *region[dim + 1 :]))
    elif isinstance(op.defn.kind, Elementwise):
        for value in op.operands:
            lead = len(region) - value.ndim
            yield tuple(None if size == 1 else region[lead + dim] for dim, size in enumerate(value.shape))
    else:
        step = rigid_map(op)
        assert step is not None
        yield tuple(None if at is None else region[at] for at in step)


def normal(value: Value, region: Region) -> Region:
    """Return the canonical form of a region: all of a dim is None, and the end is right after the last element."""
    spans: list[Span | None] = []
    for size, span in zip(value.shape, region, strict=True):
        if span is not None and isinstance(span[0], int) and isinstance(span[1], int):
            span = (span[0], span[0] + (span[1] - span[0] - 1) // span[2] * span[2] + 1, span[2])
        spans.append(None if span == (0, size, 1) else span)
    return tuple(spans)


def whole(value: Value) -> Region:
    return (None,) * value.ndim


def extents(value: Value, region: Region) -> tuple[Dim, ...]:
    """Return the shape of a region."""
    spans = zip(value.shape, region, strict=True)
    return tuple(size if span is None else ceil_divide(span[1] - span[0], span[2]) for size, span in spans)


def share(value: Value, region: Region) -> float:
    """Return the fraction of a value's elements that a region has."""
    count = math.prod(static(size) for size in extents(value, region))
    return count / max(elements(value), 1)
