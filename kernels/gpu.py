"""What a block of a GPU has room for, and how matrix products are cut up for blocks. backend/cuda/codegen/product.py
has the code of the latter."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.symbolic import Dim


@dataclass(frozen=True, slots=True)
class Gpu:
    """What kernels may assume of any GPU, and how work is cut for its blocks. Facts are NVIDIA's; no measurement of the
    rest is recorded."""

    warp: int = 32  # threads
    shared: int = 48 << 10  # bytes of shared memory that a block has without asking for more
    registers: int = 65536  # of a multiprocessor, in all architectures
    register_unit: int = 256  # registers: a warp gets a multiple of these
    shared_unit: int = 128  # bytes: a block gets a multiple of these
    launch: float = 3e-6  # seconds until a kernel begins that waits for the one before
    access: int = 16  # bytes that a thread moves at a time, at most
    threads: int = 256  # of a block whose threads work on their own
    most_threads: int = 512  # of any block: with more, a thread may have no more than 64 registers
    row_warps: int = 4  # of a block that have a row each
    alone: int = 8  # iterations of an inner loop, at most, that are no work for several threads
    warp_row: int = 1024  # iterations of inner loops, at most, that a warp does; a block does more
    each: int = 8  # iterations of a long row for one thread, at least, before a block gets more of them
    most_blocks: int = 1 << 16  # enough for any GPU; more iterations are loops of their threads
    loads: int = 8  # at once of a thread: what they give takes registers
    private_row: int = 32  # elements of a row that a thread keeps in registers
    own: int = 512  # bytes of a thread's scratch, at most: memory is set aside for all threads that could run
    square: int = 4  # rows and columns of a tile that one thread computes
    tiles: tuple[int, int] = (32, 64)  # rows and columns of the tile of a block: 64 or 256 threads
    many_tiles: int = 64  # large tiles that are enough for a GPU; fewer are made small ones
    depth: int = 16  # of the matrices that are in shared memory at a time
    row: int = 4096  # elements of a row that its threads keep in shared memory; a longer one is computed again
    rows: int = 44 << 10  # bytes of all rows that are kept; the rest of shared memory is for reductions


GPU = Gpu()


def block_tile(batch: Dim, rows: Dim, columns: Dim) -> int:
    """Rows and columns of a tile, by sizes alone."""
    small, large = GPU.tiles
    if not (isinstance(batch, int) and isinstance(rows, int) and isinstance(columns, int)):
        return large
    return large if batch * -(-rows // large) * -(-columns // large) >= GPU.many_tiles else small


def block_threads(tile: int) -> int:
    """Threads that compute a tile."""
    return (tile // GPU.square) ** 2
