"""Transposes: blocks through registers, the pass that makes them, and rolls, which wrap around."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
from loop_programs import assert_meaning, lowered
from smelt import CompileOptions, ops
from smelt.backend.compile import compile_graph, graph_key
from smelt.backend.cpu.image.image import Image
from smelt.backend.cpu.llvm.engine import engine
from smelt.backend.cpu.llvm.parts import Part
from smelt.backend.cpu.microkernels.transpose import ELEMENTS, called, transpose_text
from smelt.ir.errors import CompileError
from smelt.kernels.loop.ir import Alloc, Kernel, Let, Load, Loop, Store, Transpose, walk
from smelt.kernels.loop.parser import parse_kernel
from smelt.kernels.loop.text import print_kernel
from smelt.kernels.loop.verify import verify_kernel
from smelt.kernels.machine import CACHE_LINE, DEFAULT
from smelt.passes.manager import PASSES, Pipeline, Step
from support import evaluate, flatten
from test_native import Guarded, guarded

__all__ = ["guarded"]  # a fixture

SIZES = (0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64)
DTYPES = [
    np.bool_, np.uint8, np.int16, np.int32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64,
    np.complex64, np.complex128,
]  # fmt: skip


# The function that moves a block.


@pytest.mark.parametrize("size", ELEMENTS)
@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("fetch", [False, True])
def test_blocks_of_every_size(size: int, bits: int, fetch: bool) -> None:
    declarations: set[str] = set()
    text = transpose_text(size, fetch, DEFAULT.with_vector_bits(bits), declarations)
    name = called(size, fetch)[1:-1]
    code = engine().object_code([Part("\n".join([text, *declarations]), plain=False)])
    image = Image(code)
    kinds = [*[ctypes.c_void_p, ctypes.c_int64] * 2, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_int64] * fetch]
    move = ctypes.CFUNCTYPE(None, *kinds)(image[name])
    memory, random = Guarded("end"), np.random.default_rng(0)
    for rows in SIZES:
        for columns in SIZES:
            # Columns lie anyhow, or all of them as far from the begin of a cache line.
            for before in (3, CACHE_LINE - rows % CACHE_LINE):
                source = memory.empty((columns * (rows + before), size), np.uint8)
                source[...] = random.integers(0, 256, source.shape)
                target = memory.empty((rows * (columns + 5), size), np.uint8)
                target[...] = 7
                expected = target.reshape(rows, columns + 5, size).copy()
                # Neither has more than what the last row or column needs.
                first = source.ctypes.data + before * size if columns else source.ctypes.data
                into = target.ctypes.data + 5 * size if rows else target.ctypes.data
                move(into, columns + 5, first, rows + before, rows, columns, *[rows] * fetch)
                expected[:, 5:] = source.reshape(columns, rows + before, size)[:, before:].transpose(1, 0, 2)
                np.testing.assert_array_equal(target.reshape(expected.shape), expected, f"{rows} x {columns}")
    del image


# Programs.

PROGRAMS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, y: x.permute((1, 0)) * y,
    "copy": lambda x, y: ops.contiguous(x.permute((1, 0))),
    "both ways": lambda x, y: (x.permute((1, 0)) * y, x * y.permute((1, 0))),
    "stored across": lambda x, y: (x * y.permute((1, 0)) * x).permute((1, 0)),
    "rows": lambda x, y: (x.permute((1, 0)) * y).sum(1),
    "columns": lambda x, y: (x.permute((1, 0)) * y).sum(0),
    "all": lambda x, y: (x.permute((1, 0)) * y).sum(),
    "rolled": lambda x, y: ops.roll(x.permute((1, 0)), 3, 1) * ops.roll(y, -2, 1),
}
SHAPES = [(1, 9), (8, 16), (17, 33), (70, 130), (64, 200)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("bits", [256, 512])
def test_every_type_and_odd_sizes(name: str, bits: int, guarded: Guarded) -> None:
    function = PROGRAMS[name]
    for number, dtype in enumerate(DTYPES):
        if dtype is np.bool_ and name not in ("copy", "rolled"):
            continue
        if (number + (bits == 512) + (guarded.side == "end")) % 2:  # each type at one end, the other for other vectors
            continue
        rows, columns = SHAPES[number % len(SHAPES)]
        random = np.random.default_rng(number)
        x = random.integers(0, 3, (rows, columns)).astype(dtype)
        y = random.integers(0, 3, (columns, rows)).astype(dtype)
        compiled = smelt.jit(function, options=CompileOptions(vector_bits=bits, verify=True), dynamic=False)
        found = flatten(compiled(guarded.copy(x), guarded.copy(y)))
        for left, right in zip(found, evaluate(function, [x, y], "interp"), strict=True):
            assert left.dtype == right.dtype
            np.testing.assert_allclose(left.astype(complex), right.astype(complex), rtol=1e-2)


@pytest.mark.parametrize("name", PROGRAMS)
def test_symbolic_sizes(name: str, guarded: Guarded) -> None:
    function = smelt.jit(PROGRAMS[name])
    for rows, columns in ((5, 3), (7, 33), (64, 64), (130, 271), (1000, 9)):
        random = np.random.default_rng(rows)
        x, y = (random.integers(0, 3, shape).astype(np.float32) for shape in ((rows, columns), (columns, rows)))
        found = flatten(function(guarded.copy(x), guarded.copy(y)))
        for left, right in zip(found, evaluate(PROGRAMS[name], [x, y], "interp"), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5)
    assert function.compiles == 2


@pytest.mark.parametrize("shape", [(1409, 1511), (2048, 1024), (100003, 17), (9, 200000)])
def test_large_blocks(shape: tuple[int, int], guarded: Guarded) -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal(shape, np.float32), random.standard_normal(shape[::-1], np.float32)
    found = smelt.jit(lambda x, y: x.permute((1, 0)) + y)(guarded.copy(x), guarded.copy(y))
    np.testing.assert_array_equal(found, x.T + y)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32, np.float64, np.complex128])
def test_strips_begin_where_lines_of_the_source_do(dtype: type, guarded: Guarded) -> None:
    """Arrays that begin anywhere in a cache line, and blocks whose last strips are short; each place is read once."""
    random, width = np.random.default_rng(0), np.dtype(dtype).itemsize
    program = smelt.jit(lambda x, y: x.permute((1, 0)) + y, dynamic=False)
    for rows, columns in ((96, 128), (50, 67)):
        x, y = (random.integers(0, 9, shape).astype(dtype) for shape in ((rows, columns), (columns, rows)))
        for before in range(0, CACHE_LINE // width, max(1, CACHE_LINE // width // 8)):
            memory = guarded.empty((x.size + before,), dtype)
            memory[before:] = x.ravel()
            found = program(memory[before:].reshape(x.shape), guarded.copy(y))
            np.testing.assert_array_equal(found, x.T + y)
        graph = program.trace(x, y)
        stages: dict[str, Any] = {}
        compile_graph(graph, on_stage=stages.__setitem__)
        (kernel,) = stages["loops"]
        assert ".strip in 0.." in print_kernel(kernel)
        assert (" = lead %x" in print_kernel(kernel)) == (columns * width % CACHE_LINE == 0)
        assert_meaning(graph, [x, y])


def test_strips_of_rows_that_run_backwards(guarded: Guarded) -> None:
    """The first strip may be empty: then it has no last row before the first one of the matrix."""
    x, y = np.arange(17 * 64, dtype=np.float32).reshape(17, 64), np.ones((64, 17), np.float32)
    function = smelt.jit(lambda x, y: x.flip((0,)).permute((1, 0)) + y, options=CompileOptions(verify=True))
    np.testing.assert_array_equal(function(guarded.copy(x), guarded.copy(y)), x[::-1].T + y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_rows_that_are_transposed(dtype: type) -> None:
    """A sum over all of a block's rows is no sum over those of a strip."""
    random = np.random.default_rng(0)
    program = smelt.jit(lambda x, y: (x.permute((0, 2, 1)) + y).softmax(2).amax(2).sum(), dynamic=False)
    for number, rows, columns in ((15, 70, 24), (7, 64, 32), (12, 33, 12)):
        x, y = (random.normal(size=(number, *shape)).astype(dtype) for shape in ((rows, columns), (columns, rows)))
        both = np.exp(x.transpose(0, 2, 1) + y)
        np.testing.assert_allclose(program(x, y), (both.max(2) / both.sum(2)).sum(), rtol=1e-5)


