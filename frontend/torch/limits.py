"""How much the back end of torch.compile keeps and tries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TorchLimits:
    """Chosen, not measured."""

    calls: int = 1024  # sizes that a step remembers; a program whose sizes grow with every call has no end of them
    models: int = 4  # whose constants a program keeps
    constant: int = 1 << 20  # bytes of a constant, at most, that is a part of the program
    some_size: int = 16  # in place of a size that only data decides, to try an op
    kernel_places: int = 9  # of a convolution, at most, that is computed place by place


LIMITS = TorchLimits()
