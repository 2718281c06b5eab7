"""The graph IR as text. parser.py reads it back; its hash is a part of the disk cache's key.

    graph @mlp(%x: f32[N, 64], %w: f32[64, 128]) where N >= 2 {
      %0 = matmul(%x, %w) : f32[N, 128]                       // model.py:12
      %1 = gelu(%0) {approximate = "tanh"} : f32[N, 128]      // model.py:13
      return %1
    }

Tensor arguments are positional, all others are in braces, and arguments equal to their default are left out.
A `constant` is a literal where it is used: 0.5:f32, 3:i64, true. The text is deterministic.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from .graph import Graph, Op, Value
from .symbolic import Expr, Symbol, symbols_of
from .types import DType

if TYPE_CHECKING:
    from ..ops.parameters import Parameter

INDENT = "  "
UNDEFINED = "%undefined"
HEADER_WIDTH = 110
# columns: longer lines do not move the comments of the other lines to the right.
COMMENT_COLUMN = 90


def print_graph(graph: Graph, *, locations: bool = True) -> str:
    """The text of a graph, with the user's line beside each op if `locations`."""
    return Printer(graph).text(locations)


def graph_hash(graph: Graph) -> str:
    """sha256 of the text without locations."""
    return hashlib.sha256(print_graph(graph, locations=False).encode()).hexdigest()


def identifier(name: str) -> str:
    """Return the name with characters that the text form does not allow replaced."""
    return (name if name.isidentifier() else re.sub(r"[^\w.]", "_", name)).strip("_.")


def real_text(value: float) -> str:
    """A float that reads back as the same float: 0.5, 1e-05, inf, nan."""
    return repr(float(value))


