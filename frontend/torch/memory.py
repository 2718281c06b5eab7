"""Whose memory a tensor shows, and how one is laid out at run time.

A node is a view of another by its op's schema, never because two tensors shared memory while tracing: no guard holds
that for the arguments of a later call. A view of an argument is made from the argument itself. Its strides are those of
tracing if the argument lies as it did then; otherwise PyTorch's own ops make it again, from what is there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .types import layout_of, storage_of

aten = torch.ops.aten
Reading = tuple[torch.dtype, bool, bool]  # of memory: the element type, and whether to conjugate and to negate
# Views for which the schema does not say so.
UNMARKED = {aten._unsafe_view.default}
# Views that PyTorch refuses to make of memory that is still to be conjugated or negated.
REREAD = {aten.view_as_real.default, aten.view.dtype}
STRIDED = {aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default}


# While compiling.


def source_of(node: Node) -> Node | None:
    """The node whose memory this one shows; None if it has its own. A tuple of views shows what they are views of."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        whole = node.args[0]
        return whole if isinstance(whole, Node) and source_of(whole) is not None else None
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    if not node.args or not isinstance(first := node.args[0], Node):
        return None
    marked = node.target._schema.arguments[0].alias_info
    is_view = node.target in UNMARKED or (marked is not None and not marked.is_write)
    return first if is_view and _shares(node, first) else None


def _shares(node: Node, source: Node) -> bool:
    """Whether an op that may return a view of an operand has done so."""
    found = node.meta.get("val")
    items = found if isinstance(found, (tuple, list)) else [found]
    base = _storage(source.meta.get("val"))
    return base is not None and base in map(_storage, items)


def _storage(item: Any) -> int | None:
    return storage_of(item) if isinstance(item, torch.Tensor) and item.layout is torch.strided else None


def lineage(node: Node) -> Iterable[Node]:
    """A node, the one whose memory it shows, the one which that shows, and so on."""
    found: Node | None = node
    while found is not None:
        yield found
        found = source_of(found)


def root_of(node: Node) -> Node:
    """The node that has the memory."""
    *_, last = lineage(node)
    return last


def placed_absolutely(graph: Graph) -> set[Node]:
    """Nodes of whose whole memory as_strided takes some part, wherever they begin in it."""
    return {
        item
        for node in graph.nodes
        if node.target in STRIDED and isinstance(node.args[0], Node)
        for item in lineage(node.args[0])
    }


def depends_on_order(graph: Graph) -> bool:
    """Whether results depend on the order in which eager lays out a computed tensor, as it does its operands."""
    return any(
        node.target in (*STRIDED, aten.resize.default)
        and isinstance(node.args[0], Node)
        and root_of(node.args[0]).op == "call_function"
        for node in graph.nodes
    )


def lie_alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the elements of two tensors are in one order in memory, both without gaps or with the same strides."""
    found, wanted = layout_of(tensor), layout_of(other)
    return found.order == wanted.order and (found.order is not None or found.strides == wanted.strides)


def reading_of(tensor: torch.Tensor) -> Reading:
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()


class Replay:
    """The ops that make a view of a node, to be run again on a tensor that does not lie as it did while tracing."""

    def __init__(self, base: Node, node: Node):
        self.base = base
        self.nodes: list[Node] = []
        for item in lineage(node):
            if item is base:
                break
            self.nodes.append(item)
        self.nodes.reverse()

    def __call__(self, tensor: Any, number: Callable[[Any], int]) -> Any:
        """`number` gives symbolic sizes their values."""
        for node in self.nodes:
            # The first operand is what the view is made of, in all ops that make views.
            rest, named = map_arg((node.args[1:], dict(node.kwargs)), lambda item: number(item.meta["val"]))
            first = resolved(tensor) if node.target in REREAD else tensor
            if node.target is aten.view.default or node.target in UNMARKED:
                # What eager's reshape does: tracing knew that this can be a view, which other strides may rule out.
                tensor = first.reshape(_numbers(rest[0], number))
            else:
                tensor = node.target(first, *_numbers(rest, number), **named)  # type: ignore[operator]
        return tensor


def _numbers(item: Any, number: Callable[[Any], int]) -> Any:
    if isinstance(item, (list, tuple)):
        return [_numbers(entry, number) for entry in item]
    return number(item) if isinstance(item, torch.SymInt) else item


# At run time.


def view_of(
    tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int, reading: Reading | None
) -> torch.Tensor:
    """A view that begins so many of its elements behind a tensor."""
    if reading is None:
        return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)
    dtype, is_conjugate, is_negative = reading
    found = torch.empty(0, dtype=dtype, device=tensor.device)
    start = tensor.storage_offset() * tensor.itemsize // dtype.itemsize + offset
    found.set_(tensor.untyped_storage(), start, shape, strides)  # type: ignore[call-overload]
    found = torch._conj(found) if is_conjugate else found
    return torch._neg_view(found) if is_negative else found


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose memory has its numbers: nothing is left to be conjugated or negated."""
    return tensor.resolve_conj().resolve_neg()


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may be in one place."""
    span = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides) if size != 1):
        if size == 0:
            return False
        if stride < span:
            return True
        span += (size - 1) * stride
    return False


def lies_as(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the strides of a tensor of this shape say the same as these."""
    return all(a == b or size == 1 for a, b, size in zip(tensor.stride(), strides, shape)) or 0 in shape


def laid_out(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """The tensor with these strides, which put no two elements in one place; itself where its own say the same."""
    if lies_as(tensor, shape, strides):
        return tensor
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """The same at an address where native code can read it, gaps and all."""
    if tensor.numel() == 0:
        return torch.empty_like(tensor)
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    memory = tensor.as_strided((span,), (1,), tensor.storage_offset()).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)


def same_memory(origin: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The elements of one tensor, in the order of memory, in the shape and order of another."""
    flat = origin.as_strided((origin.numel(),), (1,), origin.storage_offset())
    return flat.as_strided(target.shape, target.stride(), origin.storage_offset())


def are_apart(starts: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether no two of these pieces of memory overlap."""
    # The end of each is before the next start exactly if that holds for starts and ends that are sorted by themselves.
    ends = sorted(map(operator.add, starts, sizes))
    return all(map(operator.le, ends, sorted(starts)[1:]))
