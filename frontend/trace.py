"""Tracing: a Python function becomes a graph.

The function runs once on traced tensors. When the trace ends, captured arrays and the state of the random generator
become hidden parameters, and streams of random numbers are numbered from zero, so that the same function always
gives the same graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import lcm
from typing import Any

import numpy as np

from .ir.asked import Asked
from .ir.decided import Decision
from .ir.errors import ArgumentError, TraceError
from .ir.graph import Graph, Location, Op, Value, current_location, plain
from .ir.proofs import differs, is_multiple, non_negative, substitute
from .ir.symbolic import (
    Compound,
    Dim,
    Expr,
    SizeNeeded,
    Symbol,
    UndecidedSize,
    atoms_of,
    evaluate,
    symbols_of,
)
from .ir.types import DType, TensorType, bool_, dtype, i64
from .ops.captures import ArrayConstant, as_array, captured, captured_anew
from .ops.kinds import Captured
from .ops.open_array import OpenArray
from .ops.random import seed_state
from .ops.streams import counted_anew
from .passes.rewrite import rebuild, remake
from .questions import asked_by

FAR = 1 << 16  # upper limit of a symbol's lower bound where no size is at hand. Chosen, not measured
SMALLEST = 2  # sizes 0 and 1 broadcast and vanish: they are never symbolic


# Plain classes: `import smelt` loads this module, and defining a dataclass takes as long as importing a module.


class ArraySpec:
    """The type of an argument, in place of an array: spec("f32[N, 64]")."""

    def __init__(self, dtype: DType, shape: tuple[Dim, ...]):
        self.dtype = dtype
        self.shape = shape

    def __repr__(self) -> str:
        return f"spec({str(TensorType(self.dtype, self.shape))!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArraySpec) and self.dtype is other.dtype and self.shape == other.shape

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))


def spec(text: str) -> ArraySpec:
    """Return an argument's type from its text; names stand for symbolic sizes."""
    match = re.fullmatch(r"\s*(\w+)\s*\[([^\]]*)\]\s*", text) if isinstance(text, str) else None
    if match is None:
        raise ArgumentError(f"expected a type such as 'f32[64, 784]', got {text!r}", current_location())
    sizes: list[Dim] = []
    for part in match.group(2).split(",") if match.group(2).strip() else []:
        word = part.strip()
        if word.isascii() and word.isdigit() and len(word) < 20:
            sizes.append(int(word))
        elif word.isidentifier():
            sizes.append(Symbol(word, SMALLEST).expr())
        else:
            raise ArgumentError(f"{word!r} is no size: expected a number or a name, in {text!r}")
    from .ir.verify import type_problem

    made = ArraySpec(dtype(match.group(1)), tuple(sizes))
    if problem := type_problem(TensorType(made.dtype, made.shape)):
        raise ArgumentError(problem, current_location())
    return made


class Traced:
    """A graph, and the arrays and the seed that its hidden parameters stand for."""

    def __init__(self, graph: Graph, arrays: Sequence[np.ndarray] = (), seeded: bool = False):
        self.graph = graph
        self.arrays = list(arrays)
        self.seeded = seeded
        self.limits: list[tuple[Expr, int]] = []  # expressions of sizes with their upper bounds
        self.decisions: list[Decision] = []  # sizes that data decide; their counts are the graph's last results
        self.needs: list[tuple[Expr, str, Location | None]] = []  # what is checked of them: Asked.needs
        self.asked: list[str] = []  # why some sizes are known: the user's lines and their questions

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes are within the program's limits, beside the ranges in its types."""
        return all(evaluate(size, sizes) <= limit for size, limit in self.limits)


