"""List the reasons why ops do not share a kernel, and where each is raised."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...ir.record import Record


class Reason(Enum):
    """Reasons to refuse a merge, with their texts; {} stands for a detail of the case at hand."""

    # Kinds: legality.kind_obstacle (OWN_KERNEL: gemm_chain.chain, too)
    OWN_KERNEL = "{} has a kernel of its own"
    JOINED = "it is joined by the kernels that make its parts"
    STORES_PARTS = "it stores parts of a joined value"
    # Cost: policy.cost_obstacle
    COST = "the kernel would cost over {} additions an element"
    EARLY = "a small reduction is done first, so that all of a large kernel can use it"
    # Reads: legality.read_obstacle (BETWEEN, OTHER_PLACES: gemm_chain.chain, too); OTHER_PLACES of a gather, BROADCAST
    # and OTHER_ORDER: legality.union_of
    BETWEEN = "an op between them is in another kernel"
    OTHER_PLACES = "{} reads it at other places"
    OTHER_SHAPE = "it is read in another shape"
    BROADCAST = "one of them reads a broadcast of the other"
    OTHER_ORDER = "it is read with its dims in another order"
    # Loops: loop_tree.loop_tree
    RECOMPUTED = "they iterate over different dims, and computing one again and again would cost more"
    OTHER_DIMS = "they iterate over different dims"
    REDUCES_OTHERS = "{} reduces other dims"
    ACROSS_MEMORY = "{} and the other reductions would read across memory"
    INCOMPLETE = "{} needs a reduction over all rows to be complete"
    # Matrix products. DATA_CHOOSES, NO_WHOLE_ROWS, PRODUCT_NOT_READ: legality.kind_obstacle. PRODUCT_NOT_TILED,
    # FEW_ROWS, LONG_ROWS: gemm_chain.no_whole_rows. ACROSS_ROWS, STORED_ACROSS: legality.union_of
    DATA_CHOOSES = "a matrix product shares its kernel with no reads at places that data chooses"
    NO_WHOLE_ROWS = "tiles of matrix products have no whole rows"
    PRODUCT_NOT_TILED = "a matrix product like this shares its kernel with elementwise ops only"
    FEW_ROWS = "the matrix product has too few rows for threads to share them"
    LONG_ROWS = "the rows of the matrix product are too long to stay in the cache"
    PRODUCT_NOT_READ = "it does not read the matrix product"
    ACROSS_ROWS = "a matrix product shares its kernel with reductions of its rows only"
    STORED_ACROSS = "its rows would be stored across memory"
    # Chains of two matrix products: gemm_chain.chain
    TILE_TYPE = "a tile in {} is not what a product of {} reads"
    MORE_THAN_LEFT = "the second product needs more of the first than its left matrix"
    IN_MEMORY = "it is needed in memory all the same"
    LARGE_MATRICES = "its tiles would each read large matrices"
    CHAIN = ""  # legality.kind_obstacle leaves two products to gemm_chain.py: never recorded

    def __call__(self, *details: object) -> Obstacle:
        """Return this reason with its details."""
        return Obstacle(self, details)


class Obstacle(NamedTuple):
    """A reason in a case at hand."""

    reason: Reason
    details: tuple[object, ...] = ()

    def __str__(self) -> str:
        return self.reason.value.format(*self.details)


class Refusal(Record):
    """Why a producer and a consumer, named by their last ops, do not share a kernel."""

    producer: str
    consumer: str
    obstacle: Obstacle

    @property
    def reason(self) -> Reason:
        return self.obstacle.reason

    def __str__(self) -> str:
        return f"{self.producer} -> {self.consumer}: {self.obstacle}"
