"""The rules of the loop IR, checked."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import VerifyError
from ..ir.symbolic import Dim, symbols_of
from ..ir.types import bool_, i64
from .loop_ir import (
    Alloc,
    Check,
    Concurrent,
    Gemm,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Operand,
    Register,
    Statement,
    Store,
)
from .scalar import COMBINERS, SCALARS

SPECIAL = ("cast", "bitcast", "round_f16", "round_bf16")


def verify_kernel(kernel: Kernel) -> None:
    """Raise VerifyError unless names are defined before use, types agree and accesses fit their buffers."""
    Verifier(kernel).run()


class Verifier:
    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.registers: dict[str, Register] = {}
        self.variables: set[str] = set()
        self.buffers = {buffer.name: buffer for buffer in kernel.buffers}

    def fail(self, message: str, statement: object) -> None:
        raise VerifyError(f"kernel @{self.kernel.name}: {message}", detail=f"{statement}\n{self.kernel}")

    def run(self) -> None:
        self.block(self.kernel.body, top=True)

    def block(self, statements: Sequence[Statement], top: bool = False) -> None:
        for statement in statements:
            self.statement(statement, top)

    def index(self, values: Sequence[Dim], statement: object) -> None:
        for value in values:
            for symbol in symbols_of(value):
                if not symbol.name.startswith("%"):
                    continue  # a size
                if symbol.name not in self.variables and symbol.name not in self.registers:
                    self.fail(f"{symbol.name} is not defined here", statement)

    def operand(self, operand: Operand | None, statement: object) -> None:
        if isinstance(operand, Register):
            known = self.registers.get(operand.name)
            if known is None:
                self.fail(f"{operand.name} is not defined here", statement)
            elif known.dtype is not operand.dtype:
                self.fail(f"{operand.name} is {known.dtype}, used as {operand.dtype}", statement)

    def define(self, register: Register, statement: object) -> None:
        if register.name in self.registers:
            self.fail(f"{register.name} is defined twice", statement)
        self.registers[register.name] = register

    def access(self, statement: Load | Store) -> None:
        if statement.buffer.name not in self.buffers:
            self.fail(f"{statement.buffer.name} is no buffer of this kernel", statement)
        if len(statement.index) != len(statement.buffer.shape):
            self.fail(f"{statement.buffer.name} has {len(statement.buffer.shape)} dims", statement)
        self.index(statement.index, statement)
        self.operand(statement.guard, statement)
        if statement.guard is not None and statement.guard.dtype is not bool_:
            self.fail("a guard must be a bool", statement)

    def statement(self, statement: Statement, top: bool) -> None:
        if isinstance(statement, Let):
            if statement.op not in SPECIAL and statement.op not in SCALARS:
                self.fail(f"{statement.op} is no scalar op", statement)
            for operand in statement.operands:
                self.operand(operand, statement)
            if statement.op not in SPECIAL:
                kinds = {item.dtype for item in statement.operands[statement.op == "where" :]}
                if len(kinds) > 1:
                    self.fail(f"operands of {statement.op} have types {kinds}", statement)
            self.define(statement.result, statement)
        elif isinstance(statement, Index):
            self.index([statement.expression], statement)
            self.define(statement.result, statement)
        elif isinstance(statement, Load):
            self.access(statement)
            self.define(statement.result, statement)
        elif isinstance(statement, Store):
            self.access(statement)
            self.operand(statement.value, statement)
            if statement.value.dtype is not statement.buffer.dtype.compute:
                self.fail(f"stores {statement.value.dtype} into {statement.buffer.dtype}", statement)
            if statement.combine is not None and statement.combine not in COMBINERS:
                self.fail(f"{statement.combine} is no combiner", statement)
        elif isinstance(statement, Check):
            self.operand(statement.value, statement)
            if statement.value.dtype is not i64:
                self.fail("an index must be i64", statement)
            self.index([statement.size], statement)
            self.define(statement.position, statement)
            self.define(statement.guard, statement)
        elif isinstance(statement, Alloc):
            self.buffers[statement.buffer.name] = statement.buffer
        elif isinstance(statement, Gemm):
            for matrix in (statement.output, statement.left, statement.right):
                self.index([matrix.offset, matrix.row_stride, matrix.column_stride], statement)
        elif isinstance(statement, Concurrent):
            if not top:
                self.fail("concurrent loops inside of a loop", statement)
            for branch in statement.branches:
                self.loop(branch)
        else:
            if statement.kind == "parallel" and not top:
                self.fail("a parallel loop inside of another loop", statement)
            self.loop(statement)

    def loop(self, loop: Loop) -> None:
        self.index([loop.start, loop.stop], loop)
        before = dict(self.registers)
        if loop.variable.name in self.variables:
            self.fail(f"{loop.variable} is already a loop variable", loop)
        self.variables.add(loop.variable.name)
        for carry in loop.carries:
            self.operand(carry.start, loop)
            self.define(carry.current, loop)
        self.block(loop.body)
        for item in loop.accumulators:
            if item.combiner not in COMBINERS:
                self.fail(f"{item.combiner} is no combiner", loop)
            for value in item.values:
                self.operand(value, loop)
        for carry in loop.carries:
            self.operand(carry.after, loop)
        self.registers = before
        self.variables.discard(loop.variable.name)
        for item in loop.accumulators:
            for register in item.results:
                self.define(register, loop)
        for carry in loop.carries:
            self.define(carry.result, loop)
