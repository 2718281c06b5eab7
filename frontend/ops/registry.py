"""All ops by name, and constants, which the other ops are declared with."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.errors import ArgumentError, NumberRangeError, suggest
from ..ir.graph import Op, Value
from ..ir.process import process
from ..ir.types import DTYPES, DType, scalar_type

if TYPE_CHECKING:
    from .opdef import OpDef

Scalar = bool | int | float | complex
REGISTRY: dict[str, OpDef] = process.keep("ops", {})


def lookup(name: str) -> OpDef:
    if name not in REGISTRY:
        raise ArgumentError(f"unknown op {name!r}{suggest(name, REGISTRY)}")
    return REGISTRY[name]


def constant(value: Scalar, type: DType) -> Value:
    """Return a number as a 0-dim tensor, in normal form for its type: the printer writes it as a literal.

    Programs repeat a few numbers, so equal ones share a value, which has no location.
    """
    if value.__class__ in _SHARED and (value or repr(value) != "-0.0"):
        return _shared_constant(value, type.name)
    return _constant(value, type)


def _constant(value: Scalar, type: DType) -> Value:
    arguments = {"value": scalar_value(value, type), "dtype": type}
    return Op(REGISTRY["constant"], arguments, (scalar_type(type),), None).results[0]


_SHARED = (float, int, bool)  # classes in which equal numbers are interchangeable, except -0.0


@lru_cache(maxsize=4096, typed=True)
def _shared_constant(value: Scalar, type: str) -> Value:
    return _constant(value, DTYPES[type])


def holds(type: DType, value: Any) -> bool:
    """Whether an integer type holds the integer part of a number."""
    low, high = type.bounds
    return bool(low - 1 < value < high + 1)


def scalar_value(value: Any, type: DType) -> Scalar:
    """Return `value` as the Python number that is stored for `type`; raise if an integer type does not hold it."""
    if value.__class__ is float and type.kind == "f":
        # Numbers of f16 and bf16 ops keep f32 precision, in which the arithmetic is done: see `rounded`.
        return value if type.bits == 64 else ctypes.c_float(value).value  # type: ignore[no-any-return]
    if type.kind == "b":
        return bool(value)
    if type.kind in "iu":
        if not holds(type, value):
            low, high = type.bounds
            advice = "" if type.bits == 64 else ": convert the tensor first, x.astype('int64')"
            raise NumberRangeError(f"{value} is out of range for {type}, which goes from {low} to {high}{advice}")
        return int(value)
    try:
        with np.errstate(over="ignore"):
            stored = np.asarray(value).astype(type.compute.numpy)
    except OverflowError:
        raise NumberRangeError(f"{value.__class__.__name__} too large for {type}") from None
    return complex(stored) if type.kind == "c" else float(stored)


def as_held(value: Any, type: DType) -> Scalar:
    """Return a number in the tensors' type, without promotion: beside integers only its integer part counts, as in
    PyTorch."""
    return value if type.is_inexact else scalar_value(value, type)


def rounded(value: Any, type: DType) -> Scalar:
    """Return a number rounded to f16 or bf16, by way of f32 as in PyTorch; for other types the number itself."""
    if type.compute is type or (value.__class__ is int and -128 <= value <= 128):
        return value  # type: ignore[no-any-return]
    with np.errstate(over="ignore"):
        return float(np.asarray(scalar_value(value, type), np.float32).astype(type.numpy))
