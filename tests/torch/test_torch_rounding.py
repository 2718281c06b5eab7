"""f16 and bf16 rounded after each op: the bits of eager."""

from __future__ import annotations

import numpy as np
import pytest
import smelt
import smelt.torch
import torch
from smelt import ops
from smelt.backend.compile import graph_key
from smelt.passes.graph.round_results import round_results
from torch_compiled import assert_native, compiled

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]
NARROW = [torch.float16, torch.bfloat16]


def chain(x: torch.Tensor, y: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * y + x
    w = (z - y) * 3 / (y.abs() + 1)
    return z, w, torch.relu(w - z) * 0.1 + x, (x + y) * s - w.neg(), torch.where(x > y, z * w, x) + 1


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_chains_have_the_bits_of_eager(dtype: torch.dtype) -> None:
    x, y = (torch.randn(40, 70).to(dtype) for _ in range(2))
    s = torch.tensor(1.7, dtype=dtype)
    wanted = chain(x, y, s)
    found = compiled(chain, options={"rounding": "op"})(x, y, s)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
    assert_native()
    assert "in 1 kernels" in smelt.torch.report()
    torch._dynamo.reset()
    # It is a setting that matters.
    other = compiled(chain)(x, y, s)
    assert not all(torch.equal(one, two) for one, two in zip(other, wanted, strict=True))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_scaled_terms_are_rounded_once(dtype: torch.dtype) -> None:
    def function(x, y):
        return torch.add(x, y, alpha=0.3), torch.sub(x, y, alpha=100), torch.rsub(x, y, alpha=-0.7)

    # Whole vectors: for what is left over PyTorch has another code, which rounds the product.
    x, y = (torch.randn(16, 64).to(dtype) for _ in range(2))
    for one, other in zip(compiled(function, options={"rounding": "op"})(x, y), function(x, y), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_gradients_have_the_bits_of_eager(dtype: torch.dtype) -> None:
    def function(x, y):
        return ((x * y + x) * 3 - y * y) * x

    x, y = (torch.randn(40, 70).to(dtype).requires_grad_() for _ in range(2))
    weights = torch.randn(40, 70).to(dtype)
    run = compiled(function, options={"rounding": "op"})
    found, wanted = (torch.autograd.grad(item(x, y), (x, y), weights) for item in (run, function))
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def test_jit_rounds_as_numpy_does() -> None:
    def function(x, y):
        z = x * y + x
        return z * y - x, (z - y) * z

    generator = np.random.default_rng(0)
    x, y = (generator.standard_normal((40, 70)).astype(np.float16) for _ in range(2))
    rounded = smelt.jit(function, options=smelt.CompileOptions(rounding="op"))
    plain = smelt.jit(function)
    for _ in range(2):  # the second one may come from the cache
        assert all(np.array_equal(one, other) for one, other in zip(rounded(x, y), function(x, y), strict=True))
        assert not all(np.array_equal(one, other) for one, other in zip(plain(x, y), function(x, y), strict=True))


def test_composites_are_rounded_once() -> None:
    graph = round_results(smelt.jit(lambda x: ops.silu(x).reshape(2, 2) + 1).trace(np.ones(4, np.float16)))
    assert [op.name for op in graph.ops if op.name != "constant"] == [
        "silu",
        "round_off",
        "reshape",
        "add",
        "round_off",
    ]


def test_the_setting_is_part_of_the_key() -> None:
    graph = smelt.jit(lambda x: x * x + x).trace(np.ones(4, np.float16))
    one, other = (graph_key(graph, smelt.CompileOptions(rounding=item))[0] for item in ("kernel", "op"))
    assert one is not None and other is not None and one.name != other.name
    with pytest.raises(smelt.SmeltError, match="rounding must be 'kernel' or 'op', got 'eager'"):
        smelt.CompileOptions(rounding="eager")
