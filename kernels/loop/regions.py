"""Describe the elements that a kernel touches: places over loop variables, and boxes of places.

A place is seen in views of a buffer: its dims, the strides that its accesses have, or one line of memory. In each an
element is a tuple of numbers, of which each is less than the view's size there, so two elements are the same if all of
their numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from ...ir.proofs import ceil_divide, maximum, minimum, substitute
from ...ir.symbolic import Compound, Dim, Expr, Symbol, contiguous_strides, exact_quotient, product, symbols_of
from .facts import Facts, Variable, direction
from .ir import Buffer, Matrix, Statement
from .roles import Element, blocks, elements

View = tuple[tuple[Dim, Dim], ...]  # for each dim how far apart its elements are, and how many there are
Place = tuple[Dim, ...]  # an element in a view
Box = tuple[tuple[Dim, Dim], ...]  # for each dim where it begins, and where it ends


@dataclass(frozen=True)
class Access:
    """Elements that a statement reads or writes: one for each value of the variables that `facts` knows."""

    buffer: Buffer
    facts: Facts
    flat: Dim  # the place in one line of memory
    index: Place | None  # the same in the buffer's own dims, as the access has them


def accesses(statement: Statement, facts: Facts) -> tuple[list[Access], list[Access]]:
    """Return the accesses of a statement itself: reads, writes."""
    reads: list[Access] = []
    writes: list[Access] = []
    for item in elements(statement):
        access = element(item, facts)
        reads += [access] * item.reads
        writes += [access] * item.writes
    for found in blocks(statement):
        (writes if found.writes else reads).append(block(found.matrix, found.rows, found.columns, facts))
    return reads, writes


def element(item: Element, facts: Facts) -> Access:
    flat: Dim = 0
    for position, stride in zip(item.place, contiguous_strides(item.buffer.shape), strict=True):
        flat = flat + position * stride
    return Access(known_buffer(item.buffer, facts), facts, facts.known(flat), tuple(map(facts.known, item.place)))


def known_buffer(buffer: Buffer, facts: Facts) -> Buffer:
    return replace(buffer, shape=tuple(map(facts.known, buffer.shape)))


def block(matrix: Matrix, rows: Dim, columns: Dim, facts: Facts) -> Access:
    """Return the access to all elements of a matrix; of a packed one, in whole panels."""
    together = 2 if matrix.panel and matrix.buffer.dtype.bytes == 2 else 1
    flat = matrix.offset
    steps = [("%row", ceil_divide(rows, together), matrix.row_stride * together)]
    if matrix.panel:
        steps.append(("%panel", ceil_divide(columns, matrix.panel), matrix.column_stride))
        steps.append(("%lane", matrix.panel * together, 1))
    else:
        steps.append(("%column", columns, matrix.column_stride))
    for name, count, stride in steps:
        facts = facts.inside(name, 0, count)
        flat = flat + Symbol(name).expr() * stride
    return Access(known_buffer(matrix.buffer, facts), facts, facts.known(flat), None)


# Views


def own_view(buffer: Buffer) -> View:
    return tuple(zip(contiguous_strides(buffer.shape), buffer.shape, strict=True))


def views(buffer: Buffer, found: Iterable[Access]) -> list[View]:
    """Return the views of a buffer in which its accesses may have simple indices, the linear view last."""
    total = product(buffer.shape)
    result = [own_view(buffer)]
    strides: list[Dim] = []
    for access in found:
        if access.buffer.shape != buffer.shape:
            result.append(own_view(access.buffer))
        for variable in access.facts.variables.values():
            step = access.flat.coefficient(variable.symbol) if isinstance(access.flat, Expr) else 0
            if step is not None and step != 0:
                strides.append(step if access.facts.at_least_zero(step) else -step)
    chain: list[Dim] = [1]
    pending = [item for item in dict.fromkeys(strides) if item != 1 and exact_quotient(total, item) is not None]
    while pending:
        least = next((item for item in pending if _divides_all(item, pending, chain[-1])), None)
        if least is None:
            break
        pending = [item for item in pending if item != least]
        chain.append(least)
    chain.append(total)
    sizes = [exact_quotient(after, before) for before, after in zip(chain, chain[1:])]
    result.append(tuple((stride, size) for stride, size in zip(chain, sizes) if size is not None)[::-1])
    result.append(((1, total),))
    return list(dict.fromkeys(result))


def _divides_all(one: Dim, others: Sequence[Dim], below: Dim) -> bool:
    return exact_quotient(one, below) is not None and all(exact_quotient(item, one) is not None for item in others)


def seen(access: Access, view: View) -> Place | None:
    """Return the index of an access in a view; None if it is not provably in range there."""
    if access.index is not None and view == own_view(access.buffer):
        return access.index
    facts, rest, place = access.facts, access.flat, []
    for stride, _ in view[:-1]:
        digit: Dim = 0
        for monomial, coefficient in rest.terms if isinstance(rest, Expr) else [((), rest)]:
            term = product(atom.expr() for atom in monomial) * coefficient
            found = exact_quotient(term, stride)
            if found is None and isinstance(term, int) and isinstance(stride, int) and stride:
                found = term // stride
            if found is not None:
                digit = digit + found
        rest = rest - digit * stride
        if not facts.within(rest, stride):
            return None
        place.append(digit)
    return (*place, rest)


# Boxes


def united(facts: Facts, box: Box, sizes: Sequence[Dim], keep: int) -> Box | None:
    """Unite a box over all values of its variables but the first `keep`; None if that is no box, or may be empty."""
    variables = list(facts.variables.values())
    for number in reversed(range(keep, len(variables))):
        variable = variables[number]
        here, outer = facts.outside(number + 1), facts.outside(number)
        box = clipped(here, box, sizes)
        moves = any(variable.symbol in symbols_of(end) for ends in box for end in ends)
        if not variable.counts:
            if moves:
                return None
        elif not moves:
            if not outer.at_least_zero(variable.stop - variable.start - 1):
                return None
        elif any(variable.symbol in symbols_of(item) for item in facts.cut):
            return None
        else:
            found = joined(facts.outside(number + 1, shorter=True), outer, variable, box)
            if found is None:
                return None
            box = found
    return clipped(facts.outside(keep), box, sizes)


def joined(facts: Facts, outer: Facts, variable: Variable, box: Box) -> Box | None:
    """Unite the boxes of all iterations of a variable, where they differ in one dim only; else None."""
    along = [dim for dim, ends in enumerate(box) if any(variable.symbol in symbols_of(end) for end in ends)]
    if len(along) != 1:
        return None
    ends = _joined(facts, outer, variable, box[along[0]])
    return None if ends is None else (*box[: along[0]], ends, *box[along[0] + 1 :])


def clipped(facts: Facts, box: Box, sizes: Sequence[Dim]) -> Box:
    """Return a box clipped to the buffer: ends that are at or beyond the buffer's become those."""
    return tuple(
        (
            0 if low != 0 and isinstance(low, Expr) and facts.at_least_zero(-low) else low,
            size if high != size and isinstance(high, Expr) and facts.at_least_zero(high - size) else high,
        )
        for (low, high), size in zip(box, sizes, strict=True)
    )


