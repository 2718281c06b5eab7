"""Special functions against mpmath, in units of the last place, on the ranges between which their formulas change.

A unit is that of the result, and what the result moves when the operand moves by one unit: where a function oscillates
or grows, no formula knows it better than its operand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
import smelt
from smelt.ops.define import REGISTRY
from support import BACKENDS, evaluate

COUNT = 30  # points in each range
BOUND = {np.float32: 4.0, np.float64: 8.0}

Range = tuple[float, float]
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], list[Range]]] = {
    "i0": (lambda x: mpmath.besseli(0, x), [(-12, 12), (12, 85), (85, 713)]),
    "special_i1": (lambda x: mpmath.besseli(1, x), [(-12, 12), (12, 85), (-713, -85)]),
    "special_i0e": (lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), [(-12, 12), (12, 700)]),
    "special_i1e": (lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), [(-12, 12), (12, 700)]),
    "special_modified_bessel_k0": (lambda x: mpmath.besselk(0, x), [(0, 1.5), (1.5, 10), (10, 80), (80, 700)]),
    "special_modified_bessel_k1": (lambda x: mpmath.besselk(1, x), [(0, 1.5), (1.5, 10), (10, 80), (80, 700)]),
    "special_scaled_modified_bessel_k0": (
        lambda x: mpmath.besselk(0, x) * mpmath.exp(x),
        [(0, 1.5), (1.5, 10), (10, 700)],
    ),
    "special_scaled_modified_bessel_k1": (
        lambda x: mpmath.besselk(1, x) * mpmath.exp(x),
        [(0, 1.5), (1.5, 10), (10, 700)],
    ),
    "special_bessel_j0": (lambda x: mpmath.besselj(0, x), [(-6, 6), (6, 30), (30, 1e4)]),
    "special_bessel_j1": (lambda x: mpmath.besselj(1, x), [(-6, 6), (6, 30), (-1e4, -30)]),
    "special_bessel_y0": (lambda x: mpmath.bessely(0, x), [(0, 0.1), (0.1, 6), (6, 30), (30, 1e4)]),
    "special_bessel_y1": (lambda x: mpmath.bessely(1, x), [(0, 0.1), (0.1, 6), (6, 30), (30, 1e4)]),
    "special_spherical_bessel_j0": (mpmath.sinc, [(-1, 1), (1, 30), (30, 1e4)]),
    "special_airy_ai": (mpmath.airyai, [(-500, -10), (-10, -3), (-3, 0.5), (0.5, 10), (10, 100)]),
    "special_erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [(-26, -1), (-1, 0.45), (0.45, 50)]),
    "special_log_ndtr": (
        lambda x: (
            mpmath.log1p(-mpmath.erfc(x / mpmath.sqrt(2)) / 2)
            if x > 0
            else mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)
        ),
        [(-100, -1), (-1, 0.65), (0.65, 5), (5, 36)],
    ),
    "special_ndtri": (
        lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1),
        [(1e-12, 0.01), (0.01, 0.25), (0.25, 0.75), (0.75, 1)],
    ),
}


@cache
def table(name: str, kind: type) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each range the operands, what is exact, and one unit of it."""
    function, ranges = FUNCTIONS[name]
    found = []
    for number, (low, high) in enumerate(ranges):
        x = np.random.default_rng(number).uniform(low, high, COUNT).astype(kind)
        exact, change = [], []
        with mpmath.workdps(40):
            step = mpmath.mpf(10) ** -16
            for operand in x:
                value = mpmath.mpf(float(operand))
                exact.append(mpmath.re(function(value)))
                change.append(abs(mpmath.re(function(value * (1 + step))) - exact[-1]) / step)
            exact64 = np.array([float(item) for item in exact])
        with np.errstate(over="ignore"):
            representable = np.abs(exact64) < np.finfo(kind).max
            unit = np.spacing(np.abs(exact64).astype(kind)).astype(float)
        unit = unit + np.finfo(kind).eps * np.array([float(item) for item in change])
        keep = representable & (np.abs(exact64) > np.finfo(kind).tiny)
        if keep.any():
            found.append((x[keep], exact64[keep], unit[keep]))
    return found


@pytest.mark.parametrize("kind", BOUND, ids=["f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "cuda"])
def test_accuracy(name: str, kind: type, backend: str) -> None:
    for x, exact, unit in table(name, kind):
        (result,) = evaluate(REGISTRY[name], [x], backend)
        assert result.dtype == kind
        error = np.abs(result.astype(float) - exact) / unit
        worst = int(np.argmax(error))
        # What is exact was itself rounded to f64: half a unit.
        assert error[worst] <= BOUND[kind] - 0.5, f"{name}({x[worst]!r}) is {error[worst]:.2f} units off"


def test_infinities_and_poles() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, -1.0])
    k0 = smelt.jit(smelt.ops.special_modified_bessel_k0)(x)
    np.testing.assert_array_equal(k0, [np.inf, np.inf, 0.0, np.nan, np.nan])
    y1 = smelt.jit(smelt.ops.special_bessel_y1)(x)
    np.testing.assert_array_equal(y1, [-np.inf, -np.inf, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(smelt.jit(smelt.ops.special_ndtri)(x), [-np.inf, -np.inf, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(smelt.jit(smelt.ops.special_erfcx)(x[:4]), [1.0, 1.0, 0.0, np.inf])


def test_frexp() -> None:
    for kind in (np.float32, np.float64):
        info = np.finfo(kind)
        x = np.array(
            [0.0, -0.0, 1.0, -3.0, 1e-30, info.tiny, info.smallest_subnormal, info.max, np.inf, np.nan], dtype=kind
        )
        mantissa, exponent = smelt.jit(lambda x: np.frexp(x))(x)
        wanted, power = np.frexp(x)
        np.testing.assert_array_equal(mantissa, wanted)
        np.testing.assert_array_equal(exponent[:8], power[:8])
        np.testing.assert_array_equal(smelt.jit(np.ldexp)(mantissa, exponent), x)
