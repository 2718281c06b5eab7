"""Thresholds of fusion, and of the graph passes that prepare it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FusionCosts:
    """When ops share a kernel. Costs are in additions of one element. No measurement is recorded."""

    recompute: int = 8  # of a value, at most, that every reader computes again
    much: int = 16  # times as many elements: what is done for one of the others costs nothing beside these
    shared_elements: int = 1024  # of a value, at least, that is worth reading together
    absorbed: int = 32  # ops, at most, that one scatter or scan takes in
    joined_run: int = 64  # elements of a part, at least, that lie one after the other in the joined value
    whole_row: int = 4096  # columns, at most, of a tile of whole rows
    kept_row: int = 1 << 18  # elements of a row, at most, that are kept for a later loop and not computed again
    right_elements: int = 1 << 17  # of a right matrix, at most, that each tile of a chain may read anew


COSTS = FusionCosts()
