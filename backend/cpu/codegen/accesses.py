"""Write the loads and stores of a region.

An access of stride 1 from lane to lane is a vector access, one of stride 0 a scalar access. Otherwise every lane is
loaded by itself; masked loads and all stores are a gather or a scatter. A wrapping index, such as that of a roll, is
read as a vector unless the vector crosses the wrap. Lanes switched off by the mask of the last vector or by a guard
touch no memory, so their addresses, the first lane's included, may be outside of the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....ir.symbolic import Compound, Dim, Expr, symbols_of
from ....ir.types import bool_
from ....kernels.loop.analysis import offset
from ....kernels.loop.ir import Buffer, Fetch, Load, Store
from ....kernels.loop.verify import stream_unit
from ....kernels.machine import CACHE_LINE
from ....kernels.scalar.table import COMBINERS
from ..llvm.types import MEMORY, Lanes, constant, suffix, vector

if TYPE_CHECKING:
    from .region import Region


SECOND_CACHE = 2  # locality argument of llvm.prefetch: into L2
NONTEMPORAL = "!1000000"  # metadata node; a number above those of debug information


class Accesses:
    """Writer of the accesses of one region."""

    def __init__(self, region: Region):
        self.region = region
        self.emitter = region.emitter

    def load(self, statement: Load) -> Lanes:
        guard = None if statement.guard is None else self.region.operand(statement.guard)
        return self._read(statement.buffer, statement.index, guard)

    def store(self, statement: Store) -> None:
        buffer = statement.buffer
        guard = None if statement.guard is None else self.region.operand(statement.guard)
        value = self.region.operand(statement.value)
        if statement.combine is not None:
            old = self._read(buffer, statement.index, guard)
            (value,) = COMBINERS[statement.combine].combine(self.emitter, (old,), (value,))
        place, how = self._how(buffer, statement.index)
        real = buffer.dtype.real
        register = real if buffer.dtype.is_complex else value.dtype
        scale = 2 if buffer.dtype.is_complex else 1
        if how == "still":
            address = self._element(buffer, place * scale, MEMORY[real.name], guard, "%sink")
            for number, part in enumerate(value.parts):
                at = address
                if number:
                    at = self.emitter.instruction(
                        f"getelementptr inbounds {MEMORY[real.name]}, ptr {address}, i64 {number}"
                    )
                text = self.emitter.to_memory(Lanes(register, 1, (part,), value.stored), real)
                self.region.write(f"store {MEMORY[real.name]} {text}, ptr {at}, align {real.bytes}")
            return
        active = self._active(guard)
        value = self.emitter.splat(value, self.region.lanes)
        if scale == 2:
            how = "anywhere"  # the real parts of neighbours are two apart
        for number, part in enumerate(value.parts):
            text = self.emitter.to_memory(Lanes(register, self.region.lanes, (part,), value.stored), real)
            self._write_vector(buffer, place * scale + number, how, text, active, statement.stream)

    def fetch(self, statement: Fetch) -> None:
        """Prefetch the cache lines of a vector, by their last elements: the first line of an unaligned vector was
        prefetched with the previous vector. The last, incomplete vector is not prefetched."""
        place, how = self._how(statement.buffer, statement.index)
        if how == "anywhere" or self.region.mask is not None:
            return
        buffer, write = statement.buffer, self.emitter.instruction
        at = write(f"mul i64 {self.region.uniform(place)}, {buffer.dtype.bytes}")
        first = write(f"getelementptr i8, ptr {self.region.pointer(buffer)}, i64 {at}")
        self.emitter.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        length = (self.region.lanes if how == "along" else 1) * buffer.dtype.bytes
        for end in (*range(CACHE_LINE, length, CACHE_LINE), length):
            line = write(f"getelementptr i8, ptr {first}, i64 {end - buffer.dtype.bytes}")
            self.region.write(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 {SECOND_CACHE}, i32 1)")

    def _how(self, buffer: Buffer, index: Sequence[Dim]) -> tuple[Dim, str]:
        """Return the linear index of an access and its stride over lanes: still (0), along (1), or anywhere."""
        region = self.region
        place = offset(buffer, index)
        if region.lanes == 1 or not region.varying(place):
            return place, "still"
        return place, "along" if region.moves_along(place) else "anywhere"

    def _active(self, guard: Lanes | None) -> str | None:
        """Return the mask of lanes that may touch memory; None for all."""
        region = self.region
        if guard is None:
            return region.mask
        spread = self.emitter.splat(guard, region.lanes).name
        if region.mask is None:
            return spread
        return self.emitter.instruction(f"and {vector('i1', region.lanes)} {spread}, {region.mask}")

    def _read(self, buffer: Buffer, index: Sequence[Dim], guard: Lanes | None) -> Lanes:
        place, how = self._how(buffer, index)
        if guard is not None and guard.lanes > 1 and how == "still":
            how = "anywhere"
        dtype = buffer.dtype
        if dtype.is_complex:
            return self._read_complex(buffer, place, how, guard)
        if how == "still":
            element = MEMORY[dtype.name]
            address = self._element(buffer, place, element, guard, "@zero")
            part = self.emitter.instruction(f"load {element}, ptr {address}, align {dtype.bytes}")
            return self.emitter.from_memory(part, dtype, 1)
        active = self._active(guard)
        wrapped = self._wrapped(place) if how == "anywhere" else None
        if wrapped is not None:
            part = self._read_around(buffer, place, wrapped, active)
        else:
            part = self._read_vector(buffer, place, how, active)
        return self.emitter.from_memory(part, dtype, self.region.lanes)

    def _wrapped(self, place: Dim) -> Compound | None:
        """Find the remainder that makes an index wrap: e % n in x + e % n, where e has stride 1."""
        region = self.region
        if not isinstance(place, Expr) or region.variable is None:
            return None
        moving = [term for term in place.terms if term[0] and region.varying(Expr((term,)))]
        if len(moving) != 1:
            return None
        (monomial, coefficient), atom = moving[0], moving[0][0][0]
        if len(monomial) != 1 or coefficient != 1 or not isinstance(atom, Compound) or atom.operator != "%":
            return None
        others = (symbols_of(atom.left) | symbols_of(atom.right)) - {region.variable}
        if any(region.symbol(symbol)[0].lanes > 1 for symbol in others) or not isinstance(atom.left, Expr):
            return None
        along = atom.left.coefficient(region.variable) == 1 and region.variable not in symbols_of(atom.right)
        return atom if along else None

    def _read_around(self, buffer: Buffer, place: Dim, wrapped: Compound, active: str | None) -> str:
        """Load a vector if it ends before the wrap, else gather."""
        region, lanes, element = self.region, self.region.lanes, MEMORY[buffer.dtype.name]
        write = self.emitter.instruction
        first, size = region.uniform(Expr((((wrapped,), 1),))), region.uniform(wrapped.right)
        whole = write(f"icmp sle i64 {write(f'add i64 {first}, {lanes}')}, {size}")
        return region.either(
            whole,
            vector(element, lanes),
            lambda: self._read_vector(buffer, place, "along", active),
            lambda: self._read_vector(buffer, place, "anywhere", active),
        )

    def _read_complex(self, buffer: Buffer, place: Dim, how: str, guard: Lanes | None) -> Lanes:
        real, lanes = buffer.dtype.real, self.region.lanes
        element = MEMORY[real.name]
        if how == "still":
            address = self._element(buffer, place * 2, element, guard, "@zero")
            parts = []
            for number in (0, 1):
                at = self.emitter.instruction(f"getelementptr inbounds {element}, ptr {address}, i64 {number}")
                parts.append(self.emitter.instruction(f"load {element}, ptr {at}, align {real.bytes}"))
            return Lanes(buffer.dtype, 1, tuple(parts))
        active = self._active(guard)
        if how == "along" and active is None:
            address = self._element(buffer, place * 2, element)
            both = vector(element, 2 * lanes)
            pairs = self.emitter.instruction(f"load {both}, ptr {address}, align {real.bytes}")
            parts = []
            for number in (0, 1):
                chosen = ", ".join(f"i32 {2 * lane + number}" for lane in range(lanes))
                parts.append(
                    self.emitter.instruction(f"shufflevector {both} {pairs}, {both} poison, <{lanes} x i32> <{chosen}>")
                )
            return Lanes(buffer.dtype, lanes, tuple(parts))
        parts = [self._read_vector(buffer, place * 2 + number, "anywhere", active) for number in (0, 1)]
        return Lanes(buffer.dtype, lanes, tuple(parts))

    # Addresses. Indices are in elements; for complex numbers, in elements of their real type.

    def _element(self, buffer: Buffer, place: Dim, element: str, guard: Lanes | None = None, instead: str = "") -> str:
        """Compute the address of an element in the buffer; where the guard is false, `instead`."""
        base = self.region.pointer(buffer)
        address = self.emitter.instruction(
            f"getelementptr inbounds {element}, ptr {base}, i64 {self.region.uniform(place)}"
        )
        if guard is None:
            return address
        return self.emitter.instruction(f"select i1 {guard.name}, ptr {address}, ptr {instead}")

    def _places(self, buffer: Buffer, place: Dim, how: str, element: str) -> tuple[str, str]:
        """Compute the address operand of a masked access and its type: the first lane's (along), or all lanes'."""
        base = self.region.pointer(buffer)
        if how == "along":
            first = self.emitter.instruction(f"getelementptr {element}, ptr {base}, i64 {self.region.uniform(place)}")
            return "ptr", first
        lanes = self.region.lanes
        every = self.emitter.instruction(
            f"getelementptr {element}, ptr {base}, {vector('i64', lanes)} {self.region.wide(place)}"
        )
        return vector("ptr", lanes), every

    def _read_vector(self, buffer: Buffer, place: Dim, how: str, active: str | None) -> str:
        lanes, real = self.region.lanes, buffer.dtype.real
        element = MEMORY[real.name]
        kind = vector(element, lanes)
        if how == "along" and active is None:
            return self.emitter.instruction(
                f"load {kind}, ptr {self._element(buffer, place, element)}, align {real.bytes}"
            )
        if how == "anywhere" and active is None:
            return self._read_each(buffer, place, element)
        pointer, address = self._places(buffer, place, how, element)
        name = "load" if how == "along" else "gather"
        function = f"llvm.masked.{name}.{suffix(element, lanes)}.{'p0' if how == 'along' else f'v{lanes}p0'}"
        mask = vector("i1", lanes)
        self.emitter.declarations.add(f"declare {kind} @{function}({pointer}, {mask}, {kind})")
        return self.emitter.instruction(
            f"call {kind} @{function}({pointer} align {real.bytes} {address}, "
            f"{mask} {active or constant(True, bool_, lanes)}, {kind} zeroinitializer)"
        )

    def _read_each(self, buffer: Buffer, place: Dim, element: str) -> str:
        """Load lanes one by one: hardware gathers take up to twice as long."""
        lanes, write = self.region.lanes, self.emitter.instruction
        base, places = self.region.pointer(buffer), self.region.wide(place)
        found = "poison"
        for lane in range(lanes):
            at = write(f"extractelement {vector('i64', lanes)} {places}, i64 {lane}")
            address = write(f"getelementptr inbounds {element}, ptr {base}, i64 {at}")
            part = write(f"load {element}, ptr {address}, align {buffer.dtype.real.bytes}")
            found = write(f"insertelement {vector(element, lanes)} {found}, {element} {part}, i64 {lane}")
        return found

    def _write_vector(self, buffer: Buffer, place: Dim, how: str, text: str, active: str | None, stream: bool) -> None:
        lanes, real = self.region.lanes, buffer.dtype.real
        element = MEMORY[real.name]
        kind = vector(element, lanes)
        if how == "along" and active is None:
            address = self._element(buffer, place, element)
            ending = f"{stream_unit(buffer, lanes)}, !nontemporal {NONTEMPORAL}" if stream else str(real.bytes)
            self.region.write(f"store {kind} {text}, ptr {address}, align {ending}")
            return
        pointer, address = self._places(buffer, place, how, element)
        name = "store" if how == "along" else "scatter"
        function = f"llvm.masked.{name}.{suffix(element, lanes)}.{'p0' if how == 'along' else f'v{lanes}p0'}"
        mask = vector("i1", lanes)
        self.emitter.declarations.add(f"declare void @{function}({kind}, {pointer}, {mask})")
        self.region.write(
            f"call void @{function}({kind} {text}, {pointer} align {real.bytes} {address}, "
            f"{mask} {active or constant(True, bool_, lanes)})"
        )
