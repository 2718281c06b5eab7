"""Aliasing of tensors at compile time, and their layout at run time.

A node is a view of another by its op's schema, never because two tensors shared memory during tracing: no guard checks
that for later arguments. A view of an argument is made from the argument itself. Its strides are those of tracing if
the argument has its traced layout; otherwise PyTorch's own ops make it again.
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
Reading = tuple[torch.dtype, bool, bool]  # how memory is interpreted: element type, lazy conjugation, lazy negation
# Views that the schema does not mark.
UNMARKED = {aten._unsafe_view.default}
# Views that PyTorch refuses for lazily conjugated or negated memory.
REREAD = {aten.view_as_real.default, aten.view.dtype}
STRIDED = {aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default}


# While compiling.


def source_of(node: Node) -> Node | None:
    """Return the node that this one is a view of; None if it owns its memory. A tuple of views is a view of their
    base."""
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
    """Whether an op that may return a view of an operand did so while tracing."""
    found = node.meta.get("val")
    items = found if isinstance(found, (tuple, list)) else [found]
    base = _storage(source.meta.get("val"))
    return base is not None and base in map(_storage, items)


def _storage(item: Any) -> int | None:
    return storage_of(item) if isinstance(item, torch.Tensor) and item.layout is torch.strided else None


def lineage(node: Node) -> Iterable[Node]:
    """Yield a node, the node that it is a view of, the base of that, and so on."""
    found: Node | None = node
    while found is not None:
        yield found
        found = source_of(found)


def root_of(node: Node) -> Node:
    """Return the node that owns the memory of this one."""
    *_, last = lineage(node)
    return last


def placed_absolutely(graph: Graph) -> set[Node]:
    """Return the nodes whose storage as_strided addresses absolutely, independent of their own offset in it."""
    return {
        item
        for node in graph.nodes
        if node.target in STRIDED and isinstance(node.args[0], Node)
        for item in lineage(node.args[0])
    }


def depends_on_order(graph: Graph) -> bool:
    """Whether results depend on the layout that eager gives a computed tensor, which follows its operands' layout."""
    return any(
        node.target in (*STRIDED, aten.resize.default)
        and isinstance(node.args[0], Node)
        and root_of(node.args[0]).op == "call_function"
        for node in graph.nodes
    )


def lie_alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have their elements in the same order in memory, both dense or with the same strides."""
    found, wanted = layout_of(tensor), layout_of(other)
    return found.order == wanted.order and (found.order is not None or found.strides == wanted.strides)


def reading_of(tensor: torch.Tensor) -> Reading:
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()


class Replay:
    """The ops that make a view of a node, to be run again on a tensor whose layout is not the traced one."""

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
            # In all view ops the first operand is the base.
            rest, named = map_arg((node.args[1:], dict(node.kwargs)), lambda item: number(item.meta["val"]))
            first = resolved(tensor) if node.target in REREAD else tensor
            if node.target is aten.view.default or node.target in UNMARKED:
                # As eager's reshape: tracing chose a view, which may be impossible with these strides.
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
    """Return a view that begins `offset` of its elements after the start of a tensor."""
    if reading is None:
        return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)
    dtype, is_conjugate, is_negative = reading
    found = torch.empty(0, dtype=dtype, device=tensor.device)
    start = tensor.storage_offset() * tensor.itemsize // dtype.itemsize + offset
    found.set_(tensor.untyped_storage(), start, shape, strides)  # type: ignore[call-overload]
    found = torch._conj(found) if is_conjugate else found
    return torch._neg_view(found) if is_negative else found


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without lazy conjugation or negation."""
    return tensor.resolve_conj().resolve_neg()


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements of the layout may share an address."""
    span = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides) if size != 1):
        if size == 0:
            return False
        if stride < span:
            return True
        span += (size - 1) * stride
    return False


def lies_as(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor of this shape has strides equivalent to these."""
    return all(a == b or size == 1 for a, b, size in zip(tensor.stride(), strides, shape)) or 0 in shape


def laid_out(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """Return the tensor with these strides, which must not overlap; the tensor itself if its own are equivalent."""
    if lies_as(tensor, shape, strides):
        return tensor
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy at an aligned address with the same strides, gaps included."""
    if tensor.numel() == 0:
        return torch.empty_like(tensor)
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    memory = tensor.as_strided((span,), (1,), tensor.storage_offset()).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)


def same_memory(origin: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return one tensor's elements, in memory order, with the shape and strides of another tensor."""
    flat = origin.as_strided((origin.numel(),), (1,), origin.storage_offset())
    return flat.as_strided(target.shape, target.stride(), origin.storage_offset())


def are_apart(starts: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether no two of these blocks of memory overlap; sizes in bytes."""
    # Equivalent: with starts and ends sorted separately, each end is at or before the next start.
    ends = sorted(map(operator.add, starts, sizes))
    return all(map(operator.le, ends, sorted(starts)[1:]))
