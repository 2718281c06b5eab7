"""Matrix products by dot products: few rows times a transposed matrix. Nothing is packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.compile import compile_graph, graph_key
from smelt.backend.cpu.host import Processor, host
from smelt.backend.cpu.image import cached
from smelt.backend.interp.loops import interpret_kernels
from smelt.backend.options import CompileOptions
from smelt.ir.parser import parse_graph
from smelt.ir.symbolic import evaluate
from smelt.kernels.gemm import (
    BYTES,
    DOT_DEPTH,
    NARROW_BYTES,
    TILING,
    DotTile,
    RegisterTile,
    is_dots,
    tile_shape,
)
from smelt.kernels.loop.ir import Gemm, Loop, Pack, walk
from smelt.kernels.loop.verify import verify_kernel
from smelt.kernels.machine import DEFAULT, PRESETS
from smelt.passes.fusion.fuse import fuse
from smelt.passes.lower.lower import lower
from smelt.passes.manager import Pipeline
from smelt.passes.pipelines import GRAPH
from support import interpret, trace

BITS = (128, 256, 512)
BF16 = PRESETS["x86-64-v4"].but(dot_types=frozenset({"bf16"}))
DTYPES = {"f32": np.float32, "f64": np.float64}
SIZES = [
    (2, 2, TILING.dot_depth),
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
    from smelt.passes.lower.libraries import expected_libraries

    cases = {"f32 dots": (64, linear), "f32": (TILING.dot_rows + 1, linear)}
    for name, (rows, function) in cases.items():
        arrays = floats(rows, 300), floats(40, 300, seed=1)
        stages: dict[str, Any] = {}
        program = compile_graph(trace(function, arrays), on_stage=stages.__setitem__)
        assert expected_libraries(stages["simplify"], host().machine) == [name] and name in program.artifact.products


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "wanted"),
    [
        (32, 40, 300, ["bf16 dots"]),
        (64, 40, 300, ["bf16"]),
        (1, 40, 300, ["bf16 dots"]),
        (40, 1, 300, ["bf16 dots"]),
        (1, 40, 9, []),
        (64, 40, 0, []),
        (64, 40, 9, ["bf16"]),
    ],
)
def test_the_library_of_a_narrow_type_is_known_too(rows: int, columns: int, depth: int, wanted: list[str]) -> None:
    from smelt.passes.lower.libraries import expected_libraries

    arrays = floats(rows, depth, dtype=ml_dtypes.bfloat16), floats(columns, depth, seed=1, dtype=ml_dtypes.bfloat16)
    stages: dict[str, Any] = {}
    program = compile_graph(trace(linear, arrays), on_stage=stages.__setitem__)
    machine = host().machine
    if machine.dot_types:
        assert expected_libraries(stages["simplify"], machine) == program.artifact.products
    assert expected_libraries(stages["simplify"], BF16) == wanted


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
        (TILING.dot_rows, TILING.dot_depth, True, True),
        (TILING.dot_rows + 1, TILING.dot_depth, True, False),  # many rows: packing pays
        (64, TILING.dot_depth - 1, True, False),  # short rows: sums of vectors would take longer
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


@pytest.mark.parametrize(("rows", "where", "dots"), [("300*B", "B >= 1", False), ("100*B", "B >= 1, B <= 9", True)])
def test_open_rows_that_are_known_to_be_many(rows: str, where: str, dots: bool) -> None:
    """An open number counts as few, as long as it may be."""
    text = f"""
    graph @open(%y: f32[B, {rows.removesuffix("*B")}, 200], %w: f32[1, 30, 200]) where {where} {{
      %x = reshape(%y) {{shape = (1, {rows}, 200)}} : f32[1, {rows}, 200]
      %0 = permute(%w) {{dims = (0, 2, 1)}} : f32[1, 200, 30]
      %1 = bmm(%x, %0) : f32[1, {rows}, 30]
      return %1
    }}
    """
    program = compile_graph(parse_graph(text), CompileOptions(verify=True))
    assert ("f32 dots" in program.artifact.products) == dots
    x, w = floats(3, int(rows.removesuffix("*B")), 200), floats(1, 30, 200, seed=1)
    (got,) = program([x, w])
    wanted = x.reshape(1, -1, 200).astype(np.float64) @ w[0].T.astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(64, 128, 128), (8, 1024, 1024), (2, 512, 512), (200, 256, 512), (512, 768, 768)])
def test_tiles_are_enough_for_a_few_threads(size: tuple[int, int, int]) -> None:
    height, width = tile_shape(1, *size, RegisterTile("f32", PRESETS["x86-64-v4"]), ready=True)
    assert -(-size[0] // height) * -(-size[1] // width) >= 2


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", [*BYTES, *NARROW_BYTES])
def test_registers(dtype: str, bits: int) -> None:
    """The sums of a tile, a vector of each row or column and one more: with AVX-512 there are 32, else 16."""
    tile = DotTile(dtype, DEFAULT.with_vector_bits(bits))
    sums = tile.rows * tile.columns
    assert sums + min(tile.rows, tile.columns) + 1 <= (32 if bits == 512 else 16)
    assert tile.depth == DOT_DEPTH[dtype] and tile.depth % tile.lanes == 0


class TestNarrow:
    """bf16, where the machine adds up its products in f32; else, and with shorter vectors, copies in f32."""

    @pytest.mark.parametrize("bits", BITS)
    @pytest.mark.parametrize(
        "size",
        [
            *SIZES,
            (1, 40, 300), (40, 1, 300),
            (9, 10, 3), (9, 70, 1),  # a pair and a half, half a pair
            (8, 32, 64), (16, 64, 65),  # whole register tiles and panels
            (140, 200, 30), (300, 33, 5000), (130, 600, 1027),
        ],
        ids=str,
    )  # fmt: skip
    def test_sizes_and_orders(self, size: tuple[int, int, int], bits: int) -> None:
        rows, columns, depth = size
        bfloat16 = ml_dtypes.bfloat16
        x, w = floats(rows, depth, dtype=bfloat16), floats(columns, depth, seed=1, dtype=bfloat16)
        exact = x.astype(np.float64) @ w.astype(np.float64).T
        error = 2.0**-21 * (np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64).T) + np.abs(exact) * 2.0**-8
        orders: list[tuple[Any, np.ndarray, np.ndarray]] = [
            (linear, x, w),
            (lambda x, w: x @ w, x, np.ascontiguousarray(w.T)),
            (lambda x, w: linear(ops.transpose(x, 0, 1), w), np.ascontiguousarray(x.T), w),
            (lambda x, w: ops.transpose(x, 0, 1) @ w, np.ascontiguousarray(x.T), np.ascontiguousarray(w.T)),
        ]
        for function, left, right in orders:
            program = compile_graph(trace(function, (left, right)), CompileOptions(vector_bits=bits, verify=True))
            (got,) = program((left, right))
            assert got.dtype == bfloat16
            assert (np.abs(got.astype(np.float64) - exact) <= error).all()
            if "bf16" in host().machine.with_vector_bits(bits).dot_types:
                assert set(program.artifact.products) <= {"bf16 dots", "bf16", "bf16 rest"}

    @pytest.mark.parametrize(
        ("rows", "columns", "depth", "transposed", "dots"),
        [
            (40, 64, 40 * TILING.narrow_dot_row_depth, True, True),
            (
                41,
                64,
                40 * TILING.narrow_dot_row_depth,
                True,
                False,
            ),  # packing takes less time than adding up so many sums
            (TILING.narrow_dot_rows, 64, 4096, True, True),
            (TILING.narrow_dot_rows + 1, 64, 4096, True, False),
            (TILING.narrow_dot_rows + 1, TILING.narrow_dot_columns, 256, True, True),
            (TILING.narrow_dot_rows + 1, TILING.narrow_dot_columns, TILING.dot_depth - 1, True, False),
            (40, 64, 4096, False, False),
        ],
    )
    def test_when(self, rows: int, columns: int, depth: int, transposed: bool, dots: bool) -> None:
        x, w = (np.zeros(shape, ml_dtypes.bfloat16) for shape in ((rows, depth), (columns, depth)))
        kernels = self.lowered(linear, (x, w)) if transposed else self.lowered(lambda x, w: x @ w, (x, w.T.copy()))
        found = [item for kernel in kernels for item in walk(kernel.body)]
        gemms = [item for item in found if isinstance(item, Gemm)]
        assert gemms and all(is_dots(item) == dots for item in gemms)
        assert not (dots and any(isinstance(item, Pack) for item in found))
        assert all(item.left.buffer.dtype.name == item.right.buffer.dtype.name == "bf16" for item in gemms)

    @staticmethod
    def lowered(function: Any, arrays: Any) -> Any:
        """Kernels for a machine that has such products."""
        fused = fuse(Pipeline(GRAPH).run(trace(function, arrays)), machine=BF16)
        return lower(fused, BF16)

    def test_a_batch(self) -> None:
        x, w = (floats(3, 20, 70, seed=seed, dtype=ml_dtypes.bfloat16) for seed in range(2))
        exact = np.einsum("bik,bjk->bij", x.astype(np.float64), w.astype(np.float64))
        for got in (
            smelt.jit(lambda x, w: x @ ops.transpose(w, 1, 2))(x, w),
            smelt.jit(lambda x, w: x @ w)(x, np.ascontiguousarray(w.transpose(0, 2, 1))),
        ):
            np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2.0**-7, atol=1e-2)

    def test_one_matrix_for_a_batch(self) -> None:
        x, w = floats(3, 20, 70, dtype=ml_dtypes.bfloat16), floats(70, 30, seed=1, dtype=ml_dtypes.bfloat16)
        got = smelt.jit(lambda x, w: ops.matmul(x, ops.expand(w, (3, 70, 30))))(x, w)
        np.testing.assert_allclose(got.astype(float), x.astype(float) @ w.astype(float), rtol=2.0**-7, atol=1e-2)

    @pytest.mark.parametrize("order", [(0, 1), (0, 0), (1, 0), (1, 1)], ids=["nt", "nn", "tn", "tt"])
    @pytest.mark.parametrize("depth", [1, 2, 33, 200, 257])
    @pytest.mark.parametrize(("rows", "columns"), [(9, 13), (130, 70)])
    def test_special_values(self, rows: int, columns: int, depth: int, order: tuple[bool, bool]) -> None:
        """They stay in their row and column: nothing that lies beside a matrix or its last element is multiplied."""
        x, w = (floats(size, depth, seed=size, dtype=ml_dtypes.bfloat16) for size in (rows, columns))
        x[-1], w[-1, -1] = np.inf, np.nan
        left, right = (
            np.ascontiguousarray(item.T) if turned else item for item, turned in zip((x, w.T), order, strict=True)
        )

        def function(x: Any, w: Any) -> Any:
            x, w = (ops.transpose(item, 0, 1) if turned else item for item, turned in zip((x, w), order, strict=True))
            return x @ w

        got = smelt.jit(function)(left, np.ascontiguousarray(right)).astype(np.float32)
        assert np.isfinite(got[:-1, :-1]).all() and np.isnan(got[:, -1]).all() and not np.isfinite(got[-1]).any()

    def test_open_sizes(self) -> None:
        text = """
        graph @open(%x: bf16[1, M, K], %w: bf16[1, K, 30]) where M >= 2, K >= 1 {
          %0 = bmm(%x, %w) : bf16[1, M, 30]
          return %0
        }
        """
        program = compile_graph(parse_graph(text), CompileOptions(verify=True))
        for rows, depth in ((2, 1), (7, 40), (130, 300), (301, 1029)):
            x, w = (floats(*s, seed=s[1], dtype=ml_dtypes.bfloat16) for s in ((1, rows, depth), (1, depth, 30)))
            (got,) = program([x, w])
            np.testing.assert_allclose(got.astype(float), x.astype(float) @ w.astype(float), rtol=2.0**-7, atol=1e-2)

    @pytest.mark.parametrize("bits", BITS)
    @pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bf16", "f16"])
    @pytest.mark.parametrize("rows", [30, 170])  # by dots, and by pairs
    def test_a_norm_on_tiles(self, dtype: Any, bits: int, rows: int) -> None:
        """Tiles of whole rows are in f32: the norm of a product needs no other kernel."""
        x, w, b = (floats(*s, seed=len(s), dtype=dtype) for s in ((rows, 300), (200, 300), (200,)))
        graph = trace(lambda x, w, b: ops.layer_norm(linear(x, w) + b, (200,)), (x, w, b))
        stages: dict[str, Any] = {}
        options = CompileOptions(vector_bits=bits, verify=True)
        (got,) = compile_graph(graph, options, on_stage=stages.__setitem__)((x, w, b))
        assert len(stages["loops"]) == 1
        y = x.astype(np.float64) @ w.astype(np.float64).T + b.astype(np.float64)
        wanted = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
        step = 2.0**-8 if dtype is ml_dtypes.bfloat16 else 2.0**-11  # of one rounding
        assert got.dtype == dtype
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2 * step, atol=4 * step)

    def test_a_product_of_a_product(self) -> None:
        """The tile of the first is in f32, which is not what the second one multiplies."""
        x, v, w = (floats(*s, seed=s[0], dtype=ml_dtypes.bfloat16) for s in ((40, 64), (48, 64), (56, 48)))
        got = smelt.jit(lambda x, v, w: linear(ops.softmax(linear(x, v), 1), w))(x, v, w)
        y = np.exp(x.astype(np.float64) @ v.astype(np.float64).T)
        wanted = y / y.sum(1, keepdims=True) @ w.astype(np.float64).T
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2.0**-6, atol=2.0**-6)

    @pytest.mark.parametrize("bits", BITS)
    def test_a_product_that_is_wanted_beside_its_reduction(self, bits: int) -> None:
        x, w = floats(70, 300, dtype=ml_dtypes.bfloat16), floats(200, 300, seed=1, dtype=ml_dtypes.bfloat16)

        def function(x: Any, w: Any) -> Any:
            y = linear(x, w)
            return y, ops.log_softmax(y, 1), y.sum(1)

        options = CompileOptions(vector_bits=bits, verify=True)
        product, logs, sums = compile_graph(trace(function, (x, w)), options)((x, w))
        y = x.astype(np.float64) @ w.astype(np.float64).T
        np.testing.assert_allclose(product.astype(np.float64), y, rtol=2.0**-7, atol=2.0**-8)
        exact = y - np.log(np.exp(y - y.max(1, keepdims=True)).sum(1, keepdims=True)) - y.max(1, keepdims=True)
        np.testing.assert_allclose(logs.astype(np.float64), exact, rtol=2.0**-6, atol=2.0**-2)
        np.testing.assert_allclose(sums.astype(np.float64), y.sum(1), rtol=2.0**-6, atol=2)

    PROGRAMS: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
        "a matrix times itself": (lambda x: x @ x, [(70, 70)]),
        "a matrix times itself, transposed": (lambda x: x @ ops.transpose(x, 0, 1), [(9, 70)]),
        "a transposed matrix times itself": (lambda x: ops.transpose(x, 0, 1) @ x, [(70, 9)]),
        "one matrix for a batch": (lambda x, w: ops.matmul(x, w), [(3, 5, 70), (70, 7)]),
        "one left matrix for a batch": (lambda x, w: ops.matmul(x, w), [(5, 70), (3, 70, 7)]),
        "rows backwards": (lambda x, w: linear(ops.flip(x, (0,)), ops.flip(w, (0,))), [(5, 70), (7, 70)]),
        "depth backwards": (lambda x, w: linear(ops.flip(x, (1,)), ops.flip(w, (1,))), [(5, 70), (7, 70)]),
        "every other element": (lambda x, w: x[:, ::2] @ w[::2], [(5, 140), (140, 7)]),
        "vectors": (lambda x, w: ops.stack([x @ w, x @ (w + w)], 0), [(1, 140), (140, 1)]),
        "equal rows": (lambda x, w: linear(ops.expand(x, (5, 70)), w), [(1, 70), (7, 70)]),
        "a product of a product": (lambda x, w: ops.matmul(linear(x, w) / 64, w), [(5, 70), (70, 70)]),
        "shared panels of both, and an odd depth": (lambda x, w: ops.transpose(x, 0, 1) @ w, [(33, 900), (33, 1300)]),
        "shared panels of a batch": (lambda x, w: x @ w, [(2, 300, 9), (2, 9, 200)]),
        "panels of a thread's own": (lambda x, w: x @ w, [(600, 35), (35, 300)]),
    }

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_kernels_mean_the_same(self, name: str) -> None:
        """Those for machines that have such products, by the interpreter of loops: on any machine; and native ones."""
        function, shapes = self.PROGRAMS[name]
        arrays = [floats(*shape, seed=seed, dtype=ml_dtypes.bfloat16) for seed, shape in enumerate(shapes)]
        graph = trace(function, arrays)
        fused = fuse(Pipeline(GRAPH).run(graph), machine=BF16)
        kernels = lower(fused, BF16)
        gemms = [item for kernel in kernels for item in walk(kernel.body) if isinstance(item, Gemm)]
        assert gemms
        for item in gemms:
            assert item.left.buffer.dtype.name == item.right.buffer.dtype.name == "bf16"
        assert "panels" not in name or any(item.right.panel for item in gemms)
        for kernel in kernels:
            verify_kernel(kernel)
        wide = [array.astype(np.float64) for array in arrays]
        wanted = interpret(trace(function, wide), wide)
        for got in (interpret_kernels(fused, kernels, arrays), compile_graph(graph)(arrays)):
            for result, exact in zip(got, wanted, strict=True):
                assert result.dtype == ml_dtypes.bfloat16
                np.testing.assert_allclose(result.astype(float), exact, rtol=2.0**-7, atol=3e-2)

    def test_a_machine_without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(host(), "machine", PRESETS["x86-64-v4"])
        x, w = floats(20, 300, dtype=ml_dtypes.bfloat16), floats(30, 300, seed=1, dtype=ml_dtypes.bfloat16)
        program = compile_graph(trace(linear, (x, w)), CompileOptions(vector_bits=512, verify=True))
        assert "bf16 dots" not in program.artifact.products
        (got,) = program((x, w))
        np.testing.assert_allclose(got.astype(float), x.astype(float) @ w.astype(float).T, rtol=2.0**-7, atol=1e-2)

    def test_code_is_kept_for_machines_that_have_them(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        """Other machines find none of it in a cache that they share."""
        graph = trace(linear, [floats(20, 300, dtype=ml_dtypes.bfloat16)] * 2)
        keys = []
        for features in ("+avx512f,+avx512bw,+avx512vl", "+avx512f,+avx512bw,+avx512vl,+avx512bf16"):
            machine = Processor("x86_64-unknown-linux-gnu", "znver4", features, "22.1.0")
            assert machine.machine.dot_types == ({"bf16"} if "bf16" in features else set())
            assert not machine.machine.with_vector_bits(256).dot_types
            monkeypatch.setattr(cached, "host", lambda machine=machine: machine)
            key, _ = graph_key(graph, CompileOptions(vector_bits=512))
            assert key is not None
            keys.append(key.name)
        assert keys[0] != keys[1]

    @pytest.mark.parametrize("turned", [False, True])
    def test_the_same_bits_for_any_number_of_threads(self, turned: bool) -> None:
        shape = (701, 300) if turned else (300, 701)
        x, w = floats(*shape, dtype=ml_dtypes.bfloat16), floats(701, 333, seed=1, dtype=ml_dtypes.bfloat16)
        function = smelt.jit(lambda x, w: ops.gelu((ops.transpose(x, 0, 1) if turned else x) @ w))
        results = []
        for count in (1, 2, 3, 7):
            with smelt.threads(count):
                results.append(function(x, w))
        assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize(("first", "second"), [("f32", "f64"), ("bf16", "f64"), ("f16", "f64"), ("bf16", "f32")])
def test_a_product_of_a_product_in_a_wider_type(first: str, second: str) -> None:
    """The tile of the first is not in the type that the second one multiplies, unless that is f32."""
    types = {**DTYPES, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
    x, v, w = floats(140, 128) / 8, floats(64, 128, seed=1) / 8, floats(64, 40, seed=2, dtype=types[second])
    x, v = x.astype(types[first]), v.astype(types[first])

    def function(x: Any, v: Any, w: Any) -> Any:
        return ops.softmax(linear(x, v).astype(types[second]), 1) @ w

    (got,) = compile_graph(trace(function, (x, v, w)), CompileOptions(verify=True))((x, v, w))
    y = np.exp(x.astype(np.float64) @ v.astype(np.float64).T)
    wanted = y / y.sum(1, keepdims=True) @ w.astype(np.float64)
    assert got.dtype == types[second]
    np.testing.assert_allclose(got, wanted, rtol=2.0**-6, atol=2.0**-8)
