"""Quantisation has the bits of PyTorch's eager kernels, at ties, at the ends of the range and between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import smelt
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (defines the ops)
from parity.table import D
from smelt import ops
from smelt.ir.errors import ArgumentError, DTypeError
from smelt.ir.types import DTYPES
from support import BACKENDS, TORCH_DTYPES, evaluate, flatten, from_torch, to_torch

DECOMPOSED = torch.ops.quantized_decomposed
ATEN = torch.ops.aten
RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}
SCALES = (0.1, 0.0078431, 1.0, 3.7e-3, 12.5)
I8 = -128, 127, D("i8")


def ties(scale: float, count: int = 400, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Numbers at and next to halves of a scale, over and beyond 8 bits, and random ones."""
    half = (np.arange(count) - count / 2 + 0.5) * np.float64(scale)
    near = half.astype(np.float32)
    random = np.random.default_rng(seed).normal(0, 60 * scale, count).astype(np.float32)
    found = np.concatenate([near, np.nextafter(near, np.float32(9e9)), np.nextafter(near, np.float32(-9e9)), random])
    return np.concatenate([found, np.float32([0.0, -0.0, 6e4, -6e4])]).astype(dtype)


def levels(shape: Any, dtype: str = "i8") -> np.ndarray:
    low, high = RANGES[dtype]
    return np.random.default_rng(1).integers(low, high, shape, endpoint=True).astype(DTYPES[dtype].numpy)


