"""What a user of NumPy writes on traced tensors means what it means in NumPy, or is an error that says so."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
from smelt.ir.errors import DTypeError
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
    with pytest.raises(DTypeError, match=r"test_numpy.py:\d+: cast: dtype 'u8' is NumPy's uint64.* 8 bits are 'uint8'"):
        smelt.jit(lambda x: x.astype("u8"))(X)


@pytest.mark.parametrize("kind", [np.uint16, np.dtype("u4"), "uint16", ">f4", np.datetime64, object, [("a", int)]])
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
    for other in (None, 3, "nonsense", object, np.uint16, [], X):
        assert smelt.f32 != other
    assert smelt.f32 == "f32" and smelt.f32 == "f4" and smelt.i64 == "i8" and smelt.i8 != "i8"


def test_the_type_of_a_traced_tensor_is_asked_for_in_numpys_way() -> None:
    @smelt.jit
    def function(x: Any) -> Any:
        assert x.dtype == np.float32 and x.dtype in (np.float32, np.float64) and x.dtype != np.float64
        return x + np.full(4, np.finfo(x.dtype).eps, x.dtype)

    np.testing.assert_array_equal(function(X), X + np.finfo(np.float32).eps)
    assert ml_dtypes.finfo(smelt.bf16).bits == 16
