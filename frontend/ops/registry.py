"""All ops by name, and the one that others are made with: constants."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.graph import Op, Value, current_location
from ..ir.types import DType, scalar_type

if TYPE_CHECKING:
    from .define import OpDef

Scalar = bool | int | float | complex
REGISTRY: dict[str, OpDef] = {}


def constant(value: Scalar, type: DType) -> Value:
    """A number as a 0-dim tensor, in normal form for its type: the printer writes it as a literal."""
    arguments = {"value": scalar_value(value, type), "dtype": type}
    return Op(REGISTRY["constant"], arguments, (scalar_type(type),), current_location()).results[0]


def scalar_value(value: Any, type: DType) -> Scalar:
    """The Python number that `value` is once stored as `type`."""
    if value.__class__ is float and type.kind == "f":
        # A number that meets an f16 or bf16 tensor keeps the precision that the arithmetic is done in.
        return value if type.bits == 64 else ctypes.c_float(value).value  # type: ignore[no-any-return]
    if type.kind == "b":
        return bool(value)
    if type.kind in "iu":
        number = int(value) & ((1 << type.bits) - 1)
        return number - (1 << type.bits) if type.kind == "i" and number >> (type.bits - 1) else number
    with np.errstate(over="ignore"):
        stored = np.asarray(value).astype(type.compute.numpy)
    return complex(stored) if type.kind == "c" else float(stored)
