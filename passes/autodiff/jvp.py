"""Differentiate in forward mode, by building the graph of tangents.

`jvp` walks the ops between the inputs and the results in the order of their creation and computes the tangent of each
value that depends on an input. Few ops need a rule for it:

    an explicit `.jvp` rule      where one is given
    Elementwise                  the vjp rule with the tangent as gradient: the Jacobian is diagonal
    linear kinds                 the op itself, applied to the tangents
    Contract                     bilinear: the op with each operand in turn replaced by its tangent, added
    Scatter that adds or copies  linear in operand and updates
    composite                    through the body
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.errors import DerivativeError
from ...ir.graph import Op, Value, located
from ...ir.types import TensorType
from ...ops.define import REGISTRY, constant
from ...ops.kinds import Contract, Elementwise, Gather, Scatter
from .vjp import align, call_rule, dependent_ops, first_serial, fit, no_derivative, rule_parameters, zeros

Tangents = dict[Value, Value]


def jvp(results: Sequence[Value], inputs: Sequence[Value], tangents: Sequence[Value]) -> list[Value | None]:
    """Return the tangents of the results, given those of the inputs; None is zero."""
    return push_forward(results, inputs, tangents, first_serial(inputs))


def push_forward(
    results: Sequence[Value], inputs: Sequence[Value], tangents: Sequence[Value | None], since: int
) -> list[Value | None]:
    """Return the tangents of the results, through the ops made after `since`."""
    ops, _active = dependent_ops(results, inputs, since)
    known: Tangents = {}
    for value, tangent in zip(inputs, tangents, strict=True):
        if tangent is not None and value.dtype.is_inexact:
            known[value] = fit(tangent, value.type)
    barrier = set(inputs)
    for op in ops:
        if not any(operand in known for operand in op.operands):
            continue
        with located(op.loc):
            for value, tangent in zip(op.results, result_tangents(op, known), strict=True):
                if tangent is not None and value.dtype.is_inexact and value not in barrier:
                    known[value] = fit(tangent, value.type)
    return [known.get(value) for value in results]


def result_tangents(op: Op, known: Tangents) -> Sequence[Value | None]:
    """Return the tangents of an op's results, given those of its operands."""
    defn, kind = op.defn, op.defn.kind
    if defn.jvp_rule is not None:
        return explicit(op, known)
    if defn.vjp_rule is not None and not rule_parameters(defn.vjp_rule):
        return [None] * len(op.results)
    if not defn.differentiable:
        raise no_derivative(op)
    if kind is None:
        inputs = list(dict.fromkeys(operand for operand in op.operands if operand in known))
        body = defn.expand(op.arguments)
        return push_forward(body, inputs, [known[value] for value in inputs], op.serial)
    if isinstance(kind, Elementwise) and defn.vjp_rule is not None:
        return [elementwise(op, known)]
    if kind.linear:
        return [linear(op, known, only_self=isinstance(kind, Gather))]
    if isinstance(kind, Scatter) and kind.combine(op.arguments) in (None, "add"):
        return [linear(op, known, only_self=False)]
    if isinstance(kind, Contract):
        return [bilinear(op, known)]
    raise no_derivative(op, "forward-mode ")


def explicit(op: Op, known: Tangents) -> Sequence[Value | None]:
    """Apply the op's own jvp rule."""
    tangents: dict[str, Any] = {}
    for parameter in op.defn.tensors:
        argument = op.arguments[parameter.name]
        if isinstance(argument, tuple):
            tangent: Any = tuple(known.get(item) if isinstance(item, Value) else None for item in argument)
        else:
            tangent = known.get(argument) if isinstance(argument, Value) else None
        tangents[f"{parameter.name}_tangent"] = tangent
    returned = call_rule(op.defn.jvp_rule, op, **tangents)  # type: ignore[arg-type]
    if returned is None:
        return [None] * len(op.results)
    found = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    if len(found) != len(op.results):
        raise DerivativeError(
            f"the forward rule of {op.name} returned {len(found)} tangents, expected {len(op.results)}",
            op.loc,
        )
    return found


def elementwise(op: Op, known: Tangents) -> Value | None:
    """Apply the vjp rule to tangents: a diagonal Jacobian is its own transpose."""
    result = op.results[0]
    total: Value | None = None
    for operand in dict.fromkeys(op.operands):
        tangent = known.get(operand)
        if tangent is None:
            continue
        if tangent.shape != result.shape:
            tangent = REGISTRY["expand"](tangent, result.shape)
        if result.dtype.is_complex and not operand.dtype.is_complex:
            part = real_to_complex(op, operand, tangent)
        elif operand.dtype.is_complex:
            # The rule multiplies by the conjugate of the derivative.
            part = contribution(op, operand, REGISTRY["conj"](tangent))
            part = None if part is None else REGISTRY["conj"](part)
        else:
            part = contribution(op, operand, tangent)
        if part is not None:
            part = fit(part, result.type)
            total = part if total is None else REGISTRY["add"](total, part)
    return total


def contribution(op: Op, operand: Value, gradient: Value) -> Value | None:
    """Return the cotangent that the vjp rule gives for `operand`, summed over its occurrences among the operands."""
    total: Value | None = None
    for item, part in align(op, call_rule(op.defn.vjp_rule, op, grad=gradient)):  # type: ignore[arg-type]
        if item is operand and part is not None:
            part = part if isinstance(part, Value) else constant(part, operand.dtype)
            total = part if total is None else REGISTRY["add"](total, part)
    return total


def real_to_complex(op: Op, operand: Value, tangent: Value) -> Value | None:
    """Return the tangent of a complex result of a real operand: real part from cotangent 1, imaginary part from i."""
    real_type = TensorType(op.results[0].dtype.real, op.results[0].shape)
    tangent = REGISTRY["cast"](tangent, op.results[0].dtype)
    parts = [contribution(op, operand, tangent), contribution(op, operand, REGISTRY["mul"](tangent, 1j))]
    if parts[0] is None and parts[1] is None:
        return None
    return REGISTRY["complex"](*(zeros(real_type) if part is None else fit(part, real_type) for part in parts))


def linear(op: Op, known: Tangents, only_self: bool) -> Value:
    """Apply the op to the tangents; operands without a tangent become zero, operands without derivatives stay."""

    def swap(value: Any) -> Any:
        if not isinstance(value, Value) or not value.dtype.is_inexact:
            return value
        return known[value] if value in known else zeros(value.type)

    arguments = dict(op.arguments)
    for parameter in op.defn.tensors:
        if only_self and parameter.name != "self":
            continue
        argument = arguments[parameter.name]
        if isinstance(argument, tuple):
            arguments[parameter.name] = tuple(swap(item) for item in argument)
        else:
            arguments[parameter.name] = swap(argument)
    return op.defn.apply(arguments)


def bilinear(op: Op, known: Tangents) -> Value | None:
    """Apply the product rule."""
    total: Value | None = None
    for parameter in op.defn.tensors:
        argument = op.arguments[parameter.name]
        if isinstance(argument, Value) and argument in known:
            part = op.defn.apply({**op.arguments, parameter.name: known[argument]})
            total = part if total is None else REGISTRY["add"](total, part)
    return total
