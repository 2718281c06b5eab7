"""Every pass. One file per pass or family; naming a file here registers its passes (registry.PASSES)."""

from __future__ import annotations

MODULES = (
    "graph.cleanup",
    "graph.layout",
    "graph.round_results",
    "graph.decompose",
    "graph.simplify",
    "graph.sink_slices",
    "graph.split_reductions",
    "graph.joins",
    "fusion.fuse",
    "loop.part",
    "loop.transpose",
    "loop.vectorize",
    "loop.keep",
    "loop.block",
    "loop.interchange",
    "loop.parallelize",
    "loop.stream",
    "loop.fetch",
    "loop.strip",
    "loop.grid",
    "loop.check_bounds",
)
