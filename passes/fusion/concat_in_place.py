"""Store the parts of a join (concat, stack, pad) in place: find where each lies in the join's memory."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Op, Value
from ...ir.record import Record
from ...ir.symbolic import Dim
from ...ops.concat_pad import cat
from .axes import keeps_order, rigid_map
from .costs import COSTS
from .inline import Inlining, static


class Part(Record):
    """A value whose memory is a part of a joined value's."""

    value: Value
    whole: Value
    dims: tuple[int | None, ...]  # the part's dim for each dim of the whole (None: of size 1)
    dim: int  # the dim along which the parts are joined
    start: Dim  # where the part starts in that dim

    def place(self, index: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the index in the whole of an element of the part."""
        place = [0 if at is None else index[at] for at in self.dims]
        place[self.dim] = place[self.dim] + self.start
        return tuple(place)


def part_of(op: Op, inlining: Inlining) -> list[Part]:
    """Return the parts of a join; none if one of them needs memory of its own, or would be stored in short runs."""
    if op.defn is not cat:
        return []
    (whole,), dim = op.results, op.arguments["dim"]
    parts: list[Part] = []
    start: Dim = 0
    for operand in op.arguments["tensors"]:
        run = 1
        for size in operand.shape[dim:]:
            run *= static(size)
        value: Value = operand
        dims: tuple[int | None, ...] = tuple(range(operand.ndim))
        while value.op is not None and keeps_order(value.op) and value.op in inlining:
            step = rigid_map(value.op)
            if step is None or len(inlining.uses[value]) > 1 or value in inlining.results:
                return []
            (value,) = value.op.operands
            back = {at: source for source, at in enumerate(step) if at is not None}
            dims = tuple(None if at is None else back.get(at) for at in dims)
        if value.op is None or value in inlining.results or run < COSTS.joined_run:
            return []
        parts.append(Part(value, whole, dims, dim, start))
        start = start + operand.shape[dim]
    return parts
