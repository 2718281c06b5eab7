"""Prove that every element of every result is written, and elements of a kernel's own memory before they are read.

The writes of a loop are boxes (regions.py): one for each iteration, united over all of them where each begins at
the end of another. A read is covered where a box that was written before it has its element: by statements before
it in this iteration, by completed loops, or by earlier iterations of the serial loops around it. A store with a
guard, or at an index that data chose, counts as no write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ir.proofs import LIMITS
from ...ir.record import Record
from ...ir.symbolic import symbols_of
from .bounds import Visitor
from .facts import Facts, Variable
from .ir import Buffer, Kernel, Loop, Operand, Statement, walk
from .regions import (
    Access,
    Box,
    View,
    accesses,
    contains,
    covers,
    joined,
    known_buffer,
    merged,
    seen,
    united,
    views,
)
from .roles import allocates, elements, reads, writes


class Written(Record):
    """A box of a view that has been written, over the variables around the place where that is said."""

    view: View
    box: Box


State = dict[str, list[Written]]


class Gather(Visitor):
    """The accesses of a kernel, by buffer."""

    def __init__(self, kernel: Kernel, facts: Facts):
        super().__init__(kernel, lambda number, message: None, facts)
        self.found: dict[str, list[Access]] = {}

    def visit(self, statement: Statement) -> None:
        for access in (item for items in accesses(statement, self.facts) for item in items):
            self.found.setdefault(access.buffer.name, []).append(access)


class Coverage(Visitor):
    """Follows the writes of a kernel. `state` has the written boxes of each buffer, at the end those of the kernel."""

    def __init__(
        self, kernel: Kernel, fail: Callable[[int | None, str], None], facts: Facts, given: Collection[str] = ()
    ):
        super().__init__(kernel, fail, facts)
        self.state: State = {}
        self.buffers = {item.name: known_buffer(item, self.facts) for item in kernel.buffers}
        self.own = {item.name for item in kernel.buffers if item.role != "in"} - set(given)
        self.checking = True
        self.views: dict[str, list[View]] = {}
        gather = Gather(kernel, facts)
        gather.run()
        self.found = gather.found
        self.sorted: set[str] = set()  # buffers that data chose the places of, as counting sort does
        self.reads = 0  # reads that are covered
        self.unknown = 0  # reads of elements written at indices that data chose, which cannot be decided

    def visit(self, statement: Statement) -> None:
        for buffer in allocates(statement):
            self.buffers[buffer.name] = known_buffer(buffer, self.facts)
            self.own.add(buffer.name)
            self.state[buffer.name] = []
        reads, writes = accesses(statement, self.facts)
        guards = [item.guard for item in elements(statement) if item.guard is not None]
        for access in reads:
            if self.checking and access.buffer.name in self.own and not self.never_runs:
                self.read(access, guards)
        if guards or any(item.reads and item.writes for item in elements(statement)):
            return
        for access in writes:
            self.write(access)
            if any(
                not item.counts and item.symbol in symbols_of(access.flat) for item in access.facts.variables.values()
            ):
                self.sorted.add(access.buffer.name)

    def views_of(self, buffer: Buffer) -> list[View]:
        name = buffer.name
        if name not in self.views:
            self.views[name] = views(self.buffers[name], self.found.get(name, ()))
        return self.views[name]

    def read(self, access: Access, guards: Sequence[Operand]) -> None:
        for guard in guards:
            access = replace(access, facts=self.guarded(guard))
        self.reads += 1
        places = {view: seen(access, view) for view in self.views_of(access.buffer)}
        state = self.state.get(access.buffer.name, ())
        for item in state:
            place = places.get(item.view)
            if place is not None and contains(access.facts, item.box, place):
                return
        for view, place in places.items():
            boxes = [item.box for item in state if item.view == view]
            if (
                place is not None
                and len(boxes) > 1
                and covers(access.facts, boxes, tuple((at, at + 1) for at in place))
            ):
                return
        if access.buffer.name in self.sorted:
            self.reads -= 1
            self.unknown += 1
            return
        self.fail(f"{access.buffer.name} is read, and not all of what is read has been written")

    def write(self, access: Access) -> None:
        keep = len(self.facts.variables)
        for view in self.views_of(access.buffer):
            place = seen(access, view)
            if place is None:
                continue
            sizes = [size for _, size in view]
            box = united(access.facts, tuple((at, at + 1) for at in place), sizes, keep)
            if box is not None:
                self.state.setdefault(access.buffer.name, []).append(Written(view, box))

    def loop(self, loop: Loop) -> None:
        outer, before = self.facts, self.state
        earlier: State = {}
        if self.checking and loop.kind == "serial" and reads_what_it_writes(loop, self.own):
            number, self.checking = self.number, False
            made, inside = self.body(loop, {})
            self.number, self.checking = number, True
            earlier = self.earlier(made, inside, len(outer.variables))
        made, inside = self.body(loop, {name: [*items, *earlier.get(name, ())] for name, items in before.items()})
        self.facts = outer
        self.state = {name: list(items) for name, items in before.items()}
        for name, items in made.items():
            for item in together(inside, items):
                sizes = [size for _, size in item.view]
                box = united(inside, item.box, sizes, len(outer.variables))
                if box is not None:
                    self.state.setdefault(name, []).append(Written(item.view, box))

    def body(self, loop: Loop, state: State) -> tuple[State, Facts]:
        """Return the writes of the body of a loop, over its variable, and the facts at its end."""
        counts = {name: len(items) for name, items in state.items()}
        outer, self.state = self.facts, state
        super().loop(loop)
        made = {name: items[counts.get(name, 0) :] for name, items in self.state.items()}
        inside, self.facts = self.last, outer
        return made, inside

    def block(self, statements: Sequence[Statement]) -> None:
        super().block(statements)
        self.last = self.facts  # with the positions that the statements chose

    def earlier(self, made: Mapping[str, Sequence[Written]], inside: Facts, position: int) -> State:
        """Return the writes of earlier iterations of a serial loop."""
        found: State = {}
        variables = list(inside.variables.values())
        if len(variables) <= position:
            return found
        variable = variables[position]
        if "/" in variable.symbol.name:
            return found
        past = Variable(variable.symbol, variable.start, variable.symbol.expr())
        facts = inside.outside(position + 1)
        for name, items in made.items():
            for item in items:
                sizes = [size for _, size in item.view]
                box = united(inside, item.box, sizes, position + 1)
                box = None if box is None else joined(facts, facts.outside(position), past, box)
                if box is not None:
                    found.setdefault(name, []).append(Written(item.view, box))
        return found

    def is_whole(self, buffer: Buffer, written: Sequence[Written]) -> bool:
        """Whether all elements of a buffer are among some that are written."""
        if any(size == 0 for size in known_buffer(buffer, self.facts).shape):
            return True
        for view in dict.fromkeys(item.view for item in written):
            boxes = [item.box for item in written if item.view == view]
            if covers(self.facts, boxes, tuple((0, size) for _, size in view)):
                return True
        return False

    def count(self, proof: Any) -> None:
        proof.reads += self.reads
        proof.chosen += self.unknown


def together(facts: Facts, items: Sequence[Written]) -> list[Written]:
    """Merge adjacent boxes that one iteration writes, such as 2 * i and 2 * i + 1."""
    if len(items) < 2 or len(items) > LIMITS.boxes:
        return list(items)
    found: list[Written] = []
    for view in dict.fromkeys(item.view for item in items):
        found += [Written(view, box) for box in merged(facts, [item.box for item in items if item.view == view])]
    return list(dict.fromkeys([*found, *items]))


def reads_what_it_writes(loop: Loop, own: set[str]) -> bool:
    read, written, inner = (
        {buffer.name for item in walk(loop.body) for buffer in query(item)} for query in (reads, writes, allocates)
    )
    return bool(read & written & own - inner)
