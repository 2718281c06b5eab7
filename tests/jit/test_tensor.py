"""A traced tensor: its operators, methods and indices, and NumPy's functions of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt.ir.graph import Value
from support import floats

X = floats(3, 4)

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "truediv": lambda x, y: x / y,
    "floordiv": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "pow": lambda x, y: abs(x) ** y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_and_their_reflections(name: str) -> None:
    operator = OPERATORS[name]
    x, y = floats(3, 4) * 3, np.array([[2.0], [-1.5], [0.5]], np.float32)
    for left, right in ((x, y), (x, 2.0), (3, y), (x, 2)):
        expected = operator(left, right)
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            np.testing.assert_allclose(smelt.jit(operator)(left, right), expected, rtol=1e-5)
            # One of the two an array that is not traced: NumPy sees the operator first.
            np.testing.assert_allclose(smelt.jit(lambda b: operator(left, b))(right), expected, rtol=1e-5)  # noqa: B023
        if isinstance(left, np.ndarray):
            np.testing.assert_allclose(smelt.jit(lambda a: operator(a, right))(left), expected, rtol=1e-5)  # noqa: B023
        else:
            np.testing.assert_allclose(smelt.jit(lambda b: operator(left, b))(right), expected, rtol=1e-5)  # noqa: B023


INTEGER_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "lshift": lambda x, y: x << y,
    "rshift": lambda x, y: x >> y,
    "floordiv": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
}


@pytest.mark.parametrize("name", INTEGER_OPERATORS)
def test_integer_operators_and_their_reflections(name: str) -> None:
    operator = INTEGER_OPERATORS[name]
    x, y = np.arange(-5, 6), np.arange(1, 12)
    np.testing.assert_array_equal(smelt.jit(operator)(x, y), operator(x, y))
    np.testing.assert_array_equal(smelt.jit(lambda a: operator(a, 3))(x), operator(x, 3))
    np.testing.assert_array_equal(smelt.jit(lambda b: operator(37, b))(y), operator(37, y))


def test_unary_operators() -> None:
    negated, kept, size, rounded, tenths = smelt.jit(lambda x: (-x, +x, abs(x), round(x), round(x, 1)))(X)
    np.testing.assert_array_equal(negated, -X)
    np.testing.assert_array_equal(kept, X)
    np.testing.assert_array_equal(size, abs(X))
    np.testing.assert_array_equal(rounded, np.round(X))
    np.testing.assert_allclose(tenths, np.round(X, 1), rtol=1e-6)
    np.testing.assert_array_equal(smelt.jit(lambda x: ~x)(X > 0), ~(X > 0))
    np.testing.assert_array_equal(smelt.jit(lambda x: ~x)(np.arange(3)), ~np.arange(3))


def test_matrix_product_and_its_reflection() -> None:
    weight = floats(4, 2, seed=5)
    np.testing.assert_allclose(smelt.jit(lambda x: x @ weight)(X), X @ weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(smelt.jit(lambda w: X @ w)(weight), X @ weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(smelt.jit(lambda w: w.T @ w.mT.T)(weight), weight.T @ weight, rtol=1e-5, atol=1e-6)


def test_augmented_assignment_rebinds() -> None:
    @smelt.jit
    def function(x: Any) -> Any:
        y = x
        y += 1
        y *= 2
        return x, y

    given = X.copy()
    same, changed = function(given)
    np.testing.assert_array_equal(same, X)
    np.testing.assert_array_equal(changed, (X + 1) * 2)
    np.testing.assert_array_equal(given, X)


def test_methods_that_numpy_has_and_pytorch_has_not() -> None:
    cube = np.arange(24.0).reshape(2, 3, 4)
    calls: list[Callable[[Any], Any]] = [
        lambda x: x.trace(),
        lambda x: x.trace(1, 1, 2) / x.size,
        lambda x: x.trace(offset=-1, axis1=2, axis2=0),
        lambda x: x.astype(np.int32).trace(),
        lambda x: x[0, 0].searchsorted(x[0, :, 1]),
        lambda x: x[1, 1].searchsorted(17.0, side="right"),
        lambda x: x.conjugate() + x.nbytes - x.itemsize,
    ]
    for call in calls:
        found, expected = smelt.jit(call)(cube), np.asarray(call(cube))
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


def test_properties_and_methods() -> None:
    @smelt.jit
    def function(x: Any) -> Any:
        assert isinstance(x, Value)
        assert (x.ndim, x.dim(), x.shape, x.size, len(x), x.numel()) == (2, 2, (3, 4), 12, 3, 12)
        assert (x.itemsize, x.nbytes) == (4, 48)
        assert x.dtype is smelt.f32
        rows = list(x)
        return x.sum(), x.mean(0), x.to("float64"), x.astype(smelt.i32), x.to(rows[0].to(smelt.f16)), rows[2]

    results = function(X)
    for result, wanted in zip(
        results, (X.sum(), X.mean(0), X.astype("f8"), X.astype("i4"), X.astype("f2"), X[2]), strict=True
    ):
        assert result.dtype == wanted.dtype
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


ROWS = np.array([2, 0, 1])

INDICES: dict[str, Any] = {
    "int": 1,
    "negative": -1,
    "numpy int": np.int32(1),
    "two ints": (1, -2),
    "slice": slice(1, 3),
    "clamped slice": slice(-100, 100),
    "empty slice": slice(3, 1),
    "step": (slice(None), slice(0, None, 2)),
    "step from the back": (slice(None), slice(-3, None, 2)),
    "negative step": (slice(None, None, -1), slice(3, 0, -2), slice(None, 1, -3)),
    "negative step of nothing": slice(0, 2, -1),
    "none": (None, 1, None),
    "ellipsis": (..., 0),
    "ellipsis in between": (0, ..., 1),
    "ellipsis of nothing": (0, slice(None), ..., 1),
    "nothing": (),
    "list": [2, 0],
    "array": ROWS,
    "negative array": -ROWS - 1,
    "matrix of indices": ROWS.reshape(3, 1),
    "array after slice": (slice(1, 3), ROWS),
    "array after ellipsis": (..., ROWS),
    "array before none": (ROWS, None, slice(1, 3)),
    "two arrays": (ROWS, ROWS),
    "two arrays broadcast": (ROWS[:, None], ROWS[:2]),
    "int and array": (1, ROWS),
    "array apart": (ROWS, slice(None), ROWS),
    "int apart from an array": (0, slice(None), ROWS),
    "array apart from an int": (ROWS, slice(None), 1),
    "array apart from a number in an array": (np.array(1), slice(None), ROWS.reshape(3, 1)),
    "int apart by an ellipsis": (0, ..., ROWS),
    "int apart by none": (0, None, ROWS),
    "int apart from two arrays": (0, None, ROWS, ROWS),
    "empty array": np.array([], np.int64),
}


@pytest.mark.parametrize("name", INDICES)
def test_indexing_is_numpys(name: str) -> None:
    index = INDICES[name]
    given = floats(3, 4, 5)
    np.testing.assert_array_equal(smelt.jit(lambda x: x[index])(given), given[index])


def test_an_index_may_be_traced() -> None:
    table = floats(5, 3)
    result = smelt.jit(lambda x, i: x[i, :2] + x[i + 1, 1:])(table, ROWS)
    np.testing.assert_array_equal(result, table[ROWS, :2] + table[ROWS + 1, 1:])


UFUNCS = [
    "exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "arctan", "sinh", "floor", "ceil", "rint", "sign", "absolute",
    "negative", "square", "reciprocal", "log1p", "expm1", "isnan", "isfinite", "signbit", "exp2", "log2", "log10",
    "positive", "trunc", "arcsinh", "deg2rad",
]  # fmt: skip

BINARY_UFUNCS = [
    "add", "subtract", "multiply", "divide", "power", "maximum", "fmin", "arctan2", "hypot", "less", "copysign",
]  # fmt: skip


@pytest.mark.parametrize("name", UFUNCS)
def test_numpy_functions_of_a_traced_tensor(name: str) -> None:
    function = getattr(np, name)
    given = abs(X) + np.float32(0.1)
    np.testing.assert_allclose(smelt.jit(function)(given), function(given), rtol=2e-6)


@pytest.mark.parametrize("name", BINARY_UFUNCS)
def test_numpy_functions_of_two(name: str) -> None:
    function = getattr(np, name)
    x, y = abs(X) + np.float32(0.1), floats(4, seed=9)
    expected = function(x, y)
    np.testing.assert_allclose(smelt.jit(function)(x, y), expected, rtol=2e-6)
    np.testing.assert_allclose(smelt.jit(lambda b: function(x, b))(y), expected, rtol=2e-6)
    np.testing.assert_allclose(smelt.jit(lambda a: function(a, y))(x), expected, rtol=2e-6)


NUMPY_CALLS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: np.sum(x),
    "sum along": lambda x: np.sum(x, axis=1, keepdims=True),
    "mean along": lambda x: np.mean(x, 0),
    "max": lambda x: np.max(x),
    "max along": lambda x: np.max(x, axis=0),
    "argmax": lambda x: np.argmax(x, axis=1),
    "where": lambda x: np.where(x > 0, x, 0.5),
    "concatenate": lambda x: np.concatenate([x, x * 2], axis=1),
    "stack": lambda x: np.stack([x, x], axis=1),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "clip": lambda x: np.clip(x, -0.5, 0.5),
    "reshape": lambda x: np.reshape(x, (4, 3)),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "std": lambda x: np.std(x),
    "var along": lambda x: np.var(x, 0, ddof=1, keepdims=True),
    "full_like": lambda x: np.full_like(x, 3),
    "transpose": lambda x: np.transpose(x),
    "transpose of dims": lambda x: np.transpose(x, (1, 0)),
    "transpose as a method": lambda x: x.transpose(),
    "shape": lambda x: x * np.shape(x)[1] + np.ndim(x) + np.size(x) + np.size(x, 1),
    "divmod": lambda x: np.stack(divmod(x, 2)),
    "divmod of a number": lambda x: np.stack(divmod(7, x)),
}


@pytest.mark.parametrize("name", NUMPY_CALLS)
def test_numpy_calls_on_a_traced_tensor(name: str) -> None:
    function = NUMPY_CALLS[name]
    np.testing.assert_allclose(smelt.jit(function)(X), function(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_an_integer_divided_by_zero_is_zero_as_in_numpy(dtype: str) -> None:
    given, zero = np.array([7, 100, 0], dtype), np.zeros(3, dtype)
    quotient, rest = smelt.jit(lambda x, y: (x // y, x % y))(given, zero)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(quotient, given // zero)
        np.testing.assert_array_equal(rest, given % zero)


def test_parts_of_complex_numbers_are_attributes() -> None:
    given = np.array([1 - 2j, 3j, -4], np.complex64)
    np.testing.assert_array_equal(smelt.jit(lambda z: z.real * 2)(given), given.real * 2)
    np.testing.assert_array_equal(smelt.jit(lambda z: z.imag.sum())(given), given.imag.sum())
    np.testing.assert_array_equal(smelt.jit(lambda z: np.real(z) + np.imag(z))(given), given.real + given.imag)


@pytest.mark.parametrize(
    "name", ["float", "double", "half", "bfloat16", "bool", "byte", "char", "short", "int", "long"]
)
def test_conversions_have_the_names_of_pytorch(name: str) -> None:
    given = np.array([0, 1.5, 100])
    expected = getattr(torch.from_numpy(given), name)()
    result = smelt.jit(lambda x: getattr(x, name)())(given)
    assert str(result.dtype) == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_array_equal(result.astype(np.float64), expected.double().numpy())
