"""List the passes of each target in their order."""

from __future__ import annotations

# To primitives, without redundant work: the start of every target.
GRAPH = ("decompose", "split", "slices", "simplify", "cse", "dce", "sorts", "joins")

# Loops of one kernel: from serial to vectorised and parallel.
LOOPS = (
    "split_ranges",
    "transpose",
    "vectorize",
    "reuse_columns",
    "blocked_sum",
    "interchange",
    "parallelize",
    "nontemporal",
    "prefetch",
    "strip_mine",
)

# The same for a GPU.
CUDA_LOOPS = ("split_ranges", "transpose", "grid")


def graph_passes(rounding: str) -> tuple[str, ...]:
    """Return the graph passes, by where f16 and bf16 are rounded: at the end of each "kernel" or after each "op"."""
    return ("round_results", *GRAPH) if rounding == "op" else GRAPH
