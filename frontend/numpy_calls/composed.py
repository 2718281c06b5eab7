"""NumPy's ufuncs that no op has the name of, composed of others; their types are those that NumPy resolves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import DTypeError, ShapeError
from ..ir.graph import current_location
from ..ir.types import bf16, f16, f32, i64
from .common import call, tensor


def composed(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """Return the function on traced tensors for a ufunc that no op has the name of."""
    return COMPOSED.get(ufunc.__name__)


def _operand(ufunc: Any, item: Any) -> Any:
    """Return the one operand of a ufunc in the type in which NumPy computes it."""
    x = tensor(item)
    if x.dtype is bf16:
        return x
    try:
        kind = ufunc.resolve_dtypes((x.dtype.numpy, *(None,) * ufunc.nout))[0]
    except TypeError:
        raise DTypeError(f"numpy.{ufunc.__name__} of {x.dtype}", current_location()) from None
    return call("cast", x, kind)


def fabs(item: Any) -> Any:
    return np.abs(_operand(np.fabs, item))


def degrees(item: Any) -> Any:
    return _operand(np.degrees, item) * (180.0 / math.pi)


def radians(item: Any) -> Any:
    return _operand(np.radians, item) * (math.pi / 180.0)


def cbrt(item: Any) -> Any:
    """np.cbrt: a power, then a step of Newton's method, which takes its error away."""
    given = _operand(np.cbrt, item)
    x = call("cast", given, f32) if given.dtype in (f16, bf16) else given
    size = np.abs(x)
    root = size ** (1.0 / 3.0)
    regular = (size > 0) & np.isfinite(size)
    safe = np.where(regular, root, 1.0)
    root = np.where(regular, safe - (safe - size / (safe * safe)) / 3.0, root)
    return call("cast", np.copysign(root, x), given.dtype)


def modf(item: Any) -> tuple[Any, Any]:
    x = _operand(np.modf, item)
    whole = np.trunc(x)
    part = np.where(np.isinf(x), np.zeros((), x.dtype.numpy), x - whole)
    return np.copysign(part, x), whole


def spacing(item: Any) -> Any:
    """np.spacing: the distance to the next number away from zero."""
    x = _operand(np.spacing, item)
    beyond = np.nextafter(x, np.copysign(np.asarray(np.inf, x.dtype.numpy), x))
    return np.where(np.isinf(x), np.asarray(np.nan, x.dtype.numpy), beyond - x)


def bitwise_count(item: Any) -> Any:
    """np.bitwise_count of the magnitude: sums of bits in pairs, in fours, in bytes, and of bytes by a product."""
    x = tensor(item)
    if not x.dtype.is_integer:
        raise DTypeError(f"numpy.bitwise_count of {x.dtype}", current_location())
    x = np.abs(call("cast", x, i64))
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    return call("cast", (x * 0x0101010101010101) >> 56, np.uint8)


def _conj(x: Any) -> Any:
    return np.conj(x) if x.dtype.is_complex else x


def vecdot(x1: Any, x2: Any) -> Any:
    left, right = tensor(x1), tensor(x2)
    return np.matmul(_conj(left)[..., None, :], right[..., :, None])[..., 0, 0]


def _matrices(item: Any, function: str) -> Any:
    x = tensor(item)
    if x.ndim < 2:
        raise ShapeError(f"numpy.{function}: {x.type} is no matrix", current_location())
    return x


def matvec(x1: Any, x2: Any) -> Any:
    return np.matmul(_matrices(x1, "matvec"), tensor(x2)[..., :, None])[..., 0]


def vecmat(x1: Any, x2: Any) -> Any:
    return np.matmul(_conj(tensor(x1))[..., None, :], _matrices(x2, "vecmat"))[..., 0, :]


COMPOSED: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (fabs, degrees, radians, cbrt, modf, spacing, bitwise_count, vecdot, matvec, vecmat)
} | {"rad2deg": degrees, "deg2rad": radians}
