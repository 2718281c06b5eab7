"""Write names and index expressions as text.

Where all indices of a kernel fit in 32 bits (`reaches`), they are int32 and sums of them `sum32(a, b, ...)`, declared
not to overflow: so the compiler can fold constants into address offsets. Otherwise they are int64.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ....ir.proofs import floor_divide, maximum, minimum, non_negative
from ....ir.symbolic import Compound, Dim, Expr, Symbol, atoms_of, product, symbols_of
from ....ir.types import DTYPES
from ....kernels.loop.analysis import offset
from ....kernels.loop.ir import Check, Loop, Statement, walk
from ....kernels.loop.roles import all_expressions, elements
from .library import reserved
from .uses import compounds

# Suffixes of derived names, names of device functions, and those of temporaries.
DERIVED = re.compile(rf".*_(\d+|re|im|wide|carry|at|{'|'.join(DTYPES)})|[es]\d+")


class Names:
    """Map names of the IR to Python names."""

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
    """Writer of index expressions; quotients that a loop's body uses are computed once and named there."""

    def __init__(self, names: Names, narrow: bool):
        self.names = names
        self.integer = "int32" if narrow else "int64"
        self.quotients: dict[Compound, str] = {}
        self.inside: list[Symbol] = []  # variables of the enclosing loops

    def number(self, value: Dim) -> str:
        """Write an expression as a number of the kernel's integer type."""
        if isinstance(value, int):
            return f"{self.integer}({value})"
        symbol = value.symbol
        return self.names[symbol.name] if symbol is not None else self.added(*self.terms(value))

    def added(self, *terms: str) -> str:
        """Write a sum of numbers in the kernel's integer type."""
        if self.integer == "int32" and len(terms) > 1:
            return f"sum32({', '.join(terms)})"
        return f"{self.integer}({' + '.join(terms)})"

    def sum(self, value: Dim) -> str:
        """Write an expression as an untyped sum, for the enclosing text: 64 bits on a GPU."""
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
        if not non_negative(atom.right):
            return f"((({left}) {atom.operator} ({right})) if ({right}) != 0 else 0)"
        if non_negative(atom.left):
            # Unsigned division needs no correction for signs.
            return f"{self.integer}(u{self.integer}({left}) {atom.operator} u{self.integer}({right}))"
        return f"(({left}) {atom.operator} ({right}))"

    def divided_lane(self, atom: Compound, turn: str, lanes: int) -> str | None:
        """Reduce a quotient or remainder of `lane + turn * lanes` by a divisor of lanes to one of `lane` alone."""
        by = atom.right
        if not isinstance(by, int) or lanes % by:
            return None
        own = f"uint32(lane) {atom.operator} uint32({by})"
        return f"int32({own})" if atom.operator == "%" else self.added(own, f"{turn} * {lanes // by}")

    @contextmanager
    def within(self, loop: Loop) -> Iterator[list[Compound]]:
        """Enter the body of a loop; yield the quotients of its variable that need a name there (see `name`)."""
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
    """Bound all intermediate values of the statements' index expressions: return expressions in symbolic sizes whose
    maximum is an upper bound, the first of them a number; None if no bound is known."""
    reach = _Reach(sizes)
    for item in walk(statements):
        if isinstance(item, Loop):
            reach.takes(item.variable, item.start, item.stop)
        elif isinstance(item, Check):
            reach.takes(item.symbol, item.size)
        for element in elements(item):
            reach.add(offset(element.buffer, element.place))
            reach.add(product(element.buffer.shape))
    for value in all_expressions(statements):
        reach.add(value)
    return reach.found()


class _Reach:
    """Upper bounds of index expressions. Ranges of variables are taken from their loops: a symbol may carry the range
    of another one of its name."""

    def __init__(self, sizes: Iterable[Symbol]):
        self.most: dict[Symbol, Dim | None] = {symbol: symbol.expr() for symbol in sizes}
        self.sizes = frozenset(self.most)
        self.all: dict[Dim | None, None] = {0: None}

    def takes(self, variable: Symbol, *ends: Dim) -> None:
        for end in ends:
            self.add(end)
            most, before = self.of(end), self.most.get(variable, 0)
            self.most[variable] = None if most is None or before is None else maximum(most, before)

    def add(self, value: Dim) -> None:
        """Add a computed expression and all its parts."""
        self.all[self.of(value)] = None
        for atom in atoms_of(value):
            if isinstance(atom, Compound):
                self.all[self.of(atom.left)] = self.all[self.of(atom.right)] = None

    def found(self) -> list[Dim] | None:
        if None in self.all:
            return None
        numbers = [item for item in self.all if isinstance(item, int)]
        return [max(numbers), *(item for item in self.all if isinstance(item, Expr))]

    def of(self, value: Dim) -> Dim | None:
        """Bound the sum of the terms' absolute values."""
        if isinstance(value, int):
            return abs(value)
        total: Dim = 0
        for monomial, coefficient in value.terms:
            size: Dim = abs(coefficient)
            for atom in monomial:
                most = self.most.get(atom) if isinstance(atom, Symbol) else self.of_compound(atom)
                if most is None:
                    return None
                size = size * most
            total = total + size
        return total

    def of_compound(self, atom: Compound) -> Dim | None:
        left, right = self.of(atom.left), self.of(atom.right)
        if left is None or right is None:
            return None
        if atom.operator == "%":
            return right
        plain = non_negative(atom.left) and symbols_of(atom.right) <= self.sizes
        if atom.operator == "//":
            return floor_divide(left, maximum(atom.right, 1)) if plain else left
        # For the end of a loop, min(a, b) with neither negative, the smaller bound holds.
        small = atom.operator == "min" and non_negative(atom.left) and non_negative(atom.right)
        return (minimum if small else maximum)(left, right)
