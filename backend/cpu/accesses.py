"""Loads and stores of a region: the buffers' elements as registers, and back.

An access is a vector access where the place moves by one element a lane, a scalar one where it does not move, a
gather or a scatter otherwise. Lanes that the mask of the last vector or a guard switches off touch no memory: what
a place would be there need not lie in the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ir.symbolic import Dim, Expr, symbols_of
from ...ir.types import bool_
from ...kernels.loop_ir import Buffer, Load, Store
from ...kernels.scalar import COMBINERS
from ...passes.loop.analysis import offset
from .types import MEMORY, Lanes, constant, suffix, vector

if TYPE_CHECKING:
    from .region import Region


class Accesses:
    """The accesses of one region."""

    def __init__(self, region: Region):
        self.region = region
        self.emitter = region.emitter

    def _how(self, buffer: Buffer, index: Sequence[Dim]) -> tuple[Dim, str]:
        """The linear place of an access and how it moves from lane to lane: still, along, or anywhere."""
        place = offset(buffer, index)
        if self.region.lanes == 1 or not self.region.varying(place):
            return place, "still"
        assert isinstance(place, Expr) and self.region.variable is not None
        others = any(
            symbol != self.region.variable and self.region.symbol(symbol)[0].lanes > 1 for symbol in symbols_of(place)
        )
        return place, "along" if not others and place.coefficient(self.region.variable) == 1 else "anywhere"

    def _guard(self, guard: Operand | None) -> Lanes | None:
        return None if guard is None else self.region.operand(guard)

    def _active(self, guard: Lanes | None) -> str | None:
        """Which lanes may touch memory; None for all."""
        if guard is None:
            return self.region.mask
        spread = self.emitter.splat(guard, self.region.lanes).name
        if self.region.mask is None:
            return spread
        return self.emitter.instruction(f"and {vector('i1', self.region.lanes)} {spread}, {self.region.mask}")

    def _load(self, statement: Load) -> Lanes:
        return self._read(statement.buffer, statement.index, self._guard(statement.guard))

    def _read(self, buffer: Buffer, index: Sequence[Dim], guard: Lanes | None) -> Lanes:
        place, how = self._how(buffer, index)
        if guard is not None and guard.lanes > 1 and how == "still":
            how = "anywhere"
        dtype = buffer.dtype
        if dtype.is_complex:
            return self._read_complex(buffer, place, how, guard)
        element = MEMORY[dtype.name]
        if how == "still":
            address = self._scalar_address(buffer, place, element, guard, "@zero")
            part = self.emitter.instruction(f"load {element}, ptr {address}, align {dtype.bytes}")
            return self.emitter.from_memory(part, dtype, 1)
        active = self._active(guard)
        part = self._vector_read(buffer, place, how, element, dtype.bytes, active)
        return self.emitter.from_memory(part, dtype, self.region.lanes)

    def _scalar_address(self, buffer: Buffer, place: Dim, element: str, guard: Lanes | None, instead: str) -> str:
        base = self.region.pointer(buffer)
        address = self.emitter.instruction(
            f"getelementptr inbounds {element}, ptr {base}, i64 {self.region.uniform(place)}"
        )
        if guard is None:
            return address
        return self.emitter.instruction(f"select i1 {guard.name}, ptr {address}, ptr {instead}")

    def _vector_read(self, buffer: Buffer, place: Dim, how: str, element: str, align: int, active: str | None) -> str:
        kind, mask = vector(element, self.region.lanes), vector("i1", self.region.lanes)
        if how == "along":
            address = self._scalar_address(buffer, place, element, None, "")
            if active is None:
                return self.emitter.instruction(f"load {kind}, ptr {address}, align {align}")
            function = f"llvm.masked.load.{suffix(element, self.region.lanes)}.p0"
            return self._masked(kind, function, align, (("ptr", address),), (mask, active), (kind, "zeroinitializer"))
        pointers = self._addresses(buffer, place, element)
        function = f"llvm.masked.gather.{suffix(element, self.region.lanes)}.v{self.region.lanes}p0"
        return self._masked(
            kind, function, align, ((vector("ptr", self.region.lanes), pointers),),
            (mask, active or constant(True, bool_, self.region.lanes)), (kind, "zeroinitializer"),
        )  # fmt: skip

    def _masked(
        self, result: str, function: str, align: int, first: Sequence[tuple[str, str]], *rest: tuple[str, str]
    ) -> str:
        """A masked access; its alignment is an attribute of the pointer operand."""
        types = ", ".join(kind for kind, _ in (*first, *rest))
        self.emitter.declarations.add(f"declare {result} @{function}({types})")
        shown = [f"{kind} {value}" for kind, value in first]
        shown[-1] = f"{first[-1][0]} align {align} {first[-1][1]}"
        shown.extend(f"{kind} {value}" for kind, value in rest)
        text = f"call {result} @{function}({', '.join(shown)})"
        if result == "void":
            self.region.write(text)
            return ""
        return self.emitter.instruction(text)

    def _addresses(self, buffer: Buffer, place: Dim, element: str) -> str:
        base = self.region.pointer(buffer)
        return self.emitter.instruction(
            f"getelementptr {element}, ptr {base}, {vector('i64', self.region.lanes)} {self.region.wide(place)}"
        )

    def _read_complex(self, buffer: Buffer, place: Dim, how: str, guard: Lanes | None) -> Lanes:
        dtype = buffer.dtype
        real = dtype.real
        element = MEMORY[real.name]
        if how == "still":
            address = self._scalar_address(buffer, place * 2, element, guard, "@zero")
            parts = []
            for part in (0, 1):
                at = self.emitter.instruction(f"getelementptr inbounds {element}, ptr {address}, i64 {part}")
                parts.append(self.emitter.instruction(f"load {element}, ptr {at}, align {real.bytes}"))
            return Lanes(dtype, 1, tuple(parts))
        active = self._active(guard)
        if how == "along" and active is None:
            address = self._scalar_address(buffer, place * 2, element, None, "")
            both = vector(element, 2 * self.region.lanes)
            pair = self.emitter.instruction(f"load {both}, ptr {address}, align {real.bytes}")
            parts = []
            for part in (0, 1):
                mask = ", ".join(f"i32 {2 * lane + part}" for lane in range(self.region.lanes))
                parts.append(
                    self.emitter.instruction(
                        f"shufflevector {both} {pair}, {both} poison, <{self.region.lanes} x i32> <{mask}>"
                    )
                )
            return Lanes(dtype, self.region.lanes, tuple(parts))
        parts = [
            self._vector_read(buffer, place * 2 + part, "anywhere", element, real.bytes, active) for part in (0, 1)
        ]
        return Lanes(dtype, self.region.lanes, tuple(parts))

    def _store(self, statement: Store) -> None:
        buffer, guard = statement.buffer, self._guard(statement.guard)
        value = self.region.operand(statement.value)
        if statement.combine is not None:
            old = self._read(buffer, statement.index, guard)
            (value,) = COMBINERS[statement.combine].combine(self.emitter, (old,), (value,))
        place, how = self._how(buffer, statement.index)
        dtype = buffer.dtype
        real = dtype.real
        element = MEMORY[real.name]
        scale = 2 if dtype.is_complex else 1
        if how == "still":
            address = self._scalar_address(buffer, place * scale, element, guard, "%sink")
            for number, part in enumerate(value.parts):
                at = address
                if number:
                    at = self.emitter.instruction(f"getelementptr inbounds {element}, ptr {address}, i64 {number}")
                text = self.emitter.to_memory(Lanes(value.dtype if scale == 1 else real, 1, (part,)), real)
                self.region.write(f"store {element} {text}, ptr {at}, align {real.bytes}")
            return
        active = self._active(guard)
        value = self.emitter.splat(value, self.region.lanes)
        kind, mask = vector(element, self.region.lanes), vector("i1", self.region.lanes)
        for number, part in enumerate(value.parts):
            text = self.emitter.to_memory(Lanes(value.dtype if scale == 1 else real, self.region.lanes, (part,)), real)
            spot = place * scale + number
            if how == "along" and scale == 1:
                address = self._scalar_address(buffer, spot, element, None, "")
                if active is None:
                    self.region.write(f"store {kind} {text}, ptr {address}, align {real.bytes}")
                    continue
                function = f"llvm.masked.store.{suffix(element, self.region.lanes)}.p0"
                self._masked("void", function, real.bytes, ((kind, text), ("ptr", address)), (mask, active))
                continue
            pointers = self._addresses(buffer, spot, element)
            function = f"llvm.masked.scatter.{suffix(element, self.region.lanes)}.v{self.region.lanes}p0"
            everyone = active or constant(True, bool_, self.region.lanes)
            self._masked(
                "void",
                function,
                real.bytes,
                ((kind, text), (vector("ptr", self.region.lanes), pointers)),
                (mask, everyone),
            )
