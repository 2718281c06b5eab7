"""Differentiate in reverse mode, by building the graph of cotangents.

A value knows the op that made it, so a gradient is just more values: `vjp` walks the ops between the inputs
and the results from the last made to the first, asks each op's rule for the cotangents of its operands, and
adds up the contributions to each value. The results can be differentiated again, to any order.

The inputs count as independent of each other: the walk does not go past them. A composite without a rule of
its own, or whose rule returns NotImplemented for a case, is differentiated through its body. Gradients are
fitted to their operand here and nowhere else: summed over what was broadcast, cast to the operand's dtype, real
for a real operand; so the rule of `add` is (grad, grad).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, overload

from ...ir.caller import is_internal
from ...ir.errors import DerivativeError
from ...ir.graph import Handle, Op, Value, located, plain
from ...ir.process import process
from ...ir.types import TensorType
from ...ops.define import REGISTRY, constant
from ...ops.derivatives import ForwardingRule
from ...ops.handles import call_users


def vjp(results: Sequence[Value], cotangents: Sequence[Value], inputs: Sequence[Value]) -> list[Value | None]:
    """Return the gradients of sum(results * cotangents) with respect to the inputs; None is zero."""
    return pull_back(results, cotangents, inputs, first_serial(inputs))


def first_serial(inputs: Sequence[Value]) -> int:
    """Return the serial number from which ops may depend on an input."""
    return min((-1 if value.op is None else value.op.serial for value in inputs), default=-1)


def pull_back(
    results: Sequence[Value], cotangents: Sequence[Value | None], inputs: Sequence[Value], since: int
) -> list[Value | None]:
    """Return the gradients of the inputs, through the ops made after `since`."""
    ops, active = dependent_ops(results, inputs, since)
    gradients: dict[Value, Value] = {}
    for value, cotangent in zip(results, cotangents, strict=True):
        if cotangent is not None and value in active:
            accumulate(gradients, value, cotangent)
    barrier = set(inputs)
    for op in reversed(ops):
        given = [None if value in barrier else gradients.pop(value, None) for value in op.results]
        if all(gradient is None for gradient in given):
            continue
        with located(op.loc):
            for operand, gradient in operand_gradients(op, given, active):
                if gradient is not None and operand in active:
                    accumulate(gradients, operand, gradient)
    return [gradients.get(value) for value in inputs]


def dependent_ops(results: Sequence[Value], inputs: Sequence[Value], since: int) -> tuple[list[Op], set[Value]]:
    """Return the ops that a derivative passes through, in the order of creation, and the values that carry one."""
    barrier = set(inputs)
    found: dict[int, Op] = {}
    pending = [value for value in results if value not in barrier]
    while pending:
        op = pending.pop().op
        if op is None or op.serial <= since or op.serial in found:
            continue
        found[op.serial] = op
        pending.extend([operand for operand in op.operands if operand not in barrier])
    active = {value for value in inputs if value.dtype.is_inexact}
    ops: list[Op] = []
    for serial in sorted(found):
        op = found[serial]
        if not active.isdisjoint(op.operands):
            carried = [value for value in op.results if value.dtype.is_inexact]
            if carried:
                ops.append(op)
                active.update(carried)
    return ops, active


def accumulate(gradients: dict[Value, Value], value: Value, gradient: Value) -> None:
    gradient = fit(gradient, value.type)
    known = gradients.get(value)
    gradients[value] = gradient if known is None else REGISTRY["add"](known, gradient)


def operand_gradients(
    op: Op, given: Sequence[Value | None], active: set[Value]
) -> Iterator[tuple[Value, Value | None]]:
    """Yield each operand with its gradient, given those of the op's results."""
    returned: Any = NotImplemented
    if op.defn.vjp_rule is not None:
        returned = call_rule(op.defn.vjp_rule, op, grads=Gradients(op, given))
    if returned is not NotImplemented:
        yield from align(op, returned)
    elif op.defn.differentiable and op.defn.is_composite:
        inputs = list(dict.fromkeys(operand for operand in op.operands if operand in active))
        body = op.defn.expand(op.arguments)
        yield from zip(inputs, pull_back(body, given, inputs, op.serial), strict=True)
    else:
        raise no_derivative(op)


def no_derivative(op: Op, mode: str = "") -> DerivativeError:
    """Return the error about an op without a derivative."""
    if op.defn.differentiable:
        reason = f"smelt has no {mode}rule for it"
    else:
        reason = "it has none"
    return DerivativeError(
        f"no derivative of {op.name}: {reason}. Use smelt.ops.detach on its operands if it is a constant",
        op.loc,
        f"{op.name}({', '.join(str(operand.type) for operand in op.operands)})",
    )


class Gradients(Sequence[Value]):
    """The gradients of all results of an op. Those of unused results read as zeros; `known` gives None."""

    def __init__(self, op: Op, given: Sequence[Value | None], sees: Callable[[Value], Value] = plain):
        self.op = op
        self.given = given
        self.sees = sees  # converts a value to the rule's view of it

    def seen(self) -> Gradients:
        """Return the gradients in the form that a rule of the user's sees."""
        return Gradients(self.op, self.given, Handle)

    def known(self, index: int) -> Value | None:
        """Return the gradient of one result, or None where it is zero."""
        gradient = self.given[index]
        return None if gradient is None else self.sees(gradient)

    def __len__(self) -> int:
        return len(self.given)

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        gradient = self.given[index]
        return self.sees(zeros(self.op.results[index].type) if gradient is None else gradient)


