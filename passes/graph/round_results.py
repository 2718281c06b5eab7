"""Round f16 and bf16 after each op, as PyTorch's eager mode does."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Graph, Op, Value, located
from ...ops.create import constant
from ...ops.kinds import Captured, Element, View
from ...ops.pointwise import round_off
from ..registry import graph_pass, map_nested
from ..rewrite import rebuild, remake


@graph_pass("round_results")
def round_results(graph: Graph) -> Graph:
    """Round each f16 or bf16 result of an op of the program to its type. Runs before `decompose`: eager mode computes a
    composite in one kernel, which rounds once. Ops that only move elements are left alone."""

    def visit(op: Op, arguments: dict[str, Any]) -> tuple[Value, ...] | None:
        if isinstance(op.defn.kind, (View, Element, Captured)) or op.defn in (constant, round_off):
            return None
        if all(value.dtype.compute is value.dtype for value in op.results):
            return None
        with located(op.loc):
            return tuple(map(_rounded, remake(op, arguments)))

    return map_nested(rebuild(graph, visit, again=False), round_results)


def _rounded(value: Value) -> Value:
    return value if value.dtype.compute is value.dtype else round_off(value)
