"""Hand-made kernels as LLVM text: GEMM, dot products, transposition; and their compiled libraries."""
