"""The CPU: kernels of loop IR to machine code by way of LLVM, and calls of it."""
