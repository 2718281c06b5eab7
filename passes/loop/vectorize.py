"""Vectorise loops along which memory is adjacent, and choose the width of each."""

from __future__ import annotations

from dataclasses import replace

from ...ir.record import Record
from ...ir.symbolic import Dim, symbols_of
from ...kernels.loop.analysis import alive, cost, depth, independent, stride
from ...kernels.loop.ir import (
    Concurrent,
    Kernel,
    Load,
    Loop,
    Prefix,
    Statement,
    Store,
    prefixes,
    walk,
    with_body,
)
from ...kernels.loop.roles import chosen, defines, roles_of
from ...kernels.machine import DEFAULT, Machine
from ..registry import loop_pass


class VectorCosts(Record):
    """When vector loops pay, and how many vectors an iteration takes (unrolling). Costs are in additions. No
    measurement is recorded."""

    cheap: int = 24  # cost of a body, at most, that is unrolled by two vectors
    trivial: int = 4  # cost of a body, at most, that is a load and not much more
    # Cost of a body, at least, that is unrolled if its operations mostly wait for each other: the reorder window of a
    # processor, a few hundred instructions, does not reach the next iteration.
    long: int = 50
    waiting: float = 0.5  # share of the cost on the longest dependence chain, at least, for the same
    # Live vectors of a body, at most, that is unrolled on 32 registers: two of each fill half of them and leave the
    # others to the expansions of operations.
    alive: int = 8
    scattered: int = 4  # cost of other work for each scattered access, at least, for vectors to pay


COSTS = VectorCosts()


@loop_pass("vectorize")
def vectorize(kernel: Kernel, *, machine: Machine = DEFAULT) -> Kernel:
    """Turn the loops along which memory is adjacent into vector loops of the target's width.

        serial %j in 0..1024 { ... }   ->   vector<16> %j in 0..1024 { ... }

    Of nested loops the one with more adjacent accesses is vectorised: for a row sum the inner loop, for a column sum
    the outer one, with the reduction running serially inside of it.
    """
    return replace(kernel, body=tuple(_statement(statement, machine) for statement in kernel.body))


def _statement(statement: Statement, machine: Machine) -> Statement:
    if isinstance(statement, Concurrent):
        return Concurrent(tuple(_loop(branch, machine) for branch in statement.branches))
    return _loop(statement, machine) if isinstance(statement, Loop) else statement


def _loop(loop: Loop, machine: Machine) -> Loop:
    children = [item for item in loop.body if isinstance(item, Loop)]
    here = adjacent(loop) if vectorizable(loop) else None
    if here is not None and loop.extent != 1:
        below = sum(best_below(child) for child in children)
        if _pays(loop, here) if not children else here - chosen_accesses(loop) > below:
            return replace(loop, kind="vector", width=lanes(loop, machine))
    return with_body(loop, [_statement(item, machine) for item in loop.body])


def _pays(loop: Loop, score: int) -> bool:
    """Whether vectors of an innermost loop pay: memory is adjacent, or there is enough work beside scattered accesses,
    which take as many steps as they do one by one."""
    return score >= 0 or cost(loop.body) >= -score * COSTS.scattered


def best_below(loop: Loop) -> int:
    """Return the most adjacent accesses that a vector loop of this subtree could have."""
    own = adjacent(loop) if vectorizable(loop) else 0
    return max(own, sum(best_below(item) for item in loop.body if isinstance(item, Loop)))


def adjacent(loop: Loop) -> int:
    """Count the adjacent accesses less the scattered ones, in the whole subtree."""
    score = 0
    for statement in walk(loop.body):
        if isinstance(statement, (Load, Store)):
            step = stride(statement, loop.variable)
            score += 1 if step == 1 else 0 if step == 0 else -1
    return score


def chosen_accesses(loop: Loop) -> int:
    """Count the accesses at places that data choose for each iteration: vectors of them would be scattered."""
    symbols = {
        statement.symbol  # type: ignore[attr-defined]
        for statement in walk(loop.body)
        if "position" in roles_of(statement) and chosen(statement)
    }
    if not symbols:
        return 0
    return sum(
        any(not symbols.isdisjoint(symbols_of(place)) for place in statement.index)
        for statement in walk(loop.body)
        if isinstance(statement, (Load, Store))
    )


def vectorizable(loop: Loop) -> bool:
    """Whether iterations are independent and have the same trip counts inside."""
    differing = {loop.variable}
    for statement in walk(loop.body):
        roles = roles_of(statement)
        if "block" in roles or "allocates" in roles or isinstance(statement, Concurrent):
            return False
        if "position" in roles and chosen(statement):
            differing.add(statement.symbol)  # type: ignore[attr-defined]
        if isinstance(statement, Loop) and differing & (symbols_of(statement.start) | symbols_of(statement.stop)):
            return False
    return independent(with_body(loop, [item for item in loop.body if not isinstance(item, Prefix)]))


def fitting(extent: Dim, width: int, most: int) -> int:
    """Return the largest power of two up to `most` by which vectors of a width can be longer with a small remainder."""
    while most > 4 and isinstance(extent, int) and 8 * (-extent % (most * width)) > extent:
        most //= 2
    return most


def lanes(loop: Loop, machine: Machine) -> int:
    """Choose the lanes of a vector loop: a register of the widest type computed with; more where unrolling pays."""
    widest = 4
    for statement in walk(loop.body):
        # i64 values are mostly indices; floats decide.
        if any(item.dtype.name in ("f64", "c64", "c128") for item in defines(statement)):
            widest = 8
    width = machine.vector_bytes // widest
    work = cost(loop.body)
    inner = [item for item in loop.body if isinstance(item, Loop)]
    if along := prefixes(loop):
        # A scan, one register: the prefix of more lanes takes more steps.
        width = max(machine.vector_bytes // max(item.result.dtype.real.bytes for item in along), 2)
    elif not inner and work <= COSTS.cheap:
        width *= 4 if loop.accumulators else 2
    elif not inner and not loop.accumulators:
        waits = work >= COSTS.long and depth(loop.body) >= COSTS.waiting * work
        width *= 2 if waits or (machine.registers == 32 and alive(loop.body) <= COSTS.alive) else 1
    elif inner and all(item.accumulators and cost(item.body) <= COSTS.trivial for item in inner):
        width *= fitting(loop.extent, width, 16)  # column sums: the longer the run of each row, the faster
    elif inner and all(cost(item.body) <= COSTS.cheap for item in inner):
        width *= 4  # columns: long runs of each row, and several accumulators
    elif inner:
        width *= 2  # at least a whole cache line of each row
    extent = loop.extent
    if isinstance(extent, int):
        while width > 2 and width > extent and width // 2 >= extent:
            width //= 2
        while width > machine.vector_bytes // widest and width > extent:
            width //= 2
    return width
