"""Find the loop tree that computes a set of ops, or the reason why there is none.

    outer axes   the parallel loops: "rows"
    inner axes   the axes that the primary reductions run over; none in a pointwise group

    full values  over outer x inner                    softmax's exp(x - max)
    row values   over outer                            softmax's max and sum
    secondary    reductions that run across rows: over the outer axes (a column sum: the gradient of a norm's
                 weight) or over everything (a mean loss). Their results are only complete when all rows are
                 done, so in this kernel only elementwise ops on them may follow.

A value over fewer axes than that is recomputed in every iteration, if it is cheap and nothing outside of
the kernel needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from ...ir.graph import Op, Value
from ...ir.record import Record
from ...ir.symbolic import Dim, Expr, product
from ...ops.kinds import Elementwise, Reduce, View
from .axes import Axes, AxisSet, present
from .costs import COSTS
from .inline import Inlining, op_cost
from .reasons import Obstacle, Reason

Reduction = tuple[Op, AxisSet, AxisSet]  # the op, the axes of its operand, the axes that it reduces


class Structure(Record):
    """The loop tree of a group of loops."""

    outer: AxisSet
    inner: AxisSet
    secondary: frozenset[Op]
    post: frozenset[Op]  # elementwise ops on results of secondary reductions


class Candidate(Record):
    """Ops that might share a loop tree, in order."""

    ops: Sequence[Op]
    cells: dict[AxisSet, int]  # iteration space -> summed cost
    reduces: Sequence[Reduction]
    touch: tuple[dict[Value, Axes], ...]  # axes of the values that they make and read; the first table with one counts
    rename: Callable[[int], int]  # the name in `cells` of an axis of `touch`
    extent: Sequence[Dim]  # extents of all axes
    inlining: Inlining

    def space(self, op: Op) -> AxisSet:
        """Return the axes of an op's result."""
        axes = next(table[op.results[0]] for table in self.touch if op.results[0] in table)
        return frozenset(map(self.rename, present(axes)))

    @cached_property
    def every(self) -> AxisSet:
        return frozenset().union(*self.cells)

    @cached_property
    def adjacent(self) -> AxisSet:
        """Return the axes along which values over all axes are adjacent in memory."""
        found: set[int] = set()
        count = len(self.every)
        for number, table in enumerate(self.touch):
            for value, axes in table.items():
                if not count or len(axes) - axes.count(None) != count:
                    continue
                if not any(value in before for before in self.touch[:number]):
                    found.add(self.rename(next(axis for axis in reversed(axes) if axis is not None)))
        return frozenset(found)


def leaves_one(op: Op) -> bool:
    """Whether a partial result of a reduction is one number, not a number and its index."""
    return isinstance(op.defn.kind, Reduce) and op.defn.kind.result != "i64"


def loop_tree(candidate: Candidate, split: int) -> Structure | Obstacle:
    """Return the loop tree of these ops, or why there is none. A full reduction of more than `split` elements
    runs across rows."""
    every = candidate.every
    if not candidate.reduces:
        for cell in candidate.cells:
            if cell != every and not recomputable(candidate, cell):
                return Reason.RECOMPUTED()
        return Structure(every, frozenset(), frozenset(), frozenset())
    total = product(candidate.extent[axis] for axis in every)
    large = isinstance(total, Expr) or total > split
    options = list({over: None for _, _, over in candidate.reduces})
    if len(options) > 1:
        # Prefer inner loops along adjacent memory, and short ones.
        options.sort(key=lambda over: (not over & candidate.adjacent, len(over), sorted(over)))
    if large and any(over == every for _, _, over in candidate.reduces):
        options = [frozenset(), *(option for option in options if option != every)]
    obstacles: list[Obstacle] = []
    for inner in options:
        found = row_tree(candidate, inner)
        if isinstance(found, Structure):
            return found
        obstacles.append(found)
    return obstacles[0]


def row_tree(candidate: Candidate, inner: AxisSet) -> Structure | Obstacle:
    """Return the loop tree with these inner axes, or why there is none."""
    every = candidate.every
    outer = every - inner
    secondary: dict[Op, AxisSet] = {}
    for op, space, over in candidate.reduces:
        if inner and space == every and over == inner:
            continue
        whole = over == space and space in (every, outer)
        columns = inner and space == every and over == outer and leaves_one(op)
        if not outer or not (whole or columns):
            return Reason.REDUCES_OTHERS(op.name)
        if columns and candidate.adjacent and not inner & candidate.adjacent:
            return Reason.ACROSS_MEMORY(op.name)
        secondary[op] = space - over
    spaces = set(secondary.values())
    for cell in candidate.cells:
        if cell not in (every, outer) and cell not in spaces and not recomputable(candidate, cell):
            return Reason.OTHER_DIMS()
    post = after_rows(candidate, secondary, (every, outer)) if secondary else frozenset()
    return post if isinstance(post, Obstacle) else Structure(outer, inner, frozenset(secondary), post)


def after_rows(
    candidate: Candidate, secondary: dict[Op, AxisSet], rows: tuple[AxisSet, AxisSet]
) -> frozenset[Op] | Obstacle:
    """Return the ops that follow secondary reductions, or why they cannot."""
    inlining = candidate.inlining
    complete = dict(secondary)  # ops that are complete when all rows are done, and their axes
    narrow: list[Op] = []  # over the axes of secondary reductions, but dependent on none
    for op in candidate.ops:
        sources = {inlining.peel(operand)[0].op for operand in op.operands}
        spaces = {complete[source] for source in sources if source in complete}
        space = candidate.space(op)
        if spaces:
            if op in secondary or not isinstance(op.defn.kind, (Elementwise, View)) or spaces != {space}:
                return Reason.INCOMPLETE(op.name)
            complete[op] = space
        elif op not in secondary and space not in rows and space in secondary.values():
            narrow.append(op)
    post = frozenset(op for op in complete if op not in secondary)
    inside = set(candidate.ops)
    late = set(post)
    for op in reversed(narrow):
        # Computed once after the rows if only ops there read it, else recomputed in each row.
        if any(inlining.escapes(value, inside) for value in op.results):
            return Reason.OTHER_DIMS()
        if all(reader in late for value in op.results for reader in inlining.readers(value)):
            late.add(op)
        elif op_cost(op) > COSTS.recompute:
            return Reason.OTHER_DIMS()
    return post


def recomputable(candidate: Candidate, cell: AxisSet) -> bool:
    """Whether values over few axes are cheap enough to recompute in every iteration, and needed nowhere else."""
    if candidate.cells[cell] > COSTS.recompute:
        return False
    inside = set(candidate.ops)
    return not any(
        candidate.inlining.escapes(value, inside)
        for op in candidate.ops
        if candidate.space(op) == cell
        for value in op.results
    )