def test_random_permutations() -> None:
    for seed in range(40):
        random = np.random.default_rng(seed)
        rank = int(random.integers(2, 5))
        shape = tuple(int(size) for size in random.choice([1, 2, 3, 8, 9, 17, 20], rank))
        order = tuple(int(axis) for axis in random.permutation(rank))
        again = tuple(int(axis) for axis in random.permutation(rank))
        x = random.standard_normal(shape).astype(np.float32)
        y = random.standard_normal(tuple(shape[axis] for axis in order)).astype(np.float32)
        compiled = smelt.jit(lambda x, y, order=order, again=again: (x.permute(order) * y).permute(again))
        np.testing.assert_array_equal(compiled(x, y), (x.transpose(order) * y).transpose(again))


def test_softmax_and_norm_of_transposed_rows() -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((70, 40)).astype(np.float32), random.standard_normal((40, 70)).astype(np.float32)

    def program(x: Any, y: Any) -> Any:
        turned = x.permute((1, 0))
        return ops.softmax(turned + y, 1), ops.layer_norm(turned, (70,), y[0], y[1])

    for found, wanted in zip(smelt.jit(program)(x, y), evaluate(program, [x, y], "interp"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_transposes_that_share_a_parallel_region() -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((40, 33)).astype(np.float32), random.standard_normal((50, 20)).astype(np.float32)

    def program(x: Any, y: Any) -> Any:
        return ops.contiguous(x.permute((1, 0))), y.permute((1, 0)) * 2, ops.contiguous(x.permute((1, 0))) + 1

    compiled = smelt.jit(program)
    for found, wanted in zip(compiled(x, y), (x.T, y.T * 2, x.T + 1), strict=True):
        np.testing.assert_array_equal(found, wanted)


# The pass.


def transposed(function: Callable[..., Any], *specs: str) -> list[Kernel]:
    graph = smelt.jit(function).trace(*map(smelt.spec, specs))
    _, kernels = lowered(graph)
    return [Pipeline(["transpose"]).run(kernel, verify_each=True) for kernel in kernels]


def statements(kernel: Kernel, kind: Any) -> list[Any]:
    return [item for item in walk(kernel.body) if isinstance(item, kind)]


def test_a_transposed_operand_goes_through_a_block() -> None:
    (kernel,) = transposed(lambda x, y: x.permute((1, 0)) + y, "f32[256, 512]", "f32[512, 256]")
    (moved,) = statements(kernel, Transpose)
    assert (moved.source.buffer.name, moved.source.column_stride) == ("%x", 512)
    assert moved.target.buffer.role == "scratch"
    assert {item.buffer.name for item in statements(kernel, Load)} == {"%block0", "%y"}


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "block"),
    [
        ("f32", 2048, 2048, (512, 64)),  # long runs of memory
        ("f64", 2048, 2048, (512, 32)),  # no more than the second cache holds
        ("f32", 4096, 1000, (256, 128)),  # not so many rows
        ("f32", 256, 512, (64, 64)),  # enough blocks for all threads
        ("f32", 100000, 16, (16, 128)),
        ("f32", 20, 30, (32, 32)),
    ],
)
def test_sides_of_blocks(kind: str, rows: int, columns: int, block: tuple[int, int]) -> None:
    specs = f"{kind}[{rows}, {columns}]", f"{kind}[{columns}, {rows}]"
    (kernel,) = transposed(lambda x, y: x.permute((1, 0)) + y, *specs)
    (scratch,) = statements(kernel, Alloc)
    assert scratch.buffer.shape == block


