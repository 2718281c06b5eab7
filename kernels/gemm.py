"""How matrix products are cut up: the register tile of a machine, the blocks that caches hold, the tiles for threads.

backend/cpu/microkernels/ has the code. All of this depends on sizes and on the nominal machine alone, never on the
number of threads, so neither does any result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.proofs import ceil_divide, limit
from ..ir.symbolic import ASSUMED_SIZE, Dim, Expr
from .machine import Machine

if TYPE_CHECKING:
    from .loop.ir import Gemm, Matrix

BYTES = {"f32": 4, "f64": 8}  # of the element types that have a product of their own
NARROW_BYTES = {"bf16": 2}  # of those that some machines multiply, too, and add up in f32
# Elements along the depth of a block: longer sums in one register would gain little, and round more.
DEPTH = {"f32": 512, "f64": 384, "bf16": 1024}
# The same of dot products: rows of a page of memory spread evenly over L1.
DOT_DEPTH = {"f32": 1024, "f64": 512, "bf16": 2048}
FEW_THREADS = (2, 4)  # whose shares of the tiles should be equal


@dataclass(frozen=True, slots=True)
class GemmTiling:
    """How matrix products are cut up, in rows, columns and elements of depth if nothing else is said. No measurement of
    a single figure is recorded; all together reach 91 % of the FMA peak at 512 and 80 % at 2048 (Zen 3, f32)."""

    block_rows: int = 128  # of a block of the left matrix that a tile packs for itself: it stays in L2
    tile_columns: int = 512  # of a tile
    whole_rows_columns: int = 1024  # of a tile of whole rows, at most
    # Of a tile of whole columns, at most: a higher one has few columns, and what follows it gets short runs.
    whole_columns_rows: int = 512
    flat_tiles: int = 2  # register tiles of rows, at most, that use the right matrix too little to pack it
    flat_columns: int = 1024  # of a tile then: long runs of each row are fetched from memory
    least_rows: int = 32  # of a tile that is made smaller so that there are more of them
    least_columns: int = 128  # of the same
    tile_work: int = 1 << 24  # multiplications for which a tile of its own pays
    least_work: int = 1 << 19  # multiplications for which it does while there are not even tiles for a few threads
    least_uses: int = 8  # of an element of the right matrix, at least, in counts of work: it takes as long to read it
    # Enough to keep many threads busy; with more rows in each, no packed copy of the right matrix is needed.
    tiles: int = 12
    small_rows: int = 48  # of a tile in L1 for which it pays to pack a right matrix
    unshared_tiles: int = 2  # tiles of rows, at most, that do not share a packed copy of the right matrix
    # Of a packed matrix, at most, of which each thread has a copy: that of another thread would be far away.
    own_bytes: int = 8 << 20
    own_share: int = 2  # times the bytes of the product, at most, for the same: memory stays in proportion
    own_uses: int = 512  # of its elements, at least: with fewer, packing it again for every thread would show
    dot_block_rows: int = 128  # of a block of dot products, which stays in L2
    dot_rows: int = 256  # of a product of dots, at most: with more, packing pays
    narrow_dot_rows: int = 128  # the same for narrow types
    narrow_dot_row_depth: int = 8  # depth for each row, at least, for the same
    narrow_dot_columns: int = 16  # columns, at most, with which rows of narrow types do not matter
    ready_rows: int = 8  # of a tile of whole rows, at least, if the right matrix need not be packed
    open_rows: int = 64  # of a tile if nobody knows how many rows there are
    open_row_tile: int = 16  # the same of a tile of whole rows
    dot_depth: int = 128  # of dot products, at least: below, adding up the sums of a vector takes longer than packing
    pack_depth: int = 512  # of a part of a matrix that one thread packs
    pack_columns: int = 256  # of the same: long runs of few rows or columns


TILING = GemmTiling()


def total_type(dtype: str) -> str:
    """The type in which products of a type are added up."""
    return dtype if dtype in BYTES else "f32"


@dataclass(frozen=True)
class RegisterTile:
    """What one turn of the innermost loop computes: some rows of the product times some vectors' width of columns."""

    dtype: str
    machine: Machine

    @property
    def total(self) -> str:
        """The type of sums, and of the product."""
        return total_type(self.dtype)

    @property
    def bytes(self) -> int:
        """Of a sum, and of what each lane of a panel has of one step of the depth."""
        return BYTES[self.total]

    @property
    def together(self) -> int:
        """Elements along the depth that are one step: those of a narrow type lie together, in the room of a sum."""
        return self.bytes // {**BYTES, **NARROW_BYTES}[self.dtype]

    @property
    def rows(self) -> int:
        """Two vectors of each row are accumulators; one is left for the left matrix, and two for the right one."""
        return 8 if self.machine.registers == 32 else 6

    @property
    def lanes(self) -> int:
        return self.machine.vector_bytes // self.bytes

    @property
    def vectors(self) -> int:
        return 2

    @property
    def width(self) -> int:
        return self.lanes * self.vectors

    @property
    def depth(self) -> int:
        """Of a block: a panel of the left matrix is read from the first-level cache, one of the right from the next."""
        return DEPTH[self.dtype]

    def scratch_bytes(self, rows: Dim | None, depth: Dim, packs_left: bool, packs_right: bool) -> int:
        """Memory that one product needs: for one panel of the right matrix, and for a block of the left one."""
        lines = self.width * packs_right
        if packs_left:
            lines += _even(
                min(rows, TILING.block_rows) if isinstance(rows, int) else TILING.block_rows,
                TILING.block_rows,
                self.rows,
            )
        most = min(depth, self.depth) if isinstance(depth, int) else self.depth
        return lines * -(-most // self.together) * self.bytes

    def panel_depth(self, depth: Dim) -> Dim:
        """Elements of a panel along the depth: whole steps."""
        return ceil_divide(depth, self.together) * self.together


@dataclass(frozen=True)
class DotTile:
    """The same where the depth of both matrices is adjacent: a vector of sums for each of some rows and columns."""

    dtype: str
    machine: Machine

    @property
    def bytes(self) -> int:
        return {**BYTES, **NARROW_BYTES}[self.dtype]

    @property
    def total(self) -> str:
        """The type of sums, and of the product."""
        return total_type(self.dtype)

    @property
    def rows(self) -> int:
        """Registers hold the sums, a vector of each row, and one of a column."""
        return 4 if self.machine.registers == 32 else 3

    @property
    def columns(self) -> int:
        return 6 if self.machine.registers == 32 else 4

    @property
    def lanes(self) -> int:
        return self.machine.vector_bytes // self.bytes

    @property
    def depth(self) -> int:
        return DOT_DEPTH[self.dtype]


def pays_dots(dtype: str, rows: Dim, columns: Dim, depth: Dim) -> bool:
    """Whether dot products are best for a product of this size, if the depth of both matrices is adjacent. For many
    rows packing pays: it takes a time that goes with the depth, and adding up sums one that goes with the rows. An open
    number counts as few, unless even the least that it can be is many. Few columns leave panels half empty."""
    if not isinstance(depth, int) or depth < TILING.dot_depth:
        return False
    most = TILING.dot_rows
    if dtype not in BYTES:
        widest = limit(columns, True)
        if isinstance(widest, int) and widest <= TILING.narrow_dot_columns:
            return True
        most = min(TILING.narrow_dot_rows, depth // TILING.narrow_dot_row_depth)
    least = limit(rows, False)
    return not isinstance(least, int) or least <= most


def by_dots(left: Matrix, right: Matrix, rows: Dim, columns: Dim, depth: Dim) -> bool:
    """Whether the elements of a product are dot products of rows as they lie in memory: nothing is packed then."""
    adjacent = left.column_stride == 1 and right.row_stride == 1 and not left.panel and not right.panel
    return adjacent and pays_dots(left.buffer.dtype.name, rows, columns, depth)


def is_dots(statement: Gemm) -> bool:
    """Whether a tile is made of dot products. A product that packs nothing for them (passes/lower/gemm.py) has
    only such tiles: they are no higher than it."""
    return by_dots(statement.left, statement.right, statement.rows, statement.columns, statement.depth)


def tile_shape(
    batch: Dim, rows: Dim, columns: Dim, depth: Dim, unit: RegisterTile, ready: bool = False
) -> tuple[int, int]:
    """Rows and columns of one tile: as large as leaves enough tiles for the threads. Symbolic sizes count as large, if
    that does not leave threads idle: tiles may be small where the right matrix is ready, which means as it lies.

    What several tiles need of a matrix is packed once for all, through memory. So the larger matrix is best cut such
    that each part of it is one tile's alone, which packs it where it stays in the cache: by columns, and tiles have all
    rows, or by rows, and they have all columns.
    """
    if ready:
        return _ready_tile_shape(batch, rows, columns, depth, unit)
    height = _even(rows, TILING.block_rows // unit.rows * unit.rows, unit.rows)
    flat = isinstance(rows, int) and rows <= TILING.flat_tiles * unit.rows
    width = _even(columns, TILING.flat_columns if flat else TILING.tile_columns, unit.width)
    if not (isinstance(rows, int) and isinstance(columns, int)):
        return height, width
    least = TILING.least_columns
    wanted = 1
    if isinstance(batch, int):
        wanted = _tiles(
            batch * max(rows, TILING.least_uses) * columns * (depth if isinstance(depth, int) else unit.depth)
        )
    if TILING.block_rows < rows <= min(columns, TILING.whole_columns_rows):
        height = _even(rows, rows, unit.rows)
        least = 2 * unit.width
        most = max(unit.machine.l2 // 4 // (height * unit.bytes), least)
        width = _balanced(batch, columns, most, least, unit.width, wanted)
    elif columns <= min(rows, TILING.whole_rows_columns):
        width = _even(columns, columns, unit.width)
        most = min(TILING.block_rows, max(unit.machine.l2 // 4 // (width * unit.bytes), TILING.least_rows))
        height = _balanced(batch, rows, most, TILING.least_rows, unit.rows, wanted)
        least = width
    if isinstance(batch, int):

        def tiles() -> int:
            return batch * -(-rows // height) * -(-columns // width)

        while tiles() < wanted:
            if width >= 2 * least:
                width = _even(columns, width // 2, unit.width)
            elif height >= 2 * TILING.least_rows:
                height = _even(rows, height // 2, unit.rows)
            elif width >= 2 * TILING.least_columns:
                width = _even(columns, width // 2, unit.width)
            else:
                break
    return height, width


def _ready_tile_shape(batch: Dim, rows: Dim, columns: Dim, depth: Dim, unit: RegisterTile) -> tuple[int, int]:
    """The same where the right matrix is read as it lies. Wide tiles waste less: their last columns are computed in
    whole register tiles. But few rows are one tile's: else several would read all of the right matrix."""
    if isinstance(rows, Expr):
        return TILING.open_rows, _even(columns, TILING.least_columns, unit.width)
    height, width = _even(rows, TILING.dot_block_rows, unit.rows), _even(columns, TILING.tile_columns, unit.width)
    if isinstance(batch, Expr) or isinstance(columns, Expr) or isinstance(depth, Expr):
        return height, width
    wanted = _tiles(batch * max(rows, TILING.least_uses) * columns * depth)
    while batch * -(-rows // height) * -(-columns // width) < wanted:
        if rows > TILING.dot_block_rows and height >= 2 * TILING.least_rows:
            height = _even(rows, height // 2, unit.rows)
        elif width >= 2 * TILING.least_columns:
            width = _even(columns, width // 2, unit.width)
        elif height >= 2 * TILING.least_rows:
            height = _even(rows, height // 2, unit.rows)
        else:
            break
    return height, width


def is_own(nbytes: Dim, times: Dim, result: Dim) -> bool:
    """Whether each thread packs a matrix of so many bytes, whose elements are used so often for a product of so many
    bytes, for itself."""
    if not (isinstance(nbytes, int) and isinstance(times, int) and isinstance(result, int)):
        return False
    return nbytes <= min(TILING.own_bytes, TILING.own_share * result) and times >= TILING.own_uses


def row_tile(
    batch: Dim, rows: Dim, columns: Dim, depth: Dim, unit: RegisterTile, is_left: bool, ready: bool = False
) -> int:
    """Rows of a tile of whole rows of so many columns: as many as the cache holds, and as leaves enough tiles.

    A tile that is the left matrix of another product is scratch memory: a small one, if that has enough rows.
    """
    row = (columns if isinstance(columns, int) else ASSUMED_SIZE) * unit.bytes
    most = min(TILING.block_rows, max(unit.machine.l2 // 4 // row, TILING.least_rows))
    small = unit.machine.l1 * 3 // 4  # the rest of L1 is for a panel
    if is_left and small // row >= TILING.small_rows:
        most = min(most, small // row)
    wanted = 1
    if isinstance(rows, int) and isinstance(batch, int):
        work = batch * rows * (row // unit.bytes) * (depth if isinstance(depth, int) else unit.depth)
        wanted = _tiles(work)
    if ready and not isinstance(rows, int):
        return min(most, TILING.open_row_tile)
    return _balanced(batch, rows, most, TILING.ready_rows if ready else TILING.least_rows, unit.rows, wanted)


def leaves_threads_idle(batch: Dim, rows: Dim, columns: Dim, depth: Dim) -> bool:
    """Whether tiles of whole rows would be too few for the work of a product, whose columns can be shared."""
    if isinstance(batch, Expr) or isinstance(rows, Expr) or isinstance(columns, Expr) or isinstance(depth, Expr):
        return False
    return (
        batch * (rows // TILING.ready_rows) < 2 and _tiles(batch * max(rows, TILING.least_uses) * columns * depth) > 1
    )


def _tiles(work: int) -> int:
    """How many tiles a number of multiplications is worth."""
    return min(TILING.tiles, max(work // TILING.tile_work, min(work // TILING.least_work, FEW_THREADS[-1])))


def _balanced(batch: Dim, size: Dim, most: int, least: int, unit: int, wanted: int) -> int:
    """The length of parts from `least` to `most`, a multiple of `unit`, of which there are as many as are wanted, and
    with which few threads are done at the same time: 13 equal parts keep one of two threads waiting. Long ones if
    there is a choice."""
    first = _even(size, most // unit * unit, unit)
    if isinstance(size, Expr) or isinstance(batch, Expr) or wanted < 2:
        return first

    def quality(length: int) -> tuple[bool, int]:
        parts = batch * -(-size // length)
        rounds = max(-(-parts // threads) * threads for threads in FEW_THREADS)
        return parts >= wanted, -(50 * rounds * length // (batch * size))  # a difference of 2 % is none

    return max(range(first, min(first, least) - 1, -unit), key=quality)


def _even(size: Dim, most: int, unit: int) -> int:
    """The length of equal parts of at most `most`, a multiple of `unit`."""
    if isinstance(size, Expr):
        return most
    parts = max(1, (size + most - 1) // most)
    return (size + parts * unit - 1) // (parts * unit) * unit
