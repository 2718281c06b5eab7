"""Sizes that data decide: the symbols of counts that a program computes.

`decided(count, op)` returns the symbol of a count while a function is traced, and the trace keeps the two together
(`Asked.decisions`). The compiled program is cut at each of them (parts.py): one part returns the count, and the next
ones take the symbol as they take the size of an argument.

A memoised body of an op has no such symbols: `DecidesSize` tells the op to put its body in its own place.
"""

from __future__ import annotations

from . import asked
from .errors import ArgumentError
from .graph import Location, Op, Value, current_location
from .symbolic import Dim, Symbol, symbols_of


class DecidesSize(Exception):
    """The body of an op decides a size by data."""


class NotTraced(ArgumentError):
    """Data decide a size where no function is traced."""


class Decision:
    """A symbol, the count that it stands for, and the op that the user called."""

    def __init__(self, symbol: Symbol, count: Value, op: str, location: Location | None):
        self.symbol = symbol
        self.count = count  # i64, 0-dim
        self.op = op
        self.location = location


def decided(count: Value, op: str) -> Dim:
    """Return the size that a count decides. Equal counts are one size, so that x[x > 0] * y[x > 0] fits together."""
    trace = asked.current()
    if trace is None:
        raise NotTraced("data decide the size of the result, so size is needed here", current_location())
    if trace.is_body:
        raise DecidesSize
    for item in trace.decisions:
        if _equal(item.count, count):
            return item.symbol.expr()
    made = Decision(Symbol(f"D{len(trace.decisions)}", 0), count, op, current_location())
    trace.decisions.append(made)
    return made.symbol.expr()


def needed(gap: Dim, problem: str) -> bool:
    """Whether data decide a number that must not be negative: it is checked when they have. `problem`: the error."""
    trace = asked.current()
    if trace is None:
        return any(symbol.lower == 0 for symbol in symbols_of(gap))  # in a pass: noted while tracing
    if not any(item.symbol in symbols_of(gap) for item in trace.decisions):
        return False
    if trace.is_body:
        raise DecidesSize
    trace.needs.append((gap, problem, current_location()))
    return True


def _equal(left: Value, right: Value) -> bool:
    """Whether two values are certainly equal: the same ops on the same values."""
    pending, known = [(left, right)], set[tuple[int, int]]()
    while pending:
        one, other = pending.pop()
        if one is other or (id(one), id(other)) in known:
            continue
        known.add((id(one), id(other)))
        if one.op is None or other.op is None or one.index != other.index:
            return False
        if one.op.defn is not other.op.defn or len(one.op.operands) != len(other.op.operands):
            return False
        if not _equal_attributes(one.op, other.op):
            return False
        pending.extend(zip(one.op.operands, other.op.operands, strict=True))
    return True


def _equal_attributes(left: Op, right: Op) -> bool:
    ones, others = left.attrs, right.attrs
    return ones.keys() == others.keys() and all(
        type(item) is type(others[name]) and repr(item) == repr(others[name]) for name, item in ones.items()
    )
