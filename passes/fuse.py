"""Fusion: which primitives share one kernel, with a recorded reason for every refusal.

Ops are visited in order and each is merged into the groups that make its operands whenever the merged group
still is one loop tree. What a group may look like:

    outer axes   the parallel loops: "rows"
    inner axes   the axes that the group's primary reductions run over; none in a pointwise group

    full values  over outer x inner                    softmax's exp(x - max)
    row values   over outer                            softmax's max and sum
    secondary    reductions that run across rows: over the outer axes (a column sum: the gradient of a norm's
                 weight) or over everything (a mean loss). Their results are only complete when all rows are
                 done, so in this kernel only elementwise ops on them may follow.

An axis is one loop of a group. The dims of all values that a group reads or makes are mapped to its axes:
elementwise ops align dims, reductions drop axes, and the rigid views (permute, expand, reshapes that only add
or remove dims of size 1) rename them. Reading through any other view, or through an index from data, is an
opaque read: fine for values from outside, which are loaded at whatever place the index map says, but it
forbids fusion with the op that makes the value.

Ops that cost nothing where they are read (views, constants, iota and cheap arithmetic on those) are inline:
they belong to no group and are worked out anew by each reader. A reshape that regroups dims is an alias: the
same memory under another shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.graph import Graph, Op, Value
from ..ir.symbolic import Dim, Expr, non_negative, product
from ..kernels.scalar import SCALARS
from ..ops.kinds import Contract, Elementwise, Gather, Generate, Reduce, Scan, Scatter, View
from ..ops.view import unit_reshape
from .manager import graph_pass

AxisSet = frozenset[int]
Axes = tuple[int | None, ...]

ANY = -1
INLINE_COST = 8  # what recomputing a value at every reader may cost, in additions
FULL_REDUCTION_SPLIT = 65536  # a reduction to one number over more elements is split over threads


@dataclass(frozen=True)
class Refusal:
    """Why a producer and a consumer do not share a kernel."""

    producer: str
    consumer: str
    reason: str

    def __str__(self) -> str:
        return f"{self.producer} -> {self.consumer}: {self.reason}"


@dataclass(frozen=True)
class Structure:
    """The loop tree of a group of loops."""

    outer: AxisSet
    inner: AxisSet
    secondary: frozenset[Op]
    post: frozenset[Op]  # elementwise ops on results of secondary reductions


@dataclass
class Group:
    """Ops that become one loop tree (kind "loops"), or one op that has a kernel of its own kind."""

    number: int
    kind: str
    ops: list[Op]
    touch: dict[Value, Axes] = field(default_factory=dict)
    opaque: dict[Value, str] = field(default_factory=dict)
    row_reads: dict[Value, tuple[Axes, Op]] = field(default_factory=dict)  # ANY marks a dim that data chooses in
    cells: dict[AxisSet, int] = field(default_factory=dict)  # iteration space -> summed cost
    reduces: list[tuple[Op, AxisSet, AxisSet]] = field(default_factory=list)
    operand_axes: dict[Op, Axes] = field(default_factory=dict)  # of reductions
    structure: Structure | None = None
    outputs: tuple[Value, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.ops[-1].name}"


@dataclass
class Fused:
    """A graph with its kernels: each launch is one group, or several independent ones in one parallel region."""

    graph: Graph
    launches: list[list[Group]]
    inline: set[Op]
    aliases: dict[Value, Value]
    refusals: list[Refusal]
    axes: Axis
    names: dict[Value, str] = field(default_factory=dict)

    def stored(self, value: Value) -> Value:
        """The value whose memory a value lives in."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def __str__(self) -> str:
        from .fuse_text import print_fused

        return print_fused(self)


