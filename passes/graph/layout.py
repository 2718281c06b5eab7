"""Choose the layout of results in memory: the one that NumPy and PyTorch would give them.

No result is transposed just to be row-major. A result of elementwise ops has the layout of their operands, and a
transposed view of a computed value stays a view.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Graph, Op, Value, located, ops_behind
from ...ir.types import Order
from ...ops.kinds import Elementwise, Generate, View
from ...ops.view import alias, expand, permute
from ...ops.view import slice as slice_
from ..registry import graph_pass

UNKNOWN: Order = ()


@graph_pass("layout")
def layout(graph: Graph) -> Graph:
    """Store results in the layout that NumPy and PyTorch would give them."""
    return store_in_order(graph, result_orders(graph))


def result_orders(graph: Graph) -> list[Order | None]:
    """Return the layout of each result as an order of dims; None where it is row-major."""
    if not any(op.defn.turns for op in graph.ops) or _are_row_major(graph):
        return [None] * len(graph.results)
    orders = _Orders()
    for op in graph.ops:
        orders.visit(op)
    return [orders.turned.get(value) or None for value in graph.results]


def store_in_order(graph: Graph, orders: Sequence[Order | None]) -> Graph:
    """Return the graph with its results permuted to these orders; `inverse(order)` permutes one back."""
    if not any(orders):
        return graph
    stored: list[Value] = []
    for value, order in zip(graph.results, orders, strict=True):
        with located(value.op.loc if value.op is not None else None):
            stored.append(value if order is None else permute(value, order))
    return Graph.build(graph.name, graph.params, stored)


def _are_row_major(graph: Graph) -> bool:
    """Whether all results are certainly row-major: an elementwise op has another layout only if all its operands do,
    and parameters do not. This finds updates of parameters quickly."""
    found = set(graph.params)
    for op in graph.ops:
        if op.defn.kind.__class__ is Elementwise:
            shape = op.results[0].type.shape
            for value in op.operands:
                if value in found and value.type.shape == shape:
                    found.add(op.results[0])
                    break
    return all(len(value.type.shape) < 2 or value in found for value in graph.results)


class _Orders:
    """The layouts of a program's values if no transposition is made that is not needed."""

    def __init__(self) -> None:
        self.turned: dict[Value, Order] = {}  # layouts of values that are not row-major
        self.free: set[Value] = set()  # values without a layout: broadcasts, and functions of the index alone

    def visit(self, op: Op) -> None:
        kind, result = op.defn.kind, op.results[0]
        if kind is None:
            self._visit_body(op)
        elif isinstance(kind, Elementwise):
            self._visit_elementwise(op, result)
        elif isinstance(kind, Generate) or op.defn is expand:
            self.free.add(result)
        elif op.defn is permute:
            dims, (value,) = op.arguments["dims"], op.operands
            before = self.turned.get(value, range(value.ndim))
            self._set(result, tuple(dims.index(dim) for dim in before))
        elif op.defn in (alias, slice_):
            self._set(result, self.turned.get(op.operands[0]))
        elif isinstance(kind, View) and op.operands[0] in self.turned:
            self._set(result, UNKNOWN)

    def _visit_elementwise(self, op: Op, result: Value) -> None:
        shape, turned, free = result.type.shape, self.turned, self.free
        found: list[Order | None] = []
        for value in op.operands:
            if value.type.shape == shape and value not in free:
                order = turned.get(value)
                if order not in found:
                    found.append(order)
        if not found:
            free.add(result)
        elif UNKNOWN in found:
            self._set(result, UNKNOWN)
        elif len(found) == 1:
            self._set(result, found[0])

    def _visit_body(self, op: Op) -> None:
        """Take the layouts of a composite from its body, which is traced only where that is likely to matter."""
        if not op.defn.turns and not any(self.turned.get(value) for value in op.operands):
            if op.defn.module != "view" or any(value in self.turned for value in op.operands):
                self.turned.update(dict.fromkeys(op.results, UNKNOWN))
            return
        with located(op.loc):
            results = op.defn.expand(op.arguments)
        for inner in ops_behind(results, {value.op.serial for value in op.operands if value.op is not None}):
            self.visit(inner)
        for value, made in zip(op.results, results, strict=True):
            self._set(value, self.turned.get(made))
            if made in self.free:
                self.free.add(value)

    def _set(self, value: Value, order: Order | None) -> None:
        if order is not None and order != tuple(range(value.ndim)):
            self.turned[value] = order
