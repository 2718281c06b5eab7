"""Calls in Numba's simulator of CUDA, which sees races."""
