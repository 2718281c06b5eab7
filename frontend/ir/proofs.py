"""What the ranges of symbols prove about expressions, and the quotients, remainders, minima and maxima that are simple
for it.

A bound is found term by term (`limit`). Where minima and maxima hide it, proofs go by cases: one for each operand that
such an atom may be. Both ask for quotients and extremes of smaller expressions, so they are together in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from .symbolic import Atom, Compound, Dim, Expr, Monomial, Symbol, product, split, symbols_of, transform, weight


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
        if not _is_bounded(atom.right):
            return None
        return limit(atom.right - 1, True, keep) if upper else 0
    left = limit(atom.left, upper, keep)
    if atom.operator == "//":
        # Of a number that divides, the sign is known: floor_divide makes it positive.
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
    """Whether an expression is a sum of products of how far atoms are above their least values: M * N - 2 * M is
    M * (N - 2), for N >= 2."""
    if all(len(monomial) < 2 for monomial, _ in value.terms):
        return False  # its bound is exact
    least: dict[Atom, int] = {}
    for atom in {atom for monomial, _ in value.terms for atom in monomial}:
        low = _atom_limit(atom, False, frozenset())
        if not isinstance(low, int):
            return False
        least[atom] = low
    total: dict[Monomial, int] = {}
    for monomial, coefficient in value.terms:
        # (n + 2) * (m + 3) = n * m + 3 * n + 2 * m + 6, all of them at least zero.
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


@dataclass(frozen=True, slots=True)
class ProofLimits:
    """Where a proof gives up: it then says no, which is safe. No measurement is recorded."""

    atoms: int = 128  # compound ones, in all cases that a proof looks at: sizes of slices of slices double with each
    expressions: int = 256  # that one proof about loops looks at
    relaxed: int = 32  # expressions for which a proof about loops takes one side of a minimum or maximum without more
    boxes: int = 64  # of one buffer that no iteration of a loop is expected to put together


LIMITS = ProofLimits()


@lru_cache(maxsize=4096)
def _is_proved(value: Expr) -> bool:
    return _by_cases(value, [LIMITS.atoms])


def _by_cases(value: Dim, left: list[int]) -> bool:
    """Whether an expression is at least zero whichever operand its minima and maxima are: N - max(N - 4, 0) is, though
    N and the maximum alone have no bounds that tell. `left` is what the proof may still look at."""
    if isinstance(value, int):
        return value >= 0
    if _is_bounded(value):
        return True
    left[0] -= weight(value)
    if left[0] < 0:
        return False
    # A term that is at least what it is of either side comes last: which of them will do depends on the other cases.
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
    """Lower bounds of a multiple of an expression that subtracts e // k, without that quotient: by e // d where that
    is in the expression and d divides k, as e // k is (e // d) // (k // d), which is at most (e // d) / (k // d); and
    without all quotients by k, which are at most e / k and at least (e - k + 1) / k."""
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


def differs(left: Dim, right: Dim) -> bool:
    """Whether two sizes are provably different (N >= 2 differs from 1, N from N + 1)."""
    gap = left - right
    if isinstance(gap, int):
        return gap != 0
    return non_negative(gap - 1) or non_negative(-gap - 1)


def _is_negative(divisor: Dim) -> bool:
    """Whether a divisor is provably below zero: quotients and remainders are those by its opposite then."""
    if isinstance(divisor, int):
        return divisor < 0
    return any(coefficient < 0 for _, coefficient in divisor.terms) and non_negative(-1 - divisor)


def floor_divide(left: Dim, right: Dim) -> Dim:
    if right == 0:
        return 0  # only loops over nothing ask
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
    """Whether `whole` is a minimum (or maximum) with `part` among its operands: taking it again changes nothing."""
    atom = None if isinstance(whole, int) else whole.atom
    if not isinstance(atom, Compound) or atom.operator != operator:
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
    for one, other in ((left, right), (right, left)):
        for sides in _sides(operator, other):
            # It is one of three: of those that are proved not to be it, `one` is left to say so.
            for side, rest in (sides, sides[::-1]):
                if proves(side - one if operator == "min" else one - side):
                    return _extreme(operator, *((one, rest) if one is left else (rest, one)), proves)
    return Compound(operator, left, right).expr()


def _sides(operator: str, value: Dim) -> Iterator[tuple[Dim, Dim]]:
    """The pairs whose minimum (or maximum) an expression is: N - 4 and 6 for 5 + min(N - 9, 1)."""
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

# The same, but the ranges of symbols alone say which of two is the smaller one.
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
                term = term * atom.expr()
        total = total + term
    return total


Expr.floor_divide = staticmethod(floor_divide)
Expr.remainder = staticmethod(remainder)
Expr.differs = staticmethod(differs)
Expr.non_negative = staticmethod(non_negative)