def number_text(value: bool | int | float | complex) -> str:
    """A Python number: 3, 0.5, true, (1.0+2.0j)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, complex):
        imaginary = real_text(value.imag)
        sign = "" if imaginary.startswith("-") else "+"
        return f"({real_text(value.real)}{sign}{imaginary}j)"
    return real_text(value)


def literal_text(value: bool | int | float | complex, dtype: DType) -> str:
    """A constant of a type, with no more digits than the type needs: 0.1:f32."""
    if dtype.kind == "b":
        return number_text(bool(value))
    if dtype.kind == "c":
        value = complex(value)
        value = complex(_shortest(value.real, dtype.real), _shortest(value.imag, dtype.real))
    elif dtype.kind == "f":
        value = _shortest(float(value), dtype)  # type: ignore[arg-type]
    return f"{number_text(value)}:{dtype}"


def _shortest(value: float, dtype: DType) -> float:
    """Return the float with the shortest text that reads back as `value` in a dtype. A number beside an f16 or bf16
    tensor has the digits of f32, in which the arithmetic is done."""
    if dtype.bits == 64 or (value.is_integer() and abs(value) < 1000):
        return value
    kept = dtype.compute.numpy.type
    short = float(str(kept(value)))
    return short if float(kept(short)) == value else value


def same_attribute(left: Any, right: Any) -> bool:
    """Whether two attributes are the same: 1 is not True and not 1.0, nan is nan, 0.0 is not -0.0."""
    if left is right:
        return True
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(map(same_attribute, left, right))
    if type(left) is not type(right):
        return False
    return repr(left) == repr(right) if isinstance(left, (float, complex)) else bool(left == right)


class Printer:
    """The names of a graph's values, and the lines made with them. A broken graph prints too."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.names: dict[Value, str] = {}
        self.symbols: dict[Symbol, None] = dict.fromkeys(graph.sizes)
        self.types: dict[int, str] = {}  # keyed by id
        self.unsaid = ""  # facts about the graph that the printed text leaves out
        taken: set[str] = set()
        for position, param in enumerate(graph.params):
            name = identifier(param.name)
            if not name or name[0].isdigit():
                name = f"arg{position}"
            while name in taken:
                name = f"{name}_{position}"
            taken.add(name)
            self.names[param] = f"%{name}"
        count = 0
        literals: dict[tuple[DType, type, str], str] = {}
        for op in graph.ops:
            if op.defn.name == "constant":
                number, dtype = op.arguments["value"], op.arguments["dtype"]
                key = (dtype, number.__class__, repr(number))
                text = literals.get(key)
                if text is None:
                    text = literals[key] = literal_text(number, dtype)
                self.names[op.results[0]] = text
                continue
            for value in op.results:
                self.names[value] = f"%{count}"
                count += 1

    def text(self, locations: bool) -> str:
        """The whole graph."""
        ops = [op for op in self.graph.ops if op.defn.name != "constant"]
        lines = list(map(self.op_line, ops))
        if locations:
            widths = [len(line.rsplit("\n", 1)[-1]) for line in lines]
            near = [width for op, width in zip(ops, widths) if op.loc is not None and width <= COMMENT_COLUMN]
            column = max(near, default=COMMENT_COLUMN) + 2
            for position, (op, width) in enumerate(zip(ops, widths)):
                if op.loc is not None:
                    lines[position] += f"{' ' * max(column - width, 2)}// {op.loc}"
        return "\n".join([self.header(), *lines, self.return_line(), "}"])

    def header(self) -> str:
        """graph @name(parameters) where ranges {"""
        params = [f"{self.names[param]}: {param.type}" for param in self.graph.params]
        ranges: list[str] = []
        for symbol in self.symbols:
            if symbol.lower is not None:
                ranges.append(f"{symbol} >= {symbol.lower}")
            if symbol.upper is not None:
                ranges.append(f"{symbol} <= {symbol.upper}")
            if symbol.lower is None and symbol.upper is None:
                ranges.append(str(symbol))
        where = f" where {', '.join(ranges)}" if ranges else ""
        start = f"graph @{identifier(self.graph.name) or 'main'}"
        line = f"{start}({', '.join(params)}){where} {{"
        if len(line) <= HEADER_WIDTH:
            return line
        return "\n".join([f"{start}(", *(f"{INDENT}{param}," for param in params), f"){where} {{"])

    def return_line(self) -> str:
        return f"{INDENT}return {', '.join(map(self.value, self.graph.results))}".rstrip()

    def op_line(self, op: Op) -> str:
        """%2, %3 = var_mean(%1) {dim = (1)} : f32[N], f32[N]"""
        operands: list[str] = []
        needed = 0
        attributes: list[str] = []
        given = op.arguments
        if not op.defn.is_own:
            self.unsaid = f"the op {op.defn.name} is not smelt's own: its name does not say what it computes"
        for parameter in op.defn.parameters:
            argument = given.get(parameter.name)
            if parameter.is_tensor:
                if argument.__class__ is Value and not parameter.scalars:
                    operands.append(self.names.get(argument, UNDEFINED))
                    needed = len(operands)
                    continue
                operands.append(self.operand(parameter, argument))
                if argument.__class__ is Value or not same_attribute(argument, parameter.default):
                    needed = len(operands)
            elif argument is not parameter.default and not same_attribute(argument, parameter.default):
                attributes.append(f"{parameter.name} = {self.attribute(argument)}")
        braces = f" {{{', '.join(attributes)}}}" if attributes else ""
        results = op.results
        if len(results) == 1:
            value = results[0]
            names, types = self.names.get(value, UNDEFINED), self.types.get(id(value.type)) or self.type(value)
        else:
            names, types = ", ".join(map(self.value, results)), ", ".join(map(self.type, results))
        return f"{INDENT}{names} = {op.defn.name}({', '.join(operands[:needed])}){braces} : {types}"

    def operand(self, parameter: Parameter, argument: Any) -> str:
        """%x, a literal, none, or [%x, %y]."""
        if argument.__class__ is Value:
            name = self.names.get(argument, UNDEFINED)
            # Where the op also takes a Python number, a bare `true` reads back as one, so the constant prints its type.
            return f"{name}:bool" if parameter.scalars and name in ("true", "false") else name
        if isinstance(argument, (tuple, list)):
            return f"[{', '.join(self.operand(parameter, item) for item in argument)}]"
        return self.attribute(argument)

    def value(self, value: Value) -> str:
        return self.names.get(value, UNDEFINED)

    def type(self, value: Value) -> str:
        """Return the type's text. Values share type objects, so the symbols of each type are noted once."""
        text = self.types.get(id(value.type))
        if text is None:
            self.note(value.type.shape)
            text = self.types[id(value.type)] = str(value.type)
        return text

    def attribute(self, value: Any) -> str:
        if value is None:
            return "none"
        if isinstance(value, (bool, int, float, complex)):
            return number_text(value)
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, (tuple, list)):
            return f"({', '.join(map(self.attribute, value))})"
        if isinstance(value, (DType, Expr)):
            self.note((value,))
            return str(value)
        if isinstance(value, Graph):
            inner = Printer(value)
            text = inner.text(locations=False).replace("\n", f"\n{INDENT}")
            self.unsaid = self.unsaid or inner.unsaid
            return text
        if hasattr(value, "array"):
            # The hash must depend on the content, not on the address.
            return f"array<{hashlib.sha256(value.array.tobytes()).hexdigest()[:16]}>"
        self.unsaid = f"an attribute of an op, a {type(value).__name__}, has no text"
        return f"<{type(value).__name__}>"

    def note(self, dims: tuple[Any, ...]) -> None:
        """Remember the symbols that the header has to declare."""
        for dim in dims:
            if isinstance(dim, Expr):
                for symbol in sorted(symbols_of(dim), key=lambda item: item.name):
                    self.symbols.setdefault(symbol)


Graph.text = staticmethod(print_graph)
