"""The machine that code is made for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Target:
    """A CPU: its name for LLVM, its instruction set features, and how wide its vectors are."""

    triple: str
    cpu: str
    features: str
    vector_bits: int


@lru_cache
def host() -> Target:
    """The CPU that this process runs on."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512bw") and features.get("avx512vl"):
        bits = 512
    elif features.get("avx2"):
        bits = 256
    else:
        bits = 128
    # The linker in memory knows ELF best, on Windows too.
    triple = llvm.get_process_triple() + ("-elf" if os.name == "nt" else "")
    return Target(triple, llvm.get_host_cpu_name(), features.flatten(), bits)
