"""Native code and its memory: nothing outside of an array is touched, whatever the sizes, types and vectors."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
from smelt import CompileOptions, ops
from smelt.backend.compile import compile_graph
from smelt.backend.cpu.call import executable as native
from smelt.backend.cpu.runtime import native_pool
from smelt.backend.cpu.runtime.records import ALIGNMENT, ALLOCATOR
from smelt.ir.errors import ArgumentError, ShapeError, TraceError
from smelt.ir.proofs import ceil_divide
from smelt.kernels.loop.ir import Statement
from smelt.kernels.machine import CACHE_LINE, Machine
from smelt.passes.memory import scratch
from smelt.passes.memory.arena import Plan
from smelt.passes.memory.lifetime import Owner
from support import evaluate, flatten

PAGE = mmap.PAGESIZE
DTYPES = [
    np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64,
    np.complex64, np.complex128,
]  # fmt: skip


class Guarded:
    """Arrays that begin or end where a page begins that no one may touch: a step too far ends the process."""

    def __init__(self, side: str):
        self.side = side
        self.libc = ctypes.CDLL(None)
        self.libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.kept: list[Any] = []
        self.copies = 0

    def empty(self, shape: Any, dtype: Any, alignment: int = 1) -> np.ndarray:
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = math.prod(sizes) * np.dtype(dtype).itemsize
        if nbytes < ALLOCATOR.middle:
            alignment = 1
        inside = max(1, -(-nbytes // PAGE)) * PAGE
        area = mmap.mmap(-1, inside + 2 * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        at = PAGE if self.side == "begin" else PAGE + (inside - nbytes) // alignment * alignment
        self.kept.append((area, start, inside, at + nbytes))
        for page in (start, start + PAGE + inside):
            assert self.libc.mprotect(page, PAGE, 0) == 0
        return np.frombuffer(area, np.uint8, nbytes, at).view(dtype).reshape(sizes)

    def empty_arrays(self, layouts: Any) -> list[np.ndarray]:
        return [self.empty(*layout, ALIGNMENT) for layout in layouts]

    def release(self) -> None:
        """What lies between an array and the page behind it was not written either."""
        for area, start, inside, end in self.kept:
            for page in (start, start + PAGE + inside):
                assert self.libc.mprotect(page, PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
            assert not any(area[end : PAGE + inside]), "something was written behind an array"

    def copy(self, array: np.ndarray) -> np.ndarray:
        result = self.empty(array.shape, array.dtype)
        result[...] = array
        self.copies += 1
        return result


@pytest.fixture(params=["begin", "end"])
def guarded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """Results, arena and scratch of all calls lie between pages that no one may touch."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs mprotect")
    memory = Guarded(request.param)
    monkeypatch.setattr(native, "empty_arrays", memory.empty_arrays)
    yield memory
    assert len(memory.kept) > memory.copies, "results are not made by executable.empty_arrays: adapt this test"
    memory.release()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "pointwise": lambda x: x + x,
    "rows": lambda x: (x + x[:1], x + x[:, :1]),
    "transposed": lambda x: x.permute((1, 0)) + x.permute((1, 0)),
    "sums": lambda x: (x.sum(1), x.sum(0), x.sum()),
    "joined": lambda x: (ops.cat([x, x + x], 1), ops.stack([x, x], 2)),
    "moved": lambda x: (ops.flip(x, (1,)), x[:, 1::2] + x[:, 1::2], ops.roll(x, 3, 1)),
    "padded": lambda x: (ops.constant_pad_nd(x, (3, 2, 1, 0)), ops.constant_pad_nd(x, (-1, 2))),
    "running": lambda x: (x.cumsum(1), x.cumsum(0)),
    "converted": lambda x: (x.to(smelt.bool_), x.to(smelt.u8), x.to(smelt.i16), x.to(smelt.f16), x.to(smelt.c64)),
    "products": lambda x: (x @ x.permute((1, 0)), x[:, 1:] @ x[:, 1:].permute((1, 0)), x @ x[0]),
    "gathered": lambda x: x[:, np.array([0, -1])],
}


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_products_pack_into_their_own_scratch(bits: int, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one thread, and if nothing shares a place, the scratch of a product is the last of its memory."""

    def products_last(statements: Sequence[Statement], machine: Machine) -> Plan[Owner]:
        sizes = scratch.scratch_sizes(statements, machine)
        plan: Plan[Owner] = Plan({}, 0)
        for owner in sorted(sizes, key=lambda owner: isinstance(owner, int)):
            plan.offsets[owner], plan.size = plan.size, plan.size + ceil_divide(sizes[owner], CACHE_LINE) * CACHE_LINE
        return plan

    monkeypatch.setattr(scratch, "plan_scratch", products_last)
    monkeypatch.setattr(scratch, "lone_scratch", lambda kernel, machine: {})

    def both(x: Any, y: Any) -> Any:
        return ops.relu(x @ y), ops.softmax(x @ y, 1)

    for dtype, rows, columns, depth in (
        ("f4", 3, 40, 7), ("f4", 70, 300, 513), ("f4", 129, 200, 512), ("f4", 600, 40, 30), ("f8", 131, 190, 770)
    ):  # fmt: skip
        x, y = (np.random.default_rng(depth).random(shape).astype(dtype) for shape in ((rows, depth), (depth, columns)))
        function = smelt.jit(both, options=CompileOptions(vector_bits=bits))
        with smelt.threads(1):
            for left, right in ((x, y), (np.asfortranarray(x), np.asfortranarray(y))):
                positive, _ = function(guarded.copy(left), guarded.copy(right))
                np.testing.assert_allclose(positive, x @ y, rtol=2e-5)


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_dot_products_stay_in_their_rows(bits: int, guarded: Guarded) -> None:
    linear = smelt.jit(lambda x, w: x @ w.permute((1, 0)), options=CompileOptions(vector_bits=bits), dynamic=False)
    sizes = [("f4", 2, 3, 129), ("f4", 5, 13, 1025), ("f8", 131, 5, 200), ("f8", 3, 7, 515)]
    sizes += [(ml_dtypes.bfloat16, *size) for size in ((1, 1, 65), (2, 3, 95), (5, 13, 2049), (131, 7, 64))]
    for dtype, rows, columns, depth in sizes:
        x, w = (np.random.default_rng(depth).random(shape).astype(dtype) for shape in ((rows, depth), (columns, depth)))
        got, wanted = linear(guarded.copy(x), guarded.copy(w)), x.astype("f8") @ w.astype("f8").T
        np.testing.assert_allclose(got.astype("f8"), wanted, rtol=2e-5 if got.itemsize > 2 else 2.0**-8)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_nothing_outside_is_touched(name: str, bits: int, guarded: Guarded) -> None:
    function = PROGRAMS[name]
    for number, dtype in enumerate(DTYPES):
        for shape in ((1, 1 + number), (17 + number, 33 - number)):
            data = np.random.default_rng(number).integers(0, 4, shape).astype(dtype)
            compiled = smelt.jit(function, options=CompileOptions(vector_bits=bits), dynamic=False)
            results = flatten(compiled(guarded.copy(data)))
            for found, expected in zip(results, evaluate(function, [data], "interp"), strict=True):
                assert found.dtype == expected.dtype
                np.testing.assert_allclose(found.astype(complex), expected.astype(complex), rtol=1e-2)


@pytest.mark.parametrize("name", ["pointwise", "sums", "padded", "running", "products"])
def test_nothing_outside_is_touched_with_symbolic_sizes(name: str, guarded: Guarded) -> None:
    function = smelt.jit(PROGRAMS[name])
    check_shapes(function, guarded, ((3, 5), (7, 33), (4, 64), (300, 271), (2, 2)))
    assert function.compiles == 2


def check_shapes(function: Any, guarded: Guarded, shapes: Sequence[tuple[int, int]]) -> None:
    for shape in shapes:
        data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        results = flatten(function(guarded.copy(data)))
        for found, expected in zip(results, evaluate(function.function, [data], "interp"), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def attention(x: Any) -> Any:
    heads = ops.stack([x, x * 0.5, x - 1])
    return ops.softmax(heads @ heads.mT * 0.3, -1) @ heads


def images(x: Any) -> Any:
    return ops.stack([ops.stack([x, x * 0.5]), ops.stack([x + 1, x])])


def kernels(outputs: int, inputs: int, size: int) -> np.ndarray:
    numbers = np.arange(outputs * inputs * size * size, dtype=np.float32) % 5 - 2
    return numbers.reshape(outputs, inputs, size, size)


# What has loops of its own kind: rows in scratch memory, windows, places that data decides, tiles.
KERNELS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: (ops.softmax(x, 1), ops.softmax(x, 0), ops.log_softmax(x.T, 1)),
    "norms": lambda x: (ops.layer_norm(x, (x.shape[1],)), ops.rms_norm(x, (x.shape[1],)), x.std(0), ops.norm(x)),
    "extremes": lambda x: (x.argmax(1), x.argmin(0), x.amax(0), ops.cummax(x, 1)[1], ops.logsumexp(x, 0)),
    "attention": attention,
    "chain": lambda x: ops.relu(x @ x.T + 1).sum(1),
    "products of columns": lambda x: (x.T @ x, x.T @ x[:, :1], x.reshape(1, -1) @ x.reshape(-1, 1)),
    "convolution": lambda x: ops.conv2d(images(x), kernels(3, 2, 3), padding=1),
    "convolution by 2": lambda x: ops.conv2d(images(x), kernels(3, 2, 2), stride=2, padding=1, dilation=1),
    "convolution of each": lambda x: ops.conv2d(images(x), kernels(2, 1, 3), padding=1, groups=2),
    "pools": lambda x: (ops.max_pool2d(images(x), 2, 1, 1), ops.avg_pool2d(images(x), 2, 1, 1)),
    "places": lambda x: (
        ops.embedding(x, np.array([[0, 0], [0, 0]])), ops.gather(x, 1, ops.zeros_like(x).to(smelt.i64)),
        ops.index_add(x, 0, np.array([0, 0, 0]), ops.ones((3, x.shape[1]))),
    ),
    "windows": lambda x: (x.unfold(1, 1, 1).sum(-1), ops.pad(x[None], (0, 0, 0, 0), "reflect"), ops.tril(x)),
    "scattered": lambda x: ops.scatter_add(x, 0, ops.zeros_like(x).to(smelt.i64), x),
    "three dims": lambda x: ops.stack([x, x + 1, x * 2], 2).permute((2, 1, 0)) * 2,
    "every order": lambda x: ops.stack([ops.stack([x, x], 1)] * 3, 1).permute((3, 1, 0, 2)) + 1,
    "slopes": smelt.grad(lambda x: (ops.layer_norm(ops.gelu(x), (x.shape[1],)) ** 3).sum()),
    "slopes of convolution": smelt.grad(lambda x: (ops.conv2d(images(x), kernels(3, 2, 3), padding=1) ** 2).sum()),
    "slopes of attention": smelt.grad(lambda x: (attention(x) ** 2).sum()),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_outside_is_touched_by_kernels_of_any_kind(name: str, guarded: Guarded) -> None:
    check_shapes(smelt.jit(KERNELS[name]), guarded, ((5, 7), (17, 33), (2, 3), (35, 65), (1, 1)))


# Sizes that vanish.


def test_a_symbolic_size_that_vanishes_divides_nothing() -> None:
    function = smelt.jit(lambda x, y: (x[2:] * 2).cumsum(0) @ (y[:, 2:] * 3).cumsum(0))
    for size in (5, 6, 3, 2):
        x, y = np.ones((size, 7), np.float32), np.ones((7, size), np.float32)
        np.testing.assert_allclose(function(x, y), (x[2:] * 2).cumsum(0) @ (y[:, 2:] * 3).cumsum(0))
    assert function.compiles == 2


def test_a_product_over_a_depth_that_vanishes_is_zero() -> None:
    function = smelt.jit(lambda x, y: (x[:, 2:] * 2).cumsum(0) @ (y[2:] * 3).cumsum(0))
    for size in (5, 6, 2):
        x, y = np.ones((3, size), np.float32), np.ones((size, 4), np.float32)
        np.testing.assert_allclose(function(x, y), (x[:, 2:] * 2).cumsum(0) @ (y[2:] * 3).cumsum(0))


# What callers hand over.


def test_an_executable_takes_arrays_as_they_lie() -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    program = compile_graph(smelt.jit(lambda x: x + 1).trace(smelt.spec("f32[2, 3]")))
    misaligned = np.frombuffer(b"-" + data.tobytes(), np.float32, 6, 1).reshape(2, 3)
    for array in (data, np.asfortranarray(data), np.repeat(data, 2, 1)[:, ::2], misaligned, data.astype(">f4")):
        np.testing.assert_array_equal(program([array])[0], data + 1)


def test_an_executable_refuses_arrays_of_other_types() -> None:
    both = smelt.jit(lambda x, y: x + y).trace(smelt.spec("f32[N]"), smelt.spec("f32[N]"))
    program = compile_graph(both)
    for x, y in ((4, 3), (3, 4)):
        with pytest.raises(ShapeError, match="parameter y is f32"):
            program([np.ones(x, np.float32), np.ones(y, np.float32)])
    with pytest.raises(ShapeError, match="got f64"):
        program([np.ones(4), np.ones(4, np.float32)])


def test_a_program_that_holds_for_single_sizes_only() -> None:
    function = smelt.jit(lambda x: x.reshape((-1, 2)).sum(1))
    for size in (4, 6, 8):
        assert function(np.ones(size, np.float32)).shape == (size // 2,)
    with pytest.raises(ShapeError, match="cannot reshape"):
        function(np.ones(7, np.float32))


def test_static_numpy_numbers_are_told_apart() -> None:
    function = smelt.jit(lambda x, factor: x * factor, static_argnums=1)
    x = np.ones(2, np.int64)
    assert function(x, np.int64(1)).dtype == np.int64
    assert function(x, np.float32(1)).dtype == np.float64


def test_random_numbers_are_not_known_while_tracing() -> None:
    with pytest.raises(TraceError, match="random numbers are only drawn when compiled code runs"):
        smelt.jit(lambda x: x + 1 if ops.rand(()) > 0.5 else x)(np.ones(3))


def test_an_argument_is_differentiated_once() -> None:
    with pytest.raises(ArgumentError, match="twice"):
        smelt.grad(lambda x, y: (x * y).sum(), argnums=(0, -2))(np.ones(2), np.ones(2))


# Memory and processes.


def test_sizes_share_the_memory_of_calls() -> None:
    function = smelt.jit(lambda x: ops.softmax(x @ x.permute((1, 0)), 1).cumsum(0).sum(0))
    for size in range(10, 60, 2):
        function(np.ones((size, 4), np.float32))
    assert function.compiles == 2
    assert len(function.latest.executable.frames) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_other_threads_compile() -> None:
    code = """
import os, signal, threading, time
import numpy as np
import smelt

x = np.ones(100, np.float32)
smelt.jit(lambda x: x - 1)(x)
stop = time.monotonic() + 2

def compile_again():
    number = 0
    while time.monotonic() < stop:
        number += 1
        factor = number
        smelt.jit(lambda x: (x * factor).exp().sum())(x)

thread = threading.Thread(target=compile_again)
thread.start()
while time.monotonic() < stop:
    child = os.fork()
    if not child:
        signal.alarm(30)
        smelt.jit(lambda x: x + 1)(x)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
thread.join()
print("fine")
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "fine", done.stderr


@pytest.mark.parametrize(
    ("system", "machine", "triple"),
    [
        ("Linux", "x86_64", "x86_64-unknown-linux-gnu"),
        ("Linux", "aarch64", "aarch64-unknown-linux-gnu"),
        ("Darwin", "arm64", "arm64-apple-darwin"),
        ("Windows", "AMD64", "x86_64-pc-windows-msvc"),
    ],
)
def test_the_pool_is_code_for_every_system(system: str, machine: str, triple: str) -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(native_pool.unit.text(native_pool.Platform(system, machine)))
    text = llvm.Target.from_triple(triple).create_target_machine().emit_assembly(module)
    found = {name for name in ("syscall", "usleep", "Sleep") if name in text}
    assert found == {{"Linux": "syscall", "Darwin": "usleep", "Windows": "Sleep"}[system]}


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("columns", [1024, 1000, 1003])
def test_streamed_results_are_complete(bits: int, columns: int) -> None:
    """Large results bypass the caches where vectors are aligned; every thread sees all of them afterwards."""
    x = np.random.default_rng(0).normal(size=(3000, columns)).astype(np.float32)
    program = smelt.jit(
        lambda x: (x * 2.0 + 1.0, x - ops.amax(x, 1, keepdim=True)), options=CompileOptions(vector_bits=bits)
    )
    for count in (1, 2):
        with smelt.threads(count):
            doubled, lowered = program(x)
        assert np.array_equal(doubled, x * np.float32(2) + np.float32(1))
        assert np.array_equal(lowered, x - x.max(1, keepdims=True))


@pytest.mark.parametrize("bits", [256, 512])
def test_long_rows_fetch_the_next(bits: int) -> None:
    """Rows of over 32 KB that are read twice; behind the last one there is none."""
    x = np.random.default_rng(0).normal(size=(260, 8203)).astype(np.float32)
    program = smelt.jit(lambda x: ops.logsumexp(x, (1,)), options=CompileOptions(vector_bits=bits))
    found = []
    for count in (1, 2):
        with smelt.threads(count):
            found.append(program(x))
    assert np.array_equal(*found)
    exact = np.log(np.exp(x.astype(np.float64)).sum(1))
    np.testing.assert_allclose(found[0], exact, rtol=3e-7)
    texts = stages(program, x, annotate=True)
    assert "fetch %x[%i + 1, %j]" in texts["loops"]
    assert "; fetch %x[%i + 1, %j]" in texts["llvm"]


def test_short_rows_far_apart_are_fetched_ahead() -> None:
    """The rows of a block, of which the last ones have none behind them; sizes that blocks do not divide."""
    x, y = np.random.default_rng(0).normal(size=(2, 1531, 1531)).astype(np.float32)
    program = smelt.jit(lambda x, y: x.T + y)
    assert np.array_equal(program(x, y), x.T + y)
    assert "fetch %y[%i + 16, %j]" in stages(program, x, y)["loops"]


def test_long_rows_of_a_join_fetch_the_next() -> None:
    """Each part is a branch that runs at the same time as the other."""
    x, y = np.random.default_rng(0).normal(size=(2, 260, 8203)).astype(np.float32)
    program = smelt.jit(lambda x, y: ops.cat([ops.logsumexp(x, (1,)), ops.logsumexp(y, (1,))]))
    exact = np.log(np.exp(np.concatenate([x, y]).astype(np.float64)).sum(1))
    np.testing.assert_allclose(program(x, y), exact, rtol=3e-7)
    loops = stages(program, x, y)["loops"]
    assert "concurrent" in loops
    assert "fetch %x[%i + 1, %j]" in loops and "fetch %y[%i + 1, %j]" in loops


@pytest.mark.parametrize(
    ("shape", "dim"), [((1 << 21,), 0), ((3, 123457), 1), ((20000, 33), 0), ((300, 7, 300), (0, 2))]
)
def test_long_sums_are_nearly_pairwise(shape: tuple[int, ...], dim: Any) -> None:
    """Rounding errors of positive numbers: of one long run they would reach 1e-5, of pairwise sums 1e-7."""
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    exact = x.astype(np.float64).sum(dim)
    found = np.asarray(smelt.jit(lambda x: ops.sum(x, dim))(x), np.float64)
    assert np.max(np.abs(found - exact) / exact) < 6e-7


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_one_nan_is_the_extreme(dtype: Any, bits: int) -> None:
    """In whichever lane and iteration it comes, along rows and along columns, with whatever before and behind it."""
    size = 403
    x = np.random.default_rng(0).normal(size=(size, size)).astype(dtype)
    x[:, -3:] = np.inf, -np.inf, 0.0
    np.fill_diagonal(x, np.nan)
    x[3] = -np.inf
    x[5, :] = x[:, 5] = 1.5
    program = smelt.jit(
        lambda x: tuple(extreme(x, dim) for extreme in (ops.amax, ops.amin) for dim in (0, 1)),
        options=CompileOptions(vector_bits=bits),
    )
    for found, expected in zip(program(x), (x.max(0), x.max(1), x.min(0), x.min(1)), strict=True):
        assert 0 < np.isnan(expected).sum() < size
        np.testing.assert_array_equal(found, expected)


def test_a_maximum_waits_for_one_instruction() -> None:
    """Not for the sign of zero: that is four times as long, and all of a row waits for it."""
    text: dict[str, Any] = {}
    compile_graph(smelt.jit(lambda x: ops.amax(x, 1)).trace(smelt.spec("f32[64, 4096]")), None, text.__setitem__)
    loop = str(text["llvm"]).partition("loop")[2].partition("halves onto halves")[0]
    assert "fcmp ogt <" in loop and "llvm.maximum.v" not in loop.partition("br i1")[0]


def test_the_gradient_of_cross_entropy_is_as_near_as_softmax() -> None:
    """Of numbers whose differences are exact. By exponentials less a logarithm it would be ten times as far."""
    x = np.random.default_rng(0).integers(-60, 60, (64, 999)).astype(np.float32) / 4
    labels = np.random.default_rng(1).integers(0, 999, 64)
    gradient = smelt.jit(lambda x: smelt.grad(lambda x: ops.cross_entropy(x, labels, reduction="sum"))(x))
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    exact = powers / powers.sum(1, keepdims=True)
    found = gradient(x)
    others = np.arange(999) != labels[:, None]
    ulps = np.abs(found - exact)[others] / np.spacing(exact.astype(np.float32))[others]
    assert ulps.max() < 3
    found[np.arange(64), labels] += 1
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-7)
    loops = stages(gradient, x)["loops"]
    assert loops.count("= exp(") == 1  # the sum's exponentials are kept


