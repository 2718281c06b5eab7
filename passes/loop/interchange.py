"""Interchange the loops of strided reductions, so that they read memory in the order of its layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir.record import Record
from ...ir.symbolic import Dim, Symbol
from ...kernels.loop.analysis import stride
from ...kernels.loop.ir import Alloc, Buffer, Kernel, Let, Literal, Load, Loop, Statement, Store, fresh, walk
from ...kernels.machine import DEFAULT, Machine
from ...kernels.scalar.table import COMBINERS
from ..registry import loop_pass
from .substitute import substitute_statement


class RowCosts(Record):
    """How many rows one step of a reduction covers. No measurement is recorded."""

    pages: int = 4  # pages of memory that one step reads, at most
    rows: int = 4  # rows of one run, at least, that are worth a loop
    runs: int = 16  # runs of rows, at least, so that threads share them evenly


COSTS = RowCosts()


@loop_pass("interchange")
def interchange(kernel: Kernel, *, machine: Machine = DEFAULT) -> Kernel:
    """Interchange a loop over rows with a strided reduction: each step, on a page of its own, covers many rows.

        serial %i in 0..1024 {                              serial %r0 in 0..64 {
          serial %j in 0..64 reduce %2: f32 = add {           alloc %r0.0: f32[16]
            vector<64> %k in 0..64 reduce %1: f32 = add {     serial %s0 in 0..16 { store %r0.0[%s0], 0.0:f32 }
              %0 = load %x[%j, %i, %k]                        serial %j in 0..64 {
              yield %0                                          serial %s0 in 0..16 {
            }                                            ->       vector<64> %k in 0..64 reduce %1: f32 = add {
            yield %1                                                %0 = load %x[%j, 16 * %r0 + %s0, %k]
          }                                                         yield %0
          store %y[%i], %2                                        }
        }                                                         store add %r0.0[%s0], %1
                                                                }
                                                              }
                                                              serial %s0 in 0..16 {
                                                                %2 = load %r0.0[%s0]
                                                                store %y[16 * %r0 + %s0], %2

    The values of a row are still combined in the same order.
    """
    numbers = fresh(kernel, "%r{}", "%s{}")
    return replace(
        kernel, body=tuple(_loop(item, numbers, machine) if isinstance(item, Loop) else item for item in kernel.body)
    )


def _loop(loop: Loop, fresh: Iterator[int], machine: Machine) -> Loop:
    rows = _rows(loop, machine)
    if rows is None:
        return loop
    steps, *rest = loop.body
    assert isinstance(steps, Loop) and isinstance(loop.extent, int)
    number = next(fresh)
    run = Symbol(f"%r{number}", 0, loop.extent // rows - 1)
    row = Symbol(f"%s{number}", 0, rows - 1)
    place: dict[Symbol, Dim] = {loop.variable: loop.start + run.expr() * rows + row.expr()}
    here: tuple[Dim, ...] = (row.expr(),)
    allocs: list[Statement] = []
    starts: list[Statement] = []
    adds: list[Statement] = []
    totals: list[Statement] = []
    for position, item in enumerate(steps.accumulators):
        (result,), (value,) = item.results, item.values
        buffer = Buffer(f"%r{number}.{position}", result.dtype, (rows,), "scratch")
        allocs.append(Alloc(buffer))
        starts.append(Store(buffer, here, Literal(COMBINERS[item.combiner].identity(result.dtype)[0], result.dtype)))
        adds.append(Store(buffer, here, value, combine=item.combiner))
        totals.append(Load(result, buffer, here))

    def each(statements: list[Statement]) -> Loop:
        return Loop("serial", row, 0, rows, tuple(substitute_statement(item, place) for item in statements))

    step = replace(steps, body=(each([*steps.body, *adds]),), accumulators=())
    return Loop("serial", run, 0, loop.extent // rows, (*allocs, each(starts), step, each([*totals, *rest])))


def _rows(loop: Loop, machine: Machine) -> int | None:
    """Choose the rows of one run; None if the loop is no strided reduction of rows, or if interchange does not pay."""
    steps, *rest = loop.body
    if loop.kind != "serial" or loop.accumulators or not isinstance(loop.extent, int) or not isinstance(steps, Loop):
        return None
    single = steps.accumulators and all(len(item.results) == 1 for item in steps.accumulators)
    inside = [item for item in steps.body if isinstance(item, Loop)]
    plain = all(isinstance(item, (Let, Load, Store)) for item in rest)
    if steps.kind != "serial" or not single or not plain or not any(item.kind == "vector" for item in inside):
        return None
    longest = 0
    stored = {item.buffer.name for item in rest if isinstance(item, Store)}
    for item in walk(steps.body):
        if not isinstance(item, (Let, Load, Loop)) or (isinstance(item, Load) and item.buffer.name in stored):
            return None
        if isinstance(item, Load):
            far, near = stride(item, steps.variable), stride(item, loop.variable)
            if far == 0:
                continue
            if not isinstance(far, int) or not isinstance(near, int) or near <= 0:
                return None
            if far * item.buffer.dtype.bytes < machine.page:  # hardware prefetchers stop at the end of a page
                return None
            longest = max(longest, near * item.buffer.dtype.bytes)
    most = min(COSTS.pages * machine.page // longest, loop.extent // COSTS.runs) if longest else 0
    return next((rows for rows in range(most, COSTS.rows - 1, -1) if loop.extent % rows == 0), None)
