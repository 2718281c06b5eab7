"""Check whether two groups can legally be fused, at any cost: pure functions that return the obstacle, or none.

reasons.py lists all obstacles, with the functions that raise them; fuse.py asks the questions, in the order that it
says. Other refusals come from policy.py (cost), loop_tree.py (loops) and gemm_chain.py (matrix products).

Two groups can be one if the result still is one loop tree (loop_tree.py). A matrix product takes the ops that follow
its rows and columns: they run on each tile of it while that is still in the cache. Reductions of its rows are among
them if a tile of whole rows is small enough (gemm_chain.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...ir.graph import Op, Value
from ...ops.kinds import Contract
from .axes import ANY, Axes, AxisSet, AxisUnion, present
from .gemm_chain import no_whole_rows
from .groups import Group, Partition
from .loop_tree import Candidate, Reduction, Structure, loop_tree
from .reasons import Obstacle, Reason

Rename = Callable[[int], int]


class Union(NamedTuple):
    """The loops of two groups that can be one."""

    mapping: dict[int, int]  # axes of the right group -> axes of the left one
    ops: list[Op]
    cells: dict[AxisSet, int]
    reduces: list[Reduction]
    structure: Structure
    product: Value | None


class Renames(dict[int, int]):
    """The names of axes in a union, filled in as they are asked for."""

    def __init__(self, axes: AxisUnion, mapping: dict[int, int]):
        super().__init__()
        self.axes = axes
        self.mapping = mapping

    def __missing__(self, axis: int) -> int:
        root = self.axes.find(axis)
        name = self[axis] = self.mapping.get(root, root)
        return name


def kind_obstacle(partition: Partition, left: Group, right: Group, whole_rows: bool) -> Obstacle | None:
    """Return why groups of these kinds cannot share a kernel. `whole_rows`: tiles of products may cover whole rows."""
    if left.kind == "loops" and right.kind == "loops":
        return None
    special, other = (left, right) if left.kind != "loops" else (right, left)
    if special.product is not None and other.product is not None:
        return Reason.CHAIN()
    if special.kind == "join":
        return Reason.JOINED()
    if special.product is None or other.kind != "loops":
        return Reason.OWN_KERNEL(special.label)
    if other.row_reads:
        return Reason.DATA_CHOOSES()
    if other.reduces and not whole_rows:
        return Reason.NO_WHOLE_ROWS()
    if other.reduces and (obstacle := no_whole_rows(special)):
        return obstacle
    owner, number = partition.owner, special.number
    if not any(owner.get(value) == number or value is special.product for value in other.touch):
        return Reason.PRODUCT_NOT_READ()
    if partition.parts and any(value in partition.parts for op in other.ops for value in op.results):
        return Reason.STORES_PARTS()
    return None


def read_obstacle(partition: Partition, left: Group, right: Group) -> Obstacle | None:
    """Return why one group cannot be computed where the other one reads it: dependences and access patterns."""
    if partition.between(left, right) or partition.between(right, left):
        return Reason.BETWEEN()
    depends, find, stored = partition.dependences.depends, partition.find, partition.stored
    pairs = [(reader, maker) for reader, maker in ((right, left), (left, right)) if depends(reader, maker)]
    for reader, maker in pairs:
        for value, name in reader.opaque.items():
            if find(stored(value)) is maker:
                return Reason.OTHER_PLACES(name)
    for reader, maker in pairs:
        for value in (*reader.touch, *(value for value, _ in reader.row_reads)):
            if value in partition.aliases and value is not maker.product and find(stored(value)) is maker:
                return Reason.OTHER_SHAPE()
    return None


def union_of(partition: Partition, left: Group, right: Group, split: int) -> Union | Obstacle:
    """Return the loops of both groups as one tree, or why they are none. `split`: elements from which a full reduction
    is split over threads."""
    mapping = _unified(partition, left, right)
    if isinstance(mapping, Obstacle):
        return mapping
    rename = Renames(partition.axes, mapping).__getitem__
    cells: dict[AxisSet, int] = {}
    for group in (left, right):
        for cell, cost in group.cells.items():
            named = frozenset(map(rename, cell))
            cells[named] = cells.get(named, 0) + cost
    reduces = [
        (op, frozenset(map(rename, space)), frozenset(map(rename, over)))
        for op, space, over in (*left.reduces, *right.reduces)
    ]
    ops = partition.in_order(left.ops, right.ops)
    product = right.product if left.product is None else left.product
    structure: Structure | Obstacle | None = _same_structure(left, right, cells, rename)
    if structure is None:
        looped = ops if product is None else [op for op in ops if not isinstance(op.defn.kind, Contract)]
        tables = (left.touch, right.touch)
        candidate = Candidate(looped, cells, reduces, tables, rename, partition.axes.extent, partition.inlining)
        structure = loop_tree(candidate, split)
    if isinstance(structure, Obstacle):
        return structure
    obstacle = None
    if product is not None:
        obstacle = _product_obstacle(left, right, product, bool(reduces), structure, rename)
    obstacle = obstacle or _row_obstacle(partition, left, right, structure, rename)
    return obstacle or Union(mapping, ops, cells, reduces, structure, product)


def _product_obstacle(
    left: Group, right: Group, product: Value, reduces: bool, structure: Structure, rename: Rename
) -> Obstacle | None:
    """Return why the loops do not fit the tiles of a matrix product; None if they do."""
    rows = (left if product in left.touch else right).touch[product]
    if reduces and (structure.secondary or structure.inner != {rename(axis) for axis in present(rows[-1:])}):
        return Reason.ACROSS_ROWS()
    # Ops that already share the product's kernel were checked when they joined it.
    joins = left if left.product is None else right
    for axes in (joins.touch[op.results[0]] for op in joins.ops):
        if rows[-1] is not None and len(present(axes)) == len(present(rows)):
            if axes[-1] is None or rename(axes[-1]) != rename(rows[-1]):
                return Reason.STORED_ACROSS()
    return None


def _row_obstacle(
    partition: Partition, left: Group, right: Group, structure: Structure, rename: Rename
) -> Obstacle | None:
    """Return why a gather cannot choose within the rows that the other group makes; None if it can."""
    for group in (left, right):
        for (value, op), axes in group.row_reads.items():
            maker = partition.find(value)
            if maker is not left and maker is not right:
                continue
            chosen = {
                rename(at) for at, axis in zip(maker.touch[value], axes, strict=True) if axis == ANY and at is not None
            }
            space = set(map(rename, present(group.touch[op.results[0]])))
            if not chosen <= structure.inner or space != structure.outer or op in structure.post:
                return Reason.OTHER_PLACES(op.name)
    return None


def _same_structure(left: Group, right: Group, cells: dict[AxisSet, int], rename: Rename) -> Structure | None:
    """Return the left group's loop tree if the right group needs no other loops, as most ops; None if it may."""
    known = left.structure
    if known is None or right.reduces or known.secondary or len({over for _, _, over in left.reduces}) > 1:
        return None
    outer, inner = frozenset(map(rename, known.outer)), frozenset(map(rename, known.inner))
    every = outer | inner
    # An iteration space that was cheap enough to recompute may not be with another op in it.
    if any(cell != every and cell != outer for cell in (frozenset(map(rename, item)) for item in right.cells)):
        return None
    return Structure(outer, inner, known.secondary, known.post) if len(cells) == len(left.cells) else None


