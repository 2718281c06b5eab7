"""Memory that is read or written across the vectors: transposed a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count as counter

from ...ir.symbolic import Dim, Symbol, ceil_divide, minimum, substitute, symbols_of
from ...kernels.loop_ir import (
    Alloc,
    Buffer,
    Check,
    Concurrent,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Matrix,
    Statement,
    Store,
    Transpose,
    walk,
)
from ..manager import loop_pass
from .analysis import independent, offset, step

BLOCK = 64  # rows and columns of a block
SCRATCH = 1 << 15  # bytes of all blocks: what the first cache holds
LINE = 16  # blocks have a multiple of this many rows and columns
SHORT = 8  # a loop below this is not worth a block


@loop_pass("transpose")
def transpose(kernel: Kernel) -> Kernel:
    """In a nest of independent loops, copy what lies along an outer loop into blocks that lie along the inner one.

        serial %i in 0..2048 {                 serial %i.block in 0..32 {
          serial %j in 0..2048 {                 serial %j.block in 0..32 {
            %0 = load %x[%j, %i]                   alloc %block0: f32[64, 64]
            %1 = load %y[%i, %j]                   transpose %block0[0; 64, 1] = %x[...; 1, 2048] over (64, 64)
            %2 = add(%0, %1) : f32                 serial %i in (64 * %i.block)..(64 * %i.block + 64) {
            store %z[%i, %j], %2          ->         serial %j in (64 * %j.block)..(64 * %j.block + 64) {
          }                                            %0 = load %block0[%i - 64 * %i.block, %j - 64 * %j.block]
        }                                              ...

    What is stored along the outer loop is collected in a block and transposed afterwards. A mere copy needs no block.
    """
    names = {buffer.name for buffer in kernel.buffers}
    for item in walk(kernel.body):
        if isinstance(item, Alloc):
            names.add(item.buffer.name)
        elif isinstance(item, Loop):
            names.add(item.variable.name)
    fresh = (f"%block{number}" for number in counter() if f"%block{number}" not in names)
    return replace(kernel, body=tuple(_statement(item, fresh, names) for item in kernel.body))


def _statement(statement: Statement, fresh: Iterator[str], names: set[str]) -> Statement:
    if isinstance(statement, Concurrent):
        return Concurrent(tuple(_loop(branch, fresh, names) for branch in statement.branches))
    return _loop(statement, fresh, names) if isinstance(statement, Loop) else statement


def _loop(loop: Loop, fresh: Iterator[str], names: set[str]) -> Loop:
    nest = Nest.of(loop)
    plan = _plan(nest) if nest is not None else None
    return loop if nest is None or plan is None else _blocked(nest, plan, fresh, names)


@dataclass(frozen=True)
class Nest:
    """Loops inside of each other, and the statements of each body but the next loop."""

    loops: tuple[Loop, ...]
    bodies: tuple[tuple[Statement, ...], ...]

    @staticmethod
    def of(loop: Loop) -> Nest | None:
        """The nest that a loop begins, if its iterations may run in any order."""
        loops: list[Loop] = []
        bodies: list[tuple[Statement, ...]] = []
        while True:
            if loop.kind != "serial" or loop.accumulators or loop.carries:
                return None
            inner = loop.body[-1] if loop.body else None
            own = loop.body[:-1] if isinstance(inner, Loop) else loop.body
            allowed = (Let, Load, Index, Check) if isinstance(inner, Loop) else (Let, Load, Index, Check, Store)
            if not all(isinstance(item, allowed) for item in own):
                return None
            loops.append(loop)
            bodies.append(own)
            if not isinstance(inner, Loop):
                break
            loop = inner
        variables = {item.variable for item in loops}
        if any(variables & (symbols_of(item.start) | symbols_of(item.stop)) for item in loops):
            return None
        return Nest(tuple(loops), tuple(bodies)) if all(map(independent, loops)) else None

    def loop(self, variable: Symbol) -> Loop:
        return next(item for item in self.loops if item.variable == variable)


@dataclass(frozen=True)
class Plan:
    """Which accesses go through blocks, `down` the loop they lie along, while vectors run `across`."""

    down: Symbol
    across: Symbol
    accesses: tuple[Load | Store, ...]


def _plan(nest: Nest) -> Plan | None:
    """The accesses across the best vectors, if blocks pay."""
    accesses = [item for body in nest.bodies for item in body if isinstance(item, (Load, Store))]
    variables = [item.variable for item in reversed(nest.loops) if _long(item)]
    if len(variables) < 2:
        return None
    across = max(variables, key=lambda variable: sum(map(_traffic, _along(accesses, variable))))
    stored = {item.buffer.name for item in accesses if isinstance(item, Store)}
    loaded = {item.buffer.name for item in accesses if isinstance(item, Load)}
    known = {item.variable for item in nest.loops}
    movable: list[Load | Store] = []
    for item in accesses:
        place = offset(item.buffer, item.index)
        apart = step(place, across)
        fixed = apart is not None and not any(symbol.name.startswith("%") for symbol in symbols_of(apart))
        chosen = any(symbol.name.startswith("%") and symbol not in known for symbol in symbols_of(place))
        plain = item.guard is None and not (isinstance(item, Store) and item.combine is not None)
        if plain and fixed and apart not in (0, 1) and not chosen and item.buffer.name not in stored & loaded:
            movable.append(item)
    down = max(variables, key=lambda variable: sum(map(_traffic, _along(movable, variable))))
    movable = _along(movable, down)
    return Plan(down, across, tuple(movable)) if movable and down != across else None


def _long(loop: Loop) -> bool:
    return not isinstance(loop.extent, int) or loop.extent >= SHORT


def _along(accesses: Sequence[Load | Store], variable: Symbol) -> list[Load | Store]:
    return [item for item in accesses if step(offset(item.buffer, item.index), variable) == 1]


def _traffic(access: Load | Store) -> int:
    """What is written is read before, by the cache."""
    return access.buffer.dtype.bytes * (2 if isinstance(access, Store) else 1)


def _blocked(nest: Nest, plan: Plan, fresh: Iterator[str], names: set[str]) -> Loop:
    down, across = nest.loop(plan.down), nest.loop(plan.across)
    each = sum(item.buffer.dtype.bytes for item in plan.accesses)
    side = BLOCK
    while side > LINE and side * side * each > SCRATCH:
        side //= 2
    outer: list[Loop] = []
    inner: dict[Symbol, Loop] = {}
    sizes: dict[Symbol, Dim] = {}
    for loop in nest.loops:
        if loop is not down and loop is not across:
            outer.append(loop)
            continue
        size = _evenly(loop.extent, side)
        number = ceil_divide(loop.extent, size)
        block = Symbol(_unused(f"{loop.variable.name}.block", names), 0, number - 1)
        start = loop.start + block.expr() * size
        outer.append(Loop("serial", block, 0, number, ()))
        inner[loop.variable] = replace(loop, start=start, stop=minimum(start + size, loop.stop))
        sizes[loop.variable] = size
    row, column = inner[plan.down], inner[plan.across]
    starts = {plan.down: row.start, plan.across: column.start}
    hoisted = [item for body in nest.bodies[:-1] for item in body]

    def matrix(access: Load | Store, by_rows: bool) -> Matrix:
        """The block of an access in memory; its rows run `down` if `by_rows`, else `across`."""
        place = offset(access.buffer, access.index)
        apart = step(place, plan.across)
        assert apart is not None
        return Matrix(access.buffer, substitute(place, starts), *((1, apart) if by_rows else (apart, 1)))

    body: list[Statement]
    copied = _copy(nest, plan)
    if copied is not None:
        place = offset(copied.buffer, copied.index)
        stride = step(place, plan.down)
        assert stride is not None
        target = Matrix(copied.buffer, substitute(place, starts), stride, 1)
        body = [Transpose(target, matrix(plan.accesses[0], True), row.extent, column.extent)]
    else:
        head: list[Statement] = []
        tail: list[Statement] = []
        moved: dict[int, Statement] = {}
        for access in plan.accesses:
            scratch = Buffer(next(fresh), access.buffer.dtype, (sizes[plan.down], sizes[plan.across]), "scratch")
            head.append(Alloc(scratch))
            index = (plan.down.expr() - row.start, plan.across.expr() - column.start)
            moved[id(access)] = replace(access, buffer=scratch, index=index)
            if isinstance(access, Load):
                target = Matrix(scratch, 0, sizes[plan.across], 1)
                head.append(Transpose(target, matrix(access, True), row.extent, column.extent))
            else:
                source = Matrix(scratch, 0, 1, sizes[plan.across])
                tail.append(Transpose(matrix(access, False), source, column.extent, row.extent))
        vectors = replace(column, body=tuple(moved.get(id(item), item) for item in nest.bodies[-1]))
        rows = replace(row, body=(*(moved.get(id(item), item) for item in hoisted), vectors))
        body = [*head, rows, *tail]
    for loop in reversed(outer):
        body = [replace(loop, body=tuple(body))]
    assert isinstance(body[0], Loop)
    return body[0]


def _copy(nest: Nest, plan: Plan) -> Store | None:
    """The store of a nest that does nothing but copy."""
    last = nest.bodies[-1]
    if any(nest.bodies[:-1]) or len(last) != 2 or last[0] is not plan.accesses[0]:
        return None
    load, store = last
    if not isinstance(load, Load) or not isinstance(store, Store) or store.value != load.result:
        return None
    plain = store.guard is None and store.combine is None and store.buffer.dtype is load.buffer.dtype
    place = offset(store.buffer, store.index)
    return store if plain and step(place, plan.across) == 1 and step(place, plan.down) is not None else None


def _evenly(extent: Dim, side: int) -> int:
    """The size of blocks of about a side, none of them much smaller than the others."""
    if not isinstance(extent, int):
        return side
    each = -(-extent // -(-extent // side))
    return min(-(-each // LINE) * LINE, side)


def _unused(name: str, names: set[str]) -> str:
    while name in names:
        name += "_"
    names.add(name)
    return name
