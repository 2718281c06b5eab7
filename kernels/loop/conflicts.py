"""Prove that lanes, threads and blocks do not race: no unordered accesses to one element, one of them a write.

Iterations of `parallel`, `vector`, `grid`, `block`, `warp` and `thread` loops run in no order, and so do branches of
Concurrent. For each write of such a loop and each access to the same buffer, the elements are proved to differ for any
two iterations: in some dim of some view (regions.py), the one index is always less than the other. Barriers order the
statements of a team of threads, as they order the launches of a kernel.

The loop that allocates scratch decides which threads share it. Scratch of an iteration of a `parallel`, `grid` or
`thread` loop is private to a thread. Scratch of an iteration of a `block` or `warp` loop is shared by the team:
iterations of the `thread` loops inside must not race there.

A value loaded before a loop is stale inside of it if the loop writes its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.proofs import substitute
from ...ir.record import Record
from ...ir.symbolic import Dim, Symbol, symbols_of
from .bounds import Visitor
from .facts import Facts, Variable
from .ir import Concurrent, Kernel, Loop, Pack, Register, Statement, used
from .regions import Access, accesses, known_buffer, seen, views
from .roles import allocates, defines

APART = ("parallel", "vector", "grid", "block", "warp", "thread")  # kinds of loops whose iterations have no order


class Touch(Record):
    """An access with the statement it is of, and whether it writes."""

    access: Access
    writes: bool
    number: int
    branch: int | None


class Conflicts(Visitor):
    """Proves that unordered iterations do not race."""

    def __init__(self, kernel: Kernel, fail: Callable[[int | None, str], None], facts: Facts):
        super().__init__(kernel, fail, facts)
        self.buffers = {item.name: item for item in kernel.buffers}
        self.touches: list[list[Touch]] = [[]]  # accesses of each of the loops around
        self.private: list[set[str]] = [set()]  # buffers allocated in each of them
        self.branch: int | None = None
        self.depends: dict[str, dict[str, list[Touch]]] = {}  # registers and positions: loads that they come from
        self.used: list[set[str]] = [set()]  # registers that the loops around use
        self.pairs = 0  # pairs of accesses that were proved disjoint

    def visit(self, statement: Statement) -> None:
        for buffer in allocates(statement):
            self.buffers[buffer.name] = buffer
            self.private[-1].add(buffer.name)
        if isinstance(statement, Pack) and statement.once:
            return  # before the loop, and into each thread's own
        reads, writes = accesses(statement, self.facts)
        found = [Touch(item, False, self.number, self.branch) for item in reads]
        found += [Touch(item, True, self.number, self.branch) for item in writes]
        self.touches[-1] += found
        self.note(statement, found)

    def count(self, proof: Any) -> None:
        proof.pairs += self.pairs

    # Loads before loops

    def note(self, statement: Statement, found: Sequence[Touch]) -> None:
        """Record the loads that registers depend on, and the registers that are used."""
        wanted = set(used(statement))
        for item in found:
            wanted |= {symbol.name for symbol in symbols_of(item.access.flat)}
        self.used[-1] |= wanted
        sources: dict[str, list[Touch]] = {}
        for item in found:
            if not item.writes and item.access.buffer.role != "in":
                sources.setdefault(item.access.buffer.name, []).append(item)
        for name in () if found else wanted:
            for buffer, items in self.depends.get(name, {}).items():
                sources.setdefault(buffer, []).extend(items)
        for register in defines(statement):
            self.depends[register.name] = sources

    def stale(self, loop: Loop, inner: Sequence[Touch], used: set[str]) -> None:
        """Fail on loads before a loop that uses them and writes the memory that they read."""
        written = {item.access.buffer.name for item in inner if item.writes}
        for name in sorted(used):
            for buffer, loads in self.depends.get(name, {}).items():
                if buffer not in written:
                    continue
                for load in loads:
                    if load.number >= self.start:
                        continue
                    for item in inner:
                        if item.writes and item.access.buffer.name == buffer and not self.differ(load, item, ()):
                            self.number = load.number
                            around = f"a loop over {loop.variable.name}"
                            self.fail(f"{buffer} is loaded before {around} that writes it, and used there as {name}")

    # Loops

    def loop(self, loop: Loop) -> None:
        start, outer = self.number, len(self.facts.variables)
        self.touches.append([])
        self.private.append(set())
        self.used.append(set())
        super().loop(loop)
        inner, private, used = self.touches.pop(), self.private.pop(), self.used.pop()
        end, self.number, self.start = self.number, start, start
        for item in loop.accumulators:
            used |= {value.name for value in item.values if isinstance(value, Register)}
        if not self.never_runs:
            self.stale(loop, inner, used)
            if loop.kind in APART and not (isinstance(loop.extent, int) and loop.extent <= 1):
                self.apart(loop, [item for item in inner if item.access.buffer.name not in private], outer)
        self.number = end
        self.touches[-1] += [item for item in inner if item.access.buffer.name not in private]
        self.used[-1] |= used

    def apart(self, loop: Loop, inner: Sequence[Touch], outer: int) -> None:
        """Prove that no two iterations of a loop race."""
        for one in (item for item in inner if item.writes):
            for other in inner:
                if other.access.buffer.name != one.access.buffer.name:
                    continue
                name = loop.variable.name
                digits = [
                    item.symbol
                    for item in one.access.facts.variables.values()
                    if item.symbol.name == name or item.symbol.name.startswith(f"{name}/")
                ]
                if not digits:
                    continue  # one iteration
                self.pairs += 1
                for position in range(len(digits)):
                    if not self.differ(one, other, digits[: position + 1]) or (
                        one is not other and not self.differ(other, one, digits[: position + 1])
                    ):
                        self.number = one.number
                        what = "written" if other.writes else "read"
                        self.fail(
                            f"{one.access.buffer.name} is written by one iteration of {loop.kind} {name} "
                            f"and {what} by another, at places that may be the same"
                        )
                        break

    def statement(self, statement: Statement) -> None:
        if not isinstance(statement, Concurrent):
            super().statement(statement)
            return
        self.number += 1
        start = len(self.touches[-1])
        for number, branch in enumerate(statement.branches):
            self.branch = number
            super().statement(branch)
        self.branch = None
        inner, end = self.touches[-1][start:], self.number
        for one in (item for item in inner if item.writes):
            for other in inner:
                if other.branch == one.branch or other.access.buffer.name != one.access.buffer.name:
                    continue
                self.pairs += 1
                if not self.differ(one, other, ()):
                    self.number = one.number
                    if other.writes:
                        self.fail(f"two branches write {one.access.buffer.name}")
                    else:
                        self.fail(f"one branch writes {one.access.buffer.name}, another reads it")
        self.number = end

    def differ(self, one: Touch, other: Touch, digits: Sequence[Symbol]) -> bool:
        """Whether two accesses never touch one place: in iterations of which the last of the digits is greater for the
        second, and those before it are the same; without digits in any that the two are not in together."""
        left, right = one.access, other.access
        facts, mapping = beside(left.facts, right.facts, digits)
        if facts is None:
            return True
        buffer = known_buffer(self.buffers[left.buffer.name], left.facts)
        for view in views(buffer, (left, right)):
            one_place, other_place = seen(left, view), seen(right, view)
            if one_place is None or other_place is None:
                continue
            for mine, its in zip(one_place, other_place, strict=True):
                gap = mine - substitute(its, mapping)
                if facts.at_least_zero(gap - 1) or facts.at_least_zero(-gap - 1):
                    return True
        return False


def beside(one: Facts, other: Facts, digits: Sequence[Symbol]) -> tuple[Facts | None, dict[Symbol, Dim]]:
    """Combine the facts of two accesses, with fresh names for the variables of the second that differ; return the facts
    and the names. None in place of facts if there are no two such iterations."""
    first, second = list(one.variables.values()), list(other.variables.values())
    split = len(first)
    if digits:
        split = next(number for number, item in enumerate(first) if item.symbol == digits[-1])
    else:
        split = next(
            (number for number, pair in enumerate(zip(first, second)) if pair[0].symbol != pair[1].symbol),
            min(len(first), len(second)),
        )
    mapping: dict[Symbol, Dim] = {}
    added: list[Variable] = []
    for item in second[split:]:
        start, stop = substitute(item.start, mapping), substitute(item.stop, mapping)
        if digits and item.symbol == digits[-1]:
            ahead = Symbol(f"{item.symbol.name}'", 1, stop - 1 - item.start)
            added.append(Variable(ahead, 1, stop - item.symbol.expr()))
            mapping[item.symbol] = item.symbol.expr() + ahead.expr()
            continue
        symbol = Symbol(f"{item.symbol.name}'", item.symbol.lower, stop - 1)
        added.append(Variable(symbol, start, stop, item.counts))
        mapping[item.symbol] = symbol.expr()
    facts = [substitute(item, mapping) for item in other.facts]
    return one.beside([*first, *added], facts), mapping
