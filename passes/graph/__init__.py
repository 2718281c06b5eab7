"""Graph to graph: decompose, simplify, clean up, split reductions, sink slices."""
