"""Describe one launch: a function, its parameters, its grid and block size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ....ir.symbolic import Dim, Symbol, evaluate
from ....ir.types import dtype
from ....kernels.gpu import GPU
from ....kernels.loop.ir import Buffer
from ...artifact import decode, encode

LIMIT = (1 << 31) - (1 << 26)  # bound of indices in int32, less the overshoot of grid-stride loops
ALIGN = 16  # bytes; alignment of buffers, the width of the widest memory access


@dataclass(frozen=True)
class Launch:
    """One function of a module and its launch configuration."""

    function: str
    kernel: str  # name of the kernel of its tree of loops
    kind: str  # grid | block | warp
    count: Dim  # iterations of the outermost loop
    threads: int  # per block
    buffers: tuple[Buffer, ...]
    sizes: tuple[Symbol, ...]
    sites: bool  # whether it may note errors
    narrow: bool  # whether indices have 32 bits
    shared: int  # bytes of shared memory per block

    def header(self) -> dict[str, Any]:
        """Return its fields for JSON."""
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
    """Compute the number of blocks for so many iterations of the outermost loop."""
    each = {"grid": launch.threads, "warp": launch.threads // 32, "block": 1}[launch.kind]
    return min(-(-count // each), GPU.most_blocks)


def fits(reaches: Iterable[Dim], sizes: Mapping[str, int]) -> bool:
    """Whether the bounds fit in 32 bits for these symbolic sizes."""
    return all(evaluate(item, sizes) < LIMIT for item in reaches)