def test_what_is_stored_across_goes_through_a_block() -> None:
    (kernel,) = transposed(lambda x, y: (x * y).permute((1, 0)) * 2, "f32[256, 512]", "f32[256, 512]")
    (moved,) = statements(kernel, Transpose)
    assert moved.source.buffer.role == "scratch" and moved.target.buffer.role == "out"


def test_rows_are_transposed_once_for_all_loops_over_them() -> None:
    (kernel,) = transposed(lambda x: ops.layer_norm(x.permute((1, 0)), (256,)), "f32[256, 512]")
    assert len(statements(kernel, Transpose)) == 1
    assert len([item for item in statements(kernel, Load) if item.buffer.role == "scratch"]) == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape((4, 8, 16, 64)).permute((0, 2, 1, 3)) * 2,  # rows stay rows
        lambda x: ops.softmax(x, 0),  # everything lies along the columns
        lambda x: x.reshape((8192, 4)).permute((1, 0)) * 2,  # too short
        lambda x: x[:, ::2] * 2,
        lambda x: x.sum(0),
    ],
)
def test_what_needs_no_block_gets_none(function: Callable[..., Any]) -> None:
    for kernel in transposed(function, "f32[512, 64]"):
        assert not statements(kernel, Transpose)


def test_loops_keep_their_meaning() -> None:
    for name in PROGRAMS:
        x, y = np.random.default_rng(0).integers(-3, 4, (2, 20, 33)).astype(np.float32)
        graph = smelt.jit(PROGRAMS[name]).trace(smelt.spec("f32[20, 33]"), smelt.spec("f32[33, 20]"))
        assert_meaning(graph, [x, np.ascontiguousarray(y.T)])


