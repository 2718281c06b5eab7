"""Choose the tiling of matrix products: the register tile of a machine, the blocks for caches, the tiles for threads.

The micro-kernels themselves are in backend/cpu/microkernels/ (gemm.py, pairs.py and dots.py), the loops around tiles in
passes/lower/gemm.py. The tiling depends on sizes and on the nominal machine alone, never on the number of threads, so
neither does any result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.proofs import ceil_divide, limit
from ..ir.record import Record
from ..ir.symbolic import ASSUMED_SIZE, Dim, Expr
from .machine import Machine

if TYPE_CHECKING:
    from .loop.ir import Gemm, Matrix

BYTES = {"f32": 4, "f64": 8}  # bytes of the element types with micro-kernels on every machine
NARROW_BYTES = {"bf16": 2}  # bytes of those that some machines multiply and accumulate in f32
# Elements along the depth of a block: longer sums in one register would gain little, and round more.
DEPTH = {"f32": 512, "f64": 384, "bf16": 1024}
# Elements along the depth of a block of dot products: rows of one page (4 KB), which spread evenly over L1's sets.
DOT_DEPTH = {"f32": 1024, "f64": 512, "bf16": 2048}
FEW_THREADS = (2, 4)  # numbers of threads for which tiles are balanced


class GemmTiling(Record):
    """Sizes of tiles and blocks of matrix products. No measurement of a single figure is recorded; all together reach
    91 % of the FMA peak at 512 and 80 % at 2048 (Zen 3, f32)."""

    block_rows: int = 128  # rows of a block of the left matrix that a tile packs for itself: it stays in L2
    tile_columns: int = 512  # columns of a tile
    whole_rows_columns: int = 1024  # columns of a tile of whole rows, at most
    # Rows of a tile of whole columns, at most: a higher one has few columns, so ops that follow it get short runs.
    whole_columns_rows: int = 512
    flat_tiles: int = 2  # register tiles of rows, at most, for which packing the right matrix does not pay
    flat_columns: int = 1024  # columns of a tile of so few rows: long runs of each row are prefetched
    least_rows: int = 32  # rows, at least, of a tile that is made smaller to get more tiles
    least_columns: int = 128  # columns, at least, of the same
    tile_work: int = 1 << 24  # multiplications for which one more tile pays
    least_work: int = 1 << 19  # multiplications for which one more tile pays up to the largest of FEW_THREADS
    least_uses: int = 8  # multiplications that reading an element of the right matrix counts as, at least
    # Tiles, at most, for the sake of threads: enough for many of them; fewer rows in each would need packed copies.
    tiles: int = 12
    small_rows: int = 48  # rows of a tile in L1, at least, for which packing a right matrix pays
    unshared_tiles: int = 2  # tiles of rows, at most, that do not share a packed copy of the right matrix
    # Bytes of a packed matrix, at most, of which each thread has a copy: another thread's is in another cache.
    own_bytes: int = 8 << 20
    own_share: int = 2  # times the bytes of the product, at most, for the same: memory stays in proportion
    own_uses: int = 512  # uses of each element, at least, for the same: they outweigh packing once for each thread
    dot_block_rows: int = 128  # rows of a block of dot products, which stays in L2
    dot_rows: int = 256  # rows of a product by dot products, at most: with more, packing pays
    narrow_dot_rows: int = 128  # the same for narrow types
    narrow_dot_row_depth: int = 8  # depth for each row, at least, for the same
    narrow_dot_columns: int = 16  # columns, at most, with which the number of rows of narrow types does not matter
    ready_rows: int = 8  # rows of a tile of whole rows, at least, if the right matrix need not be packed
    open_rows: int = 64  # rows of a tile if their number is dynamic
    open_row_tile: int = 16  # the same for a tile of whole rows
    dot_depth: int = 128  # depth of dot products, at least: below, horizontal sums take longer than packing
    pack_depth: int = 512  # depth of a part of a matrix that one thread packs
    pack_columns: int = 256  # columns of the same: long runs of few rows or columns


TILING = GemmTiling()


def total_type(dtype: str) -> str:
    """Return the type in which products of a type are accumulated."""
    return dtype if dtype in BYTES else "f32"


class RegisterTile(Record):
    """The register tile of the GEMM micro-kernel: rows of the product times the width of some vectors."""

    dtype: str
    machine: Machine

    @property
    def total(self) -> str:
        """The type of sums, and of the product."""
        return total_type(self.dtype)

    @property
    def bytes(self) -> int:
        """Bytes of an accumulator, and of each lane of a panel in one step of the depth."""
        return BYTES[self.total]

    @property
    def together(self) -> int:
        """Elements along the depth in one step: those of a narrow type that are as wide as an accumulator together."""
        return self.bytes // {**BYTES, **NARROW_BYTES}[self.dtype]

    @property
    def rows(self) -> int:
        """Rows: two registers of each are accumulators; one is left for the left matrix, and two for the right one."""
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
        """Depth of a block: a panel of the left matrix stays in L1, one of the right matrix in L2."""
        return DEPTH[self.dtype]

    def scratch_bytes(self, rows: Dim | None, depth: Dim, packs_left: bool, packs_right: bool) -> int:
        """Return the bytes of scratch of one GEMM: a panel of the right matrix, and a block of the left one."""
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
        """Return the elements of a panel along the depth: whole steps."""
        return ceil_divide(depth, self.together) * self.together


class DotTile(Record):
    """The register tile of dot products, where both matrices are adjacent along the depth: one accumulator vector for
    each of some rows and columns."""

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
        """Rows: registers hold the accumulators, a vector of each row, and one of a column."""
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
    """Whether dot products are fastest for a product of this size, if both matrices are adjacent along the depth. For
    many rows packing pays: its time grows with the depth, that of horizontal sums with the rows. A dynamic number of
    rows counts as few unless its least value is many. Few columns leave panels half empty."""
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
    """Whether a product is computed by dot products on matrices in place: nothing is packed then."""
    adjacent = left.column_stride == 1 and right.row_stride == 1 and not left.panel and not right.panel
    return adjacent and pays_dots(left.buffer.dtype.name, rows, columns, depth)


def is_dots(statement: Gemm) -> bool:
    """Whether a tile is computed by dot products. A product lowered without packing for them (passes/lower/gemm.py) has
    only such tiles, as a tile has no more rows than it."""
    return by_dots(statement.left, statement.right, statement.rows, statement.columns, statement.depth)


def tile_shape(
    batch: Dim, rows: Dim, columns: Dim, depth: Dim, unit: RegisterTile, ready: bool = False
) -> tuple[int, int]:
    """Choose rows and columns of a tile: as large as leaves enough tiles for threads. Dynamic sizes count as large
    unless that could leave threads idle. `ready`: the right matrix is read in place, so tiles may be small.

    A part of a matrix that several tiles need is packed once for all, through memory. So the larger matrix is best cut
    such that each part belongs to one tile, which packs it in the cache: by columns, where tiles have all rows, or by
    rows, where they have all columns.
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
    """Choose rows and columns of a tile where the right matrix is read in place. Wide tiles waste less, as the
    remainder of columns takes a whole register tile. Few rows stay in one tile: else several tiles would read all of
    the right matrix."""
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
    """Whether each thread packs a copy of a matrix of its own. `times`: uses of each element, `result`: bytes of the
    product."""
    if not (isinstance(nbytes, int) and isinstance(times, int) and isinstance(result, int)):
        return False
    return nbytes <= min(TILING.own_bytes, TILING.own_share * result) and times >= TILING.own_uses


