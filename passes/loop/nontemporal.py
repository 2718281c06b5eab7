"""Make stores of large results non-temporal, so that they bypass the caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...ir.proofs import substitute
from ...ir.symbolic import Dim, product
from ...kernels.loop.analysis import offset
from ...kernels.loop.ir import (
    Buffer,
    Concurrent,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Statement,
    Store,
    walk,
    with_body,
)
from ...kernels.loop.roles import reads
from ...kernels.loop.verify import stream_unit, streamable
from ...kernels.machine import DEFAULT, Machine
from ..registry import loop_pass
from .substitute import fresh_registers, renamed

LONG_LOOP = 8  # vectors of a loop, at least, from which an alignment prologue is peeled; not measured


@loop_pass("nontemporal")
def nontemporal(
    kernel: Kernel,
    *,
    machine: Machine = DEFAULT,
    least: int | None = None,
    together: int | None = None,
    replaced: tuple[str, ...] = (),
    shared: tuple[str, ...] = (),
) -> Kernel:
    """Make stores to large results non-temporal, in kernels whose buffers do not fit the caches.

        store %y[%i, %j], %3   ->   stream %y[%i, %j], %3

    A cached store first reads the line that it overwrites: a third of the traffic of a copy. Only whole vectors at
    multiples of a cache line can bypass the caches, and only of results that the kernel does not read. Where rows are
    not aligned, the elements before the first such multiple are peeled into a loop of their own.

    least: bytes of a result, at least; `machine.streamed` if not given
    together: bytes of all buffers of a kernel that the caches keep for the next reader; L3 if not given
    replaced: results in the memory of a parameter, whose lines are cached by then: a cached store reads nothing more
    shared: results whose lines other cores cache, too: a cached store waits for the invalidation of each line, so these
        results are stored past the caches from `machine.streamed_shared` bytes on
    """
    total: Dim = sum((product(buffer.shape) * buffer.dtype.bytes for buffer in kernel.buffers), start=0)
    least = machine.streamed if least is None else least
    fits = isinstance(total, int) and total < (machine.l3 if together is None else together)
    if fits and not shared:
        return kernel
    read = {buffer.name for item in walk(kernel.body) for buffer in reads(item)}
    fresh = fresh_registers(kernel)

    def large(buffer: Buffer) -> bool:
        size = product(buffer.shape)
        if not isinstance(size, int) or buffer.name in read:
            return False
        if buffer.name in shared:
            return size * buffer.dtype.bytes >= machine.streamed_shared
        return size * buffer.dtype.bytes >= least and not fits and buffer.name not in replaced

    def visit(statement: Statement) -> list[Statement]:
        if isinstance(statement, Concurrent):
            return [Concurrent(tuple(_streamed(inside(branch), large) for branch in statement.branches))]
        if not isinstance(statement, Loop):
            return [statement]
        loop = inside(statement)
        # If the loop were split, the proof that each element is read before it is replaced would fail.
        whole = any(isinstance(item, Store) and item.buffer.name in replaced for item in loop.body)
        return [_streamed(part, large) for part in ([loop] if whole else _aligned(loop, large, fresh))]

    def inside(loop: Loop) -> Loop:
        return with_body(loop, [new for item in loop.body for new in visit(item)])

    return replace(kernel, body=tuple(new for statement in kernel.body for new in visit(statement)))


def _streamed(loop: Loop, large: Callable[[Buffer], bool]) -> Loop:
    """Return the loop with its stores non-temporal where that is possible."""

    def change(item: Statement) -> Statement:
        wanted = isinstance(item, Store) and large(item.buffer)
        return replace(item, stream=True) if isinstance(item, Store) and wanted and streamable(item, loop) else item

    return with_body(loop, list(map(change, loop.body)))


def _aligned(loop: Loop, large: Callable[[Buffer], bool], fresh: Iterator[str]) -> list[Loop]:
    """Peel the iterations of a long vector loop before its stores are at multiples of a cache line."""
    stores = [item for item in loop.body if isinstance(item, Store) and large(item.buffer)]
    long = isinstance(loop.extent, int) and loop.extent >= LONG_LOOP * loop.width
    plain = all(isinstance(item, (Let, Load, Index, Store)) for item in loop.body)
    if loop.kind != "vector" or loop.accumulators or not stores or not long or not plain:
        return [loop]
    if any(streamable(store, loop) for store in stores):
        return [loop]
    first = stores[0].buffer
    place = substitute(offset(first, stores[0].index), {loop.variable: loop.start})
    before = -place % (stream_unit(first, loop.width) // first.dtype.bytes)
    rest = replace(loop, start=loop.start + before)
    if not all(streamable(store, rest) for store in stores):
        return [loop]
    return [replace(loop, stop=rest.start, body=renamed(loop.body, fresh)), rest]
