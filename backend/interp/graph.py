"""Interpret the graph IR in NumPy: every primitive by its kind, one op after the other.

It is the reference: written to be obviously right, not fast. Arithmetic is done in the compute type of each result (f16
and bf16 in f32) and rounded when an op's result is stored. Composites are interpreted through their bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.errors import CompileError, range_error
from ...ir.graph import Graph, Op, Value
from ...ir.symbolic import Compound, Dim, Expr, Symbol, evaluate
from ...ir.types import DType, TensorType
from ...kernels.scalar.reference import cast
from ...kernels.scalar.table import COMBINERS, SCALARS
from ...kernels.sort import order
from ...ops.captures import as_array
from ...ops.create import constant
from ...ops.kinds import (
    Captured,
    Compact,
    Contract,
    Element,
    Elementwise,
    Index,
    Kind,
    Reduce,
    Scan,
    Scatter,
    Sort,
    View,
    registered,
)
from ..call_plan import Signature

# An expression's value: a number, or an array with one number for each element of the result.
Number = Any

COMPOUND: dict[str, Callable[[Number, Number], Number]] = {
    "//": np.floor_divide,
    "%": np.remainder,
    "min": np.minimum,
    "max": np.maximum,
}

ACCUMULATE: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add.accumulate,
    "mul": np.multiply.accumulate,
    "max": np.maximum.accumulate,
    "min": np.minimum.accumulate,
    "logaddexp": np.logaddexp.accumulate,
}

UPDATE_AT: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def interpret(graph: Graph, inputs: Sequence[Any]) -> list[np.ndarray]:
    """Compute the results of a graph for these inputs."""
    arrays = [as_array(item, f"input {position}") for position, item in enumerate(inputs)]
    interpreter = Interpreter(Signature.of(graph).bind(arrays))
    interpreter.values.update(zip(graph.params, arrays, strict=True))
    return [np.asarray(array) for array in interpreter.demand(graph.results)]


def number(expression: Dim, known: Mapping[str, Number]) -> Number:
    """Evaluate an expression whose symbols may have arrays as values."""
    if not isinstance(expression, Expr):
        return expression
    total: Number = 0
    for monomial, coefficient in expression.terms:
        factor: Number = coefficient
        for atom in monomial:
            if isinstance(atom, Compound):
                factor = factor * COMPOUND[atom.operator](number(atom.left, known), number(atom.right, known))
            else:
                factor = factor * known[atom.name]
        total = total + factor
    return total


class Interpreter:
    """An interpreter's state: the values computed so far, and the sizes of the call."""

    def __init__(self, sizes: dict[str, int]):
        self.sizes = sizes
        self.values: dict[Value, np.ndarray] = {}

    def demand(self, wanted: Sequence[Value]) -> list[np.ndarray]:
        """Return the arrays of some values, after running all ops that they depend on."""
        found: dict[int, Op] = {}
        pending = [value for value in wanted if value not in self.values]
        while pending:
            op = pending.pop().op
            if op is not None and op.serial not in found:
                found[op.serial] = op
                pending.extend(operand for operand in op.operands if operand not in self.values)
        for serial in sorted(found):
            op = found[serial]
            for value, array in zip(op.results, self.run(op), strict=True):
                self.values[value] = self.stored(array, value.type)
        return [self.values[value] for value in wanted]

    def run(self, op: Op) -> Sequence[np.ndarray]:
        if op.defn.kind is None:
            return self.demand(op.defn.expand(op.arguments))
        try:
            evaluate = registered(EVALUATE, op.defn.kind)
        except LookupError as error:
            raise CompileError(
                f"{op.name}: the interpreter does not know the kind {op.defn.kind.name}", op.loc
            ) from error
        with np.errstate(all="ignore"):
            return [evaluate(self, op, op.defn.kind)]

    def shape(self, shape: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(evaluate(size, self.sizes) for size in shape)

    def stored(self, array: np.ndarray, type: TensorType) -> np.ndarray:
        """Convert a result to its type and check it against the inferred shape."""
        array = np.asarray(array)
        array = array if array.dtype == type.dtype.numpy else cast(array, type.dtype)
        shape = self.shape(type.shape)
        return array if array.shape == shape else np.broadcast_to(array, shape)

    def operand(self, value: Value) -> np.ndarray:
        """Convert an operand to its compute type."""
        array = self.values[value]
        compute = value.dtype.compute
        if compute is not value.dtype and value.op is not None and value.op.defn is constant:
            # A factor or divisor beside f16 or bf16 has the precision of f32.
            return np.asarray(value.op.arguments["value"], compute.numpy)
        return array if compute is value.dtype else array.astype(compute.numpy)


class ArrayBuilder:
    """Builder for `element` functions on whole arrays: every index is an array with an entry per result element."""

    def __init__(self, interpreter: Interpreter, op: Op, shape: Sequence[Dim]):
        self.interpreter = interpreter
        self.op = op
        self.known: dict[str, Number] = dict(interpreter.sizes)
        self.index_symbols: list[Dim] = []
        self.dynamics = 0
        sizes = interpreter.shape(shape)
        for position, size in enumerate(shape):
            # Names with a space cannot collide with a user's symbol.
            symbol = Symbol(f"index {position}", 0, size - 1)
            along = [1] * len(sizes)
            along[position] = sizes[position]
            self.known[symbol.name] = np.arange(sizes[position]).reshape(along)
            self.index_symbols.append(symbol.expr())

    def load(self, value: Value, index: Index, guard: Any = None) -> np.ndarray:
        array = self.interpreter.operand(value)
        places = [np.asarray(number(place, self.known)) for place in index]
        if guard is None:
            for place, size in zip(places, array.shape, strict=True):
                if place.size and (place.min() < 0 or place.max() >= size):
                    raise AssertionError(f"{self.op.name} reads {value.type} outside its shape")
            return array[tuple(places)]
        guard = np.asarray(guard)
        if array.size == 0 or not guard.any():
            return np.zeros(np.broadcast_shapes(guard.shape, *(place.shape for place in places)), array.dtype)
        element = array[tuple(np.where(guard, place, 0) for place in places)]
        return np.where(guard, element, np.zeros((), array.dtype))

    def constant(self, value: Any, dtype: DType) -> np.ndarray:
        return np.asarray(value, dtype.compute.numpy)

    def scalar(self, name: str, *operands: np.ndarray) -> np.ndarray:
        return SCALARS[name].numpy(*operands)

    def cast(self, operand: np.ndarray, dtype: DType) -> np.ndarray:
        return cast(cast(operand, dtype), dtype.compute)

    def bitcast(self, operand: np.ndarray, dtype: DType) -> np.ndarray:
        return np.array(operand, order="C").view(dtype.numpy)

    def index(self, expression: Dim) -> np.ndarray:
        return np.asarray(number(expression, self.known), np.int64)

    def inside(self, expression: Dim, low: Dim, high: Dim) -> np.ndarray:
        value = np.asarray(number(expression, self.known))
        return (value >= number(low, self.known)) & (value < number(high, self.known))

    def dynamic(self, value: np.ndarray, size: Dim, wrap: bool) -> tuple[Dim, np.ndarray]:
        limit = number(size, self.known)
        place = np.asarray(value).astype(np.int64)
        wrapped = np.where(place < 0, place + limit, place) if wrap else place
        valid = (wrapped >= 0) & (wrapped < limit)
        if not valid.all():
            wrong = place[~valid].flat[0]
            message = self.op.arguments.get("assert_msg", "")
            raise range_error(self.op.name, "", int(wrong), limit, self.op.loc, message)
        symbol = Symbol(f"dynamic {self.dynamics}", 0, size - 1)
        self.dynamics += 1
        self.known[symbol.name] = wrapped
        return symbol.expr(), valid


def run_elementwise(interpreter: Interpreter, op: Op, kind: Elementwise) -> np.ndarray:
    if kind.scalar == "cast":
        return cast(interpreter.values[op.arguments["self"]], op.arguments["dtype"])
    return SCALARS[kind.scalar_on(op.result.dtype)].numpy(*(interpreter.operand(value) for value in op.operands))


def run_view(interpreter: Interpreter, op: Op, kind: View) -> np.ndarray:
    shape = op.result.shape
    if 0 in interpreter.shape(shape):
        return np.zeros(interpreter.shape(shape), op.result.dtype.numpy)
    builder = ArrayBuilder(interpreter, op, shape)
    return builder.load(op.arguments["self"], kind.index(builder.index_symbols, op.arguments))


def run_element(interpreter: Interpreter, op: Op, kind: Element) -> np.ndarray:
    shape = op.result.shape
    if 0 in interpreter.shape(shape):
        return np.zeros(interpreter.shape(shape), op.result.dtype.numpy)
    builder = ArrayBuilder(interpreter, op, shape)
    return kind.element(builder, builder.index_symbols, op.arguments)


def run_reduce(interpreter: Interpreter, op: Op, kind: Reduce) -> np.ndarray:
    array = interpreter.operand(op.arguments["self"])
    dims = op.arguments["dim"]
    result = COMBINERS[kind.combiner].numpy(array, dims[0] if kind.combiner.startswith("arg") else dims)
    return np.reshape(result, interpreter.shape(op.result.shape))


def run_scan(interpreter: Interpreter, op: Op, kind: Scan) -> np.ndarray:
    array = interpreter.operand(op.arguments["self"])
    return ACCUMULATE[kind.combiner](array, axis=op.arguments["dim"])


def run_scatter(interpreter: Interpreter, op: Op, kind: Scatter) -> np.ndarray:
    result = interpreter.operand(op.arguments["self"]).copy()
    space = kind.updates(op.arguments)
    sizes = interpreter.shape(space)
    if 0 in sizes:
        return result
    builder = ArrayBuilder(interpreter, op, space)
    index, guard = kind.place(builder, builder.index_symbols, op.arguments)
    scalar = kind.item(builder, builder.index_symbols, op.arguments)
    valid = np.broadcast_to(True if guard is None else guard, sizes).ravel()
    # ravel is row-major, so updates are applied in the order of the update space.
    places = tuple(np.broadcast_to(number(place, builder.known), sizes).ravel()[valid] for place in index)
    updates = np.broadcast_to(scalar, sizes).ravel()[valid]
    combine = kind.combine(op.arguments)
    if combine is None:
        result[places] = updates
    else:
        UPDATE_AT[combine](result, places, updates)
    return result


def run_compact(interpreter: Interpreter, op: Op, kind: Compact) -> np.ndarray:
    (size,) = interpreter.shape(op.result.shape)
    result = np.full(size, op.arguments["fill_value"], np.int64)
    places = np.flatnonzero(interpreter.operand(op.arguments["self"]))[:size]
    result[: len(places)] = places
    return result


def run_contract(interpreter: Interpreter, op: Op, kind: Contract) -> np.ndarray:
    return np.matmul(interpreter.operand(op.arguments["self"]), interpreter.operand(op.arguments["mat2"]))


def run_sort(interpreter: Interpreter, op: Op, kind: Sort) -> np.ndarray:
    array = interpreter.operand(op.arguments["self"])
    (start,), kept = interpreter.shape((op.arguments["start"],)), interpreter.shape(op.result.shape)[-1]
    found = order(array, op.arguments["descending"])[..., start : start + kept]
    return found if kind.places else np.take_along_axis(array, found, -1)


def run_captured(interpreter: Interpreter, op: Op, kind: Captured) -> np.ndarray:
    return op.arguments["array"].array


EVALUATE: dict[type[Kind], Callable[[Interpreter, Op, Any], np.ndarray]] = {
    Elementwise: run_elementwise,
    View: run_view,
    Element: run_element,
    Reduce: run_reduce,
    Scan: run_scan,
    Scatter: run_scatter,
    Sort: run_sort,
    Compact: run_compact,
    Contract: run_contract,
    Captured: run_captured,
}
