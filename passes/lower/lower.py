"""Lowering: a fused group becomes loop IR. One function per kind of op, never per op.

The heart is `Lowering.element(value, index)`: a register with the element of a value at an index. What the
group makes is computed, what is inline is worked out on the spot, all else is loaded. Every register is put
into the outermost loop body where its operands exist, so what does not vary in a loop is computed before it; but what
is loaded of memory that the kernel writes stays in the loop that asks for it.

The loop tree of a group of loops is built in loop_tree.py; ops that have a kernel of their own kind are here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.graph import Location, Op, Value
from ...ir.proofs import non_negative
from ...ir.symbolic import Dim, Expr, Symbol, symbols_of
from ...ir.types import DType, bool_, f32, i64
from ...kernels.loop.ir import (
    Accumulator,
    Buffer,
    Check,
    Concurrent,
    Index,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    Operand,
    Prefix,
    Register,
    Site,
    Statement,
    Store,
)
from ...kernels.machine import DEFAULT, Machine
from ...kernels.scalar.table import COMBINERS
from ...ops.kinds import Element, Elementwise, Generate, Reduce, Scan, Scatter, View
from ...ops.pointwise import cast
from ..fusion.fuse import Fused, Group
from .gemm import Product
from .loop_tree import Saved, Tree, flatten_index
from .scan import lower_scan
from .scatter import lower_scatter

VARIABLES = "ijklmnpqrstuvwabcdefgh"


class Scope:
    """The body of a loop while it is being written."""

    def __init__(self, variable: Symbol | None, start: Dim = 0, stop: Dim = 0):
        self.variable = variable
        self.start = start
        self.stop = stop
        self.statements: list[Statement] = []
        # What is known here: elements by value and index, and the guard if there is one; loads; checked indices.
        self.memo: dict[tuple[Any, ...], Any] = {}


class Lowering:
    """Writes one kernel. Implements kinds.ElementBuilder for the ops that say how one element is made."""

    def __init__(self, fused: Fused, name: str, taken: set[str], machine: Machine, gpu: bool):
        self.fused = fused
        self.name = name
        self.machine = machine
        self.gpu = gpu
        self.buffers: dict[str, Buffer] = {}
        self.sites: list[Site] = []
        self.registers = 0
        self.temporaries = 0
        self.products = 0
        self.variables = 0
        self.scopes: list[Scope] = [Scope(None)]
        self.depth: dict[str, int] = {}  # of registers and loop variables
        self.floor = 0  # no register is placed above this scope
        self.members: set[Op] = set()
        self.saved: dict[Value, Saved] = {}
        self.current: Op | None = None
        self.guards: dict[str, Operand | None] = {}  # of loaded registers
        self.guard: Operand | None = None  # where it is false, what is being computed is not used
        self.taken = taken  # by buffers

    # Registers, loops, buffers.

    def register(self, dtype: DType, depth: int) -> Register:
        while f"%{self.registers}" in self.taken:
            self.registers += 1
        result = Register(f"%{self.registers}", dtype)
        self.registers += 1
        self.depth[result.name] = depth
        return result

    def depth_of(self, *items: Any) -> int:
        """The innermost scope that some of these need."""
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
        """End the innermost loop; gives the results of its accumulators."""
        scope = self.scopes.pop()
        assert scope.variable is not None
        items: list[Accumulator] = []
        for combiner, values in accumulators:
            results = tuple(self.register(value.dtype, len(self.scopes) - 1) for value in values)
            items.append(Accumulator(results, combiner, values))
        loop = Loop("serial", scope.variable, scope.start, scope.stop, tuple(scope.statements), 1, tuple(items))
        self.scopes[-1].statements.append(loop)
        return [item.results for item in items]

    def buffer(self, value: Value, role: str = "in") -> Buffer:
        """The memory of a materialised value; an alias is its source's memory in another shape."""
        stored = value
        while stored in self.fused.aliases:
            stored = self.fused.aliases[stored]
        name = f"%{self.fused.names[stored]}"
        known = self.buffers.get(name)
        if known is None:
            known = Buffer(name, stored.dtype, stored.shape, role)
            self.buffers[name] = known
        return known if value is stored else Buffer(name, stored.dtype, value.shape, known.role)

    def temporary(self, dtype: DType, shape: Sequence[Dim]) -> Buffer:
        buffer = Buffer(f"%{self.name}.partial{self.temporaries}", dtype, tuple(shape), "temp")
        self.temporaries += 1
        self.buffers[buffer.name] = buffer
        return buffer

    # Elements.

    def element(self, value: Value, index: Sequence[Dim]) -> Operand:
        """The element of a value at an index, in a register. What it is made of comes first, without recursion:
        a chain of ops may be longer than Python's stack."""
        pending = [(value, self._place(value, index))]
        while True:
            item, place = pending[-1]
            found = self._known(item, place)
            if found is None:
                missing = [need for need in self._made_of(item, place) if self._known(*need) is None]
                if missing:
                    pending.extend(reversed(missing))
                    continue
                found = self._element(item, place)
                key = (item, place) if self.guard is None else (item, place, self.guard)
                self.scopes[self.depth_of(found)].memo[key] = found
            pending.pop()
            if not pending:
                return found

    def _place(self, value: Value, index: Sequence[Dim]) -> tuple[Dim, ...]:
        """The index that a value is known by. Data may choose in a dim of size 1: where the guard holds, that is 0."""
        return tuple(0 if size == 1 else at for size, at in zip(value.shape, index, strict=True))

    def _known(self, value: Value, place: tuple[Dim, ...]) -> Operand | None:
        """The register that has an element already."""
        if any(size == 0 for size in value.shape):
            return Literal(_zero(value.dtype), value.dtype.compute)  # only a loop over nothing uses it
        keys: tuple[tuple[Any, ...], ...] = ((value, place),)
        if self.guard is not None:
            keys = (*keys, (value, place, self.guard))
        return self._remembered(*keys)

    def _made_of(self, value: Value, place: tuple[Dim, ...]) -> list[tuple[Value, tuple[Dim, ...]]]:
        """The elements of this kernel's own values that an element is made of."""
        op = value.op
        if op is None or value in self.saved or not self._is_own(op):
            return []
        own = [operand for operand in op.operands if operand.op is not None and self._is_own(operand.op)]
        kind = op.defn.kind
        if isinstance(kind, Elementwise):
            return [(operand, self._aligned(operand, place)) for operand in own]
        if isinstance(kind, View):
            return [(operand, self._place(operand, kind.index(place, op.arguments))) for operand in own]
        return []

    def _is_own(self, op: Op) -> bool:
        return op in self.members or op in self.fused.inline

    @staticmethod
    def _aligned(operand: Value, index: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The index of an operand of an elementwise op: aligned at the end, 0 where it is broadcast."""
        lead = len(index) - operand.ndim
        return tuple(0 if size == 1 else index[lead + dim] for dim, size in enumerate(operand.shape))

    @property
    def origin(self) -> Location | None:
        return None if self.current is None else self.current.loc

    def _element(self, value: Value, index: tuple[Dim, ...]) -> Operand:
        previous = self.current
        if value.op is not None and self._is_own(value.op):
            self.current = value.op
        try:
            return self._made(value, index)
        finally:
            self.current = previous

    def _made(self, value: Value, index: tuple[Dim, ...]) -> Operand:
        op = value.op
        saved = self.saved.get(value)
        if saved is not None:
            return self.load_buffer(saved.buffer, saved.place(index))
        if op is None or not self._is_own(op):
            return self.load(value, index)
        kind = op.defn.kind
        if isinstance(kind, Elementwise):
            operands = [self.element(operand, self._aligned(operand, index)) for operand in op.operands]
            return self._elementwise(op, kind, operands)
        if isinstance(kind, View):
            (operand,) = op.operands
            return self.element(operand, tuple(kind.index(index, op.arguments)))
        if isinstance(kind, Reduce):
            return self._trivial_reduction(op, kind, index)
        if isinstance(kind, Element):
            return kind.element(self, index, op.arguments)
        raise AssertionError(f"{op.name} cannot be computed one element at a time")

    def _elementwise(self, op: Op, kind: Elementwise, operands: list[Operand]) -> Operand:
        target = op.results[0].dtype
        if kind.scalar == "cast":
            return self._round(self.cast(operands[0], target), target, op.operands[0].dtype)
        if kind.scalar == "round_off":
            return self._round(operands[0], target, f32)
        return self.let(kind.scalar_on(target), target.compute, operands)

    def _round(self, operand: Operand, target: DType, source: DType) -> Operand:
        """Casting to f16 or bf16 rounds, though the register stays f32."""
        if target.compute is target or target is source:
            return operand
        return self.let(f"round_{target.name}", f32, [operand])

    def _trivial_reduction(self, op: Op, kind: Reduce, index: tuple[Dim, ...]) -> Operand:
        """A reduction over dims of size 1 only."""
        value: Value = op.arguments["self"]
        assert all(value.shape[dim] == 1 for dim in op.arguments["dim"]), f"{op.name} was not reduced before its use"
        if kind.result == "i64":
            return Literal(0, i64)
        places = iter(index)
        whole: list[Dim] = []
        for dim in range(value.ndim):
            if dim in op.arguments["dim"]:
                if op.arguments["keepdim"]:
                    next(places)
                whole.append(0)
            else:
                whole.append(next(places))
        item = self.element(value, tuple(whole))
        if not item.dtype.is_inexact or kind.combiner not in ("add", "mul"):
            return item
        start = Literal(COMBINERS[kind.combiner].identity(item.dtype)[0], item.dtype)  # 0.0 + -0.0 is 0.0
        return COMBINERS[kind.combiner].combine(self, (start,), (item,))[0]

    def prefix(self, combiner: str, value: Operand, start: Operand) -> Register:
        """The combiner over the innermost loop's iterations so far."""
        depth = len(self.scopes) - 1
        result = self.register(value.dtype, depth)
        self.add(depth, Prefix(result, combiner, value, start))
        return result

    def nest(self, shape: Sequence[Dim], body: Callable[[tuple[Dim, ...]], None]) -> None:
        """Loops over a shape around the body, which takes the index."""
        variables = [self.new_variable(size) for size in shape]
        outer = self.floor
        for variable, size in zip(variables, shape, strict=True):
            self.open(variable, 0, size)
            self.floor = 1
        body(tuple(variable.expr() for variable in variables))
        for _ in variables:
            self.close()
        self.floor = outer

    def let(self, name: str, dtype: DType, operands: Sequence[Operand]) -> Register:
        depth = self.depth_of(*operands)
        result = self.register(dtype, depth)
        self.add(depth, Let(result, name, tuple(operands), self.origin))
        return result

    # kinds.ElementBuilder

    def load(self, value: Value, index: Sequence[Dim], guard: Any = None) -> Operand:
        op = value.op
        guard = self.needed(guard)
        if op is not None and self._is_own(op):
            if guard is None:
                return self.element(value, index)
            outer, self.guard = self.guard, self._both(self.guard, guard)
            element = self.element(value, index)
            both, self.guard = self.guard, outer
            if isinstance(element, Register) and self.guards.get(element.name) is both:
                return element  # a load that gives zero there by itself
            return self.let("where", element.dtype, [guard, element, Literal(_zero(element.dtype), element.dtype)])
        return self.load_buffer(self.buffer(value), tuple(index), guard)

    def store(self, value: Value, place: tuple[Dim, ...], item: Operand) -> None:
        """Store an element of an output in the innermost loop."""
        part = self.fused.parts.get(value)
        if part is not None:
            value, place = part.whole, part.place(place)
        buffer, index = flatten_index(self.buffer(value), place)
        origin = value.op.loc if value.op is not None else None
        self.add(len(self.scopes) - 1, Store(buffer, index, item, origin=origin))

    @staticmethod
    def needed(guard: Operand | None) -> Operand | None:
        """A guard that may be false, or None."""
        return None if guard == Literal(True, bool_) else guard

    def _both(self, left: Operand | None, right: Operand | None) -> Operand | None:
        if left is None or right is None or left is right:
            return right if left is None else left
        return self.let("logical_and", bool_, [left, right])

    def load_buffer(self, buffer: Buffer, index: tuple[Dim, ...], guard: Operand | None = None) -> Operand:
        """An element of a buffer in a register."""
        if any(size == 0 for size in buffer.shape):
            # Only a loop over nothing uses it, but it might be placed before that loop.
            return Literal(_zero(buffer.dtype), buffer.dtype.compute)
        # Where data chooses among one, it chooses that one.
        index = tuple(0 if size == 1 else at for size, at in zip(buffer.shape, index, strict=True))
        buffer, index = flatten_index(buffer, index)
        guard = self._both(self.guard, guard)
        # What the kernel itself writes may change from iteration to iteration: it is read where and when it is needed.
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

    def _remembered(self, *keys: tuple[Any, ...]) -> Any:
        """What one of these keys stands for in the loops that are open."""
        for scope in reversed(self.scopes):
            for key in keys:
                if key in scope.memo:
                    return scope.memo[key]
        return None

    def constant(self, value: Any, dtype: DType) -> Literal:
        return Literal(value, dtype.compute)

    def scalar(self, name: str, *operands: Any) -> Operand:
        from ...kernels.scalar.table import SCALARS

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
            return 0, Literal(False, bool_)  # a loop over nothing chooses nothing, though a check might stand before it
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
        # Out of range counts as place 0, and the call fails: where there is a place 0, nothing need be guarded.
        found = check.symbol.expr(), Literal(True, bool_) if non_negative(size - 1) else guard
        self.scopes[depth].memo[key] = found
        return found

    # Groups.

    def lower(self, group: Group) -> list[Statement]:
        """The statements of one group."""
        self.members = set(group.ops)
        self.current = group.ops[0]
        self.saved = {}
        self.variables = 0
        self.scopes = [Scope(None)]
        for value in group.outputs:
            self.buffer(self.fused.parts[value].whole if value in self.fused.parts else value, "out")
        kind = group.ops[0].defn.kind
        if group.product is not None:
            Product(self, group, f"{self.products}." if self.products else "").build()
            self.products += 1
        elif isinstance(kind, Scan):
            lower_scan(self, group.ops[0], kind)
        elif isinstance(kind, Scatter):
            lower_scatter(self, group.ops[0], kind)
        else:
            Tree(self, group).build()
        return self.scopes[0].statements


def _zero(dtype: DType) -> Any:
    return False if dtype.kind == "b" else 0 if dtype.kind in "iu" else 0.0 if dtype.kind == "f" else 0j


def kernel_name(groups: Sequence[Group], number: int) -> str:
    """A name that says what is inside: the ops that stand out."""
    names: list[str] = []
    for group in groups:
        for op in group.ops:
            if isinstance(op.defn.kind, (View, Generate)) or op.defn is cast:
                continue
            if op.name not in names:
                names.append(op.name)
    if len(names) > 4:
        weight = {name: SCALE.get(name, 0) for name in names}
        names = sorted(sorted(names, key=lambda name: -weight[name])[:4], key=names.index)
    return "_".join([f"k{number}", *names]) if names else f"k{number}_copy"


# What a kernel's name mentions first.
SCALE = dict.fromkeys(
    ("sum", "amax", "amin", "prod", "argmax", "argmin", "bmm", "cumsum", "any", "all"), 2
) | dict.fromkeys(
    (
        "exp",
        "log",
        "tanh",
        "erf",
        "sigmoid",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "pow",
        "select_along",
        "gather_along",
        "cat",
    ),
    1,
)


def _side_by_side(bodies: Sequence[Sequence[Statement]]) -> list[Statement]:
    """Groups that do not depend on each other: their last loops share a region, and what comes before them."""
    steps: list[Statement] = []
    loops = [[item for item in body if isinstance(item, Loop)] for body in bodies]
    for left in range(max(map(len, loops)), 0, -1):
        branches = [body[-left] for body in loops if len(body) >= left]
        steps.append(Concurrent(tuple(branches)) if len(branches) > 1 else branches[0])
    return steps


def lower(fused: Fused, machine: Machine = DEFAULT, gpu: bool = False) -> list[Kernel]:
    """Loop IR for every kernel of a fused graph, all loops serial. Matrix products are cut up for the machine, or for
    the blocks of a GPU."""
    taken = buffer_names(fused)
    return [lower_launch(fused, number, taken, machine, gpu) for number in range(len(fused.launches))]


def buffer_names(fused: Fused) -> set[str]:
    """Names that are not for registers and variables."""
    return {f"%{name}" for name in fused.names.values()}


def lower_launch(fused: Fused, number: int, taken: set[str], machine: Machine = DEFAULT, gpu: bool = False) -> Kernel:
    """The same for one of them."""
    groups = fused.launches[number]
    lowering = Lowering(fused, kernel_name(groups, number), taken, machine, gpu)
    bodies = [lowering.lower(group) for group in groups]
    body = bodies[0] if len(bodies) == 1 else _side_by_side(bodies)
    return Kernel(lowering.name, tuple(lowering.buffers.values()), tuple(body), tuple(lowering.sites))
