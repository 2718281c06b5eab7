"""Integer expressions over named symbols: tensor sizes in the graph IR, indices in the loop IR.

An `Expr` is a polynomial with integer coefficients. Its variables are atoms: a `Symbol`, or a floor
division, remainder, minimum or maximum of two expressions. A constant is never an `Expr` but an `int`,
so most programs, which have no symbolic size, never build one for a size.

Almost everything is affine and is handled here, in microseconds. sympy is asked only for the quotient of
two polynomials that no rule below can divide (it takes half a second to import), and this is the only
module that may import it.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from .caller import is_internal
from .errors import ShapeError


class SizeNeeded(ShapeError):
    """Python asked a symbolic size for its number; tracing starts again with the number at hand."""

    def __init__(self, size: Expr):
        super().__init__(f"the size {size} is not known while tracing, so Python cannot branch or calculate with it")
        self.size = size


class Symbol:
    """A name with a range, by which expressions are simplified: a symbol of the same name and another range is another
    one, so nothing that is remembered for the one answers for the other. One program never has both."""

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
    def sort_key(self) -> tuple:
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
        self._text: str | None = None  # every sum that it is in sorts by it
        self.weight: int = 1 + _weight(left) + _weight(right)

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
    def sort_key(self) -> tuple:
        return (1, repr(self))


Atom = Symbol | Compound
Monomial = tuple[Atom, ...]


def _weight(value: Dim) -> int:
    """How many compound atoms an expression has, those inside of others included."""
    if isinstance(value, int):
        return 0
    return sum(atom.weight for monomial, _ in value.terms for atom in monomial if isinstance(atom, Compound))


def _grouped(value: Dim) -> str:
    text = str(value)
    return (
        text if isinstance(value, int) and value >= 0 or text.isidentifier() or text[1:].isidentifier() else f"({text})"
    )


class Expr:
    """sum of coefficient * product of atoms, in a canonical order: equal expressions are equal objects' terms."""

    __slots__ = ("_hash", "_symbols", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]):
        self.terms = terms
        self._hash = hash(terms)
        self._symbols: frozenset[Symbol] | None = None  # symbols_of finds them when they are first asked for

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Expr):
            if self._hash == other._hash and self.terms == other.terms:
                return True
        elif not isinstance(other, int):
            return False
        # smelt's own code asks whether two sizes are the same expression; the user asks about the numbers.
        if not is_internal(sys._getframe(1).f_code.co_filename) and not differs(self, other):
            raise SizeNeeded(self)
        return False

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return str(self.terms[0][0][0])
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
    def symbol(self) -> Symbol | None:
        """The symbol that this expression is, if it is nothing else."""
        if len(self.terms) != 1 or self.terms[0][1] != 1 or len(self.terms[0][0]) != 1:
            return None
        atom = self.terms[0][0][0]
        return atom if isinstance(atom, Symbol) else None

    def _number(self, *others: Any) -> NoReturn:
        raise SizeNeeded(self)

    __bool__ = __int__ = __float__ = __index__ = __complex__ = _number
    __lt__ = __le__ = __gt__ = __ge__ = _number

    def _operand(self, other: Any) -> Dim | None:
        """What else an expression is calculated with; None for tensors, which know sizes themselves."""
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
        return NotImplemented if operand is None else floor_divide(self, operand)

    def __rfloordiv__(self, other: Dim) -> Dim:
        operand = self._operand(other)
        return NotImplemented if operand is None else floor_divide(operand, self)

    def __mod__(self, other: Dim) -> Dim:
        operand = self._operand(other)
        return NotImplemented if operand is None else remainder(self, operand)

    def __rmod__(self, other: Dim) -> Dim:
        operand = self._operand(other)
        return NotImplemented if operand is None else remainder(operand, self)

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


def _atom_key(atom: Atom) -> tuple:
    return atom.sort_key


