"""Kernel to kernel: transposed blocks, vectors, reuse, blocked sums, threads, prefetch, grids."""
