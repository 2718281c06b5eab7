"""Replacing loop variables by expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.symbolic import Dim, Symbol, substitute
from ...kernels.loop_ir import Check, Concurrent, Gemm, Index, Load, Loop, Matrix, Pack, Statement, Store


def substitute_statement(statement: Statement, places: Mapping[Symbol, Dim]) -> Statement:
    """The statement with loop variables replaced."""

    def change(value: Dim) -> Dim:
        return substitute(value, places)

    def matrix(item: Matrix) -> Matrix:
        return replace(
            item,
            offset=change(item.offset),
            row_stride=change(item.row_stride),
            column_stride=change(item.column_stride),
        )

    if isinstance(statement, (Load, Store)):
        return replace(statement, index=tuple(map(change, statement.index)))
    if isinstance(statement, Index):
        return replace(statement, expression=change(statement.expression))
    if isinstance(statement, Check):
        return replace(statement, size=change(statement.size))
    if isinstance(statement, Loop):
        return replace(
            statement,
            start=change(statement.start),
            stop=change(statement.stop),
            body=tuple(substitute_statement(item, places) for item in statement.body),
        )
    if isinstance(statement, Concurrent):
        return Concurrent(tuple(substitute_statement(item, places) for item in statement.branches))  # type: ignore[misc]
    if isinstance(statement, Gemm):
        return Gemm(
            matrix(statement.output),
            matrix(statement.left),
            matrix(statement.right),
            change(statement.rows),
            change(statement.columns),
            change(statement.depth),
            statement.origin,
        )
    if isinstance(statement, Pack):
        return replace(
            statement,
            output=matrix(statement.output),
            source=matrix(statement.source),
            rows=change(statement.rows),
            columns=change(statement.columns),
        )
    return statement
