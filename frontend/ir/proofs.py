"""Proofs about expressions from the ranges of symbols, and the quotients, remainders, minima and maxima that these
simplify.

A bound is found term by term (`limit`). Where minima and maxima hide it, proofs go by cases: one for each operand of
such an atom. Both build quotients and extremes of smaller expressions, so they share this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from .record import Record
from .symbolic import Atom, Compound, Dim, Expr, Monomial, Symbol, product, split, symbols_of, transform, weight


def limit(value: Dim, upper: bool, keep: frozenset[Symbol] = frozenset()) -> Dim | None:
    """Return the upper (or lower) bound of an expression, the symbols of `keep` left symbolic; None if unbounded."""
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
        if not _is_bounded(atom.right):
            return None
        return limit(atom.right - 1, True, keep) if upper else 0
    left = limit(atom.left, upper, keep)
    if atom.operator == "//":
        # An integer divisor is positive here: floor_divide has moved its sign to the dividend.
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
    return _is_bounded(value) or _is_sum_of_gaps(value) or (weight(value) > 0 and _is_proved(value))


def _is_sum_of_gaps(value: Expr) -> bool:
    """Whether an expression becomes a sum of non-negative terms when each atom is written as its lower bound plus a
    gap: M * N - 2 * M is M * (N - 2), for N >= 2."""
    if all(len(monomial) < 2 for monomial, _ in value.terms):
        return False  # an affine expression's bound is exact
    least: dict[Atom, int] = {}
    for atom in {atom for monomial, _ in value.terms for atom in monomial}:
        low = _atom_limit(atom, False, frozenset())
        if not isinstance(low, int):
            return False
        least[atom] = low
    total: dict[Monomial, int] = {}
    for monomial, coefficient in value.terms:
        # With gaps n, m >= 0: (n + 2) * (m + 3) = n * m + 3 * n + 2 * m + 6.
        parts: dict[Monomial, int] = {(): coefficient}
        for atom in monomial:
            new: dict[Monomial, int] = {}
            for atoms, factor in parts.items():
                for key, more in (((*atoms, atom), factor), (atoms, factor * least[atom])):
                    new[key] = new.get(key, 0) + more
            parts = new
        for atoms, factor in parts.items():
            total[atoms] = total.get(atoms, 0) + factor
    return all(factor >= 0 for factor in total.values())


def _is_bounded(value: Dim) -> bool:
    """Whether the ranges of symbols alone prove that an expression is at least zero."""
    low = limit(value, False)
    return isinstance(low, int) and low >= 0


OPPOSITE = {"min": "max", "max": "min"}


class ProofLimits(Record):
    """Work after which a proof gives up and answers "not proved", which is safe. No measurement is recorded."""

    atoms: int = 128  # compound atoms over all cases of one proof: sizes of nested slices double at each level
    expressions: int = 256  # that one proof about loops examines
    relaxed: int = 32  # expressions in which a proof about loops replaces a minimum or maximum by one side
    boxes: int = 64  # index boxes of one buffer; more of them are not merged


LIMITS = ProofLimits()


@lru_cache(maxsize=4096)
def _is_proved(value: Expr) -> bool:
    return _by_cases(value, [LIMITS.atoms])


def _by_cases(value: Dim, left: list[int]) -> bool:
    """Whether an expression is at least zero for every choice of operand in its minima and maxima. N - max(N - 4, 0)
    is, which the separate bounds of N and of the maximum do not show. `left`: the proof's remaining budget of atoms."""
    if isinstance(value, int):
        return value >= 0
    if _is_bounded(value):
        return True
    left[0] -= weight(value)
    if left[0] < 0:
        return False
    # A term bounded below by either of its sides comes last: which side proves the claim depends on the other cases.
    extremes = [
        (coefficient > 0 if atom.operator == "max" else coefficient < 0, atom, coefficient)
        for (atom, *others), coefficient in (item for item in value.terms if item[0])
        if not others and isinstance(atom, Compound) and atom.operator in OPPOSITE
    ]
    if extremes:
        upwards, atom, coefficient = min(extremes, key=lambda item: item[0])
        sides = atom.left, atom.right
        if all(_by_cases(_with(value, atom, side), left) for side in sides):
            return True
        rest = value - atom.expr() * coefficient
        return upwards and any(_by_cases(rest + side * coefficient, left) for side in sides)
    if any(_by_cases(below, left) for below in _without_quotients(value)):
        return True
    return all(
        coefficient > 0 and all(_is_not_below(atom, left) for atom in atoms) for atoms, coefficient in value.terms
    )


