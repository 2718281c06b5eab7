"""The CPU that kernels are planned for: one record of nominal figures for each instruction set.

Tiles, block sizes and thresholds read this record and never the host's own caches, so a program has the same bits on
any machine with the same instruction set (docs/decisions/0001-nominal-machine.md). backend/cpu/target.py says which
record the host plans with; `smelt doctor` prints it beside the detected figures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Machine:
    """What kernels may assume of a CPU. Sizes are bytes.

    The caches are the least of the processors on which thresholds were measured (Zen 3 and Zen 5; of their L2 caches
    the larger one, shares of which the passes use). A preset that differs from its like has a measurement to show.
    """

    name: str
    vector_bits: int
    dot_types: frozenset[str] = frozenset()  # narrow element types whose dot products are added up in f32
    line: int = 64
    page: int = 4 << 10
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 32 << 20

    @property
    def registers(self) -> int:
        """Vector registers that tiles use. AVX-512 and Arm have 32 for short vectors, too, but the width alone decides
        the tile, so that vectors of 256 bits give the same bits with and without AVX-512."""
        return 32 if self.vector_bits == 512 else 16

    @property
    def vector_bytes(self) -> int:
        return self.vector_bits // 8

    def with_vector_bits(self, bits: int | None) -> Machine:
        """The machine with vectors of another width, or itself. Narrow dot products have its full width only."""
        if bits in (None, self.vector_bits):
            return self
        name = f"{self.name.partition('@')[0]}@{bits}"
        return replace(self, name=name, vector_bits=bits, dot_types=frozenset())


PRESETS = {
    machine.name: machine
    for machine in (
        Machine("x86-64", 128),
        Machine("x86-64-v3", 256),
        Machine("x86-64-v4", 512),
        Machine("aarch64", 128),
    )
}
# The machine of passes and tools that are not told one.
DEFAULT = PRESETS["x86-64-v3"]


def machine(name: str) -> Machine:
    """The machine of a name: a preset, or one with vectors of another width, as "x86-64-v4@256"."""
    preset, _, bits = name.partition("@")
    found = PRESETS[preset]
    return found.with_vector_bits(int(bits)) if bits else found
