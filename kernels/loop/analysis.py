"""Analyse loop trees: linear index and stride of accesses, cost of a body, independence of iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import permutations
from typing import Any

from ...ir.proofs import minimum, non_negative, substitute
from ...ir.symbolic import ASSUMED_SIZE, Compound, Dim, Expr, Symbol, atoms_of, contiguous_strides, symbols_of
from ..gemm import TILING
from ..scalar.table import SCALARS
from ..sort import SORTING
from .ir import (
    Alloc,
    Buffer,
    Check,
    Concurrent,
    Gemm,
    Kernel,
    Lead,
    Let,
    Load,
    Loop,
    Pack,
    Prefix,
    Register,
    Sort,
    Statement,
    Store,
    Transpose,
    prefixes,
    used,
    walk,
)
from .roles import allocates, blocks, children, chosen, defines, elements, guards, reads, roles_of, writes


def offset(buffer: Buffer, index: Sequence[Dim]) -> Dim:
    """Return the linear index of an access, in elements."""
    return _linear(buffer.shape, tuple(index))


@lru_cache(maxsize=4096)
def _linear(shape: tuple[Dim, ...], index: tuple[Dim, ...]) -> Dim:
    """Cached: every pass asks about every access, for every loop around it."""
    total: Dim = 0
    for position, stride in zip(index, contiguous_strides(shape), strict=True):
        total = total + position * stride
    return total


def stride(access: Load | Store, variable: Symbol) -> Dim | None:
    """Return the stride of an access along a loop, in elements; None if it varies."""
    return step(offset(access.buffer, access.index), variable)


def step(place: Dim, variable: Symbol) -> Dim | None:
    """Return the change of a linear index from one iteration to the next; None if it varies."""
    return place.coefficient(variable) if isinstance(place, Expr) else 0


def stored(statement: Statement) -> Iterator[tuple[Buffer, Dim, tuple[Dim, ...]]]:
    """Yield a statement's writes: buffer, linear index of the first element, and the index if it is one element."""
    for item in elements(statement):
        if item.writes:
            yield item.buffer, offset(item.buffer, item.place), item.place
    for block in blocks(statement):
        if block.writes:
            yield block.matrix.buffer, block.matrix.offset, ()


def count(extent: Dim) -> int:
    return extent if isinstance(extent, int) else ASSUMED_SIZE


def cost(statements: Sequence[Statement]) -> int:
    """Estimate the work of statements, in additions."""
    total = 0
    for statement in statements:
        own = _COSTS.get(statement.__class__)
        if own is not None:
            total += own(statement)
        else:
            inner = children(statement)
            total += cost(inner) if inner else 1
    return total


def _scalar_cost(op: str) -> int:
    row = SCALARS.get(op)
    return row.cost if row is not None else 1


def _gemm_cost(statement: Gemm) -> int:
    rows = max(count(statement.rows), TILING.least_uses)
    return rows * count(statement.columns) * count(statement.depth) // 8


# The work of statements, in additions; of others it is that of their bodies, or 1 without a body.
_COSTS: dict[type, Callable[[Any], int]] = {
    Let: lambda item: _scalar_cost(item.op),
    Prefix: lambda item: _scalar_cost(item.combiner),
    Check: lambda item: 3,
    Alloc: lambda item: 0,
    Lead: lambda item: 0,
    Loop: lambda item: count(item.extent) * (cost(item.body) + len(item.accumulators)),
    Gemm: _gemm_cost,
    Transpose: lambda item: 2 * count(item.rows) * count(item.columns),
    Sort: lambda item: SORTING.cost * count(item.rows) * count(item.length),
    Pack: lambda item: 0 if item.once else count(item.rows) * count(item.columns),
}


def depth(statements: Sequence[Statement]) -> int:
    """Return the length of the longest dependence chain, in additions."""
    depths: dict[str, int] = {}
    for statement in statements:
        if isinstance(statement, Let):
            before = [depths.get(name, 0) for name in used(statement)]
            depths[statement.result.name] = max(before, default=0) + _scalar_cost(statement.op)
    return max(depths.values(), default=0)


def alive(statements: Sequence[Statement]) -> int:
    """Return the most live registers of straight-line code, without those inside of single operations.

    Guards are masks, which have registers of their own.
    """
    needed: set[str] = set()
    most = 0
    for statement in reversed(statements):
        needed.difference_update([item.name for item in defines(statement)])
        operands = used(statement)
        for guard in guards(statement):
            if isinstance(guard, Register):
                operands.remove(guard.name)
        needed.update(operands)
        most = max(most, len(needed))
    return most