def trace(
    function: Callable[[list[Value]], Sequence[Value]],
    types: Sequence[TensorType],
    names: Sequence[str],
    name: str,
    hints: dict[str, int] | None = None,
) -> tuple[Traced, list[TensorType]]:
    """Run `function` on parameters of these types; return the graph, and the types in the end.

    A branch on a size is answered by the sizes at hand (`hints`). After `<`, `<=`, `>`, `>=` the trace goes on, and the
    answer is a limit of the program (`Expr._is_at_least`, `Asked.limits`). Where an op or `==` has to know whether two
    sizes are equal, the trace starts again with the two made equal, with a symbol of a higher lower bound or of a known
    remainder, or with the number where Python needs it (`OpenSize`).
    """
    types = list(types)
    asked: dict[str, None] = {}
    while True:
        token = object()
        params = [Value(type, name=label, trace=token) for type, label in zip(types, names, strict=True)]
        try:
            with counted_anew(), captured_anew(), Asked(hints or {}) as found:
                results = function(params)
            break
        except UndecidedSize as question:
            if question.decided:
                raise
            asked[asked_by(question, types, names)] = None
            types = _pinned(types, _settle(question, hints or {}), question)
        except SizeNeeded as question:
            asked[asked_by(question, types, names)] = None
            known = hints or {}
            if not all(symbol.name in known for symbol in symbols_of(question.size)):
                raise
            numbers: dict[Symbol, Dim] = {symbol: known[symbol.name] for symbol in symbols_of(question.size)}
            types = _pinned(types, _divided(question.size, known) or numbers, question)
    decisions: list[Decision] = found.decisions
    # A parameter without memory carries each size that data decide.
    params += [Value(TensorType(bool_, (item.symbol.expr(),)), name=f"size{at}") for at, item in enumerate(decisions)]
    traced = _lift(Graph.build(name, params, [*results, *(item.count for item in decisions)]), len(params))
    traced.limits, traced.asked = found.limits, [*asked, *dict.fromkeys(found.where)]
    traced.decisions, traced.needs = decisions, found.needs
    return traced, types


def _pinned(types: Sequence[TensorType], sizes: dict[Symbol, Dim], question: Exception) -> list[TensorType]:
    """Return the types with symbols replaced. Raise the question if nothing changes: it would come again for ever."""
    result = [TensorType(item.dtype, tuple(substitute(dim, sizes) for dim in item.shape)) for item in types]
    if result == types:
        raise question
    return result


def _settle(question: UndecidedSize, hints: dict[str, int]) -> dict[Symbol, Dim]:
    """Return the replacement of a symbol that settles the question: it makes the two sizes equal if the sizes at hand
    are, else it has a higher lower bound."""
    involved = sorted(symbols_of(question.left) | symbols_of(question.right), key=lambda item: item.name)
    is_at_hand = all(symbol.name in hints for symbol in involved)
    if is_at_hand:
        gap = evaluate(question.left - question.right, hints)
    elif question.is_wanted:
        # No sizes at hand: take the program for the sizes for which it is valid.
        gap, hints = 1, dict.fromkeys((symbol.name for symbol in involved), FAR)
    else:
        raise question
    if gap != 0:
        smaller, greater = (question.right, question.left) if gap > 0 else (question.left, question.right)
        found = _raised(involved, greater - smaller - 1, hints)
        if not found and is_at_hand:
            found = _divided(question.left - question.right, hints)
        if not found:
            raise question
        return found
    return _equated(involved, question.left - question.right, hints)


def _equated(symbols: Sequence[Symbol], gap: Dim, hints: dict[str, int]) -> dict[Symbol, Dim]:
    """Return the replacement of a symbol that makes a gap zero: M by N + 1 in N + 1 - M; at worst, by its size at
    hand."""
    above: dict[Symbol, Dim] = {}  # a symbol's replacement minus its lower bound
    for symbol in symbols:
        factor = gap.coefficient(symbol) if isinstance(gap, Expr) else None
        if isinstance(factor, int) and factor != 0 and is_multiple(gap, abs(factor)):
            above[symbol] = symbol.expr() - gap // factor - (symbol.lower or 0)
    for symbol, rest in above.items():
        if non_negative(rest):
            return {symbol: rest + (symbol.lower or 0)}
    for rest in above.values():  # the lower bounds of other symbols have to rise first
        found = _raised(sorted(symbols_of(rest), key=lambda item: item.name), rest, hints)
        if found:
            return found
    return _divided(gap, hints) or {symbols[0]: hints[symbols[0].name]}


