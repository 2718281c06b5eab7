"""u16, u32 and u64: NumPy's types and numbers under jit, PyTorch's under torch.compile."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt import ops
from smelt.ir.errors import DTypeError, NumberRangeError
from smelt.ir.parser import parse_graph
from smelt.ir.types import DTYPES
from support import BACKENDS, TORCH_DTYPES, evaluate, from_torch

NEW = ("u16", "u32", "u64")
INTEGERS = ("u8", *NEW, "i8", "i16", "i32", "i64")
REAL = ("bool", *INTEGERS, "f16", "f32", "f64")
UFUNCS = (
    np.add, np.subtract, np.multiply, np.floor_divide, np.remainder, np.true_divide, np.maximum, np.minimum,
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.left_shift, np.right_shift,
    np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal,
)  # fmt: skip


def numbers(dtype: str, count: int = 37, seed: int = 0) -> np.ndarray:
    """The ends of a type, small numbers, and numbers from all of its range."""
    kind = DTYPES[dtype].numpy
    random = np.random.default_rng(seed)
    if kind.kind == "b":
        return random.random(count) < 0.5
    if kind.kind == "f":
        return (random.normal(size=count) * 50).astype(kind)
    info = np.iinfo(kind)
    some = random.integers(info.min, info.max, count - 6, dtype=kind, endpoint=True)
    ends = np.array([info.min, info.max, info.max - 1, 0, 1, 3], kind)
    return np.concatenate([ends, some])


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda item: item.__name__)
def test_ufuncs_have_numpys_types_and_numbers(ufunc: np.ufunc) -> None:
    """All pairs of a new type and a real one are one program."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for left, right in itertools.product(REAL, REAL):
        if left in NEW or right in NEW:
            a, b = numbers(left), np.roll(numbers(right, seed=1), 7)
            if "shift" in ufunc.__name__ and b.dtype.kind in "iu":
                b = (b % 7).astype(b.dtype)
            if ufunc in (np.floor_divide, np.remainder, np.true_divide) and b.dtype.kind != "b":
                b[b == 0] = 1
            try:
                with np.errstate(all="ignore"):
                    ufunc(a, b)
            except TypeError:
                with pytest.raises(DTypeError):
                    smelt.jit(ufunc)(a, b)
                continue
            pairs.append((a, b))
    found = smelt.jit(lambda pairs: [ufunc(a, b) for a, b in pairs])(pairs)
    for got, (a, b) in zip(found, pairs, strict=True):
        with np.errstate(all="ignore"):
            expected = ufunc(a, b)
        assert got.dtype == expected.dtype, (a.dtype, b.dtype)
        np.testing.assert_array_equal(got, expected, str((a.dtype, b.dtype)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", NEW)
def test_casts(dtype: str, backend: str) -> None:
    """Of integers as NumPy's, which wraps; of floats in range as NumPy's, and PyTorch's both ways."""
    for other in REAL:
        x = numbers(dtype)
        (got,) = evaluate(lambda x, other=other: ops.cast(x, DTYPES[other]), [x], backend)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, x.astype(DTYPES[other].numpy))
        y = abs(numbers(other)) if other[0] == "f" else numbers(other)
        (got,) = evaluate(lambda y: ops.cast(y, DTYPES[dtype]), [y], backend)
        np.testing.assert_array_equal(got, y.astype(DTYPES[dtype].numpy))
        np.testing.assert_array_equal(got, from_torch(torch.from_numpy(y).to(TORCH_DTYPES[dtype])))
    large = np.array([0.5, 2.0**15, 2.0**31 + 512, 2.0**63, np.nan, 1e30], np.float64)
    (got,) = evaluate(lambda x: ops.cast(x, DTYPES["u64"]), [large], backend)
    np.testing.assert_array_equal(got, np.array([0, 2**15, 2**31 + 512, 2**63, 0, 2**64 - 1], np.uint64))


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "argmax": np.argmax, "argmin": np.argmin,
    "any": np.any, "all": np.all, "cumsum": np.cumsum, "mean": np.mean, "rows": lambda x: np.sum(x, axis=0),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    for dtype in ("u8", *NEW):
        x = numbers(dtype, 60).reshape(5, 12)
        got, expected = smelt.jit(REDUCTIONS[name])(x), REDUCTIONS[name](x)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-12 if name == "mean" else 0)


@pytest.mark.parametrize("dtype", NEW)
def test_python_numbers(dtype: str) -> None:
    x = numbers(dtype)
    top = np.iinfo(x.dtype).max
    for function in (
        lambda x: (x + 1, 3 - x, x * 2, x // 3, 1000 // (x | 1), x % 7, x**2, -x, ~x, abs(x)),
        lambda x: (x < top, x > -1, x == -1, x >= 2**70, x != top, np.sign(x)),
        lambda x: (x / 2, x * 0.5, np.sqrt(x), np.clip(x, 3, 100), np.where(x > 5, x, 5)),
    ):
        with np.errstate(all="ignore"):
            for got, expected in zip(smelt.jit(function)(x), function(x), strict=True):
                assert got.dtype == expected.dtype
                np.testing.assert_array_equal(got, expected)
    with pytest.raises(NumberRangeError, match=f"out of range for {dtype}, which goes from 0 to {top}"):
        smelt.jit(lambda x: x + (top + 1))(x)
    compare = smelt.jit(lambda x, n: (x < n, x == n))
    for number in (-1, 3, 2**40):
        for got, expected in zip(compare(x, number), (x < number, x == number), strict=True):
            np.testing.assert_array_equal(got, expected)
    add = smelt.jit(lambda x, n: x + n)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(add(x, 5), x + 5)
    with pytest.raises(NumberRangeError):
        add(x, -5)


def test_text_and_memory() -> None:
    for dtype in NEW:
        x = numbers(dtype, 12).reshape(3, 4)
        graph = smelt.jit(lambda x: x.T[1:] * 3).trace(smelt.spec(f"{dtype}[N, 4]"))
        assert str(parse_graph(str(graph))) == str(graph)
        np.testing.assert_array_equal(
            smelt.jit(lambda x: np.concatenate([x.T, x.T])[1:5])(x), np.vstack([x.T, x.T])[1:5]
        )
        np.testing.assert_array_equal(smelt.jit(lambda x: x[[2, 0]])(x), x[[2, 0]])
        assert smelt.jit(lambda x: x).trace(x).params[0].dtype == x.dtype


def test_other_types_are_refused_in_words() -> None:
    x = np.ones(3, np.uint16)
    with pytest.raises(DTypeError, match="u16 and i32 have no common type, as in PyTorch: cast one of them"):
        ops.add(x, np.ones(3, np.int32))
    for unknown in ("float4_e2m1fn_x2", "complex32", "torch.complex32"):
        with pytest.raises(DTypeError, match="unknown dtype .*; smelt has bool, u8, u16, u32, u64"):
            ops.cast(x, unknown)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("fresh_torch")
def test_torch_compile() -> None:
    import smelt.torch

    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, x & 3, x.float() + 1, x.to(torch.int64) - 5, x.sum(), x == x, torch.cat([x, x])[1:4]

    compiled = torch.compile(run, backend="smelt", fullgraph=True)
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        x = torch.tensor([0, 1, 7, 65535, 40000], dtype=dtype)
        for got, expected in zip(compiled(x), run(x), strict=True):
            assert got.dtype == expected.dtype
            assert torch.equal(got, expected)
    assert smelt.torch.stats()["fallback_names"] == {}
