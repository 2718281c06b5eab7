"""Random programs, each with inputs and the error its results may have.

Inputs are small whole numbers, so most results are exact in every element type, and comparisons, rounding
and argmax, which would magnify a difference in the last bit, can be used freely on them. What is not exact
(exp, a mean, ...) carries a bound of its error, and only goes into ops that let it grow in a known way.

    program = build(Seeded(7))                  # or Drawn(draw), which hypothesis can shrink
    program.graph, program.inputs, program.errors
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from hypothesis import strategies as st
from smelt.ir.graph import Graph, Value
from smelt.ir.types import DTYPES, DType, TensorType, dtype
from smelt.ops.define import REGISTRY

SIZES = (0, 1, 1, 2, 3, 3, 4, 5, 7, 16, 17, 33)
ELEMENT_TYPES = ("f32", "f32", "f32", "f64", "bf16", "f16", "i64", "i32", "u8", "i8", "i16", "bool")
MOST_ELEMENTS = 3000
MOST_RESULTS = 4
SMALL = 4  # inputs are whole numbers of this magnitude at most

# Whole numbers up to here are exact in the type.
EXACT_LIMIT = {
    "bool": 1, "u8": 255, "i8": 127, "i16": 2**15 - 1, "i32": 2**31 - 1, "i64": 2**53,
    "bf16": 2**8, "f16": 2**11, "f32": 2**24, "f64": 2**53,
}  # fmt: skip
EPSILON = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-22, "f64": 2.0**-49}
INEXACT_LIMIT = 1e4


class Choice(Protocol):
    """Where the decisions come from."""

    def integer(self, low: int, high: int) -> int:
        """A whole number, both ends included."""


class Drawn:
    """From hypothesis."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]):
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))


