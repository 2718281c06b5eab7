"""Compute or load elements of a fused graph's values, as statements of a kernel.

The main method is `Lowering.element(value, index)`: a register with the element of a value at an index. Ops of the
group and inline ops are computed, all other values are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.graph import Op, Value
from ...ir.process import process
from ...ir.record import Record
from ...ir.symbolic import Dim
from ...ir.types import DType, f32, i64
from ...kernels.loop.ir import Buffer, Literal, Operand, Register, Store
from ...kernels.machine import Machine
from ...kernels.scalar.table import COMBINERS
from ...ops.kinds import Element, Elementwise, Kind, Reduce, View
from ..fusion.fused import Fused
from ..fusion.groups import Group
from .builder import KernelBuilder, flatten_index, zero_of


class Saved(Record):
    """A buffer that keeps elements of a value for reuse, indexed by `lead` and then some dims of the value."""

    buffer: Buffer
    dims: tuple[int, ...]
    lead: tuple[Dim, ...] = ()

    def place(self, index: Sequence[Dim]) -> tuple[Dim, ...]:
        return (*self.lead, *(index[dim] for dim in self.dims))


class Lowering(KernelBuilder):
    """Builds one kernel of a fused graph. Implements kinds.ElementBuilder for ops defined by one element."""

    def __init__(self, fused: Fused, name: str, taken: set[str], machine: Machine, gpu: bool):
        super().__init__(name, taken)
        self.fused = fused
        self.machine = machine
        self.gpu = gpu
        self.products = 0
        self.members: set[Op] = set()
        self.saved: dict[Value, Saved] = {}

    def begin_group(self, group: Group) -> None:
        """Start the loop nest of a group; its ops are computed where their elements are asked for."""
        self.begin()
        self.members = set(group.ops)
        self.current = group.ops[0]
        self.saved = {}
        for value in group.outputs:
            self.buffer(self.fused.parts[value].whole if value in self.fused.parts else value, "out")

    def buffer(self, value: Value, role: str = "in") -> Buffer:
        """Return the buffer of a materialised value; an alias is its source's buffer in another shape."""
        stored = value
        while stored in self.fused.aliases:
            stored = self.fused.aliases[stored]
        name = f"%{self.fused.names[stored]}"
        known = self.buffers.get(name)
        if known is None:
            known = Buffer(name, stored.dtype, stored.shape, role)
            self.buffers[name] = known
        return known if value is stored else Buffer(name, stored.dtype, value.shape, known.role)

    def element(self, value: Value, index: Sequence[Dim]) -> Operand:
        """Return the element of a value at an index, in a register. Operands are computed first, without recursion: a
        chain of ops may be longer than Python's stack."""
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
        """Return the index under which an element is remembered: 0 in dims of size 1, also where data chooses."""
        return tuple(0 if size == 1 else at for size, at in zip(value.shape, index, strict=True))

    def _known(self, value: Value, place: tuple[Dim, ...]) -> Operand | None:
        """Return the register that has an element already, or None."""
        if any(size == 0 for size in value.shape):
            return Literal(zero_of(value.dtype), value.dtype.compute)  # only a loop without iterations uses it
        keys: tuple[tuple[Any, ...], ...] = ((value, place),)
        if self.guard is not None:
            keys = (*keys, (value, place, self.guard))
        return self._remembered(*keys)

    def _made_of(self, value: Value, place: tuple[Dim, ...]) -> list[tuple[Value, tuple[Dim, ...]]]:
        """Return the operands of an element that this kernel computes: values and indices."""
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
        """Return the index of an elementwise op's operand: aligned at the end, 0 where it is broadcast."""
        lead = len(index) - operand.ndim
        return tuple(0 if size == 1 else index[lead + dim] for dim, size in enumerate(operand.shape))

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
        """Round a cast to f16 or bf16; the register stays f32."""
        if target.compute is target or target is source:
            return operand
        return self.let(f"round_{target.name}", f32, [operand])

    def _trivial_reduction(self, op: Op, kind: Reduce, index: tuple[Dim, ...]) -> Operand:
        """Lower a reduction over dims of size 1 only."""
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
                return element  # a guarded load, which gives zero where its guard is false
            return self.let("where", element.dtype, [guard, element, Literal(zero_of(element.dtype), element.dtype)])
        return self.load_buffer(self.buffer(value), tuple(index), guard)

    def store(self, value: Value, place: tuple[Dim, ...], item: Operand) -> None:
        """Store an element of an output in the innermost loop."""
        part = self.fused.parts.get(value)
        if part is not None:
            value, place = part.whole, part.place(place)
        buffer, index = flatten_index(self.buffer(value), place)
        origin = value.op.loc if value.op is not None else None
        self.add(len(self.scopes) - 1, Store(buffer, index, item, origin=origin))


# Lowerings of groups, one function for each kind, never for each op.
LOWERINGS: dict[type[Kind], Callable[[Lowering, Group], None]] = process.keep("lowerings of kinds", {})


def lowers(kind: type[Kind]) -> Callable[[Callable[[Lowering, Group], None]], Callable[[Lowering, Group], None]]:
    """Register the lowering of the groups of a kind, and of the kinds derived from it."""

    def register(function: Callable[[Lowering, Group], None]) -> Callable[[Lowering, Group], None]:
        LOWERINGS[kind] = function
        return function

    return register
