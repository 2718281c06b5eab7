"""Build the statements of one kernel: loops, registers, buffers, and scalar ops on registers.

A builder knows nothing of graphs and groups. Every register is hoisted to the outermost loop body where its operands
exist, so loop invariants are computed once; but a load of memory that the kernel writes stays in the loop that asks for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.errors import CompileError
from ...ir.graph import Location, Op
from ...ir.proofs import non_negative
from ...ir.symbolic import Compound, Dim, Expr, Symbol, atoms_of, contiguous_strides, product, symbols_of
from ...ir.types import DType, bool_, i64
from ...kernels.loop.ir import (
    Accumulator,
    Buffer,
    Check,
    Index,
    Let,
    Literal,
    Load,
    Loop,
    Operand,
    Prefix,
    Register,
    Site,
    Statement,
)
from ...kernels.scalar.table import SCALARS

VARIABLES = "ijklmnpqrstuvwabcdefgh"


def flatten_index(buffer: Buffer, index: tuple[Dim, ...]) -> tuple[Buffer, tuple[Dim, ...]]:
    """Rewrite x[c // 64, c % 64] as x[c] of the flat buffer, where the linear index needs no division."""
    if len(index) < 2 or not any(isinstance(atom, Compound) for position in index for atom in atoms_of(position)):
        return buffer, index
    place: Dim = 0
    for position, stride in zip(index, contiguous_strides(buffer.shape), strict=True):
        place = place + position * stride
    if any(isinstance(atom, Compound) for atom in atoms_of(place)):
        return buffer, index
    return Buffer(buffer.name, buffer.dtype, (product(buffer.shape),), buffer.role), (place,)


class Scope:
    """The body of a loop while it is being written."""

    def __init__(self, variable: Symbol | None, start: Dim = 0, stop: Dim = 0):
        self.variable = variable
        self.start = start
        self.stop = stop
        self.statements: list[Statement] = []
        # Available expressions: elements by value and index, and the guard if there is one; loads; checked indices.
        self.memo: dict[tuple[Any, ...], Any] = {}


class KernelBuilder:
    """Builds one kernel. Has the scalar part of kinds.ElementBuilder."""

    def __init__(self, name: str, taken: set[str]):
        self.name = name
        self.taken = taken  # names of buffers
        self.buffers: dict[str, Buffer] = {}
        self.sites: list[Site] = []
        self.registers = 0
        self.temporaries = 0
        self.variables = 0
        self.scopes: list[Scope] = [Scope(None)]
        self.depth: dict[str, int] = {}  # loop depth of registers and loop variables
        self.floor = 0  # no register is placed above this scope
        self.current: Op | None = None  # the op that statements and errors come from
        self.guards: dict[str, Operand | None] = {}  # guards of loaded registers
        self.guard: Operand | None = None  # where it is false, the value being computed is not used

    def begin(self) -> None:
        """Start a new loop nest after the existing ones."""
        self.variables = 0
        self.scopes = [Scope(None)]

    @property
    def statements(self) -> list[Statement]:
        """Return the statements of the nest that was begun last."""
        return self.scopes[0].statements

    # Registers, loops, buffers.

    def register(self, dtype: DType, depth: int) -> Register:
        while f"%{self.registers}" in self.taken:
            self.registers += 1
        result = Register(f"%{self.registers}", dtype)
        self.registers += 1
        self.depth[result.name] = depth
        return result

    def depth_of(self, *items: Any) -> int:
        """Return the depth of the outermost scope in which all of these exist."""
        deepest = self.floor
        for item in items:
            if isinstance(item, Register):
                deepest = max(deepest, self.depth[item.name])
            elif isinstance(item, Expr):
                for symbol in symbols_of(item):
                    deepest = max(deepest, self.depth.get(symbol.name, 0))
        return deepest

    def add(self, depth: int, statement: Statement) -> None:
        self.scopes[depth].statements.append(statement)

    def new_variable(self, extent: Dim) -> Symbol:
        while True:
            letter = VARIABLES[self.variables % len(VARIABLES)]
            turn = self.variables // len(VARIABLES)
            self.variables += 1
            name = f"%{letter}{turn or ''}"
            if name not in self.taken:
                return Symbol(name, 0, extent - 1)

    def open(self, variable: Symbol, start: Dim, stop: Dim) -> None:
        self.scopes.append(Scope(variable, start, stop))
        self.depth[variable.name] = len(self.scopes) - 1

    def close(self, accumulators: Sequence[tuple[str, tuple[Operand, ...]]] = ()) -> list[tuple[Register, ...]]:
        """End the innermost loop, left out if nothing is in it; return the results of its accumulators."""
        scope = self.scopes.pop()
        assert scope.variable is not None
        if not scope.statements and not accumulators:
            return []
        items: list[Accumulator] = []
        for combiner, values in accumulators:
            results = tuple(self.register(value.dtype, len(self.scopes) - 1) for value in values)
            items.append(Accumulator(results, combiner, values))
        loop = Loop("serial", scope.variable, scope.start, scope.stop, tuple(scope.statements), 1, tuple(items))
        self.scopes[-1].statements.append(loop)
        return [item.results for item in items]

    def temporary(self, dtype: DType, shape: Sequence[Dim]) -> Buffer:
        buffer = Buffer(f"%{self.name}.partial{self.temporaries}", dtype, tuple(shape), "temp")
        self.temporaries += 1
        self.buffers[buffer.name] = buffer
        return buffer

    def nest(self, shape: Sequence[Dim], body: Callable[[tuple[Dim, ...]], None]) -> None:
        """Open loops over a shape and call `body` with the index inside of them."""
        variables = [self.new_variable(size) for size in shape]
        outer = self.floor
        for variable, size in zip(variables, shape, strict=True):
            self.open(variable, 0, size)
            self.floor = 1
        body(tuple(variable.expr() for variable in variables))
        for _ in variables:
            self.close()
        self.floor = outer

    @property
    def origin(self) -> Location | None:
        return None if self.current is None else self.current.loc

    def let(self, name: str, dtype: DType, operands: Sequence[Operand]) -> Register:
        depth = self.depth_of(*operands)
        result = self.register(dtype, depth)
        self.add(depth, Let(result, name, tuple(operands), self.origin))
        return result

    def prefix(self, combiner: str, value: Operand, start: Operand) -> Register:
        """Add a prefix: the combiner over the innermost loop's iterations so far."""
        depth = len(self.scopes) - 1
        result = self.register(value.dtype, depth)
        self.add(depth, Prefix(result, combiner, value, start))
        return result

    def _remembered(self, *keys: tuple[Any, ...]) -> Any:
        """Return the register or checked index known by one of these keys in an open loop, or None."""
        for scope in reversed(self.scopes):
            for key in keys:
                if key in scope.memo:
                    return scope.memo[key]
        return None

    def load_buffer(self, buffer: Buffer, index: tuple[Dim, ...], guard: Operand | None = None) -> Operand:
        """Load an element of a buffer into a register, or return the register of an equal load."""
        if any(size == 0 for size in buffer.shape):
            # Only a loop without iterations uses it, but the load could be hoisted out of that loop.
            return Literal(zero_of(buffer.dtype), buffer.dtype.compute)
        # An index into a dim of size 1 is 0, also where data chooses it.
        index = tuple(0 if size == 1 else at for size, at in zip(buffer.shape, index, strict=True))
        buffer, index = flatten_index(buffer, index)
        guard = self._both(self.guard, guard)
        # Memory that the kernel writes may change in each iteration: such loads are not hoisted or reused.
        is_constant = buffer.role == "in"
        key = ("load", buffer, index, guard)
        known = self._remembered(key) if is_constant else None
        if known is not None:
            return known
        depth = self.depth_of(*index, guard) if is_constant else len(self.scopes) - 1
        result = self.register(buffer.dtype.compute, depth)
        self.guards[result.name] = guard
        self.add(depth, Load(result, buffer, index, guard, self.origin))
        if is_constant:
            self.scopes[depth].memo[key] = result
        return result

    @staticmethod
    def needed(guard: Operand | None) -> Operand | None:
        """Return a guard that may be false, or None."""
        return None if guard == Literal(True, bool_) else guard

    def _both(self, left: Operand | None, right: Operand | None) -> Operand | None:
        if left is None or right is None or left is right:
            return right if left is None else left
        return self.let("logical_and", bool_, [left, right])

    # Scalars: kinds.ElementBuilder

    def constant(self, value: Any, dtype: DType) -> Literal:
        return Literal(value, dtype.compute)

    def scalar(self, name: str, *operands: Any) -> Operand:
        if name == "logical_and" and any(self.needed(operand) is None for operand in operands):
            return operands[self.needed(operands[0]) is None]
        row = SCALARS[name]
        kind = operands[-1].dtype
        dtype = bool_ if row.result == "bool" else kind.real if row.result == "real" else kind
        return self.let(name, dtype, operands)

    def cast(self, operand: Any, dtype: DType) -> Operand:
        target = dtype.compute
        if operand.dtype is target:
            return operand
        return self.let("cast", target, [operand])

    def rare(self, condition: Any, fast: Any, slow: Callable[..., Any], operands: Sequence[Any]) -> Operand:
        return self.let("where", fast.dtype, [condition, slow(self, *operands), fast])

    def loop(self, step: Callable[..., Sequence[Any]], state: Sequence[Any]) -> Operand:
        raise CompileError("only rows of the scalar table have loops")

    def bitcast(self, operand: Any, dtype: DType) -> Operand:
        return self.let("bitcast", dtype, [operand])

    def op(self, name: str, *operands: Any) -> Operand:
        return self.scalar(name, *operands)

    def index(self, expression: Dim) -> Operand:
        if isinstance(expression, int):
            return Literal(expression, i64)
        depth = self.depth_of(expression)
        result = self.register(i64, depth)
        self.add(depth, Index(result, expression))
        return result

    def inside(self, expression: Dim, low: Dim, high: Dim) -> Operand:
        place = self.index(expression)
        return self.let(
            "logical_and",
            bool_,
            [self.let("ge", bool_, [place, self.index(low)]), self.let("lt", bool_, [place, self.index(high)])],
        )

    def dynamic(self, value: Any, size: Dim, wrap: bool) -> tuple[Dim, Operand]:
        assert self.current is not None
        if any(extent == 0 for extent in self.current.results[0].shape):
            # Only a loop without iterations uses the index, but a check could be hoisted out of that loop.
            return 0, Literal(False, bool_)
        site = Site(self.current.name, self.current.loc)
        if site not in self.sites:
            self.sites.append(site)
        if self.guard is not None:
            value = self.let("where", value.dtype, [self.guard, value, Literal(0, value.dtype)])
        value = self.cast(value, i64)
        key = ("check", value, size, wrap, site)
        known = self._remembered(key)
        if known is not None:
            return known
        depth = self.depth_of(value, size)
        position, guard = self.register(i64, depth), self.register(bool_, depth)
        check = Check(position, guard, value, size, wrap, self.sites.index(site))
        self.add(depth, check)
        # An index out of range becomes 0, and the call fails: a dim that certainly has an element 0 needs no guard.
        found = check.symbol.expr(), Literal(True, bool_) if non_negative(size - 1) else guard
        self.scopes[depth].memo[key] = found
        return found


def zero_of(dtype: DType) -> Any:
    """Return zero of a type as a Python number."""
    return False if dtype.kind == "b" else 0 if dtype.kind in "iu" else 0.0 if dtype.kind in "fe" else 0j
