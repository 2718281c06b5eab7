"""Proofs about the kernels of many programs: `make proofs`."""
