"""GEMM for operands that are both contiguous along the depth (K), as in a linear layer, `x @ weight.T`: each element
of the product is a dot product of two rows. Nothing is packed.

A register tile is some rows of the left matrix times some columns of the right one, with a vector accumulator for each
element. The lanes of accumulators are reduced at the end, those of neighbouring elements together. Rows and columns
beyond the last repeat it, and are not stored. The order of additions depends on sizes alone.
"""

from __future__ import annotations

import itertools

from ....kernels.gemm import BYTES, TILING, DotTile
from ..llvm.parts import Module
from ..llvm.writer import Function
from .gemm import ELEMENT, shared_text
from .pairs import LOADED, PAIRS
from .tuning import TUNING


class Dots:
    """Write the routines of one element type as LLVM text."""

    def __init__(self, shape: DotTile):
        self.shape = shape
        self.dtype = shape.dtype
        self.bytes = shape.bytes
        self.is_own = shape.dtype in BYTES  # whether accumulators have the element type, not a wider one
        self.loaded = LOADED[shape.dtype]
        self.line = f"<{shape.lanes} x {self.loaded}>"  # LLVM's type for a vector of a row, or of a column
        self.total = ELEMENT[shape.total]
        self.total_bytes = BYTES[shape.total]
        self.lanes = shape.machine.vector_bytes // self.total_bytes
        self.vector = self.of(self.lanes)
        self.factor = self.line if self.is_own else f"<{shape.lanes} x bfloat>"
        self.fused = f"@llvm.fmuladd.{self.suffix}" if self.is_own else PAIRS
        self.stored = 1 << (shape.columns - 1).bit_length()  # lanes of the vector as which a row of a tile is stored

    def of(self, lanes: int) -> str:
        return f"<{lanes} x {self.total}>"

    @property
    def suffix(self) -> str:
        """Return the type suffix of intrinsics on such vectors."""
        return f"v{self.shape.lanes}{self.dtype if self.is_own else self.loaded}"

    def declarations(self) -> list[str]:
        lanes = self.shape.lanes
        row, kind = self.of(self.stored), f"v{self.stored}{self.shape.total}"
        found = [
            f"declare {self.vector} {self.fused}({self.vector}, {self.factor}, {self.factor})",
            f"declare {self.line} @llvm.masked.load.{self.suffix}.p0(ptr, <{lanes} x i1>, {self.line})",
            f"declare {row} @llvm.masked.load.{kind}.p0(ptr, <{self.stored} x i1>, {row})",
            f"declare void @llvm.masked.store.{kind}.p0({row}, ptr, <{self.stored} x i1>)",
        ]
        return list(dict.fromkeys(found))  # without duplicates: the loaded and the stored type may be the same

    def multiplied(self, f: Function, left: list[str], right: list[str], sums: list[str]) -> list[str]:
        """Multiply and accumulate each row by each column; return the new accumulators."""
        vector, factor = self.vector, self.factor
        if not self.is_own:
            cast = f"bitcast {self.line} {{}} to {factor}"
            left, right = ([f.op(cast.format(item)) for item in items] for items in (left, right))
        after: list[str] = []
        for total, (row, column) in zip(sums, itertools.product(left, right), strict=True):
            factors, old = f"{factor} {row}, {factor} {column}", f"{vector} {total}"
            operands = f"{factors}, {old}" if self.is_own else f"{old}, {factors}"
            after.append(f.op(f"call {vector} {self.fused}({operands})"))
        return after

    def tile(self) -> str:
        """Write a register tile: output (+)= rows of the left matrix times rows of the right one. Row strides are in
        bytes. Prefetches from `ahead` into L2."""
        shape, vector = self.shape, self.vector
        f = Function(
            f"dot.{self.dtype}",
            [
                ("ptr", "output"), ("i64", "output_row"), ("ptr", "left"), ("i64", "left_row"), ("ptr", "right"),
                ("i64", "right_row"), ("i64", "rows"), ("i64", "columns"), ("i64", "depth"), ("i1", "first"),
                ("ptr", "ahead"),
            ],
            "#0",
        )  # fmt: skip

        def lines(start: str, distance: str, count: str, most: int) -> list[str]:
            last = f.add(count, -1)
            return [f.at(start, f.multiply(distance, f.minimum(last, number))) for number in range(most)]

        rows = lines("%left", "%left_row", "%rows", shape.rows)
        columns = lines("%right", "%right_row", "%columns", shape.columns)

        def step(at: str, sums: list[str]) -> list[str]:
            def loaded(line: str) -> str:
                return f.op(f"load {self.line}, ptr {f.at(line, at, self.loaded)}, align {self.bytes}")

            f.write(f"call void @llvm.prefetch.p0(ptr {f.at('%ahead', at, self.loaded)}, i32 0, i32 2, i32 1)")
            return self.multiplied(f, [loaded(row) for row in rows], [loaded(column) for column in columns], sums)

        zeros = [(vector, "zeroinitializer")] * (shape.rows * shape.columns)
        whole = f.op(f"and i64 %depth, {-shape.lanes}")
        sums = f.loop(0, whole, shape.lanes, step, zeros)

        def rest() -> list[tuple[str, str]]:
            mask = f.first_lanes(f.subtract("%depth", whole), shape.lanes)

            def loaded(line: str) -> str:
                at, zero = f.at(line, whole, self.loaded), f"{self.line} zeroinitializer"
                masked = f"@llvm.masked.load.{self.suffix}.p0"
                return f.op(
                    f"call {self.line} {masked}(ptr align {self.bytes} {at}, <{shape.lanes} x i1> {mask}, {zero})"
                )

            after = self.multiplied(f, [loaded(row) for row in rows], [loaded(column) for column in columns], sums)
            return [(vector, item) for item in after]

        def nothing() -> list[tuple[str, str]]:
            return [(vector, item) for item in sums]

        sums = f.choose(f.compare("ne", whole, "%depth"), rest, nothing)
        inside = f.first_lanes(f.minimum("%columns", shape.columns), self.stored)
        none = f"<{self.stored} x i1> zeroinitializer"
        for row in range(shape.rows):
            exists = f.compare("slt", str(row), "%rows")
            stored = f.op(f"select i1 {exists}, <{self.stored} x i1> {inside}, {none}")
            there = f.op(f"select i1 %first, {none}, <{self.stored} x i1> {stored}")
            place = f.at("%output", f.multiply("%output_row", row))
            total = self.totals(f, sums[row * shape.columns : (row + 1) * shape.columns])
            kind = self.of(self.stored)
            old = f.op(
                f"call {kind} @llvm.masked.load.v{self.stored}{shape.total}.p0(ptr align {self.total_bytes} {place}, "
                f"<{self.stored} x i1> {there}, {kind} splat ({self.total} -0.0))"
            )
            total = f.op(f"fadd {kind} {old}, {total}")
            f.write(
                f"call void @llvm.masked.store.v{self.stored}{shape.total}.p0({kind} {total}, "
                f"ptr align {self.total_bytes} {place}, <{self.stored} x i1> {stored})"
            )
        return f.finish()

    def totals(self, f: Function, vectors: list[str]) -> str:
        """Reduce each of these accumulators to its sum; return a vector of the sums."""
        lanes, block = self.lanes, TUNING.shuffled // self.total_bytes
        # In each block of a vector, elements of two neighbours are interleaved and added, until it has one of each.
        size = 1
        while size < block:
            pairs = zip(vectors[::2], [*vectors[1::2], *vectors[-1:]], strict=False)
            vectors = [self.interleaved(f, first, second, size) for first, second in pairs]
            size *= 2
        while lanes > block:
            lanes //= 2
            vectors = [self.halves(f, vector, lanes) for vector in vectors]
        while len(vectors) > 1 or lanes < self.stored:
            pairs = zip(vectors[::2], [*vectors[1::2], "poison"], strict=False)
            vectors = [self.shuffled(f, first, second, lanes, range(2 * lanes)) for first, second in pairs]
            lanes *= 2
        return vectors[0]

    def interleaved(self, f: Function, first: str, second: str, size: int) -> str:
        """Shuffle runs of `size` elements of two vectors: in each block, those of its lower half, and of its upper."""
        lanes, block = self.lanes, TUNING.shuffled // self.total_bytes
        halves: list[str] = []
        for half in (0, block // 2):
            order = [
                start + half + offset + source + lane
                for start in range(0, lanes, block)
                for offset in range(0, block // 2, size)
                for source in (0, lanes)
                for lane in range(size)
            ]
            halves.append(self.shuffled(f, first, second, lanes, order))
        return f.op(f"fadd {self.vector} {halves[0]}, {halves[1]}")

    def halves(self, f: Function, vector: str, lanes: int) -> str:
        """Add the lower and the upper half of a vector of so many lanes."""
        low, high = (self.shuffled(f, vector, "poison", 2 * lanes, range(at, at + lanes)) for at in (0, lanes))
        return f.op(f"fadd {self.of(lanes)} {low}, {high}")

    def shuffled(self, f: Function, first: str, second: str, lanes: int, order: range | list[int]) -> str:
        numbers = ", ".join(f"i32 {lane}" for lane in order)
        vector = self.of(lanes)
        return f.op(f"shufflevector {vector} {first}, {vector} {second}, <{len(order)} x i32> <{numbers}>")

    def product(self) -> str:
        """Write output = left @ right, with the right matrix stored transposed. Strides are in elements."""
        shape = self.shape
        f = Function(
            f"dots.{self.dtype}",
            [
                ("ptr", "output"), ("i64", "output_row"), ("ptr", "left"), ("i64", "left_row"), ("ptr", "right"),
                ("i64", "right_row"), ("i64", "rows"), ("i64", "columns"), ("i64", "depth"),
            ],
            "nounwind",
        )  # fmt: skip
        output_row, left_row, right_row = (
            f.multiply(name, size)
            for name, size in (("%output_row", self.total_bytes), ("%left_row", self.bytes), ("%right_row", self.bytes))
        )
        each = f.even("%depth", shape.depth, shape.lanes)

        def row_block(row: str, _: list[str]) -> list[str]:
            last_row = f.minimum("%rows", f.add(row, TILING.dot_block_rows))
            last_fetch = f.add(row, (shape.columns - 1) * shape.rows)

            def depth_block(start: str, _: list[str]) -> list[str]:
                depth = f.minimum(f.subtract("%depth", start), each)
                first = f.compare("eq", start, 0)
                left, right = (f.at(matrix, start, self.loaded) for matrix in ("%left", "%right"))

                def panel(column: str, _: list[str]) -> list[str]:
                    columns = f.subtract("%columns", column)
                    source = f.at(right, f.multiply(column, right_row))
                    target = f.at("%output", column, self.total)
                    following = f.at(source, f.multiply(right_row, shape.columns))

                    def tile(at: str, carried: list[str]) -> list[str]:
                        """Compute a tile; each of the first ones prefetches a row of the next panel."""
                        (ahead,) = carried
                        f.write(
                            f"call void @dot.{self.dtype}(ptr {f.at(target, f.multiply(at, output_row))}, "
                            f"i64 {output_row}, ptr {f.at(left, f.multiply(at, left_row))}, i64 {left_row}, "
                            f"ptr {source}, i64 {right_row}, i64 {f.subtract(last_row, at)}, i64 {columns}, "
                            f"i64 {depth}, i1 {first}, ptr {ahead})"
                        )
                        is_last = f.compare("sge", at, last_fetch)
                        return [f.at(ahead, f.op(f"select i1 {is_last}, i64 0, i64 {right_row}"))]

                    f.loop(row, last_row, shape.rows, tile, [("ptr", following)])
                    return []

                f.loop(0, "%columns", shape.columns, panel)
                return []

            # At least one block: with depth 0 it stores zeros.
            f.loop(0, f.op("call i64 @llvm.smax.i64(i64 %depth, i64 1)"), each, depth_block)
            return []

        f.loop(0, "%rows", TILING.dot_block_rows, row_block)
        return f.finish()


def dots_library(shape: DotTile) -> Module:
    """Write the library of routines for an element type and a machine."""
    routines = Dots(shape)
    shared = [*routines.declarations(), *shared_text(shape.machine.vector_bits)]
    return Module(hot=[routines.tile()], plain=[routines.product()], shared=shared)
