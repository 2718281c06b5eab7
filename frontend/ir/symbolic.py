"""Integer expressions over named symbols: tensor sizes in the graph IR, indices in the loop IR.

An `Expr` is a polynomial with integer coefficients. Its variables are atoms: a `Symbol`, or a floor
division, remainder, minimum or maximum of two expressions. A constant is never an `Expr` but an `int`,
so most programs, which have no symbolic size, never build one for a size.

This module holds the rules that need no ranges of symbols. Proofs from ranges, and the quotients, remainders, minima
and maxima that they simplify, are in proofs.py, which also implements `//` and `%` of sizes.

Almost every expression is affine and takes microseconds. sympy is used only for the quotient of two polynomials that
`split` cannot divide term by term (it takes half a second to import), and this is the only module that may import it.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar, NoReturn

from . import asked
from .errors import ShapeError

ASSUMED_SIZE = 4096  # elements of a symbolic dim, for decisions by order of magnitude: open sizes are taken to be large


class SizeNeeded(ShapeError):
    """Python needs the number of a symbolic size; tracing starts again with the size at hand."""

    is_question = True

    def __init__(self, size: Expr):
        self.decided = _decided(size)
        why = f"not known while tracing{self.decided}"
        super().__init__(f"the size {size} is {why}, so Python cannot branch or calculate with it{_way_out(self)}")
        self.size = size
        asked.note(self)


class UndecidedSize(ShapeError):
    """The program depends on whether two symbolic sizes are equal; tracing settles it by the sizes at hand.

    `is_wanted`: the program is only valid where the comparison holds.
    """

    is_question = True

    def __init__(self, left: Dim, right: Dim, question: str = "", is_wanted: bool = False):
        self.decided = _decided(left) or _decided(right)
        asks = question or f"the sizes {left} and {right} are equal"
        super().__init__(f"cannot tell whether {asks}{self.decided}{_way_out(self)}")
        self.left = left
        self.right = right
        self.is_wanted = is_wanted
        asked.note(self)


def _decided(size: Dim) -> str:
    """Return which op decides a size by data, and where; '' if none does."""
    trace = asked.current()
    for item in trace.decisions if trace is not None else ():
        if item.symbol in symbols_of(size):
            return f" (data decide {item.symbol}: {item.op}{f', {item.location}' if item.location else ''})"
    return ""


def _way_out(question: SizeNeeded | UndecidedSize) -> str:
    return ". Give that op a fixed size=, or end the compiled function there" if question.decided else ""


class Symbol:
    """A name with a range. Expressions are simplified by the range, so symbols of one name with different ranges are
    not equal, and memoised results of one are not used for the other. One program never has both."""

    __slots__ = ("_hash", "lower", "name", "upper")

    def __init__(self, name: str, lower: int | None = None, upper: Dim | None = None):
        self.name = name
        self.lower = lower
        self.upper = upper
        self._hash = hash((name, lower, upper))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Symbol)
            and self._hash == other._hash
            and self.name == other.name
            and self.lower == other.lower
            and self.upper == other.upper
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (0, self.name)

    def expr(self) -> Expr:
        return Expr((((self,), 1),))


class Compound:
    """floor division, remainder, minimum or maximum of two expressions, as one atom."""

    __slots__ = ("_hash", "_text", "left", "operator", "right", "weight")

    def __init__(self, operator: str, left: Dim, right: Dim):
        self.operator = operator
        self.left = left
        self.right = right
        self._hash = hash((operator, left, right))
        self._text: str | None = None  # cached: the sort key in every sum that contains the atom
        self.weight: int = 1 + weight(left) + weight(right)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Compound)
            and self._hash == other._hash
            and self.operator == other.operator
            and self.left == other.left
            and self.right == other.right
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self._text is None:
            if self.operator in ("min", "max"):
                self._text = f"{self.operator}({self.left}, {self.right})"
            else:
                self._text = f"{_grouped(self.left)} {self.operator} {_grouped(self.right)}"
        return self._text

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (1, repr(self))

    def expr(self) -> Expr:
        return Expr((((self,), 1),))


Atom = Symbol | Compound

Monomial = tuple[Atom, ...]


def weight(value: Dim) -> int:
    """Return the number of compound atoms in an expression, nested ones included."""
    if isinstance(value, int):
        return 0
    return sum(atom.weight for monomial, _ in value.terms for atom in monomial if isinstance(atom, Compound))


def _grouped(value: Dim) -> str:
    text = str(value)
    return (
        text if isinstance(value, int) and value >= 0 or text.isidentifier() or text[1:].isidentifier() else f"({text})"
    )


class Expr:
    """A sum of coefficient * product of atoms, in a canonical order: equal expressions have equal terms."""

    __slots__ = ("_hash", "_symbols", "terms")

    # Operations that need proofs: set by proofs.py.
    floor_divide: ClassVar[Callable[[Dim, Dim], Dim]]
    remainder: ClassVar[Callable[[Dim, Dim], Dim]]
    differs: ClassVar[Callable[[Dim, Dim], bool]]
    non_negative: ClassVar[Callable[[Dim], bool]]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]):
        self.terms = terms
        self._hash = hash(terms)
        self._symbols: frozenset[Symbol] | None = None  # computed by symbols_of on first use

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Expr):
            return self._hash == other._hash and self.terms == other.terms
        return False if isinstance(other, numbers.Number) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __repr__(self) -> str:
        if self.atom is not None:
            return str(self.atom)
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = [
                f"({atom})" if isinstance(atom, Compound) and atom.operator in ("//", "%") else str(atom)
                for atom in monomial
            ]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            text = " * ".join(factors)
            if parts:
                parts.append(f"- {text}" if coefficient < 0 else f"+ {text}")
            else:
                parts.append(f"-{text}" if coefficient < 0 else text)
        return " ".join(parts)

    @property
    def atom(self) -> Atom | None:
        """The atom, if the expression is a single atom; else None."""
        monomial, coefficient = self.terms[0]
        return monomial[0] if coefficient == 1 and len(monomial) == 1 and len(self.terms) == 1 else None

    @property
    def symbol(self) -> Symbol | None:
        """The symbol, if the expression is a single symbol; else None."""
        atom = self.atom
        return atom if isinstance(atom, Symbol) else None

    @property
    def measured(self) -> Symbol | None:
        """The symbol whose number equals this size: N for N, and for 4 * (N // 4) + 1, in a program for N % 4 == 1."""
        monomial, divisor = self.terms[0]
        atom = monomial[0] if len(monomial) == 1 else None
        if not isinstance(atom, Compound) or atom.operator != "//" or not isinstance(atom.left, Expr):
            return self.symbol
        rest = self - atom.expr() * divisor
        is_it = atom.right == divisor and isinstance(rest, int) and 0 <= rest < divisor
        return atom.left.symbol if is_it else None

    def _number(self, *others: Any) -> NoReturn:
        raise SizeNeeded(self)

    __bool__ = __int__ = __float__ = __index__ = __complex__ = _number

    def __ge__(self, other: Any) -> Any:
        return self._is_at_least(other, 0)

    def __gt__(self, other: Any) -> Any:
        return self._is_at_least(other, 1)

    def __le__(self, other: Any) -> Any:
        above = self._is_at_least(other, 1)
        return above if above is NotImplemented else not above

    def __lt__(self, other: Any) -> Any:
        at_least = self._is_at_least(other, 0)
        return at_least if at_least is NotImplemented else not at_least

    def _is_at_least(self, other: Any, more: int) -> Any:
        """Whether self >= other + more. Without a proof the sizes at hand decide, and the answer becomes a limit on the
        sizes that the program takes."""
        operand = self._operand(other)
        if operand is None:
            return NotImplemented
        gap = self - operand - more
        if Expr.non_negative(gap):
            return True
        if Expr.non_negative(-1 - gap):
            return False
        trace = asked.current()
        if trace is None or not all(symbol.name in trace.hints for symbol in symbols_of(gap)):
            self._number()
        answer = evaluate(gap, trace.hints) >= 0
        trace.limits.append((-gap, 0) if answer else (gap, -1))
        trace.where.append(f"{asked.line_above(2)}: it compares {self!r} with {operand!r}")
        return answer

    def _operand(self, other: Any) -> Dim | None:
        """Return the other operand as a size; None for tensors, which handle sizes themselves."""
        if isinstance(other, (int, Expr)):
            return other
        if isinstance(other, numbers.Integral):
            return int(other)
        return self._number() if isinstance(other, numbers.Number) else None

    def __truediv__(self, other: Any) -> Any:
        return NotImplemented if self._operand(other) is None else self._number()

    __rtruediv__ = __pow__ = __rpow__ = __truediv__

    def __add__(self, other: Dim) -> Dim:
        if isinstance(other, int) and other == 0:
            return self
        operand = self._operand(other)
        return NotImplemented if operand is None else _collect(self.terms + _terms(operand))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return Expr(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if other == 0:
                return 0
            return self if other == 1 else Expr(tuple((m, c * other) for m, c in self.terms))
        if not isinstance(other, Expr):
            operand = self._operand(other)
            return NotImplemented if operand is None else self * operand
        return _collect(
            (tuple(sorted(left + right, key=_atom_key)), a * b) for left, a in self.terms for right, b in other.terms
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        operand = self._operand(other)
        return NotImplemented if operand is None else Expr.floor_divide(self, operand)

    def __rfloordiv__(self, other: Dim) -> Dim:
        operand = self._operand(other)
        return NotImplemented if operand is None else Expr.floor_divide(operand, self)

    def __mod__(self, other: Dim) -> Dim:
        operand = self._operand(other)
        return NotImplemented if operand is None else Expr.remainder(self, operand)

    def __rmod__(self, other: Dim) -> Dim:
        operand = self._operand(other)
        return NotImplemented if operand is None else Expr.remainder(operand, self)

    def coefficient(self, symbol: Symbol) -> Dim | None:
        """The factor of `symbol` if the expression is affine in it, else None. Zero if it does not occur."""
        found: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            count = 0
            for atom in monomial:
                if isinstance(atom, Compound):
                    if symbol in atoms_of(atom.left) or symbol in atoms_of(atom.right):
                        return None
                elif atom == symbol:
                    count += 1
            if count > 1:
                return None
            if count:
                rest = tuple(atom for atom in monomial if not (isinstance(atom, Symbol) and atom == symbol))
                found.append((rest, coefficient))
        return _collect(found) if found else 0


# A size or an index: a number, or an expression that is none.
Dim = int | Expr


def _atom_key(atom: Atom) -> tuple[Any, ...]:
    return atom.sort_key


def _monomial_key(item: tuple[Monomial, int]) -> tuple[Any, ...]:
    # Highest degree first, the constant last: "N*M + 2*N + 1".
    return (-len(item[0]), [atom.sort_key for atom in item[0]])


def _terms(value: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(value, Expr):
        return value.terms
    return (((), int(value)),) if value else ()


def coefficients_of(value: Dim) -> tuple[int, ...]:
    """Return the coefficients of an expression's terms."""
    return tuple(coefficient for _, coefficient in _terms(value))


def _collect(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = [(monomial, coefficient) for monomial, coefficient in total.items() if coefficient]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    kept.sort(key=_monomial_key)
    return _restore(Expr(tuple(kept)))


def _restore(value: Expr) -> Dim:
    """Simplify d*(e // d) + e % d to e."""
    for monomial, coefficient in value.terms:
        for atom in monomial:
            if not (isinstance(atom, Compound) and atom.operator == "%"):
                continue
            others = list(monomial)
            others.remove(atom)
            factor: Dim = coefficient
            for other in others:
                factor = factor * other.expr()
            quotient = Expr.floor_divide(atom.left, atom.right)
            whole = factor * (quotient * atom.right)
            rest = dict(value.terms)
            del rest[monomial]
            if all(rest.get(m) == c for m, c in _terms(whole)):
                for m, _c in _terms(whole):
                    del rest[m]
                return _collect((*rest.items(), *_terms(factor * atom.left)))
    return value


def symbols_of(value: Dim) -> frozenset[Symbol]:
    """All symbols in an expression, also those inside its compound atoms."""
    if isinstance(value, int):
        return _NONE
    if value._symbols is None:
        value._symbols = frozenset(atom for atom in atoms_of(value) if isinstance(atom, Symbol))
    return value._symbols


_NONE: frozenset[Symbol] = frozenset()


def atoms_of(value: Dim) -> set[Atom]:
    found: set[Atom] = set()
    if isinstance(value, Expr):
        for monomial, _ in value.terms:
            for atom in monomial:
                found.add(atom)
                if isinstance(atom, Compound):
                    found |= atoms_of(atom.left) | atoms_of(atom.right)
    return found


def split(left: Dim, right: Dim) -> tuple[Dim, Dim]:
    """left = whole * right + rest, moving every term that right divides into `whole`."""
    divisor = _terms(right)
    if len(divisor) != 1:
        quotient = _divide_polynomial(left, right)
        return (quotient, 0) if quotient is not None else (0, left)
    factors, scale = divisor[0]
    whole: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for monomial, coefficient in _terms(left):
        remaining = _without(monomial, factors)
        if remaining is None:
            rest.append((monomial, coefficient))
            continue
        quotient, left_over = divmod(coefficient, scale)
        whole.append((remaining, quotient))
        if left_over:
            rest.append((monomial, left_over))
    return _collect(whole), _collect(rest)


def exact_quotient(left: Dim, right: Dim) -> Dim | None:
    """Return q with left = right * q, or None. Compound atoms count as variables."""
    divisor = _terms(right)
    if not divisor:
        return None
    factors, scale = min(divisor, key=_monomial_key)
    whole: Dim = 0
    while left != 0:
        monomial, coefficient = min(_terms(left), key=_monomial_key)
        remaining = _without(monomial, factors)
        if remaining is None or coefficient % scale:
            return None
        term = _collect([(remaining, coefficient // scale)])
        rest = left - term * right
        if rest != 0 and _monomial_key(min(_terms(rest), key=_monomial_key)) <= _monomial_key((monomial, 0)):
            return None  # would not terminate: the order of monomials is not compatible with multiplication here
        whole, left = whole + term, rest
    return whole


def _without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    remaining = list(monomial)
    for factor in factors:
        if factor not in remaining:
            return None
        remaining.remove(factor)
    return tuple(remaining)


def _divide_polynomial(left: Dim, right: Dim) -> Dim | None:
    """The exact quotient of two polynomials, or None."""
    if isinstance(left, int) or any(isinstance(atom, Compound) for atom in atoms_of(left) | atoms_of(right)):
        return None
    known = {symbol.name: symbol for symbol in symbols_of(left)}
    if not symbols_of(right) <= symbols_of(left):
        return None
    names = sorted(known)
    quotient = _quotient(*(tuple(_powers(value, names)) for value in (left, right)))
    if quotient is None:
        return None
    return _collect(
        (tuple(known[name] for name, power in zip(names, powers, strict=True) for _ in range(power)), coefficient)
        for powers, coefficient in quotient
    )


Powers = tuple[tuple[tuple[int, ...], int], ...]


def _powers(value: Dim, names: list[str]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the terms of a polynomial as exponents of its variables and a coefficient."""
    for monomial, coefficient in _terms(value):
        found = [atom.name for atom in monomial if isinstance(atom, Symbol)]
        yield tuple(found.count(name) for name in names), coefficient


@lru_cache(maxsize=4096)
def _quotient(left: Powers, right: Powers) -> Powers | None:
    """Return the exact quotient of two polynomials with integer coefficients, or None. The only use of sympy."""
    import sympy

    variables = sympy.symbols(f"s0:{len(left[0][0])}", integer=True)
    quotient, rest = sympy.div(*(sympy.Poly(dict(item), *variables) for item in (left, right)))
    if not rest.is_zero or not all(coefficient.is_integer for coefficient in quotient.coeffs()):
        return None
    return tuple((powers, int(coefficient)) for powers, coefficient in quotient.terms())


def product(dims: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def transform(
    value: Dim, replace: Callable[[Any], Dim | None], compound: Mapping[str, Callable[[Dim, Dim], Dim]]
) -> Dim:
    """Return the expression with each atom replaced by `replace`. Where that returns None, a symbol stays and a
    compound atom is rebuilt from its transformed operands by `compound`."""
    if isinstance(value, int):
        return value
    total: Dim = 0
    for monomial, coefficient in value.terms:
        factor: Dim = coefficient
        for atom in monomial:
            new = replace(atom)
            if new is not None:
                factor = factor * new
            elif isinstance(atom, Symbol):
                factor = factor * atom.expr()
            else:
                left, right = transform(atom.left, replace, compound), transform(atom.right, replace, compound)
                factor = factor * compound[atom.operator](left, right)
        total = total + factor
    return total


# On integers. Divisors are zero only in loops of zero iterations.
NUMBERS: dict[str, Callable[[int, int], int]] = {
    "//": lambda left, right: left // right if right else 0,
    "%": lambda left, right: left % right if right else 0,
    "min": min,
    "max": max,
}


def evaluate(value: Dim, sizes: Mapping[str, int]) -> int:
    """Return the value of an expression, given the value of every symbol."""
    if isinstance(value, int):
        return value
    total = 0
    for monomial, coefficient in value.terms:
        factor = coefficient
        for atom in monomial:
            if isinstance(atom, Symbol):
                factor *= sizes[atom.name]
            else:
                left, right = evaluate(atom.left, sizes), evaluate(atom.right, sizes)
                factor *= NUMBERS[atom.operator](left, right)
        total += factor
    return total


def contiguous_strides(shape: Iterable[Dim]) -> tuple[Dim, ...]:
    """Row-major strides, in elements."""
    strides: list[Dim] = []
    running: Dim = 1
    for dim in reversed(tuple(shape)):
        strides.append(running)
        running = running * dim
    return tuple(reversed(strides))


def same(left: Dim, right: Dim) -> bool:
    """Whether two sizes are provably equal."""
    return left == right
