"""Products of quantised matrices: of 8-bit integers, added up as i32, and of floats with weights of 8 or 4 bits."""

from __future__ import annotations

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.proofs import floor_divide
from ..ir.symbolic import Dim
from ..ir.types import f32, i8, i32, u8
from .concat_pad import cat
from .define import Tensor, composite
from .linalg import mm
from .pointwise import bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift, cast, convert
from .shapes import equal
from .view import permute, reshape, slice, transpose, unsqueeze

EXACT = 2**24  # f32 holds all integers up to this
BLOCK = 64  # columns of a block of packed 4-bit weights: PyTorch's format on processors with AVX-512


@composite(differentiable=False)
def _int_mm(self: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices of i8 (self also of u8), added up and returned as i32."""
    if self.dtype not in (i8, u8) or mat2.dtype is not i8:
        raise DTypeError(f"the operands are {self.dtype} and {mat2.dtype}, expected i8 or u8 and i8")
    depth = self.shape[1] if self.ndim == 2 else 0
    if not isinstance(depth, int) or not depth:
        return mm(cast(self, i32), cast(mat2, i32))
    # The product of f32, which is several times as fast, is exact where no sum of a part is beyond 2**24.
    part = EXACT // (128 * max(128, self.dtype.bounds[1]))
    total = None
    for start in range(0, depth, part):
        end = min(start + part, depth)
        left, right = slice(self, 1, start, end), slice(mat2, 0, start, end)
        found = cast(mm(cast(left, f32), cast(right, f32)), i32)
        total = found if total is None else total + found
    return total


@composite
def _weight_int8pack_mm(self: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """self @ (mat2 * scales).T: mat2 has a row of i8, and scales a number, for each column of the result."""
    if mat2.dtype is not i8:
        raise DTypeError(f"mat2 is {mat2.dtype}, expected i8")
    weight = cast(mat2, f32) * unsqueeze(convert(scales, f32), 1)
    return convert(mm(convert(self, f32), transpose(weight, 0, 1)), self.dtype)


@composite(differentiable=False)
def _convert_weight_to_int4pack_for_cpu(self: Tensor, innerKTiles: int) -> Tensor:
    """Rows of numbers below 16 packed for _weight_int4pack_mm_for_cpu, two in a byte, as PyTorch does with AVX-512."""
    if self.ndim != 2 or self.dtype is not i32:
        raise DTypeError(f"self is {self.type}, expected a matrix of i32")
    rows, columns = self.shape
    whole = _whole_blocks(rows)
    low = bitwise_and(self, 255)  # PyTorch drops higher bits, too
    found = []
    if whole:
        # A byte has rows n and n + 32 of a block of 64.
        halves = permute(reshape(slice(low, 0, 0, whole), (whole // BLOCK, 2, BLOCK // 2, columns)), (1, 0, 3, 2))
        found.append(_bytes(reshape(halves, (2, whole * columns // 2))))
    if rows != whole:
        pairs = permute(reshape(slice(low, 0, whole, rows), ((rows - whole) // 2, 2, columns)), (1, 2, 0))
        found.append(_bytes(reshape(pairs, (2, (rows - whole) * columns // 2))))
    return reshape(cat(found, 0), (rows, floor_divide(columns, 2)))


def _whole_blocks(rows: Dim) -> int:
    if not isinstance(rows, int):
        raise ArgumentError(
            f"the number of rows is {rows}, expected a known number: packed weights have blocks of rows"
        )
    if rows % 16:
        raise ShapeError(f"the number of rows is {rows}, expected a multiple of 16")
    return rows // BLOCK * BLOCK


def _bytes(pairs: Tensor) -> Tensor:
    """Return the first and the second of pairs as the lower and the upper half of bytes."""
    first, second = (reshape(slice(pairs, 0, at, at + 1), (-1,)) for at in (0, 1))
    return cast(bitwise_and(bitwise_or(first, bitwise_left_shift(second, 4)), 255), u8)


def _unpacked(packed: Tensor) -> Tensor:
    """Return packed weights as a matrix of i32 from -8 to 7 with a column for each row that was packed."""
    rows, width = packed.shape
    columns = 2 * width
    whole = _whole_blocks(rows)
    flat = cast(reshape(packed, (-1,)), i32)
    found = []
    if whole:
        bytes_ = reshape(slice(flat, 0, 0, whole * width), (whole // BLOCK, columns, 1, BLOCK // 2))
        parts = cat([bitwise_and(bytes_, 15), bitwise_right_shift(bytes_, 4)], 2)
        found.append(reshape(permute(parts, (1, 0, 2, 3)), (columns, whole)))
    if rows != whole:
        bytes_ = reshape(slice(flat, 0, whole * width), (columns, (rows - whole) // 2, 1))
        parts = cat([bitwise_and(bytes_, 15), bitwise_right_shift(bytes_, 4)], 2)
        found.append(reshape(parts, (columns, rows - whole)))
    return cat(found, 1) - 8


@composite
def _weight_int4pack_mm_for_cpu(self: Tensor, mat2: Tensor, qGroupSize: int, qScaleAndZeros: Tensor) -> Tensor:
    """self @ (weight * scale + zero): mat2 packs weights, with scale and zero for qGroupSize rows of a column."""
    if mat2.dtype is not u8:
        raise DTypeError(f"mat2 is {mat2.dtype}, expected u8 from _convert_weight_to_int4pack_for_cpu")
    weight = _unpacked(mat2)
    inner, columns = weight.shape
    groups = floor_divide(inner, qGroupSize)
    if not equal(groups, qScaleAndZeros.shape[0]):
        raise ShapeError(f"qScaleAndZeros has {qScaleAndZeros.shape[0]} groups, expected {groups}")
    parts = convert(qScaleAndZeros, f32)
    scale, zero = (reshape(slice(parts, 2, at, at + 1), (groups, 1, columns)) for at in (0, 1))
    whole = reshape(cast(weight, f32), (groups, qGroupSize, columns)) * scale + zero
    return convert(mm(convert(self, f32), reshape(whole, (inner, columns))), self.dtype)
