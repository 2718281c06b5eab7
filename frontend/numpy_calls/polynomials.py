"""NumPy's polynomials of known degree, and convolutions of two sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ShapeError
from ..ir.graph import current_location
from .arrange import known_sizes
from .common import arrays_together, call, is_int, numpys, tensor


def _sequence(item: Any, function: str) -> Any:
    x: Any = np.atleast_1d(tensor(item))
    if x.ndim != 1 or not known_sizes(x, function)[0]:
        raise ShapeError(f"numpy.{function} of {x.type}: expected one dim that is not empty", current_location())
    return x


@numpys(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    """np.polyval by Horner's rule, the coefficient of the highest power first."""
    coefficients, at = tensor(p), tensor(x)
    if not coefficients.ndim:
        raise ShapeError(f"numpy.polyval: p is {coefficients.type}, expected one dim", current_location())
    size = known_sizes(coefficients, "polyval")[0]
    found = at * 0
    for number in range(size):
        found = found * at + coefficients[number]
    return found


def _aligned(a1: Any, a2: Any, function: str) -> tuple[Any, Any]:
    one, other = _sequence(a1, function), _sequence(a2, function)
    longer = max(one.type.shape[0], other.type.shape[0])
    return tuple(np.pad(item, (longer - item.type.shape[0], 0)) for item in (one, other))  # type: ignore[return-value]


@numpys(np.polyadd)
def polyadd(a1: Any, a2: Any) -> Any:
    one, other = _aligned(a1, a2, "polyadd")
    return one + other


@numpys(np.polysub)
def polysub(a1: Any, a2: Any) -> Any:
    one, other = _aligned(a1, a2, "polysub")
    return one - other


@numpys(np.polymul)
def polymul(a1: Any, a2: Any) -> Any:
    return np.convolve(_sequence(a1, "polymul"), _sequence(a2, "polymul"))


@numpys(np.polyder)
def polyder(p: Any, m: int = 1) -> Any:
    if not is_int(m) or m < 0:
        raise ArgumentError(f"numpy.polyder: m is {m!r}, expected an int that is not negative", current_location())
    x = _sequence(p, "polyder")
    for _ in range(m):
        x = x[:-1] * np.arange(x.type.shape[0] - 1, 0, -1)
    return x


@numpys(np.polyint)
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    if not is_int(m) or m < 0:
        raise ArgumentError(f"numpy.polyint: m is {m!r}, expected an int that is not negative", current_location())
    x = _sequence(p, "polyint")
    given = [0.0] * m if k is None else list(k) if np.ndim(k) else [k] * m
    if len(given) == 1 and m > 1:
        given *= m
    if len(given) != m:
        raise ArgumentError(f"numpy.polyint: {len(given)} constants for {m} integrations", current_location())
    for constant in given:
        x = np.concatenate([x / np.arange(x.type.shape[0], 0, -1), np.atleast_1d(tensor(constant))])
    return x


@numpys(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """np.convolve: a product of windows of the longer sequence with the other one mirrored."""
    one, other = arrays_together(_sequence(a, "convolve"), _sequence(v, "convolve"))
    if one.type.shape[0] < other.type.shape[0]:
        one, other = other, one
    return _products(one, np.flip(other), mode, "convolve")


@numpys(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    if not np.ndim(a) or not np.ndim(v):
        raise ShapeError("numpy.correlate of a number: expected sequences", current_location())
    one, other = arrays_together(_sequence(a, "correlate"), _sequence(v, "correlate"))
    other = np.conj(other) if other.dtype.is_complex else other
    if one.type.shape[0] >= other.type.shape[0]:
        return _products(one, other, mode, "correlate")
    return np.flip(_products(other, one, mode, "correlate"))


def _products(longer: Any, kernel: Any, mode: str, function: str) -> Any:
    width = kernel.type.shape[0]
    if mode == "full":
        before = after = width - 1
    elif mode == "same":
        # NumPy's middle part of the full result, which is as long as the longer sequence.
        before, after = width // 2, width - 1 - width // 2
    elif mode == "valid":
        before = after = 0
    else:
        raise ArgumentError(
            f"numpy.{function}: mode is {mode!r}, expected 'full', 'same' or 'valid'", current_location()
        )
    windows = call("unfold", np.pad(longer, (before, after)), 0, width, 1)
    return windows @ kernel
