"""Lower compactions: the places of the true elements of a mask, in order.

The mask is cut into chunks and the result into tiles, and threads share out either, so the result is the same for any
number of them:

    chunks     each collects the places of its true elements and counts them
    starts     a running sum of the counts: where the places of a chunk begin in the result
    tiles      each is filled, then takes its places from the chunks
"""

from __future__ import annotations

from ...ir.graph import Op, Value
from ...ir.proofs import ceil_divide, minimum
from ...ir.symbolic import Dim
from ...ir.types import i64
from ...kernels.loop.ir import Buffer, Literal, Operand, Store
from ...ops.kinds import Compact
from ..fusion.groups import Group
from .elements import Lowering, lowers

Place = tuple[Dim, ...]


@lowers(Compact)
def lower_compact(lowering: Lowering, group: Group) -> None:
    """Lower one compaction."""
    (op,) = group.ops
    Compacting(lowering, op).build()


class Compacting:
    """Builds the loops of one compaction."""

    def __init__(self, lowering: Lowering, op: Op):
        self.l = lowering
        self.mask: Value = op.arguments["self"]
        self.fill = Literal(op.arguments["fill_value"], i64)
        self.out = lowering.buffer(op.results[0])
        (self.size,) = op.results[0].shape
        (self.count,) = self.mask.shape
        lowering.members = set()

    def _add(self, buffer: Buffer, place: Place, item: Operand, guard: Operand | None = None) -> None:
        self.l.add(len(self.l.scopes) - 1, Store(buffer, place, item, self.l.needed(guard)))

    def build(self) -> None:
        if self.count == 0 or self.size == 0:
            self.l.nest((self.size,), lambda place: self._add(self.out, place, self.fill))
            return
        shape = self.l.machine.compaction
        chunk = shape.chunk
        if isinstance(self.count, int):
            chunk = max(chunk, -(-self.count // shape.chunks))
        chunks = ceil_divide(self.count, chunk)
        found = self.l.temporary(i64, (chunks, chunk))  # the places of the true elements of each chunk
        counts = self.l.temporary(i64, (chunks,))
        starts = self.l.temporary(i64, (chunks + 1,))
        zero = Literal(0, i64)

        def collect(index: Place) -> None:
            (at,) = index
            length = minimum(chunk, self.count - at * chunk)

            def number_at(place: Dim) -> Operand:
                return self.l.cast(self.l.element(self.mask, (at * chunk + place,)), i64)

            step = self.l.new_variable(length)
            self.l.open(step, 0, length)
            ((total,),) = self.l.close([("add", (number_at(step.expr()),))])
            self._add(counts, (at,), total)

            def collected(step: Place) -> None:
                number = number_at(step[0])
                after = self.l.prefix("add", number, zero)
                # Without a branch: the next true element overwrites the place of one that is false.
                here, guard = self.l.dynamic(self.l.let("sub", i64, [after, number]), chunk, False)
                self._add(found, (at, here), self.l.index(at * chunk + step[0]), guard)

            self.l.nest((length,), collected)

        def start(index: Place) -> None:
            (at,) = index
            so_far = self.l.prefix("add", self.l.load_buffer(counts, (at,)), zero)
            self._add(starts, (at + 1,), so_far)

        def take(index: Place) -> None:
            first = index[0] * shape.tile
            length = minimum(shape.tile, self.size - first)
            self.l.nest((length,), lambda place: self._add(self.out, (first + place[0],), self.fill))

            def from_chunk(chosen: Place) -> None:
                (at,) = chosen
                begin = self.l.load_buffer(starts, (at,))
                end = self.l.load_buffer(starts, (at + 1,))
                offset = self.l.let("sub", i64, [self.l.index(first), begin])  # of the tile in the chunk's places
                low = self.l.let("maximum", i64, [offset, zero])
                last = self.l.let("add", i64, [offset, self.l.index(length)])
                high = self.l.let("minimum", i64, [last, self.l.let("sub", i64, [end, begin])])
                low = self.l.let("minimum", i64, [low, self.l.let("maximum", i64, [high, zero])])
                high = self.l.let("maximum", i64, [low, high])
                lower, _ = self.l.dynamic(low, chunk + 1, False)
                upper, _ = self.l.dynamic(high, chunk + 1, False)
                variable = self.l.new_variable(chunk)
                self.l.open(variable, lower, upper)
                place = variable.expr()
                item = self.l.load_buffer(found, (at, place))
                into, guard = self.l.dynamic(self.l.let("sub", i64, [self.l.index(place), offset]), length, False)
                self._add(self.out, (first + into,), item, guard)
                self.l.close()

            self.l.nest((chunks,), from_chunk)

        self.l.nest((chunks,), collect)
        self.l.nest((1,), lambda index: self._add(starts, index, zero))
        self.l.nest((chunks,), start)
        self.l.nest((ceil_divide(self.size, shape.tile),), take)
