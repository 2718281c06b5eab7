"""Every pass. One file per pass or family; naming a file here registers its passes (manager.PASSES)."""

from __future__ import annotations

MODULES = (
    "cleanup",
    "decompose",
    "simplify",
    "fuse",
    "loop.split",
    "loop.transpose",
    "loop.vectorize",
    "loop.parallelize",
    "loop.stream",
)
