"""One kernel: the loop IR, scalars, tiles, and the machine that kernels are planned for."""
