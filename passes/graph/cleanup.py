"""Remove redundant work: common subexpressions (cse), dead code (dce), ops on constants (fold)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.errors import SmeltError
from ...ir.graph import Graph, Op, Value
from ...ir.types import DType, TensorType
from ...kernels.scalar.table import SCALARS
from ...ops.define import REGISTRY, Scalar, constant, scalar_value
from ...ops.kinds import Elementwise, Reduce
from ...ops.shapes import are_ints
from ..registry import graph_pass
from ..rewrite import live_ops, rebuild, remake, splat_number


@graph_pass("cse")
def cse(graph: Graph) -> Graph:
    """Merge ops with equal operands and attributes into one. Random ops are left alone."""
    seen: dict[tuple[Any, ...], tuple[Value, ...]] = {}

    def visit(op: Op, arguments: dict[str, Any]) -> tuple[Value, ...] | None:
        if op.defn.takes_stream:
            return None
        key = (op.defn, *map(argument_key, arguments.values()))
        if op.defn.commutes:
            key = (op.defn, *sorted(key[1:3]), *key[3:])
        known = seen.get(key)
        if known is not None:
            return known
        if isinstance(op.defn.kind, Reduce):
            # `keepdim` changes the shape of the result, not its numbers.
            other = arguments | {"keepdim": not arguments["keepdim"]}
            twin = seen.get((op.defn, *map(argument_key, other.values())))
            if twin is not None:
                shaped = REGISTRY["reshape"](twin[0], op.results[0].shape)
                assert shaped.op is not None
                return visit(shaped.op, shaped.op.arguments) or (shaped,)
        if arguments is op.arguments:
            seen[key] = op.results
            return None
        # An op whose operands changed is made here, not by the walker, so that the table has the new op.
        seen[key] = remake(op, arguments)
        return seen[key]

    return rebuild(graph, visit, again=False)


def argument_key(argument: Any) -> Any:
    """Return a key that is equal for equal arguments. Values are compared by identity: `==` on them builds an op."""
    if isinstance(argument, Value):
        return id(argument)
    if isinstance(argument, tuple):
        return ("ints", argument) if are_ints(argument) else ("tuple", *map(argument_key, argument))
    if isinstance(argument, (bool, float, complex)):
        # True == 1 == 1.0 and -0.0 == 0.0 for a dict, but not for an op; nan is nan.
        return (argument.__class__, repr(argument))
    if isinstance(argument, int):
        return ("int", argument)
    return argument


@graph_pass("dce")
def dce(graph: Graph) -> Graph:
    """Remove ops that no result needs."""
    kept = live_ops(graph.ops, graph.results)
    return graph if len(kept) == len(graph.ops) else Graph(graph.name, graph.params, kept, graph.results)


@graph_pass("fold")
def fold(graph: Graph) -> Graph:
    """Fold elementwise ops on constants, computed by NumPy in the compute type of the op."""
    return rebuild(graph, folded)


def folded(op: Op, arguments: dict[str, Any]) -> Value | None:
    """Return the constant that an elementwise op on constants is, or None."""
    if not isinstance(op.defn.kind, Elementwise):
        return None
    values = [arguments[parameter.name] for parameter in op.defn.tensors]
    numbers = [splat_number(value) for value in values]
    if any(number is None for number in numbers):
        return None
    type = op.results[0].type
    number = computed(op.defn.kind.scalar_on(type.dtype), [value.dtype for value in values], numbers, type)
    return None if number is None else splat(number, type)


def splat(number: Scalar, type: TensorType) -> Value:
    """Return a tensor filled with a number."""
    if not type.shape:
        return constant(number, type.dtype)
    return REGISTRY["full"](type.shape, scalar_value(number, type.dtype), dtype=type.dtype)


def computed(scalar: str, dtypes: list[DType], numbers: list[Any], type: TensorType) -> Scalar | None:
    """Compute a scalar op on numbers; None where NumPy's result does not fit the type."""
    try:
        with np.errstate(all="ignore"):
            if scalar == "cast":
                number = converted(numbers[0], type)
                # Only a cast rounds to f16 and bf16; arithmetic keeps the compute type's precision.
                return float(np.asarray(number).astype(type.dtype.numpy)) if type.dtype.is_float else number
            operands = [np.asarray(number, dtype.compute.numpy) for number, dtype in zip(numbers, dtypes, strict=True)]
            result = np.asarray(SCALARS[scalar].numpy(*operands))
    except (SmeltError, ValueError, TypeError, OverflowError):
        return None
    return converted(result.item(), type)


def converted(number: Any, type: TensorType) -> Any:
    """Convert a number to an element of the type; None if the result of the conversion depends on hardware."""
    dtype = type.dtype
    if isinstance(number, complex) and dtype.kind in "iuf":
        number = number.real
    if dtype.is_integer:
        half = 2 ** (dtype.bits - 1)
        low, high = (0, 2 * half) if dtype.kind == "u" else (-half, half)
        if not isinstance(number, float):
            return (int(number) - low) % (2 * half) + low  # an integer that does not fit wraps
        return int(number) if low - 1 < number < high else None
    return number
