"""Lower scatters: a copy of an operand with updates combined into elements that data chooses.

Updates of one element are combined in the order of the update space, so that the bits are the same every time.
Threads therefore share out the destinations, in one of four ways:

    rows of their own  the leading dims of the result follow those of the updates: each iteration of those loops
                       copies its part of the operand and combines its updates into it
    tiles              the trailing dims follow, and the data that chooses does not have them: whole rows are
                       updated. First the numbers of the updates are sorted by the tile of rows that they go to,
                       chunk by chunk, each chunk by itself and without changing their order within a tile; then
                       each tile copies its rows and combines what the chunks have for it
    slices             the last dim follows: each slice of it is copied and updated by itself
    runs               the updates of each row are a run, whose place is known: a row is copied and updated by itself

A scatter of little work, or of another form, is a copy and then all updates in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.graph import Op, Value
from ...ir.proofs import ceil_divide, floor_divide, minimum, non_negative, remainder
from ...ir.symbolic import Dim, contiguous_strides, product, same
from ...ir.types import i64
from ...kernels.loop.ir import Alloc, Buffer, Literal, Operand, Store
from ...kernels.machine import Machine, ScatterTiling
from ...ops.kinds import Scatter
from ..fusion.groups import Group
from ..fusion.inline import static
from .elements import Lowering, lowers

Place = tuple[Dim, ...]


@lowers(Scatter)
def lower_scatter(lowering: Lowering, group: Group) -> None:
    """Lower one scatter."""
    (op,) = group.ops
    kind = op.defn.kind
    assert isinstance(kind, Scatter)
    Scattering(lowering, op, kind).build()


class Scattering:
    """Builds the loops of one scatter."""

    def __init__(self, lowering: Lowering, op: Op, kind: Scatter):
        self.l = lowering
        self.kind = kind
        self.arguments = op.arguments
        self.value: Value = op.arguments["self"]
        self.out = lowering.buffer(op.results[0])
        self.shape = self.value.shape
        self.updates = tuple(kind.updates(op.arguments))

    def build(self) -> None:
        self.l.members = set()
        tiling = self.l.machine.scatter
        lead, tail = self._leading(), self._trailing(choosing=False)
        rows, row = product(self.shape[: len(self.shape) - tail]), product(self.shape[len(self.shape) - tail :])
        # No index into an empty dim is valid: its guards only work for updates in turn.
        little = static(product(self.updates)) < self.l.machine.sharing.updates or not all(
            non_negative(size - 1) for size in self.shape
        )
        if any(size == 0 for size in self.updates):
            self.l.nest(self.shape, self._copy)
        elif any(size == 0 for size in self.shape):
            # Nothing is written; an index out of range in an update is reported.
            self.l.nest(self.shape, self._copy)
            self.l.nest(self.updates, lambda index: self.kind.item(self.l, index, self.arguments))
        elif self.kind.starts is not None:
            self._runs(self.kind.starts(self.arguments))
        elif not little and lead and static(product(self.updates[:lead])) >= tiling.rows:
            self._rows_of_their_own(lead)
        elif not little and static(rows) >= tiling.rows and static(row) * self.out.dtype.bytes >= tiling.row_bytes:
            self._tiles(tail, rows, static(row) * self.out.dtype.bytes)
        elif not little and self._trailing(choosing=True) and static(self.shape[-1]) >= 2 * tiling.slice:
            self._slices()
        else:
            self.l.nest(self.shape, self._copy)
            self.l.nest(self.updates, self._update)

    # The dims of the result that follow those of the updates.

    def _leading(self) -> int:
        """Count the leading dims of the result that follow those of the updates."""
        follows = self.kind.follows(self.arguments)
        count = 0
        for here, there in zip(self.shape, self.updates, strict=False):
            if follows[count] != count or not same(here, there):
                break
            count += 1
        return count

    def _trailing(self, choosing: bool) -> int:
        """Count the trailing dims of the result that follow those of the updates; `choosing`: the index may vary in
        them."""
        follows, chosen_by = self.kind.follows(self.arguments), self.kind.chosen_by(self.arguments)
        count = 0
        for here, there in zip(reversed(self.shape), reversed(self.updates), strict=False):
            dim = len(self.updates) - 1 - count
            if follows[len(self.shape) - 1 - count] != dim or not same(here, there):
                break
            if dim in chosen_by and not choosing:
                break
            count += 1
        return count

    # Statements.

    def _add(self, buffer: Buffer, place: Place, item: Operand, guard: Operand | None, combine: str | None) -> None:
        self.l.add(len(self.l.scopes) - 1, Store(buffer, place, item, guard, combine))

    def _copy(self, index: Place) -> None:
        """Copy one element of the operand."""
        self._add(self.out, index, self.l.element(self.value, index), None, None)

    def _update(self, index: Place) -> None:
        """Combine one update. Its value is computed first, so that an index out of range there is reported."""
        item = self.kind.item(self.l, index, self.arguments)
        place, guard = self.kind.place(self.l, index, self.arguments)
        self._combine(self.out, tuple(place), guard, item)

    def _combine(self, buffer: Buffer, place: Place, guard: Operand | None, item: Operand) -> None:
        self._add(buffer, place, item, self.l.needed(guard), self.kind.combine(self.arguments))

    # The ways to share out destinations.

    def _rows_of_their_own(self, lead: int) -> None:
        def rows(index: Place) -> None:
            self.l.nest(self.shape[lead:], lambda rest: self._copy((*index, *rest)))
            self.l.nest(self.updates[lead:], lambda rest: self._update((*index, *rest)))

        self.l.nest(self.shape[:lead], rows)

    def _runs(self, starts: Value) -> None:
        count, trailing = self.updates[0], self.shape[1:]

        def row(index: Place) -> None:
            (at,) = index
            begin, _ = self.l.dynamic(self.l.load(starts, (at,)), count + 1, False)
            end, _ = self.l.dynamic(self.l.load(starts, (at + 1,)), count + 1, False)
            self.l.nest(trailing, lambda rest: self._copy((at, *rest)))
            variable = self.l.new_variable(count)
            self.l.open(variable, begin, end)

            def update(rest: Place) -> None:
                item = self.kind.item(self.l, (variable.expr(), *rest), self.arguments)
                self._combine(self.out, (at, *rest), None, item)

            self.l.nest(trailing, update)
            self.l.close()

        self.l.nest(self.shape[:1], row)

    def _slices(self) -> None:
        size, step = self.shape[-1], self.l.machine.scatter.slice

        def slices(number: Place) -> None:
            start = number[0] * step
            length = minimum(step, size - start)

            def along(shape: Place, body: Callable[[Place], None]) -> None:
                self.l.nest((*shape[:-1], length), lambda index: body((*index[:-1], start + index[-1])))

            along(self.shape, self._copy)
            along(self.updates, self._update)

        self.l.nest((ceil_divide(size, step),), slices)

    def _tiles(self, tail: int, rows: Dim, row_bytes: int) -> None:
        """Share out tiles of rows; `height * t .. height * t + height` are tile t."""
        height = tile_height(rows, row_bytes, self.l.machine)
        tiles = ceil_divide(rows, height)
        lead, trailing = self.shape[: len(self.shape) - tail], self.shape[len(self.shape) - tail :]
        sources = self.updates[: len(self.updates) - tail]
        count = product(sources)
        chunk = chunk_length(count, tiles, self.l.machine.scatter)
        chunks = ceil_divide(count, chunk)
        first = self.l.temporary(i64, (chunks, tiles + 1))  # where a tile's updates begin in a chunk
        order = self.l.temporary(i64, (chunks, chunk))  # their numbers
        targets = self.l.temporary(i64, (chunks, chunk))  # and their rows within the tile
        out = Buffer(self.out.name, self.out.dtype, (rows, *trailing), self.out.role)

        def row_of(number: Dim) -> Dim:
            """Return the row that an update goes to."""
            index = (*unflatten(number, sources), *(0 for _ in trailing))
            place, _ = self.kind.place(self.l, index, self.arguments)
            return flatten(place[: len(lead)], lead)

        def sort(index: Place) -> None:
            """Sort a chunk of updates by tile (counting sort): counts, starts of tiles, then the numbers in order."""
            (at,) = index
            following = Buffer(f"%{self.l.name}.next", i64, (tiles + 1,), "scratch")
            self.l.add(1, Alloc(following))
            one, length = Literal(1, i64), minimum(chunk, count - at * chunk)

            def tally(step: Place) -> None:
                tile = floor_divide(row_of(at * chunk + step[0]), height)
                self._add(following, (tile + 1,), one, None, "add")

            def put(step: Place) -> None:
                number = at * chunk + step[0]
                row = row_of(number)
                tile = floor_divide(row, height)
                place, _ = self.l.dynamic(self.l.load_buffer(following, (tile,)), chunk, False)
                self._add(order, (at, place), self.l.index(number), None, None)
                self._add(targets, (at, place), self.l.index(remainder(row, height)), None, None)
                self._add(following, (tile,), one, None, "add")

            self.l.nest((tiles + 1,), lambda tile: self._add(following, tile, Literal(0, i64), None, None))
            self.l.nest((length,), tally)
            self._starts(following, first, at, tiles + 1)
            self.l.nest((length,), put)

        def fill(index: Place) -> None:
            """Make a tile: copy the operand's rows, then combine their updates, chunk by chunk."""
            (tile,) = index
            start = tile * height
            size = minimum(height, rows - start)

            def copy(place: Place) -> None:
                row = start + place[0]
                item = self.l.element(self.value, (*unflatten(row, lead), *place[1:]))
                self._add(out, (row, *place[1:]), item, None, None)

            def updates(step: Place) -> None:
                (at,) = step
                begin, _ = self.l.dynamic(self.l.load_buffer(first, (at, tile)), chunk + 1, False)
                end, _ = self.l.dynamic(self.l.load_buffer(first, (at, tile + 1)), chunk + 1, False)
                variable = self.l.new_variable(chunk)
                self.l.open(variable, begin, end)
                here = (at, variable.expr())
                number, _ = self.l.dynamic(self.l.load_buffer(order, here), count, False)
                row, guard = self.l.dynamic(self.l.load_buffer(targets, here), size, False)

                def update(rest: Place) -> None:
                    item = self.kind.item(self.l, (*unflatten(number, sources), *rest), self.arguments)
                    self._combine(out, (start + row, *rest), guard, item)

                self.l.nest(trailing, update)
                self.l.close()

            self.l.nest((size, *trailing), copy)
            self.l.nest((chunks,), updates)

        self.l.nest((chunks,), sort)
        self.l.nest((tiles,), fill)

    def _starts(self, following: Buffer, first: Buffer, at: Dim, count: Dim) -> None:
        """Turn counts, each stored one place after its tile, into the starts of tiles: a running sum."""

        def total(index: Place) -> None:
            so_far = self.l.prefix("add", self.l.load_buffer(following, index), Literal(0, i64))
            self._add(following, index, so_far, None, None)
            self._add(first, (at, *index), so_far, None, None)

        self.l.nest((count,), total)


