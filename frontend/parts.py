"""Programs in parts: where data decide a size, the native function returns, and the next one goes on with the size.

`cut` divides a graph at the counts that decide its sizes. A part has the ops that its counts need, the last part all
that is left; values of earlier parts that it reads are its parameters, and sizes come with parameters that have no
memory. So every part is a graph like any other, with open sizes, compiled once for all counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend.call_plan import Signature
from .backend.pytree import unflatten
from .backend.targets import targets
from .ir.decided import Decision
from .ir.errors import CompileError, ShapeError
from .ir.graph import Graph, Op, Value, ops_behind, replace_values
from .ir.record import Record
from .ir.symbolic import Expr, Symbol, evaluate, symbols_of
from .ir.types import TensorType, bool_
from .trace import Traced
from .versions import Bound, Compiled

if TYPE_CHECKING:
    from .backend.options import CompileOptions
    from .backend.report.report import Report


class Remembered(Record):
    """Numbers of entries that a part keeps of its calls. Chosen, not measured."""

    launchers: int = 64  # sizes with a launcher: one dict lookup


REMEMBERED = Remembered()
_NO_MEMORY = np.empty(0, np.bool_)


class Part:
    """One native function: the values of the whole graph that it takes and makes, and the sizes that it decides."""

    def __init__(self, graph: Graph, takes: Sequence[Value], makes: Sequence[Value], decides: Sequence[Decision]):
        self.graph = graph
        self.takes = takes
        self.makes = makes
        self.decides = decides


def cut(graph: Graph, decisions: Sequence[Decision], counts: Sequence[Value]) -> list[Part]:
    """Divide a graph at the counts that decide its sizes; the last part makes its results."""
    levels: dict[str, int] = {}  # by symbol: the number of parts that run before its size is known
    for decision, count in zip(decisions, counts, strict=True):  # a count has sizes decided before it alone
        inside = {symbol.name for op in ops_behind([count], set()) for symbol in _symbols(op)}
        levels[decision.symbol.name] = 1 + max((levels.get(name, 0) for name in inside), default=0)
    last = max(levels.values())
    done: set[int] = set()
    found: list[tuple[list[Op], list[Value], list[Decision]]] = []
    for level in range(1, last + 2):
        here = [at for at, item in enumerate(decisions) if levels[item.symbol.name] == level]
        wanted = [counts[at] for at in here] if level <= last else list(graph.results[: -len(counts)])
        ops = ops_behind(wanted, done)
        done.update(op.serial for op in ops if op.operands)  # what has no operands is made again where it is read
        found.append((ops, list(dict.fromkeys(wanted)), [decisions[at] for at in here]))
    needed: set[Value] = set()
    parts: list[Part] = []
    for ops, wanted, decides in reversed(found):
        own = {value for op in ops for value in op.results}
        needed.update(wanted)
        makes = [value for op in ops for value in op.results if value in needed]
        takes = [value for value in dict.fromkeys(_operands(ops)) if value not in own]
        needed = (needed - own).union(takes)
        parts.append(Part(_graph(f"{graph.name}_{len(found) - len(parts)}", ops, takes, makes), takes, makes, decides))
    return parts[::-1]


def _operands(ops: Sequence[Op]) -> list[Value]:
    return [operand for op in ops for operand in op.operands]


def _symbols(op: Op) -> set[Symbol]:
    """Return the symbols in the types and attributes of an op."""
    found: set[Symbol] = set()
    pending: list[Any] = [value.shape for value in op.results] + list(op.attrs.values())
    while pending:
        item = pending.pop()
        if isinstance(item, (tuple, list)):
            pending.extend(item)
        elif isinstance(item, Expr):
            found |= symbols_of(item)
    return found


def _graph(name: str, ops: Sequence[Op], takes: Sequence[Value], makes: Sequence[Value]) -> Graph:
    """Return the graph of a part: its ops on parameters in place of the values that it takes."""
    lookup: dict[Value, Value] = {}
    for at, value in enumerate(takes):
        lookup[value] = Value(value.type, name=value.name if value.op is None else f"kept{at}")
    params = [lookup[value] for value in takes]
    new_ops: list[Op] = []
    symbols: dict[Symbol, None] = {}
    for op in ops:
        arguments = {
            key: replace_values(item, lookup) if key in op.defn.tensor_names else item
            for key, item in op.arguments.items()
        }
        new = Op(op.defn, arguments, [value.type for value in op.results], op.loc)
        lookup.update(zip(op.results, new.results, strict=True))
        new_ops.append(new)
        symbols.update(dict.fromkeys(sorted(_symbols(op), key=lambda item: item.name)))
    for value in takes:
        for dim in value.shape:
            symbols.update(dict.fromkeys(sorted(symbols_of(dim), key=lambda item: item.name)))
    params += [Value(TensorType(bool_, (symbol.expr(),)), name=f"size_{symbol.name}") for symbol in symbols]
    return Graph(name, params, new_ops, [lookup[value] for value in makes])


def _refused(decision: Decision, where: str) -> CompileError:
    problem = (
        f"{decision.op}: data decide the size of its result, which is not supported {where}: give it a fixed size="
    )
    return CompileError(problem, decision.location)


class Parts:
    """The executable of a graph in parts."""

    def __init__(self, traced: Traced, given: int, options: CompileOptions):
        from .backend.compile import start_graph

        decisions = traced.decisions
        self.target = options.target
        if not targets.find(options.target).takes_parts:
            raise _refused(decisions[0], f"for the target {options.target!r}")
        graph = traced.graph
        carriers = set(graph.params[given : given + len(decisions)])
        params = [value for value in graph.params if value not in carriers]
        results = graph.results[: -len(decisions)]
        self.params = params
        # A result that is a parameter, or another result too, is a copy.
        self.results = [
            (value, value.op is not None and value not in set(results[:at])) for at, value in enumerate(results)
        ]
        self.parts = cut(graph, decisions, graph.results[-len(decisions) :])
        self.counts = dict(zip((item.symbol.name for item in decisions), graph.results[-len(decisions) :]))
        self.needs = traced.needs
        started = [start_graph(part.graph, options) for part in self.parts]
        self.executables = [complete() for complete in started]
        self.launchers: list[dict[tuple[int, ...], Callable[..., list[Any]]]] = [{} for _ in self.parts]
        whole = Graph(graph.name, params, graph.ops, results)
        # The plan of the whole has no results: their sizes are known after a call has begun.
        self.plan = self.executables[0].plan._replace(
            graph=whole,
            signature=Signature.of(whole),
            given=given,
            results=(),
            stored=(),
            owners=(),
            copies=(),
            arena=0,
        )

    @property
    def report(self) -> Report:
        """Return one report of all parts."""
        first, *others = [item.report for item in self.executables]
        for item in others:
            first = replace(
                first,
                ops=first.ops + item.ops,
                kernels=[*first.kernels, *item.kernels],
                refusals=[*first.refusals, *item.refusals],
            )
        return replace(first, name=self.plan.graph.name)

    def run(self, arrays: Sequence[Any], sizes: dict[str, int]) -> list[Any]:
        """Run all parts; add the sizes that data decide to `sizes`."""
        if not all(isinstance(item, np.ndarray) for item in arrays):
            raise _refused(self.parts[0].decides[0], "of arrays in a GPU's memory")
        known: dict[Value, Any] = dict(zip(self.params, arrays, strict=True))
        for at, part in enumerate(self.parts):
            made = self._launcher(at, sizes)([known[value] for value in part.takes])
            known.update(zip(part.makes, made, strict=True))
            for decision in part.decides:
                sizes[decision.symbol.name] = int(known[self.counts[decision.symbol.name]])
            if part.decides:
                self._check(sizes)
        return [known[value] if is_new else known[value].copy() for value, is_new in self.results]

    def _check(self, sizes: Mapping[str, int]) -> None:
        for gap, problem, location in self.needs:
            if all(symbol.name in sizes for symbol in symbols_of(gap)) and evaluate(gap, sizes) < 0:
                least = ", ".join(f"{symbol.name} = {sizes[symbol.name]}" for symbol in symbols_of(gap))
                raise ShapeError(f"{problem} ({least})", location)

    def _launcher(self, at: int, sizes: Mapping[str, int]) -> Callable[[list[Any]], list[Any]]:
        executable = self.executables[at]
        symbols = [symbol.name for symbol in executable.plan.signature.symbols]
        key = tuple([sizes[name] for name in symbols])
        table = self.launchers[at]
        known = table.get(key)
        if known is None:
            launch = executable.launcher(executable.plan.at({name: sizes[name] for name in symbols}))
            carriers = [_NO_MEMORY] * len(symbols)

            def known(arrays: list[Any]) -> list[Any]:
                return launch(arrays + carriers)  # type: ignore[no-any-return]

            if len(table) >= REMEMBERED.launchers:
                table.pop(list(table)[0], None)  # not by an iterator: another thread may add an entry
            table[key] = known
        return known


class CompiledParts(Compiled):
    """A version in parts: the shapes that it takes, and its executable."""

    executable: Parts

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> Bound:
        return BoundParts(self, self.plan.for_shapes(shapes).sizes)


class BoundParts(Bound):
    """A version in parts for one set of shapes. Its calls go through Python between the parts."""

    def __init__(self, version: CompiledParts, sizes: Mapping[str, int]):
        super().__init__(version, None, version.fixed)
        self.parts = version.executable
        self.sizes = sizes
        self.hidden = version.traced.arrays  # in the host's memory, as all arguments are

    def __call__(self, arrays: Sequence[np.ndarray]) -> Any:
        sizes = dict(self.sizes)
        results = self.parts.run(self.complete(arrays), sizes)
        for at, order in self.turned:
            results[at] = self.turn(results[at], order)
        made = iter(results)
        leaves = [self.fixed[at] if at in self.fixed else next(made) for at in self.positions]
        return unflatten(self.structure, [evaluate(leaf, sizes) if isinstance(leaf, Expr) else leaf for leaf in leaves])

    def make_entry(self, *args: Any, **kwargs: Any) -> None:
        return None
