"""Fusion: which primitives share one kernel, with a recorded reason for every refusal.

Ops are visited in order and each is merged into the groups that make its operands whenever the merged group
still is one loop tree (loop_tree.py says what that is).

The dims of all values that a group reads or makes are mapped to its axes: elementwise ops align dims, reductions
drop axes, and rigid views rename them (axes.py). Reading through any other view, or through an index from data,
is an opaque read: fine for values from outside, which are loaded at whatever place the index map says, but it
forbids fusion with the op that makes the value. A gather that follows the rows and chooses within one is a row
read: it may share a kernel with the op that makes the row.

A matrix product takes the ops that follow its rows and columns: they run on each tile of it while that is still in the
cache. Reductions of its rows are among them if a tile of whole rows is small enough. In the end a product may take in
the group that makes its left matrix (gemm_chain.py).

A join of values that nothing else reads has no kernel: those that make its parts store them in its memory
(concat_in_place.py).

Ops that cost nothing where they are read belong to no group (inline.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ...ir.graph import Graph, Op, Value
from ...ir.symbolic import same
from ...kernels.machine import DEFAULT, Machine
from ...ops.create import constant
from ...ops.kinds import Contract, Elementwise, Gather, Join, Reduce, Scan, Scatter, View
from ..registry import graph_pass
from .axes import ANY, Axes, AxisSet, AxisUnion, aligned, present, rigid_map
from .concat_in_place import Part, part_of
from .costs import COSTS
from .gemm_chain import chain, no_whole_rows
from .inline import Inlining, elements, op_cost
from .loop_tree import Candidate, Reduction, Structure, loop_tree


@dataclass(frozen=True)
class Refusal:
    """Why a producer and a consumer do not share a kernel."""

    producer: str
    consumer: str
    reason: str

    def __str__(self) -> str:
        return f"{self.producer} -> {self.consumer}: {self.reason}"


@dataclass
class Group:
    """Ops that become one loop tree (kind "loops"), or one op that has a kernel of its own kind."""

    number: int
    kind: str
    ops: list[Op]
    touch: dict[Value, Axes] = field(default_factory=dict)
    opaque: dict[Value, str] = field(default_factory=dict)
    row_reads: dict[tuple[Value, Op], Axes] = field(default_factory=dict)  # ANY marks a dim that data chooses in
    cells: dict[AxisSet, int] = field(default_factory=dict)  # iteration space -> summed cost
    reduces: list[Reduction] = field(default_factory=list)
    operand_axes: dict[Op, Axes] = field(default_factory=dict)  # of reductions
    structure: Structure | None = None
    outputs: tuple[Value, ...] = ()
    basis: int = 0  # elements of the largest value that it depends on
    limit: float = math.inf  # the basis of a group that it must be complete for
    product: Value | None = None  # of a matrix product: the shape in which its result is read
    left: Group | None = None  # of a matrix product: what makes its left matrix, a tile of rows at a time
    tile: Value | None = None  # of such a group: that matrix

    @property
    def label(self) -> str:
        """How refusals name it: by its last op."""
        return self.ops[-1].name

    @property
    def cost(self) -> int:
        """What one element of everything costs, in additions: a measure of the code's length."""
        return sum(self.cells.values())


def constants_first(graph: Graph) -> Graph:
    """The graph with its constants first, in the order of their first use. Programs share constants, so that their
    serial numbers say what the process compiled before."""
    constants: dict[Op, None] = {}
    for value in (*(value for op in graph.ops for value in op.operands), *graph.results):
        if value.op is not None and value.op.defn is constant:
            constants.setdefault(value.op)
    others = [op for op in graph.ops if op not in constants]
    return Graph(graph.name, graph.params, (*constants, *others), graph.results)


