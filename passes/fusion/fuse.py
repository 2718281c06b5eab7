"""Fuse primitives into groups of one kernel each, with a recorded reason (reasons.py) for every refused producer.

Ops are visited in order and each is merged into the groups that make its operands whenever the merged group
still is one loop tree. Three questions are kept apart:

    start.py     what one op reads and makes, along which axes (axes.py)
    legality.py  whether two groups can be one, by their kinds, reads and loops (loop_tree.py)
    policy.py    whether they should be, and which groups run side by side

`Fuser.merge` asks them in this order: kinds, cost, reads, loops; the first obstacle is the recorded one. merge.py makes
one group of two. At the end, a matrix product may take in the group that makes its left matrix (gemm_chain.py).

A join of values that nothing else reads has no kernel: the kernels of its parts store them in its memory
(concat_in_place.py). Ops that cost nothing where they are read belong to no group (inline.py).
"""

from __future__ import annotations

import math

from ...ir.graph import Graph, Op
from ...kernels.machine import DEFAULT, Machine
from ...ops.kinds import Join
from ..registry import graph_pass
from .fused import Fused
from .gemm_chain import chain
from .groups import Group, Partition
from .inline import Inlining
from .legality import kind_obstacle, read_obstacle, union_of
from .merge import merged
from .names import name_values
from .policy import constants_first, cost_obstacle, early_ops, launches, siblings
from .reasons import Obstacle, Reason, Refusal
from .start import parts_in_place, start


class Fuser:
    """Grows groups op by op."""

    def __init__(self, graph: Graph, max_cost: int, whole_rows: bool, machine: Machine | None):
        self.max_cost = max_cost
        self.whole_rows = whole_rows
        self.products_together = machine is not None
        self.split = (machine or DEFAULT).sharing.reduction
        self.partition = Partition(graph, Inlining(graph, machine))
        self.basis, self.early = early_ops(graph)
        self.refusals: dict[tuple[str, str, Obstacle], Refusal] = {}

    def run(self) -> Fused:
        """Fuse every op in turn, then siblings, then chains of matrix products."""
        partition = self.partition
        started = 0
        for op in partition.graph.ops:
            if op in partition.inlining:
                continue
            source = partition.inlining.alias(op)
            if source is not None:
                partition.aliases[op.results[0]] = source
                continue
            self._add(op, started)
            started += 1
        self._merge_siblings()
        if self.whole_rows:
            chain(partition, self.refuse)
        return self._finished()

    def _add(self, op: Op, number: int) -> None:
        """Make a group of an op, and merge it into the groups that make its operands."""
        partition = self.partition
        basis, limit = self.basis[op.results[0]], self.early.get(op, math.inf)
        group = start(partition, number, op, basis, limit, self.split)
        if isinstance(op.defn.kind, Join) and (parts := parts_in_place(partition, op)):
            partition.parts.update(parts)
            group = group._replace(kind="join", structure=None)
        producers = partition.add(group)
        if group.kind == "join":
            return
        for producer in producers:
            if producer.number in partition.groups and producer is not group:
                group = self.merge(producer, group) or group

    def merge(self, left: Group, right: Group, record: bool = True) -> Group | None:
        """Replace two groups by their union and return it, or return None with the reason recorded."""
        partition = self.partition
        obstacle = (
            kind_obstacle(partition, left, right, self.whole_rows)
            or cost_obstacle(left, right, self.max_cost)
            or read_obstacle(partition, left, right)
        )
        found = obstacle or union_of(partition, left, right, self.split)
        if not isinstance(found, Obstacle):
            return partition.adopt(merged(partition, left, right, found), left, right)
        if record and found.reason is not Reason.CHAIN:
            self.refuse(left, right, found)
        return None

    def refuse(self, producer: Group, consumer: Group, obstacle: Obstacle) -> None:
        """Record why two groups are not one."""
        key = producer.label, consumer.label, obstacle
        self.refusals[key] = Refusal(*key)

    def _merge_siblings(self) -> None:
        """Merge groups that read the same data along the same axes, so that it is read once."""
        groups, dependences = self.partition.groups, self.partition.dependences
        gone: dict[int, int] = {}
        for value, first, second in siblings(self.partition):
            while first in gone:
                first = gone[first]
            while second in gone:
                second = gone[second]
            if first == second:
                continue
            left, right = groups[first], groups[second]
            if value not in left.touch or value not in right.touch:
                continue
            if dependences.depends(right, left) or dependences.depends(left, right):
                continue
            if self.merge(left, right, record=False) is not None:
                gone[second] = first

    def _finished(self) -> Fused:
        partition = self.partition
        partition.groups = {number: self._complete(group) for number, group in partition.groups.items()}
        return Fused(
            partition.graph,
            launches(partition, self.max_cost, self.products_together),
            partition.inlining.ops(),
            partition.aliases,
            list(self.refusals.values()),
            partition.axes,
            partition.parts,
            name_values(partition.graph),
        )

    def _complete(self, group: Group) -> Group:
        """Return the group with its outputs and loops, now that all groups are known."""
        left = None if group.left is None else self._complete(group.left)
        inside = set(group.ops)
        taken = set() if left is None else set(left.ops)
        outputs = tuple(
            value
            for op in group.ops
            if op not in taken
            for value in op.results
            if value is not group.tile and self.partition.escapes(group, value, inside)
        )
        structure, roots = group.structure, self.partition.axes.roots
        if structure is not None:
            structure = structure.but(outer=roots(structure.outer), inner=roots(structure.inner))
        return group._replace(
            left=left, outputs=outputs if left is None else (*left.outputs, *outputs), structure=structure
        )


@graph_pass("fuse")
def fuse(graph: Graph, *, max_cost: int = 1024, whole_rows: bool = True, machine: Machine | None = None) -> Fused:
    """Group primitives into kernels, and record why others share none. With a `machine`, matrix products read
    matrices in its packed layout in place, and share launches with each other.

    max_cost: additions for each element that one kernel may cost, at most
    whole_rows: whether tiles of matrix products may cover whole rows, for reductions of them and for chains"""
    return Fuser(constants_first(graph), max_cost, whole_rows, machine).run()
