"""Parity with PyTorch, from the op registry: samples are data (samples_*.py), the runner does the rest."""
