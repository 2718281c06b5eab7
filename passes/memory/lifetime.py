"""From when to when a kernel needs each of its buffers: places in memory are shared by those that never meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...kernels.loop.ir import Gemm, Loop, Pack, Statement
from ...kernels.loop.roles import allocates, children, roles_of, touches

Owner = str | int  # of memory: a buffer, by its name, or a product, which packs, by the id() of its statement
Span = tuple[int, int]  # the first and the last time that it is in use
Spans = dict[Owner, Span]


class Lifetimes:
    """Statements that one thread runs in order. A time is a number of those that touch memory, counted as they stand.

    A loop comes back to its start, so what was there before it is needed until its end; not so what is allocated
    inside of it, which is another buffer in each iteration, and not if it runs but once. What a thread packs once
    stays there for all its iterations.
    """

    def __init__(self, statements: Sequence[Statement]):
        self.length = 0  # times
        self._packed: set[Owner] = set()
        self.spans, self._made = self._sequence(statements)
        for owner in self._packed:
            self.spans[owner] = (0, self.length - 1)

    def _sequence(self, statements: Iterable[Statement]) -> tuple[Spans, set[Owner]]:
        """The spans, and those who are allocated here."""
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
    """Whether it is no more than its body."""
    if not isinstance(statement, Loop) or statement.kind != "serial":
        return False
    return isinstance(statement.extent, int) and statement.extent <= 1


def _extend(spans: Spans, owner: Owner, span: Span) -> None:
    known = spans.get(owner, span)
    spans[owner] = min(known[0], span[0]), max(known[1], span[1])
