"""Which stores bypass the caches."""

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

LONG_LOOP = 8  # vectors of a loop, at least, that is worth a part for the elements before the first line; not measured


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
    """Stores to results of at least so many bytes go straight to memory, in kernels whose arrays the caches (L3) would
    not keep `together`: whoever reads a smaller result soon finds it there.

        store %y[%i, %j], %3   ->   stream %y[%i, %j], %3

    A cached store first reads the line that it is about to overwrite: a third of the traffic of a copy. Only whole
    vectors at multiples of a cache line can go this way, and a kernel must not read them again. Where rows start
    anywhere, the elements before the first such multiple get a loop of their own.

    What is `replaced` takes the memory of a parameter, whose lines are in the cache by then: nothing is read for it.
    But a line of `shared` memory is in the caches of other processors, too. To write it there they all have to give it
    up first, one line after the other; around the caches that is many times faster, however little there is of it.
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
        # Of a loop in two, nobody could tell that each element is read before it is replaced.
        whole = any(isinstance(item, Store) and item.buffer.name in replaced for item in loop.body)
        return [_streamed(part, large) for part in ([loop] if whole else _aligned(loop, large, fresh))]

    def inside(loop: Loop) -> Loop:
        return with_body(loop, [new for item in loop.body for new in visit(item)])

    return replace(kernel, body=tuple(new for statement in kernel.body for new in visit(statement)))


def _streamed(loop: Loop, large: Callable[[Buffer], bool]) -> Loop:
    """The loop with its stores streaming, as far as they can."""

    def change(item: Statement) -> Statement:
        wanted = isinstance(item, Store) and large(item.buffer)
        return replace(item, stream=True) if isinstance(item, Store) and wanted and streamable(item, loop) else item

    return with_body(loop, list(map(change, loop.body)))


def _aligned(loop: Loop, large: Callable[[Buffer], bool], fresh: Iterator[str]) -> list[Loop]:
    """A long vector loop in two: up to where its stores are at multiples of a cache line, and from there."""
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