def _divided(value: Dim, hints: dict[str, int]) -> dict[Symbol, Dim]:
    """Return the replacement of a symbol by one of known remainder: N by 2 * (N // 2), or one more if the size at hand
    is odd, so that N % 2 is a number. Empty unless it makes the expression a number, or proves that it is not zero."""
    divisors: dict[Symbol, int] = {}
    for atom in atoms_of(value):
        if not isinstance(atom, Compound) or atom.operator not in ("//", "%") or not isinstance(atom.right, int):
            continue
        for symbol in symbols_of(atom.left) if atom.right > 0 else ():
            divisors[symbol] = lcm(divisors.get(symbol, 1), atom.right)
    for symbol, divisor in sorted(divisors.items(), key=lambda item: item[0].name):
        spelled = symbol.expr() // divisor * divisor + hints[symbol.name] % divisor
        known = substitute(value, {symbol: spelled})
        if isinstance(known, int) or differs(known, 0):
            return {symbol: spelled}
    return {}


def _raised(symbols: Sequence[Symbol], gap: Dim, hints: dict[str, int]) -> dict[Symbol, Dim]:
    """Return a symbol with the least lower bound, up to its size at hand, that proves a gap non-negative: M >= 3 for
    M - 3. Empty if there is none."""
    for symbol in symbols:

        def proves(lower: int, symbol: Symbol = symbol) -> bool:
            return non_negative(substitute(gap, {symbol: Symbol(symbol.name, lower, symbol.upper).expr()}))

        low, high = SMALLEST if symbol.lower is None else symbol.lower, hints[symbol.name]
        if low < high and proves(high):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if proves(middle) else (middle, high)
            return {symbol: Symbol(symbol.name, high, symbol.upper).expr()}
    return {}


def _lift(graph: Graph, given: int) -> Traced:
    """Turn captured arrays and the seed into parameters, and number the random streams in order."""
    arrays: dict[ArrayConstant, Value] = {}
    seed: list[Value] = []
    streams: dict[int, int] = {}
    special = [
        op
        for op in graph.ops
        if isinstance(op.defn.kind, Captured) or op.defn is seed_state or (op.defn.takes_stream and _draws_stream(op))
    ]
    if not special:
        return Traced(graph)
    for op in special:
        if _draws_stream(op):
            streams.setdefault(op.arguments["stream"], len(streams))
    renumbered: set[int] = set()

    def visit(op: Op, arguments: dict[str, Any]) -> Any:
        if isinstance(op.defn.kind, Captured):
            holder = arguments["array"]
            assert isinstance(holder, ArrayConstant)
            if holder not in arrays:
                arrays[holder] = Value(op.results[0].type, name=f"captured{len(arrays)}")
            return arrays[holder]
        if op.defn is seed_state:
            return seed_parameter()
        if op.serial not in renumbered and _draws_stream(op):
            new = remake(op, arguments | {"stream": streams[arguments["stream"]], "seed": seed_parameter()})
            assert new[0].op is not None
            renumbered.add(new[0].op.serial)
            return new
        return None

    def seed_parameter() -> Value:
        if not seed:
            seed.append(Value(TensorType(i64, (2,)), name="seed"))
        return seed[0]

    lifted = rebuild(graph, visit)
    params = (*graph.params[:given], *arrays.values(), *seed)
    return Traced(Graph.build(graph.name, params, lifted.results), [holder.array for holder in arrays], bool(seed))


def _draws_stream(op: Op) -> bool:
    """Whether an op draws from a counted stream: a random op that was given a seed was given its stream, too."""
    seed = op.arguments.get("seed")
    own = isinstance(seed, Value) and (seed.op is None or seed.op.defn is not seed_state)
    return isinstance(op.arguments.get("stream"), int) and not own and op.defn.draws(op.arguments)


def as_value(leaf: Any) -> Value:
    """Return a result leaf of a traced function as a value."""
    if isinstance(leaf, Value):
        return plain(leaf)  # type: ignore[no-any-return]
    if isinstance(leaf, OpenArray):
        return plain(leaf.value)  # type: ignore[no-any-return]
    if isinstance(leaf, np.ndarray) or hasattr(leaf, "__array__"):
        return captured(as_array(leaf, "the result"))
    problem = f"a traced function returned a value of type {type(leaf).__name__}: expected tensors, numbers or None"
    raise TraceError(problem, current_location())
