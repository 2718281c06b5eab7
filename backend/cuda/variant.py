"""Name a variant of a program's machine code for GPUs."""

from __future__ import annotations

from typing import NamedTuple


class Variant(NamedTuple):
    """The architecture and the index width that a program is compiled for."""

    architecture: str  # such as "sm_80"
    is_wide: bool = False  # whether indices have 64 bits, for large symbolic sizes


SIMULATOR = Variant("simulator")