def _joined(facts: Facts, outer: Facts, variable: Variable, ends: tuple[Dim, Dim]) -> tuple[Dim, Dim] | None:
    """Unite the intervals of all iterations, where each begins at or before the end of another; else None."""
    symbol = variable.symbol
    high, roof = _parts(ends[1], "min", symbol)
    # From min(a, c) to min(b, c) is from a to min(b, c).
    start, ceiling = _parts(ends[0], "min", symbol)
    low, floor = _parts(
        start if start is not None and all(item in roof for item in ceiling) else ends[0], "max", symbol
    )
    if low is None or high is None:
        return None
    following = {symbol: symbol.expr() + 1}
    ways = (
        (high - substitute(low, following), variable.start, variable.last),  # ascending
        (substitute(high, following) - low, variable.last, variable.start),
    )
    still = symbol not in symbols_of(low) or symbol not in symbols_of(high)  # one iteration has the whole interval
    falls = direction(low, symbol) == -1
    for gap, first, last in ways[1:] if falls else ways[:1]:
        if not still and not facts.at_least_zero(gap):
            continue
        bottom, top = substitute(low, {symbol: first}), substitute(high, {symbol: last})
        if floor:
            most = reduce(maximum, floor)
            bottom = most if outer.at_least_zero(most - bottom) else maximum(bottom, most)
        if roof:
            least = reduce(minimum, roof)
            top = least if outer.at_least_zero(top - least) else minimum(top, least)
        # Where the loop does not run, the interval has to be empty.
        if (not still and gap == 0) or outer.at_least_zero(variable.stop - variable.start - 1):
            return bottom, top
        if outer.beside(list(outer.variables.values()), [variable.start - variable.stop]).at_least_zero(bottom - top):
            return bottom, top
    return None


