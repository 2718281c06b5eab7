"""Find results that can be stored in place of a parameter: in its memory, after its last read.

Kernels run one after the other, so a result may take the memory of a parameter that only earlier kernels read. The
kernel that writes the result may read the parameter itself, if it reads each element only in the iteration that
overwrites it, before the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...ir.symbolic import Dim
from ...kernels.loop.analysis import offset
from ...kernels.loop.ir import Kernel, Statement
from ...kernels.loop.roles import blocks, children, elements, roles_of

NEVER = -1


@dataclass
class Times:
    """The last reads of parameters and the first writes of results; a time is the number of a kernel."""

    reads: list[int]  # last read of each parameter, or NEVER
    writes: list[int]  # first write of each result, or NEVER
    # Numbers of a result and a parameter: one kernel reads and writes them element by element, the read first.
    same_place: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class _Access:
    """The reads or the writes of a buffer in a kernel; `alone` if all of them are of one element in one loop body."""

    body: int
    place: Dim
    first: int
    last: int
    alone: bool = True


def find_overwrites(kernels: Sequence[Kernel], params: Sequence[str], results: Sequence[str]) -> Times:
    found = Times([NEVER] * len(params), [NEVER] * len(results))
    numbers = {name: number for number, name in enumerate(params)}
    targets = {name: number for number, name in enumerate(results)}
    for time, kernel in enumerate(kernels):
        read = [buffer.name for buffer in kernel.buffers if buffer.name in numbers]
        written = [buffer.name for buffer in kernel.buffers if buffer.name in targets]
        for name in read:
            found.reads[numbers[name]] = time
        for name in written:
            if found.writes[targets[name]] == NEVER:
                found.writes[targets[name]] = time
        if not read or not written:
            continue
        loads, stores = _accesses(kernel)
        by_place: dict[tuple[int, Dim], list[str]] = {}
        for name in read:
            access = loads.get(name)
            if access is not None and access.alone:
                by_place.setdefault((access.body, access.place), []).append(name)
        for name in written:
            store = stores.get(name)
            if store is None or not store.alone:
                continue
            for other in by_place.get((store.body, store.place), ()):
                if loads[other].last < store.first:
                    found.same_place.append((targets[name], numbers[other]))
    return found


def _accesses(kernel: Kernel) -> tuple[dict[str, _Access], dict[str, _Access]]:
    """Collect the loads and the stores of each buffer; one that other statements touch is not alone."""
    loads: dict[str, _Access] = {}
    stores: dict[str, _Access] = {}
    for body, (number, statement) in _statements(kernel.body):
        for item in elements(statement):
            table = stores if item.writes else loads
            _note(table, item.buffer.name, body, offset(item.buffer, item.place), number)
            if item.reads and item.writes:
                stores[item.buffer.name].alone = False
        for block in blocks(statement):
            for table in (loads, stores):
                _note(table, block.matrix.buffer.name, body, 0, number)
                table[block.matrix.buffer.name].alone = False
    return loads, stores


def _note(table: dict[str, _Access], name: str, body: int, place: Dim, number: int) -> None:
    known = table.get(name)
    if known is None:
        table[name] = _Access(body, place, number, number)
        return
    known.last = number
    known.alone = known.alone and known.body == body and known.place == place


def _statements(statements: Sequence[Statement]) -> Iterator[tuple[int, tuple[int, Statement]]]:
    """Yield the statements that touch memory, each with the number of its body and its position there."""
    pending: list[tuple[int, Sequence[Statement]]] = [(0, statements)]
    bodies = 0
    while pending:
        body, items = pending.pop()
        for number, item in enumerate(items):
            roles = roles_of(item)
            if "memory" in roles:
                yield body, (number, item)
            if "body" in roles:
                bodies += 1
                pending.append((bodies, children(item)))
