"""What a block of a GPU has room for, and how matrix products are cut up for blocks. backend/cuda/codegen/product.py
has the code of the latter."""

from __future__ import annotations

from ..ir.symbolic import Dim

SQUARE = 4  # rows and columns of a tile that one thread computes
TILES = 32, 64  # rows and columns of the tile of a block: 64 or 256 threads
MANY = 64  # large tiles that are enough for a GPU; fewer are made small ones
DEPTH = 16  # of the matrices that are in shared memory at a time
SHARED = 48 << 10  # bytes of shared memory that a block has without asking for more
ROW = 4096  # elements of a row that its threads keep in shared memory; a longer one is computed again
ROWS = 44 << 10  # bytes of all rows that are kept; the rest is for reductions


def block_tile(batch: Dim, rows: Dim, columns: Dim) -> int:
    """Rows and columns of a tile, by sizes alone."""
    small, large = TILES
    if not (isinstance(batch, int) and isinstance(rows, int) and isinstance(columns, int)):
        return large
    return large if batch * -(-rows // large) * -(-columns // large) >= MANY else small


def block_threads(tile: int) -> int:
    """Threads that compute a tile."""
    return (tile // SQUARE) ** 2