def test_many_kernels_one_after_the_other() -> None:
    """Every kernel reads the one before, and two read an index that may be wrong: sites are numbered through."""
    count = 40

    def steps(x: Any, w: Any, at: Any) -> Any:
        first = x[at]
        for _ in range(count):
            x = ops.relu(x @ w) + 0.5
        return x, first, x[at + 1]

    x, w = np.full((4, 4), 0.5, np.float32), np.full((4, 4), 0.125, np.float32)
    program = smelt.jit(steps)
    result, first, last = program(x, w, np.array([0, 2]))
    assert len(program.report().kernels) > count // 2
    expected = x
    for _ in range(count):
        expected = np.maximum(expected @ w, 0) + 0.5
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    np.testing.assert_array_equal(first, x[[0, 2]])
    np.testing.assert_array_equal(last, result[[1, 3]])
    with pytest.raises(smelt.SmeltError) as caught:
        program(x, w, np.array([0, 3]))
    assert "index 4 is out of range" in str(caught.value)
    assert f":{steps.__code__.co_firstlineno + 4}:" in str(caught.value)


def stages(
    function: Callable[..., Any], *arrays: np.ndarray, vector_bits: int = 256, annotate: bool = False
) -> dict[str, str]:
    """The text of the program at every stage of its compilation."""
    found: dict[str, str] = {}
    options = CompileOptions(vector_bits=vector_bits, annotate=annotate)
    compile_graph(smelt.jit(function).trace(*arrays), options, lambda name, thing: found.update({name: str(thing)}))
    return found


