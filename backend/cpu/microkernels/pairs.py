"""GEMM of narrow elements (bf16): a step of the depth is a pair of elements, adjacent in packed panels.

The dot-product instruction multiplies two pairs and adds both products to an f32 accumulator. Packing interleaves two
rows where columns are contiguous, and moves a pair as a whole where the depth is. The last element of an odd depth is
paired with a zero.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....kernels.gemm import RegisterTile
from ....kernels.machine import CACHE_LINE
from ..llvm.writer import Function
from .gemm import ELEMENT, Routines
from .tuning import TUNING

LOADED = {**ELEMENT, "bf16": "i16"}  # narrow elements are moved as integers, which LLVM supports in more instructions
PAIRS = "@llvm.x86.avx512bf16.dpbf16ps.512"  # adds the products of adjacent pairs to f32 accumulators


class Pairs(Routines):
    """Write the routines of a narrow element type as LLVM text."""

    def __init__(self, shape: RegisterTile):
        super().__init__(shape)
        self.loaded = LOADED[shape.dtype]
        self.item = f"i{8 * shape.bytes}"
        self.pairs = f"<{shape.lanes} x {self.item}>"
        self.factor = f"<{2 * shape.lanes} x bfloat>"

    def declarations(self) -> list[str]:
        widths = (self.shape.rows, self.shape.width)
        loaded = [(f"<{lanes} x {self.loaded}>", f"v{lanes}{self.loaded}", lanes) for lanes in widths]
        return [
            *super().declarations(),
            f"declare {self.vector} {PAIRS}({self.vector}, {self.factor}, {self.factor})",
            *(f"declare {kind} @llvm.masked.load.{name}.p0(ptr, <{n} x i1>, {kind})" for kind, name, n in loaded),
        ]

    def added(self, f: Function, left: str, right: str, total: str) -> str:
        left, right = (f.op(f"bitcast {self.pairs} {item} to {self.factor}") for item in (left, right))
        operands = f"{self.vector} {total}, {self.factor} {left}, {self.factor} {right}"
        return f.op(f"call {self.vector} {PAIRS}({operands})")

    def steps(self, f: Function, elements: str) -> str:
        return f.op(f"lshr i64 {f.add(elements, 1)}, 1")

    def elements(self, f: Function, steps: str) -> str:
        return f.op(f"shl i64 {steps}, 1")

    def whole_steps(self, f: Function) -> str:
        return f.op("lshr i64 %depth, 1")

    def partner(self, f: Function, step: str) -> str:
        """Write the condition that a step has a second element."""
        return f.compare("slt", f.add(self.elements(f, step), 1), "%depth")

    def copy(self, f: Function, steps: str) -> str:
        """Pack all panels if their lanes are contiguous; lanes beyond the last are zeros."""
        shape = self.shape
        wide = f.compare("eq", "%width", shape.width)
        copied = f.op(f"select i1 {f.compare('eq', '%lane', 1)}, i64 %lanes, i64 0")
        fetched = f.multiply("%step", 2 * TUNING.fetched_steps)
        together = f.multiply("%width", TUNING.packed_panels)
        two_rows, two_lines = self.elements(f, "%step"), self.elements(f, "%width")

        def few(first: str, _: list[str]) -> list[str]:
            last = f.minimum(f.add(first, together), copied)
            panels = f.at("%panels", f.multiply(f.op(f"udiv i64 {first}, %width"), "%apart"), self.loaded)
            lines = f.at("%source", first, self.loaded)

            def step(at: str, carried: list[str]) -> list[str]:
                source, target = carried
                exists = self.partner(f, at)

                def copy(lanes: int) -> None:
                    def panel(lane: str, carried: list[str]) -> list[str]:
                        source, target = carried
                        rows = [source, f.at(source, "%step", self.loaded)]
                        for row in rows:
                            self.fetch(f, f.at(row, fetched, self.loaded))
                        inside = first_bits(f, f.subtract(copied, lane), lanes)
                        masks = [inside, f.op(f"select i1 {exists}, i{lanes} {inside}, i{lanes} 0")]
                        loaded = [self.masked(f, *item, lanes) for item in zip(rows, masks, strict=True)]
                        vector = f"<{lanes} x {self.loaded}>"
                        for part, value in enumerate(interleaved(f, loaded, lanes, vector)):
                            place = f.at(target, part * lanes, self.loaded)
                            f.write(f"store {vector} {value}, ptr {place}, align {self.loaded_bytes}")
                        return [f.at(source, lanes, self.loaded), f.at(target, "%apart", self.loaded)]

                    f.loop(first, last, lanes, panel, [("ptr", source), ("ptr", target)])

                f.choose(wide, lambda: copy(shape.width), lambda: copy(shape.rows))
                return [f.at(source, two_rows, self.loaded), f.at(target, two_lines, self.loaded)]

            f.loop(0, steps, 1, step, [("ptr", lines), ("ptr", panels)])
            return []

        f.loop(0, copied, together, few)
        return copied

    def masked(self, f: Function, place: str, bits: str, lanes: int) -> str:
        """Load under a mask; lanes switched off are zeros."""
        vector, mask = f"<{lanes} x {self.loaded}>", f.op(f"bitcast i{lanes} {bits} to <{lanes} x i1>")
        name = f"@llvm.masked.load.v{lanes}{self.loaded}.p0"
        source = f"ptr align {self.loaded_bytes} {place}"
        return f.op(f"call {vector} {name}({source}, <{lanes} x i1> {mask}, {vector} zeroinitializer)")

    def items(self, f: Function, sources: list[str], step: str) -> Iterator[str]:
        place = f.multiply(self.elements(f, step), "%step")
        exists = self.partner(f, step)
        distance = f.op(f"select i1 {exists}, i64 %step, i64 0")
        kept = f.op(f"sext i1 {exists} to {self.loaded}")
        for source in sources:
            low = f.at(source, place, self.loaded)
            places = low, f.at(low, distance, self.loaded)
            first, second = (f.op(f"load {self.loaded}, ptr {at}, align {self.loaded_bytes}") for at in places)
            second = f.op(f"and {self.loaded} {second}, {kept}")
            first, second = (f.op(f"zext {self.loaded} {item} to {self.item}") for item in (first, second))
            yield f.op(f"or {self.item} {first}, {f.op(f'shl {self.item} {second}, {8 * self.loaded_bytes}')}")

    def right_as_it_lies(self, f: Function, right_row: str) -> tuple[str, str]:
        """Return false: pairs of rows are adjacent only in packed panels."""
        return "false", "false"

    def left_as_it_lies(self, f: Function) -> str:
        """Write the condition that contiguous columns are pairs without packing: the depth is even."""
        whole = f.compare("eq", f.op("and i64 %depth, 1"), 0)
        pairs = f.op(f"and i1 {whole}, {f.compare('eq', '%left_column', 1)}")
        return f.op(f"and i1 {pairs}, {super().left_as_it_lies(f)}")

    def shares(self, f: Function, right_row: str) -> tuple[str, str]:
        """Compute stride and number of prefetch shares: for contiguous columns two, the lines of a step's two rows."""
        adjacent = f.compare("eq", "%right_column", 1)
        apart = f.op(f"call i64 @llvm.smax.i64(i64 {f.multiply('%right_column', self.loaded_bytes)}, i64 {CACHE_LINE})")
        share = f.op(f"select i1 {adjacent}, i64 {right_row}, i64 {apart}")
        return share, f.op(f"select i1 {adjacent}, i64 2, i64 {self.shape.width}")


def first_bits(f: Function, count: str, lanes: int) -> str:
    """Make an integer of so many bits with the lowest `count` set (count >= 1)."""
    missing = f.op(f"trunc i64 {f.subtract(lanes, f.minimum(count, lanes))} to i{lanes}")
    return f.op(f"lshr i{lanes} -1, {missing}")


def interleaved(f: Function, rows: list[str], lanes: int, vector: str) -> list[str]:
    """Interleave the elements of two vectors into two vectors."""
    first, second = rows
    parts: list[str] = []
    for start in (0, lanes // 2):
        order = [at + source for at in range(start, start + lanes // 2) for source in (0, lanes)]
        numbers = ", ".join(f"i32 {lane}" for lane in order)
        parts.append(f.op(f"shufflevector {vector} {first}, {vector} {second}, <{lanes} x i32> <{numbers}>"))
    return parts
