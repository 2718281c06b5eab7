"""Parallelize outermost loops with enough work for threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir.proofs import ceil_divide, minimum
from ...ir.symbolic import Dim, Symbol, symbols_of
from ...kernels.loop.analysis import cost, count, independent
from ...kernels.loop.ir import Concurrent, Kernel, Loop, Statement, fresh
from ...kernels.machine import DEFAULT, Machine, Sharing
from ..registry import loop_pass
from .substitute import substitute_statement


@loop_pass("parallelize")
def parallelize(kernel: Kernel, *, machine: Machine = DEFAULT) -> Kernel:
    """Turn outermost loops with enough work into parallel loops.

        serial %i in 0..4096 { ... }      ->  parallel<8> %i in 0..4096 { ... }
        vector<32> %i in 0..N { ... }     ->  parallel %t0 in 0..((N + T - 1) // T) {
                                                vector<32> %i in (T * %t0)..(min(T * %t0 + T, N)) { ... }
                                              }

    An outermost loop that is short, or of unknown length around long work, is first merged with the one inside of it.
    Sizes alone decide, never the number of threads.
    """
    numbers = fresh(kernel, "%m{}", "%t{}")
    total, sharing = cost(kernel.body), machine.sharing
    return replace(kernel, body=tuple(_statement(item, numbers, total, sharing) for item in kernel.body))


def _statement(statement: Statement, fresh: Iterator[int], total: int, sharing: Sharing) -> Statement:
    if isinstance(statement, Concurrent):
        return Concurrent(tuple(_loop(branch, fresh, total, sharing) for branch in statement.branches))
    return _loop(statement, fresh, cost([statement]), sharing) if isinstance(statement, Loop) else statement


def _loop(loop: Loop, fresh: Iterator[int], total: int, sharing: Sharing) -> Loop:
    if loop.accumulators or total < sharing.worth or not independent(loop):
        return loop
    loop = _merge(loop, fresh, sharing)
    if loop.kind == "vector":
        return _split(loop, fresh, total, sharing)
    if loop.extent == 1:
        return loop
    each = max(1, cost(loop.body))
    return replace(
        loop,
        kind="parallel",
        width=max(1, min(_tile(total, sharing) // each, count(loop.extent) // sharing.iterations or 1)),
    )


def _tile(total: int, sharing: Sharing) -> int:
    """Return the work of one run, in additions: long runs stream better, many short ones balance better."""
    return min(max(total // sharing.runs, sharing.run[0]), sharing.run[1])


def _merge(loop: Loop, fresh: Iterator[int], sharing: Sharing) -> Loop:
    """Collapse a perfect nest whose outer loop is short, or may be, into one loop."""
    while (
        loop.kind == "serial"
        and len(loop.body) == 1
        and _is_short(loop, sharing)
        and isinstance(loop.body[0], Loop)
        and loop.body[0].kind == "serial"
        and loop.start == 0
        and loop.body[0].start == 0
        and loop.variable not in symbols_of(loop.body[0].stop)
        and not loop.body[0].accumulators
        and independent(loop.body[0])
    ):
        inner = loop.body[0]
        total = loop.extent * inner.extent
        merged = Symbol(f"%m{next(fresh)}", 0, total - 1)
        places: dict[Symbol, Dim] = {
            loop.variable: merged.expr() // inner.extent,
            inner.variable: merged.expr() % inner.extent,
        }
        body = tuple(substitute_statement(item, places) for item in inner.body)
        loop = Loop("serial", merged, 0, total, body)
    return loop


def _is_short(loop: Loop, sharing: Sharing) -> bool:
    """Whether a loop has few iterations or, at a dynamic size, may have few and a body that outweighs the two divisions
    of a merged index."""
    if isinstance(loop.extent, int):
        return loop.extent < sharing.iterations
    return all(isinstance(item, Loop) and cost(item.body) >= sharing.run[1] for item in loop.body)


def _split(loop: Loop, fresh: Iterator[int], total: int, sharing: Sharing) -> Loop:
    """Strip-mine a vector loop into runs whose length is a multiple of its width."""
    each = max(1, cost(loop.body))
    run = max(_tile(total, sharing) // each // loop.width, 1) * loop.width
    tile = Symbol(f"%t{next(fresh)}", 0, ceil_divide(loop.extent, run) - 1)
    start = loop.start + tile.expr() * run
    inner = replace(loop, start=start, stop=minimum(start + run, loop.stop))
    return Loop("parallel", tile, 0, ceil_divide(loop.extent, run), (inner,))
