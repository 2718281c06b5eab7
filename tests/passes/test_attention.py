"""What follows whole rows of a product, and products of such rows: one kernel, no scores in memory, same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.kernels.gemm import TILING, RegisterTile, row_tile
from smelt.kernels.machine import DEFAULT
from support import evaluate, flatten, trace

SIZES = [  # batch, heads, queries, keys, features, features of values
    (2, 3, 5, 7, 4, 6),
    (1, 2, 300, 130, 32, 40),  # several tiles of rows, the last one shorter
    (1, 1, 40, 1500, 16, 8),
    (2, 2, 129, 70, 33, 17),
    (1, 2, 1, 50, 16, 16),
    (1, 2, 50, 50, 16, 1),
]
MASKS = ("none", "causal", "bool", "added", "heads")


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def masked(kind: str, sizes: tuple[int, ...]) -> tuple[dict[str, Any], np.ndarray]:
    """Arguments of attention, and what is added to the scores."""
    batch, heads, queries, keys, *_ = sizes
    if kind == "causal":
        return {"is_causal": True}, np.where(np.tri(queries, keys, dtype=bool), 0.0, -np.inf)
    if kind == "bool":
        mask = np.random.default_rng(3).random((batch, 1, queries, keys)) < 0.7
        mask[0, 0, 0] = False  # a row without keys gives zeros
        return {"attn_mask": mask}, np.where(mask, 0.0, -np.inf)
    if kind in ("added", "heads"):
        mask = floats(queries, keys) if kind == "added" else floats(batch, heads, 1, keys)
        return {"attn_mask": mask}, mask
    return {}, np.zeros(())


def exact_attention(query: Any, key: Any, value: Any, added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    query, key, value = (item.astype(np.longdouble) for item in (query, key, value))
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1]) + added
    powers = np.exp(scores)
    mass = powers.sum(-1, keepdims=True)
    mass = np.where(mass == 0, 1, mass)
    return (powers / mass) @ value, np.log(mass)[..., 0]


def attend(*operands: Any, is_causal: bool = False) -> Any:
    query, key, value, *mask = operands
    return ops._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, is_causal=is_causal, attn_mask=mask[0] if mask else None
    )


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention(sizes: tuple[int, ...], mask: str) -> None:
    batch, heads, queries, keys, features, columns = sizes
    options, added = masked(mask, sizes)
    causal = "is_causal" in options
    for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-13)):
        query, key = floats(batch, heads, queries, features), floats(batch, heads, keys, features, seed=1)
        arrays = [item.astype(dtype) for item in (query, key, floats(batch, heads, keys, columns, seed=2))]
        extra = options.get("attn_mask")
        if extra is not None:
            arrays.append(extra if extra.dtype == bool else extra.astype(dtype))
        wanted = exact_attention(*arrays[:3], added)
        for bits in (256, 512):
            program = compile_graph(
                trace(lambda *items: attend(*items, is_causal=causal), arrays),
                CompileOptions(vector_bits=bits, verify=True),
            )
            for got, want in zip(program(arrays), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_matrices_without_heads() -> None:
    arrays = [floats(*shape, seed=seed).astype(np.float64) for seed, shape in enumerate(((5, 8), (7, 8), (7, 3)))]

    def program(*items: Any) -> Any:
        return ops.scaled_dot_product_attention(*items).sum()

    found = smelt.value_and_grad(program, (0, 1, 2))(*arrays)
    wanted = smelt.value_and_grad(program, (0, 1, 2))(*(item[None, None] for item in arrays))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-13)
    for got, known in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(got, known[0, 0], rtol=1e-12, atol=1e-15)


def test_scores_are_not_in_memory() -> None:
    arrays = [floats(2, 4, 200, 24, seed=seed) for seed in range(3)]
    stages: dict[str, Any] = {}
    compile_graph(trace(lambda *items: attend(*items, is_causal=True), arrays), on_stage=stages.__setitem__)
    (kernel,) = stages["loops"]
    assert max(math.prod(buffer.shape) for buffer in kernel.buffers) == arrays[0].size


def test_the_same_bits_for_any_number_of_threads() -> None:
    arrays = [floats(2, 3, 300, 40, seed=seed) for seed in range(3)]
    program = smelt.jit(attend)
    results = []
    for count in (1, 2, 3, 7):
        with smelt.threads(count):
            results.append(program(*arrays))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_open_sizes() -> None:
    program = smelt.jit(lambda *items: attend(*items)[0])
    for queries, keys in ((70, 50), (300, 90), (9, 700), (2, 2)):
        arrays = [floats(2, 2, rows, 16, seed=seed) for seed, rows in enumerate((queries, keys, keys))]
        want, _ = exact_attention(*arrays, np.zeros(()))
        np.testing.assert_allclose(program(*arrays), want, rtol=1e-5, atol=1e-5)
        assert len(program.report().kernels) == 1


def test_heads_of_open_sizes_are_shared_out() -> None:
    """Heads that go back to where they were taken from: which of them a tile stores is no secret."""

    def attend_heads(x: Any) -> Any:
        batch, rows, _ = x.shape
        parts = [ops.transpose(part.reshape(batch, rows, 4, 16), 1, 2) for part in ops.chunk(x, 3, 2)]
        found = ops.transpose(ops.scaled_dot_product_attention(*parts), 1, 2)
        return found.reshape(batch, rows, 64)

    program = smelt.jit(attend_heads)
    for batch, rows in ((2, 70), (3, 300), (5, 33)):
        x = floats(batch, rows, 192)
        heads = np.moveaxis(x.reshape(batch, rows, 3, 4, 16), (2, 3), (0, 2))
        want, _ = exact_attention(*heads, np.zeros(()))
        np.testing.assert_allclose(program(x), np.moveaxis(want, 1, 2).reshape(x.shape[0], rows, 64), 1e-5, 1e-5)
    assert all(isinstance(kernel.pieces, str) for kernel in program.report().kernels)  # of a number that sizes decide


X, W, B = floats(200, 60), floats(60, 130, seed=1) / 8, floats(130, seed=2)

ROWS_OF_PRODUCTS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, w, b: ops.softmax(x @ w, 1),
    "softmax of a sum": lambda x, w, b: ops.log_softmax(x @ w + b, 1),
    "norm": lambda x, w, b: ops.layer_norm(x @ w + b, (130,)),
    "sums and the product": lambda x, w, b: (x @ w, (x @ w + b).sum(1), ops.exp(x @ w)),
    "product of a product": lambda x, w, b: ops.tanh(x @ w) @ ops.transpose(w, 0, 1),
    "product of a product as it is": lambda x, w, b: (x @ w) @ ops.transpose(w, 0, 1) + 1.0,
    "and its sums": lambda x, w, b: ((x @ w) @ ops.transpose(w, 0, 1), (x @ w).sum(1)),
    "both products are results": lambda x, w, b: (x @ w, ops.relu(x @ w) @ ops.transpose(w, 0, 1)),
    "softmax twice": lambda x, w, b: ops.softmax(ops.softmax(x @ w, 1) @ ops.transpose(w, 0, 1), 1),
    # The weights are made in one loop over the row, and the last result in a later one, from the same tile.
    "a tile that is needed longer": lambda x, w, b: (
        ops.exp(x @ w) @ ops.transpose(w, 0, 1),
        ops.softmax(ops.tanh(x @ w), 1),
    ),
    "the largest of what is multiplied": lambda x, w, b: (
        ops.exp(x @ w) @ ops.transpose(w, 0, 1),
        ops.amax(ops.sin(x @ w), 1),
    ),
}


@pytest.mark.parametrize("name", ROWS_OF_PRODUCTS)
def test_one_kernel(name: str) -> None:
    program = smelt.jit(ROWS_OF_PRODUCTS[name])
    results = program(X, W, B)
    assert len(program.report().kernels) == 1, str(program.report())
    check(ROWS_OF_PRODUCTS[name], results)


APART: dict[str, tuple[Callable[..., Any], str]] = {
    "the matrix is a result": (
        lambda x, w, b: (soft := ops.softmax(x @ w, 1), soft @ ops.transpose(w, 0, 1)),
        "needed in memory all the same",
    ),
    "both factors": (lambda x, w, b: (y := ops.tanh(x @ w)) @ ops.transpose(y, 0, 1), "more of the first"),
    "on the right": (lambda x, w, b: w @ (x[:130] @ w), "kernel of its own"),
    "transposed": (lambda x, w, b: ops.transpose(ops.tanh(x @ w), 0, 1) @ x, "stored across memory"),
    "from the last row on": (lambda x, w, b: ops.flip(ops.softmax(x @ w, 1), (0,)) @ w.reshape((130, 60)), "at other"),
    "rows of another product": (
        lambda x, w, b: ops.tanh(x @ w).reshape((100, 260)) @ ops.cat([w.reshape((130, 60))] * 2, 0),
        "does not read the matrix product",
    ),
    "needed afterwards": (
        lambda x, w, b: (y := ops.tanh(x @ w)) @ w.reshape((130, 60)) * y[:, :60],
        "needed in memory all the same",
    ),
    "a result of the first in between": (
        lambda x, w, b: (y := x @ w) @ (ops.cumsum(y, 0)[:130] @ ops.transpose(w, 0, 1)),
        "kernel of its own",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_products_that_stay_apart(name: str) -> None:
    function, refusal = APART[name]
    program = smelt.jit(function)
    results = program(X, W, B)
    assert any(refusal in reason for reason in program.report().refusals), program.report().refusals
    check(function, results)


def check(function: Callable[..., Any], results: Any) -> None:
    """The same as the interpreter has in f64."""
    wide = [item.astype(np.float64) for item in (X, W, B)]
    for got, want in zip(flatten(results), evaluate(function, wide, "interp"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_tiles_of_whole_rows(bits: int, is_left: bool) -> None:
    for dtype in ("f32", "f64"):
        unit = RegisterTile(dtype, DEFAULT.with_vector_bits(bits))
        for batch, rows, columns in ((1, 1, 1), (64, 128, 128), (1, 1024, 1024), (4, 100, 4096), (1, 7, 5)):
            height = row_tile(batch, rows, columns, 64, unit, is_left)
            assert height % unit.rows == 0 and unit.rows <= height <= TILING.block_rows + unit.rows
            nbytes = height * columns * unit.bytes
            small = unit.machine.l1 * 3 // 4
            assert not is_left or nbytes <= small or TILING.small_rows * columns * unit.bytes > small


def test_heads_are_stored_side_by_side_for_what_multiplies_them() -> None:
    """The projection behind attention reads the heads of a token as one row: no kernel brings them together."""
    query, key, value = (floats(2, 4, 33, 16, seed=seed) for seed in range(3))
    weight = floats(64, 24, seed=3)

    def project(query: Any, key: Any, value: Any, weight: Any) -> Any:
        heads, _ = attend(query, key, value)
        return ops.permute(heads, (0, 2, 1, 3)).reshape(2 * 33, 64) @ weight

    stages: dict[str, Any] = {}
    compile_graph(trace(project, (query, key, value, weight)), on_stage=stages.__setitem__)
    assert len(stages["loops"]) == 2
    heads, _ = exact_attention(query, key, value, np.zeros(()))
    expected = heads.transpose(0, 2, 1, 3).reshape(2 * 33, 64) @ weight.astype(np.longdouble)
    np.testing.assert_allclose(smelt.jit(project)(query, key, value, weight), expected, rtol=1e-5, atol=1e-5)
