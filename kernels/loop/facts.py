"""Collect the facts at one place of a kernel, the ranges of the loops around it, and prove inequalities of indices.

Proofs eliminate variables, the innermost loop's first. An expression that rises with a variable is least where the loop
starts, one that falls is least at its last iteration; proofs.py decides the rest, which is over sizes. So ends that
depend on outer variables, as those of tiles do, are counted exactly:

    serial %p in 0..((N + 63) // 64) {
      vector %i in (64 * %p)..(min(64 * %p + 64, N)) {      N - 1 - %i >= N - min(64 * %p + 64, N) >= 0
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...ir.proofs import COMPOUND, LIMITS, ceil_divide, floor_divide, limit, non_negative, substitute
from ...ir.record import Record
from ...ir.symbolic import Atom, Compound, Dim, Expr, Symbol, exact_quotient, product, symbols_of, transform


@dataclass(frozen=True)
class Variable:
    """A number that index expressions name: start <= variable < stop."""

    symbol: Symbol
    start: Dim
    stop: Dim
    counts: bool = True  # a loop takes all of its values; else data or an address says which it is

    @property
    def last(self) -> Dim:
        return self.stop - 1


def is_size(symbol: Symbol) -> bool:
    return not symbol.name.startswith("%")


def quotient(left: Dim, right: Dim) -> Dim:
    """Return the quotient of a multiple and its divisor."""
    found = exact_quotient(left, right)
    assert found is not None
    return found


class Digits(Record):
    """A variable as a sum of digits times strides, each stride a multiple of the one before."""

    strides: list[Dim]
    values: list[Dim]

    def between(self, first: int, last: int) -> Dim:
        """Return the number that some of the digits form."""
        total: Dim = 0
        for stride, value in zip(self.strides[first:last], self.values[first:last], strict=True):
            total = total + value * quotient(stride, self.strides[first])
        return total


Given = tuple[str, Dim, Dim, tuple[Dim, ...], bool]  # a variable's name, start, stop, radices, and whether it counts


class Facts:
    """The variables around a place, outermost first, and expressions that are at least zero there.

    `shapes` are the sizes of the kernel's buffers: where an expression of sizes is one of them, such as (N + 1) // 2,
    proofs may go over that size instead of N. Symbols of the program are replaced by those of the same name that carry
    the range that is known here. A variable whose quotients and remainders are used is replaced by its digits, so that
    each of those is a variable:

        grid %g in 0..(M * N) {  ...  %g // N, %g % N      %g = N * %g/1 + %g/0, 0 <= %g/0 < N, 0 <= %g/1 < M
    """

    def __init__(
        self,
        shapes: Iterable[Dim] = (),
        variables: Sequence[Given] = (),
        assumed: Sequence[Dim] = (),
        renamed: Mapping[Atom, Dim] | None = None,
        runs: bool = True,
        numbers: Mapping[str, int] | None = None,
        exact: bool = False,
    ):
        self.exact = exact  # only whole ranges are split into digits, so unions over digits are exact
        self.runs = runs  # whether all these loops have iterations, which bounds sizes
        self.numbers = numbers or {}  # sizes that are known
        self.shapes = tuple(shapes)
        self.given = tuple(variables)
        self.assumed = tuple(assumed)
        self.renamed = renamed or {}
        self._other: Facts | None = None
        self.sizes: dict[str, Symbol] = {}
        self.values: dict[str, Dim] = {}  # of variables, by name
        self.variables: dict[Symbol, Variable] = {}
        self.digits: dict[str, Digits] = {}
        self.cut: list[Dim] = []  # expressions of several digits that are at least zero
        self.proved: dict[Dim, bool] = {}
        self._about_sizes: list[Dim] | None = None
        for _ in range(3):  # a lower bound of a size may tell another one
            before = dict(self.sizes)
            self._declare()
            self._refine()
            if before == self.sizes:
                break
        self._declare()
        self.facts = [*self.cut, *map(self.known, self.assumed)]

    def inside(self, name: str, start: Dim, stop: Dim, radices: tuple[Dim, ...] = (), counts: bool = True) -> Facts:
        """Return the facts in an iteration of a loop."""
        given = (*self.given, (name, start, stop, radices, counts))
        return Facts(self.shapes, given, self.assumed, self.renamed, self.runs, self.numbers, self.exact)

    def over(self, shapes: Sequence[Dim]) -> Facts:
        """Return the facts for a kernel whose buffers have other sizes."""
        return Facts(shapes, self.given, self.assumed, self.renamed, self.runs, self.numbers, self.exact)

    def when(self, *assumed: Dim) -> Facts:
        """Return the facts where some expressions are at least zero."""
        return (
            Facts(self.shapes, self.given, (*self.assumed, *assumed), self.renamed, self.runs, self.numbers, self.exact)
            if assumed
            else self
        )

    def beside(self, variables: Sequence[Variable], facts: Sequence[Dim]) -> Facts:
        """Return the facts with other variables, and more expressions that are at least zero."""
        other = copy.copy(self)
        other.variables = {item.symbol: item for item in variables}
        other.facts = [*self.facts, *facts]
        other.proved, other._about_sizes, other._other = {}, None, other
        return other

    def outside(self, count: int, shorter: bool = False) -> Facts:
        """Return the facts of the outermost variables only; `shorter`: the last one stops before its last iteration."""
        other = copy.copy(self)
        kept = list(self.variables.items())[:count]
        if shorter and kept:
            symbol, item = kept[-1]
            kept[-1] = symbol, Variable(item.symbol, item.start, item.stop - 1, item.counts)
        other.variables = dict(kept)
        gone = set(self.variables) - set(other.variables)
        other.facts = [item for item in self.facts if not gone & symbols_of(item)]
        other.cut = [item for item in self.cut if symbols_of(item) & set(other.variables) and item in other.facts]
        other.proved, other._about_sizes, other._other = {}, None, other
        return other

    def _declare(self) -> None:
        self.variables, self.values, self.digits, self.cut = {}, {}, {}, []
        for name, raw_start, raw_stop, raw_radices, counting in self.given:
            start, stop = self.known(raw_start), self.known(raw_stop)
            radices = [self.known(item) for item in raw_radices] if start == 0 else []
            radices = [item for item in radices if non_negative(item)]
            # A loop that runs over a multiple of a size has that size: it is not zero.
            exact = bool(radices) and exact_quotient(stop, radices[-1]) is not None
            self.cut += [item - 1 for item in radices if exact and isinstance(item, Expr)]
            if not radices or not (exact or (not self.exact and all(non_negative(item - 1) for item in radices))):
                self.values[name] = self._variable(name, start, stop, counting)
                continue
            # The digits that count most come first: the others run inside of them.
            strides: list[Dim] = [1, *radices]
            whole = exact_quotient(stop, strides[-1])
            counts = [quotient(after, before) for before, after in itertools.pairwise(strides)]
            counts.append(ceil_divide(stop, strides[-1]) if whole is None else whole)
            digits = [self._variable(f"{name}/{number}", 0, counts[number]) for number in reversed(range(len(strides)))]
            self.digits[name] = Digits(strides, digits[::-1])
            self.values[name] = total = self.digits[name].between(0, len(strides))
            if whole is None:
                self.cut.append(stop - 1 - total)

    def _variable(self, name: str, start: Dim, stop: Dim, counts: bool = True) -> Dim:
        if stop - start == 1:
            return start
        least = limit(start, False)
        symbol = Symbol(name, least if isinstance(least, int) else None, stop - 1)
        self.variables[symbol] = Variable(symbol, start, stop, counts)
        return symbol.expr()

    def _refine(self) -> None:
        """Raise the lower bounds of sizes that loops run over."""
        for fact in self._sizes_facts() if self.runs else ():
            for symbol, least in _least(fact):
                if is_size(symbol) and (symbol.lower is None or symbol.lower < least):
                    self.sizes[symbol.name] = Symbol(symbol.name, least, symbol.upper)

    def _sizes_facts(self) -> list[Dim]:
        """Return the facts about sizes alone that follow from loops that run, and from assumptions."""
        found: list[Dim] = []
        runs = [item.stop - item.start - 1 for item in self.variables.values()]
        for item in (*runs, *self.cut, *map(self.known, self.assumed)):
            most = self._without_variables(item, True)
            if isinstance(most, Expr):
                found += [most, *_factors(most)]
        return found

    @property
    def about_sizes(self) -> list[Dim]:
        if self._about_sizes is None:
            self._about_sizes = self._sizes_facts()
        return self._about_sizes

    def _without_variables(self, value: Dim, upper: bool) -> Dim | None:
        for variable in reversed(self.variables.values()):
            if isinstance(value, int) or variable.symbol not in symbols_of(value):
                continue
            way = direction(value, variable.symbol)
            if way is None:
                return None
            value = substitute(value, {variable.symbol: variable.last if (way > 0) == upper else variable.start})
        return value

    def known(self, value: Dim) -> Dim:
        """Rewrite an expression of the program over the symbols that carry the ranges known here."""
        if isinstance(value, int):
            return value
        if self.renamed:
            value = transform(value, self.renamed.get, COMPOUND)
        return transform(value, self._known_atom, COMPOUND)

    def _known_atom(self, atom: Atom) -> Dim | None:
        if isinstance(atom, Symbol):
            found = self.values.get(atom.name, self.numbers.get(atom.name))
            if found is None and is_size(atom):
                found = self.sizes.setdefault(atom.name, atom).expr()
            return found
        if not self.digits or atom.operator not in ("//", "%") or not isinstance(atom.left, Expr):
            return None
        inner, first = atom.left.atom, 0
        if isinstance(inner, Compound) and inner.operator == "//" and isinstance(inner.left, Expr):
            symbol, divisor = inner.left.symbol, self.known(inner.right)
            if symbol is None or symbol.name not in self.digits or divisor not in self.digits[symbol.name].strides:
                return None
            first = self.digits[symbol.name].strides.index(divisor)
        else:
            symbol = atom.left.symbol
        if symbol is None or symbol.name not in self.digits:
            return None
        digits = self.digits[symbol.name]
        stride = digits.strides[first] * self.known(atom.right)
        if stride not in digits.strides:
            return None
        last = digits.strides.index(stride)
        return digits.between(last, len(digits.strides)) if atom.operator == "//" else digits.between(first, last)

    # Proofs

    def at_least_zero(self, value: Dim) -> bool:
        """Whether an expression of the program is provably at least zero here."""
        if isinstance(value, int):
            return value >= 0
        given, value = value, self.known(value)
        found = self.proved.get(value)
        if found is None:
            found = self._proves(value, self.facts, [LIMITS.expressions])
            if not found and not self.renamed:
                if self._other is None:
                    names = renamings(self.shapes)
                    self._other = (
                        Facts(self.shapes, self.given, self.assumed, names, self.runs, self.numbers, self.exact)
                        if names
                        else self
                    )
                found = self._other is not self and self._other.at_least_zero(given)
            self.proved[value] = found
        return found

    def within(self, value: Dim, size: Dim) -> bool:
        """Whether 0 <= value < size here."""
        return self.at_least_zero(value) and self.at_least_zero(size - 1 - value)

    def reaches(self, value: Dim, upper: bool) -> Dim | None:
        """Return the least or (`upper`) greatest value of an expression, if its variables attain it; else None."""
        return self._without_variables(self.known(value), upper)

    def _proves(self, value: Dim, facts: Sequence[Dim], left: list[int]) -> bool:
        if isinstance(value, int):
            return value >= 0
        left[0] -= 1
        if left[0] < 0:
            return False
        if _relaxes(value, [LIMITS.relaxed]):
            return True
        symbols = symbols_of(value)
        variable = next((item for item in reversed(self.variables.values()) if item.symbol in symbols), None)
        if variable is None:
            if any(non_negative(value - item) for item in self.about_sizes):
                return True
            return self._by_cases(value, None, facts, left)
        way = direction(value, variable.symbol)
        if way is not None:
            ends = [variable.start if way > 0 else variable.last, *self._ends(variable.symbol, way > 0, facts)]
            if any(self._proves(substitute(value, {variable.symbol: end}), facts, left) for end in ends):
                return True
        return self._by_cases(value, variable.symbol, facts, left)

    @staticmethod
    def _ends(symbol: Symbol, lower: bool, facts: Sequence[Dim]) -> Iterator[Dim]:
        """Yield bounds of a variable that follow from facts."""
        for fact in itertools.chain(facts, map(_without_quotients, facts)):
            factor = fact.coefficient(symbol) if isinstance(fact, Expr) else None
            if isinstance(factor, int) and factor and (factor > 0) == lower:
                rest = fact - symbol.expr() * factor
                yield ceil_divide(-rest, factor) if lower else floor_divide(rest, -factor)

    def _by_cases(self, value: Expr, symbol: Symbol | None, facts: Sequence[Dim], left: list[int]) -> bool:
        """Prove that an expression is at least zero by cases of an atom with the variable in it."""
        for extreme in _compounds(value, symbol):
            if extreme.operator in ("min", "max"):
                # In each case one of the two sides is the minimum or maximum.
                gap = extreme.right - extreme.left if extreme.operator == "min" else extreme.left - extreme.right
                cases = ((extreme.left, gap), (extreme.right, -gap))
                for side, fact in cases:
                    known = [transform(item, {extreme: side}.get, COMPOUND) for item in facts]
                    if any(non_negative(-1 - item) for item in (fact, *known)):
                        continue  # the case is impossible
                    if not self._proves(transform(value, {extreme: side}.get, COMPOUND), [*known, fact], left):
                        return False
                return True
        for monomial, coefficient in value.terms:
            for atom in monomial:
                if not isinstance(atom, Compound) or (symbol is not None and symbol not in symbols_of(atom.expr())):
                    continue
                if atom.operator == "%" and non_negative(atom.right - 1) and _is_affine(value, atom):
                    ends: list[Dim] = [0, atom.right - 1]
                    if all(self._proves(transform(value, {atom: end}.get, COMPOUND), facts, left) for end in ends):
                        return True
                elif atom.operator == "//" and monomial.count(atom) == 1 and non_negative(atom.right - 1):
                    # e // k is at most e / k, and at least (e - k + 1) / k.
                    factor = product(other.expr() for other in monomial if other != atom) * coefficient
                    rest = value - atom.expr() * factor
                    sign = 1 if non_negative(factor) else -1 if non_negative(-factor) else 0
                    end = atom.left if sign < 0 else atom.left - atom.right + 1
                    if sign and self._proves(rest * atom.right + end * factor, facts, left):
                        return True
        return False


def _relaxes(value: Dim, left: list[int]) -> bool:
    """Whether an expression is at least zero because of one side each of the minima that it subtracts and of the
    maxima that it adds."""
    if non_negative(value):
        return True
    left[0] -= 1
    if left[0] < 0 or isinstance(value, int):
        return False
    for monomial, coefficient in value.terms:
        for atom in monomial:
            if isinstance(atom, Compound) and atom.operator == ("min" if coefficient < 0 else "max"):
                others = product(item.expr() for item in monomial if item != atom) * coefficient
                if monomial.count(atom) == 1 and (len(monomial) == 1 or non_negative(others * coefficient)):
                    rest = value - atom.expr() * others
                    return any(_relaxes(rest + side * others, left) for side in (atom.left, atom.right))
    return False


def renamings(shapes: Iterable[Dim]) -> dict[Atom, Dim]:
    """Sizes of buffers as symbols of their own: P for (N + 1) // 2, and P + 1 for N where N - 1 is one."""
    found: dict[Atom, Dim] = {}
    for size in shapes:
        if not isinstance(size, Expr):
            continue
        low, high = (limit(size, upper) for upper in (False, True))
        least, most = (item if isinstance(item, int) else None for item in (low, high))
        if isinstance(size.atom, Compound):
            found.setdefault(size.atom, Symbol(f"[{size}]", least, most).expr())
            continue
        rest = [(monomial, coefficient) for monomial, coefficient in size.terms if monomial]
        if len(rest) == 1 and rest[0][1] == 1 and len(rest[0][0]) == 1 and len(size.terms) == 2:
            (atom,) = rest[0][0]
            found.setdefault(atom, Symbol(f"[{size}]", least, most).expr() - (size - atom.expr()))
    return found


def _without_quotients(fact: Dim) -> Dim:
    """Weaken a fact to one without quotients: e // k is at most e / k, and at least (e - k + 1) / k."""
    for monomial, coefficient in fact.terms if isinstance(fact, Expr) else ():
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, Compound) and atom.operator == "//" and isinstance(atom.right, int) and atom.right > 0:
            rest = fact - atom.expr() * coefficient
            end = atom.left - atom.right + 1 if coefficient < 0 else atom.left
            return rest * atom.right + end * coefficient
    return fact


