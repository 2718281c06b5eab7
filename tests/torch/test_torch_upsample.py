"""Resized and sampled images under torch.compile: smelt's ops, both memory orders, open sizes, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import smelt
import smelt.torch
import torch
from torch.nn import functional
from torch.nn.functional import interpolate

CALLS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "nearest 1d": ((2, 3, 5), {"mode": "nearest", "scale_factor": 2}),
    "nearest": ((2, 3, 5, 6), {"mode": "nearest", "size": (7, 9)}),
    "exact 3d": ((2, 3, 4, 5, 6), {"mode": "nearest-exact", "scale_factor": 2}),
    "linear": ((2, 3, 5), {"mode": "linear", "scale_factor": 2.0}),
    "bilinear": ((2, 3, 5, 6), {"mode": "bilinear", "scale_factor": 3}),
    "bilinear, corners": ((2, 3, 5, 6), {"mode": "bilinear", "size": (10, 3), "align_corners": True}),
    "bicubic": ((2, 3, 5, 6), {"mode": "bicubic", "scale_factor": 2}),
    "bilinear, antialias": ((2, 3, 9, 12), {"mode": "bilinear", "size": (4, 5), "antialias": True}),
    "bicubic, antialias": ((2, 3, 9, 12), {"mode": "bicubic", "size": (4, 15), "antialias": True}),
    "trilinear": ((2, 3, 4, 5, 6), {"mode": "trilinear", "scale_factor": 2}),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["", "open"])
@pytest.mark.parametrize("name", CALLS)
def test_interpolate(name: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    shape, options = CALLS[name]
    compiled = torch.compile(
        lambda x: interpolate(x, **options), backend="smelt", dynamic=dynamic, options={"fallback": "error"}
    )
    orders = [torch.contiguous_format, *([torch.channels_last] if len(shape) == 4 else [])]
    for order in orders:
        x = torch.randn(shape).contiguous(memory_format=order).requires_grad_()
        expected, found = interpolate(x, **options), compiled(x)
        weight = torch.randn_like(expected)
        (wanted,), (gradient,) = (torch.autograd.grad(result, x, weight) for result in (expected, found))
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradient, wanted)
        assert found.stride() == expected.stride() and gradient.stride() == wanted.stride()


def test_one_op_each() -> None:
    """The op itself is compiled, not what PyTorch would make of it: a kernel for each dim, and tables."""
    torch._dynamo.reset()
    smelt.torch.reset_stats()
    x = torch.randn(1, 2, 4, 4)
    torch.compile(lambda x: interpolate(x, scale_factor=2, mode="bilinear"), backend="smelt")(x)
    found = smelt.torch.stats()
    assert found["native_ops"] == 1 and found["kernels"] == 3  # the tables share one


def test_decompositions_come_back() -> None:
    torch._dynamo.reset()
    overloads = [torch.ops.aten.upsample_bilinear2d.default, torch.ops.aten.upsample_nearest2d.vec]
    before = [dict(overload.py_kernels) for overload in overloads]
    torch.compile(lambda x: interpolate(x, scale_factor=2), backend="smelt")(torch.randn(1, 1, 2, 2))
    assert [overload.py_kernels for overload in overloads] == before


def test_exported() -> None:
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return interpolate(x.relu(), scale_factor=2, mode="bilinear") + interpolate(x, size=(10, 12))

    x = torch.randn(2, 3, 5, 6)
    function = smelt.from_exported(torch.export.export(Double(), (x,)), options={"fallback": "error"})
    torch.testing.assert_close(function(x), Double()(x))


def _unpooled(x: torch.Tensor) -> torch.Tensor:
    values, indices = functional.max_pool2d(x, 2, return_indices=True)
    return functional.max_unpool2d(values, indices, 2)


SAMPLES = torch.linspace(0.1, 0.9, 12)
# Calls of one image, or of one volume.
OTHERS: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "fractional_max_pool2d": (
        (2, 3, 9, 10),
        lambda x: functional.fractional_max_pool2d(x, 2, (4, 5), _random_samples=SAMPLES.reshape(2, 3, 2)),
    ),
    "fractional_max_pool3d": (
        (2, 2, 5, 6, 7),
        lambda x: functional.fractional_max_pool3d(x, 2, (3, 4, 2), _random_samples=SAMPLES.reshape(2, 2, 3)),
    ),
    "max_unpool2d": ((2, 3, 6, 8), _unpooled),
    "grid_sample": (
        (2, 2, 3, 4, 5),
        lambda x: functional.grid_sample(x, x[:, :1, ..., :3].reshape(2, 3, 4, 1, 3), align_corners=False),
    ),
    "affine_grid": ((2, 2, 3), lambda x: functional.affine_grid(x, [2, 3, 4, 5], align_corners=True)),
    "affine_grid 3d": ((2, 3, 4), lambda x: functional.affine_grid(x, [2, 1, 2, 3, 4], align_corners=False)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_pools_and_grids(name: str) -> None:
    torch._dynamo.reset()
    shape, function = OTHERS[name]
    x = torch.randn(shape).requires_grad_()
    expected = function(x)
    found = torch.compile(function, backend="smelt", options={"fallback": "error"})(x)
    weight = torch.randn_like(expected)
    (wanted,), (gradient,) = (torch.autograd.grad(result, x, weight) for result in (expected, found))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_channels_stay_last(mode: str) -> None:
    """Vectors run along the channels, where memory is adjacent, between the two dims, too."""
    torch._dynamo.reset()
    smelt.torch.reset_stats()
    x = torch.randn(1, 48, 4, 4).contiguous(memory_format=torch.channels_last)
    torch.compile(lambda x: interpolate(x, size=(9, 9), mode=mode), backend="smelt")(x)
    (graph,) = smelt.torch.graphs()
    loops = [line for line in graph.text("loops").splitlines() if "in 0..48 " in line]
    assert len(loops) == 2 and all("vector" in line for line in loops)