def test_what_hardly_ever_runs_is_compiled_once() -> None:
    text = stages(lambda x: ops.sin(x) + ops.sin(x * 2) + ops.log(x) + ops.log2(x), np.ones(96, np.float32))["llvm"]
    for name in ("sin_large", "log_unusual.e", "log_unusual.2"):
        assert text.count(f"@rare.{name}.v8f32(<8 x float> %a0) noinline cold") == 1
    assert text.count("call <8 x float> @rare.sin_large") == 2


def test_a_long_chain_runs_two_vectors_at_a_time() -> None:
    def chain(x: Any) -> Any:
        for _ in range(6):
            x = ops.exp(-x)
        return x

    def many(x: Any) -> Any:
        return ops.exp(x) + ops.exp2(x) + ops.exp(-x) + ops.exp2(-x) + ops.exp(2 * x) + ops.exp(3 * x)

    x = np.ones(4096, np.float32)
    assert "vector<16>" in stages(chain, x)["loops"]
    assert "vector<8>" in stages(many, x)["loops"]


def test_vectors_of_scattered_elements_pay_with_enough_work() -> None:
    """Overlaps of boxes, of which each coordinate lies apart from the next box's."""

    def overlap(boxes: Any, others: Any) -> tuple[Any, Any]:
        low = ops.maximum(boxes[:, None, :2], others[:, :2])
        high = ops.minimum(boxes[:, None, 2:], others[:, 2:])
        size = ops.clamp(high - low, 0)
        shared = size[..., 0] * size[..., 1]
        area = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
        return ops.max_dim(shared / (area - shared + 2), 1)

    def little(boxes: Any) -> Any:
        return boxes[:, 0] + boxes[:, 1] + boxes[:, 2]

    boxes, others = (np.random.default_rng(0).random((size, 4), np.float32).cumsum(1) for size in (37, 101))
    assert "vector<" in stages(overlap, boxes, others)["loops"]
    assert "vector<" not in stages(little, boxes)["loops"]
    found, places = smelt.jit(overlap)(boxes, others)
    low, high = np.maximum(boxes[:, None, :2], others[:, :2]), np.minimum(boxes[:, None, 2:], others[:, 2:])
    shared = np.clip(high - low, 0, None).prod(-1)
    ratio = shared / ((others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1]) - shared + 2)
    np.testing.assert_allclose(found, ratio.max(1), rtol=1e-5)
    np.testing.assert_array_equal(places, ratio.argmax(1))