def row_tile(
    batch: Dim, rows: Dim, columns: Dim, depth: Dim, unit: RegisterTile, is_left: bool, ready: bool = False
) -> int:
    """Choose the rows of a tile of whole rows: as many as L2 holds, and as leaves enough tiles for threads.

    A tile that is the left matrix of another product (`is_left`) is scratch: in L1 if it has enough rows there.
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
    """Return how many tiles pay for a number of multiplications."""
    return min(TILING.tiles, max(work // TILING.tile_work, min(work // TILING.least_work, FEW_THREADS[-1])))


def _balanced(batch: Dim, size: Dim, most: int, least: int, unit: int, wanted: int) -> int:
    """Choose a length of parts, from `least` to `most` and a multiple of `unit`, that gives as many parts as are wanted
    and balances few threads: 13 equal parts keep one of two threads waiting. Prefers long parts."""
    first = _even(size, most // unit * unit, unit)
    if isinstance(size, Expr) or isinstance(batch, Expr) or wanted < 2:
        return first

    def quality(length: int) -> tuple[bool, int]:
        parts = batch * -(-size // length)
        rounds = max(-(-parts // threads) * threads for threads in FEW_THREADS)
        return parts >= wanted, -(50 * rounds * length // (batch * size))  # differences below 2 % do not count

    return max(range(first, min(first, least) - 1, -unit), key=quality)


def _even(size: Dim, most: int, unit: int) -> int:
    """Return the length of equal parts of at most `most`, a multiple of `unit`."""
    if isinstance(size, Expr):
        return most
    parts = max(1, (size + most - 1) // most)
    return (size + parts * unit - 1) // (parts * unit) * unit
