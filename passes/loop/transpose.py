"""Transpose memory that vectors would read or write with a stride, a tile (block) at a time, into scratch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from ...ir.record import Record
from ...ir.symbolic import Dim, Symbol, symbols_of
from ...kernels.gpu import GPU
from ...kernels.loop.analysis import count, independent, offset, step
from ...kernels.loop.ir import (
    Alloc,
    Check,
    Concurrent,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Matrix,
    Statement,
    Store,
    Transpose,
    prefixes,
)
from ...kernels.machine import DEFAULT, Machine
from ..registry import loop_pass
from .transpose_blocks import BLOCK_UNIT, Names, matrix, movable, split
from .transpose_rows import blocked_rows


class BlockCosts(Record):
    """Sizes of blocks, in elements unless said. No measurement is recorded."""

    sides: tuple[int, int] = (256, 128)  # down and across: the lengths of adjacent runs that are read and written
    tall_rows: int = 512  # rows of a block, where many such blocks lie one upon the other,
    tall_run: int = 256  # and bytes of each of its rows
    least_side: int = 64  # a side this short is not shortened further to get more blocks
    blocks: int = 64  # number of blocks that is enough to share out to threads
    short: int = 8  # iterations of a loop, at least, that is worth a block


COSTS = BlockCosts()


@loop_pass("transpose")
def transpose(kernel: Kernel, *, machine: Machine = DEFAULT, side: int = 0, pad: int = 0) -> Kernel:
    """Transpose, in a nest of independent loops, memory adjacent along an outer loop into blocks along the inner one.

        serial %i in 0..2048 {                 serial %i.block in 0..4 {
          serial %j in 0..2048 {                 serial %j.block in 0..32 {
            %0 = load %x[%j, %i]                   alloc %block0: f32[512, 64]
            %1 = load %y[%i, %j]                   transpose %block0[0; 64, 1] = %x[...; 1, 2048] over (512, 64)
            %2 = add(%0, %1) : f32                 serial %i in (512 * %i.block)..(512 * %i.block + 512) {
            store %z[%i, %j], %2          ->         serial %j in (64 * %j.block)..(64 * %j.block + 64) {
          }                                            %0 = load %block0[%i - 512 * %i.block, %j - 64 * %j.block]
        }                                              ...

    Stores along the outer loop go to a block that is transposed afterwards. Where there are several inner loops, or
    reductions, whole rows of a few iterations of the outer loop are transposed (transpose_rows.py).

    A transposing copy goes through a block, too: its rows become runs of whole cache lines, for non-temporal stores.

    side: elements; blocks are squares of this side, and whole rows are not transposed; for a GPU
    pad: elements added to each row of such a block, so that the elements of a column lie in different banks
    """
    names = Names(kernel, machine, side, pad)
    return replace(kernel, body=tuple(new for item in kernel.body for new in _statement(item, names, frozenset())))


def _statement(statement: Statement, names: Names, around: frozenset[Symbol]) -> list[Statement]:
    if isinstance(statement, Concurrent):
        branches = [_loop(branch, names, around) for branch in statement.branches]
        # A branch is one loop: one that would need a block allocated before it is left as it is.
        return [
            Concurrent(
                tuple(
                    new[0] if isinstance(new[0], Loop) and len(new) == 1 else old
                    for new, old in zip(branches, statement.branches, strict=True)
                )
            )
        ]
    return _loop(statement, names, around) if isinstance(statement, Loop) else [statement]


def _loop(loop: Loop, names: Names, around: frozenset[Symbol]) -> list[Statement]:
    nest = Nest.of(loop)
    plan = _plan(nest, around, names) if nest is not None else None
    if nest is not None and plan is not None:
        return [_blocked(nest, plan, names)]
    rows = None if names.side else blocked_rows(loop, names, around)
    if rows is not None:
        return rows
    inside = around | {loop.variable}
    return [replace(loop, body=tuple(new for item in loop.body for new in _statement(item, names, inside)))]


class Nest(Record):
    """A loop nest, and the statements of each body but the next loop."""

    loops: tuple[Loop, ...]
    bodies: tuple[tuple[Statement, ...], ...]

    @staticmethod
    def of(loop: Loop) -> Nest | None:
        """Return the nest of which a loop is the outermost, if its iterations may run in any order."""
        loops: list[Loop] = []
        bodies: list[tuple[Statement, ...]] = []
        while True:
            if loop.kind != "serial" or loop.accumulators or prefixes(loop):
                return None
            inner = loop.body[-1] if loop.body else None
            own = loop.body[:-1] if isinstance(inner, Loop) else loop.body
            allowed = (Let, Load, Index, Check) if isinstance(inner, Loop) else (Let, Load, Index, Check, Store)
            if not all(isinstance(item, allowed) for item in own):
                return None
            loops.append(loop)
            bodies.append(own)
            if not isinstance(inner, Loop):
                break
            loop = inner
        variables = {item.variable for item in loops}
        if any(variables & (symbols_of(item.start) | symbols_of(item.stop)) for item in loops):
            return None
        return Nest(tuple(loops), tuple(bodies)) if all(map(independent, loops)) else None

    def loop(self, variable: Symbol) -> Loop:
        return next(item for item in self.loops if item.variable == variable)


class Plan(Record):
    """The accesses that go through blocks: their memory is adjacent along the loop `down`, vectors run `across`."""

    down: Symbol
    across: Symbol
    accesses: tuple[Load | Store, ...]


def _plan(nest: Nest, around: frozenset[Symbol], names: Names) -> Plan | None:
    """Choose the vector loop with the most adjacent traffic, and the accesses to transpose for it; None for none."""
    accesses = [item for body in nest.bodies for item in body if isinstance(item, (Load, Store))]
    variables = [item.variable for item in reversed(nest.loops) if _long(item)]
    if len(variables) < 2:
        return None
    times = {item.variable: count(item.extent) for item in nest.loops}
    across = max(variables, key=lambda variable: sum(_traffic(item, times) for item in _along(accesses, variable)))
    stored = {item.buffer.name for item in accesses if isinstance(item, Store)}
    loaded = {item.buffer.name for item in accesses if isinstance(item, Load)}
    known = around | {item.variable for item in nest.loops}
    moved = [item for item in accesses if movable(item, across, known) and item.buffer.name not in stored & loaded]
    down = max(variables, key=lambda variable: sum(_traffic(item, times) for item in _along(moved, variable)))
    moved = _along(moved, down)
    if names.side:  # a GPU: as many blocks as fit in shared memory
        sizes = [names.side * (names.side + names.pad) * item.buffer.dtype.bytes for item in moved]
        moved = [item for item, total in zip(moved, accumulate(sizes), strict=True) if total <= GPU.shared]
    return Plan(down, across, tuple(moved)) if moved and down != across else None


def _long(loop: Loop) -> bool:
    return not isinstance(loop.extent, int) or loop.extent >= COSTS.short


def _along(accesses: Sequence[Load | Store], variable: Symbol) -> list[Load | Store]:
    return [item for item in accesses if step(offset(item.buffer, item.index), variable) == 1]


def _traffic(access: Load | Store, times: Mapping[Symbol, int]) -> int:
    """Return the bytes of memory traffic: each place once; twice for stores, as the cache reads the line first."""
    places = math.prod(times.get(symbol, 1) for symbol in symbols_of(offset(access.buffer, access.index)))
    return places * access.buffer.dtype.bytes * (2 if isinstance(access, Store) else 1)


def _blocked(nest: Nest, plan: Plan, names: Names) -> Loop:
    sizes = dict.fromkeys((plan.down, plan.across), names.side) if names.side else _sizes(nest, plan, names)
    outer: list[Loop] = []
    inner: dict[Symbol, Loop] = {}
    for loop in nest.loops:
        if loop.variable in sizes:
            blocks, inner[loop.variable] = split(loop, sizes[loop.variable], names)
            outer.append(blocks)
        else:
            outer.append(loop)
    row, column = inner[plan.down], inner[plan.across]
    starts = {plan.down: row.start, plan.across: column.start}
    head: list[Statement] = []
    tail: list[Statement] = []
    moved: dict[int, Statement] = {}
    width = sizes[plan.across] + names.pad
    for access in plan.accesses:
        scratch = names.scratch(access, (sizes[plan.down], width))
        head.append(Alloc(scratch))
        index = (plan.down.expr() - row.start, plan.across.expr() - column.start)
        moved[id(access)] = replace(access, buffer=scratch, index=index)
        if isinstance(access, Load):
            source = matrix(access, plan.down, plan.across, starts)
            head.append(Transpose(Matrix(scratch, 0, width, 1), source, row.extent, column.extent))
        else:
            target = matrix(access, plan.across, plan.down, starts)
            tail.append(Transpose(target, Matrix(scratch, 0, 1, width), column.extent, row.extent))
    # Statements before the vector loop do not depend on it; all others go inside.
    depth = [loop.variable for loop in nest.loops].index(plan.across)
    hoisted, varying = (
        [moved.get(id(item), item) for own in bodies for item in own]
        for bodies in (nest.bodies[:depth], nest.bodies[depth:])
    )
    vectors = replace(column, body=tuple(varying))
    body: list[Statement] = [*head, replace(row, body=(*hoisted, vectors)), *tail]
    for loop in reversed(outer):
        body = [replace(loop, body=tuple(body))]
    assert isinstance(body[0], Loop)
    return body[0]


def _sizes(nest: Nest, plan: Plan, names: Names) -> dict[Symbol, int]:
    """Choose the sides of blocks along the two loops: long runs, within the caches, and enough blocks for threads."""
    each = sum(item.buffer.dtype.bytes for item in plan.accesses)
    total = math.prod(count(loop.extent) for loop in nest.loops)
    extents = nest.loop(plan.down).extent, nest.loop(plan.across).extent
    down = extents[0]
    tall = isinstance(down, int) and down >= 2 * COSTS.tall_rows
    sides = (
        (COSTS.tall_rows, COSTS.tall_run // max(item.buffer.dtype.bytes for item in plan.accesses))
        if tall
        else COSTS.sides
    )
    # A dynamic size may be short.
    limits = [
        side if isinstance(extent, int) else min(COSTS.sides) for extent, side in zip(extents, sides, strict=True)
    ]
    while True:
        rows, columns = (_evenly(extent, limit) for extent, limit in zip(extents, limits, strict=True))
        area = rows * columns
        longer = int(columns > rows)
        shared = area * COSTS.blocks <= total or max(rows, columns) <= COSTS.least_side
        if max(rows, columns) <= BLOCK_UNIT or (area * each <= names.machine.l2 // 8 and shared):
            return {plan.down: rows, plan.across: columns}
        limits[longer] //= 2


def _evenly(extent: Dim, side: int) -> int:
    """Return a size near `side` that cuts an extent into blocks of about equal size."""
    if not isinstance(extent, int):
        return side
    each = -(-extent // -(-extent // side))
    return min(-(-each // BLOCK_UNIT) * BLOCK_UNIT, side)
