"""Lower sorts: each row is sorted by itself, with working memory of its own."""

from __future__ import annotations

from ...ir.symbolic import Dim, product
from ...ir.types import i64
from ...kernels.loop.ir import Alloc, Buffer, Matrix
from ...kernels.loop.ir import Sort as SortStatement
from ...kernels.sort import sort_space
from ...ops.kinds import Sort
from ..fusion.groups import Group
from .elements import Lowering, lowers


@lowers(Sort)
def lower_sort(lowering: Lowering, group: Group) -> None:
    """Lower one sort."""
    (op,) = group.ops
    kind, value = op.defn.kind, op.arguments["self"]
    assert isinstance(kind, Sort)
    out, source = lowering.buffer(op.results[0]), lowering.buffer(value)
    length, kept = value.shape[-1], op.results[0].shape[-1]
    space = sort_space(value.dtype, kind.places, length)
    room = Buffer(f"%{lowering.name}.room", i64, (space,), "scratch")

    def row(index: tuple[Dim, ...]) -> None:
        inside = len(lowering.scopes) - 1
        lowering.add(inside, Alloc(room))
        statement = SortStatement(
            Matrix(out, index[0] * kept, kept, 1),
            Matrix(source, index[0] * length, length, 1),
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
        lowering.add(inside, statement)

    lowering.nest((product(value.shape[:-1]),), row)
