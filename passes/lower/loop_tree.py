"""Lower one group of loops to its loop tree.

    for outer axes:
      for inner axes: the first reductions, and values that need none
      row values of those
      for inner axes: the next reductions, ...
      row outputs

Values that a later inner loop needs again are recomputed if that is cheap, else kept in scratch (or read back
from the output). Secondary reductions, which run across rows, first make partial results of fixed runs of
rows; a second loop combines the partials in order. Nothing depends on the number of threads.
"""

from __future__ import annotations

from ...ir.graph import Op, Value
from ...ir.proofs import ceil_divide, floor_divide, minimum, remainder
from ...ir.symbolic import Dim, Expr, Symbol, product
from ...ir.types import i64
from ...kernels.gpu import GPU
from ...kernels.loop.ir import Alloc, Buffer, Literal, Operand, Store
from ...kernels.scalar.table import COMBINERS
from ...ops.kinds import Element, Kind, Reduce, View
from ..fusion.axes import rigid_map
from ..fusion.costs import COSTS
from ..fusion.groups import Group
from ..fusion.inline import op_cost, static
from .builder import flatten_index
from .elements import Lowering, Saved, lowers


class Tree:
    """Builds the loop tree of one group; with `rows`, the indices of its outer axes, only that of one row."""

    def __init__(self, lowering: Lowering, group: Group, rows: dict[int, Dim] | None = None):
        assert group.structure is not None
        self.l = lowering
        self.group = group
        self.structure = group.structure
        self.axes = lowering.fused.axes
        self.touch = {value: self.axes.root(axes) for value, axes in group.touch.items()}
        self.outputs = set(group.outputs)
        self.outer = self.structure.outer if rows is None else frozenset()
        self.coordinate: dict[int, Dim] = dict(rows or {})
        self.tile: tuple[Value, Saved] | None = None  # a value that is kept after the row, and its buffer
        self.loops: list[tuple[Symbol, Dim, bool]] = []  # variable, extent, is inner
        self.scratch_count = 0
        self._choose_loops()
        self.primary = {
            op
            for op in self.group.ops
            if isinstance(op.defn.kind, Reduce) and op not in self.structure.secondary and self._reduces(op)
        }
        self._levels()

    # The choice of loops and of their order.

    def _choose_loops(self) -> None:
        outer, inner = self.outer, self.structure.inner
        columns = any(self._result_axes(op) for op in self.structure.secondary)
        vector = self._vector_axis(inner if columns and inner else outer | inner)
        order = self._axis_order()
        outer_order = [axis for axis in order if axis in outer]
        inner_order = [axis for axis in order if axis in inner]
        for part in (outer_order, inner_order):
            if vector in part:
                part.remove(vector)
                part.append(vector)
        runs = self._runs(outer_order) + self._runs(inner_order)
        for run in runs:
            extent = product(self.axes.extent[axis] for axis in run)
            variable = self.l.new_variable(extent)
            self.loops.append((variable, extent, run[0] in inner))
            rest: Dim = variable.expr()
            for axis in reversed(run[1:]):
                size = self.axes.extent[axis]
                self.coordinate[axis] = remainder(rest, size)
                rest = floor_divide(rest, size)
            self.coordinate[run[0]] = rest
        self.inner = [(variable, extent) for variable, extent, is_inner in self.loops if is_inner]

    def _result_axes(self, op: Op) -> frozenset[int]:
        return frozenset(axis for axis in self.touch[op.results[0]] if axis is not None)

    def _vector_axis(self, among: frozenset[int]) -> int | None:
        """Return the axis along which most of the memory traffic is adjacent."""
        score: dict[int, int] = {}
        for value, axes in self.touch.items():
            if value.op in self.l.members and value not in self.outputs:
                continue
            present = [axis for axis in axes if axis is not None]
            if present and present[-1] in among and axes[-1] is not None:
                score[present[-1]] = score.get(present[-1], 0) + static(product(self.axes.extent[a] for a in present))
        inner = self.structure.inner
        return max(score, key=lambda axis: (score[axis], axis in inner), default=None)

    def _axis_order(self) -> list[int]:
        """Return the axes in the order of the dims of the largest values."""
        order: list[int] = []
        ranked = sorted(
            self.touch.items(), key=lambda item: (-sum(a is not None for a in item[1]), item[0] not in self.outputs)
        )
        for _value, axes in ranked:
            order.extend(axis for axis in axes if axis is not None and axis not in order)
        for cell in self.group.cells:
            order.extend(axis for axis in sorted(self.axes.roots(cell)) if axis not in order)
        return order

    def _runs(self, order: list[int]) -> list[list[int]]:
        """Collapse neighbouring axes that always occur together into runs, one loop each."""
        runs: list[list[int]] = [[axis] for axis in order]
        if not self._collapsible():
            return runs
        position = 0
        while position + 1 < len(runs):
            if self._adjacent(runs[position][-1], runs[position + 1][0]):
                runs[position] += runs.pop(position + 1)
            else:
                position += 1
        return runs

    def _collapsible(self) -> bool:
        if self.group.opaque:
            return False
        for op in self.group.ops:
            kind = op.defn.kind
            if isinstance(kind, Element) or (isinstance(kind, Reduce) and kind.result == "i64"):
                return False
            for value in op.operands:
                base = value
                while base.op is not None and base.op in self.l.fused.inline:
                    if not isinstance(base.op.defn.kind, View):
                        if base.ndim:
                            return False
                        break
                    (base,) = base.op.operands
        return True

    def _adjacent(self, left: int, right: int) -> bool:
        for axes in self.touch.values():
            present = [axis for axis in axes if axis is not None]
            if left in present:
                at = present.index(left)
                if at + 1 >= len(present) or present[at + 1] != right:
                    return False
            elif right in present:
                return False
        return True

    def place(self, value: Value) -> tuple[Dim, ...]:
        """Return the index of a value of the group, in loop variables."""
        return tuple(0 if axis is None else self.coordinate[axis] for axis in self.touch[value])

    def operand_place(self, op: Op) -> tuple[Dim, ...]:
        """Return the index at which a reduction reads its operand."""
        axes = self.axes.root(self.group.operand_axes[op])
        return tuple(0 if axis is None else self.coordinate[axis] for axis in axes)

    def _peel(self, value: Value) -> tuple[Value, tuple[int | None, ...]]:
        dims: tuple[int | None, ...] = tuple(range(value.ndim))
        while value.op is not None and value.op in self.l.fused.inline:
            step = rigid_map(value.op)
            if step is None:
                break
            (value,) = value.op.operands
            dims = tuple(None if at is None else dims[at] for at in step)
        return value, dims

    # The tree.

    def build(self) -> None:
        chunked = bool(self.structure.secondary)
        outer = [(variable, extent) for variable, extent, is_inner in self.loops if not is_inner]
        inner = self.inner
        self.partials: dict[Op, tuple[Buffer, ...]] = {}
        self.chunk: Dim = 0
        opened = 0
        if chunked:
            opened += self._open_chunks(outer, inner)
            outer = outer[1:]
        elif not outer:
            self.l.open(self.l.new_variable(1), 0, 1)
            opened += 1
        self.l.floor = 1
        for variable, extent in outer:
            self.l.open(variable, 0, extent)
            opened += 1
        sums = self.row()
        self._close_rows(opened, sums, chunked)
        self.l.floor = 0
        if chunked:
            self._combine_partials()

    def row(self) -> dict[Op, tuple[Operand, ...]]:
        """Lower one row, in the open loop; return its contribution to each secondary reduction."""
        self.row_depth = len(self.l.scopes) - 1
        sums: dict[Op, tuple[Operand, ...]] = {}
        self._plan_saves()
        for stage in range(self.last_level + 1):
            sums.update(self._stage(stage))
        for value in self.group.outputs:
            if self._is_row(value):
                self.l.store(value, self.place(value), self.l.element(value, self.place(value)))
        return sums

    def is_last(self, value: Value) -> bool:
        """Whether a value is made in the last inner loop."""
        return value.op is not None and self.level.get(value.op) == self.last_level

    def _reduces(self, op: Op) -> bool:
        return any(op.arguments["self"].shape[dim] != 1 for dim in op.arguments["dim"])

    def _open_chunks(self, outer: list[tuple[Symbol, Dim]], inner: list[tuple[Symbol, Dim]]) -> int:
        """Open the loop over fixed runs of the first outer axis, to be parallel later, and the loop over one run."""
        variable, extent = outer[0]
        row = static(product([size for _, size in (*outer[1:], *inner)]))
        sharing = self.l.machine.sharing
        if isinstance(extent, int):
            rows = max(-(-extent // sharing.partials), -(-sharing.partial_elements // max(row, 1)), 1)
            rows = min(rows, max(extent, 1))
            run: Dim = rows
            count: Dim = max(1, -(-extent // rows))
        else:
            run, count = ceil_divide(extent, sharing.partials), sharing.partials
        chunk = self.l.new_variable(count)
        self.l.open(chunk, 0, count)
        self.chunk, self.chunk_count = chunk.expr(), count
        for op in (op for op in self.group.ops if op in self.structure.secondary):
            dtypes = [op.arguments["self"].dtype.compute, i64][: COMBINERS[self._combiner(op)].arity]
            shape = [extent for _, extent in inner] if self._result_axes(op) else []
            self.partials[op] = tuple(self.l.temporary(dtype, [count, *shape]) for dtype in dtypes)
        if any(self._result_axes(op) for op in self.partials):
            for inner_variable, size in inner:
                self.l.open(inner_variable, 0, size)
            for op, (buffer, *_) in self.partials.items():
                if self._result_axes(op):
                    identity = COMBINERS[self._combiner(op)].identity(buffer.dtype)[0]
                    place = (self.chunk, *(item.expr() for item, _ in inner))
                    self.l.add(len(self.l.scopes) - 1, Store(buffer, place, Literal(identity, buffer.dtype)))
            for _ in inner:
                self.l.close()
        start = minimum(self.chunk * run, extent) if isinstance(extent, Expr) else self.chunk * run
        self.l.open(variable, start, minimum(self.chunk * run + run, extent))
        return 2

    def _combiner(self, op: Op) -> str:
        assert isinstance(op.defn.kind, Reduce)
        return op.defn.kind.combiner

    def _levels(self) -> None:
        """Number the ops by the inner loops that must be complete before they can be computed."""
        self.level: dict[Op, int] = {}
        skip = self.structure.secondary | self.structure.post
        for op in self.group.ops:
            if op in skip:
                continue
            level = 0
            for value in op.operands:
                source = self._peel(value)[0].op
                if source is not None and source in self.level:
                    level = max(level, self.level[source] + (source in self.primary))
            self.level[op] = level
        self.last_level = max(self.level.values(), default=0)
        for op in self.structure.secondary:
            self.last_level = max(self.last_level, self._operand_level(op))

    def _operand_level(self, op: Op) -> int:
        source = self._peel(op.arguments["self"])[0].op
        if source is None or source not in self.level:
            return 0
        return self.level[source] + (source in self.primary)

    def _is_full(self, value: Value) -> bool:
        return any(axis is not None and axis in self.structure.inner for axis in self.touch[value])

    def _is_row(self, value: Value) -> bool:
        return (
            not self._is_full(value)
            and value.op not in self.structure.post
            and value.op not in self.structure.secondary
        )

    def _roots(self, stage: int) -> tuple[list[Value], list[Op], list[Op]]:
        """List the results of a stage's inner loop: full outputs, primary reductions, secondary ones on full values."""
        outputs = [
            value
            for value in self.group.outputs
            if self._is_full(value)
            and value.op not in self.structure.post
            and value.op not in self.structure.secondary
            and self.level[value.op] == stage  # type: ignore[index]
        ]
        primary = [op for op in self.group.ops if op in self.primary and self.level[op] == stage]
        secondary = [
            op
            for op in self.group.ops
            if op in self.structure.secondary and self._operand_is_full(op) and self._operand_level(op) == stage
        ]
        return outputs, primary, secondary

    def _operand_is_full(self, op: Op) -> bool:
        axes = self.axes.root(self.group.operand_axes[op])
        return any(axis in self.structure.inner for axis in axes)

    def _plan_saves(self) -> None:
        """Decide which values each inner loop keeps for a later one."""
        self.keep: dict[int, list[Value]] = {}
        if not self.inner or self._vector_is_outer():
            return
        size = product(extent for _, extent in self.inner)
        if static(size) > COSTS.kept_row or (self.l.gpu and not (isinstance(size, int) and size <= GPU.row)):
            return
        room = GPU.rows if self.l.gpu else None
        decided: dict[Value, bool] = {}
        if self.tile is not None:
            decided[self.tile[0]] = True
        for stage in range(1, self.last_level + 1):
            outputs, primary, secondary = self._roots(stage)
            pending = [*outputs] + [op.arguments["self"] for op in (*primary, *secondary)]
            if self.tile is not None and self.level[self.tile[0].op] == stage:  # type: ignore[index]
                pending.extend(self.tile[0].op.operands)  # type: ignore[union-attr]
            seen: set[Value] = set()
            while pending:
                value, _ = self._peel(pending.pop())
                if value in seen or value.op not in self.level or value not in self.touch or not self._is_full(value):
                    continue
                seen.add(value)
                level = self.level[value.op]
                if level < stage:
                    if value not in decided:
                        taken = static(size) * value.dtype.compute.bytes
                        fits = room is None or taken <= room
                        decided[value] = fits and self._worth_keeping(value, decided)
                        if decided[value]:
                            self.keep.setdefault(level, []).append(value)
                            room = None if room is None else room - taken
                    if decided[value]:
                        continue
                pending.extend(value.op.operands)
        if self.tile is not None:
            # Last: it may overwrite its operands.
            self.keep.setdefault(self.level[self.tile[0].op], []).append(self.tile[0])  # type: ignore[index]

    def _vector_is_outer(self) -> bool:
        """Whether lanes run along an outer axis (column reductions), where a row's scratch would be strided."""
        columns = any(self._result_axes(op) for op in self.structure.secondary)
        among = self.structure.inner if columns and self.structure.inner else self.outer | self.structure.inner
        vector = self._vector_axis(among)
        return vector is not None and vector in self.outer

    def _worth_keeping(self, value: Value, decided: dict[Value, bool]) -> bool:
        """Whether recomputing a value, from kept and loaded values, costs more than keeping it."""
        cost, loads = 0, 0
        pending, seen = [value], set()
        while pending:
            item, _ = self._peel(pending.pop())
            if item in seen:
                continue
            seen.add(item)
            if item.op is None or item.op not in self.level or decided.get(item, False):
                loads += item in self.touch and self._is_full(item)
            elif self._is_full(item):
                cost += op_cost(item.op)
                pending.extend(item.op.operands)
        return cost > COSTS.recompute or loads > 1

    def _stage(self, stage: int) -> dict[Op, tuple[Operand, ...]]:
        """Lower the inner loop of a stage; return the row's contributions to secondary reductions."""
        outputs, primary, secondary = self._roots(stage)
        kept = self.keep.get(stage, [])
        sums: dict[Op, tuple[Operand, ...]] = {}
        if outputs or primary or secondary or kept:
            memory = {value: self._row_memory(value) for value in kept}
            for variable, extent in self.inner:
                self.l.open(variable, 0, extent)
            inside = len(self.l.scopes) - 1
            for value in outputs:
                self.l.store(value, self.place(value), self.l.element(value, self.place(value)))
            flat = tuple(variable.expr() for variable, _ in self.inner)
            reductions: list[tuple[Op, tuple[Operand, ...]]] = []
            for op in (*primary, *secondary):
                values = self._yielded(op)
                if op in self.structure.secondary and self._result_axes(op):
                    place = (self.chunk, *flat)
                    self.l.add(inside, Store(self.partials[op][0], place, values[0], None, self._combiner(op)))
                else:
                    reductions.append((op, values))
            for value, saved in memory.items():
                if saved.buffer.role == "scratch":
                    item = self.l.element(value, self.place(value))
                    buffer, place = flatten_index(saved.buffer, saved.place(self.place(value)))
                    self.l.add(inside, Store(buffer, place, item))
            for _ in self.inner:
                results = self.l.close([(self._combiner(op), values) for op, values in reductions])
                reductions = [(op, result) for (op, _), result in zip(reductions, results, strict=True)]
            for op, result in reductions:
                if op in self.structure.secondary:
                    sums[op] = result
                else:
                    self.l.scopes[-1].memo[(op.results[0], self.place(op.results[0]))] = result[-1]
            self.l.saved.update(memory)
        for op in self.group.ops:
            if op in self.structure.secondary and not self._operand_is_full(op) and self._operand_level(op) == stage:
                sums[op] = self._yielded(op)
        return sums

    def _row_memory(self, value: Value) -> Saved:
        """Return the buffer that keeps a value for a later inner loop: its output, if it is exact, else scratch."""
        if self.tile is not None and self.tile[0] is value:
            return self.tile[1]
        if value in self.outputs and value not in self.l.fused.parts and value.dtype.compute is value.dtype:
            return Saved(self.l.buffer(value), tuple(range(value.ndim)))
        dims = tuple(
            dim for dim, axis in enumerate(self.touch[value]) if axis is not None and axis in self.structure.inner
        )
        shape = tuple(value.shape[dim] for dim in dims)
        self.scratch_count += 1
        buffer = Buffer(f"%row{self.group.number}.{self.scratch_count}", value.dtype.compute, shape, "scratch")
        self.l.add(self.row_depth, Alloc(buffer))
        return Saved(buffer, dims)

    def _yielded(self, op: Op) -> tuple[Operand, ...]:
        """Return the contribution of one element to a reduction."""
        place = self.operand_place(op)
        item = self.l.element(op.arguments["self"], place)
        kind = op.defn.kind
        assert isinstance(kind, Reduce)
        if kind.result == "i64":
            (dim,) = op.arguments["dim"]
            return (item, self.l.index(place[dim]))
        return (item,)

    def _close_rows(self, opened: int, sums: dict[Op, tuple[Operand, ...]], chunked: bool) -> None:
        totals = list(sums.items())
        while opened:
            if chunked and opened == 1:
                for op, values in totals:
                    for buffer, value in zip(self.partials[op], values, strict=True):
                        self.l.add(len(self.l.scopes) - 1, Store(buffer, (self.chunk,), value))
                totals = []
            results = self.l.close([(self._combiner(op), values) for op, values in totals])
            totals = [(op, result) for (op, _), result in zip(totals, results, strict=True)]
            opened -= 1

    def _combine_partials(self) -> None:
        """Lower the second half of secondary reductions: combine partials in order, then the ops on the results."""
        whole = [op for op in self.partials if not self._result_axes(op)]
        columns = [op for op in self.partials if self._result_axes(op)]
        for part in (whole, columns):
            if not part:
                continue
            loops = self.inner if part is columns else []
            if part is columns:
                for variable, extent in loops:
                    self.l.open(variable, 0, extent)
            else:
                self.l.open(self.l.new_variable(1), 0, 1)
            self.l.floor = 1
            step = self.l.new_variable(self.chunk_count)
            self.l.open(step, 0, self.chunk_count)
            values: list[tuple[str, tuple[Operand, ...]]] = []
            for op in part:
                place = (step.expr(), *(variable.expr() for variable, _ in loops))
                parts = tuple(self.l.load_buffer(buffer, place) for buffer in self.partials[op])
                values.append((self._combiner(op), parts))
            results = self.l.close(values)
            for op, result in zip(part, results, strict=True):
                value = op.results[0]
                self.l.scopes[-1].memo[(value, self.place(value))] = result[-1]
            made = {
                op for op in self.group.ops if op in part or (op in self.structure.post and self._belongs(op, part))
            }
            for value in self.group.outputs:
                if value.op in made:
                    self.l.store(value, self.place(value), self.l.element(value, self.place(value)))
            for _ in range(len(loops) or 1):
                self.l.close()
            self.l.floor = 0

    def _belongs(self, op: Op, part: list[Op]) -> bool:
        return bool(self._result_axes(op)) == bool(self._result_axes(part[0]))


@lowers(Kind)
def lower_loops(lowering: Lowering, group: Group) -> None:
    """Lower a group of loops."""
    Tree(lowering, group).build()
