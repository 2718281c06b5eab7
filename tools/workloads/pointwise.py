"""Elementwise work: light and heavy chains, activations, broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .define import Array, Draw, Function, Names, sizes, workload

LONG = sizes(tiny=(37,), small=(4096,), medium=(1 << 18,), large=(1 << 22,))
MATRIX = sizes(tiny=(3, 5), small=(32, 64), medium=(256, 1024), large=(4096, 1024))


def one(draw: Draw, *shape: int) -> Sequence[Array]:
    return [draw.normal(*shape)]


def two(draw: Draw, *shape: int) -> Sequence[Array]:
    return [draw.normal(*shape), draw.normal(*shape)]


def three(draw: Draw, *shape: int) -> Sequence[Array]:
    return [draw.normal(*shape), draw.normal(*shape), draw.normal(*shape)]


def with_bias(draw: Draw, rows: int, columns: int) -> Sequence[Array]:
    return [draw.normal(rows, columns), draw.normal(columns)]


@workload("pointwise", one, LONG)
def heavy_chain(xp: Names, x: Array) -> Array:
    """tanh(x) * sigmoid(x) + sin(x) * exp(x)."""
    return xp.tanh(x) * xp.sigmoid(x) + xp.sin(x) * xp.exp(x)


@heavy_chain.by_numba
def heavy_chain_numba(numba: Any) -> Function:
    @numba.njit(parallel=True, fastmath=True)
    def heavy_chain(x: Array) -> Array:
        result = np.empty_like(x)
        for i in numba.prange(x.size):
            bent = x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x[i]))
            result[i] = np.tanh(x[i]) * bent + np.sin(x[i]) * np.exp(x[i])
        return result

    return heavy_chain


@workload("pointwise", three, LONG)
def light_chain(xp: Names, x: Array, y: Array, z: Array) -> Array:
    """relu(x * y + z) / 2."""
    return xp.relu(x * y + z) / 2


@light_chain.by_numba
def light_chain_numba(numba: Any) -> Function:
    @numba.njit(parallel=True, fastmath=True)
    def light_chain(x: Array, y: Array, z: Array) -> Array:
        result = np.empty_like(x)
        half = x.dtype.type(0.5)
        for i in numba.prange(x.size):
            result[i] = max(x[i] * y[i] + z[i], x.dtype.type(0)) * half
        return result

    return light_chain


@workload("pointwise", two, LONG)
def scaled_sum(xp: Names, x: Array, y: Array) -> Array:
    """2.5 * x + y: nothing but memory."""
    return 2.5 * x + y


@scaled_sum.by_numba
def scaled_sum_numba(numba: Any) -> Function:
    @numba.njit(parallel=True, fastmath=True)
    def scaled_sum(x: Array, y: Array) -> Array:
        result = np.empty_like(x)
        factor = x.dtype.type(2.5)
        for i in numba.prange(x.size):
            result[i] = factor * x[i] + y[i]
        return result

    return scaled_sum


@workload("pointwise", one, LONG)
def polynomial(xp: Names, x: Array) -> Array:
    """A polynomial of degree 12 by Horner's rule."""
    total = x * 0.01 + 0.5
    for power in range(11):
        total = total * x + 1.0 / (power + 1)
    return total


@workload("pointwise", two, LONG)
def branches(xp: Names, x: Array, y: Array) -> Array:
    """sqrt(|x|) where x > y, else log(1 + exp(y)), clamped."""
    return xp.clamp(xp.where(x > y, xp.sqrt(xp.abs(x)), xp.log1p(xp.exp(y))), 0.1, 1.5)


@workload("pointwise", two, LONG)
def several_results(xp: Names, x: Array, y: Array) -> Array:
    """Radius, its square, and the cosine and sine of the direction: four results of one loop."""
    square = x * x + y * y
    radius = xp.sqrt(square + 1e-6)
    return radius, square, x / radius, y / radius


def outer_inputs(draw: Draw, rows: int, columns: int) -> Sequence[Array]:
    return [draw.normal(rows), draw.normal(columns), draw.normal(rows, columns)]


@workload("pointwise", outer_inputs, MATRIX)
def outer_broadcast(xp: Names, x: Array, y: Array, z: Array) -> Array:
    """exp(-(x[:, None] - y[None, :])**2) * z."""
    difference = x[:, None] - y[None, :]
    return xp.exp(-(difference * difference)) * z


@workload("activation", with_bias, MATRIX)
def gelu_bias(xp: Names, x: Array, bias: Array) -> Array:
    """gelu(x + bias), with erf."""
    return xp.gelu(x + bias)


@workload("activation", with_bias, MATRIX)
def gelu_tanh_bias(xp: Names, x: Array, bias: Array) -> Array:
    """gelu(x + bias), with tanh."""
    return xp.gelu(x + bias, approximate="tanh")


@workload("activation", two, MATRIX)
def silu_gate(xp: Names, x: Array, gate: Array) -> Array:
    """silu(gate) * x."""
    return xp.silu(gate) * x


@workload("activation", one, MATRIX)
def mish(xp: Names, x: Array) -> Array:
    """x * tanh(log(1 + exp(x)))."""
    return xp.mish(x)


@workload("activation", two, MATRIX, has_numpy=False)
def gelu_training(xp: Names, x: Array, weight: Array) -> Array:
    """The sum of gelu(x) * weight, and its gradient by x."""

    def total(x: Array) -> Array:
        return xp.sum(xp.gelu(x) * weight)

    return xp.value_and_grad(total)(x)
