"""torch.compile(backend="smelt"): integers, and programs of several element types, against eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch_compiled import assert_native, compiled, same

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]


@pytest.mark.parametrize("dtype", (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), ids=str)
def test_bits_are_shifted(dtype: torch.dtype):
    bits = torch.iinfo(dtype).bits

    def f(x, count):
        y = x.clone()
        y <<= 2
        return x << 1, x >> 2, x << count, x >> count, x << bits, x >> bits, y

    x = torch.randint(torch.iinfo(dtype).min, torch.iinfo(dtype).max, (64,), dtype=dtype)
    x[:2] = torch.tensor([torch.iinfo(dtype).min, torch.iinfo(dtype).max], dtype=dtype)
    counts = torch.arange(64).remainder(bits + 3).to(dtype)
    for got, expected in zip(compiled(f)(x, counts), f(x, counts)):
        same(got, expected)
    assert_native()


NORMS = {
    "layer": (lambda: nn.LayerNorm(64), (20, 64)),
    "group": (lambda: nn.GroupNorm(4, 16), (4, 16, 8, 8)),
    "batch": (lambda: nn.BatchNorm2d(16), (4, 16, 8, 8)),
    "batch alone": (lambda: nn.BatchNorm2d(16, track_running_stats=False), (4, 16, 8, 8)),
    "instance": (lambda: nn.InstanceNorm2d(16, affine=True), (4, 16, 8, 8)),
}


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_gradients_of_norms_with_wider_parameters(name: str, dtype: torch.dtype):
    """Statistics that are f32, as those of eager: a mean that is rounded to bf16 is off by more than the deviation."""
    make, shape = NORMS[name]
    model = make()
    x, change = (torch.randn(shape) + 20).to(dtype), torch.randn(shape).to(dtype)

    def gradients(module: Any, run: Any, x: torch.Tensor) -> list[torch.Tensor]:
        x = x.clone().requires_grad_()
        run(x).backward(change.to(x.dtype))
        return [module.weight.grad, module.bias.grad, x.grad]

    module, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    got, wanted = gradients(module, compiled(module), x), gradients(exact, exact, x.double())
    for one, other, limit in zip(got, wanted, (1e-5, 1e-5, 2 * torch.finfo(dtype).eps)):
        assert (one - other).norm() < limit * other.norm()
    assert_native()


def test_statistics_of_norms_that_are_results_keep_their_type():
    def f(x, weight):
        return torch.native_layer_norm(x, (64,), weight, None, 1e-5)

    x, weight = torch.randn(8, 64).bfloat16().requires_grad_(), torch.randn(64, requires_grad=True)
    results = compiled(f)(x, weight)
    sum(item.float().sum() for item in results).backward()
    assert x.grad is not None and x.grad.dtype == torch.bfloat16 and x.grad.isfinite().all()
    assert weight.grad is not None and weight.grad.dtype == torch.float32


def test_integers_become_pytorchs_default_type() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sums = x + 0.1, x - 0.1, torch.rsub(x, 0.1)
        quotients = x / 60, x / 0.1, torch.fmod(x, 0.3), torch.remainder(x, 0.3), torch.floor_divide(x, 0.3)
        lists = *torch._foreach_div([x, x + 1], 60), *torch._foreach_sqrt([x, x])
        whole = torch.softmax(x.to(torch.float64), 0), torch.sigmoid(x)
        return torch.log(x), x * 0.1, *sums, *quotients, *lists, *whole

    x = torch.tensor([16777217, 3, 1700000061])
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        compiled = torch.compile(function, backend="smelt", fullgraph=True)
        for found, expected in zip(compiled(x), function(x), strict=True):
            assert found.dtype == expected.dtype == torch.float64
            torch.testing.assert_close(found, expected, rtol=4e-16, atol=0)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
def test_numbers_beside_narrow_tensors(dtype: torch.dtype):
    """A scale that is a tensor of another type is used in f32; a number to compare with is rounded first."""

    def f(x, scale, wide):
        products = x * scale, x / scale, scale * x.float(), x * wide, x / wide
        compared = x == 0.1, x < 0.1, x >= 1 / 3, x != 3e-6
        return (
            *products,
            *compared,
            torch.nn.functional.hardshrink(x, 0.1),
            x + 0.1,
            x - 1 / 3,
            0.1 - x,
            x.add(x, alpha=0.1),
        )

    x = torch.cat([torch.tensor([0.0, 0.1, 1 / 3, 3e-6, -0.1, 2.0**-20, 100.0]), torch.randn(57)]).to(dtype)
    arguments = x, torch.tensor(65536.0), torch.tensor(0.1, dtype=torch.float64)
    for got, expected in zip(compiled(f)(*arguments), f(*arguments)):
        assert got.dtype == expected.dtype and torch.equal(got, expected)
    assert_native()
