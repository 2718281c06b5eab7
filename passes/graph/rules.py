"""Match and rewrite small patterns of the graph IR, by rules written in its own syntax.

A rule is a pattern and a function of what the pattern captures:

    rules = Rules()

    @rules.rule("mul(%x, 1.0)", on="biuf")
    def times_one(x):
        return x

`on` names the types that the rule holds for, by kinds (DType.kind): those of the root's last operand, in which it
computes. A rule that holds for reals is often wrong for complex numbers, whose parts may be infinite, or for unsigned
ones.

Patterns: `%x` is any value (twice: the same value), a number is a constant of that value and any type, or a
tensor filled with it, `#c` is any such constant and captures its number, `none` is an absent operand, and
calls nest. In braces an attribute is compared with a value or captured (`{dims = %dims}`); attributes not
mentioned may be anything. The function may also ask for `op`, the op at the root before its operands were
rewritten: only its types and attributes are of use. It returns None to decline.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from ...ir.errors import VerifyError
from ...ir.graph import Op, Value
from ...ir.parser import CallPattern, NumberCapture, ValueCapture, parse_pattern
from ...ir.printer import same_attribute
from ...ir.types import TensorType
from ...ops.define import REGISTRY
from ...ops.registry import lookup
from ..rewrite import splat_number

# A pattern, its function and the parameters of that, and the ops that must have made which operands.
Rule = tuple[CallPattern, Callable[..., Any], str, tuple[str, ...], tuple[tuple[str, str], ...]]

NUMBER = "number"  # in place of an op
ANY = "biufc"  # kinds of types


def same_number(left: Any, right: Any) -> bool:
    """Whether two numbers are equal, of any Python types; nan equals nan, 0.0 does not equal -0.0."""
    if isinstance(left, complex) or isinstance(right, complex):
        left, right = complex(left), complex(right)
        return same_number(left.real, right.real) and same_number(left.imag, right.imag)
    if left == right:
        return left != 0 or math.copysign(1, left) == math.copysign(1, right)
    return left != left and right != right


class Rules:
    """Rules by the op at their root, so that each op is matched only with rules that could fit."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str, Callable[..., Any]]] = []  # pattern, kinds of types, function
        self._by_root: dict[str, list[Rule]] | None = None

    def rule(self, *patterns: str, on: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function for one or several patterns, on types of these kinds."""
        if not set(on) <= set(ANY):
            raise ValueError(f"kinds of types are {ANY}, not {on}")

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.given.extend((pattern, on, function) for pattern in patterns)
            self._by_root = None
            return function

        return register

    @property
    def by_root(self) -> dict[str, list[Rule]]:
        """Return the rules by the op at their root, parsed at the first use: all ops exist by then."""
        if self._by_root is None:
            table: dict[str, list[Rule]] = {}
            for text, on, function in self.given:
                pattern = parse_pattern(text)
                check_pattern(pattern, text)
                wanted = tuple(inspect.signature(function).parameters)
                known = pattern.captures() | {"op"}
                for parameter in wanted:
                    if parameter not in known:
                        raise ValueError(f"rule {function.__name__}: {text!r} captures no {parameter!r}")
                operands = zip(lookup(pattern.name).tensor_names, pattern.operands)
                first = tuple((name, _wish(item)) for name, item in operands if _wish(item))
                table.setdefault(pattern.name, []).append((pattern, function, on, wanted, first))
            self._by_root = table
        return self._by_root

    def apply(self, op: Op, arguments: dict[str, Any]) -> Value | None:
        """Return the result of the first rule that fits the op, or None."""
        found = self.by_root.get(op.defn.name)
        if found is None:
            return None
        makers = {name: _maker(arguments[name]) for name in op.defn.tensor_names}
        kind = op.operands[-1].dtype.kind
        for pattern, function, on, wanted, first in found:
            if kind not in on or any(wish not in makers[name] for name, wish in first):
                continue  # quickly: most rules do not fit
            captured: dict[str, Any] = {}
            if not match_call(pattern, arguments, captured):
                continue
            if "op" in wanted:
                captured["op"] = op
            result = function(**{name: captured[name] for name in wanted})
            if result is not None:
                return fitted(result, op.results[0].type, function.__name__)
        return None


def _maker(operand: Any) -> tuple[str, ...]:
    """Return the name of the op that made an operand, and NUMBER for a constant."""
    if not isinstance(operand, Value) or operand.op is None:
        return ()
    name = operand.op.defn.name
    return (name,) if splat_number(operand) is None else (name, NUMBER)


def _wish(operand: Any) -> str:
    """Return the op, or NUMBER, that a pattern requires of an operand; "" if any will do."""
    if isinstance(operand, CallPattern):
        return operand.name
    return "" if operand is None or isinstance(operand, ValueCapture) else NUMBER


def fitted(value: Value, type: TensorType, rule: str) -> Value:
    """Return a rule's result in the shape of the op: a rule may drop an operand that broadcast the others."""
    if value.type == type:
        return value
    if value.dtype is not type.dtype:
        raise VerifyError(f"rule {rule} turns {type} into {value.type}")
    return REGISTRY["expand"](value, type.shape)


def check_pattern(pattern: CallPattern, text: str) -> None:
    """Check that the ops and parameters of a pattern exist."""
    defn = lookup(pattern.name)
    if len(pattern.operands) > len(defn.tensors):
        raise ValueError(f"{text!r}: {defn.name} takes {len(defn.tensors)} tensors")
    for name in pattern.attributes:
        if name not in defn.by_name:
            raise ValueError(f"{text!r}: {defn.name} has no parameter {name!r}")
    for operand in pattern.operands:
        if isinstance(operand, CallPattern):
            check_pattern(operand, text)


def match_call(pattern: CallPattern, arguments: dict[str, Any], captured: dict[str, Any]) -> bool:
    """Whether an op's arguments fit a pattern for that op; captures are filled in."""
    defn = REGISTRY[pattern.name]
    for parameter, wanted in zip(defn.tensors, pattern.operands):
        if not _match_operand(wanted, arguments[parameter.name], captured):
            return False
    for name, wanted in pattern.attributes.items():
        given = arguments[name]
        if isinstance(wanted, ValueCapture):
            if wanted.name not in captured:
                captured[wanted.name] = given
            elif not same_attribute(captured[wanted.name], given):
                return False
        elif not same_attribute(wanted, given):
            return False
    return True


def _match_operand(wanted: Any, given: Any, captured: dict[str, Any]) -> bool:
    if isinstance(wanted, ValueCapture):
        return isinstance(given, (Value, tuple)) and captured.setdefault(wanted.name, given) is given
    if not isinstance(given, Value):
        return wanted is None and given is None
    if isinstance(wanted, CallPattern):
        op = given.op
        return op is not None and op.defn.name == wanted.name and match_call(wanted, op.arguments, captured)
    number = splat_number(given)
    if number is None:
        return False
    if isinstance(wanted, NumberCapture):
        if wanted.name not in captured:
            captured[wanted.name] = number
        return same_number(captured[wanted.name], number)
    if isinstance(wanted, bool) and not isinstance(number, bool):
        return False
    return wanted is not None and same_number(wanted, number)
