"""Make a group of one op: the values that it reads and makes, along which axes.

Elementwise ops align dims, reductions drop axes, and rigid views rename them (axes.py). Any other read is opaque:
harmless for parameters, but it forbids fusion with the op that makes the value. A gather that follows the rows and
chooses within one is a row read: it may share a kernel with the op that makes the row. A kind with a kernel of its own
reads all its operands from memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.graph import Op, Value
from ...ir.symbolic import same
from ...ops.kinds import Contract, Elementwise, Gather, Kind, Reduce, View, registered
from .axes import ANY, Axes, AxisSet, aligned, present, rigid_map
from .concat_in_place import Part, part_of
from .costs import COSTS
from .groups import Group, Partition
from .inline import op_cost
from .loop_tree import Candidate, Reduction, Structure, loop_tree
from .reasons import Obstacle


class Start:
    """The reads and loops of one op."""

    def __init__(self, partition: Partition, op: Op):
        self.partition = partition
        self.inlining = partition.inlining
        self.axes = partition.axes
        self.op = op
        self.touch: dict[Value, Axes] = {}
        self.opaque: dict[Value, str] = {}
        self.row_reads: dict[tuple[Value, Op], Axes] = {}
        self.cells: dict[AxisSet, int] = {}
        self.reduces: list[Reduction] = []
        self.operand_axes: dict[Op, Axes] = {}
        self.product: Value | None = None

    def read_memory(self) -> None:
        """Add opaque reads of all operands from memory."""
        for value in self.op.operands:
            for base in self.inlining.memory(value):
                self.opaque[base] = self.op.name

    def make_result(self) -> Axes:
        """Add a loop over the result; return its axes."""
        (result,) = self.op.results
        axes = self.axes.over(result.shape)
        self.touch[result] = axes
        self.cells[present(axes)] = op_cost(self.op)
        return axes

    def read_anywhere(self, value: Value) -> None:
        """Add an opaque read: its index follows no axes."""
        base, _ = self.inlining.peel(value)
        self.opaque.setdefault(base, self.op.name)

    def read_row(self, value: Value, axes: Axes) -> None:
        """Add a read whose index follows the result's axes but for the dims in which data chooses."""
        if ANY not in axes:
            self.read_along(value, axes)
            return
        base, dims = self.inlining.peel(value)
        found = self._follows(base, dims, axes)
        if found is None or base in self.touch or (base, self.op) in self.row_reads:
            self.opaque.setdefault(base, self.op.name)
        else:
            self.row_reads[base, self.op] = found

    def read_along(self, value: Value, axes: Axes) -> None:
        """Add a read whose index follows the result's axes."""
        base, dims = self.inlining.peel(value)
        if base.op is not None and base.op in self.inlining:
            return  # computed from no memory: no read
        found = self._follows(base, dims, axes)
        if found is None or self.touch.setdefault(base, found) != found:
            self.opaque.setdefault(base, self.op.name)

    def _follows(self, base: Value, dims: tuple[int | None, ...] | None, axes: Axes) -> Axes | None:
        """Return the axes of a value's dims. None, an opaque read, unless each axis is proved to cover its whole dim: a
        gather may read only the first elements of one, and a loop over those would not make the others."""
        if dims is None:
            return None
        found = tuple(
            ANY if at is not None and axes[at] == ANY else None if at is None or size == 1 else axes[at]
            for at, size in zip(dims, base.shape, strict=True)
        )
        for axis, size in zip(found, base.shape, strict=True):
            if axis != ANY and not same(size, 1 if axis is None else self.axes.extent[axis]):
                return None
        return found


def _elementwise(start: Start, op: Op, kind: Elementwise) -> None:
    axes = start.make_result()
    for value in op.operands:
        start.read_along(value, aligned(axes, value))


def _view(start: Start, op: Op, kind: View) -> None:
    axes, step = start.make_result(), rigid_map(op)
    if step is None:
        start.read_anywhere(op.operands[0])
    else:
        start.read_along(op.operands[0], tuple(None if at is None else axes[at] for at in step))