def _monomial_key(item: tuple[Monomial, int]) -> tuple:
    # Highest degree first, the constant last: "N*M + 2*N + 1".
    return (-len(item[0]), [atom.sort_key for atom in item[0]])


def _terms(value: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(value, Expr):
        return value.terms
    return (((), int(value)),) if value else ()


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
    """d*(e // d) + e % d is e."""
    for monomial, coefficient in value.terms:
        for atom in monomial:
            if not (isinstance(atom, Compound) and atom.operator == "%"):
                continue
            others = list(monomial)
            others.remove(atom)
            factor: Dim = coefficient
            for other in others:
                factor = factor * Expr((((other,), 1),))
            quotient = floor_divide(atom.left, atom.right)
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


def limit(value: Dim, upper: bool, keep: frozenset[Symbol] = frozenset()) -> Dim | None:
    """The largest (or smallest) value an expression takes, with the symbols of `keep` left symbolic."""
    if isinstance(value, int):
        return value
    total: Dim = 0
    for monomial, coefficient in value.terms:
        bound = _product_limit(monomial, upper if coefficient > 0 else not upper, keep)
        if bound is None:
            return None
        total = total + bound * coefficient
    return total


def _product_limit(monomial: Monomial, upper: bool, keep: frozenset[Symbol]) -> Dim | None:
    result: Dim = 1
    for atom in monomial:
        if isinstance(atom, Symbol) and atom in keep:
            if len(monomial) > 1 and (atom.lower is None or atom.lower < 0):
                return None
            result = result * atom.expr()
            continue
        bound = _atom_limit(atom, upper, keep)
        if bound is None or (len(monomial) > 1 and not non_negative(_atom_limit(atom, False, keep))):
            return None
        result = result * bound
    return result


def _atom_limit(atom: Atom, upper: bool, keep: frozenset[Symbol]) -> Dim | None:
    if isinstance(atom, Symbol):
        if not upper:
            return atom.lower
        return None if atom.upper is None else limit(atom.upper, True, keep)
    if atom.operator == "%":
        return limit(atom.right - 1, True, keep) if upper else 0
    left = limit(atom.left, upper, keep)
    if atom.operator == "//":
        return None if left is None or not isinstance(atom.right, int) else floor_divide(left, atom.right)
    right = limit(atom.right, upper, keep)
    if (atom.operator == "min") == upper:
        if isinstance(left, int) and isinstance(right, int):
            return min(left, right) if upper else max(left, right)
        return left if right is None else right if left is None or isinstance(right, int) else left
    return None if left is None or right is None else (maximum if upper else minimum)(left, right)


def non_negative(value: Dim | None) -> bool:
    """Whether an expression is provably at least zero."""
    if value is None:
        return False
    if isinstance(value, int):
        return value >= 0
    return _is_bounded(value) or (_weight(value) > 0 and _is_proved(value))


def _is_bounded(value: Dim) -> bool:
    """Whether the ranges of symbols alone prove that an expression is at least zero."""
    low = limit(value, False)
    return isinstance(low, int) and low >= 0


PROOF = 128  # compound atoms in all cases that a proof looks at: sizes of slices of slices double with each


@lru_cache(maxsize=4096)
def _is_proved(value: Expr) -> bool:
    return _by_cases(value, [PROOF])


def _by_cases(value: Dim, left: list[int]) -> bool:
    """Whether an expression is at least zero whichever operand its minima and maxima are: N - max(N - 4, 0) is, though
    N and the maximum alone have no bounds that tell. `left` is what the proof may still look at."""
    if isinstance(value, int):
        return value >= 0
    if _is_bounded(value):
        return True
    left[0] -= _weight(value)
    if left[0] < 0:
        return False
    for monomial, coefficient in value.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, Compound) and atom.operator in ("min", "max"):
            sides = atom.left, atom.right
            if all(_by_cases(_with(value, atom, side), left) for side in sides):
                return True
            rest = value - Expr(((monomial, coefficient),))
            upwards = (atom.operator == "max") == (coefficient > 0)  # the term is at least what it is of either side
            return upwards and any(_by_cases(rest + side * coefficient, left) for side in sides)
    return all(
        coefficient > 0 and all(_is_not_below(atom, left) for atom in atoms) for atoms, coefficient in value.terms
    )