def _unified(partition: Partition, left: Group, right: Group) -> dict[int, int] | Obstacle:
    """Map axes of `right` to axes of `left`, such that every shared value has the same axes in both."""
    axes_of, find = partition.axes, partition.find
    mapping: dict[int, int] = {}
    taken: set[int] = set()

    def tie(ours: Axes, others: Axes, must: bool) -> Obstacle | None:
        pairs: list[tuple[int, int]] = []
        for here, there in zip(axes_of.root(ours), axes_of.root(others), strict=True):
            if here == ANY or there == ANY:
                continue
            if here is None or there is None:
                if here is not there and must:
                    return Reason.BROADCAST()
                continue
            if mapping.get(there, here) != here or (there not in mapping and here in taken):
                return Reason.OTHER_ORDER() if must else None
            pairs.append((there, here))
        for there, here in pairs:
            mapping[there] = here
            taken.add(here)
        return None

    few, many = (left.touch, right.touch) if len(left.touch) < len(right.touch) else (right.touch, left.touch)
    shared = [value for value in few if value in many]
    products = [group.product for group in (left, right) if group.product is not None]
    made = {value for value in shared if find(value) is left or find(value) is right}
    made.update(value for value in products if value in few and value in many)
    for value in shared:
        if value in made and (obstacle := tie(left.touch[value], right.touch[value], True)):
            return obstacle
    for (value, _), axes in right.row_reads.items():
        if value in left.touch and find(value) is left and (obstacle := tie(left.touch[value], axes, True)):
            return obstacle
    for (value, _), axes in left.row_reads.items():
        if value in right.touch and find(value) is right and (obstacle := tie(axes, right.touch[value], True)):
            return obstacle
    for value in sorted((v for v in shared if v not in made), key=lambda v: -v.ndim):
        tie(left.touch[value], right.touch[value], False)
    mine = axes_of.roots(frozenset().union(*left.cells)) - taken
    theirs = axes_of.roots(frozenset().union(*right.cells)) - mapping.keys()
    for there in sorted(theirs):
        extent = axes_of.extent[there]
        for here in sorted(mine):
            if axes_of.extent[here] == extent:
                mapping[there] = here
                mine -= {here}
                break
    return {there: here for there, here in mapping.items() if there != here}
