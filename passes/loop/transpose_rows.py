"""Transpose whole rows that inner loops would read or write with a stride, a few rows at a time.

serial %i in 0..1024 {                             serial %i.block in 0..64 {
  serial %j in 0..512 reduce %3: f32 = max {         alloc %block0: f32[16, 512]
    %0 = load %x[%j, %i]                             transpose %block0[0; 512, 1] = %x[...; 1, 1024] over (16, 512)
    %1 = load %y[%i, %j]                             serial %i in (16 * %i.block)..(16 * %i.block + 16) {
    ...                                       ->       serial %j in 0..512 reduce %3: f32 = max {
  }                                                      %0 = load %block0[%i - 16 * %i.block, %j]
  ...                                                    %1 = load %y[%i, %j]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...ir.proofs import substitute
from ...ir.record import Record
from ...ir.symbolic import Dim, Symbol, symbols_of
from ...kernels.loop.analysis import count, offset, step
from ...kernels.loop.ir import Alloc, Buffer, Load, Loop, Matrix, Statement, Store, Transpose, prefixes, walk
from ...kernels.loop.roles import reads
from ...kernels.loop.verify import written
from .transpose_blocks import BLOCK_UNIT, Names, matrix, movable, split


class Access(Record):
    """A load or store, and the loops around it that are inside of the loop over rows."""

    statement: Load | Store
    loops: tuple[Loop, ...]

    def steps(self, variable: Symbol) -> Dim | None:
        return step(offset(self.statement.buffer, self.statement.index), variable)


def blocked_rows(loop: Loop, names: Names, around: frozenset[Symbol]) -> list[Statement] | None:
    """Return a loop over rows with its strided rows transposed; None if there are none, or if it does not pay."""
    if loop.kind != "serial" or prefixes(loop):
        return None
    accesses = list(_accesses(loop.body, ()))
    memory = [item for item in accesses if item.statement.buffer.role != "scratch"]
    if not any(_lies_along(item, loop.variable) for item in memory):
        return None
    known = around | {loop.variable} | {inner.variable for item in memory for inner in item.loops}
    stored = written(loop)
    loaded = {buffer.name for item in walk(loop.body) for buffer in reads(item)}
    across: list[tuple[Access, Loop]] = []
    for item in memory:
        inner = _runs_over(item, loop.variable)
        if inner is not None and movable(item.statement, inner.variable, known):
            # Only innermost loops become vectors.
            innermost = not any(isinstance(part, Loop) for part in inner.body)
            if innermost and item.statement.buffer.name not in stored & loaded:
                across.append((item, inner))
    # Scratch has to be inside of a loop that may become parallel.
    whole = bool(around) and isinstance(loop.extent, int) and loop.extent <= 2 * BLOCK_UNIT
    if not across or (loop.accumulators and not whole) or (whole and count(loop.extent) < BLOCK_UNIT // 2):
        return None
    rows = count(loop.extent) if whole else BLOCK_UNIT
    return _moved(loop, across, rows, whole, names)


def _moved(
    loop: Loop, across: Sequence[tuple[Access, Loop]], rows: int, whole: bool, names: Names
) -> list[Statement] | None:
    outer, inner = (None, loop) if whole else split(loop, rows, names)
    head: list[Statement] = []
    tail: list[Statement] = []
    moved: dict[int, Statement] = {}
    blocks: dict[tuple[str, Dim, Dim, Dim], Buffer] = {}  # by the elements that they hold: buffer, place, range
    nbytes = 0
    for item, over in across:
        access = item.statement
        place = substitute(offset(access.buffer, access.index), {over.variable: ROW.expr()})
        key = access.buffer.name, place, over.start, over.stop
        scratch = blocks.get(key)
        if scratch is None:
            # Rows are a cache line longer than needed: at strides of a power of two they would share few sets of L1.
            scratch = blocks[key] = names.scratch(access, (rows, over.extent + BLOCK_UNIT))
            nbytes += rows * count(over.extent) * access.buffer.dtype.bytes
            starts = {loop.variable: inner.start, over.variable: over.start}
            head.append(Alloc(scratch))
            if isinstance(access, Load):
                source = matrix(access, loop.variable, over.variable, starts)
                head.append(
                    Transpose(Matrix(scratch, 0, over.extent + BLOCK_UNIT, 1), source, inner.extent, over.extent)
                )
            else:
                target = matrix(access, over.variable, loop.variable, starts)
                tail.append(
                    Transpose(target, Matrix(scratch, 0, 1, over.extent + BLOCK_UNIT), over.extent, inner.extent)
                )
        index = (loop.variable.expr() - inner.start, over.variable.expr() - over.start)
        moved[id(access)] = replace(access, buffer=scratch, index=index)
    if nbytes > names.machine.l2 // 4:
        return None
    body = [*head, replace(inner, body=_replaced(loop.body, moved)), *tail]
    return body if outer is None else [replace(outer, body=tuple(body))]


ROW = Symbol("%row")  # in keys: the inner loops over a row may have different variables


def _accesses(statements: Sequence[Statement], loops: tuple[Loop, ...]) -> Iterator[Access]:
    for statement in statements:
        if isinstance(statement, (Load, Store)):
            yield Access(statement, loops)
        elif isinstance(statement, Loop):
            yield from _accesses(statement.body, (*loops, statement))


def _lies_along(access: Access, row: Symbol) -> bool:
    """Whether an access is adjacent along an inner loop, and moves from row to row."""
    return access.steps(row) != 0 and any(access.steps(inner.variable) == 1 for inner in access.loops)


def _runs_over(access: Access, row: Symbol) -> Loop | None:
    """Return the only inner loop along which an access moves, if rows are adjacent and all of one length."""
    if access.steps(row) != 1:
        return None
    moving = [inner for inner in access.loops if access.steps(inner.variable) != 0]
    if len(moving) != 1 or any(symbol.name.startswith("%") for symbol in _bounds(moving[0])):
        return None
    return moving[0]


def _bounds(loop: Loop) -> frozenset[Symbol]:
    return symbols_of(loop.start) | symbols_of(loop.stop)


def _replaced(statements: Sequence[Statement], moved: dict[int, Statement]) -> tuple[Statement, ...]:
    return tuple(
        replace(item, body=_replaced(item.body, moved)) if isinstance(item, Loop) else moved.get(id(item), item)
        for item in statements
    )
