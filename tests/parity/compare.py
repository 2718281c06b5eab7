"""When two results agree: strictly, or by being at least as close as torch to the float64 result."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from smelt.ir.types import DTYPES, dtype

# Relative and absolute: what torch.testing takes.
TOLERANCE = {
    "f16": (1e-3, 1e-5), "bf16": (1.6e-2, 1e-5), "f32": (1.3e-6, 1e-5), "f64": (1e-7, 1e-7),
    "c64": (1.3e-6, 1e-5), "c128": (1e-7, 1e-7),
}  # fmt: skip
ULPS = 2.0


def wide(array: np.ndarray) -> np.ndarray:
    """As float64 or complex128."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def spacing(array: np.ndarray, name: str) -> np.ndarray:
    """One unit in the last place of these (wide) numbers, were they of the named type."""
    info = ml_dtypes.finfo(DTYPES[name].real.numpy)
    magnitude = np.maximum(np.abs(array), float(info.smallest_normal))
    return np.exp2(np.floor(np.log2(magnitude))) * float(info.eps)


def difference(
    actual: np.ndarray,
    expected: np.ndarray | None,
    exact: Callable[[], np.ndarray | None],
    loose: float = 1.0,
) -> str:
    """How `actual` disagrees, or nothing. `expected` is torch's result, `exact()` the float64 one."""
    known = expected
    if known is None:
        high = exact()
        if high is None:
            return ""
        known = high.astype(actual.dtype)
    if actual.dtype != known.dtype:
        return f"dtype {dtype(actual.dtype)}, expected {dtype(known.dtype)}"
    if actual.shape != known.shape:
        return f"shape {list(actual.shape)}, expected {list(known.shape)}"
    if actual.size == 0 or loose == float("inf"):
        return ""
    if actual.dtype.kind in "biu":
        wrong = actual != known
        return describe(wrong, actual, known, None) if wrong.any() else ""
    name = dtype(actual.dtype).name
    relative, absolute = (item * loose for item in TOLERANCE[name])
    got, want = wide(actual), wide(known)
    with np.errstate(all="ignore"):
        close = np.isclose(got, want, relative, absolute, equal_nan=True)
        if close.all():
            return ""
        high = exact()
        if high is None or high.shape != got.shape:
            return describe(~close, actual, known, high)
        # An overflow of the type itself is right where rounding the exact result overflows too.
        rounded = wide(high.astype(actual.dtype))
        finite = np.isfinite(got) & np.isfinite(want) & np.isfinite(rounded)
        torch_error = np.abs(want - high)[finite] if expected is not None else np.zeros(1)
        allowed = torch_error.max(initial=0.0) + ULPS * spacing(rounded, name)
        good = np.where(finite, np.abs(got - high) <= allowed, (got == rounded) | (np.isnan(got) & np.isnan(rounded)))
    wrong = ~(close | good)
    return describe(wrong, actual, known, high) if wrong.any() else ""


def describe(wrong: np.ndarray, actual: np.ndarray, expected: np.ndarray, exact: np.ndarray | None) -> str:
    places = np.argwhere(wrong)
    where = tuple(int(item) for item in places[0])
    text = f"{len(places)} of {actual.size} differ; "
    text += f"at {list(where)} got {actual[where]}, expected {expected[where]}"
    if exact is not None and exact.shape == actual.shape:
        text += f" (float64: {exact[where]})"
    return text
