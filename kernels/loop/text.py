"""Print the loop IR. parser.py reads the text back; its hash is a kernel's identity.

    kernel @softmax(%x: f32[N, 1024], %y: out f32[N, 1024]) where N >= 2 {
      parallel<8> %i in 0..N {
        alloc %row: f32[1024]
        vector<32> %j in 0..1024 reduce %1: f32 = max {
          %0 = load %x[%i, %j]
          yield %0
        }
        vector<32> %j in 0..1024 reduce %5: f32 = add {
          %2 = load %x[%i, %j]
          %3 = sub(%2, %1) : f32
          %4 = exp(%3) : f32
          store %row[%j], %4
          yield %4
        }
        ...

A loop over `start..stop` has its kind and width in front. `yield` ends its body: the values of the accumulators.
`%2 = prefix add(%1) from 0.0:f32` is the sum so far. A buffer that is read or written in another shape says so:
`load %x as [6400][%i]`. In `gemm`, `transpose` and `pack` a matrix is `%x[offset; row stride, column stride]`
with ` by 32` behind if it is packed in panels of 32 columns; the sizes are those of rows, columns and depth; of a
`sort`, the rows, their length, the first element kept of each, their number and the words of its working memory.

The user's line of a statement, and of a check's site, stands in a comment: it is no part of the program.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator

from ...ir.printer import COMMENT_COLUMN, HEADER_WIDTH, INDENT, literal_text
from ...ir.symbolic import Dim, Symbol, symbols_of
from .ir import (
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
from .roles import all_expressions, origins


def print_kernel(kernel: Kernel, *, locations: bool = True) -> str:
    """Print a kernel, with the user's line beside each statement and site if `locations`."""
    return "\n".join(KernelPrinter(kernel, locations).lines)


def identity(kernel: Kernel) -> str:
    """Return the text of a kernel with numbers for names, in the order of their first use: equal for equal code."""
    names: dict[str, str] = {}
    text = print_kernel(kernel, locations=False).split("(", 1)[1]
    return re.sub(r"%[\w.]+", lambda match: names.setdefault(match[0], f"%{len(names)}"), text)


def kernel_hash(kernel: Kernel) -> str:
    """Return the sha256 of a kernel's identity."""
    return hashlib.sha256(identity(kernel).encode()).hexdigest()


def size_symbols(kernel: Kernel) -> list[Symbol]:
    """Return the symbolic sizes of a kernel, in the order in which they occur, those in ranges included."""
    found: dict[Symbol, None] = {}
    # Most are variables of loops, and many are the same ones.
    pending = [dim for dim in dict.fromkeys(dims(kernel)) if any(item.name[0] != "%" for item in symbols_of(dim))]
    for dim in pending:
        for symbol in sorted(symbols_of(dim), key=lambda item: item.name):
            if symbol.name[0] != "%" and symbol not in found:
                found[symbol] = None
                if symbol.upper is not None:
                    pending.append(symbol.upper)
    return list(found)


def dims(kernel: Kernel) -> Iterator[Dim]:
    """Yield every size and index expression of a kernel."""
    for buffer in kernel.buffers:
        yield from buffer.shape
    yield from all_expressions(kernel.body)


