"""Prove that every access of a kernel is in bounds: from shapes and loops, or from a guard or a check around it.

An index that is not proved is an error: nothing else keeps a kernel from the memory of others. The comparisons of a
guard (`Index` against `Index`, joined by `logical_and`) hold where the guarded access happens, and the position of a
`Check` is in the range that it checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

from ...ir.proofs import ceil_divide, floor_divide, maximum, non_negative
from ...ir.symbolic import Dim, product, symbols_of
from ...ir.types import bool_
from .facts import Facts, radices
from .ir import Check, Index, Kernel, Let, Literal, Loop, Matrix, Operand, Register, Statement
from .roles import Element, all_expressions, blocks, children, chosen, defines, elements, positions

NEVER = Literal(False, bool_)
COMPARED: dict[str, Callable[[Dim, Dim], tuple[Dim, ...]]] = {
    "ge": lambda left, right: (left - right,),
    "gt": lambda left, right: (left - right - 1,),
    "le": lambda left, right: (right - left,),
    "lt": lambda left, right: (right - left - 1,),
    "eq": lambda left, right: (left - right, right - left),
}


@dataclass
class Account:
    """Counts of the accesses that are proved in bounds, by kind of proof."""

    proved: int = 0  # shapes and loops alone
    guarded: int = 0
    checked: int = 0  # data chose the index, and a Check looked at it
    unproved: int = 0

    def __iadd__(self, other: Account) -> Account:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self


class Visitor:
    """Walks a kernel, with the facts that hold at each statement."""

    def __init__(self, kernel: Kernel, fail: Callable[[int | None, str], None], facts: Facts | None = None):
        self.kernel = kernel
        sizes = (size for item in kernel.buffers if item.role != "temp" for size in item.shape)
        self.facts = Facts(sizes) if facts is None else facts
        self.loops: list[Loop] = []
        self.made: dict[str, Statement] = {}  # definitions of registers
        self.number = -1  # number of the statement, outer before inner
        self._fail = fail

    def fail(self, message: str) -> None:
        self._fail(self.number, message)

    def run(self) -> None:
        self.block(self.kernel.body)

    def block(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        self.number += 1
        if isinstance(statement, Loop):
            self.loop(statement)
        elif children(statement):
            self.block(children(statement))
        else:
            self.visit(statement)
            for register in defines(statement):
                self.made[register.name] = statement
            for position in positions(statement):
                upper = statement.symbol.upper  # type: ignore[attr-defined]
                # Out of range counts as place 0, and the call fails.
                self.facts = self.facts.inside(position.name, 0, maximum(upper + 1, 1), (), False)

    def loop(self, loop: Loop) -> None:
        before = self.facts
        self.facts = before.inside(
            loop.variable.name, loop.start, loop.stop, radices(loop.variable, all_expressions(loop.body))
        )
        self.loops.append(loop)
        self.block(loop.body)
        self.loops.pop()
        self.facts = before

    def visit(self, statement: Statement) -> None:
        """Visit a statement that is no loop."""

    @property
    def never_runs(self) -> bool:
        """Whether a loop around this place has no iterations."""
        return any(non_negative(-loop.extent) for loop in self.loops)

    def guarded(self, guard: Operand | None) -> Facts:
        """Return the facts that hold where a guard does."""
        return self.facts if guard is None else self.facts.when(*self.compared(guard))

    def compared(self, guard: Operand) -> Iterator[Dim]:
        """Yield expressions that are at least zero where a guard holds."""
        found = self.made.get(guard.name) if isinstance(guard, Register) else None
        if isinstance(found, Check):
            yield found.size - 1
            value = self.expression(found.value)
            if value is not None and not found.wrap:
                yield from (value, found.size - 1 - value)
        elif isinstance(found, Let) and found.op in ("logical_and", "bitwise_and"):
            for operand in found.operands:
                yield from self.compared(operand)
        elif isinstance(found, Let) and found.op in COMPARED:
            left, right = map(self.expression, found.operands)
            if left is not None and right is not None:
                yield from COMPARED[found.op](left, right)

    def expression(self, operand: Operand) -> Dim | None:
        """Return the index expression that an operand is, or None."""
        if isinstance(operand, Literal):
            return operand.value if isinstance(operand.value, int) else None
        found = self.made.get(operand.name)
        if isinstance(found, Index):
            return found.expression
        return self.facts.values.get(operand.name)


class Bounds(Visitor):
    """Proves that accesses are in range."""

    def __init__(self, kernel: Kernel, fail: Callable[[int | None, str], None]):
        super().__init__(kernel, fail)
        self.account = Account()
        self.chosen: set[str] = set()  # positions that data chose

    def visit(self, statement: Statement) -> None:
        if chosen(statement):
            self.chosen |= {position.name for position in positions(statement)}
        for element in elements(statement):
            self.access(element)
        found = blocks(statement)
        sizes = {size for block in found for size in (block.rows, block.columns)}
        if any(non_negative(-size) for size in sizes):
            return
        for block in found:
            self.matrix(block.matrix, block.rows, block.columns)

    def access(self, element: Element) -> None:
        if self.never_runs or element.guard == NEVER:
            return
        facts, buffer = self.facts, element.buffer
        places = list(zip(element.place, buffer.shape, strict=True))
        if all(facts.within(place, size) for place, size in places):
            chosen = any(symbol.name in self.chosen for place in element.place for symbol in symbols_of(place))
            self.account.checked += chosen
            self.account.proved += not chosen
            return
        if element.guard is not None:
            facts = self.guarded(element.guard)
            if all(facts.within(place, size) for place, size in places):
                self.account.guarded += 1
                return
        for dim, (place, size) in enumerate(places):
            self.explain(facts, f"dim {dim} of {buffer.name}", place, size)
        self.account.unproved += 1

    def explain(self, facts: Facts, what: str, place: Dim, size: Dim) -> None:
        """Fail with a message about an index that is not proved in bounds."""
        if not facts.at_least_zero(size - 1 - place):
            high = facts.reaches(place, True)
            how = "is not known to end before" if high is None else f"goes up to {high}"
            self.fail(f"{what} has size {size}, the index {how}" + (f" it: {place}" if high is None else ""))
        if not facts.at_least_zero(place):
            low = facts.reaches(place, False)
            how = f"may be negative: {place}" if low is None else f"goes down to {low}"
            self.fail(f"{what} has size {size}, the index {how}")

    def matrix(self, matrix: Matrix, rows: Dim, columns: Dim) -> None:
        if self.never_runs:
            return
        # A matrix of no rows touches nothing, wherever its last row would be.
        facts = self.facts.when(rows - 1, columns - 1)
        size = product(matrix.buffer.shape)
        first, last = matrix_ends(facts, matrix, rows, columns)
        if facts.at_least_zero(first) and facts.at_least_zero(size - 1 - last):
            self.account.proved += 1
            return
        for place in (first, last):
            self.explain(facts, f"dim 0 of {matrix.buffer.name}", place, size)
        self.account.unproved += 1


def matrix_ends(facts: Facts, matrix: Matrix, rows: Dim, columns: Dim) -> tuple[Dim, Dim]:
    """Return the first and the last linear index of a matrix that has an element."""
    first = last = matrix.offset
    if not matrix.panel:
        for stride, count in ((matrix.row_stride, rows), (matrix.column_stride, columns)):
            if facts.at_least_zero(stride):
                last = last + (count - 1) * stride
            else:
                first = first + (count - 1) * stride
        return first, last
    together = 2 if matrix.buffer.dtype.bytes == 2 else 1
    last = last + (ceil_divide(rows, together) * together - together) * matrix.row_stride
    last = last + floor_divide(columns - 1, matrix.panel) * matrix.column_stride
    return first, last + together * matrix.panel - 1