# Rolls.


def test_a_roll_reads_vectors_and_wraps() -> None:
    for size in (2, 15, 16, 17, 64, 100):
        x = np.random.default_rng(size).standard_normal((3, size)).astype(np.float32)
        for shift in (-size + 1, -1, 0, 1, size - 1):
            found = smelt.jit(lambda x, shift=shift: ops.roll(x, shift, 1) + ops.roll(x, -shift, 0))(x)
            np.testing.assert_array_equal(found, np.roll(x, shift, 1) + np.roll(x, -shift, 0))
    text: dict[str, Any] = {}
    graph = smelt.jit(lambda x: ops.roll(x, 1, 1) * 2).trace(smelt.spec("f32[N, M]"))
    compile_graph(graph, on_stage=text.__setitem__)
    assert "urem" not in str(text["llvm"])


# The statement.

BLOCKS = """
kernel @blocks(%x: f32[N, 128], %y: out f32[128, N]) where N >= 2 {
  parallel %i in 0..((N + 63) // 64) {
    alloc %b: f32[128, 64]
    transpose %b[0; 64, 1] = %x[8192 * %i; 1, 128] over (128, min(64, -64 * %i + N))
    serial %j in 0..128 {
      vector<16> %k in (64 * %i)..(min(64 * %i + 64, N)) {
        %0 = load %b[%j, -64 * %i + %k]
        store %y[%j, %k], %0
      }
    }
  }
}
""".strip()

BROKEN = {
    "an input": (BLOCKS.replace("%b[0; 64, 1] = %x[8192 * %i; 1, 128]", "%x[0; 128, 1] = %b[0; 1, 64]"), "an input"),
    "target": (BLOCKS.replace("%b[0; 64, 1]", "%b[0; 64, 2]"), "the columns of the target are not adjacent"),
    "source": (BLOCKS.replace("; 1, 128]", "; 2, 128]"), "the rows of the source are not adjacent"),
    "types": (BLOCKS.replace("%b: f32", "%b: f64"), "the target is f64, the source f32"),
    "itself": (BLOCKS.replace("= %x[8192 * %i; 1, 128]", "= %b[0; 1, 64]"), "transposed onto itself"),
    "range": (BLOCKS.replace("%b[0; 64, 1]", "%b[1; 64, 1]").replace("min(64, -64 * %i + N)", "64"), "goes up to 8192"),
    "below": (BLOCKS.replace("%b[0; 64, 1]", "%b[-1; 64, 1]"), "goes down to -1"),
    "vector": (BLOCKS.replace("serial %j", "vector<4> %j").replace("vector<16> %k", "serial %k")
               .replace("        %0 =", "        transpose %b[0; 64, 1] = %x[0; 1, 128] over (2, 2)\n        %0 ="),
               "inside of a vector loop"),
}  # fmt: skip


STRIPS = (
    BLOCKS.replace("    transpose", "    %lead = lead %x\n    transpose")
    .replace(" over (128, min(64, -64 * %i + N))", " over (-%lead + 128, min(64, -64 * %i + N)) ahead 32 * %lead")
    .replace("%j in 0..128", "%j in 0..(-%lead + 128)")
)


def test_text_of_leads_and_of_what_is_fetched() -> None:
    kernel = parse_kernel(STRIPS)
    verify_kernel(kernel)
    assert print_kernel(kernel) == STRIPS and " ahead 32 * %lead" in STRIPS
    with pytest.raises(smelt.SmeltError, match="%lead is not defined here"):
        parse_kernel(STRIPS.replace("    %lead = lead %x\n", ""))
    with pytest.raises(smelt.SmeltError, match="%lead is defined twice"):
        parse_kernel(STRIPS.replace("    %lead = lead %x\n", "    %lead = lead %x\n" * 2))


