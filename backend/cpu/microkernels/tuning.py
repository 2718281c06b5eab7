"""Constants of the micro-kernels that are independent of a product's sizes."""

from __future__ import annotations

from ....ir.record import Record


class MicroKernels(Record):
    """Constants of packing, prefetching and transposition; chosen, no measurement of a single one is recorded."""

    flat_depth: int = 64  # depth of a block of a flat product: rows of the right matrix prefetched at a time
    narrow_panels: int = 4  # panels of columns up to which the left matrix is reused too little to be packed
    packed_panels: int = 8  # panels that are packed at a time
    fetched_steps: int = 16  # steps of the depth that packing prefetches ahead of copying
    block_rows: int = 16  # rows of the widest transposition network
    shuffled: int = 16  # bytes of a lane, within which shuffles are cheap
    columns_ahead: int = 16  # prefetch distance of transpositions, in columns, where a kernel does not give one
    fenced_rows: int = 4  # rows of lanes at which the widest network is cut in two by `fenced`


TUNING = MicroKernels()
