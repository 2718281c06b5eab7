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
    "graph.sorts",
    "graph.joins",
    "fusion.fuse",
    "loop.split_ranges",
    "loop.transpose",
    "loop.vectorize",
    "loop.reuse_columns",
    "loop.blocked_sum",
    "loop.interchange",
    "loop.parallelize",
    "loop.nontemporal",
    "loop.prefetch",
    "loop.strip_mine",
    "loop.grid",
    "loop.check_bounds",
)