def _with(value: Dim, atom: Compound, side: Dim) -> Dim:
    """The expression with an atom replaced, wherever it is. Its minima and maxima are the next cases: no proof within
    the proof decides them."""
    return transform(value, {atom: side}.get, COMPOUND_AS_IT_IS)


def _is_not_below(atom: Atom, left: list[int]) -> bool:
    if isinstance(atom, Compound) and atom.operator == "//":
        return isinstance(atom.right, int) and atom.right > 0 and _by_cases(atom.left, left)
    return non_negative(_atom_limit(atom, False, frozenset()))


def fits(value: Dim, bound: Dim) -> bool:
    """Whether 0 <= value < bound, provably. The bound's own symbols stay symbolic in the proof."""
    if isinstance(value, int) and isinstance(bound, int):
        return 0 <= value < bound
    keep = frozenset(symbols_of(bound))
    high = limit(value, True, keep)
    return non_negative(value) and high is not None and non_negative(bound - 1 - high)


def floor_divide(left: Dim, right: Dim) -> Dim:
    if right == 0:
        return 0  # only loops over nothing ask
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if right == 1:
        return left
    if left == 0:
        return 0
    if left == right:
        return 1
    whole, rest = _split(left, right)
    if rest == 0:
        return whole
    if fits(rest, right):
        return whole
    if whole != 0:
        return whole + floor_divide(rest, right)
    # (e // a) // b = e // (a * b)
    if isinstance(left, Expr) and len(left.terms) == 1 and left.terms[0][1] == 1 and len(left.terms[0][0]) == 1:
        atom = left.terms[0][0][0]
        if isinstance(atom, Compound) and atom.operator == "//":
            return floor_divide(atom.left, atom.right * right)
    return Expr((((Compound("//", left, right),), 1),))


def remainder(left: Dim, right: Dim) -> Dim:
    if right == 0:
        return 0
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    if right == 1 or left == 0 or left == right:
        return 0
    _whole, rest = _split(left, right)
    if rest == 0 or fits(rest, right):
        return rest
    if isinstance(rest, int) and isinstance(right, int):
        return rest % right
    if isinstance(rest, Expr) and len(rest.terms) == 1 and rest.terms[0][1] == 1 and len(rest.terms[0][0]) == 1:
        atom = rest.terms[0][0][0]
        # (e % (a * b)) % b = e % b
        if isinstance(atom, Compound) and atom.operator == "%" and _split(atom.right, right)[1] == 0:
            return remainder(atom.left, right)
    return Expr((((Compound("%", rest, right),), 1),))


def _split(left: Dim, right: Dim) -> tuple[Dim, Dim]:
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
    """A polynomial by the powers of its variables."""
    for monomial, coefficient in _terms(value):
        found = [atom.name for atom in monomial if isinstance(atom, Symbol)]
        yield tuple(found.count(name) for name in names), coefficient


@lru_cache(maxsize=4096)
def _quotient(left: Powers, right: Powers) -> Powers | None:
    """The exact quotient of two polynomials with integer coefficients, or None. The one use of sympy."""
    import sympy

    variables = sympy.symbols(f"s0:{len(left[0][0])}", integer=True)
    quotient, rest = sympy.div(*(sympy.Poly(dict(item), *variables) for item in (left, right)))
    if not rest.is_zero or not all(coefficient.is_integer for coefficient in quotient.coeffs()):
        return None
    return tuple((powers, int(coefficient)) for powers, coefficient in quotient.terms())


