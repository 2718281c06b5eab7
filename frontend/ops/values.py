"""Values in other forms: as arrays of a trace, in another type, as the numbers that they are."""

from __future__ import annotations

from typing import Any

from ..ir.graph import Array, Value
from ..ir.symbolic import Expr
from ..ir.types import DType, i64
from .registry import REGISTRY
from .shapes import fits_into


def results_of(result: Any) -> tuple[Value, ...]:
    return (result,) if isinstance(result, Value) else tuple(result)


def as_arrays(result: Any, are_numbers: bool = False) -> Any:
    """Return the results of an op as `Array`s, which a function of NumPy arrays sees."""
    if not isinstance(result, Value):
        return tuple(map(Array, result))
    is_number = are_numbers and not result.shape
    return Array(result, {"i": int, "f": float, "c": complex}.get(result.dtype.kind) if is_number else None)


def as_dtype(number: Value, wanted: DType) -> Value:
    """Cast a Python number known only at run time; out of range is an error."""
    if number.dtype is wanted:
        return number
    op = "cast"
    if number.dtype is i64 and wanted.is_integer:
        size = number.op.arguments["value"] if number.op is not None and number.op.name == "extent" else None
        op = "checked_cast" if size is None or not fits_into(size, wanted) else "cast"
    return REGISTRY[op].apply({"self": number, "dtype": wanted})  # type: ignore[no-any-return]


def known_number(value: Value) -> bool | int | float | complex | Expr | None:
    """Return the number or the open size that a value is, which bodies of composites may branch on; else None."""
    op = value.op
    return op.arguments["value"] if op is not None and op.defn.name in ("constant", "extent") else None