class Seeded:
    """From a seed."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)


@dataclass(frozen=True)
class Item:
    """A value, a bound of its magnitude, a bound of its error."""

    value: Value
    bound: float
    error: float = 0.0
    negative: bool = True  # whether it may be below zero

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def exact(self) -> bool:
        return self.error == 0.0


@dataclass(repr=False)
class Program:
    """A graph, inputs for it, and how far from exact each result may be. Shown as its text."""

    graph: Graph
    inputs: list[np.ndarray]
    errors: list[float]

    def __repr__(self) -> str:
        return f"\n{self.graph}\n"


class Builder:
    """Grows a program op by op."""

    def __init__(self, choice: Choice):
        self.choice = choice
        self.params: list[Value] = []
        self.inputs: list[np.ndarray] = []
        self.items: list[Item] = []

    # Choosing

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.choice.integer(0, len(options) - 1)]

    def coin(self) -> bool:
        return self.choice.integer(0, 1) == 1

    def item(self, test: Callable[[Item], bool] = lambda item: True) -> Item | None:
        found = [item for item in self.items if test(item)]
        # The younger half more often, so that programs grow deep.
        return self.pick(found[len(found) // 2 :] if len(found) > 1 and self.coin() else found) if found else None

    def shape(self, most_dims: int = 3) -> tuple[int, ...]:
        shape: list[int] = []
        for _ in range(self.choice.integer(0, most_dims)):
            size = self.pick(SIZES)
            if math.prod(shape) * max(size, 1) <= MOST_ELEMENTS:
                shape.append(size)
        return tuple(shape)

    def input(self, shape: Sequence[int], name: str, low: int = -SMALL, high: int = SMALL) -> Item:
        """A new parameter of small whole numbers."""
        element = DTYPES[name]
        source = np.random.default_rng(self.choice.integer(0, 2**16))
        low = 0 if element.kind in "bu" else low
        high = 1 if element.kind == "b" else high
        array = source.integers(low, high, tuple(shape), endpoint=True).astype(element.numpy)
        value = Value(TensorType(element, tuple(shape)), name=f"x{len(self.params)}")
        self.params.append(value)
        self.inputs.append(array)
        return Item(value, float(max(abs(low), abs(high))), 0.0, low < 0)

    def partner(self, item: Item, name: str | None = None) -> Item:
        """A value that broadcasts with another: one that exists, or a new parameter."""
        name = name or item.dtype.name
        known = self.item(lambda other: other.dtype.name == name and broadcasts(other.shape, item.shape))
        if known is not None and self.coin():
            return known
        shape = [1 if self.choice.integer(0, 3) == 0 else size for size in item.shape]
        return self.input(shape[self.choice.integer(0, len(shape)) :] if self.coin() else shape, name)

    # Keeping

    def keep(self, value: Value, bound: float, error: float = 0.0, negative: bool = True) -> Item | None:
        """Add a result, unless it could leave what its type holds exactly or grow without bounds."""
        name = value.dtype.name
        limit = EXACT_LIMIT[name]
        if error:
            # Rounding of this op itself; comparisons of half-precision results need them not to overflow.
            error = error + EPSILON[name] * max(bound, 1e-3)
            limit = INEXACT_LIMIT
        if bound > limit or error > 0.25 * max(bound, 1.0) or math.prod(value.shape) > MOST_ELEMENTS:
            return None
        if negative and value.dtype.kind == "u":
            return None
        item = Item(value, max(bound, 1.0), error, negative and value.dtype.kind != "b")
        self.items.append(item)
        return item


def broadcasts(left: Sequence[int], right: Sequence[int]) -> bool:
    return all(a == b or a == 1 or b == 1 for a, b in zip(reversed(left), reversed(right)))


def op(name: str, *args: Any, **kwargs: Any) -> Any:
    return REGISTRY[name](*args, **kwargs)


def number(item: Item) -> bool:
    return item.dtype.kind != "b"


def floating(item: Item) -> bool:
    return item.dtype.is_float


# The steps: each adds one op to the program if it can.


def unary_exact(b: Builder) -> None:
    name = b.pick(("neg", "abs", "square", "relu", "sign", "floor", "ceil", "trunc", "round", "logical_not"))
    item = b.item(lambda item: number(item) and item.exact)
    if item is None or (name == "neg" and item.negative is False and item.dtype.kind == "u"):
        return
    bound = {"square": item.bound**2, "sign": 1.0, "logical_not": 1.0}.get(name, item.bound)
    if name == "neg" and item.dtype.kind == "u":
        return
    negative = name in ("neg", "sign", "floor", "ceil", "trunc", "round") and (item.negative or name == "neg")
    b.keep(op(name, item.value), bound, 0.0, negative)


def unary_smooth(b: Builder) -> None:
    # name: (largest input, bound of the result, bound of the slope)
    table: dict[str, tuple[float, Callable[[float], float], Callable[[float], float]]] = {
        "exp": (6.0, math.exp, math.exp),
        "tanh": (1e4, lambda x: 1.0, lambda x: 1.0),
        "sigmoid": (1e4, lambda x: 1.0, lambda x: 0.25),
        "sin": (1e3, lambda x: 1.0, lambda x: 1.0),
        "cos": (1e3, lambda x: 1.0, lambda x: 1.0),
        "erf": (1e4, lambda x: 1.0, lambda x: 1.2),
        "atan": (1e4, lambda x: 1.6, lambda x: 1.0),
        "gelu": (1e3, lambda x: x, lambda x: 1.2),
        "silu": (1e3, lambda x: x, lambda x: 1.2),
        "softplus": (1e3, lambda x: x + 1.0, lambda x: 1.0),
        "neg": (1e4, lambda x: x, lambda x: 1.0),
        "abs": (1e4, lambda x: x, lambda x: 1.0),
        "square": (1e2, lambda x: x * x, lambda x: 2 * x),
    }
    name = b.pick(sorted(table))
    most, bound, slope = table[name]
    item = b.item(lambda item: floating(item) and item.bound <= most)
    if item is None:
        return
    # Input rounding of the half types may happen once more or once less between fused ops.
    error = (item.error + EPSILON[item.dtype.name] * item.bound) * slope(item.bound)
    b.keep(op(name, item.value), bound(item.bound), error)


def binary(b: Builder) -> None:
    name = b.pick(("add", "sub", "mul", "maximum", "minimum"))
    left = b.item(number)
    if left is None:
        return
    right = b.partner(left)
    if not broadcasts(left.shape, right.shape):
        return
    if b.coin():
        left, right = right, left
    if name == "sub" and left.dtype.kind == "u":
        return
    if name == "mul":
        bound, error = left.bound * right.bound, left.error * right.bound + right.error * left.bound
    elif name in ("add", "sub"):
        bound, error = left.bound + right.bound, left.error + right.error
    else:
        bound, error = max(left.bound, right.bound), max(left.error, right.error)
    negative = left.negative or right.negative or name == "sub"
    b.keep(op(name, left.value, right.value), bound, error, negative)


def binary_mixed(b: Builder) -> None:
    """Two element types: promotion."""
    left, right = b.item(lambda item: item.exact), b.item(lambda item: item.exact)
    if left is None or right is None or not broadcasts(left.shape, right.shape):
        return
    value = op(b.pick(("add", "mul")), left.value, right.value)
    b.keep(value, max(left.bound + right.bound, left.bound * right.bound), 0.0, left.negative or right.negative)


def scalar(b: Builder) -> None:
    item = b.item(number)
    if item is None or item.dtype.kind == "u":
        return
    constant = b.choice.integer(-3, 3)
    if b.coin():
        b.keep(op("add", item.value, constant), item.bound + 3, item.error)
    else:
        b.keep(
            op("mul", item.value, constant),
            item.bound * max(abs(constant), 1),
            item.error * max(abs(constant), 1),
        )


def divide(b: Builder) -> None:
    left = b.item(floating)
    right = b.item(lambda item: floating(item) and item.exact)
    if left is None or right is None or left.dtype is not right.dtype or not broadcasts(left.shape, right.shape):
        return
    bottom = op("add", op("square", right.value), 1)
    if right.bound**2 + 1 > EXACT_LIMIT[right.dtype.name]:
        return
    b.keep(op("div", left.value, bottom), left.bound, left.error + EPSILON[left.dtype.name] * left.bound)


def integer_divide(b: Builder) -> None:
    left = b.item(lambda item: item.exact and number(item))
    if left is None:
        return
    divisor = b.pick((1, 2, 3, 5, -2, -3))
    name = b.pick(("floor_divide", "remainder", "fmod"))
    if left.dtype.kind == "u" and divisor < 0:
        return
    b.keep(op(name, left.value, divisor), max(left.bound, abs(divisor)), 0.0, left.negative or divisor < 0)


def compare(b: Builder) -> None:
    left = b.item(lambda item: item.exact)
    if left is None:
        return
    right = b.partner(left)
    if not right.exact or not broadcasts(left.shape, right.shape):
        return
    b.keep(op(b.pick(("eq", "ne", "lt", "le", "gt", "ge")), left.value, right.value), 1.0, 0.0, False)


def logic(b: Builder) -> None:
    left = b.item(lambda item: item.dtype.kind in "biu" and item.exact)
    if left is None:
        return
    right = b.partner(left)
    if not broadcasts(left.shape, right.shape):
        return
    value = op(b.pick(("bitwise_and", "bitwise_or", "bitwise_xor")), left.value, right.value)
    bound = 2.0 ** math.ceil(math.log2(max(left.bound, right.bound) + 1) + 1)
    b.keep(value, 1.0 if value.dtype.kind == "b" else bound, 0.0, left.negative or right.negative)


def where(b: Builder) -> None:
    left = b.item()
    if left is None:
        return
    right, condition = b.partner(left), b.partner(left, "bool")
    if not (broadcasts(left.shape, right.shape) and broadcasts(left.shape, condition.shape)):
        return
    if not broadcasts(right.shape, condition.shape):
        return
    value = op("where", condition.value, left.value, right.value)
    b.keep(value, max(left.bound, right.bound), max(left.error, right.error), left.negative or right.negative)


def cast(b: Builder) -> None:
    item = b.item()
    if item is None:
        return
    target = DTYPES[b.pick(ELEMENT_TYPES)]
    if (not item.exact and not target.is_float) or (item.negative and target.kind == "u"):
        return
    bound = 1.0 if target.kind == "b" else item.bound
    b.keep(op("cast", item.value, target), bound, item.error, item.negative)


def movement(b: Builder) -> None:
    item = b.item()
    if item is None:
        return
    value, shape = item.value, item.shape
    rank = len(shape)
    name = b.pick(
        (
            "permute",
            "reshape",
            "flatten",
            "expand",
            "slice",
            "flip",
            "unsqueeze",
            "squeeze",
            "select",
            "diagonal",
            "roll",
            "tril",
        )
    )
    if name == "unsqueeze":
        result = op(name, value, b.choice.integer(0, rank))
    elif name == "squeeze" or name == "flatten":
        result = op(name, value)
    elif name == "expand":
        size = [b.pick(SIZES) if length == 1 and b.coin() else length for length in shape]
        result = op(name, value, [2, *size] if b.coin() else size)
    elif rank == 0:
        return
    elif name == "permute":
        order = list(range(rank))
        for position in range(rank):
            other = b.choice.integer(position, rank - 1)
            order[position], order[other] = order[other], order[position]
        result = op(name, value, order)
    elif name == "reshape":
        divisors = [size for size in (2, 3, 4, 5, 7, 16) if math.prod(shape) and math.prod(shape) % size == 0]
        result = op(name, value, (b.pick(divisors), -1) if divisors else shape)
    elif name == "tril":
        if rank < 2:
            return
        result = op(b.pick(("tril", "triu")), value, b.choice.integer(-2, 2))
    elif name == "diagonal":
        if rank < 2:
            return
        result = op(name, value, b.choice.integer(-1, 1), rank - 2, rank - 1)
    else:
        dim = b.choice.integer(0, rank - 1)
        if name == "slice":
            start = b.choice.integer(0, shape[dim])
            result = op(name, value, dim, start, b.choice.integer(start, shape[dim]), b.choice.integer(1, 3))
        elif name == "flip":
            result = op(name, value, [dim])
        elif name == "roll":
            result = op(name, value, [b.choice.integer(-3, 3)], [dim])
        elif shape[dim] == 0:
            return
        else:
            result = op("select", value, dim, b.choice.integer(0, shape[dim] - 1))
    b.keep(result, item.bound, item.error, item.negative)


def join(b: Builder) -> None:
    item = b.item(lambda item: len(item.shape) > 0)
    if item is None:
        return
    dim = b.choice.integer(0, len(item.shape) - 1)
    if b.coin():
        before, after = b.choice.integer(-1, 2), b.choice.integer(-1, 2)
        if item.shape[dim] + min(before, 0) + min(after, 0) < 0:
            return
        pads = [0, 0] * (len(item.shape) - 1 - dim) + [before, after]
        fill = b.choice.integer(0, 1)
        b.keep(op("constant_pad_nd", item.value, pads, fill), item.bound, item.error, item.negative)
        return
    other_shape = list(item.shape)
    other_shape[dim] = b.pick(SIZES)
    if math.prod(other_shape) + math.prod(item.shape) > MOST_ELEMENTS:
        return
    other = b.input(other_shape, item.dtype.name)
    parts = [item, other, item] if b.coin() else [other, item]
    value = op("cat", [part.value for part in parts], dim)
    b.keep(value, max(item.bound, other.bound), item.error, item.negative or other.negative)


def reduce(b: Builder) -> None:
    item = b.item()
    if item is None:
        return
    dims = tuple(dim for dim in range(len(item.shape)) if b.coin())
    if not dims and item.shape:
        dims = (len(item.shape) - 1,)
    count = math.prod(item.shape[dim] for dim in dims)
    keepdim = b.coin()
    name = b.pick(
        ("sum", "sum", "mean", "amax", "amin", "any", "all", "argmax", "argmin", "cumsum", "var", "logsumexp")
    )
    value = item.value
    if name == "sum":
        b.keep(
            op(name, value, dims, keepdim),
            item.bound * max(count, 1),
            item.error * max(count, 1),
            item.negative,
        )
    elif name in ("any", "all"):
        if item.exact:
            dim = dims[0] if dims else None
            b.keep(op(name, value, dim, keepdim), 1.0, 0.0, False)
    elif count == 0:
        return
    elif name in ("amax", "amin"):
        if number(item):
            b.keep(op(name, value, dims, keepdim), item.bound, item.error, item.negative)
    elif name in ("argmax", "argmin"):
        if item.exact and number(item):
            dim = dims[0] if dims else None
            b.keep(op(name, value, dim, keepdim if dims else False), MOST_ELEMENTS, 0.0, False)
    elif name == "cumsum":
        if dims and item.exact:
            b.keep(op(name, value, dims[0]), item.bound * item.shape[dims[0]], 0.0, item.negative)
    elif not floating(item) or item.dtype.bits == 16:
        return
    elif name == "mean":
        b.keep(
            op(name, value, dims, keepdim),
            item.bound,
            item.error + EPSILON[item.dtype.name] * item.bound * count,
        )
    elif name == "var":
        grown = item.bound**2
        error = 4 * item.bound * item.error + EPSILON[item.dtype.name] * grown * count
        b.keep(op(name, value, dims, correction=0, keepdim=keepdim), grown, error)
    else:
        error = item.error + EPSILON[item.dtype.name] * (item.bound + count)
        b.keep(op(name, value, dims, keepdim), item.bound + math.log(count), error)


def row_op(b: Builder) -> None:
    """Several passes over a row: what fusion makes one kernel of."""
    item = b.item(lambda item: item.dtype.name in ("f32", "f64") and len(item.shape) > 0 and item.bound <= 1e3)
    if item is None or item.shape[-1] == 0:
        return
    unit = EPSILON[item.dtype.name] * item.bound * item.shape[-1]
    name = b.pick(("softmax", "log_softmax", "layer_norm"))
    if name == "softmax":
        b.keep(op(name, item.value, -1), 1.0, item.error + unit)
    elif name == "log_softmax":
        b.keep(op(name, item.value, -1), 2 * item.bound + math.log(item.shape[-1]), 2 * item.error + unit)
    else:
        # 1/sqrt(eps) is the most that it magnifies.
        result = op(name, item.value, (item.shape[-1],), eps=1e-2)
        b.keep(result, math.sqrt(item.shape[-1]) + 1, 20 * (item.error + unit))


def product(b: Builder) -> None:
    left = b.item(lambda item: 1 <= len(item.shape) <= 3 and number(item))
    if left is None:
        return
    inner = left.shape[-1]
    batch = left.shape[:-2] if b.coin() else ()
    right = b.input((*batch, inner, b.pick(SIZES)), left.dtype.name, -2, 2)
    if b.coin() and len(left.shape) == 2:
        right = Item(b.input((b.pick(SIZES), inner), left.dtype.name, -2, 2).value, 2.0, 0.0, True)
        right = Item(op("transpose", right.value, 0, 1), 2.0)
    value = op("matmul", left.value, right.value)
    grown = left.bound * right.bound * max(inner, 1)
    b.keep(value, grown, left.error * right.bound * max(inner, 1), left.negative or right.negative)


def gather(b: Builder) -> None:
    item = b.item(lambda item: len(item.shape) > 0 and 0 not in item.shape)
    if item is None:
        return
    dim = b.choice.integer(0, len(item.shape) - 1)
    size = item.shape[dim]
    name = b.pick(("index_select", "gather", "index", "embedding", "index_add", "index_put", "scatter_add"))
    kind = b.pick(("i64", "i32"))
    length = b.pick(SIZES)
    if name == "index_select":
        chosen = b.input((length,), kind, 0, size - 1)
        result = op(name, item.value, dim, chosen.value)
    elif name == "gather":
        shape = list(item.shape)
        shape[dim] = length
        chosen = b.input(shape, "i64", 0, size - 1)
        result = op(name, item.value, dim, chosen.value)
    elif name == "index":
        chosen = b.input((length,), "i64", -item.shape[0], item.shape[0] - 1)
        result = op(name, item.value, [chosen.value])
    elif name == "embedding":
        if len(item.shape) != 2:
            return
        chosen = b.input((2, length), kind, 0, item.shape[0] - 1)
        result = op(name, item.value, chosen.value)
    else:
        if not item.exact or not number(item):
            return
        if name == "scatter_add":
            shape = list(item.shape)
            shape[dim] = length
            chosen, source = b.input(shape, "i64", 0, size - 1), b.input(shape, item.dtype.name)
            result = op(name, item.value, dim, chosen.value, source.value)
        elif name == "index_add":
            shape = list(item.shape)
            shape[dim] = length
            chosen, source = b.input((length,), "i64", 0, size - 1), b.input(shape, item.dtype.name)
            result = op(name, item.value, dim, chosen.value, source.value)
        else:
            chosen = b.input((length,), "i64", 0, item.shape[0] - 1)
            source = b.input((length, *item.shape[1:]), item.dtype.name)
            result = op(name, item.value, [chosen.value], source.value)
        b.keep(
            result,
            item.bound + SMALL * max(length, 1) * math.prod(item.shape),
            0.0,
            item.negative or source.negative,
        )
        return
    b.keep(result, item.bound, item.error, item.negative)


def generate(b: Builder) -> None:
    shape = b.shape(2)
    if shape and b.coin():
        dim = b.choice.integer(0, len(shape) - 1)
        b.keep(op("iota", shape, dim=dim, dtype=b.pick(("i64", "f32", "i32"))), float(max(shape)), 0.0, False)
    else:
        constant = b.choice.integer(0, 3)
        b.keep(op("full", shape, constant, dtype=b.pick(("f32", "i64", "f64"))), 3.0, 0.0, False)


STEPS = (
    unary_exact, unary_smooth, unary_smooth, binary, binary, binary, binary_mixed, scalar, divide,
    integer_divide, compare, logic, where, cast, movement, movement, movement, join, reduce, reduce, row_op,
    product, gather, generate,
)  # fmt: skip


def build(choice: Choice, most_steps: int = 30) -> Program:
    """A random program."""
    b = Builder(choice)
    for _ in range(choice.integer(1, 3)):
        b.items.append(b.input(b.shape(), b.pick(ELEMENT_TYPES)))
    for _ in range(choice.integer(1, most_steps)):
        b.pick(STEPS)(b)
    # What nobody has used yet, so that most of what was built is in the program; and something in its middle.
    used = {operand for item in b.items if item.value.op is not None for operand in item.value.op.operands}
    chosen = [item for item in b.items if item.value not in used][-MOST_RESULTS:]
    if b.coin():
        chosen.append(b.pick(b.items))
    graph = Graph.build("random", b.params, [item.value for item in chosen])
    return Program(graph, b.inputs, [item.error for item in chosen])


@st.composite
def programs(draw: Any) -> Program:
    """A strategy of random programs."""
    return build(Drawn(draw))


def disagreement(program: Program, got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> str:
    """Where two sets of results differ by more than they may, or nothing."""
    for position, (left, right, error) in enumerate(zip(got, want, program.errors, strict=True)):
        expected = program.graph.results[position].type
        for side in (left, right):
            if dtype(side.dtype) is not expected.dtype or tuple(side.shape) != expected.shape:
                return f"result {position} is {dtype(side.dtype)}{list(side.shape)}, expected {expected}"
        if error:
            gap = np.abs(left.astype(np.float64) - right.astype(np.float64))
            wrong = ~(gap <= 4 * error)
        else:
            wrong = left != right
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            pair = f"{left[place]} and {right[place]}"
            return f"result {position} at {list(place)}: {pair}, may differ by {4 * error:g}"
    return ""
