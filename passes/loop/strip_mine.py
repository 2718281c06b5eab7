"""Strip-mine loops over transposed blocks: transpose and use one strip of a cache line's rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.proofs import ceil_divide, is_multiple, maximum, minimum, non_negative
from ...ir.symbolic import Dim, Symbol
from ...ir.types import i64
from ...kernels.loop.ir import Alloc, Kernel, Lead, Load, Loop, Register, Statement, Transpose, walk, with_body
from ...kernels.machine import CACHE_LINE
from ..registry import loop_pass
from .substitute import change_bodies
from .transpose_blocks import Names

STRIPS_AHEAD = 2  # prefetch distance of transpositions, in strips; not measured


@loop_pass("strip_mine")
def strip_mine(kernel: Kernel) -> Kernel:
    """Transpose a block of a matrix, and use it, in strips of as many rows as a cache line has elements.

        alloc %block0: f32[512, 64]                     alloc %block0: f32[16, 64]
        transpose %block0[0; 64, 1] = %x[...]           %lead = lead %x
            over (512, 64)                              serial %i.strip in 0..33 {
        serial %i in 0..512 {                             transpose %block0[0; 64, 1] = %x[...] over (16, 64)
          vector<32> %j in 0..64 {                ->      serial %i in (16 * %i.strip - 16 + %lead)..(... + 16) {
            %0 = load %block0[%i, %j]                       vector<32> %j in 0..64 {
            ...                                               %0 = load %block0[%i - (...), %j]
          }                                                   ...

    A strip stays in L1 while it is used, and stores of the strip before drain to memory meanwhile. Strips begin at
    cache lines of the source (the first and the last one of a block are shorter), so each line is read once. Each
    transposition prefetches the strip `STRIPS_AHEAD` later; at the end of a block, one of the next block to the side.
    """
    names = Names(kernel)

    return change_bodies(kernel, lambda loop: _strips(loop.body, names) or loop.body)


def _strips(body: Sequence[Statement], names: Names) -> list[Statement] | None:
    """Strip-mine a body of blocks, the transpositions that fill them and one loop over their rows; None for others."""
    before, rows = body[:-1], body[-1] if body else None
    blocks = {item.buffer.name: item.buffer for item in before if isinstance(item, Alloc)}
    copies = [item for item in before if isinstance(item, Transpose)]
    if not isinstance(rows, Loop) or rows.kind != "serial" or not copies or len(before) != len(blocks) + len(copies):
        return None
    if rows.accumulators:  # complete after the last row, not after each strip
        return None
    first = copies[0].source
    line = CACHE_LINE // first.buffer.dtype.bytes
    filled = {item.target.buffer.name for item in copies if item.rows == rows.extent and item.target.offset == 0}
    reads = [item for item in walk([rows]) if isinstance(item, Load) and item.buffer.name in blocks]
    in_rows = all(item.index[0] == rows.variable.expr() - rows.start for item in reads)
    if filled != blocks.keys() or len(copies) != len(blocks) or not in_rows or non_negative(line - rows.extent):
        return None
    number = ceil_divide(rows.extent, line)
    leads: list[Statement] = []
    shift: Dim = line
    if is_multiple(first.column_stride, line):  # lines begin in the same rows of every column
        lead = Lead(Register(names.new("%lead"), i64), first.buffer)
        leads, number, shift = [lead], number + 1, (lead.symbol.expr() - first.offset) % line
    strips = Symbol(names.new(f"{rows.variable.name}.strip"), 0, number - 1)
    stop = minimum(rows.start + strips.expr() * line + shift, rows.stop)
    start = rows.start + strips.expr() * line
    if leads:
        start = minimum(maximum(start + shift - line, rows.start), rows.stop)
    small = {name: replace(item, shape=(line, *item.shape[1:])) for name, item in blocks.items()}
    moved: list[Statement] = []
    for item in copies:
        tall, wide = blocks[item.target.buffer.name].shape
        # The last strips of a block prefetch the first ones of the next block to the side.
        last = minimum(maximum(strips.expr() + STRIPS_AHEAD + 1 - len(leads) - ceil_divide(tall, line), 0), 1)
        ahead = STRIPS_AHEAD * line + last * (wide * item.source.column_stride - tall)
        source = replace(item.source, offset=item.source.offset + start - rows.start)
        target = replace(item.target, buffer=small[item.target.buffer.name])
        moved.append(Transpose(target, source, stop - start, item.columns, ahead))

    def change(item: Statement) -> Statement:
        if isinstance(item, Load) and item.buffer.name in small:
            place = rows.variable.expr() - start
            return replace(item, buffer=small[item.buffer.name], index=(place, *item.index[1:]))
        return with_body(item, list(map(change, item.body))) if isinstance(item, Loop) else item

    inner = with_body(replace(rows, start=start, stop=stop), list(map(change, rows.body)))
    return [*map(Alloc, small.values()), *leads, Loop("serial", strips, 0, number, (*moved, inner))]