def _gather(start: Start, op: Op, kind: Gather) -> None:
    if kind.aligned is None:
        _anywhere(start, op, kind)
        return
    axes = start.make_result()
    for name, dims in kind.aligned(op.arguments).items():
        start.read_row(op.arguments[name], tuple(ANY if dim is None else axes[dim] for dim in dims))


def _reduce(start: Start, op: Op, kind: Reduce) -> None:
    operand: Value = op.arguments["self"]
    reduced = op.arguments["dim"]
    axes = start.axes.over(operand.shape)
    start.read_along(operand, axes)
    start.operand_axes[op] = axes
    kept = tuple(
        None if dim in reduced else axis
        for dim, axis in enumerate(axes)
        if op.arguments["keepdim"] or dim not in reduced
    )
    space = present(axes)
    over = space - present(kept)
    start.touch[op.results[0]] = kept
    if over:
        start.reduces.append((op, space, over))
    start.cells[space] = 1


def _contract(start: Start, op: Op, kind: Contract) -> None:
    start.read_memory()
    start.product = read_product(start.partition, op)
    axes = start.axes.over(start.product.shape)
    start.touch[start.product] = axes
    start.cells[present(axes)] = COSTS.recompute + 1


def _anywhere(start: Start, op: Op, kind: Kind) -> None:
    start.make_result()
    for value in op.operands:
        start.read_anywhere(value)


# The reads and loops of kinds that share kernels; all others read at indices that follow no axes.
LOOPS: dict[type[Kind], Callable[[Start, Op, Any], None]] = {
    Elementwise: _elementwise,
    View: _view,
    Gather: _gather,
    Reduce: _reduce,
    Contract: _contract,
    Kind: _anywhere,
}


def read_product(partition: Partition, op: Op) -> Value:
    """Return a matrix product's result, in the shape in which it is read if that only regroups its rows."""
    (result,) = op.results
    inlining = partition.inlining
    users = inlining.uses[result]
    if len(users) == 1 and result not in inlining.results:
        (user,) = users
        if inlining.alias(user) is result and user.results[0].shape[-1:] == result.shape[-1:]:
            return user.results[0]
    return result


def start(partition: Partition, number: int, op: Op, basis: int, limit: float, split: int) -> Group:
    """Return the group of one op."""
    kind = op.defn.kind
    assert kind is not None
    started = Start(partition, op)
    if kind.own_kernel and not isinstance(kind, Contract):
        started.read_memory()
    else:
        registered(LOOPS, kind)(started, op, kind)
    structure = None if kind.own_kernel else _alone(started, split)
    return Group(
        number, kind.name.lower() if kind.own_kernel else "loops", [op], product=started.product,
        touch=started.touch, opaque=started.opaque, row_reads=started.row_reads, cells=started.cells,
        reduces=started.reduces, operand_axes=started.operand_axes, structure=structure, basis=basis, limit=limit,
    )  # fmt: skip


def _alone(started: Start, split: int) -> Structure:
    """Return the loop tree of one op."""
    if not started.reduces:
        (every,) = started.cells
        return Structure(every, frozenset(), frozenset(), frozenset())
    axes = started.axes
    candidate = Candidate(
        [started.op], started.cells, started.reduces, (started.touch,), axes.find, axes.extent, started.inlining
    )
    found = loop_tree(candidate, split)
    if isinstance(found, Obstacle):
        raise AssertionError(f"{started.op.name} alone is no loop tree: {found}")
    return found


def parts_in_place(partition: Partition, op: Op) -> dict[Value, Part]:
    """Return the values that a join reads, if the kernels that make them can store them in its memory."""
    found: dict[Value, Part] = {}
    for part in part_of(op, partition.inlining):
        maker = partition.find(part.value)
        if maker is None or maker.kind != "loops" or part.value in partition.parts or part.value in found:
            return {}
        for reader in partition.inlining.readers(part.value):
            # An op that comes later might be in another kernel.
            if reader is not op and partition.owner.get(reader.results[0]) != maker.number:
                return {}
        found[part.value] = part
    return found
