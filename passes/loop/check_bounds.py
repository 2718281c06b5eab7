"""Check every index of a kernel against its buffer before the access, at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ir.graph import Location
from ...ir.proofs import ceil_divide, floor_divide, maximum, non_negative
from ...ir.symbolic import Dim, Symbol, product
from ...ir.types import bool_, i64
from ...kernels.loop.ir import (
    Check,
    Index,
    Kernel,
    Let,
    Literal,
    Loop,
    Matrix,
    Operand,
    Pack,
    Register,
    Site,
    Statement,
    Store,
)
from ...kernels.loop.roles import Block, Rewrite, blocks, children, elements, origins
from ..registry import loop_pass


@loop_pass("check_bounds")
def check_bounds(kernel: Kernel) -> Kernel:
    """Check the indices of loads and stores, and the ends of matrices, against the extents of their buffers.

        %0 = load %x[%i + 1]      ->      %bound0 = index(%i + 1)
                                          %bound1, %bound2 = check %bound0 in 0..N site 0
                                          %0 = load %x[%i + 1] if %bound2

    An index out of range is reported, with the kernel, the buffer and the user's line, and the access is skipped.
    """
    return _Checker(kernel).run()


class _Checker:
    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.sites = list(kernel.sites)
        self.count = 0
        self.lines: list[Statement] = []

    def run(self) -> Kernel:
        body = tuple(self.body(self.kernel.body))
        return replace(self.kernel, body=body, sites=tuple(self.sites))

    def body(self, statements: Sequence[Statement]) -> list[Statement]:
        return [line for item in statements for line in self.statement(item)]

    def statement(self, statement: Statement) -> list[Statement]:
        """Return the statements that replace one: its checks, and the statement with a guard."""
        if children(statement):
            return [Rewrite(body=self.body)(statement)]
        self.lines = []
        if elements(statement):
            guard = self.element(statement)
            touching: Any = statement  # has a guard
            changed = replace(touching, guard=guard)
            if isinstance(changed, Store) and guard is not None:
                changed = replace(changed, stream=False)
            return [*self.lines, changed]
        found = sorted(blocks(statement), key=lambda block: block.writes)
        if found:
            plain = replace(statement, once=False) if isinstance(statement, Pack) else statement
            return self.matrices(plain, found)
        return [statement]

    def new(self, dtype: object = i64) -> Register:
        self.count += 1
        return Register(f"%bound{self.count - 1}", dtype)  # type: ignore[arg-type]

    def let(self, op: str, dtype: object, *operands: Operand) -> Operand:
        result = self.new(dtype)
        self.lines.append(Let(result, op, operands))
        return result

    def check(self, place: Dim, size: Dim, guard: Operand | None, name: str, origin: Location | None) -> Operand:
        """Add a check of an index, reported only where the guard holds; return the register with its result."""
        value: Operand = Literal(place, i64) if isinstance(place, int) else self.new()
        if isinstance(value, Register):
            self.lines.append(Index(value, place))
        least = size
        if guard is not None:
            least = maximum(size, 1)  # the buffer may be empty where the guard is false
            outside = Literal(0, i64) if non_negative(size - 1) else Literal(-1, i64)
            if outside.value:
                empty = self.new()
                self.lines.append(Index(empty, size))
                none = self.let("eq", bool_, empty, Literal(0, i64))
                value = self.let("where", i64, none, outside, value)
            value = self.let("where", i64, guard, value, Literal(0, i64))
        site = Site(f"@{self.kernel.name}, {name}", origin)
        if site not in self.sites:
            self.sites.append(site)
        position, good = self.new(), self.new(bool_)
        self.lines.append(Check(position, good, value, least, False, self.sites.index(site)))
        return good

    def element(self, statement: Statement) -> Operand | None:
        """Check the elements that a statement touches; return the guard that holds where all are in range."""
        guard, origin = elements(statement)[0].guard, next(iter(origins(statement)), None)
        for buffer, index, given, _, is_written in elements(statement):
            name = f"{'store to' if is_written else 'load of'} {buffer.name}"
            for place, size in zip(index, buffer.shape, strict=True):
                if isinstance(place, int) and isinstance(size, int) and 0 <= place < size:
                    continue
                good = self.check(place, size, given, name, origin)
                guard = good if guard is None else self.let("logical_and", bool_, guard, good)
        return guard

    def matrices(self, statement: Statement, found: Sequence[Block]) -> list[Statement]:
        """Return a statement that runs only if the first and last places of its matrices are in range."""
        origin = next(iter(origins(statement)), None)
        fine: Operand | None = None
        for matrix, rows, columns, _ in found:
            for place in _ends(matrix, maximum(rows, 1), maximum(columns, 1)):
                size = maximum(product(matrix.buffer.shape), 1)
                good = self.check(place, size, None, f"matrix in {matrix.buffer.name}", origin)
                fine = good if fine is None else self.let("logical_and", bool_, fine, good)
        assert fine is not None
        times = self.let("where", i64, fine, Literal(1, i64), Literal(0, i64))
        position, good = self.new(), self.new(bool_)
        self.lines.append(Check(position, good, times, 2, False, 0))
        variable = Symbol(f"%bound{self.count}.once", 0, 0)
        return [*self.lines, Loop("serial", variable, 0, Symbol(position.name, 0, 1).expr(), (statement,))]


def _ends(matrix: Matrix, rows: Dim, columns: Dim) -> list[Dim]:
    """Return the places of a matrix between which all others lie."""
    if not matrix.panel:
        down, across = (rows - 1) * matrix.row_stride, (columns - 1) * matrix.column_stride
        return list(dict.fromkeys(matrix.offset + one + other for one in (0, down) for other in (0, across)))
    together = 2 if matrix.buffer.dtype.bytes == 2 else 1
    last = matrix.offset + (ceil_divide(rows, together) * together - together) * matrix.row_stride
    last = last + floor_divide(columns - 1, matrix.panel) * matrix.column_stride
    return [matrix.offset, last + together * matrix.panel - 1]
