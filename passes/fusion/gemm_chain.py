"""Matrix products that share a kernel with others.

Whole rows. If a tile of a product covers whole rows, reductions of these rows and what needs them run on the tile: the
softmax of a product, a norm of one.

Chains. If the left matrix of a product is made by such a group and nothing else needs it, the product takes in the
group: a tile of rows is made, and multiplied while it is in the cache. Attention is two products with a softmax between
them, and its weights are never in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.graph import Op, Value
from ...kernels.gemm import BYTES, leaves_threads_idle
from ...ops.kinds import Contract, View
from .axes import Axes, batched_matrix
from .costs import COSTS
from .inline import elements, static

if TYPE_CHECKING:
    from .fuse import Fuser, Group


def no_whole_rows(group: Group) -> str | None:
    """Why tiles of a group's product cannot be of whole rows, if they cannot."""
    op = product_op(group)
    (result,) = op.results
    if not is_tiled(group):
        return "a matrix product like this shares its kernel with elementwise ops only"
    batch, rows, columns = result.shape
    if leaves_threads_idle(batch, rows, columns, op.arguments["self"].shape[2]):
        return "the matrix product has too few rows for threads to share them"
    if static(columns) > COSTS.whole_row:
        return "the rows of the matrix product are too long to stay in the cache"
    return None


def product_op(group: Group) -> Op:
    """The matrix product of a group."""
    taken = set() if group.left is None else set(group.left.ops)
    (op,) = (op for op in group.ops if isinstance(op.defn.kind, Contract) and op not in taken)
    return op


def is_tiled(group: Group) -> bool:
    """Whether a product is certain to be made of tiles: of floats, of matrices and not of vectors."""
    op = product_op(group)
    (result,) = op.results
    _, rows, columns = result.shape
    sizes = (*result.shape, op.arguments["self"].shape[2])
    return result.dtype.compute.name in BYTES and rows != 1 and columns != 1 and all(size != 0 for size in sizes)


def chain(fuser: Fuser) -> None:
    """Let products take in the groups that make their left matrices."""
    for number in sorted(fuser.groups):
        group = fuser.groups.get(number)
        if group is None or group.product is None:
            continue
        left = fuser.stored(next(fuser.inlining.memory(product_op(group).arguments["self"])))
        for maker in fuser.producers(group):
            if maker.product is None:
                continue
            reason = _obstacle(fuser, maker, group, left)
            if reason is None:
                maker.tile = left
                ops = fuser.in_order(maker.ops, group.ops)
                group = fuser.adopt(replace(group, ops=ops, left=maker), group, maker)
            else:
                fuser.refuse(maker, group, reason)


def _obstacle(fuser: Fuser, maker: Group, group: Group, left: Value) -> str | None:
    """Why a product cannot take in the group that makes its left matrix."""
    op, inner = product_op(group), product_op(maker)
    value = op.arguments["self"]
    if fuser.find(left) is not maker or maker.left is not None or not is_tiled(group):
        return f"{group.label} has a kernel of its own"
    if op.results[0].dtype is not inner.results[0].dtype.compute:
        return f"a tile in {inner.results[0].dtype.compute} is not what a product of {op.results[0].dtype} reads"
    if reason := no_whole_rows(maker):
        return reason
    if value.shape != inner.results[0].shape or not _lies_in_rows(fuser, value):
        return f"{op.name} reads it at other places"
    if _order(fuser, maker, left) != _order(fuser, maker, maker.product):
        return f"{op.name} reads it at other places"
    if any(fuser.find(item) is maker and (item is not left or item in group.touch) for item in _read(fuser, group)):
        return "the second product needs more of the first than its left matrix"
    if left in {fuser.stored(item) for item in fuser.inlining.memory(op.arguments["mat2"])}:
        return "the second product needs more of the first than its left matrix"
    if _is_read(fuser, left, {*maker.ops, op}):
        return "it is needed in memory all the same"
    rights = [item.arguments["mat2"] for item in (inner, op)]
    if elements(value) < 2 * sum(map(_memory, rights)) and any(_one(item) > COSTS.right_elements for item in rights):
        return "its tiles would each read large matrices"
    if fuser.between(maker, group):
        return "an op between them is in another kernel"
    return None


def _lies_in_rows(fuser: Fuser, value: Value) -> bool:
    """Whether a batched matrix is all of a value's memory, row by row."""
    view = batched_matrix(value, fuser.inlining.__contains__)
    assert view is not None
    batch, rows, columns = value.shape
    each = view.start(1) - view.start(0)
    together = view.start(0) == 0 and (batch == 1 or each == rows * columns)
    return together and (view.row_stride, view.column_stride) == (columns, 1)


def _order(fuser: Fuser, group: Group, value: Value | None) -> Axes:
    """The axes of a value in the order in which they lie in memory."""
    assert group.product is not None
    if value is fuser.stored(group.product):
        value = group.product
    return tuple(axis for axis in fuser.axes.root(group.touch.get(value, ())) if axis is not None)  # type: ignore[arg-type]


def _read(fuser: Fuser, group: Group) -> list[Value]:
    return [fuser.stored(value) for value in fuser.reads(group)]


def _is_read(fuser: Fuser, value: Value, inside: set[Op]) -> bool:
    """Whether a value is a result, or others than these ops read it, through views and other shapes too."""
    if value in fuser.inlining.results:
        return True
    for user in fuser.inlining.uses[value]:
        if user in inside:
            continue
        if user not in fuser.inlining and user.results[0] not in fuser.aliases:
            return True
        if _is_read(fuser, user.results[0], inside):
            return True
    return False


def _one(value: Value) -> int:
    """Elements of one matrix of a batch."""
    return static(value.shape[1]) * static(value.shape[2])


def _memory(value: Value) -> int:
    """Elements that a batched matrix has in memory."""
    base = value
    while base.op is not None and isinstance(kind := base.op.defn.kind, View) and kind.rigid is not None:
        (base,) = base.op.operands
    return min(elements(value), elements(base))
