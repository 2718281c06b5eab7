"""Define groups of ops, and keep the partition of a graph into groups while fusion merges them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ...ir.graph import Graph, Op, Value
from .axes import Axes, AxisSet, AxisUnion
from .concat_in_place import Part
from .inline import Inlining
from .loop_tree import Reduction, Structure


class Group(NamedTuple):
    """Ops that become one loop tree (kind "loops"), or one op that has a kernel of its own kind. A merge makes a new
    group; the tables of the two that it replaces belong to it then."""

    number: int
    kind: str
    ops: list[Op]
    touch: dict[Value, Axes]
    opaque: dict[Value, str]  # read at indices that follow no axes, and the name of the op that reads
    row_reads: dict[tuple[Value, Op], Axes]  # ANY marks a dim in which data chooses the index
    cells: dict[AxisSet, int]  # iteration space -> summed cost
    reduces: list[Reduction]
    operand_axes: dict[Op, Axes]  # of reductions
    structure: Structure | None = None
    outputs: tuple[Value, ...] = ()
    basis: int = 0  # elements of the largest value that the group depends on
    limit: float = math.inf  # a group of this basis or more needs this one complete
    product: Value | None = None  # of a matrix product: its result, in the shape in which it is read
    left: Group | None = None  # of a matrix product: the group that makes its left matrix, a tile of rows at a time
    tile: Value | None = None  # of a group that is the `left` of another: that matrix

    @property
    def label(self) -> str:
        """Return the name of the group in refusals: its last op's."""
        return self.ops[-1].name

    @property
    def cost(self) -> int:
        """Return the cost of one element of every value, in additions: a measure of the code's length."""
        return sum(self.cells.values())

    def reads(self) -> Iterator[Value]:
        """Yield the values that the group reads, and some that it makes."""
        yield from (*self.touch, *self.opaque, *(value for value, _ in self.row_reads))
        if self.left is not None:
            yield from self.left.reads()


class Dependences:
    """The transitive dependences among groups. `ancestors` has, by group number, a bit set of the groups that it
    depends on: numbers are given in order and never reused."""

    def __init__(self) -> None:
        self.ancestors: dict[int, int] = {}
        self.readers: dict[int, set[int]] = {}  # consumers of each group, by the numbers they had
        self.taken: dict[int, int] = {}  # the group that a merged one became part of

    def add(self, number: int, producers: list[Group]) -> None:
        """Add a group that no other depends on yet."""
        mask = 0
        self.readers[number] = set()
        for producer in producers:
            mask |= (1 << producer.number) | self.ancestors[producer.number]
            self.readers[producer.number].add(number)
        self.ancestors[number] = mask

    def join(self, left: int, right: int) -> None:
        """Merge the right group into the left one."""
        bits = (1 << left) | (1 << right)
        union = (self.ancestors[left] | self.ancestors[right]) & ~bits
        self.ancestors[left] = union
        del self.ancestors[right]
        self.readers[left] |= self.readers.pop(right)
        self.taken[right] = left
        self._tell_readers(left, union | (1 << left))

    def _tell_readers(self, first: int, found: int) -> None:
        """Add ancestors to all groups that depend on `first`; a group that has them all has passed them on."""
        pending = list(self.readers[first])
        while pending:
            number = pending.pop()
            while number in self.taken:
                number = self.taken[number]
            if number != first and found & ~self.ancestors[number]:
                self.ancestors[number] |= found
                pending.extend(self.readers[number])

    def depends(self, reader: Group, maker: Group) -> bool:
        """Whether one group depends on another."""
        return bool(self.ancestors[reader.number] >> maker.number & 1)


class Partition:
    """The groups of a graph so far, the values that each makes, and aliases and parts in memory."""

    def __init__(self, graph: Graph, inlining: Inlining):
        self.graph = graph
        self.inlining = inlining
        self.axes = AxisUnion()
        self.groups: dict[int, Group] = {}
        self.owner: dict[Value, int] = {}
        self.dependences = Dependences()
        self.aliases: dict[Value, Value] = {}
        self.parts: dict[Value, Part] = {}  # values whose memory is a part of a joined value's
        self.position = {op: number for number, op in enumerate(graph.ops)}

    def find(self, value: Value) -> Group | None:
        """Return the group that makes a value, or None."""
        number = self.owner.get(value)
        return None if number is None else self.groups.get(number)

    def stored(self, value: Value) -> Value:
        """Return the value whose memory holds a value."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def producers(self, group: Group) -> list[Group]:
        """Return the groups that make the values that a group reads, the last one first."""
        found: dict[int, Group] = {}
        owner, groups, aliases = self.owner, self.groups, self.aliases
        for value in group.reads():
            number = owner.get(self.stored(value) if value in aliases else value)
            producer = None if number is None else groups.get(number)
            if producer is not None and producer is not group:
                found[producer.number] = producer
        return [found[number] for number in sorted(found, reverse=True)]

    def between(self, first: Group, last: Group) -> bool:
        """Whether a third group depends on `first`, and `last` depends on it."""
        if not self.dependences.depends(last, first):
            return False
        ancestors, bit = self.dependences.ancestors, 1 << first.number
        return any(producer is not first and ancestors[producer.number] & bit for producer in self.producers(last))

    def in_order(self, left: list[Op], right: list[Op]) -> list[Op]:
        """Return the ops of both in the order of the program."""
        both = [*left, *right]
        position = self.position
        return both if position[left[-1]] < position[right[0]] else sorted(both, key=position.__getitem__)

    def add(self, group: Group) -> list[Group]:
        """Add a new group; return its producers."""
        producers = self.producers(group)
        self.dependences.add(group.number, producers)
        self.groups[group.number] = group
        for op in group.ops:
            for value in op.results:
                self.owner[value] = group.number
        return producers

    def adopt(self, merged: Group, left: Group, right: Group) -> Group:
        """Replace two groups by their union, which has the number of the left one."""
        self.groups[left.number] = merged
        del self.groups[right.number]
        for op in right.ops:
            for value in op.results:
                self.owner[value] = merged.number
        self.dependences.join(left.number, right.number)
        return merged

    def escapes(self, group: Group, value: Value, inside: set[Op]) -> bool:
        """Whether a value that a group makes is needed outside of it."""
        if group.product is not None and value is self.stored(group.product):
            value = group.product
        return self.inlining.escapes(value, inside)
