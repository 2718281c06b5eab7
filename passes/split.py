"""Reductions of few long rows in two steps."""

from __future__ import annotations

from typing import Any

from ..ir.graph import Graph, Op, Value
from ..ir.symbolic import product
from ..ops.define import REGISTRY
from ..ops.kinds import Reduce
from .manager import graph_pass
from .rewrite import rebuild

LONG = 1 << 16  # elements of a row
FEW = 16  # rows too few to share out evenly
PARTS = (16, 12, 20, 10, 24, 8, 32)  # how many parts a row is cut into: the first that divides it
MUCH = 16  # times as many elements


@graph_pass("split")
def split(graph: Graph) -> Graph:
    """The reduction of few long rows becomes one of many shorter rows, and one of their results.

        %0 = sum(%x) {dim = (1)} : f32[3]                          // %x: f32[3, 65536]
    ->
        %0 = reshape(%x) {shape = (3, 16, 4096)} : f32[3, 16, 4096]
        %1 = sum(%0) {dim = (2)} : f32[3, 16]
        %2 = sum(%1) {dim = (1)} : f32[3]

    Rows that are needed again, as in a softmax, stay whole: they are read once, and from the caches afterwards.
    """
    after: dict[Value, int] = {}  # elements of the largest value that depends on a value
    for op in reversed(graph.ops):
        sizes = [max(after.get(value, 0), elements(value)) for value in op.results]
        for value in op.operands:
            after[value] = max(after.get(value, 0), *sizes)

    def visit(op: Op, arguments: dict[str, Any]) -> Value | None:
        kind = op.defn.kind
        if not isinstance(kind, Reduce) or kind.result == "i64":
            return None
        value, dims, result = arguments["self"], arguments["dim"], op.results[0]
        first = value.ndim - len(dims)
        if not dims or sorted(dims) != list(range(first, value.ndim)):
            return None
        rows, row = product(value.shape[:first]), product(value.shape[first:])
        if not isinstance(rows, int) or not isinstance(row, int) or not 1 < rows < FEW or row < LONG:
            return None
        if after.get(result, 0) * MUCH > rows * row:
            return None
        parts = next((parts for parts in PARTS if row % parts == 0), None)
        if parts is None:
            return None
        shorter = REGISTRY["reshape"](value, (*value.shape[:first], parts, row // parts))
        others = {name: item for name, item in arguments.items() if name not in ("self", "dim", "keepdim")}
        partial = op.defn(shorter, dim=(first + 1,), keepdim=False, **others)
        whole = op.defn(partial, dim=(first,), keepdim=False, **others)
        return REGISTRY["reshape"](whole, result.shape)

    return rebuild(graph, visit)


def elements(value: Value) -> int:
    """How many elements a value has; a symbolic size counts as large."""
    size = product(value.shape)
    return size if isinstance(size, int) else 1 << 40
