"""How matrix products are cut up for the blocks of a GPU. backend/cuda/product.py has the code."""

from __future__ import annotations

THREADS = 256  # of a block
SQUARE = 4  # rows and columns of the tile that one thread computes
TILE = 64  # rows and columns of the tile of a block: 16 x 16 threads
DEPTH = 16  # of the matrices that are in shared memory at a time
SCRATCH = 4096  # elements of a row that its threads keep in shared memory; a longer one is computed again
