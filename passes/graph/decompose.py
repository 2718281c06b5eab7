"""Replace composites by their bodies, until only primitives are left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.graph import Graph, Location, Op, Value, located, ops_behind, replace_values
from ...ir.record import Record
from ...ops.create import constant
from ...ops.values import known_number
from ..registry import graph_pass, map_nested
from ..rewrite import Replacements, rebuild
from .cleanup import argument_key


@graph_pass("decompose", stage="primitives")
def decompose(graph: Graph) -> Graph:
    """Replace every composite by its body, recursively. New ops keep the composite's line and name."""
    return _expanded(graph, lambda op: True)


def _expanded(graph: Graph, wanted: Callable[[Op], bool]) -> Graph:
    bodies: Bodies = {}

    def visit(op: Op, arguments: dict[str, Any]) -> tuple[Value, ...] | None:
        if op.defn.kind is not None or not wanted(op):
            return None
        location = op.loc
        if location is not None and not location.op:
            location = location.inside(op.name)
        with located(location):
            return expanded(op, arguments, bodies, location).results

    return rebuild(graph, visit, again=False)


def expand_foreign(graph: Graph) -> Graph:
    """Replace composites that are not smelt's own by their bodies; the ops left mean the same in every process."""
    return map_nested(_expanded(graph, lambda op: not op.defn.is_own), expand_foreign)


class Body(Record):
    """A composite's body in primitives, traced for some operands, and reused for others of the same types."""

    operands: tuple[Value, ...]
    ops: list[Op]
    results: tuple[Value, ...]

    def copy(self, operands: tuple[Value, ...], location: Location | None) -> Body:
        replaced = Replacements(zip(self.operands, operands, strict=True))
        ops: list[Op] = []
        for inner in self.ops:
            if inner.defn is constant:
                ops.append(inner)  # the same everywhere
                continue
            arguments = inner.arguments.copy()
            for name in inner.defn.tensor_names:
                arguments[name] = replace_values(arguments[name], replaced)
            made = Op(inner.defn, arguments, [value.type for value in inner.results], location)
            replaced.update(zip(inner.results, made.results))
            ops.append(made)
        return Body(operands, ops, tuple([replaced[value] for value in self.results]))


Bodies = dict[tuple[Any, ...], Body]


def expanded(op: Op, arguments: dict[str, Any], bodies: Bodies, location: Location | None) -> Body:
    """Return the body of a composite, traced once for each combination of types and attributes."""
    operands: dict[Value, int] = {}
    is_random = op.defn.draws(arguments)
    key = (op.defn, *(body_key(item, operands) for name, item in arguments.items() if name != "stream"))
    if is_random:
        # Two random ops never share a stream, so a body that draws random numbers is traced each time.
        return _worked_out(op, arguments, tuple(operands), bodies, location)
    known = bodies.get(key)
    if known is None:
        known = bodies[key] = _worked_out(op, arguments, tuple(operands), bodies, location)
    return known.copy(tuple(operands), location)


def _worked_out(
    op: Op, arguments: dict[str, Any], operands: tuple[Value, ...], bodies: Bodies, location: Location | None
) -> Body:
    results = op.defn.expand(arguments)
    replaced = Replacements()
    ops: list[Op] = []
    for inner in ops_behind(results, {value.op.serial for value in operands if value.op is not None}):
        arguments = inner.arguments
        if any(operand in replaced for operand in inner.operands):
            arguments = {name: replace_values(item, replaced) for name, item in arguments.items()}
        if inner.defn.kind is None:
            body = expanded(inner, arguments, bodies, location)
            ops += body.ops
            replaced.update(zip(inner.results, body.results, strict=True))
        elif arguments is inner.arguments:
            ops.append(inner)
        else:
            made = Op(inner.defn, arguments, [value.type for value in inner.results], inner.loc)
            ops.append(made)
            replaced.update(zip(inner.results, made.results))
    return Body(operands, ops, tuple([replaced[value] for value in results]))


def body_key(argument: Any, operands: dict[Value, int]) -> Any:
    """Return a key of all that a body may depend on: types, attributes, constants, sizes, which operands are equal."""
    if isinstance(argument, Value):
        position = operands.setdefault(argument, len(operands))
        number = known_number(argument)
        return (position, argument.type) if number is None else (position, argument.type, argument_key(number))
    if isinstance(argument, tuple):
        return ("tuple", *(body_key(item, operands) for item in argument))
    return argument_key(argument)
