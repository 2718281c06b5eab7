"""Composites by their bodies, until only primitives are left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir.graph import Graph, Location, Op, Value, located, ops_behind, replace_values
from .cleanup import argument_key
from .manager import graph_pass
from .rewrite import Replacements, rebuild


@graph_pass("decompose", stage="primitives")
def decompose(graph: Graph) -> Graph:
    """Every composite is replaced by its body, recursively. New ops keep the composite's line and name."""
    bodies: dict[tuple, Body] = {}

    def visit(op: Op, arguments: dict[str, Any]) -> tuple[Value, ...] | None:
        # What the body makes is visited in its turn, so nested composites go the same way.
        if op.defn.kind is not None:
            return None
        location = op.loc
        if location is not None and not location.op:
            location = location.inside(op.name)
        with located(location):
            return expanded(op, arguments, bodies, location)

    return rebuild(graph, visit)


@dataclass(frozen=True)
class Body:
    """A composite's body as it came out for some operands: the same ops do for others of the same types."""

    operands: tuple[Value, ...]
    ops: list[Op]
    results: tuple[Value, ...]

    def copy(self, operands: tuple[Value, ...], location: Location | None) -> tuple[Value, ...]:
        replaced = Replacements(zip(self.operands, operands, strict=True))
        for inner in self.ops:
            arguments = {name: replace_values(item, replaced) for name, item in inner.arguments.items()}
            made = Op(inner.defn, arguments, [value.type for value in inner.results], location)
            replaced.update(zip(inner.results, made.results, strict=True))
        return tuple(replaced[value] for value in self.results)


def expanded(
    op: Op, arguments: dict[str, Any], bodies: dict[tuple, Body], location: Location | None
) -> tuple[Value, ...]:
    """A composite's results. A body is worked out once for each combination of types and attributes."""
    operands: dict[Value, int] = {}
    key = (op.defn.name, *(body_key(argument, operands) for argument in arguments.values()))
    known = bodies.get(key)
    if known is not None:
        return known.copy(tuple(operands), location)
    results = op.defn.expand(arguments)
    ops = ops_behind(results, {value.op.serial for value in operands if value.op is not None})
    # Two random ops never share a stream, so what draws random numbers is worked out each time.
    if not any("stream" in inner.arguments for inner in ops):
        bodies[key] = Body(tuple(operands), ops, results)
    return results


def body_key(argument: Any, operands: dict[Value, int]) -> Any:
    """What a body may depend on: types, attributes, constants by value, and which operands are the same."""
    if isinstance(argument, Value):
        position = operands.setdefault(argument, len(operands))
        if argument.op is not None and argument.op.defn.name == "constant":
            return (position, argument.type, argument_key(argument.op.arguments["value"]))
        return (position, argument.type)
    if isinstance(argument, tuple):
        return ("tuple", *(body_key(item, operands) for item in argument))
    return argument_key(argument)
