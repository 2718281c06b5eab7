"""GEMM routines as LLVM text, shared by all graphs: compiled once, kept in the disk cache, loaded once per process.

`gemm` computes rows x columns (M x N) of a product. It goes through the depth (K) in blocks. In each, the left matrix
is read as panels of a few rows, the right one as panels of some vectors' width: from a packed copy that several calls
share, or packed here, or unpacked if they are reused too little to be worth packing. The micro-kernel computes a
register tile, the product of two panels: `rows` x `width` accumulators over one block of the depth.

Packing reads any strides. Panels that are not full repeat the last row or column, and the results of the repeats are
not stored. The order of additions depends on sizes and strides alone.

A step of the depth is one element of each row and column; a pair for narrow types (pairs.py).

Remainder rows (M mod MR) use smaller register tiles, which are a library of their own: most programs have whole tiles
only, and need not wait until the smaller ones are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....kernels.gemm import TILING, RegisterTile
from ....kernels.machine import CACHE_LINE
from ..abi import ROUTINES
from ..llvm.parts import Module
from ..llvm.writer import Function
from .tuning import TUNING

ELEMENT = {"f32": "float", "f64": "double"}
REST = (4, 2, 1)  # rows of the remainder tiles; their sums make up any remainder


class Routines:
    """Write the routines of one element type as LLVM text."""

    def __init__(self, shape: RegisterTile):
        self.shape = shape
        self.dtype = shape.dtype
        self.element = ELEMENT[shape.total]  # of the product
        self.loaded = self.item = self.element  # type of the matrices' elements; type of a panel's lane in one step
        self.bytes = shape.bytes  # of an accumulator, and of an item
        self.loaded_bytes = shape.bytes // shape.together
        # Lanes that packing transposes at a time: at most those of the narrowest panel.
        self.block = min(shape.lanes, 32 // shape.bytes, 8 if shape.rows >= 8 else 4)
        self.vector = f"<{shape.lanes} x {self.element}>"
        self.suffix = f"v{shape.lanes}{shape.total}"

    def declarations(self) -> list[str]:
        vector, mask = self.vector, f"<{self.shape.lanes} x i1>"
        return [
            f"declare {vector} @llvm.fmuladd.{self.suffix}({vector}, {vector}, {vector})",
            f"declare {vector} @llvm.masked.load.{self.suffix}.p0(ptr, {mask}, {vector})",
            f"declare void @llvm.masked.store.{self.suffix}.p0({vector}, ptr, {mask})",
        ]

    # One register tile.

    def tile(self, rows: int) -> str:
        """Write the micro-kernel: output (+)= `rows` rows of the left matrix times a panel of the right one. Strides
        are in bytes.

        It prefetches from `ahead`, and the `next` rows of the left matrix, into L2.
        """
        f = Function(
            f"tile{rows}.{self.dtype}",
            [
                ("ptr", "left"), ("i64", "left_row"), ("i64", "left_step"), ("ptr", "right"), ("i64", "right_step"),
                ("ptr", "output"), ("i64", "output_row"), ("i64", "depth"), ("i64", "columns"), ("i1", "first"),
                ("ptr", "ahead"), ("i64", "ahead_step"), ("i64", "next"),
            ],
            "#0",
        )  # fmt: skip
        shape, vector = self.shape, self.vector
        places = [f.at("%output", f.multiply("%output_row", row)) for row in range(rows)]
        line = f"<{shape.lanes} x {self.item}>"
        totals = [(vector, "zeroinitializer")] * (rows * shape.vectors)

        # Opaque to LLVM, which would otherwise compute each row's address from the previous row's, serially.
        distances = ["0", "%left_row"]
        for row in range(2, min(rows, 4)):
            distances.append(f.op(f'call i64 asm "", "=r,0"(i64 {f.multiply("%left_row", row)})'))

        groups = (rows + 3) // 4
        starts = [("ptr", "%left")]
        for group in range(1, groups):
            at = f.at("%left", f.multiply("%left_row", 4 * group))
            starts.append(("ptr", f.op(f'call ptr asm "", "=r,0"(ptr {at})')))

        def step(_: str, carried: list[str]) -> list[str]:
            starts, (right, ahead), sums = carried[:groups], carried[groups : groups + 2], carried[groups + 2 :]
            for place in (ahead, f.at(starts[0], "%next")):
                f.write(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")
            columns = [
                f.op(f"load {line}, ptr {f.at(right, part * shape.machine.vector_bytes)}, align {self.loaded_bytes}")
                for part in range(shape.vectors)
            ]
            after = [f.at(start, "%left_step") for start in starts]
            after += [f.at(right, "%right_step"), f.at(ahead, "%ahead_step")]
            for row in range(rows):
                at = f.at(starts[row // 4], distances[row % 4])
                spread = self.splat(f, f.op(f"load {self.item}, ptr {at}, align {self.loaded_bytes}"), line)
                for part, column in enumerate(columns):
                    after.append(self.added(f, spread, column, sums[row * shape.vectors + part]))
            return after

        state = [*starts, ("ptr", "%right"), ("ptr", "%ahead"), *totals]
        sums = f.loop(0, "%depth", 1, step, state)[groups + 2 :]
        self.store(f, places, sums)
        return f.finish()

    def splat(self, f: Function, item: str, line: str) -> str:
        lanes = self.shape.lanes
        one = f.op(f"insertelement {line} poison, {self.item} {item}, i64 0")
        return f.op(f"shufflevector {line} {one}, {line} poison, <{lanes} x i32> zeroinitializer")

    def added(self, f: Function, left: str, right: str, total: str) -> str:
        """Write total + left * right."""
        vector = self.vector
        return f.op(f"call {vector} @llvm.fmuladd.{self.suffix}({vector} {left}, {vector} {right}, {vector} {total})")

    def store(self, f: Function, places: list[str], sums: list[str]) -> None:
        """Store the accumulators, added to the output but in the first depth block; masked at the last column."""
        vectors, align, vector = self.shape.vectors, self.bytes, self.vector
        tiles = [
            (
                total,
                f.at(places[number // vectors], number % vectors * self.shape.machine.vector_bytes),
                number % vectors,
            )
            for number, total in enumerate(sums)
        ]

        def fresh() -> None:
            for total, at, _ in tiles:
                f.write(f"store {vector} {total}, ptr {at}, align {align}")

        def more() -> None:
            for total, at, _ in tiles:
                old = f.op(f"load {vector}, ptr {at}, align {align}")
                f.write(f"store {vector} {f.op(f'fadd {vector} {old}, {total}')}, ptr {at}, align {align}")

        def masked() -> None:
            mask = f"<{self.shape.lanes} x i1>"
            lanes = self.shape.lanes
            inside = [f.first_lanes(f.subtract("%columns", str(part * lanes)), lanes) for part in range(vectors)]
            there = [f.op(f"select i1 %first, {mask} zeroinitializer, {mask} {item}") for item in inside]
            for total, at, part in tiles:
                old = f.op(
                    f"call {vector} @llvm.masked.load.{self.suffix}.p0(ptr align {align} {at}, {mask} {there[part]}, "
                    f"{vector} splat ({self.element} -0.0))"
                )
                f.write(
                    f"call void @llvm.masked.store.{self.suffix}.p0({vector} {f.op(f'fadd {vector} {old}, {total}')}, "
                    f"ptr align {align} {at}, {mask} {inside[part]})"
                )

        def whole() -> None:
            f.choose("%first", fresh, more)

        f.choose(f.compare("sge", "%columns", self.shape.width), whole, masked)

    # Packing.

    def pack(self) -> str:
        """Write the packing into panels of `width` lanes: panel[step, lane] = source[lane, step] for `lanes` lanes and
        `depth` elements.

        `apart` is the stride of panels. The last panel may have fewer lanes; the last lane is repeated then. Strides
        are in elements.
        """
        f = Function(
            f"pack.{self.dtype}",
            [
                ("ptr", "panels"), ("i64", "width"), ("i64", "apart"), ("ptr", "source"), ("i64", "lane"),
                ("i64", "step"), ("i64", "lanes"), ("i64", "depth"),
            ],
            "#0",
        )  # fmt: skip
        steps = self.steps(f, "%depth")
        copied = self.copy(f, steps)

        def panel(first: str, carried: list[str]) -> list[str]:
            (target,) = carried

            def group(offset: str, _: list[str]) -> list[str]:
                # The last group of lanes may overlap the previous one.
                self.group(f, target, first, f.minimum(offset, f.add("%width", -self.block)), steps)
                return []

            f.loop(0, "%width", self.block, group)
            return [f.at(target, "%apart", self.loaded)]

        number = f.op(f"udiv i64 {copied}, %width")
        target = f.at("%panels", f.multiply(number, "%apart"), self.loaded)
        f.loop(copied, "%lanes", "%width", panel, [("ptr", target)])
        return f.finish()

    def steps(self, f: Function, elements: str) -> str:
        """Convert a number of elements along the depth to steps."""
        return elements

    def elements(self, f: Function, steps: str) -> str:
        """Convert a number of steps to elements along the depth."""
        return steps

    def whole_steps(self, f: Function) -> str:
        """Return the number of complete steps."""
        return "%depth"

    def copy(self, f: Function, steps: str) -> str:
        """Pack the whole panels by vector copies if their lanes are contiguous; return the number of lanes copied.

        The loop over steps is outside, some panels inside: reads of a step are a long contiguous run, and the written
        lines of the panels stay in L1 until they are full.
        """
        shape = self.shape
        wide = f.compare("eq", "%width", shape.width)
        adjacent = f.compare("eq", "%lane", 1)
        whole = f.subtract("%lanes", f.op("urem i64 %lanes, %width"))
        copied = f.op(f"select i1 {adjacent}, i64 {whole}, i64 0")
        fetched = f.multiply("%step", TUNING.fetched_steps)

        def few(first: str, _: list[str]) -> list[str]:
            last = f.minimum(f.add(first, together), copied)
            panels = f.at("%panels", f.multiply(f.op(f"udiv i64 {first}, %width"), "%apart"), self.element)
            lines = f.at("%source", first, self.element)

            def copy(lanes: int, source: str, target: str) -> None:
                vector = f"<{lanes} x {self.element}>"

                def panel(_: str, carried: list[str]) -> list[str]:
                    source, target = carried
                    ahead = f.at(source, fetched, self.element)
                    for line in range(0, lanes * self.bytes, CACHE_LINE):
                        self.fetch(f, f.at(ahead, line))
                    value = f.op(f"load {vector}, ptr {source}, align {self.bytes}")
                    f.write(f"store {vector} {value}, ptr {target}, align {self.bytes}")
                    return [f.at(source, lanes, self.element), f.at(target, "%apart", self.element)]

                f.loop(first, last, lanes, panel, [("ptr", source), ("ptr", target)])

            def step(_: str, carried: list[str]) -> list[str]:
                source, target = carried
                f.choose(wide, lambda: copy(shape.width, source, target), lambda: copy(shape.rows, source, target))
                return [f.at(source, "%step", self.element), f.at(target, "%width", self.element)]

            f.loop(0, steps, 1, step, [("ptr", lines), ("ptr", panels)])
            return []

        together = f.multiply("%width", TUNING.packed_panels)
        f.loop(0, copied, together, few)
        return copied

    def fetch(self, f: Function, place: str) -> None:
        """Prefetch into L2: lines a power of two apart map to the same sets, and would soon be evicted from L1."""
        f.write(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")

    def group(self, f: Function, panel: str, first: str, offset: str, steps: str) -> None:
        """Pack some lanes of a panel over the whole depth, by transposition or element by element."""
        block, align = self.block, f"align {self.loaded_bytes}"
        vector = f"<{block} x {self.item}>"
        last = f.subtract("%lanes", "1")
        sources: list[str] = []
        for lane in range(block):
            number = f.minimum(f.add(f.add(first, offset), lane), last)
            source = f.at("%source", f.multiply(number, "%lane"), self.loaded)
            # Opaque: LLVM would spend time deriving these addresses from each other, without gain.
            sources.append(f.op(f'call ptr asm "", "=r,0"(ptr {source})'))
        panel = f.at(panel, offset, self.item)
        line = f.multiply("%width", self.bytes)
        following = f.multiply("%lane", block)
        turn = CACHE_LINE // self.bytes

        def line_of_each(at: str, _: list[str]) -> list[str]:
            """Read each cache line in full at once, since lines a power of two apart are soon evicted; prefetch those
            of the next group."""
            ahead = f.add(self.elements(f, at), following)
            for source in sources:
                self.fetch(f, f.at(source, ahead, self.loaded))
            f.loop(at, f.add(at, turn), block, transpose)
            return []

        def transpose(at: str, _: list[str]) -> list[str]:
            places = [f.at(source, at, self.item) for source in sources]
            rows = [f.op(f"load {vector}, ptr {place}, {align}") for place in places]
            place = f.at(panel, f.multiply(at, line))
            for row in transposed(f, rows, vector):
                f.write(f"store {vector} {row}, ptr {place}, {align}")
                place = f.at(place, line)
            return []

        blocks = f.op(f"and i64 {self.whole_steps(f)}, {-turn}")
        done = f.op(f"select i1 {f.compare('eq', '%step', 1)}, i64 {blocks}, i64 0")
        f.loop(0, done, turn, line_of_each)

        def single(at: str, _: list[str]) -> list[str]:
            items = self.items(f, sources, at)
            value = "poison"
            for lane in range(block):
                value = f.op(f"insertelement {vector} {value}, {self.item} {next(items)}, i64 {lane}")
            f.write(f"store {vector} {value}, ptr {f.at(panel, f.multiply(at, line))}, {align}")
            return []

        f.loop(done, steps, 1, single)

    def items(self, f: Function, sources: list[str], step: str) -> Iterator[str]:
        """Yield each lane's item of a step."""
        place = f.multiply(step, "%step")
        for source in sources:
            yield f.op(f"load {self.element}, ptr {f.at(source, place, self.element)}, align {self.bytes}")

    # The product.

    def gemm(self) -> str:
        """Write output = left @ right. With a `panel` stride the right matrix is packed, in panels so far apart.

        With a `left_panel` the left matrix is packed in panels of so many rows: its row stride is a panel's depth (the
        average distance of rows), its column stride a panel's width. `table` has the addresses of all routines; of the
        remainder tiles, those that this number of rows needs.
        """
        shape, element = self.shape, self.element
        f = Function(
            f"gemm.{self.dtype}",
            [
                ("ptr", "output"), ("i64", "output_row"),
                ("ptr", "left"), ("i64", "left_row"), ("i64", "left_column"), ("i64", "left_panel"),
                ("ptr", "right"), ("i64", "right_row"), ("i64", "right_column"), ("i64", "panel"),
                ("i64", "rows"), ("i64", "columns"), ("i64", "depth"), ("ptr", "scratch"), ("ptr", "table"),
            ],
            "nounwind",
        )  # fmt: skip
        output_row = f.multiply("%output_row", self.bytes)
        left_row, left_column, right_row = (
            f.multiply(name, self.loaded_bytes) for name in ("%left_row", "%left_column", "%right_row")
        )
        packed = f.compare("ne", "%panel", 0)
        flat, direct = self.right_as_it_lies(f, right_row)
        prepared = f.compare("ne", "%left_panel", 0)
        narrow = f.op(f"or i1 {prepared}, {self.left_as_it_lies(f)}")
        left_step = self.elements(f, left_column)
        lane_step = f.op(f"select i1 {prepared}, i64 {self.bytes}, i64 {left_row}")
        streamed = f.op(f"and i1 {flat}, {f.compare('eq', '%panel', 0)}")
        most = f.op(f"select i1 {streamed}, i64 {TUNING.flat_depth}, i64 {shape.depth}")
        each = f.even("%depth", most, shape.together)
        # Scratch: a panel of the right matrix, if it is packed here, then a block of the left one.
        line = f.op(f"select i1 {packed}, i64 0, i64 {shape.width * self.loaded_bytes}")
        left_block = f.at("%scratch", f.multiply(each, line))
        # A packed left matrix is read sequentially, so its block need not fit a cache.
        all_rows = f.op("call i64 @llvm.smax.i64(i64 %rows, i64 1)")
        block = f.op(f"select i1 {prepared}, i64 {all_rows}, i64 {TILING.block_rows // shape.rows * shape.rows}")

        def row_block(row: str, _: list[str]) -> list[str]:
            many = f.minimum(f.subtract("%rows", row), block)
            left = f.at("%left", f.multiply(row, left_row))
            output = f.at("%output", f.multiply(row, output_row))
            # While a panel of the right matrix is in use, each tile of rows prefetches its share of the next one.
            tiles = f.op(f"udiv i64 {f.add(many, shape.rows - 1)}, {shape.rows}")
            ahead_step = f.op(f"udiv i64 {f.add(tiles, shape.width * self.bytes - 1)}, {tiles}")

            def depth_block(start: str, _: list[str]) -> list[str]:
                depth = f.minimum(f.subtract("%depth", start), each)
                steps = self.steps(f, depth)
                first = f.compare("eq", start, 0)
                source = f.at(left, f.multiply(start, left_column))

                def pack_rows() -> list[tuple[str, str]]:
                    apart = f.multiply(self.elements(f, steps), shape.rows)
                    f.write(
                        f"call void @pack.{self.dtype}(ptr {left_block}, i64 {shape.rows}, i64 {apart}, ptr {source}, "
                        f"i64 %left_row, i64 %left_column, i64 {many}, i64 {depth})"
                    )
                    rows_apart = f.multiply(steps, self.bytes)
                    line = shape.rows * self.bytes
                    return [("ptr", left_block), ("i64", rows_apart), ("i64", str(self.bytes)), ("i64", str(line))]

                def as_it_lies() -> list[tuple[str, str]]:
                    return [("ptr", source), ("i64", left_row), ("i64", lane_step), ("i64", left_step)]

                lanes, panel_step, row_step, step_step = f.choose(narrow, as_it_lies, pack_rows)
                following_rows = f.multiply(panel_step, shape.rows)

                def column_panel(column: str, _: list[str]) -> list[str]:
                    count = f.subtract("%columns", column)
                    place, step, following, pace, share, sharing = self.right_panel(
                        f, column, count, start, depth, steps, packed, direct, right_row, ahead_step
                    )
                    target = f.at(output, column, element)

                    def multiply(height: int, panel: str, row: str) -> None:
                        function = f"@tile{height}.{self.dtype}"
                        if height in REST:
                            slot = f.at("%table", ROUTINES.index(f"tile{height}"), "ptr")
                            function = f.op(f"load ptr, ptr {slot}, align 8")
                        at = f.add(f.multiply(panel, panel_step), f.multiply(row, row_step))
                        number = f.minimum(f.op(f"udiv i64 {panel}, {shape.rows}"), sharing)
                        ahead = f.at(following, f.multiply(number, share))
                        f.write(
                            f"call void {function}(ptr {f.at(lanes, at)}, i64 {row_step}, "
                            f"i64 {step_step}, ptr {place}, i64 {step}, "
                            f"ptr {f.at(target, f.multiply(f.add(panel, row), output_row))}, i64 {output_row}, "
                            f"i64 {steps}, i64 {count}, i1 {first}, "
                            f"ptr {ahead}, i64 {pace}, i64 {following_rows})"
                        )

                    self.tiles(f, many, multiply)
                    return []

                f.loop(0, "%columns", shape.width, column_panel)
                return []

            # Over a depth of nothing, too: that is zero.
            f.loop(0, f.op("call i64 @llvm.smax.i64(i64 %depth, i64 1)"), each, depth_block)
            return []

        f.loop(0, "%rows", block, row_block)
        return f.finish()

    def right_as_it_lies(self, f: Function, right_row: str) -> tuple[str, str]:
        """Write two conditions: whether the product is flat (few rows, contiguous columns), and whether the right
        matrix is read without packing, because of that or because it fits in L1."""
        adjacent = f.compare("eq", "%right_column", 1)
        flat = f.op(f"and i1 {f.compare('sle', '%rows', TILING.flat_tiles * self.shape.rows)}, {adjacent}")
        small = f.op(f"and i1 {f.compare('sle', f.multiply('%depth', right_row), self.shape.machine.l1)}, {adjacent}")
        return flat, f.op(f"or i1 {flat}, {small}")

    def left_as_it_lies(self, f: Function) -> str:
        """Write the condition under which the left matrix is read without packing."""
        return f.compare("sle", "%columns", TUNING.narrow_panels * self.shape.width)

    def shares(self, f: Function, right_row: str) -> tuple[str, str]:
        """Compute the stride in bytes of the prefetch shares of a panel not yet packed, and their number."""
        apart = f.multiply("%right_column", self.bytes)
        share = f.op(f"call i64 @llvm.smax.i64(i64 {apart}, i64 {CACHE_LINE})")
        return share, f.op(f"udiv i64 {f.multiply(apart, self.shape.width)}, {share}")

    def tiles(self, f: Function, rows: str, body: Callable[[int, str, str], None]) -> None:
        """Write body(height, first row of the panel, row in the panel) for the tiles of all rows."""
        rest = f.op(f"urem i64 {rows}, {self.shape.rows}")
        whole = f.subtract(rows, rest)

        def full(at: str, _: list[str]) -> list[str]:
            body(self.shape.rows, at, "0")
            return []

        f.loop(0, whole, self.shape.rows, full)

        def some() -> None:
            for height in REST:
                # The remainder in binary: 5 rows are tiles of 4 and 1.
                wanted = f.compare("ne", f.op(f"and i64 {rest}, {height}"), 0)
                before = f.op(f"and i64 {rest}, {-2 * height}")

                def one(height: int = height, before: str = before) -> None:
                    body(height, whole, before)

                f.choose(wanted, one)

        f.choose(f.compare("ne", rest, 0), some)

    def right_panel(
        self, f: Function, column: str, count: str, start: str, depth: str, steps: str, packed: str, direct: str,
        right_row: str, ahead_step: str,
    ) -> list[str]:  # fmt: skip
        """Locate a panel of the right matrix: address and stride of steps in bytes; then the next panel, of which each
        tile of rows prefetches a share: address, strides of steps and of shares in bytes, number of the last share.
        """
        shape, element = self.shape, self.loaded
        line = shape.width * self.bytes
        right_step = self.elements(f, right_row)
        kinds = ("ptr", "i64", "ptr", "i64", "i64", "i64")

        def shared() -> list[tuple[str, str]]:
            number = f.op(f"udiv i64 {column}, {shape.width}")
            place = f.add(f.multiply(number, "%panel"), f.multiply(start, shape.width))
            panel = f.at("%right", place, element)
            following = f.at(panel, "%panel", element)
            found = [panel, str(line), following, ahead_step, f.multiply(steps, ahead_step), "%rows"]
            return list(zip(kinds, found, strict=True))

        def strided() -> list[tuple[str, str]]:
            place = f.add(f.multiply(start, "%right_row"), f.multiply(column, "%right_column"))
            source = f.at("%right", place, element)
            full = f.compare("sge", count, shape.width)

            def fresh() -> list[tuple[str, str]]:
                lanes = f.minimum(count, shape.width)
                f.write(
                    f"call void @pack.{self.dtype}(ptr %scratch, i64 {shape.width}, i64 0, ptr {source}, "
                    f"i64 %right_column, i64 %right_row, i64 {lanes}, i64 {depth})"
                )
                # The next panel to pack: the next one of this depth block, or the first one of the next block. A share
                # is a cache line of each step, or a lane with all its steps.
                below = f.at("%right", f.multiply(f.add(start, depth), "%right_row"), element)
                beside = f.at(source, f.multiply("%right_column", shape.width), element)
                is_last = f.compare("sle", count, shape.width)
                following = f.op(f"select i1 {is_last}, ptr {below}, ptr {beside}")
                share, last = self.shares(f, right_row)
                found = ["%scratch", str(line), following, right_step, share, f.add(last, -1)]
                return list(zip(kinds, found, strict=True))

            def as_it_lies() -> list[tuple[str, str]]:
                found = [source, right_step, f.at(source, line), right_step, f.multiply(steps, right_step), "%rows"]
                return list(zip(kinds, found, strict=True))

            found = f.choose(f.op(f"and i1 {direct}, {full}"), as_it_lies, fresh)
            return list(zip(kinds, found, strict=True))

        return f.choose(packed, shared, strided)


