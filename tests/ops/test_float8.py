"""float8 as storage: every cast on every pattern has PyTorch's bits; elements are moved, arithmetic is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt import ops
from smelt.ir.errors import DTypeError
from smelt.ir.parser import parse_graph
from smelt.ir.types import DTYPES
from support import BACKENDS, TORCH_DTYPES, evaluate

EIGHT = ("f8_e4m3fn", "f8_e5m2")
FLOATS = ("f16", "bf16", "f32", "f64")
BYTES = np.arange(256, dtype=np.uint8)


def tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """The array's bits as a tensor of torch's type."""
    whole = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[array.itemsize]
    return torch.from_numpy(array.view(whole).copy()).view(TORCH_DTYPES[dtype])


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.itemsize])


def same(got: np.ndarray, expected: torch.Tensor, dtype: str) -> None:
    """Equal bits; a NaN is a NaN."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[expected.element_size()]
    known = expected.contiguous().view(whole).numpy().view(DTYPES[dtype].numpy)
    assert got.dtype == known.dtype
    both = np.isnan(got.astype(np.float64)) & np.isnan(known.astype(np.float64))
    np.testing.assert_array_equal(bits(got)[~both], bits(known)[~both])
    assert np.array_equal(np.isnan(got.astype(np.float64)), np.isnan(known.astype(np.float64)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("eight", EIGHT)
def test_all_patterns_to_other_types(eight: str, backend: str) -> None:
    x = BYTES.view(DTYPES[eight].numpy)
    wanted = (*FLOATS, *EIGHT)
    found = evaluate(lambda x: tuple(ops.cast(x, DTYPES[name]) for name in wanted), [x], backend)
    for name, got in zip(wanted, found, strict=True):
        same(got, tensor(x, eight).to(TORCH_DTYPES[name]), name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FLOATS)
def test_numbers_of_other_types(name: str, backend: str) -> None:
    """All patterns of 16 bits; of the wider types those numbers and their neighbours, which are next to each tie."""
    if name in ("f16", "bf16"):
        x = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[name].numpy)
    else:
        kind = DTYPES[name].numpy.type
        near = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(kind)
        x = np.concatenate([near, np.nextafter(near, kind(np.inf)), np.nextafter(near, kind(-np.inf)), near * 1e30])
    found = evaluate(lambda x: tuple(ops.cast(x, DTYPES[eight]) for eight in EIGHT), [x], backend)
    for eight, got in zip(EIGHT, found, strict=True):
        same(got, tensor(x, name).to(TORCH_DTYPES[eight]), eight)


@pytest.mark.parametrize("eight", EIGHT)
def test_elements_are_moved_and_products_are_those_of_f32(eight: str) -> None:
    kind = DTYPES[eight].numpy
    x = BYTES.view(kind).reshape(8, 32)
    found = smelt.jit(lambda x: (x.T, np.concatenate([x, x[1:3]]), x[[3, 1]], np.flip(x, 0), x.reshape(32, 8)))(x)
    wide = x.view(np.uint8)
    known = wide.T, np.concatenate([wide, wide[1:3]]), wide[[3, 1]], np.flip(wide, 0), wide.reshape(32, 8)
    for got, expected in zip(found, known, strict=True):
        assert got.dtype == kind
        np.testing.assert_array_equal(bits(got), expected)
    graph = smelt.jit(lambda x: x.T[1:]).trace(smelt.spec(f"{eight}[N, 4]"))
    assert str(parse_graph(str(graph))) == str(graph)
    a, b = (np.random.default_rng(at).normal(size=(7, 7)).astype(np.float32).astype(kind) for at in (0, 1))
    product = smelt.jit(lambda a, b: a @ b)(a, b)
    assert product.dtype == np.float32
    np.testing.assert_allclose(product, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["add", "mul", "matmul", "sum", "prod", "neg", "exp", "eq", "amax", "cumsum", "mean", "nan_to_num", "relu",
     "softmax",     "isnan", "sign"],
)  # fmt: skip
def test_arithmetic_is_refused(name: str) -> None:
    x = np.ones((3, 3), DTYPES["f8_e5m2"].numpy)
    op = getattr(ops, name)
    more = {"self": x, "other": x} if "other" in op.by_name else {"self": x}
    if "dim" in op.by_name and op.by_name["dim"].required:
        more["dim"] = 0
    with pytest.raises(DTypeError, match=r"f8_e5m2.*cast"):
        op(**more)


@pytest.mark.parametrize("function", [lambda x: x + x, lambda x: x.sum(), lambda x: -x, lambda x: x * 2, np.exp])
def test_numpys_operators_are_refused(function: Callable[[Any], Any]) -> None:
    with pytest.raises(DTypeError, match=r"cast it first|takes no f8_e5m2|convert"):
        smelt.jit(function)(np.ones((3, 3), DTYPES["f8_e5m2"].numpy))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("fresh_torch")
def test_torch_compile() -> None:
    import smelt.torch

    def run(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        narrow = x.to(torch.float8_e4m3fn)
        return narrow.float() @ weight.float().t(), narrow, weight.to(torch.float8_e5m2), narrow.t().contiguous()

    x, weight = torch.randn(5, 8), torch.randn(6, 8).to(torch.float8_e4m3fn)
    compiled = torch.compile(run, backend="smelt", fullgraph=True)
    for got, expected in zip(compiled(x, weight), run(x, weight), strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got.float(), expected.float(), rtol=1e-5, atol=1e-5)
    assert smelt.torch.stats()["fallback_names"] == {}