# Parameters by the identity of a rule, which is kept with them: a rule may lack a hash or define equality of its own.
_parameters: dict[int, tuple[Callable[..., Any], tuple[str, ...]]] = process.keep("parameters of rules", {})


def rule_parameters(rule: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a rule's parameters. A rule without parameters can only return zero."""
    known = _parameters.get(id(rule))
    if known is None:
        known = _parameters[id(rule)] = rule, _named_parameters(rule)
    return known[1]


def _named_parameters(rule: Callable[..., Any]) -> tuple[str, ...]:
    if isinstance(rule, ForwardingRule):
        return rule.parameters
    function = inspect.unwrap(rule)
    if not isinstance(function, FunctionType):  # a partial, a method, an object that can be called
        return tuple(inspect.signature(rule).parameters)
    code = function.__code__  # inspect.signature takes as long as some rules
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def call_rule(rule: Callable[..., Any], op: Op, **extra: Any) -> Any:
    """Call a rule with the values that its parameters name: entries of `extra`, the op's results, its arguments."""
    wanted: dict[str, Any] = {}
    for name in rule_parameters(rule):
        if name in extra:
            wanted[name] = extra[name]
        elif name == "grad" and "grads" in extra:
            wanted[name] = extra["grads"][0]
        elif name == "result":
            wanted[name] = op.results[0]
        elif name == "results":
            wanted[name] = op.results
        elif name in op.arguments:
            wanted[name] = op.arguments[name]
        else:
            named = getattr(rule, "__name__", rule)
            raise DerivativeError(
                f"the rule {named} asks for {name!r}, which {op.defn.signature()} does not have",
                op.loc,
            )
    if is_own(rule, op):
        return rule(**wanted)
    return call_users(rule, wanted, (*op.operands, *op.results))


def is_own(rule: Callable[..., Any], op: Op) -> bool:
    """Whether a rule is one of smelt's sources."""
    code = getattr(rule, "__code__", None)
    return op.defn.is_own if code is None else is_internal(code.co_filename)


def align(op: Op, returned: Any) -> Iterator[tuple[Value, Value | None]]:
    """Yield the operands of an op with the gradients that its vjp rule returned."""
    if returned is None:
        return
    tensors = op.defn.tensors
    if isinstance(returned, dict):
        by_name = returned
    else:
        single = len(tensors) == 1 and not (
            isinstance(returned, (tuple, list))
            and len(returned) == 1
            and isinstance(returned[0], (tuple, list)) == tensors[0].is_list
        )
        parts = (returned,) if single else returned
        if isinstance(parts, Value) or len(parts) != len(tensors):
            count = 1 if isinstance(parts, Value) else len(parts)
            raise DerivativeError(
                f"the derivative rule of {op.name} returned {count} gradients, expected {len(tensors)} "
                f"({', '.join(parameter.name for parameter in tensors)})",
                op.loc,
            )
        by_name = {parameter.name: part for parameter, part in zip(tensors, parts, strict=True)}
    for name, part in by_name.items():
        argument = op.arguments[name]
        if isinstance(argument, Value):
            yield argument, part
        elif isinstance(argument, tuple) and part is not None:
            for item, gradient in zip(argument, part, strict=True):
                if isinstance(item, Value):
                    yield item, gradient


def zeros(type: TensorType) -> Value:
    """Return zero as a value of a type."""
    return REGISTRY["full"](type.shape, 0, dtype=type.dtype) if type.shape else constant(0, type.dtype)


def fit(gradient: Any, type: TensorType) -> Value:
    """Fit a gradient to an operand of `type`: un-broadcast, real for a real operand, of its dtype."""
    if gradient.__class__ is Value and gradient.type == type:
        return gradient
    if not isinstance(gradient, Value):
        gradient = constant(gradient, type.dtype)
    if gradient.dtype.is_complex and not type.dtype.is_complex:
        gradient = REGISTRY["real"](gradient)
    if gradient.shape != type.shape:
        gradient = sum_to(gradient, type.shape)
    if gradient.dtype is not type.dtype:
        gradient = REGISTRY["cast"](gradient, type.dtype)
    return gradient


def sum_to(value: Value, shape: tuple[Any, ...]) -> Value:
    """Sum a value over the dims along which `shape` was broadcast to it."""
    leading = max(value.ndim - len(shape), 0)
    dims = list(range(leading))
    for position, size in enumerate(shape[len(shape) - (value.ndim - leading) :]):
        if size == 1 and value.shape[leading + position] != 1:
            dims.append(leading + position)
    if dims:
        value = REGISTRY["sum"](value, tuple(dims), len(dims) > leading and not leading)
        if value.ndim != len(shape):
            value = REGISTRY["reshape"](value, shape)
    return value if value.shape == shape else REGISTRY["expand"](value, shape)
