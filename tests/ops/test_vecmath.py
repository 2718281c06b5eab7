"""Expansions of the scalar table: errors in units in the last place, special values.

Each is evaluated by NumPy and, where an op of its name exists, as compiled code for each width of vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
import smelt
import torch
from smelt.ir.types import DTYPES, dtype
from smelt.kernels.scalar.table import BASE, COMBINERS, SCALARS, NumpyBuilder, NumpyOperand, expansion, spelling
from smelt.tools.ulp import error_in_ulp
from support import BACKENDS, evaluate, from_torch, to_torch

INF, NAN = np.inf, np.nan

# The largest error found in f32, rounded up: (bound, the function in f64).
F32: dict[str, tuple[float, Callable[..., Any]]] = {
    "exp": (1.0, np.exp),
    "exp2": (0.9, np.exp2),
    "expm1": (1.2, np.expm1),
    "log": (0.95, np.log),
    "log2": (1.0, np.log2),
    "log10": (0.9, np.log10),
    "log1p": (1.5, np.log1p),
    "sin": (1.5, np.sin),
    "cos": (1.5, np.cos),
    "tan": (1.4, np.tan),
    "asin": (1.3, np.arcsin),
    "acos": (1.2, np.arccos),
    "atan": (1.3, np.arctan),
    "sinh": (1.3, np.sinh),
    "cosh": (1.1, np.cosh),
    "tanh": (1.4, np.tanh),
    "asinh": (0.51, np.arcsinh),
    "acosh": (0.51, np.arccosh),
    "atanh": (1.1, np.arctanh),
    "sigmoid": (1.5, scipy.special.expit),
    "erf": (1.3, scipy.special.erf),
    "erfc": (0.9, scipy.special.erfc),
    "erfinv": (2.5, scipy.special.erfinv),
    "lgamma": (0.51, scipy.special.gammaln),
    "digamma": (0.51, scipy.special.psi),
    "trigamma": (0.51, lambda x: scipy.special.polygamma(1, x)),
    "cbrt": (0.51, np.cbrt),
    "reciprocal": (0.51, lambda x: 1 / x),
    "rsqrt": (1.5, lambda x: 1 / np.sqrt(x)),
}
F32_PAIRS: dict[str, tuple[float, Callable[..., Any]]] = {
    "pow": (0.51, lambda x, y: np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64)),
    "atan2": (1.5, np.arctan2),
    "hypot": (0.51, np.hypot),
}
# The largest error found in f64, rounded up: (bound, the function, where it is sampled).
F64: dict[str, tuple[float, Callable[..., Any], tuple[float, float]]] = {
    "exp": (0.9, mpmath.exp, (-700, 700)),
    "exp2": (0.9, lambda x: mpmath.mpf(2) ** x, (-1000, 1000)),
    "expm1": (1.3, mpmath.expm1, (-30, 700)),
    "log": (0.9, mpmath.log, (1e-3, 1e3)),
    "log2": (1.1, lambda x: mpmath.log(x) / mpmath.log(2), (1e-3, 1e3)),
    "log10": (1.0, mpmath.log10, (1e-3, 1e3)),
    "log1p": (1.3, mpmath.log1p, (-0.99, 1e3)),
    "sin": (1.5, mpmath.sin, (-1e5, 1e5)),
    "cos": (1.5, mpmath.cos, (-1e5, 1e5)),
    "tan": (2.0, mpmath.tan, (-1e5, 1e5)),
    "asin": (1.1, mpmath.asin, (-1, 1)),
    "acos": (1.1, mpmath.acos, (-1, 1)),
    "atan": (1.6, mpmath.atan, (-10, 10)),
    "sinh": (2.0, mpmath.sinh, (-50, 50)),
    "cosh": (2.0, mpmath.cosh, (-50, 50)),
    "tanh": (2.0, mpmath.tanh, (-5, 5)),
    "asinh": (1.6, mpmath.asinh, (-10, 10)),
    "acosh": (2.0, mpmath.acosh, (1, 10)),
    "atanh": (2.0, mpmath.atanh, (-1, 1)),
    "sigmoid": (1.2, lambda x: 1 / (1 + mpmath.exp(-x)), (-50, 50)),
    "erf": (1.0, mpmath.erf, (-6, 6)),
    "erfc": (3.5, mpmath.erfc, (-6, 26)),
    "erfinv": (2.5, mpmath.erfinv, (-1, 1)),
    "lgamma": (4.0, mpmath.loggamma, (0, 20)),
    "digamma": (5.0, mpmath.digamma, (3, 20)),
    "trigamma": (3.0, lambda x: mpmath.psi(1, x), (0.01, 20)),
    "tetragamma": (4.0, lambda x: mpmath.psi(2, x), (0.01, 20)),
    "cbrt": (0.8, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), (-1e3, 1e3)),
}
# Operands and results that rounding does not touch.
SPECIAL: dict[str, tuple[list[float], list[float]]] = {
    "exp": ([0.0, -INF, INF, NAN, 1000.0, -1000.0], [1.0, 0.0, INF, NAN, INF, 0.0]),
    "exp2": ([0.0, -INF, INF, NAN, 10.0, -2000.0], [1.0, 0.0, INF, NAN, 1024.0, 0.0]),
    "expm1": ([0.0, -0.0, -INF, INF, NAN], [0.0, -0.0, -1.0, INF, NAN]),
    "log": ([0.0, -0.0, 1.0, INF, -1.0, -INF, NAN], [-INF, -INF, 0.0, INF, NAN, NAN, NAN]),
    "log2": ([0.0, 1.0, 8.0, INF, -1.0, NAN], [-INF, 0.0, 3.0, INF, NAN, NAN]),
    "log10": ([0.0, 1.0, INF, -1.0, NAN], [-INF, 0.0, INF, NAN, NAN]),
    "log1p": ([0.0, -0.0, -1.0, INF, -2.0, NAN], [0.0, -0.0, -INF, INF, NAN, NAN]),
    "sin": ([0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, NAN, NAN, NAN]),
    "cos": ([0.0, -0.0, INF, -INF, NAN], [1.0, 1.0, NAN, NAN, NAN]),
    "tan": ([0.0, -0.0, INF, NAN], [0.0, -0.0, NAN, NAN]),
    "asin": ([0.0, -0.0, 2.0, -2.0, NAN], [0.0, -0.0, NAN, NAN, NAN]),
    "acos": ([1.0, 2.0, NAN], [0.0, NAN, NAN]),
    "atan": ([0.0, -0.0, NAN], [0.0, -0.0, NAN]),
    "sinh": ([0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, INF, -INF, NAN]),
    "cosh": ([0.0, -0.0, INF, -INF, NAN], [1.0, 1.0, INF, INF, NAN]),
    "tanh": ([0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, 1.0, -1.0, NAN]),
    "asinh": ([0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, INF, -INF, NAN]),
    "acosh": ([1.0, INF, 0.0, -INF, NAN], [0.0, INF, NAN, NAN, NAN]),
    "atanh": ([0.0, -0.0, 1.0, -1.0, 2.0, NAN], [0.0, -0.0, INF, -INF, NAN, NAN]),
    "sigmoid": ([0.0, INF, -INF, NAN], [0.5, 1.0, 0.0, NAN]),
    "erf": ([0.0, -0.0, INF, -INF, NAN], [0.0, -0.0, 1.0, -1.0, NAN]),
    "erfc": ([0.0, INF, -INF, NAN], [1.0, 0.0, 2.0, NAN]),
    "erfinv": ([0.0, -0.0, 1.0, -1.0, 2.0, NAN], [0.0, -0.0, INF, -INF, NAN, NAN]),
    "lgamma": ([0.0, 1.0, 2.0, -1.0, INF, -INF, NAN], [INF, 0.0, 0.0, INF, INF, INF, NAN]),
    "digamma": ([0.0, -0.0, -1.0, INF, NAN], [-INF, INF, NAN, INF, NAN]),
    "trigamma": ([0.0, INF, NAN], [INF, 0.0, NAN]),
    "cbrt": ([0.0, -0.0, 8.0, INF, -INF, NAN], [0.0, -0.0, 2.0, INF, -INF, NAN]),
}
LARGE = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e30, -1e30, 1e-40, INF, -INF, NAN]


def by_numpy(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The row as NumPy evaluates it."""
    return NumpyBuilder().op(name, *(NumpyOperand(array, dtype(array.dtype)) for array in arrays)).array


