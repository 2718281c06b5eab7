"""Interpret the loop IR in NumPy.

Serial and parallel loops run in Python, one iteration at a time; a vector loop runs all of its iterations at once on
arrays. It is the reference for the emitters, for small shapes only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.errors import CompileError, IndexRangeError, range_error
from ...ir.graph import Graph, Value
from ...ir.symbolic import Compound, Dim, Symbol, contiguous_strides, evaluate, product
from ...ir.types import DType, bf16, bool_, f16, f32, i64
from ...kernels.loop.ir import (
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
    Sort,
    Statement,
    Store,
    Transpose,
    prefixes,
)
from ...kernels.machine import CACHE_LINE
from ...kernels.scalar.table import COMBINERS, NumpyBuilder, NumpyOperand
from ...kernels.sort import order
from ...ops.captures import as_array
from ...passes.fusion.fused import Fused
from ...passes.stages import signature
from ..call_plan import Signature

Values = tuple[NumpyOperand, ...]


def interpret_kernel(kernel: Kernel, buffers: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    """Run a kernel on flat or shaped arrays by buffer name; outputs and temporaries are written in place."""
    LoopInterpreter(kernel, {name: array.reshape(-1) for name, array in buffers.items()}, sizes).run()


def interpret_kernels(fused: Fused, kernels: Sequence[Kernel], arrays: Sequence[Any]) -> list[np.ndarray]:
    """Compute the results of a fused graph by its kernels, one after the other, for these inputs."""
    return _run(fused.graph, kernels, arrays, lambda value: f"%{fused.names[fused.stored(value)]}")


def interpret_text(kernels: Sequence[Kernel], arrays: Sequence[Any]) -> list[np.ndarray]:
    """Run kernels one after the other; return all stored buffers, for the buffers that they read from elsewhere."""
    return _run(signature(kernels), kernels, arrays, lambda value: f"%{value.name}")


def _run(
    graph: Graph, kernels: Sequence[Kernel], arrays: Sequence[Any], name: Callable[[Value], str]
) -> list[np.ndarray]:
    """Run the kernels of a graph. name: maps a value to the name of its buffer."""
    given = [as_array(item, f"input {position}") for position, item in enumerate(arrays)]
    sizes = Signature.of(graph).bind(given)
    memory: dict[str, np.ndarray] = {}
    for param, array in zip(graph.params, given, strict=True):
        memory[name(param)] = array.reshape(-1).copy()
    for kernel in kernels:
        for buffer in kernel.buffers:
            if buffer.name not in memory:
                memory[buffer.name] = garbage(evaluate(product(buffer.shape), sizes), buffer.dtype)
        interpret_kernel(kernel, memory, sizes)
    results: list[np.ndarray] = []
    for value in graph.results:
        shape = tuple(evaluate(size, sizes) for size in value.shape)
        results.append(memory[name(value)].reshape(shape).copy())
    return results


def garbage(count: int, dtype: DType) -> np.ndarray:
    """Make uninitialized memory, filled with conspicuous numbers."""
    if dtype.kind == "b":
        return np.ones(count, np.bool_)
    return np.frombuffer(b"\xa5" * (count * dtype.bytes), dtype.numpy).copy()


class LoopInterpreter:
    def __init__(self, kernel: Kernel, memory: dict[str, np.ndarray], sizes: Mapping[str, int]):
        self.kernel = kernel
        self.memory = memory
        self.names: dict[str, Any] = dict(sizes)
        self.registers: dict[str, NumpyOperand] = {}
        self.running: dict[str, NumpyOperand] = {}  # running values, by the name of the prefix
        self.lengths: dict[str, int | None] = {}  # number of iterations run at once; None: one at a time
        self.builder = NumpyBuilder()

    def run(self) -> None:
        with np.errstate(all="ignore"):
            self.block(self.kernel.body)

    def index(self, value: Dim) -> Any:
        """Evaluate an index expression to an int or an array of ints."""
        if isinstance(value, int):
            return value
        total: Any = 0
        for monomial, coefficient in value.terms:
            factor: Any = coefficient
            for atom in monomial:
                factor = factor * (self._symbol(atom) if isinstance(atom, Symbol) else self._compound(atom))
            total = total + factor
        return total

    def _symbol(self, symbol: Symbol) -> Any:
        if symbol.name in self.names:
            return self.names[symbol.name]
        return self.registers[symbol.name].array

    def _compound(self, atom: Compound) -> Any:
        left, right = self.index(atom.left), self.index(atom.right)
        table = {"//": np.floor_divide, "%": np.remainder, "min": np.minimum, "max": np.maximum}
        return table[atom.operator](left, right)

    def place(self, buffer: Buffer, index: Sequence[Dim]) -> Any:
        total: Any = 0
        for position, stride in zip(index, contiguous_strides(buffer.shape), strict=True):
            total = total + self.index(position) * self.index(stride)
        return total

    def operand(self, operand: Operand) -> NumpyOperand:
        if isinstance(operand, Literal):
            return self.builder.constant(operand.value, operand.dtype)
        return self.registers[operand.name]

    def block(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, Let):
            self.registers[statement.result.name] = self._let(statement)
        elif isinstance(statement, Index):
            self.registers[statement.result.name] = NumpyOperand(
                np.asarray(self.index(statement.expression), np.int64), i64
            )
        elif isinstance(statement, Load):
            self.registers[statement.result.name] = self._read(statement.buffer, statement.index, statement.guard)
        elif isinstance(statement, Store):
            self._store(statement)
        elif isinstance(statement, Fetch):
            pass
        elif isinstance(statement, Check):
            self._check(statement)
        elif isinstance(statement, Lead):
            # Neither zero nor the full length, so that results that depend on it differ.
            lead = (CACHE_LINE // statement.buffer.dtype.bytes) // 2
            self.registers[statement.position.name] = NumpyOperand(np.asarray(lead, np.int64), i64)
        elif isinstance(statement, Prefix):
            self._prefix(statement)
        elif isinstance(statement, Alloc):
            count = int(np.prod([self.index(size) for size in statement.buffer.shape], dtype=np.int64))
            self.memory[statement.buffer.name] = np.zeros(count, statement.buffer.dtype.numpy)
        elif isinstance(statement, Gemm):
            self._gemm(statement)
        elif isinstance(statement, Transpose):
            rows, columns = self.index(statement.rows), self.index(statement.columns)
            moved = self.memory[statement.source.buffer.name][self._places(statement.source, rows, columns)]
            self.memory[statement.target.buffer.name][self._places(statement.target, rows, columns)] = moved
        elif isinstance(statement, Pack):
            self._pack(statement)
        elif isinstance(statement, Sort):
            self._sort(statement)
        elif isinstance(statement, Concurrent):
            self.block(statement.branches)
        elif isinstance(statement, Loop):
            self._loop(statement)
        else:
            raise CompileError(f"the interpreter does not know the statement {type(statement).__name__}")

    def _let(self, statement: Let) -> NumpyOperand:
        operands = [self.operand(item) for item in statement.operands]
        if statement.op == "cast":
            return self.builder.cast(operands[0], statement.result.dtype)
        if statement.op == "bitcast":
            return self.builder.bitcast(operands[0], statement.result.dtype)
        if statement.op in ("round_f16", "round_bf16"):
            narrow = f16 if statement.op == "round_f16" else bf16
            return NumpyOperand(operands[0].array.astype(narrow.numpy).astype(np.float32), f32)
        return self.builder.op(statement.op, *operands)

    def _read(self, buffer: Buffer, index: Sequence[Dim], guard: Operand | None) -> NumpyOperand:
        place = np.asarray(self.place(buffer, index))
        memory = self.memory[buffer.name]
        if guard is None:
            return _compute(memory[self.checked(buffer, place)], buffer.dtype)
        allowed = self.operand(guard).array
        safe = np.where(allowed, place, 0)
        self.checked(buffer, safe[np.broadcast_to(allowed, safe.shape)])
        found = memory[safe] if memory.size else np.zeros(safe.shape, memory.dtype)
        return _compute(np.where(allowed, found, np.zeros((), memory.dtype)), buffer.dtype)

    def _store(self, statement: Store) -> None:
        value = self.operand(statement.value)
        memory = self.memory[statement.buffer.name]
        place = np.asarray(self.place(statement.buffer, statement.index))
        if statement.combine is not None:
            old = self._read(statement.buffer, statement.index, statement.guard)
            (value,) = COMBINERS[statement.combine].combine(self.builder, (old,), (value,))
        stored = value.array.astype(memory.dtype)
        if statement.guard is None:
            memory[self.checked(statement.buffer, place)] = stored
            return
        allowed, place, stored = np.broadcast_arrays(self.operand(statement.guard).array, place, stored)
        memory[self.checked(statement.buffer, place[allowed])] = stored[allowed]

    def checked(self, buffer: Buffer, places: np.ndarray) -> np.ndarray:
        """Check that indices are in a buffer: NumPy would count negative ones from the end."""
        size = self.memory[buffer.name].size
        wrong = places[(places < 0) | (places >= size)]
        if wrong.size:
            raise IndexRangeError(
                f"@{self.kernel.name}, {buffer.name}: index {int(wrong.flat[0])} is out of range for {size} elements"
            )
        return places

    def _check(self, statement: Check) -> None:
        value = self.operand(statement.value).array
        size = self.index(statement.size)
        place = np.where(value < 0, value + size, value) if statement.wrap else np.asarray(value)
        good = (place >= 0) & (place < size)
        if not np.all(good):
            culprit = int(np.broadcast_to(value, good.shape)[~good].flat[0])
            site = self.kernel.sites[statement.site]
            raise range_error(site.op, "", culprit, size, site.location)
        self.registers[statement.position.name] = NumpyOperand(np.asarray(place, np.int64), i64)
        self.registers[statement.guard.name] = NumpyOperand(np.asarray(good), bool_)

    def _prefix(self, statement: Prefix) -> None:
        name, combine = statement.result.name, COMBINERS[statement.combiner].combine
        value, length = self.operand(statement.value), self.lengths[name]
        if length is None:
            (self.running[name],) = combine(self.builder, (self.running[name],), (value,))
            self.registers[name] = self.running[name]
            return
        array = np.array(np.broadcast_to(value.array, (length,)))
        step = 1
        while step < length:
            left, right = (NumpyOperand(part, value.dtype) for part in (array[:-step], array[step:]))
            array[step:] = combine(self.builder, (left,), (right,))[0].array
            step *= 2
        (self.registers[name],) = combine(self.builder, (self.running[name],), (NumpyOperand(array, value.dtype),))

    def _gemm(self, statement: Gemm) -> None:
        rows, columns, depth = (self.index(item) for item in (statement.rows, statement.columns, statement.depth))
        if statement.left.panel:
            left = self.memory[statement.left.buffer.name][self._places(statement.left, depth, rows)].T
        else:
            left = self.memory[statement.left.buffer.name][self._places(statement.left, rows, depth)]
        right = self.memory[statement.right.buffer.name][self._places(statement.right, depth, columns)]
        output = self.memory[statement.output.buffer.name]
        product = left.astype(output.dtype) @ right.astype(output.dtype)
        output[self._places(statement.output, rows, columns)] = product

    def _pack(self, statement: Pack) -> None:
        rows, columns = self.index(statement.rows), self.index(statement.columns)
        source = self.memory[statement.source.buffer.name][self._places(statement.source, rows, columns)]
        if statement.output.buffer.dtype.bytes == 2 and rows % 2:
            source = np.concatenate([source, np.zeros_like(source[:1])])
        places = self._places(statement.output, len(source), columns)
        self.memory[statement.output.buffer.name][places] = source

    def _sort(self, statement: Sort) -> None:
        sizes = statement.rows, statement.length, statement.first, statement.kept
        rows, length, first, kept = (self.index(item) for item in sizes)
        source = self.memory[statement.source.buffer.name][self._places(statement.source, rows, length)]
        found = order(source, statement.descending)[:, first : first + kept]
        if not statement.places:
            found = np.take_along_axis(source, found, -1)
        room = self._places(statement.room, rows, self.index(statement.space))
        self.memory[statement.room.buffer.name][room] = garbage(room.size, i64).reshape(room.shape)
        self.memory[statement.target.buffer.name][self._places(statement.target, rows, kept)] = found

    def _places(self, matrix: Matrix, rows: int, columns: int) -> np.ndarray:
        """Compute the indices of a matrix's elements."""
        start, row, column = (self.index(item) for item in (matrix.offset, matrix.row_stride, matrix.column_stride))
        across, down = np.arange(columns), np.arange(rows)[:, None]
        if not matrix.panel:
            return self.checked(matrix.buffer, start + down * row + across * column)
        together = 2 if matrix.buffer.dtype.bytes == 2 else 1
        lane = across % matrix.panel * together + down % together
        places = start + down // together * together * row + across // matrix.panel * column + lane
        return self.checked(matrix.buffer, places)

    def _loop(self, loop: Loop) -> None:
        start, stop = int(self.index(loop.start)), int(self.index(loop.stop))
        totals: list[Values] = [self._identity(item.combiner, item.results) for item in loop.accumulators]
        for along in prefixes(loop):
            self.running[along.result.name] = self.operand(along.start)
            self.lengths[along.result.name] = stop - start if loop.kind == "vector" else None
        if loop.kind == "vector":
            if stop > start:
                self.names[loop.variable.name] = np.arange(start, stop)
                self.block(loop.body)
                totals = [
                    self._fold(item.combiner, tuple(self.operand(value) for value in item.values), stop - start)
                    for item in loop.accumulators
                ]
        else:
            for number in range(start, stop):
                self.names[loop.variable.name] = number
                self.block(loop.body)
                for at, item in enumerate(loop.accumulators):
                    values = tuple(self.operand(value) for value in item.values)
                    totals[at] = COMBINERS[item.combiner].combine(self.builder, totals[at], values)
        self.names.pop(loop.variable.name, None)
        for item, total in zip(loop.accumulators, totals, strict=True):
            for register, value in zip(item.results, total, strict=True):
                self.registers[register.name] = value

    def _identity(self, combiner: str, results: Sequence[Register]) -> Values:
        numbers = COMBINERS[combiner].identity(results[0].dtype)
        return tuple(
            self.builder.constant(number, register.dtype) for number, register in zip(numbers, results, strict=True)
        )

    def _fold(self, combiner: str, values: Values, count: int) -> Values:
        """Reduce all elements, halves onto halves."""
        spread = tuple(NumpyOperand(np.broadcast_to(value.array, (count,)), value.dtype) for value in values)
        while spread[0].array.shape[0] > 1:
            length = spread[0].array.shape[0]
            half = length // 2
            odd = tuple(NumpyOperand(value.array[2 * half :], value.dtype) for value in spread)
            left = tuple(NumpyOperand(value.array[:half], value.dtype) for value in spread)
            right = tuple(NumpyOperand(value.array[half : 2 * half], value.dtype) for value in spread)
            both = COMBINERS[combiner].combine(self.builder, left, right)
            spread = tuple(
                NumpyOperand(np.concatenate([item.array, rest.array]), item.dtype)
                for item, rest in zip(both, odd, strict=True)
            )
        return tuple(NumpyOperand(value.array[0], value.dtype) for value in spread)


def _compute(array: np.ndarray, dtype: DType) -> NumpyOperand:
    """Convert a loaded value to its register type: f16 and bf16 to f32."""
    if dtype.compute is dtype:
        return NumpyOperand(array, dtype)
    return NumpyOperand(np.asarray(array).astype(np.float32), f32)
