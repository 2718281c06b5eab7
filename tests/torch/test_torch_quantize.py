"""torch.compile(backend="smelt"): graphs with the ops that PyTorch's quantisation flows put in, without a fallback."""

from __future__ import annotations

from typing import Any

import pytest
import smelt.torch
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (defines the ops)
from torch_compiled import assert_native, compiled, same

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]
DECOMPOSED = torch.ops.quantized_decomposed
I8 = -128, 127, torch.int8
U8 = 0, 255, torch.uint8


def assert_quantised_natively() -> None:
    """All but the convolution of floats is native, which is left to PyTorch where that is faster."""
    found = smelt.torch.stats()
    assert found["native_ops"] > 0
    assert set(found["fallback_names"]) <= {"aten.convolution"}


def fake(x: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
    """x as the converted graph of the PT2E flow has each activation: quantised, and at once dequantised."""
    levels = DECOMPOSED.quantize_per_tensor.default(x, scale, zero_point, *U8)
    return DECOMPOSED.dequantize_per_tensor.default(levels, scale, zero_point, *U8)


class Converted(torch.nn.Module):
    """A network as that flow leaves it: weights in int8 with a scale for each channel, activations in uint8."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        for name, shape in (("conv", (8, 3, 3, 3)), ("first", (32, 8)), ("second", (10, 32))):
            weight = torch.randint(-128, 128, shape, generator=random, dtype=torch.int8)
            self.register_buffer(f"{name}_weight", weight)
            self.register_buffer(f"{name}_scale", torch.rand(shape[0], generator=random) * 0.01 + 0.001)
            self.register_buffer(f"{name}_zero", torch.zeros(shape[0], dtype=torch.int64))
            self.register_buffer(f"{name}_bias", torch.randn(shape[0], generator=random))

    def weight(self, name: str) -> torch.Tensor:
        parts = (getattr(self, f"{name}_{part}") for part in ("weight", "scale", "zero"))
        return DECOMPOSED.dequantize_per_channel.default(*parts, 0, *I8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.conv2d(fake(x, 0.03, 120), self.weight("conv"), self.conv_bias, padding=1)
        x = fake(torch.relu(x), 0.02, 0).mean((2, 3))
        x = torch.relu(torch.nn.functional.linear(fake(x, 0.02, 3), self.weight("first"), self.first_bias))
        return torch.nn.functional.linear(fake(x, 0.05, 0), self.weight("second"), self.second_bias)


def test_converted_network() -> None:
    model = Converted().eval()
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        same(compiled(model)(x), model(x))
    assert_quantised_natively()


def test_exported_network_runs_as_it_was_converted() -> None:
    model = Converted().eval()
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(1))
    program = torch.export.export(model, (x,)).module()
    with torch.no_grad():
        same(compiled(program)(x), model(x))
    assert_quantised_natively()


def dynamic(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A linear layer with the parameters of its activation chosen from the activation."""
    chosen, zero_point = DECOMPOSED.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
    levels = DECOMPOSED.quantize_per_tensor.tensor(x, chosen, zero_point, *U8)
    x = DECOMPOSED.dequantize_per_tensor.tensor(levels, chosen, zero_point, *U8)
    return x @ DECOMPOSED.dequantize_per_channel.default(weight, scale, torch.zeros(8, dtype=torch.int64), 0, *I8).t()


def by_token(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    chosen, zero_point = DECOMPOSED.choose_qparams_per_token_asymmetric(x, torch.int8)
    levels = DECOMPOSED.quantize_per_token(x, chosen, zero_point, *I8)
    x = DECOMPOSED.dequantize_per_token(levels, chosen, zero_point, *I8, torch.float32)
    groups = scale[:, None].expand(8, 4).contiguous()
    zeros = torch.zeros(8, 4, dtype=torch.int64)
    return x @ DECOMPOSED.dequantize_per_channel_group(weight, groups, zeros, *I8, 4, torch.float32).t()


@pytest.mark.parametrize("function", [dynamic, by_token])
def test_parameters_chosen_at_the_call(function: Any) -> None:
    x, scale = torch.randn(5, 16), torch.rand(8) * 0.01 + 0.001
    weight = torch.randint(-128, 128, (8, 16), dtype=torch.int8)
    same(compiled(function)(x, weight, scale), function(x, weight, scale))
    assert_native()


def trained(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Every fake quantisation that training calls."""
    x = torch.fake_quantize_per_tensor_affine(x, 0.03, 2, -64, 63)
    x = torch._fake_quantize_learnable_per_tensor_affine(x, scale[:1], zero[:1], -64, 63, 0.5)
    x = torch._fake_quantize_learnable_per_channel_affine(x, scale, zero, 0, -64, 63, 0.5)
    return torch.fake_quantize_per_channel_affine(x, rows, torch.zeros(4, dtype=torch.int32), 0, -64, 63)


def test_training() -> None:
    given = [torch.randn(4, 9), torch.rand(4) * 0.1 + 0.02, torch.randn(4)]
    results = []
    for run in (compiled(trained), trained):
        leaves = [item.clone().requires_grad_() for item in given]
        loss = run(*leaves, torch.full((4,), 0.05))
        results.append((loss.detach(), *torch.autograd.grad(loss.square().sum(), leaves)))
    for got, expected in zip(*results, strict=True):
        same(got, expected)
    assert_native()


class Observer(torch.nn.Module):
    """What torch.ao.quantization.FusedMovingAvgObsFakeQuantize does, which Dynamo does not trace."""

    def __init__(self) -> None:
        super().__init__()
        start = {"low": torch.inf, "high": -torch.inf, "scale": 1.0}
        for name, value in start.items():
            self.register_buffer(name, torch.full((1,), value))
        self.register_buffer("zero_point", torch.zeros(1, dtype=torch.int32))
        self.register_buffer("on", torch.ones(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.low, self.high, self.scale, self.zero_point
        return torch.fused_moving_avg_obs_fake_quant(x, self.on, self.on, *parts, 0.01, 0, 255, 0, False, False)


def test_observers_move_their_buffers() -> None:
    observers = [Observer() for _ in range(2)]
    run = compiled(observers[0])
    for step in range(3):
        x = torch.randn(4, 9, generator=torch.Generator().manual_seed(step)).requires_grad_()
        got, expected = run(x), observers[1](x)
        same(got, expected)
        same(*(torch.autograd.grad(item.square().sum(), x)[0] for item in (got, expected)))
    for (name, own), (_, other) in zip(*(observer.named_buffers() for observer in observers), strict=True):
        assert torch.equal(own, other), name
    assert_native()


def test_products_of_quantised_matrices() -> None:
    def run(x: torch.Tensor, left: torch.Tensor, right: torch.Tensor, scales: torch.Tensor) -> Any:
        packed = torch._convert_weight_to_int4pack_for_cpu(right.int() & 15, 2)
        groups = torch.stack([scales, scales - 0.5], -1).expand(2, 64, 2).contiguous()
        return (
            torch._int_mm(left, right.t()),
            torch._weight_int8pack_mm(x, right, scales),
            torch._weight_int4pack_mm_for_cpu(x, packed, 32, groups),
        )

    random = torch.Generator().manual_seed(0)
    left, right = (torch.randint(-128, 128, (rows, 64), generator=random, dtype=torch.int8) for rows in (19, 64))
    x, scales = torch.randn(4, 64, generator=random), torch.rand(64, generator=random) * 0.05
    for got, expected in zip(compiled(run)(x, left, right, scales), run(x, left, right, scales), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)
    assert_native()
