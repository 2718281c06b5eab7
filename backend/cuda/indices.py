"""Names and index expressions as text.

Where 32 bits count all that a kernel touches (`reaches`), indices are int32 and sums of them `sum32(a, b, ...)`, which
cannot overflow: so the compiler may move what is constant into addresses. Otherwise they are int64.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ...ir.symbolic import Compound, Dim, Symbol, atoms_of, floor_divide, maximum, minimum, non_negative, symbols_of
from ...ir.types import DTYPES
from ...kernels.loop_ir import Load, Loop, Statement, Store, walk
from ...kernels.loop_text import statement_dims
from ...passes.loop.analysis import offset
from .library import reserved
from .uses import compounds

LIMIT = (1 << 31) - (1 << 26)  # what 32 bits count, less what loops over the grid add beyond their ends
# What names are made of others with, the names of device functions, and those that are used up on the way.
DERIVED = re.compile(rf".*_(\d+|re|im|wide|carry|at|{'|'.join(DTYPES)})|[es]\d+")


class Names:
    """Python names for those of the IR."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.taken = {"lane", "errors", *reserved()}

    def __getitem__(self, name: str) -> str:
        found = self.known.get(name)
        if found is None:
            found = re.sub(r"\W", "_", name.lstrip("%"))
            found = f"v{found}" if found[:1].isdigit() else found
            while found in self.taken or keyword.iskeyword(found) or DERIVED.fullmatch(found):
                found += "_"
            self.taken.add(found)
            self.known[name] = found
        return found

    def __setitem__(self, name: str, text: str) -> None:
        self.known[name] = text


class Indices:
    """Index expressions as text; quotients that a loop's body uses have names of their own there."""

    def __init__(self, names: Names, narrow: bool):
        self.names = names
        self.integer = "int32" if narrow else "int64"
        self.quotients: dict[Compound, str] = {}
        self.inside: list[Symbol] = []  # the variables of the loops around

    def number(self, value: Dim) -> str:
        """An expression, as a number of the kernel's integers."""
        if isinstance(value, int):
            return f"{self.integer}({value})"
        symbol = value.symbol
        return self.names[symbol.name] if symbol is not None else self.added(*self.terms(value))

    def added(self, *terms: str) -> str:
        """A sum of numbers, as one of the kernel's integers."""
        if self.integer == "int32" and len(terms) > 1:
            return f"sum32({', '.join(terms)})"
        return f"{self.integer}({' + '.join(terms)})"

    def sum(self, value: Dim) -> str:
        """An expression as operands of what follows: 64 bits on a GPU."""
        return " + ".join(self.terms(value))

    def terms(self, value: Dim) -> list[str]:
        if isinstance(value, int):
            return [str(value)]
        terms: list[str] = []
        for monomial, coefficient in value.terms:
            factors = [self.atom(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            terms.append(" * ".join(factors))
        return terms

    def atom(self, atom: Symbol | Compound) -> str:
        if isinstance(atom, Symbol):
            return self.names[atom.name]
        if atom in self.quotients:
            return self.quotients[atom]
        if atom.operator in ("min", "max"):
            return f"{atom.operator}({self.number(atom.left)}, {self.number(atom.right)})"
        left, right = self.sum(atom.left), self.sum(atom.right)
        if non_negative(atom.left):
            # Unsigned division needs no correction of the sign.
            return f"{self.integer}(u{self.integer}({left}) {atom.operator} u{self.integer}({right}))"
        return f"(({left}) {atom.operator} ({right}))"

    def divided_lane(self, atom: Compound, turn: str, lanes: int) -> str | None:
        """A quotient or remainder of `lane + turn * lanes` by what divides lanes: one of `lane` alone."""
        by = atom.right
        if not isinstance(by, int) or lanes % by:
            return None
        own = f"uint32(lane) {atom.operator} uint32({by})"
        return f"int32({own})" if atom.operator == "%" else self.added(own, f"{turn} * {lanes // by}")

    @contextmanager
    def within(self, loop: Loop) -> Iterator[list[Compound]]:
        """The body of a loop. Gives the quotients of its variable that need a name there; `name` gives them one."""
        self.inside.append(loop.variable)
        wanted = []
        for item in compounds(loop.body):
            symbols = symbols_of(item.left) | symbols_of(item.right)
            known = all(symbol in self.inside for symbol in symbols if symbol.name.startswith("%"))
            if loop.variable in symbols and known and item not in self.quotients:
                wanted.append(item)
        yield wanted
        for item in wanted:
            self.quotients.pop(item, None)
        self.inside.pop()


def reaches(statements: Sequence[Statement], sizes: Iterable[Symbol]) -> list[Dim] | None:
    """Expressions in symbolic sizes that are at least as large as every number that the index expressions of statements
    have on the way; None if there is no telling."""
    keep = frozenset(sizes)
    found: dict[Dim, None] = {}
    for value in _values(statements):
        parts = [value]
        for atom in atoms_of(value):
            parts += [atom.left, atom.right] if isinstance(atom, Compound) else []
        for part in parts:
            most = _reach(part, keep)
            if most is None:
                return None
            found[most] = None
    numbers = [item for item in found if isinstance(item, int)]
    return [max(numbers, default=0), *(item for item in found if not isinstance(item, int))]


def _values(statements: Sequence[Statement]) -> Iterator[Dim]:
    yield from statement_dims(statements)
    for item in walk(statements):
        if isinstance(item, (Load, Store)):
            yield offset(item.buffer, item.index)


def _reach(value: Dim, keep: frozenset[Symbol]) -> Dim | None:
    """What the sum of the terms is at most if none of them is negative."""
    if isinstance(value, int):
        return abs(value)
    total: Dim = 0
    for monomial, coefficient in value.terms:
        size: Dim = abs(coefficient)
        for atom in monomial:
            most = _atom_reach(atom, keep)
            if most is None:
                return None
            size = size * most
        total = total + size
    return total


def _atom_reach(atom: Symbol | Compound, keep: frozenset[Symbol]) -> Dim | None:
    if isinstance(atom, Symbol):
        if atom in keep:
            return atom.expr()
        if atom.upper is None or atom.lower is None:
            return None
        most = _reach(atom.upper, keep)
        return None if most is None else maximum(most, abs(atom.lower))
    left, right = _reach(atom.left, keep), _reach(atom.right, keep)
    if left is None or right is None:
        return None
    if atom.operator == "//":
        if not non_negative(atom.left) or not symbols_of(atom.right) <= keep:
            return left
        return floor_divide(left, maximum(atom.right, 1))
    if atom.operator == "%":
        return right
    return (minimum if atom.operator == "min" and non_negative(atom.left) and non_negative(atom.right) else maximum)(
        left, right
    )
