"""`ctx`, the block of 64-bit slots that is native code's one argument: the run time's addresses, then the sizes, the
parameters and the results of a graph."""

from __future__ import annotations

PARALLEL, POOL, ARENA, SCRATCH, SCRATCH_STRIDE, ERROR, PRODUCTS, WORKERS, FIRST_FREE = range(9)
ALIGN = 64  # of the arena and of each thread's scratch, in bytes
PRODUCT_TYPES = ("f32", "f64", "bf16")  # element types whose routines of matrix products are in the table at PRODUCTS
# What such a table has: null where a graph does not need it. The tiles are those for rows that are left over.
ROUTINES = ("gemm", "pack", "tile4", "tile2", "tile1", "dots")
