"""Merge two groups into one, once legality.py has found that they can be."""

from __future__ import annotations

from .groups import Group, Partition
from .legality import Union


def merged(partition: Partition, left: Group, right: Group, union: Union) -> Group:
    """Return the group of both, with the number of the left one, and join their axes."""
    axes_of = partition.axes
    for source, target in union.mapping.items():
        axes_of.join(source, target)
    # The larger group's table takes in the other: a long chain grows op by op, and must not be copied each time.
    touch, added = (left.touch, right.touch) if len(left.touch) >= len(right.touch) else (right.touch, left.touch)
    opaque = {**left.opaque, **right.opaque} if left.opaque and right.opaque else left.opaque or right.opaque
    for value, axes in added.items():
        if value not in touch:
            touch[value] = axes
        elif axes_of.root(touch[value]) != axes_of.root(axes):
            opaque = {**opaque}
            opaque.setdefault(value, (right if added is right.touch else left).label)
    return Group(
        left.number, "loops" if union.product is None else "contract", union.ops, product=union.product,
        touch=touch, opaque=opaque, cells=union.cells, reduces=union.reduces,
        operand_axes={**left.operand_axes, **right.operand_axes}, structure=union.structure,
        row_reads={**left.row_reads, **right.row_reads},
        basis=max(left.basis, right.basis), limit=min(left.limit, right.limit),
    )  # fmt: skip
