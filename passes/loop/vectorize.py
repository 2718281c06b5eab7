"""Which loops run several iterations at a time."""

from __future__ import annotations

from dataclasses import replace

from ...ir.symbolic import symbols_of
from ...kernels.loop_ir import (
    Alloc,
    Concurrent,
    Gemm,
    Kernel,
    Let,
    Load,
    Loop,
    Pack,
    Register,
    Statement,
    Store,
    walk,
    with_body,
)
from ..manager import loop_pass
from .analysis import cost, independent, stride

CHEAP = 24  # a body below this is unrolled


@loop_pass("vectorize")
def vectorize(kernel: Kernel, *, bits: int = 256) -> Kernel:
    """Turn the loops along which memory is adjacent into vector loops of the target's width.

        serial %j in 0..1024 { ... }   ->   vector<16> %j in 0..1024 { ... }

    Of nested loops the one with more adjacent accesses is taken: for a row sum the inner loop, for a column sum
    the outer one, with the reduction running serially inside of it.
    """
    return replace(kernel, body=tuple(_statement(statement, bits) for statement in kernel.body))


def _statement(statement: Statement, bits: int) -> Statement:
    if isinstance(statement, Concurrent):
        return Concurrent(tuple(_loop(branch, bits) for branch in statement.branches))
    return _loop(statement, bits) if isinstance(statement, Loop) else statement


def _loop(loop: Loop, bits: int) -> Loop:
    children = [item for item in loop.body if isinstance(item, Loop)]
    here = adjacent(loop) if vectorizable(loop) else None
    if here is not None and loop.extent != 1:
        below = sum(best_below(child) for child in children)
        if here >= 0 if not children else here > below:
            return replace(loop, kind="vector", width=lanes(loop, bits))
    return with_body(loop, [_statement(item, bits) for item in loop.body])


def best_below(loop: Loop) -> int:
    """The most adjacent accesses that a loop of this subtree could have."""
    own = adjacent(loop) if vectorizable(loop) else 0
    return max(own, sum(best_below(item) for item in loop.body if isinstance(item, Loop)))


def adjacent(loop: Loop) -> int:
    """Adjacent accesses less the scattered ones, in the whole subtree."""
    score = 0
    for statement in walk(loop.body):
        if isinstance(statement, (Load, Store)):
            step = stride(statement, loop.variable)
            score += 1 if step == 1 else 0 if step == 0 else -1
    return score


def vectorizable(loop: Loop) -> bool:
    """Whether iterations are independent and do the same work."""
    for statement in walk(loop.body):
        if isinstance(statement, (Gemm, Pack, Alloc, Concurrent)):
            return False
        if isinstance(statement, Loop) and loop.variable in symbols_of(statement.start) | symbols_of(statement.stop):
            return False
    return independent(loop)


def lanes(loop: Loop, bits: int) -> int:
    """As many as fill a register of the widest type that is computed with; more where the body is cheap."""
    widest = 4
    for statement in walk(loop.body):
        if isinstance(statement, (Let, Load)) and isinstance(statement.result, Register):
            # i64 values are mostly indices; floats decide.
            if statement.result.dtype.name in ("f64", "c64", "c128"):
                widest = 8
    width = bits // 8 // widest
    work = cost(loop.body)
    inner = [item for item in loop.body if isinstance(item, Loop)]
    if not inner and work <= CHEAP:
        width *= 4 if loop.accumulators else 2
    elif inner and all(item.accumulators and cost(item.body) <= CHEAP for item in inner):
        width *= 4  # a column reduction: long runs of each row, and several accumulators
    extent = loop.extent
    if isinstance(extent, int):
        while width > 2 and width > extent and width // 2 >= extent:
            width //= 2
        while width > bits // 8 // widest and width > extent:
            width //= 2
    return width
