"""The tensors of a native step: inputs, outputs, and views of other tensors' memory.

`Input`, `Output` and `Shown` are known when a graph is compiled; `Read`, `Overwritten` and `View` are their facts for
given sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch._aot_autograd.descriptors import ParamAOTInput
from torch.fx import Node

from ..ir.graph import Value
from ..ir.symbolic import Dim, contiguous_strides
from ..ir.types import TensorType
from ..ops.view import as_strided, expand, permute
from ..ops.view import slice as slice_of
from .memory import Replay, overlaps_itself, reading_of, resolved, view_of
from .sizes import dim_of
from .types import DTYPE, TORCH_DTYPE, Layout, layout_of, number_type

if TYPE_CHECKING:
    from .program import Program


class Input:
    """A tensor that native code reads: a parameter.

    `is_apart`: assume that no two of its elements share an address, even if they did while tracing.
    """

    def __init__(self, node: Node, slot: int, program: Program, is_apart: bool):
        self.node, self.slot = node, slot
        # In shape or type: results of PyTorch's ops may differ from their fake kernels' results, and a user's
        # saved-tensor hooks may unpack other tensors than they packed.
        self.may_differ = node.op == "call_function" or (node.op == "placeholder" and not program.is_typed)
        self.number = number_type(node.meta["val"])  # of sizes, computed by Python in each call
        if self.number is None:
            tensor = node.meta["val"]
        else:
            tensor = torch.empty((), dtype=TORCH_DTYPE[self.number])
        layout = layout_of(tensor)
        if is_apart and (layout.order is None or layout.repeated):
            layout = Layout(layout.shape, contiguous_strides(layout.shape))
        self.layout = layout
        self.dtype, self.torch_dtype = DTYPE[tensor.dtype], tensor.dtype
        self.may_be_lazy = may_be_lazy(tensor, program.is_guarded) or node.op == "call_function"
        if layout.order is None:
            self.shape: tuple[Dim, ...] = (layout.span,)
        else:
            self.shape = tuple(layout.held[dim] for dim in layout.order)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape)

    def seen(self, param: Value, size: Any) -> Value:
        """Return the parameter in the tensor's own shape; `size` substitutes known symbolic sizes."""
        layout = self.layout
        shape = tuple(map(size, layout.shape))
        if layout.order is None:
            return as_strided(param, shape, tuple(map(size, layout.strides)), 0)
        back = tuple(layout.order.index(dim) for dim in range(len(shape)))
        value = param if back == tuple(range(len(shape))) else permute(param, back)
        return expand(value, shape) if layout.repeated else value


class Output:
    """A tensor that native code writes."""

    def __init__(self, node: Node, slot: int):
        tensor = node.meta["val"]
        self.node, self.slot = node, slot
        self.layout = layout_of(tensor)
        self.dtype: torch.dtype = tensor.dtype
        self.is_spread = self.layout.order is None
        # The slot of an input that this is only copied into, so that the output can be computed in its memory.
        self.over: int | None = None
        self.is_weight = self.may_be_lazy = False  # of that input

    def write_over(self, node: Node, slot: int, is_guarded: bool) -> None:
        tensor = node.meta["val"]
        layout = layout_of(tensor)
        if layout.order is not None and not layout.repeated and tensor.dtype is self.dtype:
            self.layout, self.is_spread, self.over = layout, False, slot
            self.is_weight = isinstance(node.meta.get("desc"), ParamAOTInput)
            self.may_be_lazy = may_be_lazy(tensor, is_guarded)

    def written(self, value: Value) -> Value:
        """Return the value in memory order."""
        layout = self.layout
        for dim in layout.repeated:
            value = slice_of(value, dim, 0, 1)
        if layout.order is None or layout.order == tuple(range(value.ndim)):
            return value
        return permute(value, layout.order)


class Shown:
    """A tensor that is a view of another's memory."""

    def __init__(self, node: Node, slot: int, base: Node, base_slot: int):
        tensor, whole = node.meta["val"], base.meta["val"]
        self.node, self.slot, self.base = node, slot, base_slot
        self.layout, self.base_layout = layout_of(tensor), layout_of(whole)
        self.replay = Replay(base, node)
        ahead = tensor.storage_offset() * tensor.itemsize - whole.storage_offset() * whole.itemsize
        self.offset = ahead // tensor.itemsize
        # How its memory is interpreted, unless as the base's.
        self.reading = reading_of(tensor) if reading_of(tensor) != reading_of(whole) else None
        self.base_reading = reading_of(whole)


class Read:
    """An `Input` for given sizes."""

    def __init__(self, item: Input, device: torch.device, number: Callable[[Dim], int]):
        self.slot, self.may_be_lazy = item.slot, item.may_be_lazy
        self.may_differ, self.dtype = item.may_differ, item.torch_dtype
        self.shape = tuple(map(number, item.layout.shape))
        self.strides = tuple(map(number, item.layout.strides))
        self.overlaps = overlaps_itself(self.shape, self.strides)
        self.bytes = bytes_of(self.shape, self.strides, item.torch_dtype)
        self.number = None if item.number is None else item.torch_dtype
        self.device = device

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has the shape and type that native code was compiled for: another one would be read out of
        bounds, or misinterpreted."""
        return self.number is not None or (tensor.shape == self.shape and tensor.dtype is self.dtype)

    def resolved(self, item: Any) -> torch.Tensor:
        """Return the tensor that native code reads, for a number or a lazily conjugated or negated tensor."""
        if self.number is not None:
            return torch.scalar_tensor(item, dtype=self.number, device=self.device)
        return resolved(item)


class Overwritten:
    """An argument in whose memory native code computes a result, for given sizes, if it has the expected layout.

    PyTorch's allocations are aligned for all stores, but an overwritten view may start anywhere."""

    def __init__(self, item: Output, slot: int, strides: tuple[int, ...], alignment: int):
        self.slot, self.strides, self.dtype, self.may_be_lazy = slot, strides, item.dtype, item.may_be_lazy
        self.misaligned = alignment - 1  # mask of address bits that must be zero


class View:
    """A `Shown` for given sizes. The layout of a base is checked first, unless the base is a result of the same
    call."""

    def __init__(self, item: Shown, is_own: bool, number: Callable[[Dim], int]):
        self.slot, self.base, self.is_own = item.slot, item.base, is_own
        self.shape = tuple(map(number, item.layout.shape))
        self.strides = tuple(map(number, item.layout.strides))
        self.base_strides = tuple(map(number, item.base_layout.strides))
        self.offset = number(dim_of(item.offset))
        self.reading, self.base_reading = item.reading, item.base_reading
        self.replay = partial(item.replay, number=lambda size: number(dim_of(size)))

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self.is_own and not self._is_as_traced(tensor):
            return self.replay(tensor)
        return view_of(tensor, self.shape, self.strides, self.offset, self.reading)

    def _is_as_traced(self, tensor: torch.Tensor) -> bool:
        if tensor.stride() != self.base_strides:
            return False
        if self.reading is None:
            return True
        begin = tensor.storage_offset() * tensor.itemsize
        return reading_of(tensor) == self.base_reading and begin % self.reading[0].itemsize == 0


def may_be_lazy(tensor: torch.Tensor, is_guarded: bool) -> bool:
    """Whether an argument may be lazily conjugated or negated."""
    return not is_guarded or tensor.dtype.is_complex or tensor.is_neg()


def bytes_of(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> int:
    """Return the bytes from the first element to the end of the last."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    return 0 if 0 in shape else span * dtype.itemsize
