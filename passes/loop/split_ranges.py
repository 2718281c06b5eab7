"""Split the ranges of loops where comparisons of the loop variable change (index-set splitting)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...ir.proofs import non_negative
from ...ir.record import Record
from ...ir.symbolic import Dim, symbols_of
from ...ir.types import bool_
from ...kernels.loop.analysis import cost, step
from ...kernels.loop.ir import (
    Index,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    Operand,
    Register,
    Statement,
    Store,
    prefixes,
    used,
    with_body,
)
from ...kernels.loop.roles import Rewrite, defines
from ..registry import loop_pass
from .substitute import fresh_registers, renamed


class PartCosts(Record):
    """How much code a split may add. No measurement is recorded."""

    parts: int = 8  # loops made of one, at most
    growth: int = 2  # times the cost of the body that all parts together may have,
    spare: int = 16  # plus so many additions


COSTS = PartCosts()


@loop_pass("split_ranges")
def split_ranges(kernel: Kernel) -> Kernel:
    """Split a loop where comparisons of its variable change.

        serial %j in 0..3072 {                 serial %j in 0..1024 {
          %0 = index(%j)                         %2 = load %x[%i, %j]
          %1 = lt(%0, 1024:i64) : bool           store %z[%i, %j], %2
          %2 = load %x[%i, %j] if %1      ->   }
          ...                                  serial %j in 1024..3072 {
          %6 = where(%1, %2, %5) : f32           ...
          store %z[%i, %j], %6

    In each part the comparisons are known, so guards and selects fold, and code that only other parts need is removed.
    """
    return replace(kernel, body=tuple(_statements(kernel.body, {}, fresh_registers(kernel))))


def _statements(statements: Sequence[Statement], known: Mapping[str, Dim], fresh: Iterator[str]) -> list[Statement]:
    """Return the statements with all inner loops split. `known`: index expressions of registers."""
    made: list[Statement] = []
    seen = dict(known)
    for statement in statements:
        if isinstance(statement, Index):
            seen[statement.result.name] = statement.expression
        if isinstance(statement, Loop):
            if any(isinstance(item, Loop) for item in statement.body):
                made.append(with_body(statement, _statements(statement.body, seen, fresh)))
            else:
                made.extend(_parts(statement, seen, fresh))
        else:  # the branches of a concurrent statement stay single loops
            made.append(statement)
    return made


class Comparison(Record):
    """A register that says whether the loop's variable is at least (or, if `below`, less than) `point`."""

    name: str
    point: Dim
    below: bool


def _parts(loop: Loop, known: Mapping[str, Dim], fresh: Iterator[str]) -> list[Loop]:
    plain = all(isinstance(item, (Let, Load, Index, Store)) for item in loop.body)
    if loop.kind != "serial" or loop.accumulators or prefixes(loop) or not plain:
        return [loop]
    comparisons = list(_comparisons(loop, known))
    points = _ordered(loop, [item.point for item in comparisons])
    if not comparisons or len(points) > COSTS.parts:
        return [loop]
    parts: list[Loop] = []
    for start, stop in zip(points, points[1:], strict=False):
        values: dict[str, Operand] = {}
        for item in comparisons:
            if non_negative(start - item.point):
                values[item.name] = Literal(not item.below, bool_)
            elif non_negative(item.point - stop):
                values[item.name] = Literal(item.below, bool_)
        body = _needed(_folded(loop.body, values))
        parts.append(replace(loop, start=start, stop=stop, body=renamed(body, fresh) if parts else tuple(body)))
    return parts if sum(cost(item.body) for item in parts) <= COSTS.growth * cost(loop.body) + COSTS.spare else [loop]


def _comparisons(loop: Loop, known: Mapping[str, Dim]) -> Iterator[Comparison]:
    """Yield the comparisons in a loop's body that change once along the loop, where sizes alone decide."""
    places = dict(known)
    for statement in loop.body:
        if isinstance(statement, Index):
            places[statement.result.name] = statement.expression
        if not isinstance(statement, Let) or statement.op not in ("ge", "lt"):
            continue
        left, right = (_place(item, places) for item in statement.operands)
        if left is None or right is None or step(left, loop.variable) != 1 or step(right, loop.variable) != 0:
            continue
        point = right - left + loop.variable.expr()
        if not any(symbol.name.startswith("%") for symbol in symbols_of(point)):
            yield Comparison(statement.result.name, point, statement.op == "lt")


def _place(operand: Operand, places: Mapping[str, Dim]) -> Dim | None:
    if isinstance(operand, Literal):
        return operand.value if isinstance(operand.value, int) else None
    return places.get(operand.name)


def _ordered(loop: Loop, points: Sequence[Dim]) -> list[Dim]:
    """Return the bounds of the parts in order, with the points that are proved to be inside, in a proved order."""
    ordered: list[Dim] = [loop.start, loop.stop]
    for point in points:
        for at in range(1, len(ordered)):
            if non_negative(point - ordered[at - 1] - 1) and non_negative(ordered[at] - point - 1):
                ordered.insert(at, point)
                break
    return ordered


def _folded(statements: Sequence[Statement], values: dict[str, Operand]) -> list[Statement]:
    """Fold straight-line code by the registers whose values are known."""

    def now(operand: Operand) -> Operand:
        return values.get(operand.name, operand) if isinstance(operand, Register) else operand

    change = Rewrite(uses=now)
    made: list[Statement] = []
    for statement in statements:
        if isinstance(statement, (Load, Store)) and statement.guard is not None:
            guard = now(statement.guard)
            statement = replace(statement, guard=guard)
            if isinstance(guard, Literal):
                statement = replace(statement, guard=None)
                if not guard.value:
                    if isinstance(statement, Load):
                        values[statement.result.name] = Literal(0, statement.result.dtype)
                    continue
        statement = change(statement)
        if isinstance(statement, Let):
            result = _simpler(statement)
            if result is not None:
                values[statement.result.name] = result
                continue
            if statement.result.name in values:
                continue
        made.append(statement)
    return made


def _simpler(statement: Let) -> Operand | None:
    """Return the operand that a select or a logical op reduces to, or None."""
    operands = statement.operands
    if statement.op == "where" and isinstance(operands[0], Literal):
        return operands[1] if operands[0].value else operands[2]
    if statement.op in ("logical_and", "logical_or"):
        decisive = statement.op == "logical_or"
        for one, other in (operands, operands[::-1]):
            if isinstance(one, Literal) and one.dtype is bool_ and other.dtype is bool_:
                return one if one.value == decisive else other
    return None


def _needed(statements: Sequence[Statement]) -> list[Statement]:
    """Remove unused registers from straight-line code."""
    needed: set[str] = set()
    kept: list[Statement] = []
    for statement in reversed(statements):
        results = defines(statement)
        if results and not any(item.name in needed for item in results):
            continue
        kept.append(statement)
        needed.update(used(statement))
    return kept[::-1]
