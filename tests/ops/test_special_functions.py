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


def zeta_of(x: float, q: float) -> Any:
    """Hurwitz's zeta function, by many terms and Euler and Maclaurin's formula: mpmath's own loses digits."""
    exponent, place = mpmath.mpf(x), mpmath.mpf(q)
    total = mpmath.fsum((place + k) ** -exponent for k in range(100))
    place += 100
    total += place ** (1 - exponent) / (exponent - 1) + place**-exponent / 2
    term = exponent * place ** (-exponent - 1)
    for k in range(1, 12):
        total += mpmath.bernoulli(2 * k) / mpmath.factorial(2 * k) * term
        term *= (exponent + 2 * k - 1) * (exponent + 2 * k) / place**2
    return total


@pytest.mark.parametrize("kind", BOUND, ids=["f32", "f64"])
@pytest.mark.parametrize("ranges", [(1.01, 3, 0.01, 10), (3, 20, 0.1, 30), (20, 60, 0.5, 60), (1.5, 6, 100, 1e5)])
def test_accuracy_of_zeta(kind: type, ranges: tuple[float, ...]) -> None:
    random = np.random.default_rng(0)
    x, q = random.uniform(*ranges[:2], 30).astype(kind), random.uniform(*ranges[2:], 30).astype(kind)
    found = smelt.jit(smelt.ops.special_zeta)(x, q)
    assert found.dtype == kind
    with mpmath.workdps(40):
        for place in range(len(x)):
            exact = zeta_of(float(x[place]), float(q[place]))
            if exact < np.finfo(kind).tiny:
                continue
            error = abs(mpmath.mpf(float(found[place])) - exact) / mpmath.mpf(float(np.spacing(kind(exact))))
            assert error <= BOUND[kind], f"zeta({x[place]!r}, {q[place]!r}) is {float(error):.2f} units off"


def test_zeta_at_poles_and_below_zero() -> None:
    zeta = smelt.jit(smelt.ops.special_zeta)
    x = np.array([1.0, 0.5, 2.0, 3.0, 2.5, np.nan, 2.0, np.inf, 2.0])
    q = np.array([2.0, 2.0, -2.0, 0.0, -0.5, 1.0, np.nan, 1.0, np.inf])
    np.testing.assert_array_equal(zeta(x, q), [np.inf, np.nan, np.inf, np.inf, np.nan, np.nan, np.nan, 1.0, 0.0])
    # Where q is negative, from what is above it.
    for exponent, place in ((2.0, -0.5), (3.0, -0.3), (4.0, -3.75), (5.0, -100.25)):
        steps = np.ceil(-place)
        wanted = (place + np.arange(steps)) ** -exponent
        with mpmath.workdps(30):
            exact = wanted.sum() + float(zeta_of(exponent, place + steps))
        np.testing.assert_allclose(zeta(np.array(exponent), np.array(place)), exact, rtol=1e-13)


POLYNOMIALS: dict[str, tuple[Callable[[int, Any], Any], Callable[[int], float]]] = {
    "chebyshev_polynomial_t": (mpmath.chebyt, lambda n: 1 + n),
    "chebyshev_polynomial_u": (mpmath.chebyu, lambda n: (1 + n) ** 2),
    "legendre_polynomial_p": (mpmath.legendre, lambda n: 1 + n),
    "laguerre_polynomial_l": (lambda n, x: mpmath.laguerre(n, 0, x), lambda n: 1 + n),
    "hermite_polynomial_h": (mpmath.hermite, lambda n: (1 + n) * 2.0 ** (n / 2) * float(mpmath.factorial(n)) ** 0.5),
}


@pytest.mark.parametrize("kind", BOUND, ids=["f32", "f64"])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_accuracy_of_polynomials(name: str, kind: type) -> None:
    """Against their size within the interval, times what a recurrence of so many steps may lose."""
    function, size = POLYNOMIALS[name]
    x = np.random.default_rng(0).uniform(-1, 1, 30).astype(kind)
    n = np.arange(30).astype(kind)
    found = smelt.jit(getattr(smelt.ops, f"special_{name}"))(x, n)
    for place in range(len(x)):
        with mpmath.workdps(40):
            exact = float(function(int(n[place]), mpmath.mpf(float(x[place]))))
        allowed = BOUND[kind] * np.finfo(kind).eps * size(place) * (1 + abs(exact))
        assert abs(float(found[place]) - exact) <= allowed, f"{name}({x[place]!r}, {place})"


