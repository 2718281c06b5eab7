"""Calls of aten ops, recorded from PyTorch's databases: smelt against eager, forward and all derivatives."""
