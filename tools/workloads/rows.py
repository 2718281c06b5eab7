"""Softmaxes and norms: each row is read, reduced and written again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .define import Array, Draw, Function, Names, sizes, workload
from .pointwise import MATRIX, one, two

IMAGES = sizes(tiny=(2, 4, 3, 3), small=(4, 8, 8, 8), medium=(8, 32, 28, 28), large=(16, 64, 56, 56))


@workload("softmax", one, MATRIX)
def softmax_rows(xp: Names, x: Array) -> Array:
    """Softmax of each row."""
    return xp.softmax(x, -1)


@softmax_rows.by_numba
def softmax_rows_numba(numba: Any) -> Function:
    @numba.njit(parallel=True, fastmath=True)
    def softmax_rows(x: Array) -> Array:
        result = np.empty_like(x)
        for i in numba.prange(x.shape[0]):
            largest = x[i, 0]
            for j in range(x.shape[1]):
                largest = max(largest, x[i, j])
            total = x.dtype.type(0)
            for j in range(x.shape[1]):
                result[i, j] = np.exp(x[i, j] - largest)
                total += result[i, j]
            for j in range(x.shape[1]):
                result[i, j] /= total
        return result

    return softmax_rows


@workload("softmax", one, MATRIX)
def log_softmax_rows(xp: Names, x: Array) -> Array:
    """Logarithm of the softmax of each row."""
    return xp.log_softmax(x, -1)


@workload("softmax", one, MATRIX)
def softmax_columns(xp: Names, x: Array) -> Array:
    """Softmax of each column."""
    return xp.softmax(x, 0)


def score_inputs(draw: Draw, batch: int, heads: int, length: int) -> Sequence[Array]:
    return [draw.normal(batch, heads, length, length), draw.mask(batch, 1, 1, length)]


@workload("softmax", score_inputs, sizes(tiny=(1, 2, 4), small=(1, 4, 32), medium=(2, 8, 128), large=(8, 8, 256)))
def masked_softmax(xp: Names, scores: Array, mask: Array) -> Array:
    """Attention weights: scaled scores, some of them masked, and their softmax."""
    return xp.softmax(xp.where(mask, scores / math.sqrt(64.0), -1e9), -1)


@workload("softmax", two, MATRIX, has_numpy=False)
def softmax_training(xp: Names, x: Array, weight: Array) -> Array:
    """The sum of softmax(x) * weight, and its gradient by x."""

    def total(x: Array) -> Array:
        return xp.sum(xp.softmax(x, -1) * weight)

    return xp.value_and_grad(total)(x)


def norm_inputs(draw: Draw, rows: int, columns: int) -> Sequence[Array]:
    return [draw.normal(rows, columns), draw.normal(columns), draw.normal(columns)]


def residual_inputs(draw: Draw, rows: int, columns: int) -> Sequence[Array]:
    return [draw.normal(rows, columns), draw.normal(rows, columns), draw.normal(columns), draw.normal(columns)]


def weight_inputs(draw: Draw, rows: int, columns: int) -> Sequence[Array]:
    return [draw.normal(rows, columns), draw.normal(columns)]


def image_inputs(draw: Draw, batch: int, channels: int, height: int, width: int) -> Sequence[Array]:
    return [draw.normal(batch, channels, height, width), draw.normal(channels), draw.normal(channels)]


@workload("norm", norm_inputs, MATRIX)
def layer_norm(xp: Names, x: Array, weight: Array, bias: Array) -> Array:
    """Layer norm of each row."""
    return xp.layer_norm(x, weight, bias)


@workload("norm", residual_inputs, MATRIX)
def residual_norm_gelu(xp: Names, x: Array, residual: Array, weight: Array, bias: Array) -> Array:
    """gelu(layer_norm(x + residual))."""
    return xp.gelu(xp.layer_norm(x + residual, weight, bias))


@workload("norm", weight_inputs, MATRIX)
def rms_norm(xp: Names, x: Array, weight: Array) -> Array:
    """x / sqrt(mean(x * x)) * weight of each row."""
    return xp.rms_norm(x, weight)


@workload("norm", norm_inputs, MATRIX, has_numpy=False)
def layer_norm_training(xp: Names, x: Array, weight: Array, bias: Array) -> Array:
    """The sum of squares of layer_norm(x), and its gradient by x, weight and bias."""

    def total(inputs: tuple[Array, Array, Array]) -> Array:
        normal = xp.layer_norm(*inputs)
        return xp.sum(normal * normal * normal)

    return xp.value_and_grad(total)((x, weight, bias))


@workload("norm", image_inputs, IMAGES)
def batch_norm_relu(xp: Names, x: Array, weight: Array, bias: Array) -> Array:
    """relu(batch_norm(x)) with the statistics of the batch."""
    return xp.relu(xp.batch_norm(x, weight, bias))


@workload("norm", image_inputs, IMAGES, has_numpy=False)
def batch_norm_relu_training(xp: Names, x: Array, weight: Array, bias: Array) -> Array:
    """relu(batch_norm(x)), summed with its square, and the gradient by x, weight and bias."""

    def total(inputs: tuple[Array, Array, Array]) -> Array:
        active = xp.relu(xp.batch_norm(*inputs))
        return xp.sum(active * active)

    return xp.value_and_grad(total)((x, weight, bias))


@workload("norm", image_inputs, IMAGES)
def group_norm_silu(xp: Names, x: Array, weight: Array, bias: Array) -> Array:
    """silu(group_norm(x)) with groups of a quarter of the channels."""
    return xp.silu(xp.group_norm(x, 4, weight, bias))
