"""Fuse matrix products with reductions of their rows, and with the product that makes their left matrix.

Whole rows. If a tile of a product covers whole rows, reductions of these rows and their consumers run on the tile: the
softmax of a product, a norm of one.

Chains. If such a group makes the left matrix of another product and nothing else needs that matrix, the other product
takes in the group: a tile of rows is made, and multiplied while it is in the cache. Attention is two products with a
softmax between them, and its weights are never in memory.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import Op, Value
from ...kernels.gemm import BYTES, leaves_threads_idle
from ...ops.kinds import Contract, View
from .axes import Axes, batched_matrix
from .costs import COSTS
from .groups import Group, Partition
from .inline import elements, static
from .reasons import Obstacle, Reason


def no_whole_rows(group: Group) -> Obstacle | None:
    """Return why tiles of a group's product cannot cover whole rows; None if they can."""
    op = product_op(group)
    (result,) = op.results
    if not is_tiled(group):
        return Reason.PRODUCT_NOT_TILED()
    batch, rows, columns = result.shape
    if leaves_threads_idle(batch, rows, columns, op.arguments["self"].shape[2]):
        return Reason.FEW_ROWS()
    if static(columns) > COSTS.whole_row:
        return Reason.LONG_ROWS()
    return None


def product_op(group: Group) -> Op:
    """Return the matrix product of a group."""
    taken = () if group.left is None else group.left.ops
    return next(op for op in group.ops if isinstance(op.defn.kind, Contract) and op not in taken)


def is_tiled(group: Group) -> bool:
    """Whether a product is certain to be lowered to tiles: of floats, of matrices and not of vectors."""
    op = product_op(group)
    (result,) = op.results
    _, rows, columns = result.shape
    sizes = (*result.shape, op.arguments["self"].shape[2])
    return result.dtype.compute.name in BYTES and rows != 1 and columns != 1 and all(size != 0 for size in sizes)


def chain(partition: Partition, refuse: Callable[[Group, Group, Obstacle], None]) -> None:
    """Merge products with the groups that make their left matrices; report to `refuse` where that fails."""
    for number in sorted(partition.groups):
        group = partition.groups.get(number)
        if group is None or group.product is None:
            continue
        left = partition.stored(next(partition.inlining.memory(product_op(group).arguments["self"])))
        for maker in partition.producers(group):
            if maker.product is None:
                continue
            obstacle = _obstacle(partition, maker, group, left)
            if obstacle is None:
                ops = partition.in_order(maker.ops, group.ops)
                group = partition.adopt(group._replace(ops=ops, left=maker._replace(tile=left)), group, maker)
            else:
                refuse(maker, group, obstacle)


def _obstacle(partition: Partition, maker: Group, group: Group, left: Value) -> Obstacle | None:
    """Return why a product cannot take in the group that makes its left matrix; None if it can."""
    op, inner = product_op(group), product_op(maker)
    value = op.arguments["self"]
    if partition.find(left) is not maker or maker.left is not None or not is_tiled(group):
        return Reason.OWN_KERNEL(group.label)
    if op.results[0].dtype is not inner.results[0].dtype.compute:
        return Reason.TILE_TYPE(inner.results[0].dtype.compute, op.results[0].dtype)
    if obstacle := no_whole_rows(maker):
        return obstacle
    if value.shape != inner.results[0].shape or not _lies_in_rows(partition, value):
        return Reason.OTHER_PLACES(op.name)
    if _order(partition, maker, left) != _order(partition, maker, maker.product):
        return Reason.OTHER_PLACES(op.name)
    if any(
        partition.find(item) is maker and (item is not left or item in group.touch) for item in _read(partition, group)
    ):
        return Reason.MORE_THAN_LEFT()
    if left in {partition.stored(item) for item in partition.inlining.memory(op.arguments["mat2"])}:
        return Reason.MORE_THAN_LEFT()
    if _is_read(partition, left, {*maker.ops, op}):
        return Reason.IN_MEMORY()
    rights = [item.arguments["mat2"] for item in (inner, op)]
    if elements(value) < 2 * sum(map(_memory, rights)) and any(_one(item) > COSTS.right_elements for item in rights):
        return Reason.LARGE_MATRICES()
    if partition.between(maker, group):
        return Reason.BETWEEN()
    return None


def _lies_in_rows(partition: Partition, value: Value) -> bool:
    """Whether a batched matrix is all of a value's memory, row-major."""
    view = batched_matrix(value, partition.inlining.__contains__)
    assert view is not None
    batch, rows, columns = value.shape
    each = view.start(1) - view.start(0)
    together = view.start(0) == 0 and (batch == 1 or each == rows * columns)
    return together and (view.row_stride, view.column_stride) == (columns, 1)


def _order(partition: Partition, group: Group, value: Value | None) -> Axes:
    """Return the axes of a value from the largest stride to the smallest."""
    assert group.product is not None
    if value is partition.stored(group.product):
        value = group.product
    return tuple(axis for axis in partition.axes.root(group.touch.get(value, ())) if axis is not None)  # type: ignore[arg-type]


def _read(partition: Partition, group: Group) -> list[Value]:
    return [partition.stored(value) for value in group.reads()]


def _is_read(partition: Partition, value: Value, inside: set[Op]) -> bool:
    """Whether a value is a result, or read by other ops than these, through views and other shapes too."""
    if value in partition.inlining.results:
        return True
    for user in partition.inlining.uses[value]:
        if user in inside:
            continue
        if user not in partition.inlining and user.results[0] not in partition.aliases:
            return True
        if _is_read(partition, user.results[0], inside):
            return True
    return False


def _one(value: Value) -> int:
    """Return the elements of one matrix of a batch."""
    return static(value.shape[1]) * static(value.shape[2])


def _memory(value: Value) -> int:
    """Return the elements that a batched matrix has in memory."""
    base = value
    while base.op is not None and isinstance(kind := base.op.defn.kind, View) and kind.rigid is not None:
        (base,) = base.op.operands
    return min(elements(value), elements(base))