def test_text_of_the_statement() -> None:
    kernel = parse_kernel(BLOCKS)
    verify_kernel(kernel)
    assert print_kernel(kernel) == BLOCKS
    assert any(isinstance(item, Loop) for item in kernel.body)
    with pytest.raises(smelt.SmeltError, match="has rows and columns, found 3"):
        parse_kernel(BLOCKS.replace("over (128, ", "over (1, 128, "))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_statements(name: str) -> None:
    text, message = BROKEN[name]
    with pytest.raises(smelt.SmeltError) as caught:
        verify_kernel(parse_kernel(text))
    assert message in str(caught.value)


def test_branches_that_share_a_transposed_buffer() -> None:
    branch = "    serial %i in 0..2 {\n      transpose %y[0; 4, 1] = %x[0; 1, 4] over (4, 4)\n    }\n"
    text = f"kernel @k(%x: f32[16], %y: out f32[16]) {{\n  concurrent {{\n{branch}{branch}  }}\n}}"
    with pytest.raises(smelt.SmeltError, match="two branches write %y"):
        verify_kernel(parse_kernel(text))


# Joins.


def test_a_joined_loop_is_taken_apart() -> None:
    def program(x: Any, y: Any) -> Any:
        return ops.cat([x, y, x * y + 1], 1)

    graph = smelt.jit(program).trace(smelt.spec("f32[40, 30]"), smelt.spec("f32[40, 30]"))
    _, (kernel,) = lowered(graph)  # the product is worked out where it is joined
    parted = Pipeline(["split_ranges"]).run(kernel, verify_each=True)
    inner = [item for item in statements(parted, Loop) if not any(isinstance(part, Loop) for part in item.body)]
    assert [(item.start, item.stop) for item in inner] == [(0, 30), (30, 60), (60, 90)]
    assert not any(item.guard is not None for item in statements(parted, (Load, Store)))
    assert len(statements(parted, Load)) == 4
    x, y = np.random.default_rng(0).standard_normal((2, 40, 30)).astype(np.float32)
    assert_meaning(graph, [x, y])


def test_a_symbolic_join_is_taken_apart() -> None:
    graph = smelt.jit(lambda x, y: ops.cat([x, y], 1)).trace(smelt.spec("f32[40, N]"), smelt.spec("f32[40, M]"))
    _, (kernel,) = lowered(graph)
    parted = Pipeline(["split_ranges"]).run(kernel, verify_each=True)
    assert not any(item.guard is not None for item in statements(parted, (Load, Store)))


