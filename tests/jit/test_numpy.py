"""What a user of NumPy writes on traced tensors means what it means in NumPy, or is an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
from smelt.ir.errors import DTypeError, SmeltError
from support import floats

X = floats(3, 4)


# Element types

SPELLINGS: list[Any] = [
    "i8", "i4", "i2", "i1", "u1", "f2", "f4", "f8", "c8", "c16", "b1", "?", "b", "B", "h", "e", "d", "int8", "uint8",
    "int64", "float32", "float", "int", "complex", "bool", "double", "half", "single", "long", "<i8", "=f4",
    float, int, complex, bool, np.int8, np.int64, np.float16, np.float32, np.double, np.complex64, np.bool_, np.uint8,
    np.dtype("i8"), np.dtype("i1"), np.dtype("f4"), ml_dtypes.bfloat16,
]  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_types_are_spelt_as_in_numpy(spelling: Any) -> None:
    given = np.array([1.7, 0, 100.2])
    expected = given.astype(spelling)
    converted, also, zeros = smelt.jit(
        lambda x: (x.astype(spelling), x.to(spelling), np.zeros_like(x, dtype=spelling))
    )(given)
    assert converted.dtype == also.dtype == zeros.dtype == expected.dtype
    np.testing.assert_array_equal(converted, expected)


def test_a_sum_in_a_type_of_numpys() -> None:
    given = np.array([300.0, 1000.0], np.float32)
    for spelling in ("i8", int, "f8", float, np.float64):
        result = smelt.jit(lambda x, spelling=spelling: np.sum(x, dtype=spelling))(given)
        assert result.dtype == np.dtype(spelling) and result == 1300


@pytest.mark.parametrize("name", ["bool", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64", "c128"])
def test_short_names_of_smelts(name: str) -> None:
    assert smelt.jit(lambda x: x.astype(name))(X).dtype == smelt.dtype(name).numpy


def test_names_that_smelt_and_numpy_share() -> None:
    # Arguments are NumPy's; texts and smelt's own types are smelt's.
    assert smelt.jit(lambda x: x.astype("i8"))(np.array([300.7])).tolist() == [300]
    assert smelt.dtype("i8") is smelt.i8 and smelt.spec("u8[3]").dtype is smelt.u8
    assert smelt.jit(lambda x: x.astype("u8"))(np.array([300.7])).dtype == np.uint64


@pytest.mark.parametrize(
    "kind", [np.longdouble, np.dtype(">u4"), "float8_e3m4", ">f4", np.datetime64, object, [("a", int)]]
)
def test_types_that_smelt_does_not_have(kind: Any) -> None:
    with pytest.raises(DTypeError, match=r"test_numpy.py:\d+: cast: unknown dtype .*smelt has bool"):
        smelt.jit(lambda x: x.astype(kind))(X)


def test_a_type_equals_what_names_it_in_numpy() -> None:
    for mine in smelt.ir.types.DTYPES.values():
        same = mine.numpy
        assert mine == same and same == mine and mine == same.type and hash(mine) == hash(same)
        assert mine == str(same) and mine in {same: 1} and same in {mine: 1} and np.zeros(2, mine).dtype == same
        others = [other for other in smelt.ir.types.DTYPES.values() if other is not mine]
        assert not any(mine == other or mine == other.numpy or mine == str(other.numpy) for other in others)
    for other in (None, 3, "nonsense", object, np.longdouble, [], X):
        assert smelt.f32 != other
    assert smelt.f32 == "f32" and smelt.f32 == "f4" and smelt.i64 == "i8" and smelt.i8 != "i8"


def test_the_type_of_a_traced_tensor_is_asked_for_in_numpys_way() -> None:
    @smelt.jit
    def function(x: Any) -> Any:
        assert x.dtype == np.float32 and x.dtype in (np.float32, np.float64) and x.dtype != np.float64
        return x + np.full(4, np.finfo(x.dtype).eps, x.dtype)

    np.testing.assert_array_equal(function(X), X + np.finfo(np.float32).eps)
    assert ml_dtypes.finfo(smelt.bf16).bits == 16


# Calls that mean what they mean in NumPy

I = np.arange(12, dtype=np.int32).reshape(3, 4)
U = np.arange(12, dtype=np.uint8).reshape(3, 4)
CUBE = floats(5, 4, 2, seed=7)
ROWS = np.array([True, False, True])
COLUMNS = np.array([False, True, True, False])
EVERY_OTHER = np.arange(12).reshape(3, 4) % 2 == 0

CALLS: dict[str, tuple[Callable[..., Any], Any]] = {
    "roll": (lambda x: (np.roll(x, 2, axis=1), np.roll(x, 1), np.roll(x, (1, 2), axis=(0, 1))), X),
    "roll by one shift": (lambda x: (np.roll(x, 1, axis=(0, 1)), np.roll(x, (1, 2), axis=1)), X),
    "flip": (lambda x: (np.flip(x), np.flip(x, axis=1), np.flip(x, 0), np.flip(x, (0, 1))), X),
    "mean of bools": (lambda x: (np.mean(x), np.mean(x, axis=0), x.mean(axis=1)), X > 0),
    "mean of integers": (lambda x: (np.mean(x), np.mean(x, axis=0, keepdims=True), np.mean(x, dtype=np.float32)), I),
    "mean of floats": (lambda x: (np.mean(x), np.mean(x, axis=0), np.mean(x, dtype="f8")), X),
    "spread of integers": (lambda x: (np.std(x), np.var(x, axis=1), np.std(x, ddof=1)), I),
    "spread of bools": (lambda x: np.std(x, axis=0), X > 0),
    "cumsum": (lambda x: (np.cumsum(x), np.cumsum(x, axis=0), np.cumsum(x, 1, dtype=np.float64), np.cumprod(x)), X),
    "dot of matrices": (lambda x: (np.dot(x, x.T), np.dot(x, X.T), x.dot(x.T)), X),
    "dot of an array": (lambda x: np.dot(X.T, x), X),
    "dot with vectors": (lambda x: (np.dot(x, x[0]), np.dot(x[0], x[1])), X),
    "dot of cubes": (lambda x: (np.dot(X, x), np.dot(x, X[:2, :2])), CUBE),
    "tensordot": (lambda x: (np.tensordot(x, x), np.tensordot(x, X.T, axes=1), np.tensordot(x, X, ([0], [0]))), X),
    "take": (lambda x: (np.take(x, [1, -2]), np.take(x, [0, 2], axis=1), np.take(x, 1, axis=0), x.take(1, axis=-1)), X),
    "take of many dims": (lambda x: (np.take(x, np.array([[0, 1], [1, 0]]), axis=-1), np.take(x, [], axis=0)), X),
    "repeat": (
        lambda x: (np.repeat(x, 2), np.repeat(x, 3, axis=1), np.repeat(x, [1, 0, 2], 0), x.repeat(2, axis=0)),
        X,
    ),
    "split": (lambda x: (*np.split(x, 2, axis=1), *np.split(x, [1, 2]), *np.array_split(x, 2)), X),
    "select": (lambda x: np.select([x > 1, x > 0], [x, x * 10], -1.0), X),
    "where of integers": (lambda x: np.where(x, x, np.int32(7)), I),
    "round": (lambda x: (np.round(x, 1), x.round(1), x.round(), x.round(decimals=1)), X),
    "stacks": (lambda x: (np.hstack([x, x]), np.vstack((x, X))), X),
    "trace and sums": (lambda x: (np.trace(x), np.nansum(x, axis=0), np.nanmean(x), np.count_nonzero(x, axis=1)), X),
    "the order of arguments": (
        lambda x: (np.sum(x, 0, np.float64), np.prod(x, None, "f8"), np.nansum(x, 1, float), np.mean(x, 0, float)),
        X,
    ),
    "tensors like others": (
        lambda x: (np.zeros_like(x, np.int64), np.ones_like(x, int), np.full_like(x, 2, "f8"), np.full_like(x, 2)),
        X,
    ),
    "reductions": (
        lambda x: (np.max(x, 0), np.amin(x, axis=1, keepdims=True), np.argmin(x, 1), np.any(x, axis=(0, 1)), np.all(x)),
        X,
    ),
    "triangles": (lambda x: (np.tril(x, k=1), np.triu(x, -1), np.tile(x, reps=2), np.tile(x, (2, 1, 3))), X),
    "outer product": (lambda x: (np.outer(x, x), np.outer(x[0], X)), X),
    "copy": (lambda x: (np.copy(x), x.copy(), np.ravel(x)), X),
    "pad": (lambda x: (np.pad(x, 1), np.pad(x, ((0, 1), (2, 0)), constant_values=3), np.pad(x, (1, 2))), X),
    "any and all of bytes": (lambda x: (np.any(x), np.all(x, axis=0)), U),
    "float_power": (lambda x: (np.float_power(x, 2), np.float_power(2, x), np.float_power(x, x)), I),
    "float_power of floats": (lambda x: np.float_power(abs(x), 1.5), X),
    "clip": (lambda x: (np.clip(x, 0, 2**40), np.clip(x, -(2**40), 5), x.clip(2, 2**70), np.clip(x, min=2)), I),
    "clip of bytes": (lambda x: (np.clip(x, -1, 300), np.clip(x, 3, None)), U),
    "comparison with large numbers": (
        lambda x: (x < 2**40, x <= 2**70, x > 2**40, x >= 2**40, x == 2**40, x != 2**40, x < 2**40, x == 2**70),
        I,
    ),
    "comparison with small numbers": (
        lambda x: (x < -1, x > -1, x >= -(2**70), np.less(x, -1), np.less(-1, x), np.equal(x, np.int64(-1))),
        U,
    ),
    "conversion": (lambda x: (x.astype(np.float64, copy=False), x.astype(dtype="i4", order="C"), x.astype(None)), X),
    "safe conversion": (lambda x: x.astype(np.float64, casting="safe"), X),
    "methods with an axis": (
        lambda x: (x.sum(axis=0), x.max(axis=1), x.min(axis=0, keepdims=True), x.argmax(axis=1), x.prod(axis=(0, 1))),
        X,
    ),
    "methods that PyTorch has with other arguments": (
        lambda x: (x.std(axis=0), x.var(ddof=1), x.cumsum(), x.cumprod(), x.cumsum(axis=1), x.any(axis=0)),
        X,
    ),
    "bool arrays as indices": (
        lambda x: (x[ROWS], x[:, COLUMNS], x[..., COLUMNS], x[ROWS, 1], x[None, ROWS], x[ROWS, :2], x[EVERY_OTHER]),
        X,
    ),
    "lists as indices": (lambda x: (x[[True, False, True]], x[[]], x[[], 1], x[:, []], x[[2, 0]]), X),
    "bool arrays beside others": (lambda x: (x[ROWS, [0, 1]], x[0, COLUMNS], x[[False] * 3], x[:, None, COLUMNS]), X),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_numpy(name: str) -> None:
    function, given = CALLS[name]
    results, expected = smelt.jit(function)(given), function(given)
    if not isinstance(expected, tuple):
        results, expected = (results,), (expected,)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype and result.shape == np.shape(wanted)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_a_bool_index_beside_a_size_that_is_open() -> None:
    chosen = smelt.jit(lambda x: x[:, COLUMNS])
    for rows in (3, 5, 7):
        given = floats(rows, 4)
        np.testing.assert_array_equal(chosen(given), given[:, COLUMNS])
    picked = smelt.jit(lambda x, mask: x[mask])
    np.testing.assert_array_equal(picked(X, ROWS), X[ROWS])


def test_methods_are_pytorchs_where_no_argument_says_otherwise() -> None:
    spread, (largest, places) = smelt.jit(lambda x: (x.std(0), x.max(0)))(X)
    np.testing.assert_allclose(spread, X.std(0, ddof=1), rtol=1e-5)
    np.testing.assert_array_equal(largest, X.max(0))
    np.testing.assert_array_equal(places, X.argmax(0))


@pytest.mark.parametrize("wanted", [np.int32, "f8", np.uint8, np.float16])
def test_view_reads_the_bits_as_another_type(wanted: Any) -> None:
    found = smelt.jit(lambda x: x.view(wanted))(X)
    expected = X.view(wanted)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


# Calls that are errors

ERRORS: dict[str, tuple[Callable[..., Any], Any, str]] = {
    **{
        name: (
            lambda x, name=name: getattr(x, name)(0),
            X,
            rf"x.{name}\(\) changes an array in place in NumPy.*Instead: .",
        )
        for name in ("fill", "sort", "partition", "put", "itemset", "resize", "setflags", "setfield", "byteswap")
    },
    "too large for i64": (
        lambda x: x + 2**70,
        I.astype(np.int64),
        r"add: 1180591620717411303424 is out of range for i64",
    ),
    "too large for i32": (lambda x: x * 2**31, I, r"mul: 2147483648 is out of range for i32.*x.astype\('int64'\)"),
    "too large for a minimum": (lambda x: np.minimum(x, 2**31), I, "minimum: 2147483648 is out of range for i32"),
    "too large for a bound": (lambda x: np.clip(x, 2**40, None), I, "maximum: 1099511627776 is out of range for i32"),
    "too large for a bound of PyTorch's": (lambda x: x.clamp(0, 2**40), I, "clamp: 1099511627776 is out of range"),
    "too large to fill with": (lambda x: np.full_like(x, 2**40), I, "full_like: 1099511627776 is out of range for i32"),
    "infinite": (lambda x: np.full_like(x, np.inf), I, "full_like: inf is out of range for i32"),
    "not a number": (lambda x: np.full_like(x, np.nan), I, "full_like: nan is out of range for i32"),
    "negative byte": (lambda x: x + -1, U, "add: -1 is out of range for u8, which goes from 0 to 255"),
    "too large to choose": (lambda x: np.where(x > 3, x, 2**40), I, "where: 1099511627776 is out of range"),
    "too large for a float": (lambda x: x + 10**400, X, "add: int too large for f32"),
    "format": (lambda x: f"{x[0, 0]:.3f}", X, "no digits to show while tracing: format what"),
    "unsafe conversion": (lambda x: x.astype("i4", casting="safe"), X, "f32 to i32 is no conversion of casting='safe'"),
    "where of one choice": (lambda x: np.where(x > 0, x), X, "numpy.where: 1 choices, expected none or 2"),
    "uneven split": (lambda x: np.split(x, 2), X, "numpy.split: 3 is no multiple of 2"),
    "other padding": (
        lambda x: np.pad(x, 1, mode="mean"),
        X,
        "numpy.pad on a traced tensor has the modes .*got 'mean'",
    ),
    "bool index of another shape": (lambda x: x[COLUMNS], X, r"a bool index \[4\] for dims \[3\]"),
    "bool index of more dims": (lambda x: x[0, EVERY_OTHER], X, r"a bool index \[3, 4\] for dims \[4\]"),
    "called by NumPy": (lambda x: np.array_str(x), X, "numpy.array_str on a traced tensor"),
    "called by NumPy's Python code": (lambda x: np.full(2, x[0, 0]), X, "cannot become a NumPy array while tracing"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_calls_that_are_errors(name: str) -> None:
    function, given, message = ERRORS[name]
    with pytest.raises(SmeltError, match=rf"^test_numpy.py:\d+: (.|\n)*{message}"):
        smelt.jit(function)(given)


def test_numbers_beyond_a_type_are_overflows_as_in_numpy() -> None:
    for library in (lambda function: function, smelt.jit):
        with pytest.raises(OverflowError):
            library(lambda x: np.minimum(x, 2**31))(I)
