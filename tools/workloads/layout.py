"""Data movement: transposes, joins, neighbours, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .define import Array, Draw, Function, Names, sizes, workload
from .pointwise import two

SQUARE = sizes(tiny=(5,), small=(64,), medium=(512,), large=(2048,))


def square_inputs(draw: Draw, size: int) -> Sequence[Array]:
    return [draw.normal(size, size), draw.normal(size, size)]


@workload("transpose", square_inputs, SQUARE)
def transpose_add(xp: Names, x: Array, y: Array) -> Array:
    """x.T + y."""
    return x.T + y


@transpose_add.by_numba
def transpose_add_numba(numba: Any) -> Function:
    @numba.njit(parallel=True, fastmath=True)
    def transpose_add(x: Array, y: Array) -> Array:
        size = x.shape[0]
        result = np.empty_like(x)
        for block in numba.prange((size + 31) // 32):
            for start in range(0, size, 32):
                for i in range(block * 32, min(block * 32 + 32, size)):
                    for j in range(start, min(start + 32, size)):
                        result[i, j] = x[j, i] + y[i, j]
        return result

    return transpose_add


def head_inputs(draw: Draw, batch: int, length: int, heads: int, width: int) -> Sequence[Array]:
    return [draw.normal(batch, length, heads, width)]


@workload(
    "transpose",
    head_inputs,
    sizes(tiny=(2, 3, 2, 4), small=(1, 32, 4, 16), medium=(2, 128, 8, 64), large=(8, 512, 12, 64)),
)
def split_heads(xp: Names, x: Array) -> Array:
    """The heads of attention moved before the positions, scaled."""
    return xp.permute(x, (0, 2, 1, 3)) * 0.125


def image_inputs(draw: Draw, batch: int, channels: int, size: int) -> Sequence[Array]:
    return [draw.normal(batch, channels, size, size), draw.normal(channels)]


@workload("transpose", image_inputs, sizes(tiny=(2, 3, 4), small=(1, 16, 8), medium=(4, 64, 28), large=(16, 64, 56)))
def channels_last(xp: Names, images: Array, bias: Array) -> Array:
    """Images with their channels moved to the end, plus a number for each channel."""
    return xp.permute(images, (0, 2, 3, 1)) + bias


@workload("transpose", square_inputs, SQUARE)
def transposed_softmax(xp: Names, x: Array, y: Array) -> Array:
    """Softmax of the rows of x.T + y."""
    return xp.softmax(x.T + y, -1)


@workload("transpose", two, sizes(tiny=(3, 4), small=(32, 64), medium=(256, 512), large=(2048, 1024)))
def joined_columns(xp: Names, x: Array, y: Array) -> Array:
    """relu of x, y and x * y side by side."""
    return xp.relu(xp.cat([x, y, x * y], -1))


def field_inputs(draw: Draw, size: int) -> Sequence[Array]:
    return [draw.normal(size, size)]


@workload("transpose", field_inputs, SQUARE)
def heat_step(xp: Names, field: Array) -> Array:
    """One step of the heat equation inside of a square: five neighbours by slices."""
    inner = field[1:-1, 1:-1]
    around = field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]
    return inner + 0.1 * (around - 4.0 * inner)


@heat_step.by_numba
def heat_step_numba(numba: Any) -> Function:
    @numba.njit(parallel=True, fastmath=True)
    def heat_step(field: Array) -> Array:
        rows, columns = field.shape
        result = np.empty((rows - 2, columns - 2), field.dtype)
        four, tenth = field.dtype.type(4), field.dtype.type(0.1)
        for i in numba.prange(rows - 2):
            for j in range(columns - 2):
                inner = field[i + 1, j + 1]
                around = field[i, j + 1] + field[i + 2, j + 1] + field[i + 1, j] + field[i + 1, j + 2]
                result[i, j] = inner + tenth * (around - four * inner)
        return result

    return heat_step


@workload("transpose", field_inputs, SQUARE)
def periodic_step(xp: Names, field: Array) -> Array:
    """The same on a torus: neighbours by rolling."""
    across = xp.roll(field, 1, 0) + xp.roll(field, -1, 0)
    along = xp.roll(field, 1, 1) + xp.roll(field, -1, 1)
    return field + 0.1 * (across + along - 4.0 * field)


def table_inputs(draw: Draw, count: int, rows: int, width: int) -> Sequence[Array]:
    return [draw.normal(rows, width), draw.integers(rows, count)]


TABLE = sizes(tiny=(6, 10, 4), small=(64, 1000, 32), medium=(1024, 8000, 256), large=(4096, 32000, 768))


@workload("gather", table_inputs, TABLE)
def embedding(xp: Names, table: Array, index: Array) -> Array:
    """Rows of a table."""
    return xp.embedding(table, index)


def bag_inputs(draw: Draw, count: int, rows: int, width: int) -> Sequence[Array]:
    return [draw.normal(rows, width), draw.integers(rows, count), np.arange(0, count, 16)]


BAGS = sizes(tiny=(32, 10, 4), small=(256, 1000, 32), medium=(8192, 20_000, 128), large=(65_536, 200_000, 128))


@workload("embedding_bag", bag_inputs, BAGS)
def embedding_bag(xp: Names, table: Array, index: Array, offsets: Array) -> Array:
    """Sums of 16 rows of a table."""
    return xp.embedding_bag(table, index, offsets)


@workload("embedding_bag", bag_inputs, BAGS, has_numpy=False)
def embedding_bag_training(xp: Names, table: Array, index: Array, offsets: Array) -> Array:
    """The gradient of a norm of such sums by the table."""

    def total(table: Array) -> Array:
        bags = xp.embedding_bag(table, index, offsets)
        return xp.sum(bags * bags)

    return xp.value_and_grad(total)(table)


def position_inputs(draw: Draw, count: int, rows: int, width: int) -> Sequence[Array]:
    return [draw.normal(rows, width), draw.integers(rows, count), draw.normal(count, width), draw.normal(width)]


@workload("gather", position_inputs, TABLE)
def embedding_norm(xp: Names, table: Array, index: Array, places: Array, weight: Array) -> Array:
    """Rows of a table, scaled, plus positions, normalised."""
    return xp.rms_norm(xp.embedding(table, index) * 8.0 + places, weight)


@workload("gather", position_inputs, TABLE, has_numpy=False)
def embedding_training(xp: Names, table: Array, index: Array, places: Array, weight: Array) -> Array:
    """The gradient of a sum of looked up rows by the table."""

    def total(table: Array) -> Array:
        return xp.sum(xp.embedding(table, index) * places * weight)

    return xp.value_and_grad(total)(table)


def chosen_inputs(draw: Draw, rows: int, columns: int) -> Sequence[Array]:
    return [draw.normal(rows, columns), draw.integers(columns, rows, columns)]


@workload("gather", chosen_inputs, sizes(tiny=(3, 4), small=(32, 64), medium=(256, 512), large=(2048, 1024)))
def gather_rows(xp: Names, x: Array, index: Array) -> Array:
    """Elements of each row by number, squared."""
    chosen = xp.gather(x, 1, index)
    return chosen * chosen


def add_inputs(draw: Draw, count: int, rows: int, width: int) -> Sequence[Array]:
    return [draw.normal(rows, width), draw.integers(rows, count), draw.normal(count, width)]


@workload(
    "gather", add_inputs, sizes(tiny=(6, 4, 3), small=(64, 32, 32), medium=(2048, 512, 128), large=(16384, 2048, 256))
)
def index_add(xp: Names, total: Array, index: Array, source: Array) -> Array:
    """Rows added to rows of a table, by number."""
    return xp.index_add(total, 0, index, source)


def graph_inputs(draw: Draw, nodes: int, edges: int, width: int) -> Sequence[Array]:
    return [draw.normal(nodes, width), draw.integers(nodes, edges), draw.integers(nodes, edges), draw.normal(edges, 1)]


@workload(
    "gather",
    graph_inputs,
    sizes(tiny=(5, 9, 3), small=(64, 256, 16), medium=(1000, 8000, 64), large=(10000, 80000, 128)),
)
def graph_message(xp: Names, nodes: Array, sources: Array, targets: Array, weights: Array) -> Array:
    """One round of messages along the edges of a graph: gather, scale, add up at the targets."""
    messages = xp.embedding(nodes, sources) * weights
    return xp.relu(xp.index_add(xp.zeros_like(nodes), 0, targets, messages))
