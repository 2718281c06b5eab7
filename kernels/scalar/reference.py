"""Define rows of kernels/scalar/table.py in NumPy, where NumPy has no function of its own for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.types import STORAGE, DType, f8_e5m2, u32


def cast(array: Any, dtype: DType) -> np.ndarray:
    """Conversion as back ends do it: from float towards zero, saturating, nan to 0; complex to real by dropping.

    Integers narrower than 32 bits are made from 32 bits, and u32 from 64 bits, by wrapping.
    """
    array = np.asarray(array)
    if dtype in STORAGE:
        return _to_float8(array, dtype)
    if array.dtype in _STORED:
        array = array.astype(np.float32)
    if array.dtype.kind == "c" and dtype.kind not in "cb":
        array = array.real
    if dtype.kind in "iu" and array.dtype.kind not in "iub":
        first = np.dtype(np.int32) if dtype.bits < 32 else np.dtype(np.int64) if dtype is u32 else dtype.numpy
        limits = np.iinfo(first)
        whole = np.trunc(array.astype(np.float64))
        low, high = whole <= limits.min, whole >= limits.max
        inner = np.where(low | high | np.isnan(whole), 0, whole).astype(first)
        clamped = np.where(low, first.type(limits.min), np.where(high, first.type(limits.max), inner))
        return clamped.astype(dtype.numpy)
    if dtype.kind == "b":
        return array != 0
    return array.astype(dtype.numpy)


_STORED = tuple(entry.numpy for entry in STORAGE)


def _to_float8(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Round to nearest even, by way of f32 as in PyTorch; beyond the range is the largest number, of e5m2 infinity."""
    if array.dtype == dtype.numpy:
        return array
    wide = (array.real if array.dtype.kind == "c" else array).astype(np.float32)
    return (wide if dtype is f8_e5m2 else np.clip(wide, -448, 448)).astype(dtype.numpy)


def fma(a: Any, b: Any, c: Any) -> np.ndarray:
    """a * b + c rounded once (but for rare double roundings), which NumPy lacks."""
    a, b, c = np.asarray(a), np.asarray(b), np.asarray(c)
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)
    # The exact product as two numbers, after halving the operands' digits.
    product = a * b
    split = 134217729.0
    large_a, large_b = a * split, b * split
    high_a, high_b = large_a - (large_a - a), large_b - (large_b - b)
    low_a, low_b = a - high_a, b - high_b
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    total = product + c
    back = total - product
    rest = (product - (total - back)) + (c - back) + error
    result = total + rest
    # Where nothing is to be added the total may be -0, which an addition would change.
    return np.where(np.isfinite(result) & (rest != 0), result, total)


def where(condition: Any, a: Any, b: Any) -> np.ndarray:
    return np.where(condition, a, b)


def reciprocal(x: Any) -> np.ndarray:
    return np.asarray(x).dtype.type(1) / x


def rsqrt(x: Any) -> np.ndarray:
    return np.asarray(x).dtype.type(1) / np.sqrt(x)


def frac(x: Any) -> np.ndarray:
    return x - np.trunc(x)


def whole(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Rounding that leaves integers as they are."""
    return lambda x: x if np.asarray(x).dtype.kind in "iub" else function(x)


def ldexp(x: Any, exponent: Any) -> np.ndarray:
    return np.ldexp(x, np.clip(exponent, -5000, 5000).astype(np.int32))


def join(real: Any, imag: Any) -> np.ndarray:
    """A complex array of two real ones."""
    real, imag = np.asarray(real), np.asarray(imag)
    shape = np.broadcast_shapes(real.shape, imag.shape)
    result = np.empty(shape, np.complex128 if real.dtype == np.float64 else np.complex64)
    result.real, result.imag = real, imag
    return result


def trunc_divide(a: Any, b: Any) -> np.ndarray:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "f":
        return np.trunc(np.divide(a, b))
    quotient = np.floor_divide(a, b)
    rest = a - quotient * b
    return (quotient + ((rest != 0) & ((a < 0) != (b < 0)) & (b != 0))).astype(a.dtype)


def remainder(a: Any, b: Any) -> np.ndarray:
    """fmod moved to the sign of b; a zero keeps the sign of a."""
    rest = np.fmod(a, b)
    return np.where((rest != 0) & (np.less(rest, 0) != np.less(b, 0)), rest + b, rest).astype(rest.dtype)


def power(a: Any, b: Any) -> np.ndarray:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "f":
        # For a single exponent of 0.5 NumPy takes a square root, of which that of -inf is nan.
        return np.where((a == -np.inf) & (b == 0.5), b.dtype.type(np.inf), np.power(a, b))
    if a.dtype.kind == "c":
        # 1 / 0 has an infinite real part; to NumPy's power it is nan.
        return np.where((a == 0) & (b.real < 0), a.dtype.type(complex(np.inf, np.nan)), np.power(a, b))
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    positive = np.power(a, np.maximum(b, 0)).astype(a.dtype)
    inverse = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0)).astype(a.dtype)
    return np.where(b < 0, inverse, positive)


def sign(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return np.asarray(x > 0, x.dtype) if x.dtype.kind in "bu" else ((x > 0) * 1 - (x < 0) * 1).astype(x.dtype)


def sigmoid(x: Any) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def logical_shift_right(x: Any, count: Any) -> np.ndarray:
    x = np.asarray(x)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.right_shift(x.view(unsigned), np.asarray(count).astype(unsigned)).view(x.dtype)


def angle(x: Any) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype.kind == "c":
        return np.angle(x)
    return np.where(np.isnan(x), x, np.where(x < 0, x.dtype.type(np.pi), x.dtype.type(0)))


def narrow_nextafter(dtype: DType) -> Callable[[Any, Any], np.ndarray]:
    """nextafter of numbers of a narrow type, which come and go as f32."""

    def compute(x: Any, towards: Any) -> np.ndarray:
        operands = [np.asarray(item).astype(dtype.numpy) for item in (x, towards)]
        # Of the zeros NumPy has the first where it is an f16, and C the second.
        return np.where(x == towards, towards, np.nextafter(*operands).astype(np.float32))

    return compute
