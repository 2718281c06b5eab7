"""Sizes that data decide: programs in parts, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.targets import targets
from smelt.ir.errors import CompileError, ShapeError, SmeltError
from smelt.ir.symbolic import SizeNeeded, UndecidedSize
from smelt.parts import CompiledParts
from support import floats, run

CHECKED = smelt.CompileOptions(verify=True)


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def same(function: Callable[..., Any], *given: np.ndarray, compiled: Any = None) -> Any:
    """Compare a function with itself on NumPy arrays."""
    compiled = compiled or smelt.jit(function, options=CHECKED)
    for _ in range(2):
        for found, wanted in zip(flat(compiled(*given)), flat(function(*given)), strict=True):
            assert np.shape(found) == np.shape(wanted)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    return compiled


def two_cuts(x: Any) -> Any:
    y = x[x > 0]
    z = y[y > 0.5]
    return y.sum(), z * 2, z.shape[0] + y.shape[0], x + 1


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "used as it is": lambda x: x[x > 0],
    "summed": lambda x: (x[x > 0] * 2).sum(),
    "a mask of the first dims": lambda x: x[x[:, :, 0] > 0],
    "beside an int": lambda x: x[x[:, :, 0] > 0, 1],
    "after a slice": lambda x: x[:, x[0, :, 0] > 0],
    "between an int and a slice": lambda x: x[1, x[0, :, 0] > 0, 1:],
    "after an ellipsis": lambda x: x[..., x[0, 0] > 0],
    "one mask twice": lambda x: x[x > 0] * (x * x)[x > 0],
    "a product of what is left": lambda x: x[:, x[0, :, 0] > 0, 0] @ x[:, x[0, :, 0] > 0, 0].T,
    "the size": lambda x: (x[x > 0].shape[0], len(x[x < 0])),
    "two cuts": two_cuts,
    "a parameter and the same twice": lambda x: (x, x[x > 0], x),
}
INPUTS = {
    "some": floats(4, 5, 3),
    "none": -np.abs(floats(4, 5, 3)),
    "all": np.abs(floats(4, 5, 3)),
    "one": np.where(np.arange(60).reshape(4, 5, 3) == 15, 1, -1).astype(np.float32),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    compiled = smelt.jit(FUNCTIONS[name], options=CHECKED)
    for x in INPUTS.values():
        same(FUNCTIONS[name], x, compiled=compiled)
    assert compiled.compiles == 1  # for all counts


def test_sizes_of_arguments_stay_open() -> None:
    compiled = smelt.jit(lambda x: (x[x > 0] * x.shape[0]).sum())
    for size in (7, 8, 0, 1, 1000, 70000):
        x = floats(size, dtype="float64")
        np.testing.assert_allclose(compiled(x), (x[x > 0] * size).sum(), rtol=1e-9)
    assert compiled.compiles == 4  # for 7, for any, for 0 and for 1: sizes that are never open


def test_large_masks_of_each_chunk() -> None:
    x = floats(150_001)
    x[20_000:60_000] = -1  # chunks without a true element
    x[90_000:120_000] = 1
    same(lambda x: x[x > 0], x)
    same(lambda x: ops.nonzero(x > 0) if isinstance(x, ops.define.Tensor) else np.argwhere(x > 0), x)


def test_a_size_that_is_a_number() -> None:
    x = np.array([0.0, 2.0, 0.0, 3.0, 4.0])
    for size in (0, 2, 3, 7):
        found = smelt.jit(lambda x, size=size: ops.nonzero(x, size=size, fill_value=9), options=CHECKED)(x)
        np.testing.assert_array_equal(found[:, 0], ([1, 3, 4] + [9] * 7)[:size])


def test_derivatives() -> None:
    x = floats(6, 7, dtype="float64")
    cubes = lambda x: (x[x > 0] ** 3).sum()  # noqa: E731
    np.testing.assert_allclose(smelt.grad(cubes)(x), np.where(x > 0, 3 * x**2, 0))
    np.testing.assert_allclose(smelt.jit(smelt.grad(cubes))(x), np.where(x > 0, 3 * x**2, 0))
    second = smelt.grad(lambda x: smelt.grad(cubes)(x).sum())
    np.testing.assert_allclose(second(x), np.where(x > 0, 6 * x, 0))
    value, change = smelt.jvp(lambda x: x[x > 0] ** 2, (x,), (2 * np.ones_like(x),))
    np.testing.assert_allclose(value, x[x > 0] ** 2)
    np.testing.assert_allclose(change, 4 * x[x > 0])
    value, pull = smelt.vjp(lambda x: x[x > 0], x)
    np.testing.assert_allclose(value, x[x > 0])


def test_writing_where_a_mask_holds() -> None:
    x, mask = floats(4, 5), floats(4, 5, seed=1) > 0
    wanted = x.copy()
    wanted[mask] = np.arange(mask.sum())
    found = smelt.jit(lambda x, mask, new: ops.index_put(x, [mask], x[mask] * 0 + new))(x, mask, np.float32(3))
    np.testing.assert_array_equal(found, np.where(mask, np.float32(3), x))
    rows = smelt.jit(lambda x, mask: ops.index_put(x, [mask[:, 0]], x[mask[:, 0]] * 2, accumulate=True))(x, mask)
    np.testing.assert_allclose(rows, np.where(mask[:, :1], 3 * x, x), rtol=1e-6)


def test_threads_give_the_same_bits() -> None:
    program = """
