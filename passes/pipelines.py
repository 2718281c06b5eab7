"""Which passes run in which order."""

from __future__ import annotations

# Primitives only, nothing done twice: what every target starts from.
GRAPH = ("decompose", "split", "slices", "simplify", "cse", "dce")

# Loops of one kernel: from serial to what the machine runs.
LOOPS = ("part", "transpose", "vectorize", "keep", "block", "interchange", "parallelize", "stream", "fetch", "strip")

# The same for a GPU.
CUDA_LOOPS = ("part", "transpose", "grid")