def transposed(f: Function, rows: list[str], vector: str) -> list[str]:
    """Transpose a square of vectors in registers: interleave neighbours, then pairs, then groups of four."""
    count = len(rows)
    size = 1
    while size < count:
        # Blocks of `size` elements: swap the odd ones of the first row with the even ones of the second.
        after = list(rows)
        for row in range(count):
            if row & size:
                continue
            low, high = rows[row], rows[row | size]
            for target, odd in ((row, 0), (row | size, size)):
                chosen = [
                    (lane & ~size | odd) if not lane & size else count + (lane & ~size | odd) for lane in range(count)
                ]
                numbers = ", ".join(f"i32 {lane}" for lane in chosen)
                after[target] = f.op(f"shufflevector {vector} {low}, {vector} {high}, <{count} x i32> <{numbers}>")
        rows = after
        size *= 2
    return rows


def shared_text(bits: int) -> list[str]:
    """Write the declarations and attributes of routines for vectors of so many bits."""
    return [
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}',
    ]


def gemm_library(routines: Routines) -> Module:
    """Write the library for GEMM of any strides."""
    # `gemm` itself is compiled without optimization, which would take longer than compiling all the rest.
    return Module(
        hot=[routines.pack(), routines.tile(routines.shape.rows)],
        plain=[routines.gemm()],
        shared=[*routines.declarations(), *shared_text(routines.shape.machine.vector_bits)],
    )


def rest_library(routines: Routines) -> Module:
    """Write the library of remainder tiles."""
    tiles = [routines.tile(height) for height in REST]
    return Module(hot=tiles, shared=[*routines.declarations(), *shared_text(routines.shape.machine.vector_bits)])