def compiled(name: str, *arrays: np.ndarray, vector_bits: int | None = None) -> np.ndarray:
    """The op of the same name as compiled code computes it."""
    function = smelt.jit(getattr(smelt.ops, name), options=smelt.CompileOptions(vector_bits=vector_bits))
    return np.asarray(function(*arrays))


# By NumPy, or compiled for the machine's own vectors or for narrow ones.
Run = Callable[..., np.ndarray]
WAYS: dict[str, Run] = {
    "numpy": by_numpy,
    "compiled": compiled,
    "compiled-128": partial(compiled, vector_bits=128),
}


def each_way(names: Iterable[str]) -> pytest.MarkDecorator:
    """Run the test for each name in each way; some rows are no ops of their own."""
    cases = [
        pytest.param(name, run, id=f"{name}-{way}")
        for name in names
        for way, run in WAYS.items()
        if way == "numpy" or hasattr(smelt.ops, name)
    ]
    return pytest.mark.parametrize(("name", "run"), cases)


def every_exponent(count: int, seed: int = 0) -> np.ndarray:
    """f32 numbers of every exponent and both signs, and more of them where functions bend."""
    random = np.random.default_rng(seed)
    fractions = random.integers(0, 1 << 23, (255, count), dtype=np.uint32)
    fractions[:, 0], fractions[:, 1] = 0, (1 << 23) - 1
    exponents = np.arange(255, dtype=np.uint32)[:, None] << 23
    numbers = (exponents | fractions).ravel().view(np.float32)
    dense = [random.normal(0, scale, 200 * count) for scale in (0.3, 1, 5, 30)]
    dense.append(random.uniform(-1, 1, 200 * count))
    return np.concatenate([numbers, -numbers, *(part.astype(np.float32) for part in dense)])


