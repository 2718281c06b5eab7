"""What parity does not say of convolutions: open sizes, higher derivatives, errors, and which of them are native."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt import ops


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


CASES = {
    "points": ((4, 3, 1, 1), [1], [0], 1),
    "patches": ((4, 3, 2, 2), [2], [0], 1),
    "windows": ((4, 3, 3, 3), [2], [1], 1),
    "depthwise": ((3, 1, 3, 3), [1], [1], 3),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_vary(name: str) -> None:
    shape, stride, padding, groups = CASES[name]
    weight = numbers(*shape)
    apply = smelt.jit(lambda x, w: ops.conv2d(x, w, None, stride, padding, [1], groups))
    for batch, height, width in ((2, 8, 6), (3, 12, 10), (5, 4, 8), (1, 7, 9)):
        x = numbers(batch, 3, height, width, seed=batch)
        wanted = torch.nn.functional.conv2d(
            torch.from_numpy(x), torch.from_numpy(weight), None, stride, padding, 1, groups
        )
        np.testing.assert_allclose(apply(x, weight), wanted.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_second_derivative(name: str) -> None:
    shape, stride, padding, groups = CASES[name]
    x, weight = numbers(2, 3, 6, 4), numbers(*shape, seed=1)

    def slope(x: Any, weight: Any) -> Any:
        return (smelt.grad(lambda x: (ops.conv2d(x, weight, None, stride, padding, [1], groups) ** 3).sum())(x)).sum()

    tensors = [torch.tensor(item, requires_grad=True) for item in (x, weight)]
    result = (torch.nn.functional.conv2d(*tensors, None, stride, padding, 1, groups) ** 3).sum()
    (first,) = torch.autograd.grad(result, tensors[:1], create_graph=True)
    wanted = torch.autograd.grad(first.sum(), tensors)
    for got, expected in zip(smelt.grad(slope, argnums=(0, 1))(x, weight), wanted):
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((2, 3, 8), (4, 2, 3)), {}, "input has 3 channels, expected 2"),
        (((2, 3, 8), (4, 3, 9)), {}, "larger than the padded input"),
        (((2, 3, 8), (4, 3, 3), (3,)), {}, r"bias has shape \[3\], expected \[4\]"),
        (((2, 3, 8), (4, 3, 3)), {"stride": [0]}, "at least 1"),
        (((2, 3, 8), (4, 3, 3)), {"stride": [1, 1]}, "stride has 2 numbers, expected 1 or 1"),
        (((2, 3, 8), (4, 3, 3)), {"padding": "half"}, "accepted are numbers, 'valid' and 'same'"),
        (((2, 3, 8), (4, 3, 3)), {"padding": "same", "stride": [2]}, "needs stride 1"),
        (((2, 2, 8), (3, 1, 3)), {"groups": 2}, "multiple of the 2 groups"),
        (((8,), (4, 3, 3)), {}, "input has 1 dimensions, expected 2 or 3"),
    ],
)
def test_errors(shapes: tuple[tuple[int, ...], ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(smelt.SmeltError, match=message):
        ops.conv1d(*(numbers(*shape) for shape in shapes), **options)


def compiled_gradients(layer: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The result and its gradients through torch.compile."""
    torch._dynamo.reset()
    x = x.clone().requires_grad_()
    result = torch.compile(layer, backend="smelt")(x)
    return [result, *torch.autograd.grad((result**2).sum(), [x, *layer.parameters()])]


@pytest.mark.parametrize(
    ("layer", "fallbacks"),
    [
        (torch.nn.Conv2d(3, 8, 4, 4), set()),
        (torch.nn.Conv2d(3, 8, 1), set()),
        (torch.nn.Conv2d(3, 3, 3, 1, 1, groups=3), set()),
        (torch.nn.Conv2d(3, 3, 7, 1, 3, groups=3), {"aten.convolution"}),
        (torch.nn.Conv2d(3, 8, 3, 2, 1), {"aten.convolution", "aten.convolution_backward"}),
        (torch.nn.ConvTranspose2d(3, 8, 2, 2), set()),
    ],
    ids=["patches", "points", "depthwise", "large depthwise", "windows", "transposed patches"],
)
def test_which_are_native_in_torch(layer: torch.nn.Module, fallbacks: set[str]) -> None:
    backend = pytest.importorskip("smelt.torch")
    x = torch.from_numpy(numbers(2, 3, 16, 12).astype(np.float32))
    backend.reset_stats()
    got = compiled_gradients(layer, x)
    assert set(backend.stats()["fallback_names"]) == fallbacks
    exact, wide = layer.double(), x.double().requires_grad_()
    result = exact(wide)
    wanted = [result, *torch.autograd.grad((result**2).sum(), [wide, *exact.parameters()])]
    layer.float()
    for one, other in zip(got, wanted):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-4)
