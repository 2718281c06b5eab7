"""Every pass. One file per pass or family; adding a file here registers its passes (manager.PASSES)."""

from __future__ import annotations

from importlib import import_module

MODULES = ("cleanup", "decompose", "simplify", "fuse", "loop.vectorize", "loop.parallelize")

for _module in MODULES:
    import_module(f"{__name__}.{_module}")
