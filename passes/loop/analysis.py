"""What loop passes ask of a loop tree: where an access lies, what a body costs."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.symbolic import Dim, Expr, Symbol, contiguous_strides, minimum, substitute, symbols_of
from ...kernels.loop_ir import (
    Alloc,
    Buffer,
    Check,
    Concurrent,
    Gemm,
    Index,
    Let,
    Load,
    Loop,
    Pack,
    Statement,
    Store,
    walk,
)
from ...kernels.scalar import SCALARS

LARGE = 4096  # what a symbolic extent counts for


def offset(buffer: Buffer, index: Sequence[Dim]) -> Dim:
    """The linear place of an access, in elements."""
    total: Dim = 0
    for position, stride in zip(index, contiguous_strides(buffer.shape), strict=True):
        total = total + position * stride
    return total


def stride(access: Load | Store, variable: Symbol) -> Dim | None:
    """How far apart neighbouring iterations touch memory; None if that varies."""
    place = offset(access.buffer, access.index)
    return place.coefficient(variable) if isinstance(place, Expr) else 0


def count(extent: Dim) -> int:
    return extent if isinstance(extent, int) else LARGE


def cost(statements: Sequence[Statement]) -> int:
    """Work in additions, roughly."""
    total = 0
    for statement in statements:
        if isinstance(statement, Let):
            row = SCALARS.get(statement.op)
            total += row.cost if row is not None else 1
        elif isinstance(statement, (Load, Store, Index)):
            total += 1
        elif isinstance(statement, Check):
            total += 3
        elif isinstance(statement, Loop):
            total += count(statement.extent) * (cost(statement.body) + len(statement.accumulators))
        elif isinstance(statement, Concurrent):
            total += cost(statement.branches)
        elif isinstance(statement, Gemm):
            total += count(statement.rows) * count(statement.columns) * count(statement.depth) // 8
        elif isinstance(statement, Pack):
            total += count(statement.rows) * count(statement.columns) // 4
        else:
            assert isinstance(statement, Alloc)
    return total


def independent(loop: Loop) -> bool:
    """Whether no two iterations store to one place or read what another stores. Accumulators are not asked about."""
    if loop.carries:
        return False
    stored: dict[str, set[Dim]] = {}
    chosen: set[Symbol] = set()  # indices that data chose inside of the loop
    own = {loop.variable}  # variables that never have the same value in two iterations
    for statement in walk(loop.body):
        if isinstance(statement, Check):
            chosen.add(statement.symbol)
        elif isinstance(statement, Loop):
            if runs_on(statement, loop.variable):
                own.add(statement.variable)
            else:
                own.discard(statement.variable)
        elif isinstance(statement, Store) and statement.buffer.role != "scratch":
            place = offset(statement.buffer, statement.index)
            if all(stride(statement, variable) in (0, None) for variable in own) or chosen & symbols_of(place):
                return False
            stored.setdefault(statement.buffer.name, set()).add(place)
    for statement in walk(loop.body):
        if isinstance(statement, Load) and statement.buffer.name in stored:
            if not {offset(statement.buffer, statement.index)} <= stored[statement.buffer.name]:
                return False
    return True


def runs_on(loop: Loop, variable: Symbol) -> bool:
    """Whether a loop starts, in the next iteration of an enclosing one, where it stopped in this one or later."""
    if variable not in symbols_of(loop.start):
        return False
    following = substitute(loop.start, {variable: variable.expr() + 1})
    return minimum(following, loop.stop) == loop.stop
