"""Figures of the micro-kernels that no size of a product decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MicroKernels:
    """How routines move matrices. No measurement of a single figure is recorded."""

    flat_depth: int = 64  # of a block of a flat product: so many rows are fetched from memory at a time
    narrow_panels: int = 4  # of columns, at most, that use the left matrix too little to pack it
    packed_panels: int = 8  # that are packed at a time
    fetched_steps: int = 16  # of the depth that packing fetches from memory before it copies them
    block_rows: int = 16  # of the widest network of transposes
    shuffled: int = 16  # bytes of the part of a vector in which shuffles move elements freely
    columns_ahead: int = 16  # between what is fetched and what is transposed, where a kernel does not say
    fenced_rows: int = 4  # turned rows at which the widest network is cut in two, for LLVM


TUNING = MicroKernels()
