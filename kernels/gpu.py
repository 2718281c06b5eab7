"""How matrix products are cut up for the blocks of a GPU. backend/cuda/product.py has the code."""

from __future__ import annotations

from ..ir.symbolic import Dim

SQUARE = 4  # rows and columns of a tile that one thread computes
TILES = 32, 64  # rows and columns of the tile of a block: 64 or 256 threads
MANY = 64  # large tiles that are enough for a GPU; fewer are made small ones
DEPTH = 16  # of the matrices that are in shared memory at a time
SCRATCH = 4096  # elements of a row that its threads keep in shared memory; a longer one is computed again


def block_tile(batch: Dim, rows: Dim, columns: Dim) -> int:
    """Rows and columns of a tile, by sizes alone."""
    small, large = TILES
    if not (isinstance(batch, int) and isinstance(rows, int) and isinstance(columns, int)):
        return large
    return large if batch * -(-rows // large) * -(-columns // large) >= MANY else small


def block_threads(tile: int) -> int:
    """Threads that compute a tile."""
    return (tile // SQUARE) ** 2
