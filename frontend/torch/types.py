"""Conversion of the types and layouts of PyTorch's tensors to smelt's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..ir.symbolic import Dim, contiguous_strides
from ..ir.types import DTYPES, DType
from .sizes import UnknownSize, dim_of

DTYPE = {
    torch.bool: DTYPES["bool"],
    torch.uint8: DTYPES["u8"],
    torch.uint16: DTYPES["u16"],
    torch.uint32: DTYPES["u32"],
    torch.uint64: DTYPES["u64"],
    torch.int8: DTYPES["i8"],
    torch.int16: DTYPES["i16"],
    torch.int32: DTYPES["i32"],
    torch.int64: DTYPES["i64"],
    torch.float8_e4m3fn: DTYPES["f8_e4m3fn"],
    torch.float8_e5m2: DTYPES["f8_e5m2"],
    torch.float16: DTYPES["f16"],
    torch.bfloat16: DTYPES["bf16"],
    torch.float32: DTYPES["f32"],
    torch.float64: DTYPES["f64"],
    torch.complex64: DTYPES["c64"],
    torch.complex128: DTYPES["c128"],
}  # fmt: skip
# PyTorch's types of devices with memory that smelt's code runs on.
DEVICES = ("cpu", "cuda")
TORCH_DTYPE: dict[DType, torch.dtype] = {value: key for key, value in DTYPE.items()}


def is_supported(tensor: Any) -> bool:
    """Whether smelt can compile for this tensor: strided, on a CPU or GPU, of a supported type."""
    return isinstance(tensor, torch.Tensor) and not refusal(tensor)


def refusal(tensor: torch.Tensor) -> str:
    """Return why smelt cannot compile for a tensor, or ''."""
    if tensor.device.type not in DEVICES:
        return f"smelt does not support tensors on {tensor.device}"
    if tensor.layout is not torch.strided or tensor.is_quantized:
        kind = "quantized tensors" if tensor.is_quantized else f"tensors of the layout {tensor.layout}"
        return f"smelt does not support {kind}"
    if tensor.dtype not in DTYPE:
        return f"smelt has no {tensor.dtype}"
    try:
        for size in (*tensor.shape, *tensor.stride(), tensor.storage_offset()):
            dim_of(size)
    except UnknownSize as error:
        return f"one of its sizes, {error}"
    return ""


def number_type(item: Any) -> DType | None:
    """Return the type of a symbolic number that is not an expression of sizes, so that native code takes it as an
    argument; else None."""
    if isinstance(item, torch.SymFloat):
        return DTYPES["f64"]
    if isinstance(item, torch.SymBool):
        return DTYPES["bool"]
    if isinstance(item, torch.SymInt):
        try:
            dim_of(item)
        except UnknownSize:
            return DTYPES["i64"]
    return None


class Layout:
    """The layout of a tensor in memory: dense in some order of its dims, or spread.

    `order` has the dims from the largest stride to the smallest if the tensor is dense, else it is None. Repeated dims
    (stride 0) are in memory once.
    """

    def __init__(self, shape: Sequence[Dim], strides: Sequence[Dim]):
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.repeated = [
            dim for dim, (size, stride) in enumerate(zip(shape, strides)) if stride == 0 and size != 1 and size != 0
        ]
        self.held = tuple(1 if dim in self.repeated else size for dim, size in enumerate(shape))
        self.order = self._dense_order()

    def _dense_order(self) -> tuple[int, ...] | None:
        moving = [dim for dim, size in enumerate(self.held) if size != 1]
        if any(size == 0 for size in self.held):
            return tuple(range(len(self.held)))
        order = _by_stride(moving, self.strides)
        if order is None:
            return None
        wanted = contiguous_strides([self.held[dim] for dim in order])
        if any(self.strides[dim] != stride for dim, stride in zip(order, wanted)):
            return None
        # Dims of size 1 fit anywhere: they keep their positions if the order is row-major, else come first.
        if order == sorted(order):
            return tuple(range(len(self.held)))
        return (*(dim for dim in range(len(self.held)) if dim not in moving), *order)

    @property
    def span(self) -> Dim:
        """The number of elements of memory from the first to the last, gaps included."""
        if any(size == 0 for size in self.shape):
            return 0
        last: Dim = 0
        for size, stride in zip(self.shape, self.strides):
            last = last + (size - 1) * stride
        return last + 1


def _by_stride(dims: Sequence[int], strides: Sequence[Dim]) -> list[int] | None:
    """Return dims by descending stride."""
    order: list[int] = []
    for dim in dims:
        at = len(order)
        while at and _is_less(strides[order[at - 1]], strides[dim]):
            at -= 1
        order.insert(at, dim)
    return order


def _is_less(left: Dim, right: Dim) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    # A stride is a product of sizes: the product of higher degree is the larger stride.
    return left != right and _factors(right) > _factors(left)


def _factors(stride: Dim) -> tuple[int, int]:
    if isinstance(stride, int):
        return (0, stride)
    degree = max(len(monomial) for monomial, _ in stride.terms)
    return (degree, max(abs(coefficient) for _, coefficient in stride.terms))


def layout_of(tensor: torch.Tensor) -> Layout:
    return Layout([dim_of(size) for size in tensor.shape], [dim_of(stride) for stride in tensor.stride()])


def storage_of(tensor: torch.Tensor) -> int:
    """Return an identifier of a tensor's storage while tracing."""
    return tensor.untyped_storage()._cdata