def _without_quotients(value: Expr) -> Iterator[Dim]:
    """Yield lower bounds, times a positive number, of an expression that subtracts e // k, free of that quotient. If
    e // d occurs and d divides k: e // k = (e // d) // (k // d) <= (e // d) / (k // d). Always: all quotients by k go,
    by (e - k + 1) / k <= e // k <= e / k."""
    quotients = [
        (atoms[0], coefficient)
        for atoms, coefficient in value.terms
        if len(atoms) == 1 and isinstance(atoms[0], Compound) and atoms[0].operator == "//"
    ]
    found = ((atom, atom.right) for atom, factor in quotients if factor < 0 and isinstance(atom.right, int))
    atom, divisor = next(((atom, right) for atom, right in found if right > 0), (None, 0))
    if atom is None:
        return
    for other, _ in quotients:
        finer = other.right
        if other.left == atom.left and isinstance(finer, int) and 0 < finer < divisor and divisor % finer == 0:
            factor = next(factor for item, factor in quotients if item == atom)
            yield (value - atom.expr() * factor) * (divisor // finer) + other.expr() * factor
    total: Dim = 0
    for atoms, coefficient in value.terms:
        only = atoms[0] if len(atoms) == 1 else None
        if isinstance(only, Compound) and only.operator == "//" and only.right == divisor:
            total = total + (only.left if coefficient < 0 else only.left - divisor + 1) * coefficient
        else:
            total = total + product(item.expr() for item in atoms) * (coefficient * divisor)
    yield total


def _with(value: Dim, atom: Compound, side: Dim) -> Dim:
    """Return the expression with every occurrence of an atom replaced. Its minima and maxima are left to the next
    cases: simplifying them here would start a proof inside the proof."""
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


def differs(left: Dim, right: Dim) -> bool:
    """Whether two sizes are provably different (N >= 2 differs from 1, N from N + 1)."""
    gap = left - right
    if isinstance(gap, int):
        return gap != 0
    return non_negative(gap - 1) or non_negative(-gap - 1)


def _is_negative(divisor: Dim) -> bool:
    """Whether a divisor is provably negative; callers then negate both operands."""
    if isinstance(divisor, int):
        return divisor < 0
    return any(coefficient < 0 for _, coefficient in divisor.terms) and non_negative(-1 - divisor)


def floor_divide(left: Dim, right: Dim) -> Dim:
    if right == 0:
        return 0  # reached only in loops of zero iterations
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if _is_negative(right):
        return floor_divide(-left, -right)
    if right == 1:
        return left
    if left == 0:
        return 0
    if left == right:
        return 1
    whole, rest = split(left, right)
    if rest == 0:
        return whole
    if fits(rest, right):
        return whole
    if fits(rest + right, right):
        return whole - 1
    if whole != 0:
        return whole + floor_divide(rest, right)
    # (e // a) // b = e // (a * b) for positive b
    if isinstance(left, Expr):
        atom = left.atom
        if isinstance(atom, Compound) and atom.operator == "//" and non_negative(right - 1):
            return floor_divide(atom.left, atom.right * right)
    return Compound("//", left, right).expr()


def remainder(left: Dim, right: Dim) -> Dim:
    if right == 0:
        return 0
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    if _is_negative(right):
        return -remainder(-left, -right)
    if right == 1 or left == 0 or left == right:
        return 0
    _whole, rest = split(left, right)
    if rest == 0 or fits(rest, right):
        return rest
    if isinstance(rest, int) and isinstance(right, int):
        return rest % right
    if isinstance(rest, Expr):
        atom = rest.atom
        # (e % (a * b)) % b = e % b
        if isinstance(atom, Compound) and atom.operator == "%" and split(atom.right, right)[1] == 0:
            return remainder(atom.left, right)
    return Compound("%", rest, right).expr()


def _contains(operator: str, whole: Dim, part: Dim) -> bool:
    """Whether `whole` is a minimum (or maximum) with `part` among its operands, so that taking it again is a no-op."""
    atom = None if isinstance(whole, int) else whole.atom
    if not isinstance(atom, Compound) or atom.operator != operator:
        return False
    return any(side == part or _contains(operator, side, part) for side in (atom.left, atom.right))


def minimum(left: Dim, right: Dim) -> Dim:
    return _extreme("min", left, right, non_negative)


def maximum(left: Dim, right: Dim) -> Dim:
    return _extreme("max", left, right, non_negative)


def _extreme(operator: str, left: Dim, right: Dim, proves: Callable[[Dim], bool]) -> Dim:
    """Return the minimum or the maximum: one of the operands if `proves` orders them, else a compound atom."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right) if operator == "min" else max(left, right)
    gap = right - left if operator == "min" else left - right
    if proves(gap) or _contains(operator, left, right):
        return left
    if proves(-gap) or _contains(operator, right, left):
        return right
    for one, other in ((left, right), (right, left)):
        for sides in _sides(operator, other):
            # An extreme of `one`, `side` and `rest`: `one` makes `side` redundant, so two operands are left.
            for side, rest in (sides, sides[::-1]):
                if proves(side - one if operator == "min" else one - side):
                    return _extreme(operator, *((one, rest) if one is left else (rest, one)), proves)
    return Compound(operator, left, right).expr()


def _sides(operator: str, value: Dim) -> Iterator[tuple[Dim, Dim]]:
    """Yield the pairs of which an expression is the minimum (or maximum): N - 4 and 6 for 5 + min(N - 9, 1)."""
    for monomial, coefficient in () if isinstance(value, int) else value.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, Compound) and atom.operator == (operator if coefficient > 0 else OPPOSITE[operator]):
            rest = value - atom.expr() * coefficient
            yield rest + atom.left * coefficient, rest + atom.right * coefficient


def ceil_divide(left: Dim, right: Dim) -> Dim:
    return floor_divide(left + right - 1, right)


COMPOUND: dict[str, Callable[[Dim, Dim], Dim]] = {
    "//": floor_divide,
    "%": remainder,
    "min": minimum,
    "max": maximum,
}

# The same, but minima and maxima are resolved by the ranges of symbols alone.
COMPOUND_AS_IT_IS = COMPOUND | {
    "min": lambda left, right: _extreme("min", left, right, _is_bounded),
    "max": lambda left, right: _extreme("max", left, right, _is_bounded),
}


def substitute(value: Dim, mapping: Mapping[Symbol, Dim]) -> Dim:
    return value if isinstance(value, int) else transform(value, mapping.get, COMPOUND)


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
    """Replace e % m by e where m is a multiple of the factor: their difference is a multiple, too."""
    if isinstance(value, int):
        return value
    total: Dim = 0
    for monomial, coefficient in value.terms:
        term: Dim = coefficient
        for atom in monomial:
            if isinstance(atom, Compound) and atom.operator == "%" and is_multiple(atom.right, factor):
                term = term * _without_remainders(atom.left, factor)
            else:
                term = term * atom.expr()
        total = total + term
    return total


Expr.floor_divide = staticmethod(floor_divide)
Expr.remainder = staticmethod(remainder)
Expr.differs = staticmethod(differs)
Expr.non_negative = staticmethod(non_negative)