def early_ops(graph: Graph) -> tuple[dict[Value, int], dict[Op, int]]:
    """The elements of the largest value that each value depends on; and the ops to do before others.

    These are reductions of little data that much larger values depend on, with all that they need. In a kernel
    with the larger values such a reduction would only be complete when all rows are done, and what needs it (the
    gradient of a mean over the valid labels needs their number) would have to wait in memory for another kernel."""
    basis: dict[Value, int] = {param: elements(param) for param in graph.params}
    for op in graph.ops:
        size = max((basis[value] for value in op.operands), default=0)
        basis.update((value, max(size, elements(value))) for value in op.results)
    after: dict[Value, int] = {}  # elements of the largest value that depends on a value
    early: dict[Op, int] = {}
    needed: dict[Value, int] = {}
    for op in reversed(graph.ops):
        later = max(after.get(value, 0) for value in op.results)
        limit = min((needed[value] for value in op.results if value in needed), default=0)
        if not limit and isinstance(op.defn.kind, Reduce) and basis[op.results[0]] * COSTS.much <= later:
            limit = later
        if limit:
            early[op] = limit
            needed.update((value, min(limit, needed.get(value, limit))) for value in op.operands)
        size = max(later, *(elements(value) for value in op.results))
        for value in op.operands:
            after[value] = max(after.get(value, 0), size)
    return basis, early


