"""Replacing loop variables by expressions, registers by others, and bodies of loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count as counter

from ...ir.proofs import substitute
from ...ir.symbolic import Dim, Symbol
from ...kernels.loop.ir import (
    Check,
    Concurrent,
    Fetch,
    Gemm,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Matrix,
    Operand,
    Pack,
    Register,
    Statement,
    Store,
    Transpose,
    walk,
    with_body,
)


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

    if isinstance(statement, (Load, Store, Fetch)):
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
    if isinstance(statement, Transpose):
        target, source = matrix(statement.target), matrix(statement.source)
        ahead = None if statement.ahead is None else change(statement.ahead)
        return Transpose(target, source, change(statement.rows), change(statement.columns), ahead)
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


def fresh_registers(kernel: Kernel) -> Iterator[str]:
    """Names that no register of a kernel has."""
    taken = {buffer.name for buffer in kernel.buffers}
    taken |= {item.result.name for item in walk(kernel.body) if isinstance(item, (Let, Load, Index))}
    return (f"%{number}s" for number in counter() if f"%{number}s" not in taken)


def renamed(statements: Sequence[Statement], fresh: Iterator[str]) -> tuple[Statement, ...]:
    """Straight-line code once more, with registers of its own."""
    names: dict[str, Operand] = {}

    def now(operand: Operand) -> Operand:
        return names.get(operand.name, operand) if isinstance(operand, Register) else operand

    made: list[Statement] = []
    for statement in statements:
        if isinstance(statement, (Let, Load, Index)):
            result = Register(next(fresh), statement.result.dtype)
            if isinstance(statement, Let):
                statement = replace(statement, operands=tuple(map(now, statement.operands)))
            names[statement.result.name] = result
            statement = replace(statement, result=result)
        if isinstance(statement, Store):
            statement = replace(statement, value=now(statement.value))
        if isinstance(statement, (Load, Store)) and statement.guard is not None:
            statement = replace(statement, guard=now(statement.guard))
        made.append(statement)
    return tuple(made)


def change_loops(kernel: Kernel, change: Callable[[Loop], Loop]) -> Kernel:
    """The kernel with what `change` makes of its loops, the inner ones first; not of those inside of vector loops."""

    def visit(statement: Statement) -> Statement:
        if isinstance(statement, Concurrent):
            return Concurrent(tuple(map(loop, statement.branches)))
        return loop(statement) if isinstance(statement, Loop) else statement

    def loop(found: Loop) -> Loop:
        return change(found if found.kind == "vector" else with_body(found, list(map(visit, found.body))))

    return replace(kernel, body=tuple(map(visit, kernel.body)))


def change_bodies(kernel: Kernel, change: Callable[[Loop], Sequence[Statement]]) -> Kernel:
    """The kernel with what `change` makes of the bodies of its loops, the inner ones first. Vector loops stay."""
    return change_loops(
        kernel, lambda found: found if found.kind == "vector" else with_body(found, list(change(found)))
    )