def test_degrees_of_polynomials() -> None:
    """Cut to whole numbers; 0 for what is negative or no number; nan where the recurrence overflows on the way."""
    degree = np.array([-1.0, 2.7, np.nan, np.inf, 1e19, 1e5, 400.0])
    legendre = smelt.jit(smelt.ops.special_legendre_polynomial_p)
    np.testing.assert_array_equal(legendre(np.ones(7), degree), [0, 1, 0, 0, 0, 1, 1])
    chebyshev = smelt.jit(smelt.ops.special_chebyshev_polynomial_t)
    np.testing.assert_allclose(chebyshev(np.full(7, 0.5), degree)[[1, 5]], [-0.5, -0.5], rtol=1e-9)
    assert np.isnan(chebyshev(np.array([10.0, -10.0]), np.array([400.0, 401.0]))).all()
    hermite = smelt.jit(smelt.ops.special_hermite_polynomial_h)
    assert np.isnan(hermite(np.array([0.5], np.float32), np.array([129.0], np.float32)))


@pytest.mark.parametrize("name", ["special_zeta", "igamma", "igammac"])
def test_derivatives_that_do_not_exist_are_refused(name: str) -> None:
    function = getattr(smelt.ops, name)
    with pytest.raises(smelt.SmeltError, match="no derivative of without_derivative"):
        smelt.grad(lambda a, x: function(a, x).sum())(np.array([2.0]), np.array([1.0]))


def test_polygamma_of_any_order() -> None:
    x = np.array([0.3, 1.0, 4.5, 30.0])
    for order in range(9):
        wanted = [float(mpmath.psi(order, item)) for item in x]
        np.testing.assert_allclose(smelt.jit(lambda x: smelt.ops.polygamma(order, x))(x), wanted, rtol=1e-14)  # noqa: B023


GAMMA_RANGES = {
    "near zero": (0.01, 1.2, 0.01, 1.1),
    "tiny": (1e-8, 1e-3, 1e-3, 0.5),
    "small": (0.5, 8, 0.1, 20),
    "middle": (8, 50, 1, 80),
    "large": (50, 100, 35, 140),
    "far": (100, 1000, 200, 1500),
}


@pytest.mark.parametrize("kind", BOUND, ids=["f32", "f64"])
@pytest.mark.parametrize("ranges", GAMMA_RANGES.values(), ids=GAMMA_RANGES)
def test_accuracy_of_incomplete_gamma_functions(ranges: tuple[float, ...], kind: type) -> None:
    """In units of the result, and of what it moves when x does."""
    random = np.random.default_rng(0)
    a, x = random.uniform(*ranges[:2], 40).astype(kind), random.uniform(*ranges[2:], 40).astype(kind)
    lower, upper = smelt.jit(lambda a, x: (smelt.ops.igamma(a, x), smelt.ops.igammac(a, x)))(a, x)
    with mpmath.workdps(40):
        for place in range(len(a)):
            order, end = mpmath.mpf(float(a[place])), mpmath.mpf(float(x[place]))
            moves = mpmath.exp(order * mpmath.log(end) - end - mpmath.loggamma(order))
            for found, limits in ((lower, (0, end)), (upper, (end, mpmath.inf))):
                exact = mpmath.gammainc(order, *limits, regularized=True)
                if exact > np.finfo(kind).tiny:
                    error = abs(mpmath.mpf(float(found[place])) - exact) / ((exact + moves) * float(np.finfo(kind).eps))
                    assert error <= BOUND[kind], f"({a[place]!r}, {x[place]!r}) is {float(error):.2f} units off"


def test_incomplete_gamma_functions_of_large_operands() -> None:
    """Temme's expansion holds for any size; so many steps of a series would take hours."""
    a = np.array([1e6, 1e12, 1e300, 1e300, 1e300])
    x = np.array([1e6, 1e12, 1e300, 2e300, 0.5e300])
    lower, upper = smelt.jit(lambda a, x: (smelt.ops.igamma(a, x), smelt.ops.igammac(a, x)))(a, x)
    middle = 1 / (3 * np.sqrt(2 * np.pi * a[:3]))
    np.testing.assert_allclose(lower, [*(0.5 + middle), 1.0, 0.0], rtol=1e-9)
    np.testing.assert_allclose(upper, [*(0.5 - middle), 0.0, 1.0], rtol=1e-9)


def test_edges_of_incomplete_gamma_functions() -> None:
    inf, nan = np.inf, np.nan
    a = np.array([0.0, 0.0, 1.0, 1.0, inf, inf, -1.0, 1.0, nan, 1.0])
    x = np.array([0.0, 1.0, 0.0, inf, 1.0, inf, 1.0, -1.0, 1.0, nan])
    lower, upper = smelt.jit(lambda a, x: (smelt.ops.igamma(a, x), smelt.ops.igammac(a, x)))(a, x)
    np.testing.assert_array_equal(lower, [nan, 1, 0, 1, 0, nan, nan, nan, nan, nan])
    np.testing.assert_array_equal(upper, [nan, 0, 1, 0, 1, nan, nan, nan, nan, nan])