import hashlib
import numpy as np, smelt
smelt.set_num_threads(THREADS)
x = np.random.default_rng(0).standard_normal(300_000).astype(np.float32)
found = smelt.jit(lambda x: (x[x > 0.1] * 2, (x[x > 0.1] ** 2).sum(), smelt.ops.nonzero(x > 1)))(x)
print([hashlib.md5(item.tobytes()).hexdigest() for item in found])
"""
    one, two = (run(program.replace("THREADS", threads)) for threads in ("1", "2"))
    assert one == two


WEIGHTS = floats(60, seed=3)


def test_captured_arrays_and_random_numbers() -> None:
    same(lambda x: (x * WEIGHTS)[x > 0] * 2, floats(60))
    drawn = smelt.jit(lambda x: (ops.rand_like(x[x > 0]), ops.dropout(x, 0.5)[x > 0]))
    smelt.manual_seed(0)
    first, second = drawn(np.ones(50, np.float32)), drawn(np.ones(50, np.float32))
    smelt.manual_seed(0)
    again = drawn(np.ones(50, np.float32))
    for one, other, repeated in zip(first, second, again, strict=True):
        assert one.shape == (50,) and not np.array_equal(one, other)
        np.testing.assert_array_equal(one, repeated)


def test_one_native_call_for_each_part() -> None:
    compiled = smelt.jit(two_cuts)
    compiled(floats(4, 5))
    assert isinstance(compiled.latest, CompiledParts)
    assert len(compiled.latest.executable.parts) == 3
    assert compiled.report().kernels


def test_branches_are_errors_with_the_line_that_decided() -> None:
    def branch(x: Any) -> Any:
        y = x[x > 0]
        return y if y.shape[0] > 3 else x

    with pytest.raises(SizeNeeded, match=r"data decide D0: index, test_data_sizes.py:\d+.*size="):
        smelt.jit(branch)(floats(9))
    with pytest.raises(UndecidedSize, match=r"data decide D0: index, test_data_sizes.py:\d+"):
        smelt.jit(lambda x, y: x[x > 0] + y)(floats(9), floats(4))


def test_results_that_need_an_element() -> None:
    largest = smelt.jit(lambda x: x[x > 0].max() + x[x > 0].argmin())
    x = floats(9)
    np.testing.assert_allclose(largest(x), x[x > 0].max() + x[x > 0].argmin())
    with pytest.raises(ShapeError, match=r"test_data_sizes.py:\d+: a size that data decide is too small.*D0 = 0"):
        largest(-np.abs(x))
    np.testing.assert_allclose(largest(x), x[x > 0].max() + x[x > 0].argmin())


def test_a_target_without_parts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets.find("cpu"), "takes_parts", False)
    with pytest.raises(CompileError, match=r"test_data_sizes.py:\d+: index: data decide .*'cpu'.*size="):
        smelt.jit(lambda x: x[x > 0])(floats(4))


def test_a_mask_of_another_shape() -> None:
    with pytest.raises(SmeltError, match="mask"):
        smelt.jit(lambda x, mask: x[mask])(floats(4), np.ones(5, bool))


ARRAYS = {
    "integers": np.random.default_rng(0).integers(0, 6, (4, 5)),
    "floats": np.random.default_rng(1).normal(size=(4, 5)).round(1).astype(np.float32),
    "zeros": np.zeros((3, 2)),
    "nothing": np.zeros((0, 2)),
    "bools": np.random.default_rng(2).integers(0, 2, (4, 5)).astype(bool),
    "nan": np.array([[1, np.nan, 2, np.nan]]),
}
NUMPYS: dict[str, Callable[[Any], Any]] = {
    "nonzero": np.nonzero,
    "the method nonzero": lambda x: x.nonzero(),
    "flatnonzero": np.flatnonzero,
    "argwhere": lambda x: np.argwhere(x > 1),
    "where": lambda x: np.where(x > 1),
    "extract": lambda x: np.extract(x > 1, x),
    "compress": lambda x: np.compress(x[:, 0] > 0, x, axis=0),
    "compress, flat": lambda x: np.compress(x.reshape(-1) > 0, x),
    "unique": np.unique,
    "unique, all": lambda x: np.unique(x, return_index=True, return_inverse=True, return_counts=True),
    "unique, rows": lambda x: np.unique(x, True, True, True, axis=0),
    "unique, columns": lambda x: np.unique(x, axis=1),
    "unique, each NaN": lambda x: np.unique(x, equal_nan=False),
    "unique_values": lambda x: np.unique_values(x).sum(),
    "unique_counts": lambda x: tuple(np.unique_counts(x)),
    "unique_inverse": lambda x: tuple(np.unique_inverse(x)),
    "unique_all": lambda x: tuple(np.unique_all(x)),
    "intersect1d": lambda x: np.intersect1d(x, x[:1] * 2),
    "union1d": lambda x: np.union1d(x, x[:1] * 2),
    "setdiff1d": lambda x: np.setdiff1d(x, x[:1]),
    "setxor1d": lambda x: np.setxor1d(x, x[:1] * 2),
    "repeat": lambda x: np.repeat(x, abs(x[:, 0].astype("int64")), axis=0),
    "bincount": lambda x: np.bincount(abs(x.reshape(-1).astype("int64")), minlength=4),
    "bincount, weights": lambda x: np.bincount((x.reshape(-1) > 0).astype("int64"), weights=x.reshape(-1)),
}


@pytest.mark.parametrize("name", NUMPYS)
@pytest.mark.filterwarnings("ignore")
def test_numpy_functions(name: str) -> None:
    compared = 0
    for x in ARRAYS.values():
        try:
            NUMPYS[name](x)
        except (TypeError, ValueError, IndexError):
            continue
        same(NUMPYS[name], x)
        compared += 1
    assert compared > 2


def test_unique_of_what_data_chose() -> None:
    compiled = smelt.jit(lambda y: ops.unique(y[y > 1], return_counts=True), options=CHECKED)
    for y in (np.array([1, 1, 3, 2, 3]), np.zeros(5, int), np.full(5, 4)):
        for found, wanted in zip(compiled(y), np.unique(y[y > 1], return_counts=True), strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert compiled.compiles == 1


def test_sizes_and_fill_values() -> None:
    x = np.array([3.0, 1.0, 3.0, 2.0])
    found = smelt.jit(lambda x: ops.unique(x, True, True, True, size=5, fill_value=9))(x)
    for item, wanted in zip(found, ([1, 2, 3, 9, 9], [2, 0, 2, 1], [1, 1, 2, 0, 0]), strict=True):
        np.testing.assert_array_equal(item, wanted)
    np.testing.assert_array_equal(smelt.jit(lambda x: ops.unique(x, size=2)[0])(x), [1, 2])
    np.testing.assert_array_equal(smelt.jit(lambda x: ops.flatnonzero(x > 1, size=5, fill_value=8))(x), [0, 2, 3, 8, 8])
    np.testing.assert_array_equal(smelt.jit(lambda x: ops.bincount(x.astype("int64"), length=3))(x), [0, 1, 1])
    np.testing.assert_array_equal(
        smelt.jit(lambda x: ops.repeat_interleave(x.astype("int64"), output_size=9))(x)[:3], 0
    )


def test_numbers_that_counts_refuse() -> None:
    with pytest.raises(ShapeError, match=r"test_data_sizes.py:\d+: repeats are negative.*= -1"):
        smelt.jit(lambda x, r: np.repeat(x, r))(floats(3), np.array([2, -1, 0]))
    with pytest.raises(SmeltError, match="index -2 is out of range"):
        smelt.jit(np.bincount)(np.array([1, -2, 3]))
