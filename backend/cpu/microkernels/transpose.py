"""Transposition of blocks: one function for each element size, `@transpose.4(...)`, written when it is called.

`@transpose.fetch.4(...)` prefetches sources that are not cached, at a distance that is an argument: hardware
prefetchers do not follow short runs of many rows, and without it each small square waits for memory.

A square block goes through registers: one load per row of the source, a network of shuffles, one store per row of the
target. Blocks start at multiples of their width; the last one of an incomplete row or column of blocks starts earlier,
so that it ends with the matrix: it moves some elements twice, and needs no mask. Remainders narrower than a block use
smaller blocks, and in the end single elements.

Sources may be unaligned. A load that crosses a cache line needs both lines, and lines a power of two apart are soon
evicted: after the first block, rows continue at the first aligned address of the source.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....kernels.machine import CACHE_LINE, Machine
from ..llvm.types import vector
from .tuning import TUNING

ELEMENTS = {1: "i8", 2: "i16", 4: "float", 8: "double", 16: "<2 x i64>"}


def transpose_text(size: int, fetch: bool, machine: Machine, declarations: set[str]) -> str:
    """Write the function for elements of a number of bytes."""
    return TransposeText(size, fetch, machine, declarations).text()


def called(size: int, fetch: bool) -> str:
    return f"@transpose.fetch.{size}(" if fetch else f"@transpose.{size}("


class TransposeText:
    """Writer of one transposition function."""

    def __init__(self, size: int, fetch: bool, machine: Machine, declarations: set[str]):
        declarations.add("declare i64 @llvm.smin.i64(i64, i64)")
        if fetch:
            declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.fetch = fetch
        self.declarations = declarations
        self.size = size
        self.element = ELEMENTS[size]
        widest = min(TUNING.block_rows, machine.vector_bytes // size) if size < TUNING.shuffled else 1
        self.widths = sorted({widest, min(widest, TUNING.shuffled // size), 1}, reverse=True)
        self.lines: list[str] = []
        self.names = 0

    def text(self) -> str:
        for width in self.widths:
            low, wide = self.value(f"icmp sge i64 %rows, {width}"), self.value(f"icmp sge i64 %columns, {width}")
            self.lines.append(f"  br i1 {self.value(f'and i1 {low}, {wide}')}, label %by{width}, label %below{width}")
            self.loops(width)
            self.lines.append(f"below{width}:")
        self.lines.append("  ret void")
        body = "\n".join(self.lines)
        return (
            f"define void {called(self.size, self.fetch)}ptr noalias %target, i64 %target.step, "
            f"ptr noalias %source, i64 %source.step, i64 %rows, i64 %columns{', i64 %ahead' if self.fetch else ''}) "
            f"noinline #0 {{\nentry:\n{body}\n}}"
        )

    def value(self, text: str) -> str:
        self.names += 1
        self.lines.append(f"  %{self.names} = {text}")
        return f"%{self.names}"

    def loops(self, width: int) -> None:
        """Write the loops over all blocks of a width, and the end of the function."""
        row, column, row_loop, column_loop = (f"{name}{width}" for name in ("r", "c", "rows", "columns"))
        self.lines.append(f"by{width}:")
        last_row, last_column = self.value(f"sub i64 %rows, {width}"), self.value(f"sub i64 %columns, {width}")
        second = self.second_row(width)
        self.lines.append(f"  br label %{column_loop}")
        self.lines.append(f"{column_loop}:")
        self.lines.append(f"  %{column} = phi i64 [ 0, %by{width} ], [ %{column}.next, %{column_loop}.end ]")
        self.lines.append(f"  %{column}.at = call i64 @llvm.smin.i64(i64 %{column}, i64 {last_column})")
        self.lines.append(f"  br label %{row_loop}")
        self.lines.append(f"{row_loop}:")
        self.lines.append(f"  %{row} = phi i64 [ 0, %{column_loop} ], [ %{row}.next, %{row_loop} ]")
        self.lines.append(f"  %{row}.at = call i64 @llvm.smin.i64(i64 %{row}, i64 {last_row})")
        self.block(width, f"%{row}.at", f"%{column}.at")
        self.lines.append(f"  %{row}.first = icmp eq i64 %{row}, 0")
        self.lines.append(f"  %{row}.step = select i1 %{row}.first, i64 {second}, i64 {width}")
        steps = (row, f"%{row}.step", "%rows", row_loop), (column, str(width), "%columns", column_loop)
        for name, step, size, loop in steps:
            self.lines.append(f"  %{name}.next = add nuw nsw i64 %{name}, {step}")
            self.lines.append(f"  %{name}.more = icmp slt i64 %{name}.next, {size}")
            done = f"{loop}.done" if loop == column_loop else f"{column_loop}.end"
            self.lines.append(f"  br i1 %{name}.more, label %{loop}, label %{done}")
            self.lines.append(f"{done}:")
        self.lines.append("  ret void")

    def second_row(self, width: int) -> str:
        """Compute the start of a column's second block: the first row at which the loads of all columns are aligned.

        There is none if the stride of columns is not a multiple of the alignment; a single block needs none.
        """
        size = width * self.size
        if width == 1 or size > CACHE_LINE:
            return str(width)
        address = self.value("ptrtoint ptr %source to i64")
        apart = self.value(f"mul i64 %source.step, {self.size}")
        uneven = self.value(f"icmp ne i64 {self.value(f'and i64 {apart}, {size - 1}')}, 0")
        before = self.value(f"and i64 {self.value(f'sub i64 0, {address}')}, {size - 1}")
        elements = self.value(f"udiv i64 {before}, {self.size}")
        as_it_is = self.value(f"or i1 {uneven}, {self.value(f'icmp eq i64 {elements}, 0')}")
        as_it_is = self.value(f"or i1 {as_it_is}, {self.value(f'icmp eq i64 %rows, {width}')}")
        return self.value(f"select i1 {as_it_is}, i64 {width}, i64 {elements}")

    def block(self, width: int, row: str, column: str) -> None:
        """Write the transposition of the block whose first element is at (row, column)."""
        kind = vector(self.element, width)
        align = min(self.size, 8)
        first = self.value(f"add i64 {self.value(f'mul i64 {column}, %source.step')}, {row}")
        at = self.value(f"getelementptr inbounds {self.element}, ptr %source, i64 {first}")
        loaded: list[str] = []
        for number in range(width):
            if number:
                at = self.value(f"getelementptr inbounds {self.element}, ptr {at}, i64 %source.step")
            loaded.append(self.value(f"load {kind}, ptr {at}, align {align}"))
            if self.fetch and width > 1:
                # A prefetch beyond mapped memory does no harm. Into L2: L1 has few ways for columns that are a power
                # of two apart.
                later = self.value(f"getelementptr {self.element}, ptr {at}, i64 %ahead")
                self.lines.append(f"  call void @llvm.prefetch.p0(ptr {later}, i32 0, i32 2, i32 1)")
        first = self.value(f"add i64 {self.value(f'mul i64 {row}, %target.step')}, {column}")
        at = self.value(f"getelementptr inbounds {self.element}, ptr %target, i64 {first}")
        for number, item in enumerate(self.turned(loaded)):
            if number:
                at = self.value(f"getelementptr inbounds {self.element}, ptr {at}, i64 %target.step")
            self.lines.append(f"  store {kind} {item}, ptr {at}, align {align}")

    def turned(self, rows: Sequence[str]) -> list[str]:
        """Transpose a square of rows in registers."""
        width = len(rows)
        if width == 1:
            return list(rows)
        each = min(width, TUNING.shuffled // self.size)
        parts = [self.within_lanes(rows[start : start + each], width, each) for start in range(0, width, each)]
        across = [self.across_lanes([part[column] for part in parts], width, each) for column in range(each)]
        return [across[column][lane] for lane in range(width // each) for column in range(each)]

    def within_lanes(self, rows: Sequence[str], width: int, each: int) -> list[str]:
        """Transpose within each lane of `shuffled` bytes, by interleaving the halves of pairs of rows."""
        count = len(rows)
        if count == 1:
            return list(rows)
        half = count // 2
        left, right = (self.within_lanes(part, width, each) for part in (rows[:half], rows[half:]))
        turned: list[str] = []
        for a, b in zip(left, right, strict=True):
            for start in (0, each // 2):
                lane = [
                    side + at + item
                    for at in range(start, start + each // 2, half)
                    for side in (0, width)
                    for item in range(half)
                ]
                turned.append(self.shuffle(a, b, width, [first + at for first in range(0, width, each) for at in lane]))
        return (
            [self.fenced(item, width) for item in turned]
            if width == TUNING.block_rows and count == TUNING.fenced_rows
            else turned
        )

    def fenced(self, value: str, width: int) -> str:
        """Make a value opaque to LLVM, which otherwise searches for better shuffles, long and in vain."""
        kind, count = vector(self.element, width), width * self.size // 4
        floats = vector("float", count)
        name = f"@llvm.arithmetic.fence.v{count}f32"
        self.declarations.add(f"declare {floats} {name}({floats})")
        if kind != floats:
            value = self.value(f"bitcast {kind} {value} to {floats}")
        value = self.value(f"call {floats} {name}({floats} {value})")
        return value if kind == floats else self.value(f"bitcast {floats} {value} to {kind}")

    def across_lanes(self, rows: Sequence[str], width: int, each: int) -> list[str]:
        """Transpose a square of 1, 2 or 4 rows of lanes: row n of the result has lane n of every row."""
        if len(rows) == 1:
            return list(rows)

        def pick(a: str, b: str, lanes: Sequence[int]) -> str:
            return self.shuffle(a, b, width, [lane * each + at for lane in lanes for at in range(each)])

        if len(rows) == 2:
            return [pick(rows[0], rows[1], lanes) for lanes in ((0, 2), (1, 3))]
        even, odd = (0, 2, 4, 6), (1, 3, 5, 7)
        upper = [pick(rows[0], rows[1], lanes) for lanes in (even, odd)]
        lower = [pick(rows[2], rows[3], lanes) for lanes in (even, odd)]
        return [pick(upper[side], lower[side], lanes) for lanes in (even, odd) for side in (0, 1)]

    def shuffle(self, a: str, b: str, width: int, chosen: Sequence[int]) -> str:
        kind = vector(self.element, width)
        places = ", ".join(f"i32 {place}" for place in chosen)
        return self.value(f"shufflevector {kind} {a}, {kind} {b}, <{width} x i32> <{places}>")
