"""Scratch memory: what a region allocates, and what its products pack, each in a place that it has while it needs it.

Threads have memory of their own for the regions that they share. What the caller runs alone needs one such place only:
in its own, if that is there anyway, else in the arena, among the temporaries that live at the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....ir.proofs import limit, maximum, non_negative
from ....ir.symbolic import Dim
from ....kernels.gemm import RegisterTile, is_dots
from ....kernels.loop.ir import Gemm, Kernel, Let, Statement, walk
from ....kernels.loop.roles import allocates
from ....kernels.machine import Machine
from ....passes.memory.arena import Plan, buffer_bytes, place
from ....passes.memory.lifetime import Lifetimes, Owner, Span


def scratch_sizes(statements: Sequence[Statement], machine: Machine) -> dict[Owner, Dim]:
    """The bytes that each owner needs, in the order of the statements."""
    sizes: dict[Owner, Dim] = {}
    for statement in walk(statements):
        if isinstance(statement, Let):
            continue  # most are
        for buffer in allocates(statement):
            # Loops beside each other may use the same name, for buffers of different sizes.
            sizes[buffer.name] = maximum(sizes.get(buffer.name, 0), buffer_bytes(buffer))
        if isinstance(statement, Gemm) and not is_dots(statement):
            sizes[id(statement)] = packed_bytes(statement, machine)
    return sizes


def packed_bytes(statement: Gemm, machine: Machine) -> int:
    """Memory for what a product packs itself: gemm.py has the routines."""
    tile = RegisterTile(statement.left.buffer.dtype.name, machine)
    rows = limit(statement.rows, True)
    return tile.scratch_bytes(rows, statement.depth, not statement.left.panel, not statement.right.panel)


def most(sizes: Iterable[Dim]) -> Dim:
    """The largest of some sizes; nothing if there are none."""
    found: Dim = 0
    for size in sizes:
        found = maximum(found, size)
    return found


def plan_scratch(statements: Sequence[Statement], machine: Machine) -> Plan[Owner]:
    """The places of a region's scratch in a thread's memory."""
    sizes = scratch_sizes(statements, machine)
    spans = Lifetimes(statements).spans if len(sizes) > 1 else {}
    # What is allocated and never used has no time.
    return place(sizes, {owner: spans.get(owner, (0, 0)) for owner in sizes})


@dataclass(frozen=True)
class Use:
    """The memory that a kernel needs, and when: the same for all kernels that are the same code."""

    length: int  # of the kernel, in times
    buffers: tuple[Span, ...]  # when each of its buffers is in use
    alone: tuple[tuple[int, Span], ...]  # bytes of scratch of what the caller runs alone, and when
    offsets: tuple[Dim, ...]  # of that, if it has a place apart
    room: Dim  # which is so long


Place = str | tuple[int, int]  # a buffer; or a kernel, and which of the scratch that its caller needs alone


def kernel_use(kernel: Kernel, alone: Mapping[Owner, int]) -> Use:
    if len(kernel.body) == 1 and not alone:
        # One loop, and all that it touches is needed to its end.
        return Use(1, ((0, 0),) * len(kernel.buffers), (), (), 0)
    lives = Lifetimes(kernel.body)
    length = max(lives.length, 1)
    whole = (0, length - 1)  # of what is passed, and not used
    spans = {owner: lives.spans.get(owner, whole) for owner in alone}
    apart = place(alone, spans)
    return Use(
        length,
        tuple(lives.spans.get(buffer.name, whole) for buffer in kernel.buffers),
        tuple((size, spans[owner]) for owner, size in alone.items()),
        tuple(apart.offsets[owner] for owner in alone),
        apart.size,
    )


@dataclass(frozen=True)
class Arena:
    """Where temporaries lie, and the scratch of what the caller runs alone."""

    offsets: Mapping[Place, Dim]
    size: Dim
    unshared: Mapping[Place, Dim]  # scratch that lies in the caller's own instead: its offset there


def plan_arena(kernels: Sequence[Kernel], uses: Sequence[Use], outside: Iterable[str], own: Dim) -> Arena:
    """Offsets for all buffers that are not parameters or results, and for scratch. Of that each thread has so many
    bytes of its own, for what they share: the caller's are free when it is alone."""
    known = set(outside)
    sizes: dict[Place, Dim] = {}
    spans: dict[Place, Span] = {}
    unshared: dict[Place, Dim] = {}
    now = 0
    for number, (kernel, use) in enumerate(zip(kernels, uses, strict=True)):
        for buffer, (first, last) in zip(kernel.buffers, use.buffers, strict=True):
            if buffer.name not in known:
                sizes.setdefault(buffer.name, buffer_bytes(buffer))
                spans[buffer.name] = spans.get(buffer.name, (now + first, 0))[0], now + last
        for position, (size, (first, last)) in enumerate(use.alone):
            if non_negative(own - use.room):
                unshared[number, position] = use.offsets[position]
            else:
                sizes[number, position] = size
                spans[number, position] = now + first, now + last
        now += use.length
    plan = place(sizes, spans)
    return Arena(plan.offsets, plan.size, unshared)
