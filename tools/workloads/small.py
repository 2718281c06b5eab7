"""Small programs: the cost of a call, and of many kernels. The sizes grow slowly on purpose."""

from __future__ import annotations

from collections.abc import Sequence

from .define import Array, Draw, Names, sizes, workload
from .pointwise import three

CALL = sizes(tiny=(3, 5), small=(8, 8), medium=(64, 64), large=(128, 128))


@workload("small", three, CALL)
def small_pointwise(xp: Names, x: Array, y: Array, z: Array) -> Array:
    """tanh(x * y + z): the whole call."""
    return xp.tanh(x * y + z)


def square_inputs(draw: Draw, size: int) -> Sequence[Array]:
    return [draw.normal(size, size), draw.normal(size, size, scale=size**-0.5), draw.normal(size)]


SQUARE = sizes(tiny=(3,), small=(8,), medium=(32,), large=(64,))


@workload("small", square_inputs, SQUARE)
def many_kernels(xp: Names, x: Array, weight: Array, bias: Array) -> Array:
    """Eight rounds of softmax, product, bias and tanh: kernels that cannot be one."""
    for _ in range(8):
        x = xp.tanh(xp.softmax(x, -1) @ weight + bias)
    return x


@workload("small", square_inputs, SQUARE)
def many_reductions(xp: Names, x: Array, weight: Array, bias: Array) -> Array:
    """Twelve rounds of centring along one axis and then the other."""
    for number in range(12):
        x = x - xp.mean(x, number % 2, keepdim=True) + 0.1 * bias
    return x


def root_inputs(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(0.5, 3.0, count)]


@workload("small", root_inputs, sizes(tiny=(3,), small=(16,), medium=(256,), large=(4096,)), dtype="f64")
def newton_roots(xp: Names, target: Array) -> Array:
    """Ten steps of Newton's method for x + exp(x) = target."""
    x = target * 0.0
    for _ in range(10):
        power = xp.exp(x)
        x = x - (x + power - target) / (1.0 + power)
    return x


def cell_inputs(draw: Draw, batch: int, width: int) -> Sequence[Array]:
    return [
        draw.normal(4, batch, width),
        draw.normal(batch, width),
        draw.normal(batch, width),
        draw.normal(2 * width, 4 * width, scale=(2 * width) ** -0.5),
        draw.normal(4 * width),
    ]


@workload("small", cell_inputs, sizes(tiny=(2, 3), small=(4, 8), medium=(8, 32), large=(16, 128)))
def lstm_cells(xp: Names, x: Array, hidden: Array, cell: Array, weight: Array, bias: Array) -> Array:
    """Four steps of an LSTM."""
    width = hidden.shape[1]
    for step in range(4):
        gates = xp.cat([x[step], hidden], -1) @ weight + bias
        keep, take, give = (xp.sigmoid(gates[:, at * width : (at + 1) * width]) for at in range(3))
        cell = keep * cell + take * xp.tanh(gates[:, 3 * width :])
        hidden = give * xp.tanh(cell)
    return hidden, cell