def tile_height(rows: Dim, row_bytes: int, machine: Machine) -> int:
    """Choose the rows of a tile that stays in L1 while it is updated: a power of two, so a shift finds a row's tile."""
    height = 1 << max(machine.l1 // row_bytes, 1).bit_length() - 1
    if isinstance(rows, int):
        while height > 1 and -(-rows // height) < machine.scatter.tiles:
            height //= 2
        while -(-rows // height) > machine.scatter.most_tiles:
            height *= 2
    return height


def chunk_length(count: Dim, tiles: Dim, tiling: ScatterTiling) -> int:
    """Choose how many updates are sorted at a time: many more than tiles, whose counts take time, too."""
    length = max(tiling.chunk, 4 * tiles) if isinstance(tiles, int) else tiling.chunk
    return min(length, count) if isinstance(count, int) else length


def flatten(index: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    """Return an index as one number, row-major."""
    total: Dim = 0
    for position, stride in zip(index, contiguous_strides(shape), strict=True):
        total = total + position * stride
    return total


def unflatten(number: Dim, shape: Sequence[Dim]) -> list[Dim]:
    """Return the index of a row-major number."""
    index: list[Dim] = []
    for size in reversed(shape[1:]):
        index.insert(0, remainder(number, size))
        number = floor_divide(number, size)
    return [number, *index] if shape else []