# Indices.

FAR = (-(2**63), -(2**63) + 1, -1, 0, 1, 15, 16, 31, 32, 99, 100, 2**31, 2**32, 2**32 + 3, 2**63 - 1)


@pytest.mark.parametrize("name", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_indices_compared_with_any_number(name: str) -> None:
    compare = {"equal": ops.eq, "not_equal": ops.ne, "less": ops.lt}
    compare |= {"less_equal": ops.le, "greater": ops.gt, "greater_equal": ops.ge}
    for size in (5, 33, 100):

        def program(x: Any, number: Any, size: int = size) -> Any:
            places = ops.arange(size)
            answers = compare[name](places, number), compare[name](number, places + 3)
            return tuple(ops.where(answer, x, 0.0) for answer in answers)

        compiled, ones, places = smelt.jit(program), np.ones(size, np.float32), np.arange(size)
        for far in FAR:
            number = np.array([far], np.int64)
            left, right = compiled(ones, number)
            np.testing.assert_array_equal(left, getattr(np, name)(places, number))
            np.testing.assert_array_equal(right, getattr(np, name)(number, places + 3))


def test_labels_are_compared_in_lanes_as_wide_as_the_numbers() -> None:
    text: dict[str, Any] = {}
    graph = smelt.jit(lambda x, label: ops.where(ops.arange(1000) == label, x, 0.0)).trace(
        smelt.spec("f32[1000]"), smelt.spec("i64[]")
    )
    compile_graph(graph, on_stage=text.__setitem__)
    lines = str(text["llvm"]).splitlines()
    assert [line for line in lines if "icmp eq <" in line]
    assert not [line for line in lines if "icmp eq <" in line and "x i64>" in line]


def test_spilled_vectors_lie_in_one_cache_line_each() -> None:
    def many_at_a_time(x: Any) -> Any:
        return ops.tanh(x) * ops.sigmoid(x) + ops.sin(x) * ops.exp(x) + ops.erf(x) * ops.log1p(ops.abs(x))

    text: dict[str, Any] = {}
    compile_graph(smelt.jit(many_at_a_time).trace(smelt.spec("f32[4194304]")), None, text.__setitem__)
    spills = re.findall(r"\bv?mov([au]p[sd]|dq[au]\d*)\s.*\(%rsp\)", str(text["asm"]))
    if not spills:
        pytest.skip("another kind of processor, or one with more registers")
    assert all("a" in kind for kind in spills)
