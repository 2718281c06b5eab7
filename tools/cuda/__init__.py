"""Measuring CUDA code without a GPU."""
