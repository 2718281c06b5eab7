"""Keep values that one loop down the columns computes in scratch for a later loop, in place of computing them again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from ...ir.proofs import substitute
from ...ir.symbolic import Dim, Symbol
from ...kernels.loop.analysis import cost
from ...kernels.loop.ir import (
    Accumulator,
    Alloc,
    Buffer,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Operand,
    Register,
    Statement,
    Store,
    prefixes,
    used,
    walk,
    with_body,
)
from ...kernels.loop.roles import writes
from ...kernels.machine import DEFAULT, Machine
from ..fusion.costs import COSTS
from ..registry import loop_pass
from .substitute import change_loops
from .transpose_blocks import Names, split

NUMBERS = ("f32", "f64")


@loop_pass("reuse_columns")
def reuse_columns(kernel: Kernel, *, machine: Machine = DEFAULT, room: int | None = None) -> Kernel:
    """Keep values of a loop down the columns for a later one, where the lanes of vectors run across columns.

        vector<64> %j in 0..4096 {                     serial %j.block in 0..64 {
          serial %k in 0..21 reduce %5: f32 = add {      alloc %kept0: f32[21, 64]
            %2 = load %x[%k, %j]                         vector<64> %j in (64 * %j.block)..(64 * %j.block + 64) {
            %4 = exp(%2) : f32                             serial %k in 0..21 reduce %5: f32 = add {
            yield %4                                         %2 = load %x[%k, %j]
          }                                                  %4 = exp(%2) : f32
          serial %k in 0..21 {                    ->         store %kept0[%k, -64 * %j.block + %j], %4
            %6 = load %x[%k, %j]                             yield %4
            %8 = exp(%6) : f32                             }
            %9 = div(%8, %5) : f32                         serial %k in 0..21 {
            store %y[%k, %j], %9                             %8 = load %kept0[%k, -64 * %j.block + %j]
          }                                                  %9 = div(%8, %5) : f32
        }                                                    store %y[%k, %j], %9

    Along rows, lowering does the same (passes/lower/loop_tree.py). Here one vector of columns at a time has scratch,
    which stays in the caches. Cheap values, and values that would exceed `room` bytes, are computed again.

    room: bytes of scratch, at most; half of L2 if not given: the other half is for the operands of the kept values
    """
    names = Names(kernel)
    most = machine.l2 // 2 if room is None else room

    def change(loop: Loop) -> Loop:
        return (loop.kind == "vector" and _columns(loop, most, names)) or loop

    return change_loops(kernel, change)


def _columns(loop: Loop, room: int, names: Names) -> Loop | None:
    """Strip-mine the loop over columns by the vector width, with scratch for each strip; None if no value is kept."""
    passes = [item for item in loop.body if isinstance(item, Loop)]
    if len(passes) < 2 or prefixes(loop) or not _alike(passes):
        return None
    changing = {buffer.name for item in walk([loop]) for buffer in writes(item)}
    numbers: dict[Hashable, int] = {}
    plans = [_Pass(item, passes[0].variable, changing, numbers) for item in passes]
    length = passes[0].extent
    assert isinstance(length, int)
    made: dict[int, tuple[_Pass, Register]] = {}  # the first computation of each value, by its number
    found: dict[int, Buffer] = {}
    for plan in plans:
        for key, register in plan.repeated(made):
            if key not in found:
                taken = length * loop.width * register.dtype.bytes
                if taken > room:
                    continue
                room -= taken
                found[key] = Buffer(names.new(f"%kept{len(found)}"), register.dtype, (length, loop.width), "scratch")
                first, value = made[key]
                first.stored.append((found[key], value))
            plan.loaded[register.name] = found[key]
        for name, key in plan.keys.items():
            made.setdefault(key, (plan, plan.made[name].result))
    if not found:
        return None
    blocks, columns = split(loop, loop.width, names)
    lane = loop.variable.expr() - columns.start
    changed = {id(plan.loop): plan.changed((plan.loop.variable.expr() - plan.loop.start, lane)) for plan in plans}
    body = [changed.get(id(item), item) for item in loop.body]
    parts = [
        replace(item, results=tuple(Register(f"{result.name}.part", result.dtype) for result in item.results))
        for item in loop.accumulators
    ]
    whole = [
        Accumulator(item.results, item.combiner, part.results)
        for item, part in zip(loop.accumulators, parts, strict=True)
    ]
    columns = with_body(replace(columns, accumulators=tuple(parts)), body)
    return replace(with_body(blocks, [*map(Alloc, found.values()), columns]), accumulators=tuple(whole))


def _alike(passes: Sequence[Loop]) -> bool:
    """Whether all loops are serial, innermost and of the same range."""
    first = passes[0]
    return isinstance(first.extent, int) and all(
        item.kind == "serial"
        and (item.start, item.stop) == (first.start, first.stop)
        and all(isinstance(inner, (Let, Load, Index, Store)) for inner in item.body)
        for item in passes
    )


@dataclass
class _Pass:
    """A loop down the columns, with value numbers of its registers: equal numbers are equal values."""

    loop: Loop
    common: Symbol  # stands for the variable of each pass in keys
    changing: set[str]  # buffers that the passes store to
    numbers: dict[Hashable, int]  # value numbers of all passes; nested keys would be as long as all paths to a value

    def __post_init__(self) -> None:
        self.made = {item.result.name: item for item in self.loop.body if isinstance(item, (Let, Load, Index))}
        self.keys: dict[str, int] = {}
        self.stored: list[tuple[Buffer, Register]] = []
        self.loaded: dict[str, Buffer] = {}
        for name, item in self.made.items():
            self.keys[name] = self.numbers.setdefault(self._key(item), len(self.numbers))

    def _key(self, item: Let | Load | Index) -> Hashable:
        places = {self.loop.variable: self.common.expr()}
        if isinstance(item, Let):
            return item.op, item.result.dtype, *map(self._operand, item.operands)
        if isinstance(item, Index):
            return "index", substitute(item.expression, places)
        if item.guard is not None or item.buffer.name in self.changing:
            return self, item.result.name  # equal to no other value
        return "load", item.buffer, tuple(substitute(place, places) for place in item.index)

    def __hash__(self) -> int:
        return id(self)

    def _operand(self, operand: Operand) -> Hashable:
        if isinstance(operand, Register) and operand.name in self.keys:
            return "register", self.keys[operand.name]
        return operand if isinstance(operand, Register) else (operand.__class__, repr(operand))  # 0.0 is not -0.0

    def repeated(self, before: dict[int, tuple[_Pass, Register]]) -> list[tuple[int, Register]]:
        """List the values of earlier passes that are worth keeping, without those that only other such values need."""
        found: set[str] = set()
        pending, seen = self._roots(), set()
        while pending:
            item = self.made.get(pending.pop())
            if item is None or item.result.name in seen:
                continue
            seen.add(item.result.name)
            numbers = isinstance(item, Let) and item.result.dtype.name in NUMBERS
            if numbers and self.keys[item.result.name] in before and self._work(item) > COSTS.recompute:
                found.add(item.result.name)
            else:
                pending.extend(used(item))
        return [(self.keys[name], self.made[name].result) for name in self.made if name in found]

    def _roots(self) -> list[str]:
        stored = [name for item in self.loop.body if isinstance(item, Store) for name in used(item)]
        return stored + used(self.loop)

    def _work(self, item: Statement) -> int:
        """Return the cost of computing a value from memory, in additions."""
        cone: dict[str, Statement] = {}
        pending = [item]
        while pending:
            for name in used(pending.pop()):
                if name in self.made and name not in cone:
                    cone[name] = self.made[name]
                    pending.append(self.made[name])
        return cost([item, *cone.values()])

    def changed(self, place: tuple[Dim, ...]) -> Loop:
        """Return the loop with stores of values for later loops, and loads in place of repeated computations."""
        body: list[Statement] = []
        needed = set(self._roots())
        for item in reversed(self.loop.body):
            if isinstance(item, (Let, Load, Index)):
                if item.result.name not in needed and not any(item.result == value for _, value in self.stored):
                    continue
                if item.result.name in self.loaded:
                    item = Load(item.result, self.loaded[item.result.name], place)
            needed.update(used(item))
            body.append(item)
        stores = [Store(buffer, place, value) for buffer, value in self.stored]
        return with_body(self.loop, [*reversed(body), *stores])
