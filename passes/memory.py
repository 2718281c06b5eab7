"""Memory planning: temporaries share one arena by their lifetimes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from ..ir.symbolic import Dim, ceil_divide, product
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
    # Start and stop of the buffers alive at each time, and of those whose life begins then.
    alive: list[list[tuple[int, int]]] = [[] for _ in kernels]
    born: list[list[tuple[int, int]]] = [[] for _ in kernels]
    top = 0
    for name in sorted(static, key=lambda name: -static[name]):
        size, begin, stop = static[name], first[name], last[name] + 1
        start = 0
        # Who is alive at the same time was there at its beginning, or has come since.
        for low, high in sorted(chain(alive[begin], *born[begin + 1 : stop])):
            if start + size <= low:
                break
            start = max(start, high)
        offsets[name] = start
        born[begin].append((start, start + size))
        for time in range(begin, stop):
            alive[time].append((start, start + size))
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
