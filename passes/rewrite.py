"""Rewrite graphs: the one walker of the graph IR.

`rebuild(graph, visit)` walks the ops in order. `visit(op, arguments)` gets each op with its arguments already
rewritten, and returns None to keep the op, or the replacement of its results: a value, or a tuple of values. New
ops stand where the old one stood, belong to its line, and are visited in their turn, so a visitor need not
recurse: decompose just returns a composite's body. An op that does not change is the same object before and
after, and a graph in which no op changed is returned as it is. A visitor must not use the old op's results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ir.graph import Graph, Op, Value, located, ops_behind, replace_values
from ..ir.printer import same_attribute
from ..ops.create import constant, full
from ..ops.kinds import View

Visit = Callable[[Op, dict[str, Any]], Value | Sequence[Value] | None]


class Replacements(dict[Value, Value]):
    """Old value -> new value; a value that was not replaced stands for itself."""

    def __missing__(self, value: Value) -> Value:
        return value


def rebuild(graph: Graph, visit: Visit, name: str | None = None, again: bool = True) -> Graph:
    """Replace every op of a graph by the result of `visit`; new ops are visited in their turn if `again`."""
    replaced = Replacements()
    kept: list[Op] = []
    done: set[int] = set()
    # An op to visit, or an op and the values that replace it once the ops that these need have been visited.
    pending: list[tuple[Op, tuple[Value, ...] | None]] = [(op, None) for op in reversed(graph.ops)]
    with located() as place:
        while pending:
            op, values = pending.pop()
            if values is not None:
                for old, new in zip(op.results, values, strict=True):
                    replaced[old] = replaced[new]
                continue
            if op.serial in done:
                continue  # an op of the graph that has also replaced an earlier one: constants are shared
            done.add(op.serial)
            arguments = op.arguments
            changed = False
            for operand in op.operands:
                if operand in replaced:
                    changed = True
                    arguments = arguments.copy()
                    for key in op.defn.tensor_names:
                        arguments[key] = replace_values(arguments[key], replaced)
                    break
            place.move(op.loc)
            outcome = visit(op, arguments)
            if outcome is not None:
                values = (outcome,) if isinstance(outcome, Value) else tuple(outcome)
                made = ops_behind(values, done)
                if again:
                    pending.append((op, values))
                    pending.extend([(new, None) for new in reversed(made)])
                    continue
            elif changed:
                values = _with_operands(op, arguments, replaced)
                made = ops_behind(values, done)
            else:
                kept.append(op)
                continue
            kept.extend(made)
            done.update([new.serial for new in made])
            for old, new in zip(op.results, values, strict=True):
                replaced[old] = replaced[new]
    if not replaced and len(kept) == len(graph.ops) and name is None:
        return graph
    results = tuple(replaced[value] for value in graph.results)
    return Graph(name or graph.name, graph.params, live_ops(kept, results), results)


def _with_operands(op: Op, arguments: dict[str, Any], replaced: Replacements) -> tuple[Value, ...]:
    """Make the op again with other operands and the same attributes."""
    for operand in op.operands:
        type = replaced[operand].type
        if type is not operand.type and type != operand.type:
            return remake(op, arguments)
    return Op(op.defn, arguments, [value.type for value in op.results], op.loc).results


def live_ops(ops: Sequence[Op], results: Iterable[Value]) -> list[Op]:
    """Return the ops that the results need, in the given order."""
    needed = {value.op.serial for value in results if value.op is not None}
    kept: list[Op] = []
    for op in reversed(ops):
        if op.serial in needed:
            kept.append(op)
            needed.update(operand.op.serial for operand in op.operands if operand.op is not None)
    kept.reverse()
    return kept


def remake(op: Op, arguments: dict[str, Any]) -> tuple[Value, ...]:
    """Make the op again with other arguments. Types are inferred again if an operand's type or an attribute changed."""
    if all(_alike(old, arguments[name]) for name, old in op.arguments.items()):
        return Op(op.defn, arguments, [value.type for value in op.results], op.loc).results
    with located(op.loc):
        results = op.defn.apply(arguments)
    return (results,) if isinstance(results, Value) else tuple(results)


def _alike(old: Any, new: Any) -> bool:
    """Whether two arguments are the same attribute, or values of the same type."""
    if old is new:
        return True
    if isinstance(old, Value):
        return isinstance(new, Value) and new.type == old.type
    if isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        return all(map(_alike, old, new))
    return not isinstance(new, Value) and same_attribute(old, new)


def splat_number(value: Value) -> bool | int | float | complex | None:
    """Return the number that every element of a value is, if the op that made the value tells; else None."""
    op = value.op
    while op is not None and isinstance(kind := op.defn.kind, View) and kind.rigid is not None:
        op = op.operands[0].op
    if op is None:
        return None
    if op.defn is constant:
        return op.arguments["value"]
    if op.defn is full:
        return op.arguments["fill_value"]
    return None