def independent(loop: Loop) -> bool:
    """Whether a loop has no loop-carried dependence through memory. Accumulators are not considered."""
    if prefixes(loop):
        return False
    places: dict[str, set[Dim]] = {}  # linear indices of stores, by buffer
    scattered: set[str] = set()  # buffers that are stored to at indices chosen by data
    free: set[Symbol] = set()  # indices that data chooses inside of the loop
    own = {loop.variable}  # variables that never have the same value in two iterations
    # Left out: lowering gives each iteration of a GEMM's tile loop rows of its own, and conflicts.py proves it.
    statements = [(item, roles_of(item)) for item in walk(loop.body) if not isinstance(item, (Gemm, Pack))]
    private = {buffer.name for item, roles in statements if "allocates" in roles for buffer in allocates(item)}
    for statement, roles in statements:
        if "position" in roles and chosen(statement):
            free.add(statement.symbol)  # type: ignore[attr-defined]
        elif isinstance(statement, Loop):
            if runs_on(statement, loop.variable):
                own.add(statement.variable)
            else:
                own.discard(statement.variable)
        for buffer, place, index in stored(statement) if "writes" in roles else ():
            if buffer.name in private:
                continue
            if free & symbols_of(place):
                scattered.add(buffer.name)
            elif all(step(place, variable) in (0, None) for variable in own) and not has_own_place(
                index, loop.variable
            ):
                return False
            places.setdefault(buffer.name, set()).add(place)
    if not all(kept_apart(loop, name) for name in scattered):
        return False
    for statement, roles in statements:
        if "memory" not in roles or not any(buffer.name in places for buffer in reads(statement)):
            continue
        for item in elements(statement):
            if item.reads and item.buffer.name in places and item.buffer.name not in scattered:
                if offset(item.buffer, item.place) not in places[item.buffer.name]:
                    return False
        if any(not block.writes and block.matrix.buffer.name in places for block in blocks(statement)):
            return False
    return True


def has_own_place(index: Sequence[Dim], variable: Symbol) -> bool:
    """Whether each iteration stores to an element of its own because two dims or more determine it: e // n in one of
    them and e % n in another determine e."""
    known = [dim for dim in index if isinstance(dim, Expr)]
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
    """Whether in one dim of a buffer each iteration has a disjoint range, and all its accesses are in that.

    Then data may choose the index in the other dims, and within the range."""
    statements = [
        item for item in walk(loop.body) if any(buffer.name == name for buffer in (*reads(item), *writes(item)))
    ]
    accesses = [element for item in statements for element in elements(item) if element.buffer.name == name]
    if any(blocks(item) for item in statements):
        return False
    shape = accesses[0].buffer.shape
    if any(item.buffer.shape != shape for item in accesses):
        return False
    for dim in range(len(shape)):
        steps = {own_range(item.place[dim], loop.variable) for item in accesses}
        if len(steps) == 1 and None not in steps:
            return True
    return False


def own_range(place: Dim, variable: Symbol) -> Dim | None:
    """Return the n of an index n * variable + rest where 0 <= rest < n; None for other indices."""
    factor = place.coefficient(variable) if isinstance(place, Expr) else None
    if factor is None or factor == 0:
        return None
    rest = place - variable.expr() * factor
    return factor if non_negative(rest) and non_negative(factor - 1 - rest) else None


def runs_on(loop: Loop, variable: Symbol) -> bool:
    """Whether a loop starts, in the next iteration of an enclosing one, at or after its stop in this one."""
    if variable not in symbols_of(loop.start):
        return False
    following = substitute(loop.start, {variable: variable.expr() + 1})
    return minimum(following, loop.stop) == loop.stop


def parallel_regions(kernel: Kernel) -> Iterator[Sequence[Statement]]:
    """Yield a kernel's statements by regions: one that threads share, or several that the caller runs alone."""
    alone: list[Statement] = []
    for statement in kernel.body:
        if isinstance(statement, Concurrent) or (isinstance(statement, Loop) and statement.kind == "parallel"):
            if alone:
                yield alone
                alone = []
            yield [statement]
        else:
            alone.append(statement)
    if alone:
        yield alone
