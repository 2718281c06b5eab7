"""Resized images: open sizes, threads, errors, and gradients of scales that do not fit the sizes."""

from __future__ import annotations

import numpy as np
import pytest
import smelt
import torch
from smelt import ops
from support import floats

aten = torch.ops.aten
MODES = (
    "upsample_nearest2d",
    "_upsample_nearest_exact2d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
)


def rest(name: str, corners: bool = False) -> tuple[bool, ...]:
    return () if "nearest" in name else (corners,)


@pytest.mark.parametrize("name", MODES)
def test_open_sizes(name: str) -> None:
    op, other = getattr(ops, name), getattr(aten, name)
    resize = smelt.jit(lambda x, y: op(x, (y.shape[2], 7), *rest(name)), dynamic=True)
    pull = smelt.jit(lambda g, x: getattr(ops, f"{name}_backward")(g, g.shape[2:], x.shape, *rest(name)), dynamic=True)
    for size, count in ((4, 9), (9, 4), (5, 5), (1, 6), (6, 1)):
        x, like = floats(2, 3, size, 5), floats(1, 1, count, 1)
        expected = other(torch.from_numpy(x), (count, 7), *rest(name)).numpy()
        np.testing.assert_allclose(resize(x, like), expected, rtol=1e-5, atol=1e-5)
        gradient = floats(2, 3, count, 7)
        wanted = getattr(aten, f"{name}_backward")(torch.from_numpy(gradient), (count, 7), x.shape, *rest(name))
        np.testing.assert_allclose(pull(gradient, x), wanted.numpy(), rtol=1e-5, atol=1e-5)
    assert len(resize.versions) < 4


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("scale", [0.4, 3.0])
def test_backward_is_the_transpose_for_any_scale(name: str, scale: float) -> None:
    """A scale that has nothing to do with the sizes: points beyond the image read its last pixel."""
    op, back = getattr(ops, name), getattr(ops, f"{name}_backward")
    arguments = (*rest(name), scale, scale)
    x, gradient = floats(1, 1, 4, 6).astype(np.float64), floats(1, 1, 11, 7, seed=1).astype(np.float64)
    left = (np.asarray(op(x, (11, 7), *arguments)) * gradient).sum()
    right = (x * np.asarray(back(gradient, (11, 7), x.shape, *arguments))).sum()
    assert abs(left - right) < 1e-9 * abs(left)


@pytest.mark.parametrize("name", MODES)
def test_same_bits_for_any_number_of_threads(name: str) -> None:
    x, gradient = floats(4, 8, 16, 12), floats(4, 8, 37, 24)
    found = []
    for threads in (1, 2):
        with smelt.threads(threads):
            found.append(
                (
                    np.asarray(smelt.jit(lambda x: getattr(ops, name)(x, (37, 24), *rest(name)))(x)).tobytes(),
                    np.asarray(
                        smelt.jit(lambda g: getattr(ops, f"{name}_backward")(g, (37, 24), x.shape, *rest(name)))(
                            gradient
                        )
                    ).tobytes(),
                )
            )
    assert found[0] == found[1]


def test_errors() -> None:
    x = floats(2, 3, 4, 5)
    with pytest.raises(smelt.SmeltError, match="the image has 3 dimensions, expected 4"):
        ops.upsample_nearest2d(x[0], (2, 2))
    with pytest.raises(smelt.SmeltError, match="expected 2 sizes"):
        ops.upsample_nearest2d(x, (2,))
    with pytest.raises(smelt.SmeltError, match="sizes must be positive"):
        ops.upsample_bilinear2d(x, (0, 2), False)
    with pytest.raises(smelt.SmeltError, match="self is i32, expected a float type"):
        ops.upsample_bilinear2d(x.astype(np.int32), (2, 2), False)
    with pytest.raises(smelt.SmeltError, match=r"grad_output is \[2, 3, 4, 5\], expected \[2, 3, 2, 2\]"):
        ops.upsample_nearest2d_backward(x, (2, 2), (2, 3, 8, 8))
