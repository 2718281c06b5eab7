"""How to compile: one frozen record that travels down."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompileOptions:
    """Everything a caller may choose.

    target: "cpu" or "cuda"
    architecture: that of the GPU, such as "sm_80"; None for the one at hand
    vector_bits: how wide vectors are; None for the machine's own width
    max_cost: how long the code of one kernel may get, in additions
    addresses: native code gets the addresses of data, not of NumPy's objects
    verify: check the program after every pass
    annotate: put the program's statements and the user's lines into the LLVM text and the assembly
    want_asm: give the assembly to the stage hook, too
    """

    target: str = "cpu"
    architecture: str | None = None
    vector_bits: int | None = None
    max_cost: int = 1024
    addresses: bool = False
    verify: bool = False
    annotate: bool = False
    want_asm: bool = False