@each_way(F32)
def test_single_precision(name: str, run: Run) -> None:
    bound, function = F32[name]
    x = every_exponent(40)
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
    error = error_in_ulp(run(name, x), exact)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"{name}({x[worst]!r}) is {error[worst]:.3f} ulp off"


@each_way(F32_PAIRS)
def test_single_precision_of_two_operands(name: str, run: Run) -> None:
    bound, function = F32_PAIRS[name]
    x, y = every_exponent(20), np.random.default_rng(3).permutation(every_exponent(20, seed=4))
    if name == "pow":
        x, y = np.concatenate([x, np.abs(x)]), np.concatenate([np.rint(y), np.clip(y, -30, 30)])
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64), y.astype(np.float64))
    error = error_in_ulp(run(name, x, y), exact)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"{name}({x[worst]!r}, {y[worst]!r}) is {error[worst]:.3f} ulp off"


@each_way(F64)
def test_double_precision(name: str, run: Run) -> None:
    bound, function, (low, high) = F64[name]
    x = np.random.default_rng(5).uniform(low, high, 300)
    results = run(name, x)
    with mpmath.workprec(120):
        for number, result in zip(x, results, strict=True):
            exact = mpmath.re(function(mpmath.mpf(float(number))))
            error = abs(mpmath.mpf(float(result)) - exact) / mpmath.mpf(float(np.spacing(abs(float(exact)))))
            assert error <= bound, f"{name}({number!r}) is {float(error):.3f} ulp off"


@pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)
def test_normal_distribution(run: Run) -> None:
    x = np.concatenate([np.linspace(-8, 8, 100_001), [INF, -INF, NAN]])
    error = np.abs(run("normal_cdf", x) - scipy.special.ndtr(x))[:-1]
    assert error.max() <= 4e-16
    x = x.astype(np.float32)
    exact = scipy.special.ndtr(x.astype(np.float64))
    result = run("normal_cdf", x)
    assert np.isnan(result[-1])
    error = np.abs(result - exact)[:-1]
    assert error.max() <= 1.5 * 2.0**-24
    # What is left of 0 is small: there it has fewer digits, but never less than a few.
    left = (x[:-1] < 0) & (x[:-1] > -5)
    assert (error[left] <= 1e-3 * exact[:-1][left]).all()


@pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)
def test_large_arguments_of_trigonometric_functions(run: Run) -> None:
    random = np.random.default_rng(6)
    x = np.concatenate([2.0 ** random.uniform(0, 1023.9, 300), np.arange(1, 50) * np.pi / 2])
    with mpmath.workprec(1300):
        for name, function in {"sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan}.items():
            for number, result in zip(x, run(name, x), strict=True):
                exact = function(mpmath.mpf(float(number)))
                error = abs(mpmath.mpf(float(result)) - exact) / mpmath.mpf(float(np.spacing(abs(float(exact)))))
                assert error <= 2.5, f"{name}({number!r})"


@pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)
def test_power_of_doubles(run: Run) -> None:
    random = np.random.default_rng(7)
    denormal = random.integers(1, 2**52, 100) * 5e-324
    x = np.concatenate([np.exp(random.uniform(-300, 300, 300)), 1 + random.normal(0, 1e-4, 200), denormal])
    y = np.concatenate([random.normal(0, 1, 300), random.normal(0, 1e5, 200), random.uniform(-0.9, 0.9, 100)])
    with mpmath.workprec(200):
        for base, exponent, result in zip(x, y, run("pow", x, y), strict=True):
            exact = mpmath.mpf(float(base)) ** mpmath.mpf(float(exponent))
            error = abs(mpmath.mpf(float(result)) - exact) / mpmath.mpf(float(np.spacing(float(exact))))
            assert error <= 1.0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@each_way(SPECIAL)
def test_special_values(name: str, run: Run, kind: type) -> None:
    operands, expected = SPECIAL[name]
    result = run(name, np.array(operands, kind))
    np.testing.assert_array_equal(result, np.array(expected, kind))
    known = ~np.isnan(result)
    np.testing.assert_array_equal(np.signbit(result[known]), np.signbit(np.array(expected)[known]))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name", ["pow", "atan2", "hypot", "fmod", "remainder", "floor_divide", "trunc_divide", "nextafter", "fmax"]
)
def test_special_values_of_two_operands(name: str, kind: type) -> None:
    x, y = (part.ravel().astype(kind) for part in np.meshgrid(LARGE, LARGE))
    result, expected = by_numpy(name, x, y), np.asarray(SCALARS[name].numpy(x, y))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    if name != "fmax":
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_neighbours_of_all_narrow_numbers(kind: torch.dtype, backend: str) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(kind)
    for towards in (0.0, -0.0, math.inf, -math.inf, 1.0, -2.0, math.nan):
        other = torch.full_like(every, towards)
        (result,) = evaluate(smelt.ops.nextafter, [from_torch(every), from_torch(other)], backend)
        expected = torch.nextafter(every, other)
        known = ~expected.isnan()
        found = to_torch(result)
        assert bool((found.isnan() == ~known).all())
        assert torch.equal(found[known].view(torch.int16), expected[known].view(torch.int16))


@pytest.mark.parametrize("kind", ["u8", "i8", "i16", "i32", "i64"])
@pytest.mark.parametrize(
    "name",
    [
        "trunc_divide",
        "floor_divide",
        "remainder",
        "fmod",
        "pow",
        "bitwise_left_shift",
        "bitwise_right_shift",
        "fmax",
        "fmin",
    ],
)
def test_integers(name: str, kind: str) -> None:
    random = np.random.default_rng(8)
    limits = np.iinfo(DTYPES[kind].numpy)
    edges = np.array([limits.min, limits.max, 0, 1, 2, 3, 7, 8, 31, 63, 64 % limits.max], DTYPES[kind].numpy)
    if limits.min < 0:
        edges = np.concatenate([edges, np.array([-1, -2, -7], DTYPES[kind].numpy)])
    numbers = random.integers(limits.min, limits.max, 50, DTYPES[kind].numpy, endpoint=True)
    values = np.concatenate([edges, numbers])
    x, y = (np.ascontiguousarray(part.ravel()) for part in np.meshgrid(values, values))
    np.testing.assert_array_equal(by_numpy(name, x, y), SCALARS[name].numpy(x, y))


