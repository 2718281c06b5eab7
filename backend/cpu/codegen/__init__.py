"""Loop IR to LLVM text: kernels, loops, accesses, scalars."""