def _compounds(value: Dim, symbol: Symbol | None) -> Iterator[Compound]:
    """Yield the compound atoms of an expression that have a symbol in them, inner ones first."""
    if isinstance(value, int):
        return
    for monomial, _ in value.terms:
        for atom in monomial:
            if isinstance(atom, Compound) and (symbol is None or symbol in symbols_of(atom.expr())):
                yield from _compounds(atom.left, symbol)
                yield from _compounds(atom.right, symbol)
                yield atom


def radices(variable: Symbol, dims: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return the numbers that a variable is divided by, each a multiple of the one before."""
    found: dict[Dim, None] = {}
    for dim in dims:
        for atom in _compounds(dim, variable):
            if atom.operator not in ("//", "%") or variable in symbols_of(atom.right):
                continue
            inner = atom.left.atom if isinstance(atom.left, Expr) else None
            if inner == variable:
                found[atom.right] = None
            elif isinstance(inner, Compound) and inner.operator == "//" and inner.left == variable.expr():
                found[inner.right] = None
                found[inner.right * atom.right] = None
    chain: list[Dim] = []
    pending = list(found)
    while pending:
        least = next((one for one in pending if all(exact_quotient(other, one) is not None for other in pending)), None)
        if least is None:
            break
        pending = [item for item in pending if item != least]
        chain.append(least)
    return tuple(chain)


def _is_affine(value: Expr, atom: Atom) -> bool:
    """Whether an atom occurs as a factor alone, never inside of another."""
    count = sum(monomial.count(atom) > 1 for monomial, _ in value.terms)
    inside = any(
        isinstance(other, Compound) and other != atom and _contains(other, atom)
        for monomial, _ in value.terms
        for other in monomial
    )
    return not count and not inside


def _contains(whole: Compound, part: Atom) -> bool:
    for side in (whole.left, whole.right):
        if isinstance(side, Expr):
            for monomial, _ in side.terms:
                for atom in monomial:
                    if atom == part or (isinstance(atom, Compound) and _contains(atom, part)):
                        return True
    return False


def direction(value: Dim, symbol: Symbol) -> int | None:
    """1 if an expression never falls where a symbol grows, -1 if it never rises, 0 if both; None if that is unknown."""
    if isinstance(value, int):
        return 0
    factor = value.coefficient(symbol)
    if factor is not None and factor != 0:
        return 1 if non_negative(factor) else -1 if non_negative(-factor) else None
    total = 0
    for monomial, coefficient in value.terms:
        for position, atom in enumerate(monomial):
            way = _atom_direction(atom, symbol)
            if way is None:
                return None
            if not way:
                continue
            others = product(item.expr() for item in (*monomial[:position], *monomial[position + 1 :]))
            sign = 1 if non_negative(others) else -1 if non_negative(-others) else 0
            way = way * sign * (1 if coefficient > 0 else -1)
            if not way or total == -way:
                return None
            total = way
    return total


def _atom_direction(atom: Atom, symbol: Symbol) -> int | None:
    if isinstance(atom, Symbol):
        return int(atom == symbol)
    left, right = direction(atom.left, symbol), direction(atom.right, symbol)
    if left == right == 0 and symbol not in symbols_of(atom.left) and symbol not in symbols_of(atom.right):
        return 0
    if atom.operator in ("min", "max"):
        return None if left is None or right is None or left == -right != 0 else left or right
    if atom.operator == "//" and right == 0 and non_negative(atom.right - 1):
        return left
    if atom.operator == "//" and left == 0 and right is not None and non_negative(atom.left):
        return -right if non_negative(atom.right - 1) else None
    return None


def _least(fact: Dim) -> Iterable[tuple[Symbol, int]]:
    """Return lower bounds of symbols that follow from an expression that is at least zero."""
    if not isinstance(fact, Expr):
        return
    constant = sum(coefficient for monomial, coefficient in fact.terms if not monomial)
    others = [(monomial, coefficient) for monomial, coefficient in fact.terms if monomial]
    if len(others) != 1:
        return
    ((monomial, coefficient),) = others
    if coefficient < 1 or constant >= 0:
        return
    least = -(constant // coefficient)  # of the product
    if len(monomial) == 1:
        yield from _atom_least(monomial[0], least)
    elif all(non_negative(atom.expr()) for atom in monomial):
        for atom in monomial:
            yield from _atom_least(atom, 1)


def _factors(fact: Expr) -> Iterator[Dim]:
    """Yield the facts that the factors of a product are at least one, where the product is."""
    constant = sum(coefficient for monomial, coefficient in fact.terms if not monomial)
    others = [(monomial, coefficient) for monomial, coefficient in fact.terms if monomial]
    if len(others) == 1 and others[0][1] > 0 > constant:
        ((monomial, _),) = others
        if all(non_negative(atom.expr()) for atom in monomial):
            yield from (atom.expr() - 1 for atom in monomial)


def _atom_least(atom: Atom, least: int) -> Iterable[tuple[Symbol, int]]:
    if isinstance(atom, Symbol):
        yield atom, least
    elif atom.operator == "//" and isinstance(atom.right, int) and atom.right > 0:
        yield from _least(atom.left - least * atom.right)
    elif atom.operator == "min":
        yield from _least(atom.left - least)
        yield from _least(atom.right - least)
    elif atom.operator == "max":
        for one, other in ((atom.left, atom.right), (atom.right, atom.left)):
            if isinstance(other, int) and other < least:
                yield from _least(one - least)