COMPLEX_UNARY = {name: row for name, row in SCALARS.items() if row.complex_expansion and row.arity == 1}


@pytest.mark.parametrize("name", COMPLEX_UNARY)
def test_complex(name: str) -> None:
    random = np.random.default_rng(9)
    z = random.normal(0, 2, 500) + 1j * random.normal(0, 2, 500)
    np.testing.assert_allclose(by_numpy(name, z), SCALARS[name].numpy(z), rtol=1e-12)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "eq", "ne"])
def test_complex_of_two_operands(name: str) -> None:
    random = np.random.default_rng(10)
    z, w = (random.normal(0, 2, 500) + 1j * random.normal(0, 2, 500) for _ in range(2))
    np.testing.assert_allclose(by_numpy(name, z, w), SCALARS[name].numpy(z, w), rtol=1e-12)


@pytest.mark.parametrize("run", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_complex_zeros_and_infinities(run: Run, kind: type) -> None:
    reals = (0.0, -0.0, 1.0, -2.0, INF, -INF, NAN)
    numbers = np.array([complex(a, b) for a in reals for b in reals], kind)
    z, w = (part.ravel() for part in np.meshgrid(numbers, numbers))
    finite = (z == 0) & np.isfinite(w)
    base, exponent = z[finite], w[finite]
    powers = torch.pow(to_torch(base), to_torch(exponent)).numpy()
    powers[exponent == 0] = 1  # as for NumPy, and for PyTorch if the exponent is a number
    expected = [
        (("div", z, w), torch.div(to_torch(z), to_torch(w)).numpy()),
        (("reciprocal", numbers), torch.div(1, to_torch(numbers)).numpy()),
        (("pow", base, exponent), powers),
    ]
    for call, wanted in expected:
        with np.errstate(all="ignore"):
            result = run(*call)
        for part in ("real", "imag"):
            np.testing.assert_allclose(getattr(result, part), getattr(wanted, part), rtol=1e-6, err_msg=call[0])


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_place_of_an_extreme_does_not_depend_on_the_order(name: str) -> None:
    combiner, builder = COMBINERS[name], NumpyBuilder()
    random = np.random.default_rng(11)
    for values in ([3.0, 1.0, 3.0, 1.0], [1.0, NAN, 2.0, NAN], [-INF, -INF], [INF, INF], [0.0, -0.0]):
        array = np.array(values)
        pairs = [
            (builder.constant(value, DTYPES["f64"]), builder.constant(place, DTYPES["i64"]))
            for place, value in enumerate(values)
        ]
        for order in (random.permutation(len(pairs)) for _ in range(6)):
            first, start = combiner.identity(DTYPES["f64"])
            result: tuple[Any, ...] = (
                builder.constant(first, DTYPES["f64"]),
                builder.constant(start, DTYPES["i64"]),
            )
            for position in order:
                result = combiner.combine(builder, result, pairs[position])
            assert int(result[1].array) == int(combiner.numpy(array, 0))


def test_every_row_can_be_compiled() -> None:
    for name, row in SCALARS.items():
        known = row.llvm or row.expansion or row.complex_expansion
        assert known or name in BASE, f"{name} has neither a spelling nor an expansion"
    assert spelling(SCALARS["add"], DTYPES["f32"]) == "fadd {f}{t} {a}, {b}"
    assert expansion(SCALARS["add"], DTYPES["f32"]) is None
    assert expansion(SCALARS["exp"], DTYPES["f32"]) is not None
