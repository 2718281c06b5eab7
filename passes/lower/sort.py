"""Lower sorts: each row is sorted by itself, with working memory of its own.

For GPUs a row is sorted by ranks: each element counts those that come before it, each place in the order looks for the
element of that rank. Both take the square of a row's length in steps, all of which are independent.
"""

from __future__ import annotations

from ...ir.graph import Op, Value
from ...ir.symbolic import Dim, product
from ...ir.types import bool_, i64
from ...kernels.loop.ir import Alloc, Buffer, Literal, Matrix, Operand, Store
from ...kernels.loop.ir import Sort as SortStatement
from ...kernels.sort import sort_space
from ...ops.kinds import Sort
from ..fusion.groups import Group
from .elements import Lowering, lowers

Place = tuple[Dim, ...]


@lowers(Sort)
def lower_sort(lowering: Lowering, group: Group) -> None:
    """Lower one sort."""
    (op,) = group.ops
    kind, value = op.defn.kind, op.arguments["self"]
    assert isinstance(kind, Sort)
    out, source = lowering.buffer(op.results[0]), lowering.buffer(value)
    length = value.shape[-1]
    if lowering.gpu:
        _by_ranks(lowering, op, kind)
        return
    space = sort_space(value.dtype, kind.places, length)
    room = Buffer(f"%{lowering.name}.room", i64, (space,), "scratch")

    def row(index: tuple[Dim, ...]) -> None:
        inside = len(lowering.scopes) - 1
        lowering.add(inside, Alloc(room))
        lowering.add(inside, _statement(op, out, source, room, index[0]))

    lowering.nest((product(value.shape[:-1]),), row)


def _statement(op: Op, out: Buffer, source: Buffer, room: Buffer, row: Dim) -> SortStatement:
    """Return the statement that sorts a row."""
    kind, length, kept = op.defn.kind, source.shape[-1], out.shape[-1]
    assert isinstance(kind, Sort)
    (space,) = room.shape
    return SortStatement(
        Matrix(out, row * kept, kept, 1),
        Matrix(source, row * length, length, 1),
        Matrix(room, 0, space, 1),
        1,
        length,
        op.arguments["start"],
        kept,
        space,
        op.arguments["descending"],
        kind.places,
        op.loc,
    )


def _by_ranks(lowering: Lowering, op: Op, kind: Sort) -> None:
    value: Value = op.arguments["self"]
    descending, start, length = op.arguments["descending"], op.arguments["start"], value.shape[-1]
    lowering.members = set()
    ranks = lowering.temporary(i64, value.shape)

    def item(row: Place, at: Dim) -> Operand:
        found = lowering.load(value, (*row, at))
        return lowering.cast(found, i64) if found.dtype is bool_ else found

    def rank(index: Place) -> None:
        row, own = index[:-1], item(index[:-1], index[-1])
        step = lowering.new_variable(length)
        lowering.open(step, 0, length)
        other = item(row, step.expr())
        less, more = _before(lowering, other, own), _before(lowering, own, other)
        if descending:
            less, more = more, less
        earlier = lowering.scalar("lt", lowering.index(step.expr()), lowering.index(index[-1]))
        tie = lowering.scalar("logical_and", lowering.scalar("logical_not", more), earlier)
        before = lowering.scalar("logical_or", less, tie)
        ((total,),) = lowering.close([("add", (lowering.cast(before, i64),))])
        lowering.add(len(lowering.scopes) - 1, Store(ranks, index, total))

    def place(index: Place) -> None:
        step = lowering.new_variable(length)
        lowering.open(step, 0, length)
        found = lowering.load_buffer(ranks, (*index[:-1], step.expr()))
        hit = lowering.scalar("eq", found, lowering.index(start + index[-1]))
        number = lowering.scalar("where", hit, lowering.index(step.expr()), Literal(0, i64))
        ((at,),) = lowering.close([("add", (number,))])
        if kind.places:
            lowering.store(op.results[0], index, at)
        else:
            position, guard = lowering.dynamic(at, length, False)
            lowering.store(op.results[0], index, lowering.load(value, (*index[:-1], position), guard))

    lowering.nest(value.shape, rank)
    lowering.nest(op.results[0].shape, place)


def _before(lowering: Lowering, left: Operand, right: Operand) -> Operand:
    """Return whether an element is less than another, NaN being the largest."""
    less = lowering.scalar("lt", left, right)
    if not left.dtype.is_float:
        return less
    number, nan = lowering.scalar("eq", left, left), lowering.scalar("ne", right, right)
    return lowering.scalar("logical_or", less, lowering.scalar("logical_and", number, nan))