class Axis:
    """Union-find over axes; each has an extent."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.extent: list[Dim] = []

    def new(self, extent: Dim) -> int:
        self.parent.append(len(self.parent))
        self.extent.append(extent)
        return len(self.parent) - 1

    def find(self, axis: int) -> int:
        while self.parent[axis] != axis:
            self.parent[axis] = self.parent[self.parent[axis]]
            axis = self.parent[axis]
        return axis

    def root(self, axes: Axes) -> Axes:
        return tuple(axis if axis is None or axis == ANY else self.find(axis) for axis in axes)

    def roots(self, axes: AxisSet) -> AxisSet:
        return frozenset(self.find(axis) for axis in axes)


def rigid_map(op: Op) -> tuple[int | None, ...] | None:
    """For each operand dim of a rigid view, the result dim it becomes (None: a dim of size 1); else None."""
    if not isinstance(op.defn.kind, View):
        return None
    value: Value = op.arguments["self"]
    result = op.results[0]
    if op.name == "permute":
        position = {dim: at for at, dim in enumerate(op.arguments["dims"])}
        return tuple(position[dim] for dim in range(value.ndim))
    if op.name == "expand":
        lead = result.ndim - value.ndim
        return tuple(lead + dim if result.shape[lead + dim] == size else None for dim, size in enumerate(value.shape))
    if op.name == "reshape":
        sources = unit_reshape(value.shape, result.shape)
        if sources is None:
            return None
        back = {source: at for at, source in enumerate(sources) if source is not None}
        return tuple(back.get(dim) for dim in range(value.ndim))
    return None


def is_alias(op: Op) -> bool:
    """A reshape that regroups dims: the same memory under another shape."""
    return op.name == "reshape" and rigid_map(op) is None


def aligned(axes: Axes, value: Value) -> Axes:
    """The axes of an operand of an elementwise op whose result has `axes`: aligned at the end, size 1 has none."""
    lead = len(axes) - value.ndim
    return tuple(None if size == 1 else axes[lead + dim] for dim, size in enumerate(value.shape))


def op_cost(op: Op) -> int:
    kind = op.defn.kind
    if isinstance(kind, Elementwise):
        cost = SCALARS[kind.scalar].cost if kind.scalar in SCALARS else 1
        return cost
    if isinstance(kind, View):
        return 0
    if isinstance(kind, Generate):
        return 40 if op.operands else 1
    return 2


def can_split(op: Op) -> bool:
    """Whether a reduction may be done in parts, each of which leaves one number."""
    return isinstance(op.defn.kind, Reduce) and op.defn.kind.result != "i64"


class Fuser:
    def __init__(self, graph: Graph, max_ops: int):
        self.graph = graph
        self.max_ops = max_ops
        self.axes = Axis()
        self.groups: dict[int, Group] = {}
        self.owner: dict[Value, int] = {}
        self.ancestors: dict[int, int] = {}
        self.refusals: dict[tuple[str, str, str], Refusal] = {}
        self.inline: set[Op] = set()
        self.aliases: dict[Value, Value] = {}
        self.returned_aliases: dict[Op, Value] = {}
        self.results = set(graph.results)
        self.uses = graph.uses()
        self.forced = self._forced()
        self.started = 0

    # What must have a buffer of its own though it is free where it is read.

    def _is_inline(self, op: Op) -> bool:
        kind = op.defn.kind
        if isinstance(kind, View):
            return not is_alias(op)
        if isinstance(kind, Generate):
            return not op.operands
        if isinstance(kind, Elementwise):
            number = op.results[0].ndim == 0  # computed once before the loops that read it
            if number or op_cost(op) <= INLINE_COST:
                return all(self._is_free(value, number) for value in op.operands)
        return False

    def _is_free(self, value: Value, parameters: bool) -> bool:
        """Whether a value costs its readers next to nothing: made of no memory, or of parameters that are numbers."""
        if value.op is None:
            return parameters
        return value.op in self.inline and isinstance(value.op.defn.kind, (Generate, Elementwise))

    def _forced(self) -> set[Op]:
        forced: set[Op] = set()
        stored: set[Value] = set()
        for op in self.graph.ops:
            if self._is_inline(op):
                self.inline.add(op)
            if is_alias(op):
                (source,) = op.operands
                if source.op is not None and source.op in self.inline:
                    forced.add(source.op)
        for value in self.graph.results:
            if value.op is None:
                continue
            op = value.op
            if op.name != "reshape":
                if op in self.inline:
                    forced.add(op)
                continue
            # A reshape can be returned as it is only if it is the one result that lives in that memory.
            base = value
            while base.op is not None and base.op.name == "reshape":
                (base,) = base.op.operands
            free = base.op is not None and base not in stored and base not in self.results
            if is_alias(op):
                if not free:
                    forced.add(op)
            elif free and base.op not in self.inline and not self.uses[value]:
                self.inline.discard(op)
                self.returned_aliases[op] = base
            else:
                forced.add(op)
            stored.add(base)
        matrices = [value for op in self.graph.ops if isinstance(op.defn.kind, Contract) for value in op.operands]
        # What is stored for one product may be what another one reads through views.
        while unreadable := {value.op for value in matrices if value.op and not self._is_readable(value, forced)}:
            forced |= unreadable
        for op in self.graph.ops:
            # Who reads an inline op works it out and waits for no kernel: nothing behind it may be in memory.
            if op in self.inline and isinstance(op.defn.kind, Elementwise):
                if any(value.op and (value.op in forced or value.op not in self.inline) for value in op.operands):
                    self.inline.discard(op)
        return forced

    def _is_readable(self, value: Value, forced: set[Op]) -> bool:
        """Whether a batched matrix can be read where it lies: views of a buffer with one unit stride."""
        from .lower import strided_view

        def inline(op: Op) -> bool:
            return op in self.inline and op not in forced

        base = value
        while base.op is not None and inline(base.op):
            if base.op.name not in ("permute", "expand", "slice", "reshape"):
                return False
            if base.op.name == "slice" and base.op.arguments["step"] != 1:
                return False
            (base,) = base.op.operands
        if base is value:
            return True
        view = strided_view(value, inline)
        if view is None:
            return False
        _base, _offset, strides = view
        (rows, columns), (row_stride, column_stride) = value.shape[-2:], strides[-2:]
        # The other stride must step over a whole row (or column): a broadcast or overlapping one does not.
        by_rows = (column_stride == 1 or columns == 1) and (rows == 1 or non_negative(row_stride - columns))
        by_columns = (row_stride == 1 or rows == 1) and (columns == 1 or non_negative(column_stride - rows))
        return by_rows or by_columns

    # One op as a group.

    def peel(self, value: Value) -> tuple[Value, tuple[int | None, ...] | None]:
        """The value behind inline views, and for each of its dims the dim of `value` it becomes (None: opaque)."""
        dims: tuple[int | None, ...] | None = tuple(range(value.ndim))
        while value.op is not None and value.op in self.inline and value.op not in self.forced:
            op = value.op
            if not isinstance(op.defn.kind, View):
                break
            step = rigid_map(op)
            (value,) = op.operands
            if step is None or dims is None:
                dims = None
            else:
                dims = tuple(None if at is None else dims[at] for at in step)
        return value, dims

    def start(self, op: Op) -> Group:
        kind = op.defn.kind
        group = Group(-1, "loops", [op])
        if isinstance(kind, (Contract, Scan, Scatter)):
            group.kind = kind.name.lower()
            for value in op.operands:
                base, _ = self.peel(value)
                group.opaque[base] = op.name
            return group
        result = op.results[0]
        if isinstance(kind, Reduce):
            operand: Value = op.arguments["self"]
            reduced = op.arguments["dim"]
            axes = tuple(None if size == 1 else self.axes.new(size) for size in operand.shape)
            self._touch(group, operand, axes, op)
            group.operand_axes[op] = axes
            kept = tuple(
                None if dim in reduced else axis
                for dim, axis in enumerate(axes)
                if op.arguments["keepdim"] or dim not in reduced
            )
            space = frozenset(axis for axis in axes if axis is not None)
            over = frozenset(axes[dim] for dim in reduced) - {None}
            group.touch[result] = kept
            if over:
                group.reduces.append((op, space, over))  # type: ignore[arg-type]
            group.cells[space] = 1
            return group
        axes = tuple(None if size == 1 else self.axes.new(size) for size in result.shape)
        group.touch[result] = axes
        group.cells[frozenset(axis for axis in axes if axis is not None)] = op_cost(op)
        if isinstance(kind, Elementwise):
            for value in op.operands:
                self._touch(group, value, aligned(axes, value), op)
        elif isinstance(kind, View) and rigid_map(op) is not None:
            step = rigid_map(op)
            self._touch(group, op.operands[0], tuple(None if at is None else axes[at] for at in step), op)  # type: ignore
        elif isinstance(kind, Gather) and kind.aligned is not None:
            for name, dims in kind.aligned(op.arguments).items():
                self._row_read(group, op.arguments[name], tuple(ANY if dim is None else axes[dim] for dim in dims), op)
        else:
            for value in op.operands:
                base, _ = self.peel(value)
                group.opaque.setdefault(base, op.name)
        return group

    def _row_read(self, group: Group, value: Value, axes: Axes, op: Op) -> None:
        """A read at a place that follows the result's axes but for the dims in which data chooses."""
        if ANY not in axes:
            self._touch(group, value, axes, op)
            return
        base, dims = self.peel(value)
        if dims is None or base in group.touch or base in group.row_reads:
            group.opaque.setdefault(base, op.name)
        else:
            group.row_reads[base] = (tuple(None if at is None else axes[at] for at in dims), op)

    def _touch(self, group: Group, value: Value, axes: Axes, op: Op) -> None:
        base, dims = self.peel(value)
        if base.op is not None and base.op in self.inline and base.op not in self.forced:
            return  # made of nothing: no read at all
        if dims is None:
            group.opaque.setdefault(base, op.name)
            return
        found = tuple(None if at is None or base.shape[dim] == 1 else axes[at] for dim, at in enumerate(dims))
        known = group.touch.get(base)
        if known is None:
            group.touch[base] = found
        elif known != found:
            group.opaque.setdefault(base, op.name)

    # Merging.

    def find(self, value: Value) -> Group | None:
        number = self.owner.get(value)
        return None if number is None else self.groups.get(number)

    def producers(self, group: Group) -> list[Group]:
        found: dict[int, Group] = {}
        for value in (*group.touch, *group.opaque, *group.row_reads):
            producer = self.find(self._stored(value))
            if producer is not None and producer is not group:
                found[producer.number] = producer
        return [found[number] for number in sorted(found, reverse=True)]

    def _stored(self, value: Value) -> Value:
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def refuse(self, producer: Group, consumer: Group, reason: str) -> None:
        refusal = Refusal(producer.label, consumer.label, reason)
        self.refusals[(refusal.producer, refusal.consumer, reason)] = refusal

    def merge(self, left: Group, right: Group, record: bool = True) -> Group | None:
        """One group of both, or None with the reason recorded."""
        reason = self._merged(left, right)
        if isinstance(reason, Group):
            return reason
        if record:
            self.refuse(left, right, reason)
        return None

    def _merged(self, left: Group, right: Group) -> Group | str:
        if left.kind != "loops" or right.kind != "loops":
            special = left if left.kind != "loops" else right
            return f"{special.label} has a kernel of its own"
        if len(left.ops) + len(right.ops) > self.max_ops:
            return f"the kernel would have over {self.max_ops} ops"
        if self._between(left, right) or self._between(right, left):
            return "an op between them is in another kernel"
        for value, reader in right.opaque.items():
            if self.find(self._stored(value)) is left:
                return f"{reader} reads it at other places"
        for value, reader in left.opaque.items():
            if self.find(self._stored(value)) is right:
                return f"{reader} reads it at other places"
        for reader_group, maker in ((right, left), (left, right)):
            for value in (*reader_group.touch, *reader_group.row_reads):
                if value in self.aliases and self.find(self._stored(value)) is maker:
                    return "it is read in another shape"
        mapping = self._unify(left, right)
        if isinstance(mapping, str):
            return mapping

        def rename(axis: int) -> int:
            root = self.axes.find(axis)
            return mapping.get(root, root)

        cells: dict[AxisSet, int] = {}
        for group in (left, right):
            for cell, cost in group.cells.items():
                named = frozenset(map(rename, cell))
                cells[named] = cells.get(named, 0) + cost
        reduces = [
            (op, frozenset(map(rename, space)), frozenset(map(rename, over)))
            for op, space, over in (*left.reduces, *right.reduces)
        ]
        ops = sorted((*left.ops, *right.ops), key=lambda op: op.serial)
        structure = self._structure(ops, cells, reduces, rename, left, right)
        if isinstance(structure, str):
            return structure
        for maker, reader_group in ((left, right), (right, left)):
            for value, (axes, op) in reader_group.row_reads.items():
                if value in maker.touch and self.find(value) is maker:
                    chosen = {
                        rename(at) for at, axis in zip(maker.touch[value], axes) if axis == ANY and at is not None
                    }
                    space = {rename(axis) for axis in reader_group.touch[op.results[0]] if axis is not None}
                    if not chosen <= structure.inner or space != structure.outer or op in structure.post:
                        return f"{op.name} reads it at other places"
        for source, target in mapping.items():
            self.axes.parent[source] = target
        merged = Group(
            left.number, "loops", ops, opaque={**left.opaque, **right.opaque}, cells=cells, reduces=reduces,
            operand_axes={**left.operand_axes, **right.operand_axes}, structure=structure,
        )  # fmt: skip
        for group in (left, right):
            for value, (axes, op) in group.row_reads.items():
                if merged.row_reads.setdefault(value, (axes, op))[1] is not op and self.find(value) not in (
                    left,
                    right,
                ):
                    merged.opaque.setdefault(value, op.name)
        for group in (left, right):
            for value, axes in group.touch.items():
                rooted = self.axes.root(axes)
                if merged.touch.setdefault(value, rooted) != rooted:
                    merged.opaque.setdefault(value, group.label)
        return merged

    def _unify(self, left: Group, right: Group) -> dict[int, int] | str:
        """Axes of `right` -> axes of `left`, such that every shared value has the same axes in both."""
        mapping: dict[int, int] = {}
        taken: set[int] = set()

        def tie(ours: Axes, others: Axes, must: bool) -> str | None:
            pairs: list[tuple[int, int]] = []
            for here, there in zip(self.axes.root(ours), self.axes.root(others), strict=True):
                if here == ANY or there == ANY:
                    continue
                if here is None or there is None:
                    if here is not there and must:
                        return "one of them reads a broadcast of the other"
                    continue
                if mapping.get(there, here) != here or (there not in mapping and here in taken):
                    return "it is read with its dims in another order" if must else None
                pairs.append((there, here))
            for there, here in pairs:
                mapping[there] = here
                taken.add(here)
            return None

        shared = [value for value in right.touch if value in left.touch]
        made = {value for group in (left, right) for op in group.ops for value in op.results}
        for value in shared:
            if value in made:
                reason = tie(left.touch[value], right.touch[value], True)
                if reason:
                    return reason
        for value, (axes, _) in right.row_reads.items():
            if value in made and value in left.touch:
                reason = tie(left.touch[value], axes, True)
                if reason:
                    return reason
        for value, (axes, _) in left.row_reads.items():
            if value in made and value in right.touch:
                reason = tie(axes, right.touch[value], True)
                if reason:
                    return reason
        for value in sorted((v for v in shared if v not in made), key=lambda v: -v.ndim):
            tie(left.touch[value], right.touch[value], False)
        mine = {self.axes.find(axis) for cell in left.cells for axis in cell} - taken
        theirs = {self.axes.find(axis) for cell in right.cells for axis in cell} - set(mapping)
        for there in sorted(theirs):
            extent = self.axes.extent[there]
            for here in sorted(mine):
                if self.axes.extent[here] == extent:
                    mapping[there] = here
                    mine.discard(here)
                    break
        return {there: here for there, here in mapping.items() if there != here}

    def _between(self, first: Group, last: Group) -> bool:
        """Whether a third group depends on `first` and is needed by `last`."""
        bit = 1 << first.number
        return any(producer is not first and self.ancestors[producer.number] & bit for producer in self.producers(last))

    def _structure(
        self,
        ops: Sequence[Op],
        cells: dict[AxisSet, int],
        reduces: Sequence[tuple[Op, AxisSet, AxisSet]],
        rename: Any,
        left: Group,
        right: Group,
    ) -> Structure | str:
        every: AxisSet = frozenset().union(*cells)
        if not reduces:
            for cell, cost in cells.items():
                if cell != every and not self._recomputable(cell, cost, left, right, rename):
                    return "they iterate over different dims, and computing one again and again would cost more"
            return Structure(every, frozenset(), frozenset(), frozenset())
        options: list[AxisSet] = []
        total = product(self.axes.extent[axis] for axis in every)
        large = isinstance(total, Expr) or total > FULL_REDUCTION_SPLIT
        if large and any(over == every and can_split(op) for op, _, over in reduces):
            options.append(frozenset())
        options.extend(sorted({over for _, _, over in reduces}, key=lambda over: (len(over), sorted(over))))
        if frozenset() in options:
            options = [option for option in options if option != every]
        reasons: list[str] = []
        for inner in options:
            found = self._rows(ops, cells, reduces, every, inner, left, right, rename)
            if isinstance(found, Structure):
                return found
            reasons.append(found)
        return reasons[0]

    def _rows(
        self,
        ops: Sequence[Op],
        cells: dict[AxisSet, int],
        reduces: Sequence[tuple[Op, AxisSet, AxisSet]],
        every: AxisSet,
        inner: AxisSet,
        left: Group,
        right: Group,
        rename: Any,
    ) -> Structure | str:
        outer = every - inner
        secondary: dict[Op, AxisSet] = {}
        for op, space, over in reduces:
            if inner and space == every and over == inner:
                continue
            whole = over == space and space in (every, outer)
            columns = inner and space == every and over == outer
            if not outer or not (whole or columns) or not can_split(op):
                return f"{op.name} reduces other dims"
            secondary[op] = space - over
        spaces = set(secondary.values())
        for cell, cost in cells.items():
            if cell in (every, outer) or cell in spaces:
                continue
            if not self._recomputable(cell, cost, left, right, rename):
                return "they iterate over different dims"
        post: dict[Op, AxisSet] = {}
        if secondary:
            touch = {**left.touch, **right.touch}
            for op in ops:
                after = {
                    value.op
                    for value in (self.peel(operand)[0] for operand in op.operands)
                    if value.op is not None and (value.op in secondary or value.op in post)
                }
                if op in secondary:
                    if after:
                        return f"{op.name} needs a reduction over all rows to be complete"
                    continue
                space = frozenset(rename(axis) for axis in touch[op.results[0]] if axis is not None)
                if after:
                    allowed = {secondary.get(item, post.get(item)) for item in after}
                    if not isinstance(op.defn.kind, (Elementwise, View)) or allowed != {space}:
                        return f"{op.name} needs a reduction over all rows to be complete"
                    post[op] = space
                elif space not in (every, outer) and space in spaces and not inner:
                    # A value that is not over the rows and not behind a reduction: only if it is free to redo.
                    if op_cost(op) > INLINE_COST:
                        return "they iterate over different dims"
        return Structure(outer, inner, frozenset(secondary), frozenset(post))

    def _recomputable(self, cell: AxisSet, cost: int, left: Group, right: Group, rename: Any) -> bool:
        """A value over few axes that is cheap enough to work out in every iteration, and needed nowhere else."""
        if cost > INLINE_COST:
            return False
        inside = {*left.ops, *right.ops}
        for group in (left, right):
            for op in group.ops:
                axes = group.touch[op.results[0]]
                if frozenset(rename(axis) for axis in axes if axis is not None) != cell:
                    continue
                for value in op.results:
                    if value in self.results or not all(self._ends_inside(user, inside) for user in self.uses[value]):
                        return False
        return True

    def _ends_inside(self, user: Op, inside: set[Op]) -> bool:
        if user in inside:
            return True
        if user in self.inline and user not in self.forced:
            return all(self._ends_inside(next_user, inside) for next_user in self.uses[user.results[0]])
        return False

    def adopt(self, merged: Group, left: Group, right: Group) -> Group:
        """Replace two groups by their union."""
        self.groups[left.number] = merged
        del self.groups[right.number]
        for op in right.ops:
            for value in op.results:
                self.owner[value] = merged.number
        bits = (1 << left.number) | (1 << right.number)
        union = (self.ancestors[left.number] | self.ancestors[right.number]) & ~bits
        self.ancestors[merged.number] = union
        del self.ancestors[right.number]
        for number, mask in self.ancestors.items():
            if mask & bits:
                self.ancestors[number] = mask | union | (1 << merged.number)
        return merged

    def run(self) -> Fused:
        for op in self.graph.ops:
            if op not in self.forced:
                if op in self.inline:
                    continue
                if is_alias(op) or op in self.returned_aliases:
                    self.aliases[op.results[0]] = self.returned_aliases.get(op, op.operands[0])
                    continue
            group = self.start(op)
            if group.kind == "loops":
                group.structure = self._single(group)
            # Numbers are given in order and never reused, so that they work as bits of a mask.
            group.number = self.started
            self.started += 1
            mask = 0
            for producer in self.producers(group):
                mask |= (1 << producer.number) | self.ancestors[producer.number]
            self.ancestors[group.number] = mask
            self.groups[group.number] = group
            for value in op.results:
                self.owner[value] = group.number
            for producer in self.producers(group):
                if producer.number not in self.groups or producer is group:
                    continue
                merged = self.merge(producer, group)
                if merged is not None:
                    group = self.adopt(merged, producer, group)
        self._siblings()
        return self._finish()

    def _single(self, group: Group) -> Structure:
        found = self._structure(group.ops, group.cells, group.reduces, self.axes.find, group, group)
        if isinstance(found, str):
            raise AssertionError(f"{group.label} alone is no loop tree: {found}")
        return found

    def _siblings(self) -> None:
        """Groups that read the same data in the same way read it once."""
        readers: dict[Value, list[int]] = {}
        for number in sorted(self.groups):
            for value in self.groups[number].touch:
                readers.setdefault(value, []).append(number)
        gone: dict[int, int] = {}
        for value, numbers in readers.items():
            size = value.type.numel
            if value.ndim == 0 or (isinstance(size, int) and size < 1024):
                continue
            for first, second in zip(numbers, numbers[1:], strict=False):
                while first in gone:
                    first = gone[first]
                while second in gone:
                    second = gone[second]
                if first == second:
                    continue
                left, right = self.groups[first], self.groups[second]
                if value not in left.touch or value not in right.touch:
                    continue
                if self.ancestors[second] >> first & 1 or self.ancestors[first] >> second & 1:
                    continue
                merged = self.merge(left, right, record=False)
                if merged is not None:
                    self.adopt(merged, left, right)
                    gone[second] = first

    def _finish(self) -> Fused:
        for group in self.groups.values():
            inside = set(group.ops)
            group.outputs = tuple(
                value
                for op in group.ops
                for value in op.results
                if value in self.results or not all(self._ends_inside(user, inside) for user in self.uses[value])
            )
            if group.structure is not None:
                group.structure = Structure(
                    self.axes.roots(group.structure.outer),
                    self.axes.roots(group.structure.inner),
                    group.structure.secondary,
                    group.structure.post,
                )
        inline = {op for op in self.inline if op not in self.forced}
        return Fused(self.graph, self._launches(), inline, self.aliases, list(self.refusals.values()), self.axes)

    def _launches(self) -> list[list[Group]]:
        """Kernels in order; groups of one step that do not depend on each other share a parallel region."""
        depth: dict[int, int] = {}
        pending = sorted(self.groups, key=lambda number: bin(self.ancestors[number]).count("1"))
        for number in pending:
            ancestors = [other for other in self.groups if self.ancestors[number] >> other & 1]
            depth[number] = max((depth[other] for other in ancestors), default=-1) + 1
        launches: list[list[Group]] = []
        open_launch: dict[int, list[Group]] = {}
        for number in sorted(self.groups, key=lambda item: (depth[item], item)):
            group = self.groups[number]
            if group.kind != "loops" or group.structure is None or group.structure.secondary:
                launches.append([group])
                continue
            company = open_launch.get(depth[number])
            if company is not None and sum(len(item.ops) for item in company) + len(group.ops) <= self.max_ops:
                company.append(group)
            else:
                open_launch[depth[number]] = company = [group]
                launches.append(company)
        return launches


@graph_pass("fuse")
def fuse(graph: Graph, *, max_ops: int = 128) -> Fused:
    """Groups of primitives that become one kernel each, and why others do not."""
    fuser = Fuser(graph, max_ops)
    return fuser.run()
