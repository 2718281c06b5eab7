"""Text to graph: the inverse of printer.py, with its own tokenizer and recursive descent.

    graph    = "graph" "@name" "(" { "%name" ":" type "," } ")" [ "where" range { "," range } ] "{"
                 { statement } "return" [ operand { "," operand } ] "}"
    range    = NAME [ (">=" | "<=") size ]
    statement = "%name" { "," "%name" } "=" NAME "(" { operand "," } ")"
                 [ "{" { NAME "=" attribute "," } "}" ] [ ":" type { "," type } ]
    operand  = "%name" | literal [ ":" DTYPE ] | "none" | "[" { operand "," } "]"
    type     = DTYPE "[" { size "," } "]"
    attribute = "none" | "true" | "false" | STRING | DTYPE | number | size | "(" { attribute "," } ")" | graph
    size     = sums, products, // and % of integers and names, min(a, b), max(a, b)

`//` starts a comment, except inside brackets after a possible dividend. A comment that names a line
(`// model.py:12`) is the location of the op it follows.

Ops are made by calling their definitions, so a program that is read is checked like one that is traced, and
the types in the text must be the ones that follow from the operands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from ..ops.define import constant
from ..ops.opdef import OpDef
from ..ops.registry import lookup
from .errors import ArgumentError, ParseError, SmeltError, suggest
from .graph import Graph, Location, Value, located
from .proofs import maximum, minimum
from .record import Record
from .symbolic import Dim, Expr, Symbol, symbols_of
from .types import DTYPES, DType, TensorType
from .verify import NOT_OURS, fits_index, type_problem

TOKEN = re.compile(
    r"""(?P<space>[\ \t\r]+)
    |(?P<newline>\n)
    |(?P<slashes>//)
    |(?P<complex>\((?P<real>-?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|inf|nan))
        (?P<imaginary>[+-](?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|inf|nan))j\))
    |(?P<number>[0-9]+(?:\.(?!\.)[0-9]*)?(?:[eE][+-]?[0-9]+)?)
    |(?P<value>%\w(?:\w|\.(?!\.))*)
    |(?P<graph_name>@\w[\w.]*)
    |(?P<capture>\#\w+)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<mark>>=|<=|\.\.|[()\[\]{}<>,:;=+\-*%])
    """,
    re.VERBOSE,
)
ATTRIBUTES_OPEN = re.compile(r"\{\s*[A-Za-z_]\w*\s*=")
LOCATION = re.compile(r"(\S+|<[^>]*>):([0-9]{1,9})")
MOST_DIGITS = 4000  # of an integer literal; below Python's own limit of 4300 (sys.get_int_max_str_digits)
NUMBERS = {"inf": float("inf"), "nan": float("nan")}
KEYWORDS = {"none": None, "true": True, "false": False}

Item = TypeVar("Item")


class TextLocation(Location):
    """A place in a text."""

    __slots__ = ("column",)

    def __init__(self, file: str, line: int, column: int):
        super().__init__(file, line)
        self.column = column

    def __reduce__(self) -> Any:
        return TextLocation, (self.file, self.line, self.column)

    def __str__(self) -> str:
        return f"{super().__str__()}:{self.column}"


@dataclass(frozen=True, slots=True)
class Token:
    """kind: a group of TOKEN, or "end"."""

    kind: str
    text: str
    start: int
    line: int


class ValueCapture(Record):
    """%x in a pattern."""

    name: str


class NumberCapture(Record):
    """#c in a pattern."""

    name: str


class CallPattern(Record):
    """An op call in a pattern, with patterns for its operands and some attributes."""

    name: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any]

    def captures(self) -> set[str]:
        found: set[str] = set()
        for item in (*self.operands, *self.attributes.values()):
            if isinstance(item, CallPattern):
                found |= item.captures()
            elif isinstance(item, (ValueCapture, NumberCapture)):
                found.add(item.name)
        return found


def parse_graph(text: str, file: str = "<text>") -> Graph:
    """The one graph in a text."""
    reader = Reader(text, file)
    with reader.own_errors():
        graph = reader.graph()
    if reader.token.kind != "end":
        reader.fail("the end of the text")
    return graph


def parse_graphs(text: str, file: str = "<text>") -> list[Graph]:
    """All graphs in a text, in order."""
    reader = Reader(text, file)
    graphs: list[Graph] = []
    with reader.own_errors():
        while reader.token.kind != "end":
            graphs.append(reader.graph())
    return graphs


