"""Split reductions of few long rows, and of tall columns, into two steps."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Graph, Op, Value
from ...ir.record import Record
from ...ir.symbolic import Dim, product
from ...ops.define import REGISTRY
from ...ops.kinds import Contract, Elementwise, Reduce
from ..fusion.costs import COSTS as FUSION
from ..fusion.inline import elements
from ..registry import graph_pass
from ..rewrite import rebuild


class SplitCosts(Record):
    """Which reductions are split. No measurement is recorded."""

    row: int = 1 << 16  # elements of a row, at least
    few: int = 16  # rows from which threads share them evenly without a split
    columns: int = 1 << 18  # elements of all columns, at least,
    column: int = 256  # and of one
    parts: tuple[int, ...] = (16, 12, 20, 10, 24, 8, 32)  # parts of a row or column: the first number that divides it


COSTS = SplitCosts()


@graph_pass("split")
def split(graph: Graph) -> Graph:
    """Split the reduction of few long rows into one of many shorter rows and one of their results. So for columns:
    threads then share out runs of rows, adjacent in memory.

        %0 = sum(%x) {dim = (1)} : f32[3]                          // %x: f32[3, 65536]
    ->
        %0 = reshape(%x) {shape = (3, 16, 4096)} : f32[3, 16, 4096]
        %1 = sum(%0) {dim = (2)} : f32[3, 16]
        %2 = sum(%1) {dim = (1)} : f32[3]

    Parts of f16 and bf16 are f32, and the result is rounded once.

    Rows that are read again, as in a softmax, stay whole: later reads find them in the caches. So do reductions of
    values that other ops read, too, or that are not computed element by element: fused with those ops they cost
    nothing.
    """
    if not any(_parts(op, op.arguments) for op in graph.ops):
        return graph
    alone = {value for value, users in graph.uses().items() if len(users) == 1}
    alone.difference_update(graph.results)
    after: dict[Value, int] = {}  # elements of the largest value that depends on a value
    for op in reversed(graph.ops):
        sizes = [max(after.get(value, 0), elements(value)) for value in op.results]
        for value in op.operands:
            after[value] = max(after.get(value, 0), *sizes)

    def visit(op: Op, arguments: dict[str, Any]) -> Value | None:
        parts = _parts(op, arguments)
        if parts is None:
            return None
        value, dims, result = arguments["self"], arguments["dim"], op.results[0]
        if after.get(result, 0) * FUSION.much > elements(value) or not own_chain(op.arguments["self"], alone):
            return None
        start, length = dims[0], product(value.shape[dim] for dim in dims)
        shape = (*value.shape[:start], parts, length // parts, *value.shape[start + len(dims) :])
        others = {name: item for name, item in arguments.items() if name not in ("self", "dim", "keepdim")}
        if value.dtype is result.dtype and value.dtype.compute is not value.dtype:
            value = REGISTRY["cast"](value, value.dtype.compute)  # a partial sum may overflow where the sum does not
        partial = op.defn(REGISTRY["reshape"](value, shape), dim=(start + 1,), keepdim=False, **others)
        whole = op.defn(partial, dim=(start,), keepdim=False, **others)
        rounded = REGISTRY["reshape"](whole, result.shape)
        return rounded if rounded.dtype is result.dtype else REGISTRY["cast"](rounded, result.dtype)

    return rebuild(graph, visit)


def _parts(op: Op, arguments: dict[str, Any]) -> int | None:
    """Return the number of parts to split a reduction into; None for none, and for other ops."""
    kind = op.defn.kind
    if not isinstance(kind, Reduce) or kind.result == "i64":
        return None
    return pieces(arguments["self"].shape, arguments["dim"])


def own_chain(value: Value, alone: set[Value]) -> bool:
    """Whether a value is computed, element by element, from inputs and matrix products that nothing else reads."""
    pending, seen = [value], set()
    while pending:
        item = pending.pop()
        if not item.shape or item in seen:
            continue
        seen.add(item)
        if item not in alone or item.shape != value.shape:
            return False
        if item.op is not None and not isinstance(item.op.defn.kind, Contract):
            if not isinstance(item.op.defn.kind, Elementwise):
                return False
            pending.extend(item.op.operands)
    return True


def pieces(shape: tuple[Dim, ...], dims: tuple[int, ...]) -> int | None:
    """Return the number of parts to split the reduced dims into; None for none."""
    if not dims or list(dims) != list(range(dims[0], dims[0] + len(dims))):
        return None
    before, length = product(shape[: dims[0]]), product(shape[dim] for dim in dims)
    behind = product(shape[dims[-1] + 1 :])
    if not (isinstance(before, int) and isinstance(length, int) and isinstance(behind, int)):
        return None
    rows = behind == 1 and 1 < before < COSTS.few and length >= COSTS.row
    columns = behind > 1 and before < COSTS.few and length >= COSTS.column and before * length * behind >= COSTS.columns
    return next((parts for parts in COSTS.parts if length % parts == 0), None) if rows or columns else None