@pytest.mark.parametrize("pad", [(3, 2), (-1, 2), (0, -3), (2, 2, 1, 1), (-2, -2)])
def test_padded_and_joined_values(pad: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal((20, 33)).astype(np.float32)

    def program(x: Any) -> Any:
        padded = ops.constant_pad_nd(x * 2, pad, 0.5)
        return padded, ops.cat([padded, ops.exp(padded), padded + padded], 1), ops.cat([x, x * x], 0)

    for found, wanted in zip(smelt.jit(program)(x), evaluate(program, [x], "interp"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-6)


def test_code_does_not_grow_without_end() -> None:
    def program(*parts: Any) -> Any:
        return ops.exp(ops.sin(ops.cat(parts, 1)))

    for number in (2, 12):
        _, (kernel,) = lowered(smelt.jit(program).trace(*[smelt.spec("f32[40, 30]")] * number))
        parted = Pipeline(["split_ranges"]).run(kernel, verify_each=True)
        assert len(statements(parted, Let)) <= 2 * len(statements(kernel, Let))


# Rows that start anywhere.


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_rows_that_start_anywhere_are_streamed(dtype: Any, guarded: Guarded) -> None:
    def program(x: Any) -> Any:
        return x[1:, 1:-1] + x[:-1, 2:]

    x = np.random.default_rng(0).integers(0, 9, (8400 // np.dtype(dtype).itemsize, 2101)).astype(dtype)
    _, (kernel,) = lowered(smelt.jit(program).trace(x))
    streaming = Pipeline(["vectorize", "parallelize", "nontemporal"]).run(kernel, verify_each=True)
    before, after = [item for item in statements(streaming, Loop) if item.kind == "vector"]
    assert not any(item.stream for item in before.body if isinstance(item, Store))
    assert all(item.stream for item in after.body if isinstance(item, Store))
    np.testing.assert_array_equal(smelt.jit(program)(guarded.copy(x)), program(x))
    kept = smelt.jit(program).trace(x[: len(x) // 2])  # large, but the caches may keep all of it
    _, (kernel,) = lowered(kept)
    assert Pipeline(["nontemporal"]).run(kernel) == kernel


def test_what_replaces_shared_memory_is_streamed() -> None:
    """All threads read a model's weights; moments are for the next update alone, and in the cache when it is made."""

    def update(parameter: Any, gradient: Any, moment: Any) -> Any:
        moment = moment * 0.9 + gradient
        return parameter - moment * 0.1, moment

    # Of 4 KB, which a few stores write, of 1 MB, of which fresh results would stay in the caches, and of 16 MB.
    for rows, fresh, new in ((1, 0, 0), (256, 0, 1), (4096, 2, 1)):
        fused, (kernel,) = lowered(smelt.jit(update).trace(*[smelt.spec(f"f32[{rows}, 1024]")] * 3))
        names = tuple(f"%{fused.names[fused.stored(value)]}" for value in fused.graph.results)
        for replaced, shared, wanted in ((names, names[:1], names[:new]), (names, (), ()), ((), (), names[:fresh])):
            step = Step(PASSES["nontemporal"], {"replaced": replaced, "shared": shared})
            stores = statements(Pipeline(["vectorize", "parallelize", step]).run(kernel, verify_each=True), Store)
            assert {item.buffer.name for item in stores if item.stream} == set(wanted)


def test_code_knows_which_results_replace_parameters() -> None:
    def scale(parameter: Any, row: Any) -> Any:
        return parameter * row

    graph = smelt.jit(scale).trace(smelt.spec("f32[4096, 1024]"), smelt.spec("f32[1024]"))
    # Rows that start anywhere: a loop in two could not replace what it reads.
    uneven = smelt.jit(scale).trace(smelt.spec("f32[3000, 3001]"), smelt.spec("f32[3001]"))
    for program, replaced, streamed in ((graph, (), [0]), (graph, (0,), [0]), (uneven, (), [0]), (uneven, (0,), [])):
        options = CompileOptions(replaced=replaced, shared=replaced)
        artifact = compile_graph(program, options).artifact
        assert artifact.streamed == streamed
        assert artifact.overwrites.allow(0, 0) == (program is graph or bool(replaced))
        key, _ = graph_key(program, options)
        other, _ = graph_key(program, CompileOptions())
        assert key is not None and other is not None and (key.name == other.name) == (not replaced)
    small = smelt.jit(scale).trace(smelt.spec("f32[1024, 1024]"), smelt.spec("f32[1024]"))
    assert compile_graph(small, CompileOptions(replaced=(0,))).artifact.streamed == []
    assert compile_graph(small, CompileOptions(replaced=(0,), shared=(0,))).artifact.streamed == [0]
    for option in ("replaced", "shared"):
        with pytest.raises(CompileError, match=f"{option} names result 1; there are 1"):
            compile_graph(small, CompileOptions(**{option: (1,)}))


def test_parameters_of_channels_stay_outside_of_the_vectors():
    """What is read once a channel is little: vectors run along what is much, and the reads stay where they belong."""

    @smelt.jit
    def scaled(x, shift, scale, bias):
        shift, scale, bias = (item.reshape(8, 1, 1) for item in (shift, scale, bias))
        return ops.relu((x - shift) * scale + bias)

    random = np.random.default_rng(0)
    x = random.standard_normal((2, 8, 16, 16)).astype(np.float32)
    shift, scale, bias = random.standard_normal((3, 8)).astype(np.float32)
    spread = [item.reshape(8, 1, 1) for item in (shift, scale, bias)]
    expected = np.maximum((x - spread[0]) * spread[1] + spread[2], 0)
    np.testing.assert_allclose(scaled(x, shift, scale, bias), expected, rtol=1e-5, atol=1e-6)


def test_parts_of_a_row_have_blocks_of_their_own() -> None:
    """The columns before and behind what is put into them are read by two loops, from the same buffer."""

    def program(x: Any) -> Any:
        windows = (x + 1).unfold(0, 4, 3)
        return ops.slice_scatter(windows, -windows[:, :, 1:2], 2, 1, 2)

    x = np.arange(25, dtype=np.float32).reshape(5, 5)
    wanted = (x[:4] + 1).T[None].copy()
    wanted[:, :, 1] *= -1
    np.testing.assert_array_equal(smelt.jit(program)(x), wanted)
