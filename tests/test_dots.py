"""Matrix products by dot products: few rows times a transposed matrix. Nothing is packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.ir.parser import parse_graph
from smelt.ir.symbolic import evaluate
from smelt.kernels.gemm import DOT_DEPTH, LEAST_DOT_DEPTH, MOST_DOT_ROWS, DotTile, is_dots
from smelt.kernels.loop_ir import Gemm, Loop, Pack, walk
from support import trace

BITS = (128, 256, 512)
DTYPES = {"f32": np.float32, "f64": np.float64}
SIZES = [
    (2, 2, LEAST_DOT_DEPTH),
    (4, 6, 256),  # one register tile
    (3, 5, 257),  # one row, column and step beside it
    (13, 130, 300),
    (130, 40, 1025),  # a block of rows and of depth, and some more
    (33, 70, 3 * 1024 + 7),
    (256, 300, 144),
]


def floats(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def linear(x: Any, w: Any) -> Any:
    return x @ ops.transpose(w, 0, 1)


def statements(function: Any, arrays: Any, bits: int | None = None) -> list[Any]:
    stages: dict[str, Any] = {}
    compile_graph(trace(function, arrays), CompileOptions(vector_bits=bits), on_stage=stages.__setitem__)
    return [item for kernel in stages["loops"] for item in walk(kernel.body)]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size: tuple[int, int, int], dtype: str, bits: int) -> None:
    rows, columns, depth = size
    x, w = floats(rows, depth, dtype=DTYPES[dtype]), floats(columns, depth, seed=1, dtype=DTYPES[dtype])
    graph = trace(linear, (x, w))
    program = compile_graph(graph, CompileOptions(vector_bits=bits, verify=True))
    (got,) = program((x, w))
    assert program.artifact.products == [f"{dtype} dots"]
    exact, tolerance = (np.float64, 2.0**-21) if dtype == "f32" else (np.longdouble, 2.0**-50)
    wanted = x.astype(exact) @ w.astype(exact).T
    size_of = np.abs(x).astype(exact) @ np.abs(w).astype(exact).T
    assert (np.abs(got - wanted) <= tolerance * size_of).all()


def test_the_library_is_known_before_lowering() -> None:
    from smelt.backend.cpu.build import expected_libraries

    cases = {"f32 dots": (64, linear), "f32": (MOST_DOT_ROWS + 1, linear)}
    for name, (rows, function) in cases.items():
        arrays = floats(rows, 300), floats(40, 300, seed=1)
        stages: dict[str, Any] = {}
        program = compile_graph(trace(function, arrays), on_stage=stages.__setitem__)
        assert expected_libraries(stages["simplify"]) == [name] and name in program.artifact.products


def test_rows_apart() -> None:
    """Parts of larger matrices: their rows are adjacent elements, with others between them."""
    x, w = floats(20, 400), floats(30, 300, seed=1)
    arrays = (x, w)

    def function(x: Any, w: Any) -> Any:
        return linear(x[2:19:2, 7:207], w[3:, 100:])

    assert any(isinstance(item, Gemm) and is_dots(item) for item in statements(function, arrays))
    wanted = x[2:19:2, 7:207].astype(np.float64) @ w[3:, 100:].astype(np.float64).T
    np.testing.assert_allclose(smelt.jit(function)(*arrays), wanted, rtol=1e-4, atol=1e-4)


def test_rows_and_columns_beyond_the_last_do_not_leak() -> None:
    x, w = floats(9, 200), floats(13, 200, seed=1)
    x[-1, 3], w[-1, 199] = np.inf, np.nan
    for bits in BITS:
        (got,) = compile_graph(trace(linear, (x, w)), CompileOptions(vector_bits=bits))((x, w))
        assert np.isfinite(got[:-1, :-1]).all()
        assert np.isnan(got[:, -1]).all()
        assert not np.isfinite(got[-1]).any()


@pytest.mark.parametrize(
    ("rows", "depth", "transposed", "dots"),
    [
        (MOST_DOT_ROWS, LEAST_DOT_DEPTH, True, True),
        (MOST_DOT_ROWS + 1, LEAST_DOT_DEPTH, True, False),  # many rows: packing pays
        (64, LEAST_DOT_DEPTH - 1, True, False),  # short rows: sums of vectors would take longer
        (64, 500, False, False),
    ],
)
def test_when(rows: int, depth: int, transposed: bool, dots: bool) -> None:
    x = floats(rows, depth)
    w = floats(200, depth, seed=1) if transposed else floats(depth, 200, seed=1)
    found = statements(linear if transposed else lambda x, w: x @ w, (x, w))
    gemms = [item for item in found if isinstance(item, Gemm)]
    assert gemms and all(is_dots(item) == dots for item in gemms)
    if dots:
        assert not any(isinstance(item, Pack) for item in found)


def test_a_batch_that_shares_its_right_matrix_counts_all_its_rows() -> None:
    x, w = floats(5, 100, 200), floats(70, 200, seed=1)
    found = statements(lambda x, w: ops.matmul(x, ops.expand(ops.transpose(w, 0, 1), (5, 200, 70))), (x, w))
    assert not any(isinstance(item, Gemm) and is_dots(item) for item in found)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_for_any_number_of_threads(dtype: str) -> None:
    x, w, b = (floats(*shape, seed=len(shape), dtype=DTYPES[dtype]) for shape in ((100, 1100), (333, 1100), (333,)))
    layer = smelt.jit(lambda x, w, b: ops.gelu(linear(x, w) + b))
    norm = smelt.jit(lambda x, w, b: ops.layer_norm(linear(x, w) + b, (333,)))
    for function in (layer, norm):
        results = []
        for count in (1, 2, 3, 7):
            with smelt.threads(count):
                results.append(function(x, w, b))
        assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("rows", [2, 9, 40])
def test_a_norm_of_few_rows(rows: int) -> None:
    """Few rows are not enough for threads to share: then they share columns, and the norm comes afterwards."""
    x, w, b = floats(rows, 512), floats(600, 512, seed=1), floats(600, seed=2)

    def function(x: Any, w: Any, b: Any) -> Any:
        return ops.layer_norm(linear(x, w) + b, (600,))

    stages: dict[str, Any] = {}
    (got,) = compile_graph(trace(function, (x, w, b)), on_stage=stages.__setitem__)((x, w, b))
    kernels = [kernel for kernel in stages["loops"] if any(isinstance(item, Gemm) for item in walk(kernel.body))]
    loops = [item for kernel in kernels for item in kernel.body if isinstance(item, Loop)]
    (tiles,) = (loop for loop in loops if any(isinstance(item, Gemm) for item in walk([loop])))
    assert tiles.kind == "parallel" and evaluate(tiles.extent, {}) >= 2
    y = x.astype(np.float64) @ w.astype(np.float64).T + b
    wanted = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", BITS)
def test_an_open_number_of_rows(bits: int) -> None:
    text = """
    graph @open(%x: f32[1, M, 600], %w: f32[1, 300, 600]) where M >= 2 {
      %0 = permute(%w) {dims = (0, 2, 1)} : f32[1, 600, 300]
      %1 = bmm(%x, %0) : f32[1, M, 300]
      return %1
    }
    """
    stages: dict[str, Any] = {}
    program = compile_graph(parse_graph(text), CompileOptions(vector_bits=bits, verify=True), stages.__setitem__)
    loops = [item for kernel in stages["loops"] for item in kernel.body if isinstance(item, Loop)]
    (tiles,) = (loop for loop in loops if any(isinstance(item, Gemm) for item in walk([loop])))
    assert tiles.kind == "parallel" and evaluate(tiles.extent, {"M": 64}) >= 2
    assert program.artifact.products == ["f32 dots"]
    w = floats(1, 300, 600, seed=1)
    for rows in (2, 7, 64, 65, 300):
        x = floats(1, rows, 600)
        (got,) = program([x, w])
        np.testing.assert_allclose(got, x.astype(np.float64) @ w[0].T.astype(np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_registers(dtype: str, bits: int) -> None:
    """The sums of a tile, a vector of each row or column and one more: with AVX-512 there are 32, else 16."""
    tile = DotTile(dtype, bits)
    sums = tile.rows * tile.columns
    assert sums + min(tile.rows, tile.columns) + 1 <= (32 if bits == 512 else 16)
    assert tile.depth == DOT_DEPTH[dtype] and tile.depth % tile.lanes == 0
