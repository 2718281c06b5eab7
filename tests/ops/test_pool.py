"""Maxima of windows that have nothing but padding: PyTorch's values, places and, where these are inside, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import smelt
import torch
from smelt import ops
from support import floats

# Shape, kernel, stride, padding, dilation, ceil_mode. A dilation of more than a size steps over all there is.
POOLS: dict[str, tuple[Any, ...]] = {
    "1d": ((2, 1), 2, 1, 1, 2, False),
    "1d, ceil": ((2, 3, 1), 2, 3, 1, 3, True),
    "2d, columns": ((2, 5, 1), 2, 1, 1, 2, False),
    "2d, rows": ((2, 1, 5), 2, 1, 1, 2, False),
    "2d, all": ((1, 2, 2), 2, 1, 1, 3, False),
    "2d, some": ((2, 3, 4, 2), 2, 1, 1, (2, 3), True),
    "2d, a wide window": ((1, 40, 1), (20, 2), 1, (10, 1), (1, 2), False),
    "3d": ((1, 3, 3, 1), 2, 1, (0, 0, 1), (1, 1, 2), False),
    "3d, all": ((1, 1, 1, 1), 2, 1, 1, 2, True),
}


def rank_of(name: str) -> int:
    return int(name[0])


def exact_gradient(indices: np.ndarray, weight: np.ndarray, shape: tuple[int, ...], rank: int) -> np.ndarray:
    """What is added where PyTorch says that the largest elements are. PyTorch itself writes outside for the others."""
    found = np.zeros((int(np.prod(shape[:-rank])), int(np.prod(shape[-rank:]))))
    for row, places, values in zip(found, indices.reshape(len(found), -1), weight.reshape(len(found), -1), strict=True):
        inside = places < len(row)
        np.add.at(row, places[inside], values[inside])
    return found.reshape(shape)


@pytest.mark.parametrize("name", POOLS)
def test_windows_of_padding_only(name: str) -> None:
    shape, *window = POOLS[name]
    rank, x = rank_of(name), floats(*shape)
    pooled = getattr(torch.nn.functional, f"max_pool{rank}d")
    values, indices = pooled(torch.from_numpy(x), *window, return_indices=True)
    assert torch.isinf(values).any()
    pool = getattr(ops, f"max_pool{rank}d")
    np.testing.assert_array_equal(smelt.jit(lambda x: pool(x, *window))(x), values.numpy())

    weight = floats(*values.shape, seed=1)
    value, pull = smelt.vjp(lambda x: pool(x, *window), x)
    np.testing.assert_array_equal(value, values.numpy())
    (gradient,) = pull(weight)
    exact = exact_gradient(indices.numpy(), weight, shape, rank)
    np.testing.assert_allclose(gradient, exact, rtol=1e-6, atol=1e-6)
    _, tangent = smelt.jvp(lambda x: pool(x, *window), (x,), (np.ones_like(x),))
    outside = indices.numpy() >= np.prod(shape[-rank:])
    np.testing.assert_array_equal(tangent, np.where(outside, 0.0, 1.0))


def test_open_sizes_that_a_window_may_step_over() -> None:
    pool = smelt.jit(smelt.grad(lambda x: ops.relu(ops.max_pool1d(x, 2, 1, 1, 3)).sum()))
    for size in (9, 8, 7, 2, 3, 2):
        x = floats(4, size, seed=size)
        given = torch.from_numpy(x).requires_grad_()
        if size > 2:
            torch.nn.functional.max_pool1d(given, 2, 1, 1, 3).relu().sum().backward()
            np.testing.assert_allclose(pool(x), given.grad.numpy())
        else:
            np.testing.assert_array_equal(pool(x), np.zeros_like(x))
