"""CUDA: kernels of loop IR as Python source for numba.cuda, and their way to machine code and to a launch."""
