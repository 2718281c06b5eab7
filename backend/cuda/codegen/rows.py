"""Find the rows that the threads of a team read several times, whose elements they keep in registers.

Loops of the same length over a row give a thread the same elements. So scratch for a row needs no shared memory, and an
element loaded in one loop is reused in the others. Loops over such rows are unrolled, since registers have no index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.proofs import substitute
from ....ir.symbolic import Dim, Symbol, symbols_of
from ....kernels.gpu import GPU
from ....kernels.loop.analysis import offset, step
from ....kernels.loop.ir import Load, Loop, Statement, Store, walk
from ....kernels.loop.roles import allocates, blocks
from .uses import accesses

ELEMENT = Symbol("%element")  # index of an element of a row, in any loop


def private_rows(loop: Loop, lanes: int) -> set[str]:
    """Return the scratch of a team that fits in registers: each thread accesses only its own elements, and few of them.
    All accesses are in loops of the same length, indexed by their variables."""
    rows = {buffer.name: set[Any]() for item in walk(loop.body) for buffer in allocates(item)}
    for name in accesses([item for item in loop.body if not isinstance(item, Loop)])[0] & set(rows):
        rows[name].add(None)

    def look(statements: Sequence[Statement], shared: Loop | None, innermost: Loop | None) -> None:
        for item in statements:
            if isinstance(item, Loop):
                look(item.body, item if item.kind == "thread" else shared, item)
            elif isinstance(item, (Load, Store)) and item.buffer.name in rows:
                found: Any = None
                if shared is not None and innermost is not None and item.guard is None and shared.start == 0:
                    steps = 1 if innermost is shared else innermost.width
                    aligned = innermost is shared or innermost.start == shared.variable.expr() * steps
                    plain = isinstance(item, Load) or item.combine is None
                    if aligned and plain and offset(item.buffer, item.index) == innermost.variable.expr():
                        found = shared.extent, steps
                rows[item.buffer.name].add(found)
            else:
                for block in blocks(item):
                    rows.get(block.matrix.buffer.name, set()).add(None)

    look(loop.body, None, None)
    return {
        name for name, found in rows.items() if len(found) == 1 and None not in found and _few(next(iter(found)), lanes)
    }


def load_key(item: Load, shared: Loop, innermost: Loop) -> tuple[Any, ...] | None:
    """Make a key that is equal for loads of the same elements in different loops over a row; None for other loads."""
    if item.guard is not None or item.buffer.role != "in" or shared.start != 0:
        return None
    if innermost is not shared and innermost.start != shared.variable.expr() * innermost.width:
        return None
    place = offset(item.buffer, item.index)
    if step(place, innermost.variable) in (0, None):
        return None
    place = substitute(place, {innermost.variable: ELEMENT.expr()})
    if shared.variable in symbols_of(place):
        return None
    return item.buffer.name, place, shared.extent, innermost.width


def row_loads(loop: Loop, lanes: int) -> set[tuple[Any, ...]]:
    """Return the keys of row loads in a thread loop, if it is short enough to be unrolled."""
    found: set[tuple[Any, ...]] = set()
    for inner in [loop, *(item for item in loop.body if isinstance(item, Loop))]:
        if inner is loop or inner.kind == "vector":
            keys = [load_key(item, loop, inner) for item in inner.body if isinstance(item, Load)]
            found |= {key for key in keys if key is not None and _few((loop.extent, inner.width), lanes)}
    return found


def repeated_loads(loop: Loop, lanes: int) -> set[tuple[Any, ...]]:
    """Return the keys of row loads that occur in more than one of a team's loops."""
    written = accesses([loop])[1]
    counts: dict[tuple[Any, ...], int] = {}
    for item in loop.body:
        if isinstance(item, Loop) and item.kind == "thread":
            for key in row_loads(item, lanes):
                counts[key] = counts.get(key, 0) + 1
    return {key for key, count in counts.items() if count > 1 and key[0] not in written}


def _few(shape: tuple[Dim, int], lanes: int) -> bool:
    """Whether a thread's elements of a row fit in registers: so many iterations, of so many elements each."""
    extent, steps = shape
    return isinstance(extent, int) and extent % lanes == 0 and extent // lanes * steps <= GPU.private_row
