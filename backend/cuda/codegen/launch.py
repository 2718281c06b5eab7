"""One launch: a function, its parameters, and how many threads run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ....ir.symbolic import Dim, Symbol, evaluate
from ....ir.types import dtype
from ....kernels.gpu import GPU
from ....kernels.loop.ir import Buffer
from ...artifact import decode, encode

LIMIT = (1 << 31) - (1 << 26)  # what 32 bits count, less what loops over the grid add beyond their ends
ALIGN = 16  # bytes to a multiple of which buffers begin: those of the widest access to memory


@dataclass(frozen=True)
class Launch:
    """One function of a module and how to run it."""

    function: str
    kernel: str  # whose tree of loops it is
    kind: str  # grid | block | warp
    count: Dim  # iterations of the outermost loop
    threads: int  # of a block
    buffers: tuple[Buffer, ...]
    sizes: tuple[Symbol, ...]
    sites: bool  # whether errors may be noted
    narrow: bool  # whether indices have 32 bits
    shared: int  # bytes of a block

    def header(self) -> dict[str, Any]:
        """As JSON has it."""
        return vars(self) | {
            "count": encode(self.count),
            "buffers": [
                [item.name, item.dtype.name, list(map(encode, item.shape)), item.role] for item in self.buffers
            ],
            "sizes": [symbol.name for symbol in self.sizes],
        }

    @staticmethod
    def from_header(header: dict[str, Any]) -> Launch:
        changed = {
            "count": decode(header["count"]),
            "buffers": tuple(
                Buffer(name, dtype(kind), tuple(map(decode, shape)), role)
                for name, kind, shape, role in header["buffers"]
            ),
            "sizes": tuple(map(Symbol, header["sizes"])),
        }
        return Launch(**header | changed)


def blocks(launch: Launch, count: int) -> int:
    """Blocks for so many iterations of the outermost loop."""
    each = {"grid": launch.threads, "warp": launch.threads // 32, "block": 1}[launch.kind]
    return min(-(-count // each), GPU.most_blocks)


def fits(reaches: Iterable[Dim], sizes: Mapping[str, int]) -> bool:
    """Whether 32 bits count what symbolic sizes make of this."""
    return all(evaluate(item, sizes) < LIMIT for item in reaches)
