"""Lower scans: a combiner over all prefixes of one dim.

Threads share out the lines along that dim. A few long lines are cut into chunks and take three steps: the total of each
chunk, the prefix of the chunks before it, its own prefixes from there on. Sizes alone decide.
"""

from __future__ import annotations

from ...ir.graph import Op, Value
from ...ir.proofs import ceil_divide, minimum
from ...ir.symbolic import Dim, product
from ...kernels.loop.ir import Literal, Operand, Store
from ...kernels.scalar.table import COMBINERS
from ...ops.kinds import Scan
from ..fusion.groups import Group
from ..fusion.inline import static
from .elements import Lowering, lowers

Place = tuple[Dim, ...]


@lowers(Scan)
def lower_scan(lowering: Lowering, group: Group) -> None:
    """Lower one scan."""
    (op,) = group.ops
    kind = op.defn.kind
    assert isinstance(kind, Scan)
    value, dim = op.arguments["self"], op.arguments["dim"]
    lines = static(product(value.shape[:dim])) * -(
        -static(product(value.shape[dim + 1 :])) // lowering.machine.sharing.scan_beside
    )
    scanning, sharing = Scanning(lowering, op, kind), lowering.machine.sharing
    if lines < sharing.scan_lines and static(value.shape[dim]) >= sharing.scan_length:
        scanning.in_chunks()
    else:
        scanning.whole()


class Scanning:
    """Builds the loops of one scan. An index of lines lacks the scanned dim."""

    def __init__(self, lowering: Lowering, op: Op, kind: Scan):
        self.l = lowering
        self.value: Value = op.arguments["self"]
        self.out = lowering.buffer(op.results[0])
        self.combiner = kind.combiner
        self.dim: int = op.arguments["dim"]
        self.length = self.value.shape[self.dim]
        self.lines = self.value.shape[: self.dim] + self.value.shape[self.dim + 1 :]
        self.dtype = self.value.dtype.compute
        self.neutral = Literal(COMBINERS[kind.combiner].identity(self.dtype)[0], self.dtype)
        lowering.members = set()

    def _at(self, line: Place, place: Dim) -> Place:
        return (*line[: self.dim], place, *line[self.dim :])

    def _store(self, index: Place, start: Operand) -> None:
        """Store one prefix, in the loop along the dim."""
        item = self.l.prefix(self.combiner, self.l.element(self.value, index), start)
        self.l.add(len(self.l.scopes) - 1, Store(self.out, index, item))

    def whole(self) -> None:
        def along(line: Place) -> None:
            self.l.nest((self.length,), lambda place: self._store(self._at(line, place[0]), self.neutral))

        self.l.nest(self.lines, along)

    def in_chunks(self) -> None:
        most = self.l.machine.sharing.scan_chunk
        chunks = ceil_divide(self.length, most)
        totals = self.l.temporary(self.dtype, self._at(self.lines, chunks))
        before = self.l.temporary(self.dtype, self._at(self.lines, chunks + 1))

        def total(index: Place) -> None:
            start = index[self.dim] * most
            length = minimum(most, self.length - start)
            step = self.l.new_variable(length)
            self.l.open(step, 0, length)
            item = self.l.element(self.value, self._at(self._line(index), start + step.expr()))
            ((result,),) = self.l.close([(self.combiner, (item,))])
            self.l.add(len(self.l.scopes) - 1, Store(totals, index, result))

        def precede(line: Place) -> None:
            self.l.add(len(self.l.scopes) - 1, Store(before, self._at(line, 0), self.neutral))

            def add(place: Place) -> None:
                item = self.l.load_buffer(totals, self._at(line, place[0]))
                so_far = self.l.prefix(self.combiner, item, self.neutral)
                self.l.add(len(self.l.scopes) - 1, Store(before, self._at(line, place[0] + 1), so_far))

            self.l.nest((chunks,), add)

        def go_on(index: Place) -> None:
            start = index[self.dim] * most
            line, offset = self._line(index), self.l.load_buffer(before, index)
            self.l.nest(
                (minimum(most, self.length - start),),
                lambda place: self._store(self._at(line, start + place[0]), offset),
            )

        self.l.nest(self._at(self.lines, chunks), total)
        self.l.nest(self.lines, precede)
        self.l.nest(self._at(self.lines, chunks), go_on)

    def _line(self, index: Place) -> Place:
        return (*index[: self.dim], *index[self.dim + 1 :])
