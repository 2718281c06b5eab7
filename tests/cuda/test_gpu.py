"""On an NVIDIA GPU: what `make gpu-check` runs beside every op. Skipped where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import smelt
import smelt.torch
import torch
from smelt import ops
from smelt.ir.errors import IndexRangeError
from torch import nn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no NVIDIA GPU")


def many(x: Any) -> Any:
    return ops.cumsum(x, 0) * 2, ops.softmax(x, 1), x.sum()


def test_tensors() -> None:
    """On another stream than the default one, and often enough for a graph."""
    function = smelt.jit(many, target="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        for seed in range(5):
            x = torch.randn(300, 1000, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
            for found, wanted in zip(function(x), (x.cumsum(0) * 2, x.softmax(1), x.sum()), strict=True):
                assert found.device == x.device
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_layouts() -> None:
    function = smelt.jit(lambda x: x * 2 + 1, target="cuda")
    whole = torch.randn(1001, device="cuda")
    for x in (whole[:1000].view(20, 50).t(), whole[:1000].view(20, 50)[:, ::3], whole[1:]):
        torch.testing.assert_close(function(x), x * 2 + 1)


def test_numba_and_numpy() -> None:
    from numba import cuda

    x = np.random.default_rng(0).standard_normal((33, 40), np.float32)
    function = smelt.jit(many, target="cuda")
    for on_gpu, on_host in zip(function(cuda.to_device(x)), function(x), strict=True):
        np.testing.assert_array_equal(on_gpu.copy_to_host(), on_host)
    np.testing.assert_allclose(on_host, x.sum(), rtol=1e-4, atol=1e-4)


def test_an_index_out_of_range() -> None:
    function = smelt.jit(lambda x, i: ops.index(x, [i]), target="cuda")
    x = torch.randn(6, 4, device="cuda")
    torch.testing.assert_close(function(x, torch.tensor([0, 5], device="cuda")), x[[0, 5]])
    with pytest.raises(IndexRangeError, match="index 6 is out of range"):
        function(x, torch.tensor([0, 6], device="cuda"))


def test_a_training_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)).cuda()
    x, labels = torch.randn(32, 64, device="cuda"), torch.randint(10, (32,), device="cuda")

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), labels)

    wanted = torch.autograd.grad(loss(), tuple(model.parameters()))
    step = torch.compile(loss, backend="smelt", options={"fallback": "error"})
    for _ in range(4):
        for left, right in zip(torch.autograd.grad(step(), tuple(model.parameters())), wanted, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4)
            assert left.stride() == right.stride()
    assert "on cuda:0" in smelt.torch.report()
