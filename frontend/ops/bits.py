"""Reinterpreting the bits of numbers as another type."""

from __future__ import annotations

from typing import Any

from ..ir.errors import DTypeError, ShapeError
from ..ir.proofs import floor_divide
from ..ir.types import DType, TensorType, bf16, bool_, c64, c128, f16, f32, f64, i8, i16, i32, i64, u8
from . import pointwise
from .concat_pad import stack
from .define import Tensor, composite, prim
from .kinds import Arguments, ElementBuilder, Gather, Index
from .rearrange import view_as_complex, view_as_real
from .view import reshape, select

SAME_BITS = {f32: i32, f64: i64, i32: f32, i64: f64}
WHOLE = {8: i8, 16: i16, 32: i32, 64: i64}
PARTS = {c64: f32, c128: f64}


def _aligned(arguments: Arguments) -> dict[str, tuple[int | None, ...]]:
    return {"self": tuple(range(arguments["self"].ndim))}


def _bitcast_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    return builder.bitcast(builder.load(arguments["self"], index), arguments["dtype"])


@prim(
    Gather(lambda a: TensorType(a["dtype"], a["self"].shape), _bitcast_element, _aligned),
    dtypes=tuple(SAME_BITS),
    differentiable=False,
)
def bitcast(self: Tensor, dtype: DType) -> Tensor:
    """The bits of f32 as i32, of f64 as i64, and the other way round."""
    if SAME_BITS[self.dtype] is not dtype:
        raise DTypeError(f"dtype is {dtype}, accepted is {SAME_BITS[self.dtype]}")
    return {}  # type: ignore[return-value]


def _half_to_whole(self: Tensor) -> Tensor:
    """Return the bits of f16, which is computed as f32, from the parts of the f32."""
    wide = pointwise.convert(self, f32)
    bits = bitcast(wide, i32)
    sign = pointwise.bitwise_and(pointwise.bitwise_right_shift(bits, 16), 0x8000)
    exponent = pointwise.bitwise_and(pointwise.bitwise_right_shift(bits, 23), 0xFF)
    upper = pointwise.bitwise_right_shift(pointwise.bitwise_and(bits, 0x7FFFFF), 13)
    # Below 2**-14 a number is a multiple of 2**-24, in f16 as in the compute type.
    small = pointwise.cast(pointwise.where(exponent < 113, pointwise.abs(wide) * 2.0**24, 0.0), i32)
    usual = pointwise.bitwise_left_shift(exponent - 112, 10) + upper
    found = pointwise.where(exponent < 113, small, pointwise.where(exponent == 255, upper + 0x7C00, usual))
    whole = pointwise.bitwise_or(found, sign)
    return pointwise.convert(pointwise.where(whole >= 0x8000, whole - 0x10000, whole), i16)


def _half_from_whole(self: Tensor) -> Tensor:
    """Return the f16 with these bits."""
    bits = pointwise.convert(pointwise.convert(self, i16), i32)
    sign = pointwise.bitwise_left_shift(pointwise.bitwise_and(bits, 0x8000), 16)
    exponent = pointwise.bitwise_and(pointwise.bitwise_right_shift(bits, 10), 0x1F)
    upper = pointwise.bitwise_and(bits, 0x3FF)
    small = bitcast(pointwise.cast(upper, f32) * 2.0**-24, i32)
    wide = pointwise.bitwise_left_shift(upper, 13)
    usual = pointwise.bitwise_left_shift(exponent + 112, 23) + wide
    found = pointwise.where(exponent == 0, small, pointwise.where(exponent == 31, wide + 0x7F800000, usual))
    return pointwise.convert(bitcast(pointwise.bitwise_or(found, sign), f32), f16)


def _to_whole(self: Tensor) -> Tensor:
    """Return the bits as an integer of the same width."""
    if self.dtype is f16:
        return _half_to_whole(self)
    if self.dtype is bf16:
        high = pointwise.bitwise_right_shift(bitcast(pointwise.convert(self, f32), i32), 16)
        return pointwise.convert(high, i16)
    if self.dtype in (f32, f64):
        return bitcast(self, SAME_BITS[self.dtype])
    return pointwise.convert(self, u8) if self.dtype is bool_ else self


def _from_whole(self: Tensor, dtype: DType) -> Tensor:
    """Return the number with these bits; of a wider integer the lowest bits count."""
    if dtype is f16:
        return _half_from_whole(self)
    if dtype is bf16:
        low = pointwise.convert(pointwise.convert(self, i16), i32)
        return pointwise.convert(bitcast(pointwise.bitwise_left_shift(low, 16), f32), bf16)
    if dtype in (f32, f64):
        return bitcast(pointwise.convert(self, SAME_BITS[dtype]), dtype)
    return pointwise.convert(self, dtype)


@composite(differentiable=False)
def view_dtype(self: Tensor, dtype: DType) -> Tensor:
    """The same bits as another type: PyTorch's x.view(dtype). The last dimension grows or shrinks with the bits."""
    if dtype is self.dtype:
        return self
    if dtype is bool_:
        raise DTypeError(f"there is no view of {self.dtype} as {dtype}")
    if self.dtype in PARTS:
        pairs = view_as_real(self)
        flat = reshape(pairs, (*self.shape[:-1], self.shape[-1] * 2)) if self.ndim else reshape(pairs, (2,))
        found = view_dtype(flat, dtype)
        return found if self.ndim else reshape(found, ())
    if dtype in PARTS:
        parts = view_dtype(self, PARTS[dtype])
        return view_as_complex(reshape(parts, (*parts.shape[:-1], floor_divide(parts.shape[-1], 2), 2)))
    old, new = max(self.dtype.bits, 8), max(dtype.bits, 8)
    if old == new:
        return _from_whole(_to_whole(self), dtype)
    if not self.ndim:
        raise ShapeError(f"a 0-dim tensor of {old} bits has no view as a type of {new} bits")
    if old > new:
        whole = pointwise.convert(_to_whole(self), i64)
        parts_of = [pointwise.bitwise_right_shift(whole, at) for at in range(0, old, new)]
        found = stack([_from_whole(part, dtype) for part in parts_of], -1)
        return reshape(found, (*self.shape[:-1], self.shape[-1] * (old // new)))
    count = new // old
    rows = reshape(_to_whole(self), (*self.shape[:-1], floor_divide(self.shape[-1], count), count))
    total = None
    for at in range(count):
        part = pointwise.bitwise_and(pointwise.convert(select(rows, -1, at), i64), (1 << old) - 1)
        moved = pointwise.bitwise_left_shift(part, at * old) if at else part
        total = moved if total is None else pointwise.bitwise_or(total, moved)
    assert total is not None
    return _from_whole(total, dtype)
