"""Memory planning: temporaries share one arena by their lifetimes."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.proofs import ceil_divide
from ..ir.symbolic import Dim, product
from ..kernels.loop_ir import Buffer, Kernel

ALIGN = 64


@dataclass
class Plan:
    """Where each temporary lies in the arena, and how large the arena is (bytes)."""

    offsets: dict[str, Dim]
    size: Dim


def plan_memory(kernels: Sequence[Kernel], outside: Iterable[str]) -> Plan:
    """Offsets for all buffers that are not parameters or results.

    A buffer lives from the first kernel that touches it to the last. Largest first, each goes to the lowest
    place that no buffer alive at the same time occupies. Symbolic sizes cannot be compared: such a buffer takes
    over the place of a dead one of the same size, or goes to the end.
    """
    known = set(outside)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    buffers: dict[str, Buffer] = {}
    for time, kernel in enumerate(kernels):
        for buffer in kernel.buffers:
            if buffer.name not in known:
                first.setdefault(buffer.name, time)
                last[buffer.name] = time
                buffers.setdefault(buffer.name, buffer)
    sizes: dict[str, Dim] = {
        name: ceil_divide(product(buffer.shape) * buffer.dtype.bytes, ALIGN) * ALIGN for name, buffer in buffers.items()
    }
    static = {name: size for name, size in sizes.items() if isinstance(size, int)}
    offsets: dict[str, Dim] = {}
    placed: list[tuple[int, int, int, int]] = []  # in order: start, stop, and the first and last time of its life
    top = 0
    for name in sorted(static, key=lambda name: -static[name]):
        size, born, dies = static[name], first[name], last[name]
        start = 0
        for low, high, other_born, other_dies in placed:
            if other_born <= dies and born <= other_dies:
                if start + size <= low:
                    break
                if high > start:
                    start = high
        offsets[name] = start
        insort(placed, (start, start + size, born, dies))
        top = max(top, start + size)
    end: Dim = top
    reusable: list[tuple[Dim, Dim, str]] = []  # size, offset, current owner
    for name in sorted((name for name in buffers if name not in offsets), key=lambda name: first[name]):
        for position, (room, offset, owner) in enumerate(reusable):
            if room == sizes[name] and last[owner] < first[name]:
                reusable[position] = (room, offset, name)
                offsets[name] = offset
                break
        else:
            offsets[name] = end
            reusable.append((sizes[name], end, name))
            end = end + sizes[name]
    return Plan(offsets, end)
