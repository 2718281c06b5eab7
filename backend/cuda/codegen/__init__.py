"""Loop IR, mapped to a grid, to Python source for numba.cuda."""