def parse_type(text: str, file: str = "<type>") -> TensorType:
    """A tensor type such as f32[N, 64]; each name in it is a size of at least 2."""
    reader = Reader(text, file)
    reader.new_symbol = lambda name: Symbol(name, 2)
    with reader.own_errors():
        result = reader.type()
    if reader.token.kind != "end":
        reader.fail("the end of the type")
    return result


def parse_pattern(text: str) -> CallPattern:
    """The left side of a rewrite rule (passes/graph/rules.py)."""
    reader = Reader(text, "<rule>")
    pattern = reader.call_pattern()
    if reader.token.kind != "end":
        reader.fail("the end of the pattern")
    return pattern


class Reader:
    """Tokens and the grammar over them. kernels/loop/parser.py reads the loop IR with the same tokens."""

    dividends: tuple[str, ...] = ("name", "number")  # token kinds after which `//` is a division, not a comment

    def __init__(self, text: str, file: str):
        self.source = text
        self.file = file
        self.comments: dict[int, str] = {}
        self.tokens = self.tokenize()
        self.position = 0
        self.symbols: dict[str, Symbol] = {}
        # The symbol for an undeclared name in a size; None: such a name is an error.
        self.new_symbol: Callable[[str], Symbol] | None = None

    # Tokens

    def tokenize(self) -> list[Token]:
        tokens: list[Token] = []
        closers: list[bool] = []  # for each open bracket, whether `//` divides inside it
        position, line = 0, 1
        text = self.source
        while position < len(text):
            match = TOKEN.match(text, position)
            if match is None:
                self.fail_at(position, f"{text[position]!r} is not part of the language")
            kind = match.lastgroup or ""
            found = match.group()
            if kind == "slashes":
                divides = tokens and (tokens[-1].kind in self.dividends or tokens[-1].text == ")")
                if not (closers and closers[-1] and divides):
                    end = text.find("\n", position)
                    end = len(text) if end < 0 else end
                    self.comments[line] = text[position + 2 : end].strip()
                    position = end
                    continue
                kind = "mark"
            if kind == "mark" and found in "([{":
                closers.append(found != "{" or ATTRIBUTES_OPEN.match(text, position) is not None)
            elif kind == "mark" and found in ")]}" and closers:
                closers.pop()
            if kind == "newline":
                line += 1
            elif kind != "space":
                tokens.append(Token(kind, found, position, line))
            position = match.end()
        tokens.append(Token("end", "", len(text), line))
        return tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def next(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def at(self, text: str) -> bool:
        token = self.tokens[self.position]
        return token.text == text and token.kind != "string"

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        if not self.at(text):
            self.fail(repr(text))
        return self.next()

    def expect_kind(self, kind: str, what: str) -> Token:
        if self.token.kind != kind:
            self.fail(what)
        return self.next()

    def separated(self, close: str, item: Callable[[], Item]) -> list[Item]:
        """Read items between commas up to a closing bracket; a trailing comma is allowed."""
        items: list[Item] = []
        while not self.accept(close):
            items.append(item())
            if not self.accept(","):
                if not self.at(close):
                    self.fail(f"',' or {close!r}")
        return items

    def fail(self, expected: str) -> NoReturn:
        found = repr(self.token.text) if self.token.kind != "end" else "the end of the text"
        self.fail_at(self.token.start, f"expected {expected}, found {found}")

    def fail_at(self, start: int, message: str) -> NoReturn:
        line_start = self.source.rfind("\n", 0, start) + 1
        line_end = self.source.find("\n", start)
        shown = self.source[line_start : line_end if line_end >= 0 else len(self.source)]
        caret = "".join("\t" if character == "\t" else " " for character in shown[: start - line_start]) + "^"
        raise ParseError(message, self.text_location(start), f"{shown}\n{caret}")

    def text_location(self, start: int) -> TextLocation:
        column = start - self.source.rfind("\n", 0, start)
        return TextLocation(self.file, self.source.count("\n", 0, start) + 1, column)

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """Turn Python's errors while reading into parse errors at the token that was reached."""
        try:
            yield
        except SmeltError as error:
            error.location = error.location or self.text_location(self.tokens[max(self.position - 1, 0)].start)
            raise
        except RecursionError:
            self.fail_at(self.token.start, "this is nested too deeply")
        except NOT_OURS as error:
            self.fail_at(self.token.start, f"this cannot be read ({type(error).__name__}: {error})")

    # Graphs

    def graph(self) -> Graph:
        self.expect("graph")
        name = self.expect_kind("graph_name", "a graph name such as @main").text[1:]
        self.expect("(")
        # Symbol ranges come after the types that use them: read them first.
        start = self.position
        self.skip_to_close()
        outer = self.symbols
        self.symbols = dict(outer)
        ranges: list[Token] = []
        if self.accept("where"):
            ranges.append(self.range())
            while self.accept(","):
                ranges.append(self.range())
        body = self.position
        self.position = start
        values: dict[str, Value] = {}
        self.new_symbol = Symbol
        params = self.separated(")", lambda: self.param(values))
        self.new_symbol = None
        known = {*outer, *(item.name for param in params for size in param.shape for item in symbols_of(size))}
        for token in ranges:
            if token.text not in known:
                self.fail_at(token.start, f"no parameter has the size {token.text}{suggest(token.text, known)}")
        self.position = body
        self.expect("{")
        made: list[Value] = []
        while not self.at("return"):
            if self.token.kind != "value":
                self.fail("an op such as '%0 = add(%x, %y) : f32[4]', or 'return'")
            made.extend(self.statement(values))
        self.next()
        results: list[Value] = []
        while not self.accept("}"):
            results.append(self.result(values))
            if not self.accept(",") and not self.at("}"):
                self.fail("',' or '}'")
        self.symbols = outer
        # Dead ops in the text stay in the graph.
        ops = Graph.build(name, params, [*made, *results]).ops
        return Graph(name, params, ops, results)

    def skip_to_close(self) -> None:
        depth = 1
        # A missing bracket is reported when the parameters are read.
        while depth and self.token.kind != "end":
            token = self.next()
            if token.kind == "mark":
                depth += (token.text in ("(", "[")) - (token.text in (")", "]"))

    def range(self) -> Token:
        """Read a range; the token of its size."""
        token = self.expect_kind("name", "a size such as N")
        name = token.text
        symbol = self.symbols.get(name) or Symbol(name)
        if self.accept(">="):
            start = self.token.start
            lower = self.size()
            if not isinstance(lower, int):
                self.fail_at(start, f"the lower bound of {name} must be an integer")
            symbol = Symbol(name, lower, symbol.upper)
        elif self.accept("<="):
            symbol = Symbol(name, symbol.lower, self.size())
        self.symbols[name] = symbol
        return token

    def param(self, values: dict[str, Value]) -> Value:
        token = self.expect_kind("value", "a parameter such as %x: f32[4]")
        name = token.text[1:]
        self.check_new(token, values)
        self.expect(":")
        values[name] = Value(self.type(), name=name)
        return values[name]

    def check_new(self, token: Token, values: dict[str, Value]) -> None:
        if token.text[1:] in values:
            self.fail_at(token.start, f"{token.text} is defined twice")

    def type(self) -> TensorType:
        token = self.expect_kind("name", "a type such as f32[4]")
        if token.text not in DTYPES:
            self.fail_at(token.start, f"unknown dtype {token.text!r}{suggest(token.text, DTYPES)}")
        self.expect("[")
        made = TensorType(DTYPES[token.text], self.separated("]", self.size))
        if problem := type_problem(made):
            self.fail_at(token.start, problem)
        return made

    def statement(self, values: dict[str, Value]) -> tuple[Value, ...]:
        """%a, %b = op(operands) {attributes} : types"""
        names = [self.expect_kind("value", "a result such as %0")]
        while self.accept(","):
            names.append(self.expect_kind("value", "a result such as %0"))
        self.expect("=")
        token = self.expect_kind("name", "an op")
        try:
            defn = lookup(token.text)
        except ArgumentError as error:
            self.fail_at(token.start, error.message)
        self.expect("(")
        start = self.token.start
        operands = self.separated(")", lambda: self.operand(values))
        if len(operands) > len(defn.tensors):
            self.fail_at(start, f"{defn.name} takes {len(defn.tensors)} tensors: {defn.signature()}")
        arguments = {parameter.name: item for parameter, item in zip(defn.tensors, operands)}
        if self.accept("{"):
            for key, item in self.separated("}", lambda: self.keyword(defn)):
                if key in arguments:
                    self.fail_at(token.start, f"{defn.name}: {key} is given twice")
                arguments[key] = item
        types: list[tuple[int, TensorType]] = []
        if self.accept(":"):
            types.append((self.token.start, self.type()))
            while self.accept(","):
                types.append((self.token.start, self.type()))
        last = self.tokens[self.position - 1]
        with located(self.location(token.line, last.line)):
            for parameter, item in zip(defn.tensors, operands):
                arguments[parameter.name] = materialize(item, parameter.scalars)
            try:
                made = defn.apply(defn.bind((), arguments))
            except SmeltError:
                raise
            except NOT_OURS as error:
                said = f"{type(error).__name__}: {error}"
                self.fail_at(token.start, f"{defn.name}: wrong arguments ({said}): {defn.signature()}")
        results = (made,) if isinstance(made, Value) else tuple(made)
        if len(results) != len(names):
            self.fail_at(names[0].start, f"{defn.name}: {len(names)} results are named, it has {len(results)}")
        if types and len(types) != len(results):
            self.fail_at(types[0][0], f"{defn.name}: {len(types)} types are given, it has {len(results)} results")
        for (place, given), value in zip(types, results):
            if given != value.type:
                self.fail_at(place, f"{defn.name}: the result is {value.type}, the text says {given}")
        for name, value in zip(names, results, strict=True):
            self.check_new(name, values)
            values[name.text[1:]] = value
        return results

    def location(self, first: int, last: int) -> Location:
        match = LOCATION.fullmatch(self.comments.get(last, ""))
        return Location(match[1], int(match[2])) if match else Location(self.file, first)

    def operand(self, values: dict[str, Value]) -> Any:
        """A value, a literal, None, or a tuple of these."""
        if self.accept("["):
            return tuple(self.separated("]", lambda: self.operand(values)))
        if self.token.kind == "value":
            return self.known_value(values)
        if self.accept("none"):
            return None
        return self.literal()

    def known_value(self, values: dict[str, Value]) -> Value:
        token = self.next()
        value = values.get(token.text[1:])
        if value is None:
            self.fail_at(token.start, f"{token.text} is not defined above{suggest(token.text[1:], values)}")
        return value

    def literal(self) -> Literal:
        start = self.token.start
        number = self.attribute()
        if not isinstance(number, (bool, int, float, complex)):
            self.fail_at(start, "expected an operand such as %x, 0.5:f32 or none")
        if not self.accept(":"):
            return Literal(number, None)
        token = self.expect_kind("name", "a dtype")
        if token.text not in DTYPES:
            self.fail_at(token.start, f"unknown dtype {token.text!r}{suggest(token.text, DTYPES)}")
        return Literal(number, DTYPES[token.text])

    def result(self, values: dict[str, Value]) -> Value:
        if self.token.kind == "value":
            return self.known_value(values)
        start, line = self.token.start, self.token.line
        literal = self.literal()
        if literal.dtype is None and not isinstance(literal.number, bool):
            self.fail_at(start, "a result that is a number needs its type, as in 0.5:f32")
        with located(self.location(line, line)):
            return constant(literal.number, literal.dtype or DTYPES["bool"])

    def keyword(self, defn: OpDef) -> tuple[str, Any]:
        """name = attribute"""
        token = self.expect_kind("name", "the name of an argument")
        if token.text not in defn.by_name:
            known = [parameter.name for parameter in defn.parameters if not parameter.is_tensor]
            self.fail_at(
                token.start,
                f"{defn.name} has no argument {token.text!r}{suggest(token.text, known)}: {defn.signature()}",
            )
        if defn.by_name[token.text].is_tensor:
            self.fail_at(token.start, f"{token.text} is a tensor: it stands among the operands")
        self.expect("=")
        return token.text, self.attribute()

    # Attributes

    def attribute(self) -> Any:
        """Read an attribute: the right side of '=' in braces."""
        token = self.token
        if token.kind == "string":
            try:
                return json.loads(self.next().text)
            except ValueError as error:
                self.fail_at(token.start, f"this is no string: {error}")
        if token.kind == "complex":
            return self.sum()
        if token.kind == "name":
            if token.text in KEYWORDS:
                return KEYWORDS[self.next().text]
            if token.text in DTYPES and token.text not in self.symbols:
                return DTYPES[self.next().text]
            if token.text == "graph":
                return self.nested_graph()
            if token.text == "array":
                self.fail_at(token.start, "a captured array cannot be read from text: make it a parameter")
        if token.text == "(":
            return self.tuple_or_group()
        return self.sum()

    def nested_graph(self) -> Graph:
        new_symbol = self.new_symbol
        graph = self.graph()
        self.new_symbol = new_symbol
        return graph

    def tuple_or_group(self) -> Any:
        """(1, 2) and (1) are tuples; (N + 3) // 4 is a size."""
        start = self.position
        self.next()
        items = self.separated(")", self.attribute)
        if len(items) == 1 and self.token.text in ("//", "%", "*", "+", "-"):
            self.position = start
            return self.sum()
        return tuple(items)

    def size(self) -> Dim:
        """An integer or an expression of integers."""
        start = self.token.start
        value = self.sum()
        if not isinstance(value, (int, Expr)) or isinstance(value, bool):
            self.fail_at(start, f"expected a size, found {value!r}")
        if not fits_index(value):
            self.fail_at(start, f"an i64 does not hold {value}")
        return value

    def sum(self) -> Any:
        total = self.term()
        while self.at("+") or self.at("-"):
            operator = self.next()
            right = self.term()
            self.check_sizes(operator, total, right)
            total = total + right if operator.text == "+" else total - right
        return total

    def term(self) -> Any:
        total = self.factor()
        while self.at("*") or self.at("//") or self.at("%"):
            operator = self.next()
            right = self.factor()
            self.check_sizes(operator, total, right)
            if operator.text == "*":
                total = total * right
            elif isinstance(right, int) and right == 0:
                self.fail_at(operator.start, "division by zero")
            else:
                total = total // right if operator.text == "//" else total % right
        return total

    def check_sizes(self, operator: Token, left: Any, right: Any) -> None:
        for item in (left, right):
            if not isinstance(item, (int, Expr)):
                self.fail_at(operator.start, f"{operator.text!r} takes integers, found {item!r}")

    def factor(self) -> Any:
        token = self.token
        if self.accept("-"):
            return -self.factor()
        if self.accept("("):
            inner = self.sum()
            self.expect(")")
            return inner
        if token.kind == "number":
            self.next()
            if len(token.text) > MOST_DIGITS:
                self.fail_at(token.start, f"a number of {len(token.text)} digits is too long")
            return int(token.text) if token.text.isdecimal() else float(token.text)
        if token.kind == "complex":
            self.next()
            return self.complex(token)
        if token.kind != "name":
            self.fail("a number, a size or a value")
        self.next()
        if token.text in NUMBERS:
            return NUMBERS[token.text]
        if token.text in ("min", "max") and self.accept("("):
            left, right = self.size(), (self.expect(","), self.size())[1]
            self.expect(")")
            return (minimum if token.text == "min" else maximum)(left, right)
        symbol = self.symbols.get(token.text)
        if symbol is None:
            if self.new_symbol is None:
                known = {*self.symbols, *DTYPES, *KEYWORDS}
                self.fail_at(token.start, f"{token.text!r} is not a size of this graph{suggest(token.text, known)}")
            symbol = self.symbols[token.text] = self.new_symbol(token.text)
        return symbol.expr()

    def complex(self, token: Token) -> complex:
        match = TOKEN.match(self.source, token.start)
        try:
            return complex(float(match["real"]), float(match["imaginary"]))  # type: ignore[index]
        except ValueError:
            self.fail_at(token.start, "expected a complex number such as (1.0+2.0j)")

    # Patterns

    def call_pattern(self) -> CallPattern:
        name = self.expect_kind("name", "an op").text
        self.expect("(")
        operands = tuple(self.separated(")", self.operand_pattern))
        attributes: dict[str, Any] = {}
        if self.accept("{"):
            attributes.update(self.separated("}", self.attribute_pattern))
        return CallPattern(name, operands, attributes)

    def operand_pattern(self) -> Any:
        if self.token.kind == "value":
            return ValueCapture(self.next().text[1:])
        if self.token.kind == "capture":
            return NumberCapture(self.next().text[1:])
        if self.token.kind == "name" and self.tokens[self.position + 1].text == "(":
            return self.call_pattern()
        return self.attribute()

    def attribute_pattern(self) -> tuple[str, Any]:
        name = self.expect_kind("name", "the name of an argument").text
        self.expect("=")
        if self.token.kind == "value":
            return name, ValueCapture(self.next().text[1:])
        return name, self.attribute()


class Literal(Record):
    """A number in operand position. Without a dtype it takes its type from the other operands."""

    number: bool | int | float | complex
    dtype: DType | None


def materialize(item: Any, scalars: bool) -> Any:
    """Turn literals into constants or Python numbers. `true` is a number only for an op that keeps numbers."""
    if isinstance(item, Literal):
        dtype = item.dtype
        if dtype is None and isinstance(item.number, bool) and not scalars:
            dtype = DTYPES["bool"]
        return item.number if dtype is None else constant(item.number, dtype)
    if isinstance(item, tuple):
        return tuple(materialize(entry, scalars) for entry in item)
    return item
