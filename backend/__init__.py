"""Kernels to code that runs: targets, settings, calls, and what all targets share."""
