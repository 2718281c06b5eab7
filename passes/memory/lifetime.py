"""Compute the live range of each buffer of a kernel; buffers with disjoint ranges share memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...kernels.loop.ir import Gemm, Loop, Pack, Statement
from ...kernels.loop.roles import allocates, children, roles_of, touches

Owner = str | int  # an owner of memory: a buffer (its name), or a GEMM that packs (the id() of its statement)
Span = tuple[int, int]  # live range: the first and the last time of use
Spans = dict[Owner, Span]


class Lifetimes:
    """The live ranges of the memory of statements that one thread runs in order. A time is the number of a statement
    that touches memory, in program order.

    Memory that a loop touches is live through all of the loop, unless the loop runs once or allocates the memory
    itself, as a new buffer in each iteration. Memory that a thread packs once is live through all its iterations.
    """

    def __init__(self, statements: Sequence[Statement]):
        self.length = 0  # number of times
        self._packed: set[Owner] = set()
        self.spans, self._made = self._sequence(statements)
        for owner in self._packed:
            self.spans[owner] = (0, self.length - 1)

    def _sequence(self, statements: Iterable[Statement]) -> tuple[Spans, set[Owner]]:
        """Return the live ranges, and the owners that are allocated in these statements."""
        spans: Spans = {}
        made: set[Owner] = set()
        for statement in statements:
            roles = roles_of(statement)
            if "body" in roles:
                begin = self.length
                inner, inner_made = self._sequence(children(statement))
                made |= inner_made
                again = not runs_once(statement)
                for owner, span in inner.items():
                    whole = again and owner not in inner_made
                    _extend(spans, owner, (begin, self.length - 1) if whole else span)
            elif "memory" in roles:
                if "allocates" in roles:
                    made.update([buffer.name for buffer in allocates(statement)])
                self._statement(statement, spans, made)
        return spans, made

    def _statement(self, statement: Statement, spans: Spans, made: set[Owner]) -> None:
        touched: list[Owner] = [buffer.name for buffer in touches(statement)]
        if isinstance(statement, Gemm):
            touched.append(id(statement))
            made.add(id(statement))
        elif isinstance(statement, Pack) and statement.once:
            self._packed.add(statement.output.buffer.name)
        if touched:
            for owner in touched:
                _extend(spans, owner, (self.length, self.length))
            self.length += 1


def runs_once(statement: Statement) -> bool:
    """Whether a statement is a loop that certainly runs its body at most once."""
    if not isinstance(statement, Loop) or statement.kind != "serial":
        return False
    return isinstance(statement.extent, int) and statement.extent <= 1


def _extend(spans: Spans, owner: Owner, span: Span) -> None:
    known = spans.get(owner, span)
    spans[owner] = min(known[0], span[0]), max(known[1], span[1])
