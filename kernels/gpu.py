"""Resources of a GPU, and the tiling of kernels and matrix products for its blocks.

The micro-kernel of matrix products is in backend/cuda/codegen/product.py."""

from __future__ import annotations

from ..ir.record import Record
from ..ir.symbolic import Dim


class Gpu(Record):
    """The GPU that kernels are planned for, and how work is cut for its blocks. Facts are NVIDIA's; no measurement of
    the rest is recorded."""

    warp: int = 32  # threads of a warp
    shared: int = 48 << 10  # bytes of shared memory that a block has without asking for more
    registers: int = 65536  # registers of a multiprocessor, in all architectures
    register_unit: int = 256  # registers: a warp gets a multiple of these
    shared_unit: int = 128  # bytes: a block gets a multiple of these
    launch: float = 3e-6  # seconds from the end of one kernel to the start of the next
    access: int = 16  # bytes that a thread moves at a time, at most
    threads: int = 256  # threads of a block whose threads are independent
    most_threads: int = 512  # threads of any block, at most: with more, a thread could have no more than 64 registers
    row_warps: int = 4  # warps of a block, with a row each
    alone: int = 8  # iterations of an inner loop, at most, that one thread runs
    warp_row: int = 1024  # iterations of inner loops, at most, that a warp shares; a block shares more
    each: int = 8  # iterations of a long row for each thread, at least, before a block gets more threads
    most_blocks: int = 1 << 16  # blocks, at most: enough for any GPU; threads loop over further iterations
    loads: int = 8  # loads of a thread in flight, at most: their results take registers
    private_row: int = 32  # elements of a row that a thread keeps in registers
    own: int = 512  # bytes of a thread's scratch, at most: local memory is reserved for all threads that could run
    square: int = 4  # rows and columns of a tile that one thread computes
    tiles: tuple[int, int] = (32, 64)  # rows and columns of the tile of a block: 64 or 256 threads
    many_tiles: int = 64  # large tiles that are enough for a GPU; if there are fewer, tiles are small
    depth: int = 16  # depth of the matrices that are in shared memory at a time
    row: int = 4096  # elements of a row, at most, that are kept in shared memory; a longer one is computed again
    rows: int = 44 << 10  # bytes of all rows that are kept; the rest of shared memory is for reductions


GPU = Gpu()


def block_tile(batch: Dim, rows: Dim, columns: Dim) -> int:
    """Choose the rows and columns of a block's tile, by sizes alone."""
    small, large = GPU.tiles
    if not (isinstance(batch, int) and isinstance(rows, int) and isinstance(columns, int)):
        return large
    return large if batch * -(-rows // large) * -(-columns // large) >= GPU.many_tiles else small


def block_threads(tile: int) -> int:
    """Return the number of threads that compute a tile."""
    return (tile // GPU.square) ** 2
