"""Set the thresholds of fusion, and of the graph passes that prepare it."""

from __future__ import annotations

from ...ir.record import Record


class FusionCosts(Record):
    """When ops share a kernel. Costs are in additions of one element. No measurement is recorded."""

    recompute: int = 8  # cost of a value, at most, that every reader computes again
    much: int = 16  # ratio of element counts from which the work on the smaller value is negligible
    shared_elements: int = 1024  # elements of a value, at least, whose readers share a kernel to read it once
    absorbed: int = 32  # ops, at most, that one scatter or scan absorbs
    joined_run: int = 64  # adjacent elements of a part in the joined value, at least
    whole_row: int = 4096  # columns, at most, of a tile of whole rows
    kept_row: int = 1 << 18  # elements of a row, at most, that are kept in scratch for a later loop
    right_elements: int = 1 << 17  # elements of a right matrix, at most, that each tile of a chain may read anew


COSTS = FusionCosts()
