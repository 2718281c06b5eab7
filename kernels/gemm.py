"""How matrix products are cut up: the register tile of a machine, the blocks that caches hold, the tiles for threads.

backend/cpu/microkernels/ has the code. All of this depends on sizes and on the width of vectors alone, never on the
number of threads, so neither does any result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.proofs import ceil_divide, limit
from ..ir.symbolic import Dim, Expr

if TYPE_CHECKING:
    from .loop.ir import Gemm, Matrix

BYTES = {"f32": 4, "f64": 8}  # of the element types that have a product of their own
NARROW_BYTES = {"bf16": 2}  # of those that some machines multiply, too, and add up in f32
# Of a block: longer sums in one register would gain little, and round more.
DEPTH = {"f32": 512, "f64": 384, "bf16": 1024}
ROWS = 128  # of a block: the left matrix that a tile packs for itself stays in the second-level cache
COLUMNS = 512  # of a tile
LONG = 1024  # columns of a tile that has all of them
TALL = 512  # rows of a tile that has all of them: with more, it has few columns, and what follows it gets short runs
FLAT = 2  # so many register tiles of rows, or less: the right matrix is used too little to pack it
FLAT_COLUMNS = 1024  # of a tile then: long runs of each row are fetched from memory
LEAST_ROWS, LEAST_COLUMNS = 32, 128  # of a tile that others share the work with
TILE_WORK = 1 << 24  # multiplications for which a tile of its own pays
LEAST_WORK = 1 << 19  # for which it does while there are not even tiles for a few threads
LEAST_TIMES = 8  # that an element of the right matrix counts as used: it takes as long to read it
TILES = 12  # enough to keep many threads busy; more rows a tile need no packed copy of the right matrix
FEW_THREADS = (2, 4)  # whose shares of the tiles should be equal
TILE_BYTES = 1 << 18  # of a tile of whole rows or columns: it stays in the second-level cache
SMALL_BYTES = 24 << 10  # of a tile that stays in the first-level cache, beside a panel
SMALL_ROWS = 48  # for which it pays to pack a right matrix
LARGE = 4096  # what symbolic columns count for there
FEW_PACK = 2  # so many tiles of rows, or less, do not share a packed copy of the right matrix
OWN_BYTES = 8 << 20  # of a packed matrix that each thread has a copy of: what another one packed would be far away
OWN_SHARE = 2  # of the bytes of the product, at most, for the same: memory stays in proportion
OWN_TIMES = 512  # that its elements are used: with fewer, packing it again for every thread would show
# Of a block: rows of a page of memory spread evenly over the first-level cache.
DOT_DEPTH = {"f32": 1024, "f64": 512, "bf16": 2048}
DOT_ROWS = 128  # of a block, which stays in the second-level cache
MOST_DOT_ROWS = 256  # of a product: with more, packing pays
MOST_NARROW_DOT_ROWS, NARROW_ROW_DEPTH = 128, 8  # the same for narrow types, and the least depth for each row
NARROW_DOT_COLUMNS = 16  # with no more, the number of rows does not matter for these
LEAST_READY_ROWS = 8  # of a tile of whole rows, if the right matrix need not be packed
OPEN_ROWS, OPEN_ROW_TILE = 64, 16  # of a tile, and of one of whole rows, if nobody knows how many rows there are
LEAST_DOT_DEPTH = 128  # below, adding up the sums of a vector takes longer than packing
PACK_DEPTH, PACK_COLUMNS = 512, 256  # of a part of a matrix that one thread packs: long runs of few rows or columns


def total_type(dtype: str) -> str:
    """The type in which products of a type are added up."""
    return dtype if dtype in BYTES else "f32"


@dataclass(frozen=True)
class RegisterTile:
    """What one turn of the innermost loop computes: some rows of the product times some vectors' width of columns."""

    dtype: str
    bits: int

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
        """With 512 bits there are 32 registers, else maybe only 16; two vectors a row are accumulators."""
        return 8 if self.bits == 512 else 6

    @property
    def lanes(self) -> int:
        return self.bits // 8 // self.bytes

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
            lines += _even(min(rows, ROWS) if isinstance(rows, int) else ROWS, ROWS, self.rows)
        most = min(depth, self.depth) if isinstance(depth, int) else self.depth
        return lines * -(-most // self.together) * self.bytes

    def panel_depth(self, depth: Dim) -> Dim:
        """Elements of a panel along the depth: whole steps."""
        return ceil_divide(depth, self.together) * self.together


@dataclass(frozen=True)
class DotTile:
    """The same where the depth of both matrices is adjacent: a vector of sums for each of some rows and columns."""

    dtype: str
    bits: int

    @property
    def bytes(self) -> int:
        return {**BYTES, **NARROW_BYTES}[self.dtype]

    @property
    def total(self) -> str:
        """The type of sums, and of the product."""
        return total_type(self.dtype)

    @property
    def rows(self) -> int:
        """With 512 bits there are 32 registers, else maybe only 16: for sums, for a vector of each row, and for one of
        a column."""
        return 4 if self.bits == 512 else 3

    @property
    def columns(self) -> int:
        return 6 if self.bits == 512 else 4

    @property
    def lanes(self) -> int:
        return self.bits // 8 // self.bytes

    @property
    def depth(self) -> int:
        return DOT_DEPTH[self.dtype]


def pays_dots(dtype: str, rows: Dim, columns: Dim, depth: Dim) -> bool:
    """Whether dot products are best for a product of this size, if the depth of both matrices is adjacent. For many
    rows packing pays: it takes a time that goes with the depth, and adding up sums one that goes with the rows. An open
    number counts as few, unless even the least that it can be is many. Few columns leave panels half empty."""
    if not isinstance(depth, int) or depth < LEAST_DOT_DEPTH:
        return False
    most = MOST_DOT_ROWS
    if dtype not in BYTES:
        widest = limit(columns, True)
        if isinstance(widest, int) and widest <= NARROW_DOT_COLUMNS:
            return True
        most = min(MOST_NARROW_DOT_ROWS, depth // NARROW_ROW_DEPTH)
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
    height = _even(rows, ROWS // unit.rows * unit.rows, unit.rows)
    flat = isinstance(rows, int) and rows <= FLAT * unit.rows
    width = _even(columns, FLAT_COLUMNS if flat else COLUMNS, unit.width)
    if not (isinstance(rows, int) and isinstance(columns, int)):
        return height, width
    least = LEAST_COLUMNS
    wanted = 1
    if isinstance(batch, int):
        wanted = _tiles(batch * max(rows, LEAST_TIMES) * columns * (depth if isinstance(depth, int) else unit.depth))
    if ROWS < rows <= min(columns, TALL):
        height = _even(rows, rows, unit.rows)
        least = 2 * unit.width
        most = max(TILE_BYTES // (height * unit.bytes), least)
        width = _balanced(batch, columns, most, least, unit.width, wanted)
    elif columns <= min(rows, LONG):
        width = _even(columns, columns, unit.width)
        most = min(ROWS, max(TILE_BYTES // (width * unit.bytes), LEAST_ROWS))
        height = _balanced(batch, rows, most, LEAST_ROWS, unit.rows, wanted)
        least = width
    if isinstance(batch, int):

        def tiles() -> int:
            return batch * -(-rows // height) * -(-columns // width)

        while tiles() < wanted:
            if width >= 2 * least:
                width = _even(columns, width // 2, unit.width)
            elif height >= 2 * LEAST_ROWS:
                height = _even(rows, height // 2, unit.rows)
            elif width >= 2 * LEAST_COLUMNS:
                width = _even(columns, width // 2, unit.width)
            else:
                break
    return height, width


def _ready_tile_shape(batch: Dim, rows: Dim, columns: Dim, depth: Dim, unit: RegisterTile) -> tuple[int, int]:
    """The same where the right matrix is read as it lies. Wide tiles waste less: their last columns are computed in
    whole register tiles. But few rows are one tile's: else several would read all of the right matrix."""
    if isinstance(rows, Expr):
        return OPEN_ROWS, _even(columns, LEAST_COLUMNS, unit.width)
    height, width = _even(rows, DOT_ROWS, unit.rows), _even(columns, COLUMNS, unit.width)
    if isinstance(batch, Expr) or isinstance(columns, Expr) or isinstance(depth, Expr):
        return height, width
    wanted = _tiles(batch * max(rows, LEAST_TIMES) * columns * depth)
    while batch * -(-rows // height) * -(-columns // width) < wanted:
        if rows > DOT_ROWS and height >= 2 * LEAST_ROWS:
            height = _even(rows, height // 2, unit.rows)
        elif width >= 2 * LEAST_COLUMNS:
            width = _even(columns, width // 2, unit.width)
        elif height >= 2 * LEAST_ROWS:
            height = _even(rows, height // 2, unit.rows)
        else:
            break
    return height, width


def is_own(nbytes: Dim, times: Dim, result: Dim) -> bool:
    """Whether each thread packs a matrix of so many bytes, whose elements are used so often for a product of so many
    bytes, for itself."""
    if not (isinstance(nbytes, int) and isinstance(times, int) and isinstance(result, int)):
        return False
    return nbytes <= min(OWN_BYTES, OWN_SHARE * result) and times >= OWN_TIMES


def row_tile(
    batch: Dim, rows: Dim, columns: Dim, depth: Dim, unit: RegisterTile, is_left: bool, ready: bool = False
) -> int:
    """Rows of a tile of whole rows of so many columns: as many as the cache holds, and as leaves enough tiles.

    A tile that is the left matrix of another product is scratch memory: a small one, if that has enough rows.
    """
    row = (columns if isinstance(columns, int) else LARGE) * unit.bytes
    most = min(ROWS, max(TILE_BYTES // row, LEAST_ROWS))
    if is_left and SMALL_BYTES // row >= SMALL_ROWS:
        most = min(most, SMALL_BYTES // row)
    wanted = 1
    if isinstance(rows, int) and isinstance(batch, int):
        work = batch * rows * (row // unit.bytes) * (depth if isinstance(depth, int) else unit.depth)
        wanted = _tiles(work)
    if ready and not isinstance(rows, int):
        return min(most, OPEN_ROW_TILE)
    return _balanced(batch, rows, most, LEAST_READY_ROWS if ready else LEAST_ROWS, unit.rows, wanted)


def leaves_threads_idle(batch: Dim, rows: Dim, columns: Dim, depth: Dim) -> bool:
    """Whether tiles of whole rows would be too few for the work of a product, whose columns can be shared."""
    if isinstance(batch, Expr) or isinstance(rows, Expr) or isinstance(columns, Expr) or isinstance(depth, Expr):
        return False
    return batch * (rows // LEAST_READY_ROWS) < 2 and _tiles(batch * max(rows, LEAST_TIMES) * columns * depth) > 1


def _tiles(work: int) -> int:
    """How many tiles a number of multiplications is worth."""
    return min(TILES, max(work // TILE_WORK, min(work // LEAST_WORK, FEW_THREADS[-1])))


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
