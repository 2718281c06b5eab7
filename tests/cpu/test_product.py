"""Matrix products: right for any sizes, strides and types, the same for any number of threads, and fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.ir.parser import parse_graph
from smelt.ir.symbolic import evaluate
from smelt.kernels.gemm import (
    TILING,
    RegisterTile,
    is_own,
    tile_shape,
)
from smelt.kernels.loop.ir import Concurrent, Gemm, Loop, Pack, walk
from smelt.kernels.machine import DEFAULT, PRESETS
from support import trace

BITS = (128, 256, 512)
SIZES = [
    (1, 1, 1),
    (7, 33, 5),
    (8, 32, 64),  # one register tile
    (5, 40, 1000),  # a flat left matrix: the right one is read as it lies
    (13, 130, 300),
    (97, 200, 513),  # one row, column and step more than a block
    (200, 77, 800),  # several tiles of rows share a packed matrix
    (140, 700, 520),  # tiles of all rows pack the right matrix, panel by panel
    (1, 300, 70),
    (300, 1, 70),
]
LAYOUTS = ("rows", "columns", "spread", "reversed")


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def laid_out(array: Any, layout: str) -> Any:
    """Views of a parameter such that the product reads these strides."""
    if layout == "columns":
        return ops.transpose(array, 0, 1)
    if layout == "spread":
        return array[::2, ::3]
    if layout == "reversed":
        return ops.flip(array, (0, 1))
    return array


def stored(array: np.ndarray, layout: str) -> np.ndarray:
    """What to pass, so that `laid_out` gives the array."""
    if layout == "columns":
        return np.ascontiguousarray(array.T)
    if layout == "spread":
        return np.repeat(np.repeat(array, 2, 0), 3, 1)
    if layout == "reversed":
        return np.ascontiguousarray(array[::-1, ::-1])
    return array


def run(function: Callable[..., Any], *arrays: np.ndarray, bits: int | None = None) -> list[np.ndarray]:
    return compile_graph(trace(function, arrays), CompileOptions(vector_bits=bits, verify=True))(arrays)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes_and_strides(size: tuple[int, int, int], bits: int) -> None:
    rows, columns, depth = size
    for dtype, exact, tolerance in ((np.float32, np.float64, 2.0**-20), (np.float64, np.longdouble, 2.0**-49)):
        left, right = floats(rows, depth).astype(dtype), floats(depth, columns, seed=1).astype(dtype)
        wanted = left.astype(exact) @ right.astype(exact)
        for one in LAYOUTS:
            for other in LAYOUTS:
                (got,) = run(
                    lambda x, y, one=one, other=other: laid_out(x, one) @ laid_out(y, other),
                    stored(left, one),
                    stored(right, other),
                    bits=bits,
                )
                assert got.dtype == dtype
                np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * 4 * depth**0.5)


@pytest.mark.parametrize("depth", [3000, 30000])
def test_rounding_errors_stay_small(depth: int) -> None:
    left, right = floats(40, depth), floats(depth, 50, seed=1)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    (got,) = run(lambda x, y: x @ y, left, right)
    one_by_one = np.zeros((40, 50), np.float32)
    for step in range(depth):
        one_by_one += left[:, step, None] * right[None, step]
    assert np.abs(got - exact).max() < np.abs(one_by_one - exact).max() / 2


@pytest.mark.parametrize("size", [(100, 70, 50), (9, 33, 40)], ids=str)
def test_padding_does_not_leak(size: tuple[int, int, int]) -> None:
    rows, columns, depth = size
    left, right = floats(rows, depth), floats(depth, columns, seed=1)
    left[-1, 3], right[5, -1] = np.inf, np.nan
    for bits in BITS:
        (got,) = run(lambda x, y: x @ y, left, right, bits=bits)
        assert np.isfinite(got[:-1, :-1]).all()
        assert np.isnan(got[:, -1]).all()
        assert not np.isfinite(got[-1]).any()


@pytest.mark.parametrize("dtype", [np.complex64, np.float16, np.float32])
def test_a_matrix_times_itself(dtype: type) -> None:
    random = np.random.default_rng(0)
    x = (random.standard_normal((9, 9)) + 1j * random.standard_normal((9, 9))).astype(np.complex64)
    x = (x if dtype is np.complex64 else x.real).astype(dtype)
    wanted = x.astype(np.complex128) @ x.astype(np.complex128)
    np.testing.assert_allclose(smelt.jit(lambda x: x @ x)(x), wanted, atol=1e-2 if dtype is np.float16 else 1e-5)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, np.float16, np.int32], ids=lambda item: item.__name__)
def test_other_types(dtype: type) -> None:
    for rows, columns, depth in ((3, 4, 5), (150, 70, 90), (1, 40, 30)):
        left, right = 3 * floats(rows, depth), 3 * floats(depth, columns, seed=1)
        if np.dtype(dtype).kind == "c":
            left, right = left + 1j * floats(rows, depth, seed=2), right - 1j * floats(depth, columns, seed=3)
        left, right = left.astype(dtype), right.astype(dtype)
        wanted = left.astype(np.complex128) @ right.astype(np.complex128)
        (got, more) = run(lambda x, y: (x @ y, (x @ y) * 2 + y[:1]), left, right)
        assert got.dtype == dtype
        tolerance = {"i": 0, "f": 2e-3, "c": 1e-5 if dtype is np.complex64 else 1e-13}[np.dtype(dtype).kind]
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * 100)
        np.testing.assert_allclose(more, wanted * 2 + right[:1], rtol=2 * tolerance, atol=tolerance * 200)


def test_the_same_bits_for_any_number_of_threads() -> None:
    left, right, bias = floats(300, 500), floats(500, 400, seed=1), floats(400, seed=2)
    layer = smelt.jit(lambda x, y, b: ops.gelu(x @ y + b))
    results = []
    for count in (1, 2, 3, 7):
        with smelt.threads(count):
            results.append(layer(left, right, bias))
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_threads_pack_for_themselves_what_all_their_tiles_share() -> None:
    """Tiles of several products are shared out together: a thread packs anew when it comes to those of another one."""

    def products(x: Any, y: Any, v: Any, w: Any, z: Any) -> Any:
        return x @ w, y @ w, v @ ops.transpose(z, 0, 1), ops.softmax(x, 1)

    x, y, v = floats(200, 136), floats(200, 136, seed=1), floats(300, 144, seed=2)
    w, z = floats(136, 1000, seed=3), floats(700, 144, seed=4)
    stages: dict[str, Any] = {}
    program = compile_graph(trace(products, (x, y, v, w, z)), on_stage=stages.__setitem__)
    statements = [item for kernel in stages["loops"] for item in walk(kernel.body)]
    packs = [item for item in statements if isinstance(item, Pack)]
    assert len(packs) == 3 and all(item.once for item in packs)
    assert any(isinstance(item, Concurrent) for item in statements)
    exact = [array.astype(np.float64) for array in (x, y, v, w, z)]
    wanted = exact[0] @ exact[3], exact[1] @ exact[3], exact[2] @ exact[4].T
    for count in (1, 2, 3, 7):
        with smelt.threads(count):
            for _ in range(20):
                for got, right in zip(program([x, y, v, w, z]), wanted, strict=False):
                    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "dtype, size", [(np.float16, (600, 8, 16)), (np.complex64, (600, 8, 16)), (np.complex64, (16, 4, 600))]
)
def test_copies_are_made_before_they_are_packed(dtype: type, size: tuple[int, int, int]) -> None:
    """Products too small for threads: one function makes copies in the type of the product, and packs them. The first
    call finds nothing of an earlier one in memory."""
    rows, depth, columns = size
    left, right = floats(rows, depth).astype(dtype), floats(depth, columns, seed=1).astype(dtype)
    stages: dict[str, Any] = {}
    program = compile_graph(trace(lambda x, y: x @ y, [left, right]), on_stage=stages.__setitem__)
    packs = [item for kernel in stages["loops"] for item in walk(kernel.body) if isinstance(item, Pack)]
    assert packs and all(item.once for item in packs)
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    wanted = left.astype(wide) @ right.astype(wide)
    (got,) = program([left, right])
    np.testing.assert_allclose(got, wanted, rtol=2e-3 if dtype is np.float16 else 1e-5, atol=2e-3)


def test_a_threads_own_copies_stay_in_proportion_to_the_result() -> None:
    assert is_own(TILING.own_bytes, TILING.own_uses, TILING.own_bytes)
    assert not is_own(TILING.own_bytes + 64, TILING.own_uses, TILING.own_bytes)  # much memory for each thread
    assert not is_own(TILING.own_bytes, TILING.own_uses - 1, TILING.own_bytes)  # used too little
    assert not is_own(
        TILING.own_bytes, TILING.own_uses, TILING.own_bytes // TILING.own_share - 64
    )  # a long depth, and a small result


def kernels(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    program = smelt.jit(function)
    return program(*arrays), program.report()


def test_what_follows_runs_on_the_tiles() -> None:
    x, w, b = floats(200, 60), floats(60, 130, seed=1), floats(130, seed=2)
    got, report = kernels(lambda x, w, b: ops.relu(x @ w + b) * 0.5, x, w, b)
    assert len(report.kernels) == 1
    np.testing.assert_allclose(got, np.maximum(x @ w + b, 0) * 0.5, rtol=1e-4, atol=1e-4)


def test_rows_in_several_dims() -> None:
    x, w, y, mask = floats(3, 50, 60), floats(60, 130, seed=1), floats(3, 50, 130, seed=2), floats(50, 1, seed=3)
    got, report = kernels(lambda x, w, y, mask: y + (x @ w) * mask, x, w, y, mask)
    assert len(report.kernels) == 1
    np.testing.assert_allclose(got, y + (x @ w) * mask, rtol=1e-4, atol=1e-4)


def test_a_product_that_is_a_result_too() -> None:
    x, w, b = floats(200, 60), floats(60, 130, seed=1), floats(130, seed=2)

    def both(x: Any, w: Any, b: Any) -> Any:
        product = x @ w
        return product, ops.tanh(product + b)

    (product, after), report = kernels(both, x, w, b)
    assert len(report.kernels) == 1
    np.testing.assert_allclose(product, x @ w, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(after, np.tanh(product + b), rtol=1e-5, atol=1e-6)


def test_a_step_of_gradient_descent_is_part_of_the_gradient() -> None:
    x, w, y = floats(64, 90), floats(90, 70, seed=1), floats(64, 70, seed=2)

    def step(x: Any, w: Any, y: Any) -> Any:
        return w - 0.1 * smelt.grad(lambda w: ((x @ w) * y).sum())(w)

    got, report = kernels(step, x, w, y)
    assert len(report.kernels) == 1
    np.testing.assert_allclose(got, w - 0.1 * (x.T @ y), rtol=1e-4, atol=1e-4)


def test_what_a_product_does_not_take() -> None:
    x, w = floats(200, 60), floats(60, 130, seed=1)
    for function, refusal in (
        (lambda x, w: ops.softmax(x @ w, 0), "reductions of its rows only"),
        (lambda x, w: ops.exp(x @ w).sum(), "reductions of its rows only"),
        (lambda x, w: ops.softmax(x @ ops.repeat(w, (1, 40)), 1), "too long to stay in the cache"),
        (lambda x, w: ops.softmax(x[:1] @ w, 1), "elementwise ops only"),
    ):
        got, report = kernels(function, x, w)
        assert any(refusal in reason for reason in report.refusals), report.refusals
        (exact,) = run(function, x.astype(np.float64), w.astype(np.float64))
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-6)
    rows = floats(130, 200, seed=3)
    got, report = kernels(lambda x, w, rows: ops.transpose(x @ w, 0, 1) + rows, x, w, rows)
    assert any("stored across memory" in reason for reason in report.refusals)
    np.testing.assert_allclose(got, (x @ w).T + rows, rtol=1e-4, atol=1e-4)
    got, report = kernels(lambda x, w: (x @ w) * ops.exp(x[:, 0])[:, None], x, w)
    assert len(report.kernels) == 2  # the rows' factors are no part of it: they would be worked out for each column
    np.testing.assert_allclose(got, (x @ w) * np.exp(x[:, :1]), rtol=1e-4, atol=1e-4)
    got, report = kernels(lambda x, w: (x @ w)[None] * w[:5, :1, None], x, w)
    assert len(report.kernels) == 2  # what goes five times over the product is no part of it
    np.testing.assert_allclose(got, (x @ w)[None] * w[:5, :1, None], rtol=1e-4, atol=1e-4)


def test_heads_are_multiplied_where_they_lie() -> None:
    x = floats(2, 16, 3 * 4 * 8)

    def attend(x: Any) -> Any:
        query, key, value = ops.permute(x.reshape((2, 16, 3, 4, 8)), (2, 0, 3, 1, 4)).unbind(0)
        weights = ops.softmax(query @ ops.transpose(key, -1, -2), -1)
        return ops.permute(weights @ value, (0, 2, 1, 3)).reshape((2, 16, 32))

    got, report = kernels(attend, x)
    assert len(report.kernels) == 1  # no copies of the heads
    query, key, value = x.reshape(2, 16, 3, 4, 8).transpose(2, 0, 3, 1, 4).astype(np.float64)
    weights = np.exp(query @ key.swapaxes(-1, -2))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(got, (weights @ value).transpose(0, 2, 1, 3).reshape(2, 16, 32), rtol=1e-4, atol=1e-5)


def test_a_matrix_that_all_of_a_batch_shares_is_packed_once() -> None:
    x, w = floats(4, 200, 30), floats(30, 40, seed=1)
    stages: dict[str, Any] = {}
    traced = trace(lambda x, w: ops.bmm(x, ops.expand(w, (4, 30, 40))), (x, w))
    program = compile_graph(traced, on_stage=stages.__setitem__)
    (packed,) = {
        item.output.buffer for kernel in stages["loops"] for item in walk(kernel.body) if isinstance(item, Pack)
    }
    assert packed.shape[0] == 1
    np.testing.assert_allclose(program([x, w])[0], x @ w, rtol=1e-4, atol=1e-4)


def test_small_products_pack_nothing() -> None:
    x, w = floats(64, 64), floats(64, 64, seed=1)
    stages: dict[str, Any] = {}
    compile_graph(trace(lambda x, w: x @ w, (x, w)), on_stage=stages.__setitem__)
    kinds = [type(item) for kernel in stages["loops"] for item in walk(kernel.body)]
    assert kinds.count(Gemm) == 1 and Pack not in kinds


@pytest.mark.parametrize("bits", BITS)
def test_tiles_cover_everything_and_are_enough(bits: int) -> None:
    for dtype in ("f32", "f64"):
        unit = RegisterTile(dtype, DEFAULT.with_vector_bits(bits))
        for rows, columns, depth in ((1, 1, 1), (64, 3072, 768), (512, 512, 512), (2048, 2048, 2048), (5000, 20, 100)):
            height, width = tile_shape(1, rows, columns, depth, unit)
            assert height % unit.rows == 0 and width % unit.width == 0
            assert height <= TILING.block_rows + unit.rows or height * width * unit.bytes <= 2 * (unit.machine.l2 // 4)
            work = rows * columns * depth
            if work >= 1 << 27 and rows > TILING.least_rows:
                assert -(-rows // height) * -(-columns // width) >= 8


@pytest.mark.parametrize("size", [(128, 128, 128), (256, 256, 256), (64, 512, 512), (8, 1024, 1024), (2, 4096, 1024)])
def test_moderate_products_have_tiles_for_a_few_threads(size: tuple[int, int, int]) -> None:
    height, width = tile_shape(1, *size, RegisterTile("f32", PRESETS["x86-64-v4"]))
    assert -(-size[0] // height) * -(-size[1] // width) >= 2


@pytest.mark.parametrize("bits", BITS)
def test_few_rows_of_an_unknown_number_are_shared_out(bits: int) -> None:
    """The loops over tiles of rows and of columns are one: there may be a single tile of rows."""
    text = """
    graph @open(%x: f32[1, M, 1024], %w: f32[1, 1024, 2048]) where M >= 2 {
      %0 = bmm(%x, %w) : f32[1, M, 2048]
      return %0
    }
    """
    stages: dict[str, Any] = {}
    compile_graph(parse_graph(text), CompileOptions(vector_bits=bits), stages.__setitem__)
    loops = [item for kernel in stages["loops"] for item in kernel.body if isinstance(item, Loop)]
    (tiles,) = (loop for loop in loops if any(isinstance(item, Gemm) for item in loop.body))
    assert tiles.kind == "parallel" and evaluate(tiles.extent, {"M": 64}) >= 4


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_a_vector_times_a_matrix_is_read_once_by_all_threads(layout: str) -> None:
    x, w = floats(1, 700), floats(700, 900, seed=1)
    for function, arrays in (
        (lambda x, w: x @ laid_out(w, layout), (x, stored(w, layout))),
        (lambda x, w: laid_out(w, layout) @ x, (x.T.copy(), stored(w.T.copy(), layout))),
    ):
        stages: dict[str, Any] = {}
        compile_graph(trace(function, arrays), on_stage=stages.__setitem__)
        (kernel,) = stages["loops"]
        assert not any(isinstance(item, (Gemm, Pack)) for item in walk(kernel.body))
        assert any(isinstance(item, Loop) and item.kind == "parallel" for item in kernel.body)
        found = []
        for count in (1, 2):
            with smelt.threads(count):
                found.append(smelt.jit(function)(*arrays).reshape(1, 900))
        assert np.array_equal(*found)
        np.testing.assert_allclose(found[0], x.astype(float) @ w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", BITS)
def test_tiles_of_many_rows_are_wide(bits: int) -> None:
    """What follows a product reads and writes rows of its tiles: short ones cost more than packing the right matrix."""
    unit = RegisterTile("f32", DEFAULT.with_vector_bits(bits))
    for rows, columns in ((1024, 1024), (1024, 3072), (768, 1000)):
        _, width = tile_shape(1, rows, columns, 256, unit)
        assert width >= 4 * TILING.least_columns - unit.width


@pytest.mark.parametrize("bits", BITS)
def test_smaller_tiles_are_compiled_for_rows_that_are_left_over(bits: int) -> None:
    """Those that fill whole register tiles do without, in whatever blocks they are multiplied."""
    unit = RegisterTile("f32", DEFAULT.with_vector_bits(bits)).rows
    for rows, columns, needed in ((40 * unit, 400, ["f32"]), (unit, 40, ["f32"]), (unit + 1, 40, ["f32", "f32 rest"])):
        x, y = floats(rows, 50), floats(50, columns, seed=1)
        executable = compile_graph(trace(lambda x, y: x @ y, [x, y]), CompileOptions(vector_bits=bits))
        assert executable.artifact.products == needed
        np.testing.assert_allclose(executable([x, y])[0], x.astype(np.float64) @ y, rtol=1e-4, atol=1e-4)
    text = "graph @f(%x: f32[N, 5], %y: f32[5, 4]) where N >= 2 {\n  %0 = matmul(%x, %y) : f32[N, 4]\n  return %0\n}"
    executable = compile_graph(parse_graph(text), CompileOptions(vector_bits=bits))
    assert executable.artifact.products == ["f32", "f32 rest"]


def test_every_type_with_a_product_of_its_own_has_a_table() -> None:
    from smelt.backend.cpu.abi import PRODUCT_TYPES
    from smelt.kernels.gemm import BYTES, NARROW_BYTES

    assert set(PRODUCT_TYPES) == {*BYTES, *NARROW_BYTES}


def panels(array: np.ndarray, width: int) -> np.ndarray:
    """A matrix packed in panels, with something else beyond its last column."""
    depth, columns = array.shape
    whole = np.pad(array, ((0, 0), (0, -columns % width)), constant_values=np.nan)
    return np.ascontiguousarray(whole.reshape(depth, -1, width).transpose(1, 0, 2))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_packing_fills_panels_and_nothing_else(dtype: str, bits: int) -> None:
    import ctypes

    from smelt.backend.cpu.microkernels.products import tables

    unit = RegisterTile(dtype, DEFAULT.with_vector_bits(bits))
    table = tables(frozenset([dtype]), bits)[("f32", "f64").index(dtype)]
    address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[1]
    pack = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 4
    )(address)
    number = np.dtype({"f32": np.float32, "f64": np.float64}[dtype])
    for width in (unit.rows, unit.width):
        for lanes, depth in ((1, 1), (width, 16), (width + 1, 17), (9 * width, 33), (20 * width - 1, 50)):
            matrix = np.arange(lanes * depth, dtype=number).reshape(lanes, depth)
            count, apart = -(-lanes // width), depth * width + 3
            wanted = np.full((count, apart), -1, number)
            repeated = np.pad(matrix, ((0, -lanes % width), (0, 0)), mode="edge")
            wanted[:, : depth * width] = repeated.reshape(count, width, depth).transpose(0, 2, 1).reshape(count, -1)
            for source in (matrix, matrix.T.copy().T, np.repeat(np.repeat(matrix, 2, 0), 3, 1)[::2, ::3]):
                got = np.full((count, apart), -1, number)
                lane, step = (stride // number.itemsize for stride in source.strides)
                pack(got.ctypes.data, width, apart, source.ctypes.data, lane, step, lanes, depth)
                np.testing.assert_array_equal(got, wanted)


def unpacked(array: Any, columns: int) -> Any:
    """The matrix again."""
    count, depth, width = array.shape
    return ops.reshape(ops.permute(array, (1, 0, 2)), (depth, count * width))[:, :columns]


def statements(function: Callable[..., Any], arrays: tuple[np.ndarray, ...], bits: int) -> list[Any]:
    stages: dict[str, Any] = {}
    compile_graph(trace(function, arrays), CompileOptions(vector_bits=bits), on_stage=stages.__setitem__)
    return [item for kernel in stages["loops"] for item in walk(kernel.body)]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("rows", "columns"), ((2, 33), (9, 64), (300, 40), (70, 700)))
def test_packed_matrices_are_read_where_they_lie(rows: int, columns: int, bits: int) -> None:
    for dtype, exact, tolerance in (("float32", np.float64, 2.0**-20), ("float64", np.longdouble, 2.0**-49)):
        width = RegisterTile({"float32": "f32", "float64": "f64"}[dtype], DEFAULT.with_vector_bits(bits)).width
        x, w = floats(rows, 130).astype(dtype), floats(130, columns, seed=1).astype(dtype)

        def product(x: Any, w: Any) -> Any:
            return x @ unpacked(w, columns)

        arrays = (x, panels(w, width))
        (got,) = run(product, *arrays, bits=bits)
        size = np.abs(x).astype(exact) @ np.abs(w).astype(exact)
        assert (np.abs(got - x.astype(exact) @ w.astype(exact)) <= tolerance * size).all()
        found = statements(product, arrays, bits)
        assert not any(isinstance(item, Pack) and item.source.buffer.shape == arrays[1].shape for item in found)
        (gemm,) = (item for item in found if isinstance(item, Gemm))
        assert gemm.right.panel == width and gemm.right.buffer.shape == arrays[1].shape


def test_panels_of_another_width_and_left_matrices_are_copied() -> None:
    x, w = floats(64, 130), floats(130, 130, seed=1)
    for function, arrays in (
        (lambda x, w: x @ unpacked(w, 130), (x, panels(w, 24))),
        (lambda x, w: unpacked(w, 130) @ x.T, (x, panels(w, 32))),
        (lambda x, w: unpacked(w, 130)[:, 5:] @ x.T[5:], (x, panels(w, 32))),
        (lambda x, w: x[:, 5:] @ unpacked(w, 130).T[5:], (x, panels(w, 32))),
    ):
        (got,) = run(function, *arrays, bits=512)
        wanted = function(*(array.astype(np.float64) for array in arrays))
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
