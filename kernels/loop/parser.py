"""Parse kernels from text: the inverse of text.py, over the tokens of the graph IR.

    kernel    = "kernel" "@name" "(" { buffer "," } ")" [ "where" range { "," range } ] "{"
                  { "site" NUMBER "=" NAME } { statement } "}"
    buffer    = "%name" ":" [ "out" | "temp" ] DTYPE "[" { size "," } "]"
    statement = loop | "concurrent" "{" { loop } "}" | "alloc" buffer
              | "%name" "=" NAME "(" { operand "," } ")" ":" DTYPE
              | "%name" "=" "index" "(" size ")"
              | "%name" "=" "load" place [ "if" operand ]
              | "%name" "=" "prefix" combiner "(" operand ")" "from" operand
              | "store" [ combiner ] place "," operand [ "if" operand ]
              | "stream" place "," operand
              | "%name" "=" "lead" memory
              | "%name" "," "%name" "=" "check" operand "in" "0" ".." size [ "wrap" ] "site" NUMBER
              | "gemm" matrix "=" matrix "*" matrix "over" "(" size "," size "," size ")"
              | "transpose" matrix "=" matrix "over" "(" size "," size ")" [ "ahead" size ]
              | "pack" matrix "=" matrix "over" "(" size "," size ")"
    loop      = KIND [ "<" NUMBER ">" ] "%name" "in" size ".." size
                  [ "reduce" { typed "," } "=" combiner { "," { typed "," } "=" combiner } ]
                  "{" { statement } [ "yield" operand { "," operand } ] "}"
    typed     = "%name" ":" DTYPE
    place     = memory "[" { size "," } "]"
    matrix    = memory "[" size ";" size "," size [ "by" NUMBER ] "]"
    memory    = "%name" [ "as" "[" { size "," } "]" ]
    operand   = "%name" | literal ":" DTYPE | "true" | "false"
    size      = as in a graph; the names of loops' variables, checked positions and leads may occur in it

The range of a loop's variable follows from the loop's bounds, that of a checked position from its size. verify.py
checks all that needs more than the text at hand (types that agree, accesses in range).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...ir.errors import suggest
from ...ir.graph import Location
from ...ir.parser import LOCATION, MOST_DIGITS, Reader, Token
from ...ir.proofs import limit
from ...ir.symbolic import Dim, Symbol
from ...ir.types import DTYPES, DType, TensorType, bool_, i64
from ...ir.verify import fits_index, type_problem
from ..scalar.table import COMBINERS, SCALARS
from .ir import (
    CONVERSIONS,
    KINDS,
    Accumulator,
    Alloc,
    Buffer,
    Check,
    Concurrent,
    Fetch,
    Gemm,
    Index,
    Kernel,
    Lead,
    Let,
    Literal,
    Load,
    Loop,
    Matrix,
    Operand,
    Pack,
    Prefix,
    Register,
    Site,
    Sort,
    Statement,
    Store,
    Transpose,
)
from .roles import Rewrite

ROLES = ("out", "temp")


def parse_kernel(text: str, file: str = "<text>") -> Kernel:
    """Parse a text of one kernel."""
    reader = KernelReader(text, file)
    with reader.own_errors():
        kernel = reader.kernel()
    if reader.token.kind != "end":
        reader.fail("the end of the text")
    return kernel


def parse_kernels(text: str, file: str = "<text>") -> list[Kernel]:
    """Parse all kernels in a text, in order."""
    reader = KernelReader(text, file)
    kernels: list[Kernel] = []
    with reader.own_errors():
        while reader.token.kind != "end":
            kernels.append(reader.kernel())
    return kernels


class KernelReader(Reader):
    """The grammar of kernels. Names are known from where they are written to the end of that body."""

    dividends = ("name", "number", "value")

    def __init__(self, text: str, file: str):
        super().__init__(text, file)
        self.buffers: dict[str, Buffer] = {}
        self.registers: dict[str, Register] = {}
        self.variables: dict[str, Symbol] = {}

    def kernel(self) -> Kernel:
        self.expect("kernel")
        name = self.expect_kind("graph_name", "a kernel name such as @main").text[1:]
        self.buffers, self.registers, self.variables, self.symbols = {}, {}, {}, {}
        self.expect("(")
        # The ranges of the symbols stand behind the shapes that use them: read them first.
        start = self.position
        self.skip_to_close()
        ranges: list[Token] = []
        if self.accept("where"):
            # A range may name a symbol whose own range comes later.
            self.new_symbol = Symbol
            ranges.append(self.range())
            while self.accept(","):
                ranges.append(self.range())
            self.new_symbol = None
        body = self.position
        self.position = start
        self.new_symbol = Symbol
        buffers = self.separated(")", self.parameter)
        self.new_symbol = None
        self.position = body
        self.expect("{")
        sites: list[Site] = []
        while self.at("site"):
            sites.append(self.site(len(sites)))
        statements = self.statements()
        self.expect("}")
        used = {
            token.text for token in self.tokens[start : self.position] if token.kind == "name" and token not in ranges
        }
        for token in ranges:
            if token.text not in used:
                self.fail_at(token.start, f"nothing has the size {token.text}{suggest(token.text, used)}")
        return Kernel(name, tuple(buffers), tuple(statements), tuple(sites))

    # Names

    @contextmanager
    def body(self) -> Iterator[None]:
        """Parse the body of a loop in a scope of its own."""
        before = self.buffers, self.registers, self.variables
        self.buffers, self.registers, self.variables = dict(before[0]), dict(before[1]), dict(before[2])
        yield
        self.buffers, self.registers, self.variables = before

    def new_name(self, what: str) -> str:
        token = self.expect_kind("value", what)
        if token.text in self.buffers or token.text in self.registers or token.text in self.variables:
            self.fail_at(token.start, f"{token.text} is defined twice")
        return token.text

    def define(self, name: str, dtype: DType) -> Register:
        register = Register(name, dtype)
        self.registers[name] = register
        return register

    def unknown(self, token: Token, known: Any) -> None:
        self.fail_at(token.start, f"{token.text} is not defined here{suggest(token.text, known)}")

    def dtype(self) -> DType:
        token = self.expect_kind("name", "a dtype")
        if token.text not in DTYPES:
            self.fail_at(token.start, f"unknown dtype {token.text!r}{suggest(token.text, DTYPES)}")
        return DTYPES[token.text]

    def factor(self) -> Any:
        """Index expressions may name the variables of loops, checked positions and leads."""
        if self.token.kind != "value":
            return super().factor()
        token = self.next()
        symbol = self.variables.get(token.text)
        if symbol is None:
            self.unknown(token, self.variables)
        assert symbol is not None
        return symbol.expr()

    def whole(self, what: str) -> int:
        token = self.expect_kind("number", what)
        if not token.text.isdecimal():
            self.fail_at(token.start, f"expected {what}, found {token.text!r}")
        if len(token.text) > MOST_DIGITS or not fits_index(int(token.text)):
            self.fail_at(token.start, f"{what} is too large: an i64 must hold it")
        return int(token.text)

    def combiner(self) -> str:
        token = self.expect_kind("name", "a combiner such as add")
        if token.text not in COMBINERS:
            known = f"; there are {', '.join(COMBINERS)}"
            self.fail_at(token.start, f"{token.text} is no combiner{suggest(token.text, COMBINERS)}{known}")
        return token.text

    # Buffers

    def parameter(self) -> Buffer:
        return self.buffer("in")

    def buffer(self, role: str) -> Buffer:
        name = self.new_name("a buffer such as %x: f32[4]")
        self.expect(":")
        if role == "in" and self.token.text in ROLES:
            role = self.next().text
        start = self.token.start
        dtype = self.dtype()
        self.buffers[name] = Buffer(name, dtype, self.shape(start, dtype), role)
        return self.buffers[name]

    def shape(self, start: int, dtype: DType) -> tuple[Dim, ...]:
        self.expect("[")
        made = tuple(self.separated("]", self.size))
        if problem := type_problem(TensorType(dtype, made)):
            self.fail_at(start, problem)
        return made

    def memory(self) -> Buffer:
        """Parse a buffer, in its own shape or another."""
        token = self.expect_kind("value", "a buffer")
        buffer = self.buffers.get(token.text)
        if buffer is None:
            self.fail_at(token.start, f"{token.text} is no buffer of this kernel{suggest(token.text, self.buffers)}")
        if not self.accept("as"):
            return buffer
        return Buffer(buffer.name, buffer.dtype, self.shape(token.start, buffer.dtype), buffer.role)

    def place(self) -> tuple[Buffer, tuple[Dim, ...]]:
        buffer = self.memory()
        self.expect("[")
        return buffer, tuple(self.separated("]", self.size))

    def matrix(self) -> Matrix:
        buffer = self.memory()
        self.expect("[")
        offset = self.size()
        self.expect(";")
        row_stride = self.size()
        self.expect(",")
        column_stride = self.size()
        panel = self.whole("the width of a panel") if self.accept("by") else 0
        self.expect("]")
        return Matrix(buffer, offset, row_stride, column_stride, panel)

    def site(self, number: int) -> Site:
        self.expect("site")
        start = self.token.start
        if self.whole("the number of the site") != number:
            self.fail_at(start, f"sites are numbered in order: this is {number}")
        self.expect("=")
        token = self.expect_kind("name", "the op to blame")
        return Site(token.text, self.users_line(token.line))

    # Operands

    def scalar(self) -> Operand:
        if self.token.kind == "value":
            token = self.next()
            register = self.registers.get(token.text)
            if register is None:
                self.unknown(token, self.registers)
            assert register is not None
            return register
        start = self.token.start
        literal = self.literal()
        if literal.dtype is None and not isinstance(literal.number, bool):
            self.fail_at(start, "a number needs its type, as in 0.5:f32")
        dtype = literal.dtype or bool_
        if not is_of(literal.number, dtype):
            shown = "a complex number" if isinstance(literal.number, complex) else repr(literal.number)
            self.fail_at(start, f"{shown} is no {dtype}")
        return Literal(literal.number, dtype)

    def guard(self) -> Operand | None:
        return self.scalar() if self.accept("if") else None

    # Statements

    def statements(self) -> list[Statement]:
        found: list[Statement] = []
        while not self.at("}") and not self.at("yield"):
            line = self.token.line
            statement = self.statement_of_kernel()
            found.append(self.placed(statement, line))
        return found

    def placed(self, statement: Statement, line: int) -> Statement:
        """Return a statement with the user's line, if it keeps one."""
        return Rewrite(origin=lambda _: self.users_line(line), body=tuple)(statement)

    def users_line(self, line: int) -> Location | None:
        """Return the user's line, from the comment that ends a line."""
        match = LOCATION.fullmatch(self.comments.get(line, ""))
        return Location(match[1], int(match[2])) if match else None

    def statement_of_kernel(self) -> Statement:
        if self.token.kind == "value":
            return self.assignment()
        if self.token.text in KINDS:
            return self.loop()
        if self.accept("stream"):
            buffer, index = self.place()
            self.expect(",")
            return Store(buffer, index, self.scalar(), stream=True)
        if self.accept("store"):
            combine = self.combiner() if self.token.kind == "name" else None
            buffer, index = self.place()
            self.expect(",")
            value = self.scalar()
            return Store(buffer, index, value, self.guard(), combine)
        if self.accept("fetch"):
            return Fetch(*self.place())
        if self.accept("alloc"):
            return Alloc(self.buffer("scratch"))
        if self.accept("gemm"):
            return self.gemm()
        if self.accept("transpose"):
            return self.transpose()
        if self.accept("pack"):
            return self.pack()
        if self.accept("sort"):
            return self.sort()
        if self.accept("concurrent"):
            self.expect("{")
            branches: list[Loop] = []
            while not self.accept("}"):
                branches.append(self.loop())
            return Concurrent(tuple(branches))
        self.fail("a statement such as '%0 = load %x[0]', a loop or '}'")

    def assignment(self) -> Statement:
        name = self.new_name("a register")
        if self.accept(","):
            return self.check(name)
        self.expect("=")
        if self.accept("load"):
            buffer, index = self.place()
            guard = self.guard()
            return Load(self.define(name, buffer.dtype.compute), buffer, index, guard)
        if self.accept("index"):
            self.expect("(")
            expression = self.size()
            self.expect(")")
            return Index(self.define(name, i64), expression)
        if self.accept("lead"):
            lead = Lead(self.define(name, i64), self.memory())
            self.variables[name] = lead.symbol
            return lead
        if self.accept("prefix"):
            return self.prefix(name)
        token = self.expect_kind("name", "a scalar op, load, index, lead or prefix")
        if token.text not in SCALARS and token.text not in CONVERSIONS:
            self.fail_at(token.start, f"{token.text} is no scalar op{suggest(token.text, SCALARS)}")
        self.expect("(")
        operands = tuple(self.separated(")", self.scalar))
        self.expect(":")
        return Let(self.define(name, self.dtype()), token.text, operands)

    def prefix(self, name: str) -> Prefix:
        combiner = self.combiner()
        self.expect("(")
        value = self.scalar()
        self.expect(")")
        self.expect("from")
        return Prefix(self.define(name, value.dtype), combiner, value, self.scalar())

    def check(self, position: str) -> Check:
        guard = self.new_name("the check's guard")
        self.expect("=")
        self.expect("check")
        value = self.scalar()
        self.expect("in")
        self.expect("0")
        self.expect("..")
        size = self.size()
        wrap = self.accept("wrap")
        self.expect("site")
        site = self.whole("the number of a site")
        check = Check(self.define(position, i64), self.define(guard, bool_), value, size, wrap, site)
        self.variables[position] = check.symbol
        return check

    def gemm(self) -> Gemm:
        output = self.matrix()
        self.expect("=")
        left = self.matrix()
        self.expect("*")
        right = self.matrix()
        self.expect("over")
        start = self.expect("(").start
        sizes = self.separated(")", self.size)
        if len(sizes) != 3:
            self.fail_at(start, f"a gemm has rows, columns and depth, found {len(sizes)} sizes")
        rows, columns, depth = sizes
        return Gemm(output, left, right, rows, columns, depth)

    def transpose(self) -> Transpose:
        target, source, rows, columns = self.copied("transpose")
        return Transpose(target, source, rows, columns, self.size() if self.accept("ahead") else None)

    def pack(self) -> Pack:
        output, source, rows, columns = self.copied("pack")
        return Pack(output, source, rows, columns, self.accept("once"))

    def sort(self) -> Sort:
        places, descending = self.accept("places"), self.accept("descending")
        target = self.matrix()
        self.expect("=")
        source = self.matrix()
        self.expect("in")
        room = self.matrix()
        self.expect("over")
        start = self.expect("(").start
        sizes = self.separated(")", self.size)
        if len(sizes) != 5:
            self.fail_at(start, f"a sort has rows, length, first, kept and space, found {len(sizes)} sizes")
        rows, length, first, kept, space = sizes
        return Sort(target, source, room, rows, length, first, kept, space, descending, places)

    def copied(self, what: str) -> tuple[Matrix, Matrix, Dim, Dim]:
        output = self.matrix()
        self.expect("=")
        source = self.matrix()
        self.expect("over")
        start = self.expect("(").start
        sizes = self.separated(")", self.size)
        if len(sizes) != 2:
            self.fail_at(start, f"a {what} has rows and columns, found {len(sizes)} sizes")
        rows, columns = sizes
        return output, source, rows, columns

    def typed(self) -> Register:
        name = self.new_name("a result such as %0: f32")
        self.expect(":")
        return Register(name, self.dtype())

    def loop(self) -> Loop:
        if self.token.text not in KINDS:
            self.fail(f"a loop: {', '.join(KINDS[:-1])} or {KINDS[-1]}")
        kind = self.next().text
        width = 1
        if self.accept("<"):
            width = self.whole("the loop's width")
            self.expect(">")
        name = self.new_name("the loop's variable")
        self.expect("in")
        start = self.size()
        self.expect("..")
        stop = self.size()
        reductions: list[tuple[list[Register], str]] = []
        if self.accept("reduce"):
            reductions.append(self.reduction())
            while self.accept(","):
                reductions.append(self.reduction())
        self.expect("{")
        variable = Symbol(name, lowest(start), stop - 1)
        with self.body():
            self.variables[name] = variable
            body = self.statements()
            yields = iter(self.yields(sum(len(results) for results, _ in reductions)))
        self.expect("}")
        accumulators = tuple(
            Accumulator(tuple(results), combiner, tuple(next(yields) for _ in results))
            for results, combiner in reductions
        )
        for register in (item for results, _ in reductions for item in results):
            self.registers[register.name] = register
        return Loop(kind, variable, start, stop, tuple(body), width, accumulators)

    def reduction(self) -> tuple[list[Register], str]:
        """%1: f32, %2: i64 = argmax"""
        results = [self.typed()]
        while self.accept(","):
            results.append(self.typed())
        self.expect("=")
        return results, self.combiner()

    def yields(self, count: int) -> list[Operand]:
        start = self.token.start
        values: list[Operand] = []
        if self.accept("yield"):
            values.append(self.scalar())
            while self.accept(","):
                values.append(self.scalar())
        if len(values) != count:
            self.fail_at(start, f"the loop yields {len(values)} values, its head names {count}")
        return values


def is_of(number: Any, dtype: DType) -> bool:
    """Whether a type holds a number."""
    if dtype.kind == "b":
        return isinstance(number, bool)
    if dtype.kind in "iu":
        low, high = dtype.bounds
        return type(number) is int and low <= number <= high
    return dtype.is_complex or not isinstance(number, complex)


def lowest(start: Dim) -> int | None:
    """Return the least value of a loop's first iteration, if it is a known number."""
    least = limit(start, False)
    return least if isinstance(least, int) else None