@dataclass
class Fused:
    """A graph with its kernels: each launch is one group, or several independent ones in one parallel region."""

    graph: Graph
    launches: list[list[Group]]
    inline: set[Op]
    aliases: dict[Value, Value]
    refusals: list[Refusal]
    axes: AxisUnion
    parts: dict[Value, Part]  # values that live in a joined one
    names: dict[Value, str] = field(default_factory=dict)

    def stored(self, value: Value) -> Value:
        """The value whose memory a value lives in."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def __str__(self) -> str:
        from .fuse_text import print_fused

        return print_fused(self)


class Renames(dict[int, int]):
    """What axes are called once others are joined to them."""

    def __init__(self, axes: AxisUnion, mapping: dict[int, int]):
        super().__init__()
        self.axes = axes
        self.mapping = mapping

    def __missing__(self, axis: int) -> int:
        root = self.axes.find(axis)
        name = self[axis] = self.mapping.get(root, root)
        return name


class Fuser:
    """Grows groups op by op. `ancestors` has, by group number, the numbers of all groups it depends on, as bits."""

    def __init__(self, graph: Graph, max_cost: int, whole_rows: bool, machine: Machine | None):
        self.graph = graph
        self.max_cost = max_cost
        self.machine = machine
        self.whole_rows = whole_rows
        self.inlining = Inlining(graph, machine)
        self.basis, self.early = early_ops(graph)
        self.axes = AxisUnion()
        self.groups: dict[int, Group] = {}
        self.owner: dict[Value, int] = {}
        self.ancestors: dict[int, int] = {}
        self.readers: dict[int, set[int]] = {}  # groups that read what a group makes, by the numbers they had
        self.taken: dict[int, int] = {}  # the group that took another in
        self.refusals: dict[tuple[str, str, str], Refusal] = {}
        self.aliases: dict[Value, Value] = {}
        self.parts: dict[Value, Part] = {}
        self.started = 0
        self.position = {op: number for number, op in enumerate(graph.ops)}

    def in_order(self, left: list[Op], right: list[Op]) -> list[Op]:
        """Return the ops of both in the order of the program."""
        both = [*left, *right]
        position = self.position
        return both if position[left[-1]] < position[right[0]] else sorted(both, key=position.__getitem__)

    # One op as a group.

    def start(self, op: Op) -> Group:
        """A group of one op."""
        kind = op.defn.kind
        group = Group(-1, "loops", [op])
        group.basis = self.basis[op.results[0]]
        group.limit = self.early.get(op, math.inf)
        if isinstance(kind, (Contract, Scan, Scatter)):
            group.kind = kind.name.lower()
            for value in op.operands:
                for base in self.inlining.memory(value):
                    group.opaque[base] = op.name
            if isinstance(kind, Contract):
                group.product = self._product(op)
                axes = self.axes.over(group.product.shape)
                group.touch[group.product] = axes
                group.cells[present(axes)] = COSTS.recompute + 1
            return group
        result = op.results[0]
        if isinstance(kind, Reduce):
            operand: Value = op.arguments["self"]
            reduced = op.arguments["dim"]
            axes = self.axes.over(operand.shape)
            self._touch(group, operand, axes, op)
            group.operand_axes[op] = axes
            kept = tuple(
                None if dim in reduced else axis
                for dim, axis in enumerate(axes)
                if op.arguments["keepdim"] or dim not in reduced
            )
            space = present(axes)
            over = space - present(kept)
            group.touch[result] = kept
            if over:
                group.reduces.append((op, space, over))
            group.cells[space] = 1
            return group
        axes = self.axes.over(result.shape)
        group.touch[result] = axes
        group.cells[present(axes)] = op_cost(op)
        if isinstance(kind, Elementwise):
            for value in op.operands:
                self._touch(group, value, aligned(axes, value), op)
        elif isinstance(kind, View) and (step := rigid_map(op)) is not None:
            self._touch(group, op.operands[0], tuple(None if at is None else axes[at] for at in step), op)
        elif isinstance(kind, Gather) and kind.aligned is not None:
            for name, dims in kind.aligned(op.arguments).items():
                self._row_read(group, op.arguments[name], tuple(ANY if dim is None else axes[dim] for dim in dims), op)
        else:
            for value in op.operands:
                base, _ = self.inlining.peel(value)
                group.opaque.setdefault(base, op.name)
        return group

    def _product(self, op: Op) -> Value:
        """A matrix product's result, in the shape in which it is read if that only regroups its rows."""
        (result,) = op.results
        users = self.inlining.uses[result]
        if len(users) == 1 and result not in self.inlining.results:
            (user,) = users
            if self.inlining.alias(user) is result and user.results[0].shape[-1:] == result.shape[-1:]:
                return user.results[0]
        return result

    def _parts(self, op: Op) -> dict[Value, Part]:
        """The values that a join is made of, if the kernels that make them can store them in its memory."""
        found: dict[Value, Part] = {}
        for part in part_of(op, self.inlining):
            maker = self.find(part.value)
            if maker is None or maker.kind != "loops" or part.value in self.parts or part.value in found:
                return {}
            for reader in self.inlining.readers(part.value):
                # One that comes later might be in another kernel.
                if reader is not op and self.owner.get(reader.results[0]) != maker.number:
                    return {}
            found[part.value] = part
        return found

    def _row_read(self, group: Group, value: Value, axes: Axes, op: Op) -> None:
        """A read at a place that follows the result's axes but for the dims in which data chooses."""
        if ANY not in axes:
            self._touch(group, value, axes, op)
            return
        base, dims = self.inlining.peel(value)
        found = self._follows(base, dims, axes)
        if found is None or base in group.touch or (base, op) in group.row_reads:
            group.opaque.setdefault(base, op.name)
        else:
            group.row_reads[base, op] = found

    def _touch(self, group: Group, value: Value, axes: Axes, op: Op) -> None:
        """A read at a place that follows the result's axes."""
        base, dims = self.inlining.peel(value)
        if base.op is not None and base.op in self.inlining:
            return  # made of nothing: no read at all
        found = self._follows(base, dims, axes)
        if found is None or group.touch.setdefault(base, found) != found:
            group.opaque.setdefault(base, op.name)

    def _follows(self, base: Value, dims: tuple[int | None, ...] | None, axes: Axes) -> Axes | None:
        """The axes of a value's dims. None, an opaque read, unless each axis is proved to run over all of its dim: a
        gather may read only the first places of one, and a loop over those would not make the others."""
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

    # Merging.

    def find(self, value: Value) -> Group | None:
        number = self.owner.get(value)
        return None if number is None else self.groups.get(number)

    def producers(self, group: Group) -> list[Group]:
        found: dict[int, Group] = {}
        owner, groups, aliases = self.owner, self.groups, self.aliases
        for value in self.reads(group):
            number = owner.get(self.stored(value) if value in aliases else value)
            producer = None if number is None else groups.get(number)
            if producer is not None and producer is not group:
                found[producer.number] = producer
        return [found[number] for number in sorted(found, reverse=True)]

    def reads(self, group: Group) -> Iterator[Value]:
        """What a group reads, and some of what it makes."""
        yield from (*group.touch, *group.opaque, *(value for value, _ in group.row_reads))
        if group.left is not None:
            yield from self.reads(group.left)

    def stored(self, value: Value) -> Value:
        """The value whose memory a value lives in."""
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
        if record and reason:
            self.refuse(left, right, reason)
        return None

    def _merged(self, left: Group, right: Group) -> Group | str:
        """One group of both, or why there is none (nothing: that is to be seen later)."""
        obstacle = self._obstacle(left, right)
        if obstacle is not None:
            return obstacle
        mapping = self._unify(left, right)
        if isinstance(mapping, str):
            return mapping

        rename = Renames(self.axes, mapping).__getitem__
        cells: dict[AxisSet, int] = {}
        for group in (left, right):
            for cell, cost in group.cells.items():
                named = frozenset(map(rename, cell))
                cells[named] = cells.get(named, 0) + cost
        reduces = [
            (op, frozenset(map(rename, space)), frozenset(map(rename, over)))
            for op, space, over in (*left.reduces, *right.reduces)
        ]
        ops = self.in_order(left.ops, right.ops)
        product = right.product if left.product is None else left.product
        structure: Structure | str | None = self._same_structure(left, right, cells, rename)
        if structure is None:
            looped = ops if product is None else [op for op in ops if not isinstance(op.defn.kind, Contract)]
            structure = self._structure(looped, cells, reduces, (left.touch, right.touch), rename)
        if isinstance(structure, str):
            return structure
        if product is not None:
            rows = (left if product in left.touch else right).touch[product]
            if reduces and (structure.secondary or structure.inner != {rename(axis) for axis in present(rows[-1:])}):
                return "a matrix product shares its kernel with reductions of its rows only"
            # The ops that share the product's kernel already were looked at when they joined it.
            joins = left if left.product is None else right
            for axes in (joins.touch[op.results[0]] for op in joins.ops):
                if rows[-1] is not None and len(present(axes)) == len(present(rows)):
                    if axes[-1] is None or rename(axes[-1]) != rename(rows[-1]):
                        return "its rows would be stored across memory"
        for group in (left, right):
            for (value, op), axes in group.row_reads.items():
                maker = self.find(value)
                if maker is not left and maker is not right:
                    continue
                chosen = {
                    rename(at)
                    for at, axis in zip(maker.touch[value], axes, strict=True)
                    if axis == ANY and at is not None
                }
                space = set(map(rename, present(group.touch[op.results[0]])))
                if not chosen <= structure.inner or space != structure.outer or op in structure.post:
                    return f"{op.name} reads it at other places"
        for source, target in mapping.items():
            self.axes.join(source, target)
        # The larger group takes in the other: a long chain grows op by op, and must not be copied each time.
        touch, added = (left.touch, right.touch) if len(left.touch) >= len(right.touch) else (right.touch, left.touch)
        opaque = {**left.opaque, **right.opaque} if left.opaque and right.opaque else left.opaque or right.opaque
        for value, axes in added.items():
            if value not in touch:
                touch[value] = axes
            elif self.axes.root(touch[value]) != self.axes.root(axes):
                opaque = {**opaque}
                opaque.setdefault(value, (right if added is right.touch else left).label)
        return Group(
            left.number, "loops" if product is None else "contract", ops, product=product,
            touch=touch, opaque=opaque, cells=cells, reduces=reduces,
            operand_axes={**left.operand_axes, **right.operand_axes}, structure=structure,
            row_reads={**left.row_reads, **right.row_reads},
            basis=max(left.basis, right.basis), limit=min(left.limit, right.limit),
        )  # fmt: skip

    def _obstacle(self, left: Group, right: Group) -> str | None:
        """Why two groups cannot share a kernel, whatever their loops."""
        if left.kind != "loops" or right.kind != "loops":
            special, other = (left, right) if left.kind != "loops" else (right, left)
            if special.product is not None and other.product is not None:
                return ""
            if special.kind == "join":
                return "it is joined by the kernels that make its parts"
            if special.product is None or other.kind != "loops":
                return f"{special.label} has a kernel of its own"
            if other.row_reads:
                return "a matrix product shares its kernel with no reads at places that data chooses"
            if other.reduces and not self.whole_rows:
                return "tiles of matrix products have no whole rows"
            if other.reduces and (reason := no_whole_rows(special)):
                return reason
            owner, number = self.owner, special.number
            if not any(owner.get(value) == number or value is special.product for value in other.touch):
                return "it does not read the matrix product"
            if self.parts and any(value in self.parts for op in other.ops for value in op.results):
                return "it stores parts of a joined value"
        if left.cost + right.cost > self.max_cost:
            return f"the kernel would cost over {self.max_cost} additions an element"
        if max(left.basis, right.basis) >= min(left.limit, right.limit):
            return "a small reduction is done first, so that all of a large kernel can use it"
        if self.between(left, right) or self.between(right, left):
            return "an op between them is in another kernel"
        pairs = [(reader, maker) for reader, maker in ((right, left), (left, right)) if self._depends(reader, maker)]
        for reader, maker in pairs:
            for value, name in reader.opaque.items():
                if self.find(self.stored(value)) is maker:
                    return f"{name} reads it at other places"
        for reader, maker in pairs:
            for value in (*reader.touch, *(value for value, _ in reader.row_reads)):
                if value in self.aliases and value is not maker.product and self.find(self.stored(value)) is maker:
                    return "it is read in another shape"
        return None

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

        few, many = (left.touch, right.touch) if len(left.touch) < len(right.touch) else (right.touch, left.touch)
        shared = [value for value in few if value in many]
        products = [group.product for group in (left, right) if group.product is not None]
        made = {value for value in shared if self.find(value) is left or self.find(value) is right}
        made.update(value for value in products if value in few and value in many)
        for value in shared:
            if value in made:
                reason = tie(left.touch[value], right.touch[value], True)
                if reason:
                    return reason
        for (value, _), axes in right.row_reads.items():
            if value in left.touch and self.find(value) is left:
                reason = tie(left.touch[value], axes, True)
                if reason:
                    return reason
        for (value, _), axes in left.row_reads.items():
            if value in right.touch and self.find(value) is right:
                reason = tie(axes, right.touch[value], True)
                if reason:
                    return reason
        for value in sorted((v for v in shared if v not in made), key=lambda v: -v.ndim):
            tie(left.touch[value], right.touch[value], False)
        mine = self.axes.roots(frozenset().union(*left.cells)) - taken
        theirs = self.axes.roots(frozenset().union(*right.cells)) - mapping.keys()
        for there in sorted(theirs):
            extent = self.axes.extent[there]
            for here in sorted(mine):
                if self.axes.extent[here] == extent:
                    mapping[there] = here
                    mine -= {here}
                    break
        return {there: here for there, here in mapping.items() if there != here}

    def between(self, first: Group, last: Group) -> bool:
        """Whether a third group depends on `first` and is needed by `last`."""
        if not self._depends(last, first):
            return False
        bit = 1 << first.number
        return any(producer is not first and self.ancestors[producer.number] & bit for producer in self.producers(last))

    def _depends(self, reader: Group, maker: Group) -> bool:
        return bool(self.ancestors[reader.number] >> maker.number & 1)

    def _same_structure(
        self, left: Group, right: Group, cells: dict[AxisSet, int], rename: Callable[[int], int]
    ) -> Structure | None:
        """The loop tree of a group, if what joins it is computed in loops that it has: most ops are."""
        known = left.structure
        if known is None or right.reduces or known.secondary or len({over for _, _, over in left.reduces}) > 1:
            return None
        outer, inner = frozenset(map(rename, known.outer)), frozenset(map(rename, known.inner))
        every = outer | inner
        # Where a cell is cheap enough to be computed again and again, it may not be with another op.
        if any(cell != every and cell != outer for cell in (frozenset(map(rename, item)) for item in right.cells)):
            return None
        return Structure(outer, inner, known.secondary, known.post) if len(cells) == len(left.cells) else None

    def _structure(
        self,
        ops: list[Op],
        cells: dict[AxisSet, int],
        reduces: list[Reduction],
        touch: tuple[dict[Value, Axes], ...],
        rename: Callable[[int], int],
    ) -> Structure | str:
        """The loop tree of these ops once their axes are renamed, or why there is none."""
        candidate = Candidate(ops, cells, reduces, touch, rename, self.axes.extent, self.inlining)
        return loop_tree(candidate, (self.machine or DEFAULT).sharing.reduction)

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
        self.readers[left.number] |= self.readers.pop(right.number)
        self.taken[right.number] = merged.number
        self._tell_readers(merged.number, union | (1 << merged.number))
        return merged

    def _tell_readers(self, first: int, found: int) -> None:
        """Add these to the ancestors of all groups that depend on one. Who has them all has told those behind it."""
        pending = list(self.readers[first])
        while pending:
            number = pending.pop()
            while number in self.taken:
                number = self.taken[number]
            if number != first and found & ~self.ancestors[number]:
                self.ancestors[number] |= found
                pending.extend(self.readers[number])

    def run(self) -> Fused:
        """Every op in turn, then siblings."""
        for op in self.graph.ops:
            if op in self.inlining:
                continue
            source = self.inlining.alias(op)
            if source is not None:
                self.aliases[op.results[0]] = source
                continue
            group = self.start(op)
            if isinstance(op.defn.kind, Join) and (parts := self._parts(op)):
                self.parts.update(parts)
                group.kind = "join"
            if group.kind == "loops":
                group.structure = self._single(group)
            # Numbers are given in order and never reused, so that they work as bits of a mask.
            group.number = self.started
            self.started += 1
            mask = 0
            producers = self.producers(group)
            self.readers[group.number] = set()
            for producer in producers:
                mask |= (1 << producer.number) | self.ancestors[producer.number]
                self.readers[producer.number].add(group.number)
            self.ancestors[group.number] = mask
            self.groups[group.number] = group
            for value in op.results:
                self.owner[value] = group.number
            for producer in producers:
                if producer.number not in self.groups or producer is group or group.kind == "join":
                    continue
                merged = self.merge(producer, group)
                if merged is not None:
                    group = self.adopt(merged, producer, group)
        self._siblings()
        if self.whole_rows:
            chain(self)
        return self._finish()

    def _single(self, group: Group) -> Structure:
        if not group.reduces:
            (every,) = group.cells
            return Structure(every, frozenset(), frozenset(), frozenset())
        found = self._structure(group.ops, group.cells, group.reduces, (group.touch,), self.axes.find)
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
            if value.ndim == 0 or (isinstance(size, int) and size < COSTS.shared_elements):
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
            if group.left is not None:
                self._complete(group.left)
            self._complete(group)
        refusals = list(self.refusals.values())
        return Fused(self.graph, self._launches(), self.inlining.ops(), self.aliases, refusals, self.axes, self.parts)

    def _complete(self, group: Group) -> None:
        """What a group stores, and its loops, now that all groups are known."""
        inside = set(group.ops)
        left = group.left
        taken = set() if left is None else set(left.ops)
        group.outputs = tuple(
            value
            for op in group.ops
            if op not in taken
            for value in op.results
            if value is not group.tile and self._escapes(group, value, inside)
        )
        if left is not None:
            group.outputs = (*left.outputs, *group.outputs)
        if group.structure is not None:
            group.structure = replace(
                group.structure,
                outer=self.axes.roots(group.structure.outer),
                inner=self.axes.roots(group.structure.inner),
            )

    def _escapes(self, group: Group, value: Value, inside: set[Op]) -> bool:
        """Whether a value that a group makes is needed outside of it."""
        if group.product is not None and value is self.stored(group.product):
            value = group.product
        return self.inlining.escapes(value, inside)

    def _launches(self) -> list[list[Group]]:
        """Kernels in order. Groups of one step do not depend on each other and share parallel regions: threads wait for
        each other less often. Matrix products come first, whose tiles are long, then what fills the gaps."""
        depth: dict[int, int] = {}
        # A group has all the ancestors of its producers and these, too: fewer ancestors come first.
        for number in sorted(self.groups, key=lambda number: self.ancestors[number].bit_count()):
            producers = self.producers(self.groups[number])
            last = max((depth[producer.number] for producer in producers), default=-1)
            depth[number] = last + (self.groups[number].kind != "join")
        launches: list[list[Group]] = []
        open_launch: dict[int, list[Group]] = {}
        products = {
            number for number, group in self.groups.items() if group.product is not None and self.machine is not None
        }
        for number in sorted(self.groups, key=lambda item: (depth[item], item not in products, item)):
            group = self.groups[number]
            if group.kind == "join":
                continue
            is_single = group.kind != "loops" or group.structure is None or group.structure.secondary
            if is_single and number not in products:
                launches.append([group])
                continue
            company = open_launch.get(depth[number])
            if company is not None and sum(item.cost for item in company) + group.cost <= self.max_cost:
                company.append(group)
            else:
                open_launch[depth[number]] = company = [group]
                launches.append(company)
        return launches


@graph_pass("fuse")
def fuse(graph: Graph, *, max_cost: int = 1024, whole_rows: bool = True, machine: Machine | None = None) -> Fused:
    """Groups of primitives that become one kernel each, and why others do not. With a width of vectors in `bits`,
    matrix products read matrices that are packed for it where they lie, and share kernels with others."""
    return Fuser(constants_first(graph), max_cost, whole_rows, machine).run()
