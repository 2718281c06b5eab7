"""Limits on memory and work of the back end of torch.compile."""

from __future__ import annotations

from ..ir.record import Record


class TorchLimits(Record):
    """Chosen, not measured."""

    calls: int = 1024  # sets of sizes whose calls a step keeps: sizes may grow with every call
    models: int = 4  # models whose frozen constants a program keeps
    constant: int = 1 << 20  # bytes: the largest tensor that is computed once and kept as a constant
    some_size: int = 16  # elements: stands for a data-dependent size when an op is tried
    kernel_places: int = 9  # kernel elements of the largest depthwise convolution that is compiled


LIMITS = TorchLimits()