class KernelPrinter:
    """The lines of a kernel, and the line of each statement (`places`), outer before inner.

    A broken kernel prints too.
    """

    def __init__(self, kernel: Kernel, locations: bool = True):
        self.shapes = {buffer.name: buffer.shape for buffer in kernel.buffers}
        self.lines = self.header(kernel)
        self.places: list[int] = []
        for number, site in enumerate(kernel.sites):
            self.lines.append(f"{INDENT}{self.site(number, site, locations)}")
        self.origins: dict[int, str] = {}
        self.block(kernel.body, 1)
        self.lines.append("}")
        if locations:
            self.annotate()

    def annotate(self) -> None:
        """Add the user's line beside each statement that has one."""
        widths = [len(self.lines[line]) for line in self.origins]
        column = max((width for width in widths if width <= COMMENT_COLUMN), default=COMMENT_COLUMN) + 2
        for line, origin in self.origins.items():
            self.lines[line] += f"{' ' * max(column - len(self.lines[line]), 2)}// {origin}"

    def header(self, kernel: Kernel) -> list[str]:
        buffers = [buffer_text(item) for item in kernel.buffers]
        ranges: list[str] = []
        for symbol in size_symbols(kernel):
            if symbol.lower is not None:
                ranges.append(f"{symbol} >= {symbol.lower}")
            if symbol.upper is not None:
                ranges.append(f"{symbol} <= {symbol.upper}")
            if symbol.lower is None and symbol.upper is None:
                ranges.append(str(symbol))
        where = f" where {', '.join(ranges)}" if ranges else ""
        line = f"kernel @{kernel.name}({', '.join(buffers)}){where} {{"
        if len(line) <= HEADER_WIDTH:
            return [line]
        return [f"kernel @{kernel.name}(", *(f"{INDENT}{buffer}," for buffer in buffers), f"){where} {{"]

    def site(self, number: int, site: Site, locations: bool) -> str:
        place = f"  // {site.location}" if locations and site.location is not None else ""
        return f"site {number} = {site.op}{place}"

    def block(self, statements: Iterable[Statement], depth: int) -> None:
        pad = INDENT * depth
        for statement in statements:
            self.places.append(len(self.lines))
            if isinstance(statement, Concurrent):
                self.lines.append(f"{pad}concurrent {{")
                self.block(statement.branches, depth + 1)
                self.lines.append(f"{pad}}}")
            elif isinstance(statement, Loop):
                self.lines.append(f"{pad}{loop_head(statement)} {{")
                self.block(statement.body, depth + 1)
                yields = [value for item in statement.accumulators for value in item.values]
                if yields:
                    self.lines.append(f"{pad}{INDENT}yield {operands_text(yields)}")
                self.lines.append(f"{pad}}}")
            else:
                for origin in origins(statement):
                    self.origins[len(self.lines)] = str(origin)
                self.lines.append(pad + self.simple(statement))

    def simple(self, statement: Statement) -> str:
        """Return the text of a statement without a body."""
        if isinstance(statement, Let):
            result = statement.result
            return f"{result} = {statement.op}({operands_text(statement.operands)}) : {result.dtype}"
        if isinstance(statement, Index):
            return f"{statement.result} = index({statement.expression})"
        if isinstance(statement, Load):
            place = self.place(statement.buffer, statement.index)
            return f"{statement.result} = load {place}{guard_text(statement.guard)}"
        if isinstance(statement, Store):
            word = "stream" if statement.stream else f"store {statement.combine}" if statement.combine else "store"
            place = self.place(statement.buffer, statement.index)
            return f"{word} {place}, {operand_text(statement.value)}{guard_text(statement.guard)}"
        if isinstance(statement, Fetch):
            return f"fetch {self.place(statement.buffer, statement.index)}"
        if isinstance(statement, Check):
            wrap = " wrap" if statement.wrap else ""
            return (
                f"{statement.position}, {statement.guard} = check {operand_text(statement.value)} "
                f"in 0..{bound_text(statement.size)}{wrap} site {statement.site}"
            )
        if isinstance(statement, Lead):
            return f"{statement.position} = lead {self.memory(statement.buffer)}"
        if isinstance(statement, Prefix):
            value, start = operand_text(statement.value), operand_text(statement.start)
            return f"{statement.result} = prefix {statement.combiner}({value}) from {start}"
        if isinstance(statement, Alloc):
            self.shapes[statement.buffer.name] = statement.buffer.shape
            return f"alloc {buffer_text(statement.buffer)}"
        if isinstance(statement, Transpose):
            sizes = list_text((statement.rows, statement.columns))
            ahead = "" if statement.ahead is None else f" ahead {statement.ahead}"
            return f"transpose {self.matrix(statement.target)} = {self.matrix(statement.source)} over ({sizes}){ahead}"
        if isinstance(statement, Pack):
            output, source = self.matrix(statement.output), self.matrix(statement.source)
            once = " once" if statement.once else ""
            return f"pack {output} = {source} over ({list_text((statement.rows, statement.columns))}){once}"
        if isinstance(statement, Gemm):
            output, left, right = map(self.matrix, (statement.output, statement.left, statement.right))
            sizes = list_text((statement.rows, statement.columns, statement.depth))
            return f"gemm {output} = {left} * {right} over ({sizes})"
        if isinstance(statement, Sort):
            target, source, room = map(self.matrix, (statement.target, statement.source, statement.room))
            words = [word for word in ("places", "descending") if getattr(statement, word)]
            sizes = list_text((statement.rows, statement.length, statement.first, statement.kept, statement.space))
            return f"{' '.join(('sort', *words))} {target} = {source} in {room} over ({sizes})"
        return repr(statement)  # the verifier refuses it

    def place(self, buffer: Buffer, index: Iterable[Dim]) -> str:
        return f"{self.memory(buffer)}[{list_text(index)}]"

    def memory(self, buffer: Buffer) -> str:
        """Return the name of a buffer, and its shape if that is another than the declared one."""
        if self.shapes.get(buffer.name, buffer.shape) == buffer.shape:
            return buffer.name
        return f"{buffer.name} as [{list_text(buffer.shape)}]"

    def matrix(self, matrix: Matrix) -> str:
        strides = f"{matrix.row_stride}, {matrix.column_stride}"
        panel = f" by {matrix.panel}" if matrix.panel else ""
        return f"{self.memory(matrix.buffer)}[{matrix.offset}; {strides}{panel}]"


def buffer_text(buffer: Buffer) -> str:
    role = "" if buffer.role in ("in", "scratch") else f"{buffer.role} "
    return f"{buffer.name}: {role}{buffer.dtype}[{list_text(buffer.shape)}]"


def list_text(items: Iterable[Dim]) -> str:
    return ", ".join(map(str, items))


def operand_text(operand: Operand) -> str:
    return literal_text(operand.value, operand.dtype) if isinstance(operand, Literal) else operand.name


def operands_text(operands: Iterable[Operand]) -> str:
    return ", ".join(map(operand_text, operands))


def guard_text(guard: Operand | None) -> str:
    return "" if guard is None else f" if {operand_text(guard)}"


def bound_text(value: Dim) -> str:
    """Return the text of a size outside of brackets: in parentheses unless a number or a name."""
    text = str(value)
    return text if isinstance(value, int) or text.isidentifier() or text[1:].isidentifier() else f"({text})"


def register_text(register: Register) -> str:
    return f"{register.name}: {register.dtype}"


def accumulator_text(item: Accumulator) -> str:
    return f"{', '.join(map(register_text, item.results))} = {item.combiner}"


def loop_head(loop: Loop) -> str:
    kind = loop.kind if loop.width == 1 else f"{loop.kind}<{loop.width}>"
    head = f"{kind} {loop.variable} in {bound_text(loop.start)}..{bound_text(loop.stop)}"
    if loop.accumulators:
        head += f" reduce {', '.join(map(accumulator_text, loop.accumulators))}"
    return head
