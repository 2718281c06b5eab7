"""The settings of a compilation: one frozen record, passed down unchanged."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.errors import ArgumentError
from ..ir.graph import current_location

VECTOR_BITS = (128, 256, 512)
ROUNDING = ("kernel", "op")


@dataclass(frozen=True)
class CompileOptions:
    """Settings of a compilation.

    target: "cpu" or "cuda"
    architecture: the GPU's, such as "sm_80"; None for that of the current GPU
    vector_bits: width of vectors, 128, 256 or 512; None for the machine's own width
    rounding: where f16 and bf16 are rounded: at the end of each "kernel", which computes in f32, or after each "op" of
        the program, as PyTorch does without a compiler
    max_cost: bound on the code size of one kernel, in additions
    replaced: numbers of the results that will be stored in place of parameters, where code allows it
    shared: those of them whose memory all threads read between calls, such as a model's weights
    addresses: native code gets the addresses of data, not of NumPy's objects
    verify: verify the program after every pass, and prove that its kernels stay in bounds and do not race
    check_bounds: kernels check every index before a memory access; slow, for the CPU alone
    annotate: put the program's statements and the user's lines into the LLVM text and the assembly
    """

    target: str = "cpu"
    architecture: str | None = None
    vector_bits: int | None = None
    rounding: str = "kernel"
    max_cost: int = 1024
    replaced: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    addresses: bool = False
    verify: bool = False
    check_bounds: bool = False
    annotate: bool = False

    def __post_init__(self) -> None:
        wrong = ""
        if self.vector_bits is not None and self.vector_bits not in VECTOR_BITS:
            wrong = f"vector_bits must be 128, 256, 512 or None, got {self.vector_bits!r}"
        elif self.rounding not in ROUNDING:
            wrong = f"rounding must be {' or '.join(map(repr, ROUNDING))}, got {self.rounding!r}"
        elif type(self.max_cost) is not int or self.max_cost < 1:
            wrong = f"max_cost must be a positive int, got {self.max_cost!r}"
        elif self.check_bounds and self.target != "cpu":
            wrong = f"check_bounds is for the target cpu, not {self.target}"
        if wrong:
            raise ArgumentError(f"CompileOptions: {wrong}", current_location(3))  # past the dataclass's own __init__
