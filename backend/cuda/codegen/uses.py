"""What statements of loop IR use: registers, buffers, quotients."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.symbolic import Compound, Dim, symbols_of
from ....kernels.loop.ir import (
    Alloc,
    Check,
    Gemm,
    Index,
    Let,
    Load,
    Loop,
    Operand,
    Prefix,
    Register,
    Statement,
    Store,
    walk,
)
from ....kernels.loop.text import statement_dims

AT_ONCE = 8  # loads: what they give takes registers


def needed(lead: Sequence[Statement], tree: Loop) -> list[Statement]:
    """Of pure statements those that a tree uses, directly or not."""
    wanted = used([tree])
    kept: list[Statement] = []
    for statement in reversed(lead):
        results = defined(statement)
        if wanted & set(results):
            kept.insert(0, statement)
            wanted |= used([statement])
    return kept


def defined(statement: Statement) -> list[str]:
    if isinstance(statement, Check):
        return [statement.position.name, statement.guard.name]
    return [statement.result.name] if isinstance(statement, (Let, Load, Index)) else []


def used(statements: Sequence[Statement]) -> set[str]:
    """The names of registers and checked positions that statements read."""
    found: set[str] = set()

    def operands(*items: Operand | None) -> None:
        found.update(item.name for item in items if isinstance(item, Register))

    def dims(*items: Dim) -> None:
        found.update(symbol.name for item in items for symbol in symbols_of(item))

    for item in walk(statements):
        if isinstance(item, Let):
            operands(*item.operands)
        elif isinstance(item, Index):
            dims(item.expression)
        elif isinstance(item, Load):
            operands(item.guard)
            dims(*item.index, *item.buffer.shape)
        elif isinstance(item, Store):
            operands(item.value, item.guard)
            dims(*item.index, *item.buffer.shape)
        elif isinstance(item, Check):
            operands(item.value)
            dims(item.size)
        elif isinstance(item, Prefix):
            operands(item.value, item.start)
        elif isinstance(item, Loop):
            dims(item.start, item.stop)
            operands(*(value for part in item.accumulators for value in part.values))
        elif isinstance(item, Gemm):
            for matrix in (item.output, item.left, item.right):
                dims(matrix.offset, matrix.row_stride, matrix.column_stride)
            dims(item.rows, item.columns, item.depth)
    return found


def accesses(statements: Sequence[Statement]) -> tuple[set[str], set[str]]:
    """The names of the buffers that statements read, and of those they write."""
    reads: set[str] = set()
    writes: set[str] = set()
    for item in walk(statements):
        if isinstance(item, Load):
            reads.add(item.buffer.name)
        elif isinstance(item, Store):
            writes.add(item.buffer.name)
            if item.combine is not None:
                reads.add(item.buffer.name)
        elif isinstance(item, Gemm):
            reads |= {item.left.buffer.name, item.right.buffer.name}
            writes.add(item.output.buffer.name)
    return reads, writes


def behind_loops(statements: Sequence[Statement]) -> int:
    """Where the statements behind the last loop or product begin."""
    loops = [number for number, item in enumerate(statements) if isinstance(item, (Loop, Gemm, Alloc))]
    return loops[-1] + 1 if loops else 0


def fetches_first(statements: Sequence[Statement], changing: set[str]) -> list[Statement]:
    """The same with what can be loaded at once before all else, so that threads wait for memory once: a compiler does
    not move loads past branches."""
    chosen = {item.position.name for item in statements if isinstance(item, Check)}
    early: list[Statement] = []
    for item in statements:
        if isinstance(item, Load) and item.guard is None and item.buffer.name not in changing and len(early) < AT_ONCE:
            if not any(symbol.name in chosen for part in item.index for symbol in symbols_of(part)):
                early.append(item)
    first = set(map(id, early))
    return [*early, *(item for item in statements if id(item) not in first)]


def compounds(statements: Sequence[Statement]) -> list[Compound]:
    """The quotients and remainders in the index expressions of statements, inner before outer."""
    found: dict[Compound, None] = {}

    def look(value: Dim) -> None:
        if isinstance(value, int):
            return
        for monomial, _ in value.terms:
            for atom in monomial:
                if isinstance(atom, Compound):
                    look(atom.left)
                    look(atom.right)
                    if atom.operator in ("//", "%"):
                        found[atom] = None

    for value in statement_dims(statements):
        look(value)
    return list(found)
