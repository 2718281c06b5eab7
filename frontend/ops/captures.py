"""Arrays that a traced function reads from outside: each use sees the elements of that moment."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, SmeltError
from ..ir.graph import Value, current_location
from ..ir.types import dtype
from .registry import REGISTRY, constant


def as_array(value: Any, what: str) -> np.ndarray:
    """Return a NumPy array, sharing memory with an array-like where possible."""
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"{what}: masks of arrays are not supported: fill them (x.filled(0))", current_location())
    if isinstance(value, np.matrix):
        raise ArgumentError(
            f"{what}: numpy.matrix has other operators than arrays: convert it (np.asarray(x))", current_location()
        )
    if issubclass(type(value), np.ndarray):  # not isinstance: an OpenArray claims to be one
        array = value
    elif hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        try:
            array = np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
        except SmeltError:
            raise
        except (TypeError, RuntimeError, BufferError, ValueError) as error:
            name = type(value).__name__
            raise ArgumentError(
                f"{what}: this {name} cannot become a NumPy array: {error}", current_location()
            ) from error
    elif isinstance(value, (list, tuple)):
        array = np.asarray(value)
    else:
        raise ArgumentError(f"{what} must be a tensor, got {type(value).__name__}", current_location())
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    dtype(array.dtype)
    return array


class ArrayConstant:
    """The elements of an array when a traced function used it. Becomes a hidden parameter when tracing ends."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    def __repr__(self) -> str:
        return f"array{list(self.array.shape)}"


# During a trace: the copies made so far, keyed by the memory copied from; the entry keeps the array alive.
_copies: ContextVar[dict[tuple, tuple[np.ndarray, ArrayConstant]] | None] = ContextVar("smelt_captures", default=None)


class captured_anew:
    """Context in which uses of an array that has not changed in between share one constant."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token: Token[dict[tuple, tuple[np.ndarray, ArrayConstant]] | None] = _copies.set({})

    def __exit__(self, *raised: object) -> None:
        _copies.reset(self.token)


def captured(array: np.ndarray) -> Value:
    """Return an array as a value; a 0-dim one becomes a literal."""
    if array.ndim == 0:
        return constant(array.item(), dtype(array.dtype))
    return REGISTRY["captured"].apply({"array": _held(array)})  # type: ignore[no-any-return]


def _held(array: np.ndarray) -> ArrayConstant:
    """Return a copy of the array, since the function may overwrite it; the same copy while the elements are
    unchanged."""
    copies = _copies.get()
    if copies is None:
        return ArrayConstant(_copied(array))
    place = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
    known = copies.get(place)
    if known is None or not _same_bits(known[1].array, array):
        known = copies[place] = array, ArrayConstant(_copied(array))
    return known[1]


def _copied(array: np.ndarray) -> np.ndarray:
    return np.array(array, order="C", copy=True, subok=False)


def _same_bits(copy: np.ndarray, array: np.ndarray) -> bool:
    left, right = (np.ascontiguousarray(item).reshape(-1).view(np.uint8) for item in (copy, array))
    return bool(np.array_equal(left, right))
