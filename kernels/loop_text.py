"""The text of the loop IR."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.symbolic import Dim
from .loop_ir import (
    Accumulator,
    Alloc,
    Buffer,
    Carry,
    Check,
    Concurrent,
    Gemm,
    Index,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    Matrix,
    Operand,
    Statement,
    Store,
)


def print_kernel(kernel: Kernel) -> str:
    lines = [f"kernel @{kernel.name}({', '.join(_buffer(item) for item in kernel.buffers)}) {{"]
    for number, site in enumerate(kernel.sites):
        lines.append(f"  site {number} = {site.op}")
    for statement in kernel.body:
        lines.extend(_statement(statement, 1))
    lines.append("}")
    return "\n".join(lines)


def _buffer(buffer: Buffer) -> str:
    role = "" if buffer.role in ("in", "scratch") else f"{buffer.role} "
    return f"{buffer.name}: {role}{buffer.dtype}[{_list(buffer.shape)}]"


def _list(items: Iterable[Dim]) -> str:
    return ", ".join(map(str, items))


def operand_text(operand: Operand) -> str:
    if isinstance(operand, Literal):
        if isinstance(operand.value, bool):
            return "true" if operand.value else "false"
        return f"{operand.value!r}:{operand.dtype}"
    return operand.name


def _operands(operands: Iterable[Operand]) -> str:
    return ", ".join(map(operand_text, operands))


def _guard(guard: Operand | None) -> str:
    return "" if guard is None else f" if {operand_text(guard)}"


def _accumulator(item: Accumulator) -> str:
    return f"{', '.join(register.name for register in item.results)} = {item.combiner}"


def _carry(item: Carry) -> str:
    return f"{item.result.name}: {item.result.dtype} = {item.current.name} from {operand_text(item.start)}"


def _matrix(matrix: Matrix) -> str:
    return f"{matrix.buffer.name}[{matrix.offset}; {matrix.row_stride}, {matrix.column_stride}]"


def _statement(statement: Statement, depth: int) -> list[str]:
    pad = "  " * depth
    if isinstance(statement, Let):
        return [f"{pad}{statement.result} = {statement.op}({_operands(statement.operands)}) : {statement.result.dtype}"]
    if isinstance(statement, Index):
        return [f"{pad}{statement.result} = index({statement.expression})"]
    if isinstance(statement, Load):
        place = f"{statement.buffer.name}[{_list(statement.index)}]"
        return [f"{pad}{statement.result} = load {place}{_guard(statement.guard)}"]
    if isinstance(statement, Store):
        combine = f" {statement.combine}" if statement.combine else ""
        place = f"{statement.buffer.name}[{_list(statement.index)}]"
        return [f"{pad}store{combine} {place}, {operand_text(statement.value)}{_guard(statement.guard)}"]
    if isinstance(statement, Check):
        wrap = " wrap" if statement.wrap else ""
        return [
            f"{pad}{statement.position}, {statement.guard} = check {operand_text(statement.value)} "
            f"in 0..{_bound(statement.size)}{wrap} site {statement.site}"
        ]
    if isinstance(statement, Alloc):
        return [f"{pad}alloc {_buffer(statement.buffer)}"]
    if isinstance(statement, Gemm):
        return [
            f"{pad}gemm {_matrix(statement.output)} = {_matrix(statement.left)} @ {_matrix(statement.right)} "
            f"({statement.rows}, {statement.columns}, {statement.depth})"
        ]
    if isinstance(statement, Concurrent):
        lines = [f"{pad}concurrent {{"]
        for branch in statement.branches:
            lines.extend(_statement(branch, depth + 1))
        return [*lines, f"{pad}}}"]
    return _loop(statement, depth)


def _bound(value: Dim) -> str:
    text = str(value)
    return text if isinstance(value, int) or text.isidentifier() or text[1:].isidentifier() else f"({text})"


def _loop(loop: Loop, depth: int) -> list[str]:
    pad = "  " * depth
    kind = loop.kind if loop.width == 1 else f"{loop.kind}<{loop.width}>"
    head = f"{pad}{kind} {loop.variable} in {_bound(loop.start)}..{_bound(loop.stop)}"
    if loop.accumulators:
        head += f" reduce {', '.join(_accumulator(item) for item in loop.accumulators)}"
    if loop.carries:
        head += f" carry {', '.join(_carry(item) for item in loop.carries)}"
    lines = [head + " {"]
    for statement in loop.body:
        lines.extend(_statement(statement, depth + 1))
    yields = [*(value for item in loop.accumulators for value in item.values), *(item.after for item in loop.carries)]
    if yields:
        lines.append(f"{pad}  yield {_operands(yields)}")
    lines.append(f"{pad}}}")
    return lines
