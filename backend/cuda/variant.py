"""Variants of a program's machine code for GPUs."""

from __future__ import annotations

from typing import NamedTuple


class Variant(NamedTuple):
    """What one program can be compiled for."""

    architecture: str  # such as "sm_80"
    is_wide: bool = False  # symbolic sizes need indices of 64 bits


SIMULATOR = Variant("simulator")
