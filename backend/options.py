"""How to compile: one frozen record that travels down."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompileOptions:
    """target: "cpu". vector_bits: how wide vectors are (None: the machine's). max_ops: ops in one kernel at most.
    verify: check the program after every pass. want_asm: also give the assembly to the stage hook."""

    target: str = "cpu"
    vector_bits: int | None = None
    max_ops: int = 128
    verify: bool = False
    want_asm: bool = False
