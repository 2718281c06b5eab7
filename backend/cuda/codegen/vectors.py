"""Write vector loops: unrolled lanes, with vector accesses where memory is contiguous and aligned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ....ir.proofs import is_multiple, substitute
from ....ir.symbolic import Dim, product
from ....ir.types import bool_, i64
from ....kernels.loop.analysis import offset, step
from ....kernels.loop.ir import Index, Let, Load, Loop, Operand, Register, Store
from .rows import load_key
from .scalars import Text, from_memory, to_memory
from .uses import fetches_first

if TYPE_CHECKING:
    from .emit import Emitter

WIDTHS = 2, 4, 8  # elements of vector accesses


class Vector:
    """Writer of one vector loop without remainder."""

    def __init__(self, emitter: Emitter, loop: Loop):
        self.e = emitter
        self.loop = loop
        self.width = loop.width
        self.known: dict[str, list[Text]] = {}  # registers defined in the body: one text per lane

    def write(self) -> None:
        emitter, width = self.e, self.width
        emitter.line(f"{emitter.names[self.loop.variable.name]} = {emitter.indices.number(self.loop.start)}")
        for item in fetches_first(self.loop.body, emitter.changing):
            if isinstance(item, Store):
                self.store(item)
                continue
            assert isinstance(item, (Let, Load, Index))
            self.known[item.result.name] = self.made(item, emitter.names[item.result.name])
        for part in self.loop.accumulators:
            yielded = [[self.lanes(value)[lane] for value in part.values] for lane in range(width)]
            while len(yielded) > 1:
                half = len(yielded) // 2
                yielded = [emitter.combined(part.combiner, yielded[at], yielded[at + half]) for at in range(half)]
            for register, text in zip(part.results, yielded[0], strict=True):
                emitter.bind(register, text)

    def lanes(self, operand: Operand) -> list[Text]:
        """Return the texts of an operand, one per lane."""
        if isinstance(operand, Register) and operand.name in self.known:
            return self.known[operand.name]
        return [self.e.operand(operand)] * self.width

    def moved(self, value: Dim, lane: int) -> Dim:
        """Substitute the loop's variable: an index expression in a given lane."""
        variable = self.loop.variable
        return substitute(value, {variable: variable.expr() + lane})

    def made(self, item: Let | Load | Index, name: str) -> list[Text]:
        """Write a statement in all lanes; return the texts of its register, one per lane."""
        emitter, width = self.e, self.width
        if isinstance(item, Load):
            return self.load(item, name)
        if isinstance(item, Index):
            for lane in range(width):
                emitter.line(f"{name}_{lane} = int64({emitter.indices.sum(self.moved(item.expression, lane))})")
            return [Text(i64, (f"{name}_{lane}",)) for lane in range(width)]
        given = [self.lanes(operand) for operand in item.operands]
        if not any(isinstance(operand, Register) and operand.name in self.known for operand in item.operands):
            return [emitter.let(item, [texts[0] for texts in given], name)] * width
        return [emitter.let(item, [texts[lane] for texts in given], f"{name}_{lane}") for lane in range(width)]

    def is_adjacent(self, item: Load | Store) -> bool:
        """Whether an access is contiguous over lanes and aligned."""
        place = offset(item.buffer, item.index)
        if item.guard is not None or item.buffer.dtype.is_complex:
            return False
        scratch = self.e.scratch.get(item.buffer.name)
        if scratch is not None:
            own = self.e.team is None or scratch.name in self.e.own
            if own or not is_multiple(product(scratch.shape), self.width):
                return False  # local memory of a thread, or shared memory of a team at an unaligned offset
        if isinstance(item, Store) and item.combine is not None:
            return False
        if step(place, self.loop.variable) != 1 or self.width not in WIDTHS:
            return False
        return is_multiple(substitute(place, {self.loop.variable: self.loop.start}), self.width)

    def load(self, item: Load, name: str) -> list[Text]:
        emitter = self.e
        if item.buffer.name in emitter.private:
            return [emitter.own_element(item.buffer, lane) for lane in range(self.width)]
        if emitter.row is not None and (key := load_key(item, emitter.row, self.loop)) in emitter.repeated:
            return emitter.once(key, lambda: self.elements(item, f"{name}_{emitter.turn}"))
        return self.elements(item, name)

    def elements(self, item: Load, name: str) -> list[Text]:
        emitter, buffer = self.e, item.buffer
        place = offset(buffer, item.index)
        if self.is_adjacent(item):
            names = [f"{name}_{lane}" for lane in range(self.width)]
            memory = f"{emitter.names[buffer.name]}, {emitter.place(buffer, place)}"
            how = "fetch" if emitter.is_constant(buffer) else "load"
            emitter.line(f"{', '.join(names)} = {how}{self.width}({memory})")
            texts: list[Text] = []
            for part in names:
                converted = from_memory(part, buffer.dtype)
                if converted != part:
                    emitter.line(f"{part}_wide = {converted}")
                    part = f"{part}_wide"
                texts.append(Text(buffer.dtype.compute, (part,)))
            return texts
        if step(place, self.loop.variable) == 0 and item.guard is None:
            return [emitter.load(item, name)] * self.width
        made: list[Text] = []
        for lane in range(self.width):
            at = replace(item, index=tuple(self.moved(part, lane) for part in item.index), guard=self.guard(item, lane))
            made.append(emitter.load_element(at, f"{name}_{lane}"))
        return made

    def guard(self, item: Load | Store, lane: int) -> Register | None:
        """Compute the guard of one lane in a register of its own."""
        if item.guard is None:
            return None
        register = Register(f"%guard{lane}", bool_)
        self.e.bind(register, self.lanes(item.guard)[lane])
        return register

    def store(self, item: Store) -> None:
        emitter, buffer, values = self.e, item.buffer, self.lanes(item.value)
        if buffer.name in emitter.private:
            emitter.assign([emitter.own_element(buffer, lane) for lane in range(self.width)], values)
            return
        if self.is_adjacent(item):
            parts = ", ".join(to_memory(value, buffer.dtype) for value in values)
            memory = f"{emitter.names[buffer.name]}, {emitter.place(buffer, offset(buffer, item.index))}"
            emitter.line(f"store{self.width}({memory}, ({parts}))")
            return
        for lane in range(self.width):
            at = replace(item, index=tuple(self.moved(part, lane) for part in item.index), guard=self.guard(item, lane))
            emitter.store(at, values[lane])