def same_bits(
    name: str,
    arrays: Sequence[np.ndarray | None],
    rest: Sequence[Any],
    backend: str,
    *,
    space: Any = None,
    close: int = 0,
) -> None:
    """An op's results have the bits of PyTorch's; the last `close` of them are sums, in another order."""
    given = [array for array in arrays if array is not None]

    def placed(tensors: Sequence[Any], types: Any) -> list[Any]:
        left = iter(tensors)
        values = [item if item is None else next(left) for item in arrays]
        return [*values, *(types[item.name] if isinstance(item, D) else item for item in rest)]

    found = evaluate(lambda *tensors: getattr(ops, name)(*placed(tensors, DTYPES)), given, backend)
    reference = getattr(space or DECOMPOSED, name)(*placed([to_torch(item) for item in given], TORCH_DTYPES))
    known = [from_torch(item) for item in flatten(reference)]
    for at, (got, wanted) in enumerate(zip(found, known, strict=True)):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        if at >= len(known) - close:
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6 * given[0].size)
        else:
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("scale", SCALES)
def test_per_tensor(scale: float, dtype: str, backend: str) -> None:
    low, high = RANGES[dtype]
    zero = (low + high) // 2 + 3
    x, q, rest = ties(scale), levels(300, dtype), (low, high, D(dtype))
    same_bits("quantize_per_tensor", [x], [scale, zero, *rest], backend)
    same_bits("quantize_per_tensor", [x, np.float64([scale]), np.array(zero)], rest, backend)
    same_bits("dequantize_per_tensor", [q], [scale, zero, *rest], backend)
    parameters = np.float32([scale]), np.int32([zero]), np.array(low), np.array(high)
    same_bits("dequantize_per_tensor", [q, *parameters], rest[2:], backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("numbers", ["float32", "float64"])
def test_per_channel_token_and_group(numbers: str, backend: str) -> None:
    scales = np.array(SCALES).astype(numbers)
    zeros = np.array([0, 3, -7, 100, -128])
    x = np.stack([ties(scale, 99, seed=at) for at, scale in enumerate(SCALES)])
    for axis, value in ((0, x), (1, np.ascontiguousarray(x.T))):
        same_bits("quantize_per_channel", [value, scales, zeros], [axis, *I8], backend)
        same_bits("fake_quant_per_channel", [value, scales, zeros], [axis, -128, 127], backend)
        for kept in (zeros, zeros.astype(np.int8), zeros.astype(np.float32), None):
            same_bits("dequantize_per_channel", [levels(value.shape), scales, kept], [axis, *I8], backend)
    rows = scales[:, None], zeros[:, None]
    for kept in (rows[1], rows[1].astype(np.float32) + np.float32(0.3)):
        same_bits("quantize_per_token", [x, rows[0], kept], I8, backend)
    same_bits("dequantize_per_token", [levels(x.shape), *rows], [*I8, D("f32")], backend)
    count = x.shape[1] // 4
    many = np.repeat(scales, 4).reshape(5, 4), np.repeat(zeros, 4).reshape(5, 4)
    same_bits("quantize_per_channel_group", [x, *many], [*I8, count], backend)
    same_bits("dequantize_per_channel_group", [levels(x.shape), *many], [*I8, count, D("f32")], backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_choice_of_parameters(dtype: str, backend: str) -> None:
    for seed in range(8):
        random = np.random.default_rng(seed)
        x = (random.normal(random.normal(), 10.0 ** random.integers(-4, 3), (3, 17))).astype(dtype)
        same_bits("choose_qparams", [x], [0, 255, 1e-5, D("u8")], backend)
        same_bits("choose_qparams_symmetric", [x], [0, 255, 1e-5, D("u8")], backend)
        same_bits("choose_qparams_per_token", [x], [D("i8")], backend)
        same_bits("choose_qparams_per_token_asymmetric", [x], [D("i8")], backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_fake(dtype: str, backend: str) -> None:
    for scale, (zero, low, high) in zip(SCALES, [(0, -128, 127), (100, 0, 255), (-3, -8, 7)] * 2, strict=False):
        x = np.concatenate([ties(scale, dtype=dtype), np.array([np.nan, np.inf, -np.inf], dtype)])
        same_bits("fake_quantize_per_tensor_affine_cachemask", [x], [scale, zero, low, high], backend, space=ATEN)
        for enabled in (0, 1):
            parameters = np.float32([scale]), np.int32([zero]), np.int64([enabled])
            name = "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
            same_bits(name, [x, *parameters], [low, high], backend, space=ATEN)
    scales = np.float32(SCALES)
    x = np.stack([ties(scale, 99, dtype, seed=at) for at, scale in enumerate(SCALES)])
    for kept in (np.int32([0, 3, -7, 100, -128]), np.float32([0, 3.5, -7.3, 100.1, -127.9])):
        for axis, value in ((0, x), (1, np.ascontiguousarray(x.T))):
            name = "fake_quantize_per_channel_affine_cachemask"
            same_bits(name, [value, scales, kept], [axis, -128, 127], backend, space=ATEN)


@pytest.mark.parametrize("backend", BACKENDS)
def test_learnable(backend: str) -> None:
    rest = -128, 127, 0.7
    name = "_fake_quantize_learnable_per_tensor_affine"
    for at, (scale, zero) in enumerate(zip(SCALES, (0.0, 3.4, -7.5, 2.5, 200.0), strict=True)):
        x = ties(scale, seed=at)
        grad = np.random.default_rng(at).normal(size=x.shape).astype(np.float32)
        parameters = np.float32([scale]), np.float32([zero])
        same_bits(name, [x, *parameters], rest, backend, space=ATEN)
        same_bits(f"{name}_backward", [grad, x, *parameters], rest, backend, space=ATEN, close=2)
    name = "_fake_quantize_learnable_per_channel_affine"
    scales, zeros = np.float32(SCALES), np.float32([0, 3.5, -7.3, 100.1, -2.5])
    x = np.stack([ties(scale, 99, seed=at) for at, scale in enumerate(SCALES)])
    grad = np.random.default_rng(0).normal(size=x.shape).astype(np.float32)
    same_bits(name, [x, scales, zeros], [0, *rest], backend, space=ATEN)
    same_bits(f"{name}_backward", [grad, x, scales, zeros], [0, *rest], backend, space=ATEN, close=2)
    # With one number in each channel the sums are exact, too.
    parts = np.broadcast_arrays(grad, x, scales[:, None], zeros[:, None])
    many = [np.ascontiguousarray(part.reshape(-1, 1) if at < 2 else part.reshape(-1)) for at, part in enumerate(parts)]
    same_bits(f"{name}_backward", many, [0, *rest], backend, space=ATEN)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("by_row", [False, True])
def test_moving_average(by_row: bool, symmetric: bool, backend: str) -> None:
    rows = 6 if by_row else 1
    parameters = np.ones(rows, np.float32), np.zeros(rows, np.int32)
    for seed in range(16):
        random = np.random.default_rng(seed)
        x = (random.normal(random.normal(), 1, (6, 35)) * 10.0 ** random.integers(-7, 3)).astype(np.float32)
        x = abs(x) * (-1) ** seed if seed % 3 == 0 else x
        ends = sorted([np.float32(x.min() * 0.9), np.float32(x.max() * 1.1)]) if seed % 4 else [np.inf, -np.inf]
        low, high = (np.full(rows, end, np.float32) for end in ends)
        switches = np.int64([seed % 5 != 1]), np.int64([seed % 7 != 2])
        rest = 0.01, *((-128, 127) if seed % 2 else (0, 255)), 0, by_row, symmetric
        name = "_fused_moving_avg_obs_fq_helper_functional"
        same_bits(name, [x, *switches, low, high, *parameters], rest, backend, space=ATEN)


def test_gradients_pass_where_the_number_is_in_range() -> None:
    x = ties(0.1)
    grad = np.random.default_rng(0).normal(size=x.shape).astype(np.float32)
    leaf = to_torch(x).requires_grad_()
    known = torch.autograd.grad(torch.fake_quantize_per_tensor_affine(leaf, 0.1, 3, -128, 127), leaf, to_torch(grad))[0]

    def loss(x: Any) -> Any:
        return (ops.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127) * grad).sum()

    np.testing.assert_array_equal(smelt.jit(smelt.grad(loss))(x), from_torch(known))


@pytest.mark.parametrize("by_channel", [False, True])
def test_forward_mode_of_the_learnable_ops_is_the_transpose_of_reverse_mode(by_channel: bool) -> None:
    count = 7 if by_channel else 1
    random = np.random.default_rng(0)
    arrays = [(random.normal(size=shape) * 3).astype(np.float32) for shape in ((7, 9), (7, 9), (7, 9), count, count)]
    grad, x, x_tangent, scale_tangent, zero_tangent = arrays
    scale, zero = np.full(count, 0.05, np.float32), np.full(count, 3.2, np.float32)

    def run(x: Any, scale: Any, zero: Any) -> Any:
        if by_channel:
            return ops._fake_quantize_learnable_per_channel_affine(x, scale, zero, 0, -64, 63, 0.7)
        return ops._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -64, 63, 0.7)

    tangents = x_tangent, scale_tangent, zero_tangent
    forward = smelt.jvp(run, (x, scale, zero), tangents)[1]
    gradients = smelt.grad(lambda *given: (run(*given) * grad).sum(), argnums=(0, 1, 2))(x, scale, zero)
    known = sum(float((np.float64(a) * b).sum()) for a, b in zip(gradients, tangents, strict=True))
    np.testing.assert_allclose(float((np.float64(forward) * grad).sum()), known, rtol=1e-5)


@pytest.mark.parametrize("left", [np.int8, np.uint8])
def test_integer_products_are_exact(left: type) -> None:
    """At odd sizes, and for the largest sums: f32 holds each sum of 1024 products of -128, but not of 1025."""
    random = np.random.default_rng(0)
    run = smelt.jit(ops._int_mm)
    for rows, depth, columns in ((1, 1, 1), (37, 65, 19), (3, 1024, 5), (7, 1025, 9), (5, 2600, 3), (4, 0, 3)):
        low, high = np.iinfo(left).min, np.iinfo(left).max
        for a, b in (
            (random.integers(low, high, (rows, depth), endpoint=True), random.integers(-128, 128, (depth, columns))),
            (np.full((rows, depth), low or high), np.full((depth, columns), -128)),
            (np.full((rows, depth), high), np.where(np.arange(depth)[:, None] % 7, -127, 127) * np.ones(columns)),
        ):
            a, b = a.astype(left), b.astype(np.int8)
            np.testing.assert_array_equal(run(a, b), a.astype(np.int32) @ b.astype(np.int32))


def test_errors() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(ArgumentError, match="quant_max is 300, but u8 goes from 0 to 255"):
        ops.quantize_per_tensor(x, 0.1, 0, 0, 300, DTYPES["u8"])
    with pytest.raises(ArgumentError, match="scale is 0"):
        ops.quantize_per_tensor(x, 0.0, 0, 0, 255, DTYPES["u8"])
    with pytest.raises(DTypeError, match="input is f64"):
        ops.quantize_per_tensor(x.astype(np.float64), 0.1, 0, 0, 255, DTYPES["u8"])
    with pytest.raises(DTypeError, match="input is f32, expected u8"):
        ops.dequantize_per_tensor(x, 0.1, 0, 0, 255, DTYPES["u8"])
    with pytest.raises(ArgumentError, match="zero_point is 300, expected -128 to 127"):
        ops.fake_quantize_per_tensor_affine(x, 0.1, 300, -128, 127)