def _parts(value: Dim, operator: str, symbol: Symbol) -> tuple[Dim | None, list[Dim]]:
    """Return the operand of a minimum (or maximum) that depends on a symbol, and the others."""
    pending, moving, still = [value], [], []
    while pending:
        item = pending.pop()
        atom = item.atom if isinstance(item, Expr) else None
        split_sides = list(_sides(item, operator))
        if isinstance(atom, Compound) and atom.operator == operator:
            pending += [atom.left, atom.right]
        elif split_sides:
            pending += split_sides
        elif symbol in symbols_of(item):
            moving.append(item)
        else:
            still.append(item)
    if not moving:
        return value, []
    return (moving[0] if len(moving) == 1 else value if not still else None), still if len(moving) == 1 else []


def _sides(value: Dim, operator: str) -> Iterator[Dim]:
    """Yield the sides of rest + min(a, b): rest + a and rest + b."""
    if isinstance(value, int):
        return
    for monomial, coefficient in value.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        wanted = operator if coefficient > 0 else {"min": "max", "max": "min"}[operator]
        if isinstance(atom, Compound) and atom.operator == wanted:
            rest = value - atom.expr() * coefficient
            yield rest + atom.left * coefficient
            yield rest + atom.right * coefficient
            return


def contains(facts: Facts, box: Box, place: Place) -> bool:
    """Whether an element lies in a box."""
    return all(
        (low == 0 or facts.at_least_zero(at - low)) and facts.at_least_zero(high - 1 - at)
        for at, (low, high) in zip(place, box, strict=True)
    )


def covers(facts: Facts, boxes: Sequence[Box], whole: Box) -> bool:
    """Whether the union of boxes covers a box."""
    return any(_inside(facts, whole, item) for item in boxes) or any(
        _inside(facts, whole, item) for item in merged(facts, boxes)
    )


def merged(facts: Facts, boxes: Sequence[Box]) -> list[Box]:
    """Merge boxes whose union is a box."""
    pending = list(dict.fromkeys(boxes))
    while True:
        found = next(
            (
                (one, other, both)
                for position, one in enumerate(pending)
                for other in pending[position + 1 :]
                if (both := _merged(facts, one, other)) is not None
            ),
            None,
        )
        if found is None:
            return pending
        pending = [item for item in pending if item is not found[0] and item is not found[1]] + [found[2]]


def _inside(facts: Facts, inner: Box, outer: Box) -> bool:
    return any(low == high for low, high in inner) or all(
        facts.at_least_zero(one[0] - other[0]) and facts.at_least_zero(other[1] - one[1])
        for one, other in zip(inner, outer, strict=True)
    )


def _merged(facts: Facts, one: Box, other: Box) -> Box | None:
    """Return the union of two boxes if it is a box: they differ in one dim only and leave no gap there."""
    if _inside(facts, one, other):
        return other
    if _inside(facts, other, one):
        return one
    different = [dim for dim, (mine, its) in enumerate(zip(one, other, strict=True)) if mine != its]
    if len(different) != 1:
        return None
    (dim,) = different
    for first, second in ((one[dim], other[dim]), (other[dim], one[dim])):
        if facts.at_least_zero(first[1] - second[0]) and facts.at_least_zero(second[1] - first[1]):
            return (*one[:dim], (first[0], second[1]), *one[dim + 1 :])
    return None
