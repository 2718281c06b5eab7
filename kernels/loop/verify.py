"""Verify kernels: the rules of ir.py.

A name stands for one thing: a register is assigned once, and registers, loop variables and buffers that are visible
at one place have different names. Names that a loop's body defines are visible in that body only. Types are inferred
again and compared. bounds.py proves that every access is in bounds; memory.py that memory is written before it
is read, and without races.

On failure the error shows the kernel around the statement, with the message below it:

      vector<32> %j in 0..100 {
        %0 = load %x[%i, %j]
        ^^^^^^^^^^^^^^^^^^^^ dim 1 of %x has size 64, the index goes up to 99
        store %y[%i, %j], %0
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

from ...ir.errors import VerifyError, suggest
from ...ir.proofs import differs, is_multiple, non_negative, substitute
from ...ir.symbolic import Dim, Expr, Symbol, contiguous_strides, product, symbols_of
from ...ir.types import DType, bool_, f32, i64
from ..machine import CACHE_LINE
from ..scalar.table import BASE, COMBINERS, SCALARS, expansion, result_dtype, spelling
from ..sort import sort_space
from .bounds import Bounds
from .facts import is_size
from .ir import (
    CONVERSIONS,
    KINDS,
    OUTERMOST,
    TEAMS,
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
    Load,
    Loop,
    Matrix,
    Operand,
    Pack,
    Prefix,
    Register,
    Sort,
    Statement,
    Store,
    Transpose,
    walk,
)
from .memory import verify_memory, verify_program
from .roles import expressions, reads, writes
from .text import KernelPrinter

CONTEXT = 6
ROLES = ("in", "out", "temp")
GEMM = ("f32", "f64")
SHORTEST_STREAM = 32  # bytes of a non-temporal store, at least


def verify_kernel(kernel: Kernel, memory: bool = True) -> None:
    """Raise VerifyError if the kernel breaks a rule of the loop IR. `memory`: also if it reads elements that it has not
    written, or if unordered iterations race."""
    Verifier(kernel).run()
    Bounds(kernel, partial(refuse, kernel)).run()
    if memory:
        verify_memory(kernel, refuse)


def verify_kernels(kernels: Sequence[Kernel], params: Collection[str], results: Collection[str]) -> None:
    """Raise VerifyError if the kernels of a program read elements that none of them has written, do not write all
    elements of their results, or if unordered iterations race."""
    verify_program(kernels, params, results, refuse)


def refuse(kernel: Kernel, number: int | None, message: str) -> NoReturn:
    """Raise the error about a statement, counted outer before inner; None for the kernel as a whole."""
    printer = KernelPrinter(kernel)
    lines = printer.lines
    mark = 0 if number is None else printer.places[number]
    text = lines[mark].strip()
    indent = " " * (len(lines[mark]) - len(lines[mark].lstrip()))
    lines.insert(mark + 1, f"{indent}{'^' * len(text)} {message}")
    shown = lines[max(mark - CONTEXT, 0) : mark + CONTEXT + 2]
    raise VerifyError(f"@{kernel.name}: {message}", None, "\n".join(shown))


class Verifier:
    """Walks a kernel with the names that are visible at each place."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.buffers: dict[str, Buffer] = {}
        self.registers: dict[str, Register] = {}
        self.symbols: dict[str, Symbol] = {}  # symbols that index expressions may name
        self.assigned: set[str] = set()
        self.loops: list[Loop] = []
        self.outer: list[dict[str, Register]] = []  # for each of them, the registers that were known before it
        self.visited = 0
        self.guilty: int | None = None  # the statement being checked, counted outer before inner

    def fail(self, message: str) -> NoReturn:
        refuse(self.kernel, self.guilty, message)

    def run(self) -> None:
        for buffer in self.kernel.buffers:
            if buffer.role not in ROLES:
                self.fail(f"{buffer.name} is a buffer of the kernel and cannot be {buffer.role}")
            self.declare(buffer)
        for statement in self.kernel.body:
            self.statement(statement)

    # Names

    def declare(self, buffer: Buffer) -> None:
        self.check_new(buffer.name)
        self.sizes(buffer.shape)
        self.buffers[buffer.name] = buffer

    def check_new(self, name: str) -> None:
        if name in self.buffers or name in self.registers or name in self.symbols or name in self.assigned:
            self.fail(f"{name} is defined twice")

    def define(self, register: Register, expected: DType) -> None:
        self.check_new(register.name)
        if register.dtype is not expected:
            self.fail(f"{register.name} is {register.dtype}, expected {expected}")
        if register.dtype.compute is not register.dtype:
            self.fail(f"{register.name} is {register.dtype}, which registers do not hold")
        self.assigned.add(register.name)
        self.registers[register.name] = register

    def operand(self, operand: Operand, expected: DType | None = None, what: str = "") -> DType:
        """Return the type of an operand that is visible here."""
        if isinstance(operand, Register):
            known = self.registers.get(operand.name)
            if known is None:
                self.fail(f"{operand.name} is not defined here{suggest(operand.name, self.registers)}")
            if known.dtype is not operand.dtype:
                self.fail(f"{operand.name} is {known.dtype}, used as {operand.dtype}")
        if expected is not None and operand.dtype is not expected:
            self.fail(f"{what} is {operand.dtype}, expected {expected}")
        return operand.dtype

    def sizes(self, values: Sequence[Dim]) -> None:
        """Check the names in index expressions: loop variables, checked positions and leads; all others are sizes."""
        for value in values:
            for symbol in sorted(symbols_of(value), key=lambda item: item.name):
                if symbol.name.startswith("%") and symbol.name not in self.symbols:
                    self.fail(f"{symbol.name} is not defined here{suggest(symbol.name, self.symbols)}")

    @contextmanager
    def body(self, loop: Loop) -> Iterator[None]:
        """Verify the body of a loop in a scope of its own."""
        before = self.buffers, self.registers, self.symbols
        self.buffers, self.registers, self.symbols = dict(before[0]), dict(before[1]), dict(before[2])
        self.loops.append(loop)
        self.outer.append(before[1])
        yield
        self.outer.pop()
        self.loops.pop()
        self.buffers, self.registers, self.symbols = before

    # Accesses

    def memory(self, buffer: Buffer) -> None:
        """Check that a buffer is visible here, perhaps in another shape."""
        known = self.buffers.get(buffer.name)
        if known is None:
            self.fail(f"{buffer.name} is no buffer that is known here{suggest(buffer.name, self.buffers)}")
        if (known.dtype, known.role) != (buffer.dtype, buffer.role):
            self.fail(f"{buffer.name} is {known.role} {known.dtype}, used as {buffer.role} {buffer.dtype}")
        self.sizes(buffer.shape)
        if differs(product(known.shape), product(buffer.shape)):
            elements = f"{product(known.shape)} elements, seen with {product(buffer.shape)}"
            self.fail(f"{buffer.name} has {elements}")

    def place(self, statement: Load | Store | Fetch) -> None:
        buffer = statement.buffer
        self.memory(buffer)
        if len(statement.index) != len(buffer.shape):
            self.fail(f"{buffer.name} has {len(buffer.shape)} dims, the index has {len(statement.index)}")
        self.sizes(statement.index)

    def access(self, statement: Load | Store) -> None:
        self.place(statement)
        if statement.guard is not None:
            self.operand(statement.guard, bool_, "the guard")

    # Statements

    def statement(self, statement: Statement) -> None:
        self.guilty = self.visited
        self.visited += 1
        if isinstance(statement, Let):
            self.let(statement)
        elif isinstance(statement, Index):
            self.sizes([statement.expression])
            self.define(statement.result, i64)
        elif isinstance(statement, Load):
            self.access(statement)
            self.define(statement.result, statement.buffer.dtype.compute)
        elif isinstance(statement, Store):
            self.store(statement)
        elif isinstance(statement, Fetch):
            self.place(statement)
        elif isinstance(statement, Check):
            self.check(statement)
        elif isinstance(statement, Lead):
            self.memory(statement.buffer)
            self.define(statement.position, i64)
            self.symbols[statement.position.name] = statement.symbol
        elif isinstance(statement, Prefix):
            self.prefix(statement)
        elif isinstance(statement, Alloc):
            self.alloc(statement)
        elif isinstance(statement, Gemm):
            self.gemm(statement)
        elif isinstance(statement, Transpose):
            self.transpose(statement)
        elif isinstance(statement, Pack):
            self.pack(statement)
        elif isinstance(statement, Sort):
            self.sort(statement)
        elif isinstance(statement, Concurrent):
            self.concurrent(statement)
        elif isinstance(statement, Loop):
            self.loop(statement)
        else:
            self.fail(f"a {type(statement).__name__} is no statement of the loop IR")

    def let(self, statement: Let) -> None:
        kinds = [self.operand(item) for item in statement.operands]
        if statement.op in CONVERSIONS:
            self.define(statement.result, self.conversion(statement, kinds))
            return
        row = SCALARS.get(statement.op)
        if row is None:
            self.fail(f"{statement.op} is no scalar op{suggest(statement.op, SCALARS)}")
        if len(kinds) != row.arity:
            self.fail(f"{statement.op} takes {row.arity} operands, not {len(kinds)}")
        if statement.op == "where" and kinds.pop(0) is not bool_:
            self.fail("the condition is not a bool")
        if any(kind is not kinds[0] for kind in kinds):
            self.fail(f"the operands are {', '.join(map(str, kinds))}, expected one type")
        kind = kinds[-1]
        if statement.op not in BASE and spelling(row, kind) is None and expansion(row, kind) is None:
            self.fail(f"{statement.op} does not take {kind}")
        self.define(statement.result, result_dtype(row, kind))

    def conversion(self, statement: Let, kinds: Sequence[DType]) -> DType:
        """Return the declared type of a conversion's result, if the conversion exists."""
        if len(kinds) != 1:
            self.fail(f"{statement.op} takes 1 operand, not {len(kinds)}")
        target = statement.result.dtype
        if statement.op == "bitcast" and target.bits != kinds[0].bits:
            self.fail(f"{kinds[0]} and {target} are not of the same width")
        if statement.op in ("round_f16", "round_bf16") and kinds[0] is not f32:
            self.fail(f"{statement.op} takes f32, not {kinds[0]}")
        return f32 if statement.op.startswith("round_") else target

    def store(self, statement: Store) -> None:
        self.access(statement)
        if statement.buffer.role == "in":
            self.fail(f"{statement.buffer.name} is an input and cannot be written")
        self.operand(statement.value, statement.buffer.dtype.compute, "the value")
        if statement.combine is not None:
            self.combiner(statement.combine, [statement.value.dtype])
        if statement.stream and not (self.loops and streamable(statement, self.loops[-1])):
            self.fail(f"stores to {statement.buffer.name} are not whole aligned vectors, as streaming needs")

    def combiner(self, name: str, kinds: Sequence[DType]) -> None:
        if name not in COMBINERS:
            self.fail(f"{name} is no combiner{suggest(name, COMBINERS)}; there are {', '.join(COMBINERS)}")
        arity = COMBINERS[name].arity
        if len(kinds) != arity:
            self.fail(f"{name} combines {arity} values at a time, not {len(kinds)}")
        if arity == 2 and kinds[1] is not i64:
            self.fail(f"the second value of {name} is its place, an i64, not {kinds[1]}")
        if kinds[0].is_complex and name not in ("add", "mul"):
            self.fail(f"{name} does not take {kinds[0]}")

    def check(self, statement: Check) -> None:
        self.operand(statement.value, i64, "the index")
        self.sizes([statement.size])
        if not 0 <= statement.site < len(self.kernel.sites):
            self.fail(f"there is no site {statement.site}: the kernel has {len(self.kernel.sites)}")
        self.define(statement.position, i64)
        self.define(statement.guard, bool_)
        self.symbols[statement.position.name] = statement.symbol

    def prefix(self, statement: Prefix) -> None:
        if not self.loops or self.loops[-1].kind in OUTERMOST:
            self.fail("a prefix runs along a serial, vector or thread loop, and stands in no other")
        kind = self.operand(statement.value)
        self.combiner(statement.combiner, [kind])
        if isinstance(statement.start, Register) and statement.start.name not in self.outer[-1]:
            self.fail(f"{statement.start.name}, where the prefix starts, is not known before the loop")
        self.operand(statement.start, kind, "the start")
        self.define(statement.result, kind)

    def alloc(self, statement: Alloc) -> None:
        if statement.buffer.role != "scratch":
            self.fail(f"an alloc makes scratch, not {statement.buffer.role}")
        if self.inside_vector():
            self.fail("an alloc inside of a vector loop")
        self.declare(statement.buffer)

    def gemm(self, statement: Gemm) -> None:
        self.matrices("gemm", statement.output, statement.left, statement.right)
        self.sizes([statement.rows, statement.columns, statement.depth])
        if statement.output.column_stride != 1 or statement.output.panel:
            self.fail("the columns of the output are not adjacent")

    def pack(self, statement: Pack) -> None:
        self.matrices("pack", statement.output, statement.source)
        self.sizes([statement.rows, statement.columns])
        if not statement.output.panel or statement.source.panel:
            self.fail("a pack reads a matrix with strides and writes panels")
        if statement.output.row_stride != statement.output.panel:
            self.fail("the rows of a panel are not as far apart as it is wide")
        if statement.once:
            self.once(statement)

    def once(self, statement: Pack) -> None:
        """Check a `once` Pack: a thread packs in its first iteration for all of them."""
        source, buffer = statement.source.buffer, statement.output.buffer
        if not self.loops:
            self.fail("a pack that is done once stands in no loop")
        if buffer.role != "scratch" or source.role == "scratch":
            self.fail("what is packed once is memory, and a thread's own scratch afterwards")
        if not all(map(is_size, (symbol for dim in expressions(statement) for symbol in symbols_of(dim)))):
            self.fail("what is packed once depends on an iteration")
        if source.name in written(self.loops[0]):
            self.fail(f"{source.name} is packed once, and changes")
        others = [item for item in walk(self.loops[:1]) if item is not statement]
        if any(found.name == buffer.name for item in others for found in writes(item)):
            self.fail(f"{buffer.name} is packed once, and written elsewhere")
        before = itertools.takewhile(lambda item: item is not statement, walk(self.loops[:1]))
        if any(found.name == buffer.name for item in before for found in reads(item)):
            self.fail(f"{buffer.name} is packed once, and read before")

    def matrices(self, name: str, output: Matrix, *sources: Matrix) -> None:
        if self.inside_vector():
            self.fail(f"a {name} inside of a vector loop")
        for matrix in (output, *sources):
            self.memory(matrix.buffer)
            self.sizes([matrix.offset, matrix.row_stride, matrix.column_stride])
        kinds = [matrix.buffer.dtype for matrix in (output, *sources)]
        # f16 and bf16 may be multiplied in place and accumulated in f32: by GPUs, and by some processors.
        total = kinds[0].compute if name == "pack" else kinds[0]
        if any(kind.compute is not total for kind in kinds) or total.name not in GEMM:
            self.fail(f"the matrices are {', '.join(map(str, kinds))}, expected one of {', '.join(GEMM)}")
        if len(set(kinds[1:] if name == "gemm" else kinds)) > 1:
            self.fail(f"the matrices are {', '.join(map(str, kinds))}, expected one type")
        if output.buffer.role == "in":
            self.fail(f"{output.buffer.name} is an input and cannot be written")

    def transpose(self, statement: Transpose) -> None:
        if self.inside_vector():
            self.fail("a transpose inside of a vector loop")
        target, source = statement.target, statement.source
        self.sizes([statement.rows, statement.columns, 0 if statement.ahead is None else statement.ahead])
        for matrix in (target, source):
            self.memory(matrix.buffer)
            self.sizes([matrix.offset, matrix.row_stride, matrix.column_stride])
        if target.buffer.dtype is not source.buffer.dtype:
            self.fail(f"the target is {target.buffer.dtype}, the source {source.buffer.dtype}")
        if target.buffer.name == source.buffer.name:
            self.fail(f"{target.buffer.name} is transposed onto itself")
        if target.buffer.role == "in":
            self.fail(f"{target.buffer.name} is an input and cannot be written")
        if target.column_stride != 1:
            self.fail("the columns of the target are not adjacent")
        if source.row_stride != 1:
            self.fail("the rows of the source are not adjacent")

    def sort(self, statement: Sort) -> None:
        if self.inside_vector():
            self.fail("a sort inside of a vector loop")
        target, source, room = statement.target, statement.source, statement.room
        self.sizes([statement.rows, statement.length, statement.first, statement.kept, statement.space])
        for matrix in (target, source, room):
            self.memory(matrix.buffer)
            self.sizes([matrix.offset, matrix.row_stride, matrix.column_stride])
            if matrix.column_stride != 1 or matrix.panel:
                self.fail(f"the columns of {matrix.buffer.name} are not adjacent")
        dtype = source.buffer.dtype
        if dtype.is_complex:
            self.fail(f"a sort of {dtype}, which has no order")
        expected = i64 if statement.places else dtype
        if target.buffer.dtype is not expected:
            self.fail(f"the target is {target.buffer.dtype}, expected {expected}")
        if room.buffer.dtype is not i64:
            self.fail(f"the working memory is {room.buffer.dtype}, expected i64")
        names = [matrix.buffer.name for matrix in (target, source, room)]
        if len(set(names)) < len(names):
            self.fail("the target, the source and the working memory are not three buffers")
        for matrix in (target, room):
            if matrix.buffer.role == "in":
                self.fail(f"{matrix.buffer.name} is an input and cannot be written")
        if not (non_negative(statement.first) and non_negative(statement.length - statement.first - statement.kept)):
            self.fail(f"{statement.kept} elements from {statement.first} on are kept of {statement.length}")
        needed = sort_space(dtype, statement.places, statement.length)
        if not non_negative(statement.space - needed):
            self.fail(f"the working memory has {statement.space} words for a row, expected {needed}")

    def concurrent(self, statement: Concurrent) -> None:
        if self.loops:
            self.fail("concurrent loops inside of a loop")
        for branch in statement.branches:
            if not isinstance(branch, Loop):
                self.fail("a branch that is no loop")
            self.statement(branch)

    def inside_vector(self) -> bool:
        return any(loop.kind == "vector" for loop in self.loops)

    def loop(self, loop: Loop) -> None:
        here = self.guilty
        if loop.kind not in KINDS:
            self.fail(f"{loop.kind} is no kind of loop; there are {', '.join(KINDS)}")
        if loop.width < 1 or (loop.kind in ("serial", "thread") and loop.width != 1):
            self.fail(f"a {loop.kind} loop cannot have width {loop.width}")
        if loop.kind in OUTERMOST and self.loops:
            self.fail(f"a {loop.kind} loop inside of another loop")
        if loop.kind == "thread":
            around = [item.kind for item in self.loops]
            if not around or around[0] not in TEAMS or "thread" in around or "vector" in around:
                self.fail("a thread loop stands in a block or warp loop, and in no other thread or vector loop")
        if loop.kind == "vector" and self.inside_vector():
            self.fail("a vector loop inside of another")
        if loop.kind in OUTERMOST and loop.accumulators:
            self.fail(f"a {loop.kind} loop cannot reduce: its iterations end in no order")
        self.sizes([loop.start, loop.stop])
        self.check_new(loop.variable.name)
        with self.body(loop):
            self.symbols[loop.variable.name] = loop.variable
            for statement in loop.body:
                self.statement(statement)
            self.guilty = here
            for item in loop.accumulators:
                self.accumulator(item)
        for item in loop.accumulators:
            for register, value in zip(item.results, item.values, strict=True):
                self.define(register, value.dtype)

    def accumulator(self, item: Accumulator) -> None:
        self.combiner(item.combiner, [self.operand(value) for value in item.values])
        if len(item.results) != len(item.values):
            self.fail(f"{item.combiner} has {len(item.results)} results for {len(item.values)} values")


def written(loop: Loop) -> set[str]:
    """Return the buffers that a loop stores to, except its own scratch."""
    return {buffer.name for item in walk([loop]) for buffer in writes(item) if buffer.role != "scratch"}


def streamable(store: Store, loop: Loop) -> bool:
    """Whether a store in a vector loop may be non-temporal: it writes whole vectors, none across cache lines."""
    buffer = store.buffer
    unit = stream_unit(buffer, loop.width)
    if loop.kind != "vector" or unit < SHORTEST_STREAM or loop.width * buffer.dtype.bytes % unit:
        return False
    if store.combine is not None or store.guard is not None or buffer.role == "scratch" or buffer.dtype.is_complex:
        return False
    place: Dim = 0
    for position, stride in zip(store.index, contiguous_strides(buffer.shape), strict=True):
        place = place + position * stride
    if not isinstance(place, Expr) or place.coefficient(loop.variable) != 1:
        return False
    return is_multiple(substitute(place, {loop.variable: loop.start}), unit // buffer.dtype.bytes)


def stream_unit(buffer: Buffer, width: int) -> int:
    """Return the alignment, in bytes, of a non-temporal store of `width` elements."""
    return min(width * buffer.dtype.bytes, CACHE_LINE)
