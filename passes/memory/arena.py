"""Place temporaries in one arena, where those with disjoint live ranges share memory."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

from ...ir.proofs import ceil_divide
from ...ir.symbolic import Dim, product
from ...kernels.loop.ir import Buffer, Kernel
from ...kernels.machine import CACHE_LINE
from .lifetime import Span

PARTS = 64
Name = TypeVar("Name", bound=Hashable)


@dataclass
class Plan(Generic[Name]):
    """The offset of each temporary in the arena, and the size of the arena, in bytes."""

    offsets: dict[Name, Dim]
    size: Dim


def plan_memory(kernels: Sequence[Kernel], outside: Iterable[str]) -> Plan[str]:
    """Place all buffers but parameters and results (`outside`): each is live from the first kernel that touches it to
    the last."""
    known = set(outside)
    sizes: dict[str, Dim] = {}
    spans: dict[str, Span] = {}
    for time, kernel in enumerate(kernels):
        for buffer in kernel.buffers:
            if buffer.name not in known:
                sizes.setdefault(buffer.name, buffer_bytes(buffer))
                spans[buffer.name] = spans.get(buffer.name, (time, time))[0], time
    return place(sizes, spans)


def buffer_bytes(buffer: Buffer) -> Dim:
    return product(buffer.shape) * buffer.dtype.bytes


def place(sizes: Mapping[Name, Dim], spans: Mapping[Name, Span]) -> Plan[Name]:
    """Assign offsets to blocks of memory, given their sizes in bytes and live ranges.

    Symbolic sizes cannot be compared: such a block takes the place of a dead one of the same size, or goes to the end.
    """
    rounded: dict[Name, Dim] = {name: ceil_divide(size, CACHE_LINE) * CACHE_LINE for name, size in sizes.items()}
    static = {name: size for name, size in rounded.items() if isinstance(size, int)}
    offsets: dict[Name, Dim] = {}
    found, top = largest_first(static, spans)
    if top > needed_at_once(static, spans):
        # Blocks of nearly equal sizes reuse places better if their sizes are made equal.
        other, other_top = largest_first(alike(static), spans)
        if other_top < top:
            found, top = other, other_top
    offsets.update(found)
    end: Dim = top
    reusable: list[tuple[Dim, Dim, Name]] = []  # size, offset, current owner
    for name in sorted((name for name in rounded if name not in offsets), key=lambda name: spans[name][0]):
        for position, (room, offset, owner) in enumerate(reusable):
            if room == rounded[name] and spans[owner][1] < spans[name][0]:
                reusable[position] = (room, offset, name)
                offsets[name] = offset
                break
        else:
            offsets[name] = end
            reusable.append((rounded[name], end, name))
            end = end + rounded[name]
    return Plan(offsets, end)


def largest_first(sizes: Mapping[Name, int], spans: Mapping[Name, Span]) -> tuple[dict[Name, int], int]:
    """Place blocks, largest first, at the lowest offset that no block live at the same time occupies. Return offsets
    and the end of the last block."""
    offsets: dict[Name, int] = {}
    taken = Taken(max((spans[name][1] for name in sizes), default=0))
    top = 0
    # Blocks of equal size go in order of time: a chain of values takes turns in two places.
    for name in sorted(sizes, key=lambda name: (-sizes[name], spans[name][0])):
        size = sizes[name]
        born, dies = spans[name]
        start = 0
        for low, high, other_born, other_dies in taken.around(born, dies):
            if other_born <= dies and born <= other_dies:
                if start + size <= low:
                    break
                if high > start:
                    start = high
        offsets[name] = start
        taken.add((start, start + size, born, dies))
        top = max(top, start + size)
    return offsets, top


class Taken:
    """Occupied places: start, stop, first and last time of use. Most live ranges are short, so they are indexed by
    parts of the program."""

    def __init__(self, last: int):
        self.length = last // PARTS + 1  # times in a part
        self.parts: list[list[tuple[int, int, int, int]]] = [[] for _ in range(PARTS + 1)]
        self.all: list[tuple[int, int, int, int]] = []

    def add(self, found: tuple[int, int, int, int]) -> None:
        insort(self.all, found)
        for part in range(found[2] // self.length, found[3] // self.length + 1):
            insort(self.parts[part], found)

    def around(self, first: int, last: int) -> Sequence[tuple[int, int, int, int]]:
        """Return the places live in an interval, sorted, among some others and some twice."""
        one, other = first // self.length, last // self.length
        if one == other:
            return self.parts[one]
        return sorted(self.parts[one] + self.parts[other]) if other == one + 1 else self.all


def needed_at_once(sizes: Mapping[Name, int], spans: Mapping[Name, Span]) -> int:
    """Return the most bytes that are live at any time: no plan needs less."""
    changes = [change for name, size in sizes.items() for change in _changes(size, spans[name])]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def _changes(size: int, span: Span) -> tuple[tuple[int, int], tuple[int, int]]:
    return (span[0], size), (span[1] + 1, -size)


def alike(sizes: Mapping[Name, int]) -> dict[Name, int]:
    """Round sizes that differ by less than a fifth up to the largest of them."""
    classes = {name: math.floor(4 * math.log2(size)) if size else -1 for name, size in sizes.items()}
    largest: dict[int, int] = {}
    for name, size in sizes.items():
        largest[classes[name]] = max(largest.get(classes[name], 0), size)
    return {name: largest[classes[name]] for name in sizes}