def _contains(operator: str, whole: Dim, part: Dim) -> bool:
    """Whether `whole` is a minimum (or maximum) with `part` among its operands: taking it again changes nothing."""
    if isinstance(whole, int) or len(whole.terms) != 1:
        return False
    monomial, coefficient = whole.terms[0]
    atom = monomial[0]
    if coefficient != 1 or len(monomial) != 1 or not isinstance(atom, Compound) or atom.operator != operator:
        return False
    return any(side == part or _contains(operator, side, part) for side in (atom.left, atom.right))


def minimum(left: Dim, right: Dim) -> Dim:
    return _extreme("min", left, right, non_negative)


def maximum(left: Dim, right: Dim) -> Dim:
    return _extreme("max", left, right, non_negative)


def _extreme(operator: str, left: Dim, right: Dim, proves: Callable[[Dim], bool]) -> Dim:
    """The minimum or the maximum, which is one of the two where its difference to the other is proved to be one."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right) if operator == "min" else max(left, right)
    gap = right - left if operator == "min" else left - right
    if proves(gap) or _contains(operator, left, right):
        return left
    if proves(-gap) or _contains(operator, right, left):
        return right
    return Expr((((Compound(operator, left, right),), 1),))


def ceil_divide(left: Dim, right: Dim) -> Dim:
    return floor_divide(left + right - 1, right)


def product(dims: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def transform(
    value: Dim, replace: Callable[[Any], Dim | None], compound: Mapping[str, Callable[[Dim, Dim], Dim]] | None = None
) -> Dim:
    """The expression with atoms replaced; None keeps one, with what is replaced inside of it. `compound` makes those
    anew: it is COMPOUND if it is not given."""
    if isinstance(value, int):
        return value
    made = COMPOUND if compound is None else compound
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
                left, right = transform(atom.left, replace, made), transform(atom.right, replace, made)
                factor = factor * made[atom.operator](left, right)
        total = total + factor
    return total


COMPOUND: dict[str, Callable[[Dim, Dim], Dim]] = {
    "//": floor_divide,
    "%": remainder,
    "min": minimum,
    "max": maximum,
}

# The same, but the ranges of symbols alone say which of two is the smaller one.
COMPOUND_AS_IT_IS = COMPOUND | {
    "min": lambda left, right: _extreme("min", left, right, _is_bounded),
    "max": lambda left, right: _extreme("max", left, right, _is_bounded),
}


def substitute(value: Dim, mapping: Mapping[Symbol, Dim]) -> Dim:
    return value if isinstance(value, int) else transform(value, mapping.get)


def evaluate(value: Dim, sizes: Mapping[str, int]) -> int:
    """The number an expression stands for, given every symbol's value."""
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
                factor *= int(COMPOUND[atom.operator](left, right))  # type: ignore[arg-type]
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


def differs(left: Dim, right: Dim) -> bool:
    """Whether two sizes are provably different (N >= 2 differs from 1, N from N + 1)."""
    gap = left - right
    if isinstance(gap, int):
        return gap != 0
    return non_negative(gap - 1) or non_negative(-gap - 1)


def is_multiple(value: Dim, factor: int) -> bool:
    """Whether an expression is provably a multiple of a number."""
    value = _without_remainders(value, factor)
    if isinstance(value, int):
        return value % factor == 0
    for monomial, coefficient in value.terms:
        if coefficient % factor == 0:
            continue
        if not any(
            isinstance(atom, Compound)
            and atom.operator in ("min", "max")
            and is_multiple(atom.left, factor)
            and is_multiple(atom.right, factor)
            for atom in monomial
        ):
            return False
    return True


def _without_remainders(value: Dim, factor: int) -> Dim:
    """e instead of e % m where m is a multiple of the factor: the difference is one, too."""
    if isinstance(value, int):
        return value
    total: Dim = 0
    for monomial, coefficient in value.terms:
        term: Dim = coefficient
        for atom in monomial:
            if isinstance(atom, Compound) and atom.operator == "%" and is_multiple(atom.right, factor):
                term = term * _without_remainders(atom.left, factor)
            else:
                term = term * Expr((((atom,), 1),))
        total = total + term
    return total
