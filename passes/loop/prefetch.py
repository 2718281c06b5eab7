"""Prefetch rows of large buffers while earlier rows are computed, where hardware prefetchers would not.

Two other places prefetch. A transposition prefetches its source, at the distance that strip_mine.py sets (`ahead`) or
else the default in backend/cpu/microkernels/tuning.py. Packing and GEMM prefetch inside the micro-kernels
(backend/cpu/microkernels/gemm.py, pairs.py, dots.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.proofs import non_negative, substitute
from ...ir.record import Record
from ...ir.symbolic import product
from ...kernels.loop.analysis import cost, offset, step
from ...kernels.loop.ir import Concurrent, Fetch, Kernel, Load, Loop, Statement, Store, with_body
from ...kernels.loop.verify import written
from ...kernels.machine import DEFAULT, Machine
from ..registry import loop_pass
from .substitute import change_bodies


class FetchCosts(Record):
    """Which rows are prefetched. No measurement is recorded."""

    long: int = 1 << 15  # bytes of a long row, at least: hardware prefetchers cover shorter ones
    short: int = 1 << 10  # bytes of a short row, at most: it ends before hardware prefetchers have detected it
    ahead: int = 16  # prefetch distance of short rows, in rows
    busy: int = 8  # additions for each element, at least, of a pass that leaves memory bandwidth idle


COSTS = FetchCosts()


@loop_pass("prefetch")
def prefetch(kernel: Kernel, *, machine: Machine = DEFAULT) -> Kernel:
    """Prefetch the next row where a long row is read several times, in a pass that finds its own row in the caches.

        serial %i in 0..512 {
          vector<64> %j in 0..32000 reduce %1: f32 = max {
            %0 = load %x[%i, %j]
            yield %0
          }
          vector<64> %j in 0..32000 reduce %4: f32 = add {
            fetch %x[%i + 1, %j]       <-
            %2 = load %x[%i, %j]
            ...

    So the first pass does not wait for memory, and the later passes use bandwidth that would be idle. Short rows that
    are far apart, as in a block of a matrix, are prefetched some rows ahead: hardware prefetchers do not follow them:

        serial %i in (512 * %i.block)..(512 * %i.block + 512) {
          vector<32> %j in (64 * %j.block)..(64 * %j.block + 64) {
            fetch %y[%i + 16, %j]  <-
            %1 = load %y[%i, %j]
            ...

    Short rows that are stored to are prefetched, too, unless the stores are non-temporal: a cached store first reads
    its line from memory. Buffers of less than `machine.streamed` bytes are left alone: they stay in the caches.
    """
    loops = [loop for item in kernel.body for loop in (item.branches if isinstance(item, Concurrent) else [item])]
    stored = {name for item in loops if isinstance(item, Loop) for name in written(item)}

    def change(rows: Loop) -> Sequence[Statement]:
        found = _fetches(rows, machine, stored)
        return _added(rows.body, found) if found else rows.body

    return change_bodies(kernel, change)


def _fetches(rows: Loop, machine: Machine, stored: set[str]) -> dict[int, list[Fetch]]:
    """Choose the prefetches of each pass over a row; the key is the identity of the pass."""
    readers: dict[Fetch, list[Loop]] = {}
    found: dict[int, list[Fetch]] = {}
    for one in _passes(rows.body):
        for item in one.body:
            if isinstance(item, Load):
                wanted = item.buffer.name not in stored
            else:
                wanted = isinstance(item, Store) and not item.stream
            if not isinstance(item, (Load, Store)) or not wanted:
                continue
            kind = _row(item, one, rows, machine)
            if kind == "long" and isinstance(item, Load):
                readers.setdefault(_ahead(item, rows, 1), []).append(one)
            elif kind == "short" and any(one is inner for inner in rows.body):
                found.setdefault(id(one), []).append(_ahead(item, rows, COSTS.ahead))
    for following, loops in readers.items():
        later = [one for one in loops if one is not loops[0] and _leaves_memory_idle(one)]
        if later:
            found.setdefault(id(max(later, key=lambda one: cost(one.body))), []).append(following)
    return found


def _passes(statements: Sequence[Statement]) -> Iterator[Loop]:
    """Yield the vector loops of a body, tiled or not."""
    for item in statements:
        if isinstance(item, Loop):
            yield from [item] if item.kind == "vector" else _passes(item.body)


def _ahead(access: Load | Store, rows: Loop, count: int) -> Fetch:
    """Make the prefetch of the element that an access touches `count` rows later."""
    later = {rows.variable: rows.variable.expr() + count}
    return Fetch(access.buffer, tuple(substitute(place, later) for place in access.index))


def _row(access: Load | Store, one: Loop, rows: Loop, machine: Machine) -> str | None:
    """Classify the rows of a large buffer that an access touches: "long", or "short" and far apart; None for others."""
    place = offset(access.buffer, access.index)
    size, row = product(access.buffer.shape), step(place, rows.variable)
    if access.guard is not None or step(place, one.variable) != 1:
        return None
    if not isinstance(size, int) or not isinstance(row, int):
        return None
    width = access.buffer.dtype.bytes
    if size * width < machine.streamed:
        return None
    if non_negative(COSTS.short // width - one.extent):
        return "short" if row * width >= machine.page else None
    return "long" if COSTS.long <= row * width <= machine.l2 // 4 else None


def _leaves_memory_idle(loop: Loop) -> bool:
    return cost(loop.body) >= COSTS.busy and not any(isinstance(item, Store) and item.stream for item in loop.body)


def _added(statements: Sequence[Statement], found: dict[int, list[Fetch]]) -> list[Statement]:
    """Return the statements with the prefetches at the beginning of their passes."""

    def change(item: Statement) -> Statement:
        if not isinstance(item, Loop):
            return item
        return with_body(item, [*found.get(id(item), []), *_added(item.body, found)])

    return list(map(change, statements))
