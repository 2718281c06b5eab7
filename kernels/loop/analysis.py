"""What loop passes ask of a loop tree: where an access lies, what a body costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations

from ...ir.proofs import minimum, non_negative, substitute
from ...ir.symbolic import ASSUMED_SIZE, Compound, Dim, Expr, Symbol, atoms_of, contiguous_strides, symbols_of
from ..gemm import TILING
from ..scalar.table import SCALARS
from .ir import (
    Alloc,
    Buffer,
    Check,
    Concurrent,
    Fetch,
    Gemm,
    Index,
    Lead,
    Let,
    Load,
    Loop,
    Pack,
    Prefix,
    Register,
    Statement,
    Store,
    Transpose,
    prefixes,
    walk,
)


def offset(buffer: Buffer, index: Sequence[Dim]) -> Dim:
    """The linear place of an access, in elements."""
    return _linear(buffer.shape, tuple(index))


@lru_cache(maxsize=4096)
def _linear(shape: tuple[Dim, ...], index: tuple[Dim, ...]) -> Dim:
    """Every pass asks about every access, for every loop around it."""
    total: Dim = 0
    for position, stride in zip(index, contiguous_strides(shape), strict=True):
        total = total + position * stride
    return total


def stride(access: Load | Store, variable: Symbol) -> Dim | None:
    """How far apart neighbouring iterations touch memory; None if that varies."""
    return step(offset(access.buffer, access.index), variable)


def step(place: Dim, variable: Symbol) -> Dim | None:
    """How far a linear place moves from one iteration to the next; None if that varies."""
    return place.coefficient(variable) if isinstance(place, Expr) else 0


def stored_place(statement: Store | Transpose) -> tuple[Buffer, Dim]:
    """Where a statement writes, or begins to."""
    if isinstance(statement, Transpose):
        return statement.target.buffer, statement.target.offset
    return statement.buffer, offset(statement.buffer, statement.index)


def count(extent: Dim) -> int:
    return extent if isinstance(extent, int) else ASSUMED_SIZE


def cost(statements: Sequence[Statement]) -> int:
    """Work in additions, roughly."""
    total = 0
    for statement in statements:
        if isinstance(statement, Let):
            row = SCALARS.get(statement.op)
            total += row.cost if row is not None else 1
        elif isinstance(statement, (Load, Store, Fetch, Index)):
            total += 1
        elif isinstance(statement, Prefix):
            row = SCALARS.get(statement.combiner)
            total += row.cost if row is not None else 1
        elif isinstance(statement, Check):
            total += 3
        elif isinstance(statement, Loop):
            total += count(statement.extent) * (cost(statement.body) + len(statement.accumulators))
        elif isinstance(statement, Concurrent):
            total += cost(statement.branches)
        elif isinstance(statement, Gemm):
            rows = max(count(statement.rows), TILING.least_uses)
            total += rows * count(statement.columns) * count(statement.depth) // 8
        elif isinstance(statement, Transpose):
            total += 2 * count(statement.rows) * count(statement.columns)
        elif isinstance(statement, Pack):
            total += 0 if statement.once else count(statement.rows) * count(statement.columns)
        else:
            assert isinstance(statement, (Alloc, Lead))
    return total


def depth(statements: Sequence[Statement]) -> int:
    """The work, in additions, of the longest chain of operations of which each needs the one before."""
    depths: dict[str, int] = {}
    for statement in statements:
        if isinstance(statement, Let):
            row = SCALARS.get(statement.op)
            before = [depths.get(item.name, 0) for item in statement.operands if isinstance(item, Register)]
            depths[statement.result.name] = max(before, default=0) + (row.cost if row is not None else 1)
    return max(depths.values(), default=0)


def alive(statements: Sequence[Statement]) -> int:
    """How many registers straight-line code has to keep at a time, without what single operations need inside."""
    needed: set[str] = set()
    most = 0
    for statement in reversed(statements):
        if isinstance(statement, (Let, Load, Index)):
            needed.discard(statement.result.name)
        if isinstance(statement, Let):
            needed |= {item.name for item in statement.operands if isinstance(item, Register)}
        elif isinstance(statement, Store) and isinstance(statement.value, Register):
            needed.add(statement.value.name)
        most = max(most, len(needed))
    return most


def independent(loop: Loop) -> bool:
    """Whether no two iterations store to one place or read what another stores. Accumulators are not asked about."""
    if prefixes(loop):
        return False
    stored: dict[str, set[Dim]] = {}
    scattered: set[str] = set()  # buffers that are stored to at places that data chose
    chosen: set[Symbol] = set()  # indices that data chose inside of the loop
    own = {loop.variable}  # variables that never have the same value in two iterations
    private = {item.buffer.name for item in walk(loop.body) if isinstance(item, Alloc)}
    for statement in walk(loop.body):
        if isinstance(statement, Check):
            chosen.add(statement.symbol)
        elif isinstance(statement, Loop):
            if runs_on(statement, loop.variable):
                own.add(statement.variable)
            else:
                own.discard(statement.variable)
        elif isinstance(statement, (Store, Transpose)):
            buffer, place = stored_place(statement)
            if buffer.name in private:
                continue
            if chosen & symbols_of(place):
                scattered.add(buffer.name)
            elif all(step(place, variable) in (0, None) for variable in own) and not has_own_place(
                statement, loop.variable
            ):
                return False
            stored.setdefault(buffer.name, set()).add(place)
    if not all(kept_apart(loop, name) for name in scattered):
        return False
    for statement in walk(loop.body):
        if isinstance(statement, Load) and statement.buffer.name in stored and statement.buffer.name not in scattered:
            if not {offset(statement.buffer, statement.index)} <= stored[statement.buffer.name]:
                return False
        elif isinstance(statement, Transpose) and statement.source.buffer.name in stored:
            return False
    return True


def has_own_place(statement: Store | Transpose, variable: Symbol) -> bool:
    """Whether each iteration stores to places of its own because of how it counts in two dims or more: e // n in one
    of them and e % n in another say together what e is."""
    if isinstance(statement, Transpose):
        return False
    known = [dim for dim in statement.index if isinstance(dim, Expr)]
    pending = list(permutations(known, 2))
    while pending:
        quotient, rest = pending.pop()
        for monomial, factor in rest.terms:
            atom = monomial[0] if len(monomial) == 1 else None
            if factor != 1 or not isinstance(atom, Compound) or atom.operator != "%":
                continue
            whole = quotient * atom.right + rest
            if own_range(whole, variable) is not None:
                return True
            if isinstance(whole, Expr) and atom not in atoms_of(whole) and whole not in known:
                pending += [pair for item in known for pair in ((item, whole), (whole, item))]
                known.append(whole)
    return False


def kept_apart(loop: Loop, name: str) -> bool:
    """Whether in one dim of a buffer each iteration has a range of its own, and all its accesses lie in that.

    Then data may choose in the other dims, and within the range."""
    accesses = [item for item in walk(loop.body) if isinstance(item, (Load, Store)) and item.buffer.name == name]
    shape = accesses[0].buffer.shape
    if any(item.buffer.shape != shape for item in accesses):
        return False
    for dim in range(len(shape)):
        steps = {own_range(item.index[dim], loop.variable) for item in accesses}
        if len(steps) == 1 and None not in steps:
            return True
    return False


def own_range(place: Dim, variable: Symbol) -> Dim | None:
    """The n of a place n * variable + rest where 0 <= rest < n; None if it is no such place."""
    factor = place.coefficient(variable) if isinstance(place, Expr) else None
    if factor is None or factor == 0:
        return None
    rest = place - variable.expr() * factor
    return factor if non_negative(rest) and non_negative(factor - 1 - rest) else None


def runs_on(loop: Loop, variable: Symbol) -> bool:
    """Whether a loop starts, in the next iteration of an enclosing one, where it stopped in this one or later."""
    if variable not in symbols_of(loop.start):
        return False
    following = substitute(loop.start, {variable: variable.expr() + 1})
    return minimum(following, loop.stop) == loop.stop
