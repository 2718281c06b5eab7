"""Programs in Numba's simulator of CUDA, against the interpreter, PyTorch and NumPy. test_cuda.py runs all of this in a
process of its own, as the simulator is switched on before Numba is imported:

    NUMBA_ENABLE_CUDASIM=1 pytest tests/cuda/cuda_simulated.py -k softmax
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import optree
import pytest
import smelt
from fuzz.check import check
from loop_programs import PROGRAMS as LOOP_PROGRAMS
from loop_programs import assert_close, indices, numbers
from loop_programs import trace as trace_sizes
from parity.gaps import KNOWN_GAPS
from parity.runner import matching, run
from parity.special import unexplained
from random_programs import Seeded, build, disagreement
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.cuda.codegen.library import names
from smelt.backend.cuda.codegen.module import emit_module
from smelt.backend.cuda.simulator.simulate import Simulated
from smelt.backend.cuda.simulator.turn_taking import Memory, Race, taking_turns
from smelt.backend.options import CompileOptions
from smelt.ir.errors import ArgumentError, IndexRangeError
from smelt.kernels.loop.parser import parse_kernels
from smelt.ops.define import REGISTRY
from smelt.tools import demo
from support import evaluate, flatten, interpret

BF16 = ml_dtypes.bfloat16

# Besides those of loop_programs.py: rows for whole blocks, sizes that fill no vector, warp or tile.
PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[np.ndarray]]] = {
    "vectors and a tail": (lambda x: ops.relu(x * 2 + 1), [numbers(1027)]),
    "halves and a tail": (lambda x: x * 2 + 1, [numbers(2051, kind=np.float16)]),
    "bytes": (lambda x: (x > 0) & (x < 5), [numbers(67, kind=np.int8)]),
    "broadcasts": (lambda x, y, z: x * y + z, [numbers(5, 1, 9), numbers(3, 1, seed=1), numbers(9, seed=2)]),
    "long rows": (lambda x: (ops.sum(x, 1), ops.amax(x, 1), ops.argmax(x, 1)), [numbers(3, 2100)]),
    "rows of vectors": (lambda x: (ops.sum(x, 1), ops.amin(x, 1)), [numbers(3, 1024)]),
    "softmax of long rows": (lambda x: ops.softmax(x, 1), [numbers(2, 1500)]),
    "softmax of halves": (lambda x: ops.log_softmax(x, 1), [numbers(3, 130, kind=BF16)]),
    "layer_norm of long rows": (lambda x: ops.gelu(ops.layer_norm(x, (1100,))), [numbers(2, 1100)]),
    "all of many": (lambda x: (ops.sum(x), ops.prod(1 + x / 100), ops.argmin(x)), [numbers(37, 41, kind=np.float64)]),
    "outer and inner axes": (lambda x: ops.var_mean(x, (0, 2)), [numbers(4, 3, 50)]),
    "softmax of columns beside a sum of all": (
        lambda x: smelt.value_and_grad(lambda x: ops.sum(ops.softmax(x, 0) * x))(x),
        [numbers(4, 32, 1)],
    ),
    "long softmax of columns beside a sum of all": (
        lambda x: smelt.value_and_grad(lambda x: ops.sum(ops.softmax(x, 0) * x))(x),
        [numbers(300, 40, 1)],
    ),
    "long columns": (lambda x: (ops.sum(x, 0), ops.logsumexp(x, 0)), [numbers(300, 40)]),
    "scan of long rows": (lambda x: ops.cumsum(x, 1), [numbers(2, 1300)]),
    "scan of columns": (lambda x: (ops.cumsum(x, 0), ops.cumprod(x, 0)), [numbers(70, 9)]),
    "scan of integers": (lambda x: ops.cumsum(x, 1), [numbers(3, 100, kind=np.int32)]),
    "scans of one element": (
        lambda x, y: (ops.cumsum(x, 1), ops.cumprod(x[:, :, 0], 1), *ops.cummax(y, 0)),
        [numbers(3, 1, 5), numbers(1)],
    ),
    "complex rows in registers": (
        lambda x: (e := ops.exp(x)) / ops.sum(e, 1, True),
        [numbers(3, 64, kind=np.complex64)],
    ),
    "mean beside complex numbers": (
        lambda c, a, x: ops.where(c, ops.cast(ops.mean(ops.cast(a & c, smelt.f32) * x), smelt.c64), a & c),
        [numbers(64) > 0, numbers(64, seed=1) > 0, numbers(64)],
    ),
    "greatest so far": (lambda x: ops.cummax(x, 1), [numbers(3, 100)]),
    "scan of complex numbers": (lambda x: ops.cumsum(x, 1), [numbers(2, 70, kind=np.complex64)]),
    "transposes": (lambda x, y: ops.transpose(x, 0, 1) + y, [numbers(45, 70), numbers(70, 45)]),
    "product of odd sizes": (lambda x, y: ops.relu(x @ y), [numbers(37, 19), numbers(19, 35)]),
    "product of columns": (lambda x, y: ops.t(x) @ ops.t(y) + 1, [numbers(19, 37), numbers(35, 19)]),
    "product in f64": (lambda x, y: x @ y, [numbers(33, 17, kind=np.float64), numbers(17, 5, kind=np.float64)]),
    "product of f16": (lambda x, y: x @ y, [numbers(9, 40, kind=np.float16), numbers(40, 7, kind=np.float16)]),
    "product of bf16": (lambda x, y: x @ y, [numbers(9, 40, kind=BF16), numbers(40, 7, kind=BF16)]),
    "product of complex": (
        lambda x, y: x @ y,
        [numbers(5, 9, kind=np.complex64), numbers(9, 4, kind=np.complex64)],
    ),
    "products of a batch": (lambda x, y: ops.softmax(ops.bmm(x, y), 2), [numbers(3, 5, 20), numbers(3, 20, 33)]),
    "attention": (
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v),
        [numbers(2, 9, 8), numbers(2, 11, 8, seed=1), numbers(2, 11, 8, seed=2)],
    ),
    "scatters that meet": (
        lambda x, i, s: ops.index_add(x, 0, i, s),
        [numbers(5, 33), indices(5, 40), numbers(40, 33, seed=1)],
    ),
    "empty": (
        lambda x, y: (ops.sum(x, 0), ops.softmax(x, 1), ops.t(x) @ x, ops.cat([x, y], 0), ops.sum(x)),
        [numbers(0, 4), numbers(3, 4)],
    ),
}
# A few of every family that the programs above leave out, with all their samples, in all modes.
OPS = (
    *("add", "where", "pow", "floor_divide", "remainder", "bitwise_left_shift", "clamp", "round", "digamma", "erfinv"),
    *("gelu", "silu_backward", "amax", "var", "norm", "all", "searchsorted", "flip", "unfold"),
    *("gather", "index_put", "scatter_reduce", "masked_fill", "addmm", "dot", "einsum", "kron"),
    *("conv_transpose2d", "max_pool2d", "avg_pool2d_backward", "group_norm"),
    *("nll_loss", "huber_loss", "logcumsumexp", "cummin", "angle", "view_as_real", "linspace", "tril"),
)
SYMBOLIC: dict[str, Sequence[Sequence[str]]] = {
    "softmax": ["N M"],
    "column sums": ["N M"],
    "transpose": ["N M", "M N"],
    "cumsum": ["N M"],
    "gather": ["N M", "N 4"],
    "matmul": ["N 13", "13 M"],
    "embedding gradient": ["N M", "5"],
}
ALL = {**{f"loops: {name}": item for name, item in LOOP_PROGRAMS.items()}, **PROGRAMS}


@pytest.mark.parametrize("name", ALL)
def test_program(name: str) -> None:
    function, arrays = ALL[name]
    found = evaluate(function, arrays, "cuda")
    for wanted, result in zip(evaluate(function, arrays, "interp"), found, strict=True):
        assert_close(name, wanted, result)


@pytest.mark.parametrize("mode", ["forward", "vjp", "jvp"])
@pytest.mark.parametrize("name", OPS)
def test_op(name: str, mode: str) -> None:
    failures = run(REGISTRY[name], mode, "cuda")
    messages = [
        f"{name}{item.case.shown} in {item.case.dtype}: {item.message}"
        for item in failures
        if matching(KNOWN_GAPS, name, mode, "cuda", item.name) is None
    ]
    assert not messages, "\n".join(messages)


@pytest.mark.parametrize("name", OPS)
def test_special_values(name: str) -> None:
    wrong = unexplained(REGISTRY[name], "cuda", 10)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str) -> None:
    function, arrays = LOOP_PROGRAMS[name]
    graph = trace_sizes(function, arrays, SYMBOLIC[name])
    call = compile_graph(graph, CompileOptions(target="cuda", verify=True))
    for wanted, result in zip(interpret(graph, arrays), call(list(arrays)), strict=True):
        assert_close(name, wanted, np.asarray(result))


def test_random_programs() -> None:
    for seed in range(6050, 6080):
        program = build(Seeded(seed))
        call = compile_graph(program.graph, CompileOptions(target="cuda", verify=True))
        found = [np.asarray(item) for item in call(list(program.inputs))]
        difference = disagreement(program, interpret(program.graph, program.inputs), found)
        assert not difference, f"seed {seed}: {difference}\n{program.graph}"


def test_other_sizes_of_one_function() -> None:
    softmax = smelt.jit(lambda x: ops.softmax(x, 1), target="cuda")
    for rows, columns in ((3, 5), (4, 5), (7, 5), (7, 9), (2, 40)):
        x = numbers(rows, columns)
        wanted = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(softmax(x), wanted / wanted.sum(1, keepdims=True), rtol=1e-5)


def test_device_arrays() -> None:
    """Of the simulator: results are of the same kind, and lie in the same order."""
    from numba import cuda

    x = numbers(6, 40)
    function = smelt.jit(lambda x, a: (ops.softmax(x, 1) * a, x), target="cuda")
    for host in (x, np.asfortranarray(x)):
        given = cuda.to_device(host)
        for left, right in zip(function(given, 2), function(host, 2), strict=True):
            assert type(left) is type(given) and left is not given and left.strides == right.strides
            np.testing.assert_array_equal(left.copy_to_host(), right)
    with pytest.raises(ArgumentError, match="must be dense"):
        function(cuda.to_device(x)[:, ::2], 2)
    with pytest.raises(ArgumentError, match="argument 1 is in the host's memory"):
        smelt.jit(lambda x, y: x + y, target="cuda")(cuda.to_device(x), x)


@pytest.mark.parametrize("place", [6, -7])
def test_an_index_that_is_out_of_range(place: int) -> None:
    with pytest.raises(IndexRangeError, match=f"index {place} is out of range for a dimension of size 6"):
        evaluate(lambda x, i: ops.index(x, [i]), [numbers(6, 4), np.array([0, place, 3])], "cuda")


def test_random_numbers_are_those_of_the_cpu() -> None:
    def draw(x: Any) -> Any:
        return ops.rand_like(x), ops.rand_like(x) * 2, ops.randn_like(x)

    x = numbers(5, 37)
    smelt.manual_seed(5)
    wanted = flatten(smelt.jit(draw)(x))
    smelt.manual_seed(5)
    *uniform, normal = flatten(smelt.jit(draw, target="cuda")(x))
    for left, right in zip(wanted, uniform, strict=False):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_allclose(wanted[-1], normal, rtol=1e-5, atol=1e-6)  # another logarithm and cosine


def test_the_same_bits_at_every_run() -> None:
    function, arrays = lambda x: (ops.sum(x), ops.softmax(x, 1), ops.cumsum(x, 1)), [numbers(3, 1300)]
    first, second = evaluate(function, arrays, "cuda"), evaluate(function, arrays, "cuda")
    for left, right in zip(first, second, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_training_step() -> None:
    images, labels = demo.make_digits(24, seed=1)
    state = demo.initial_state(demo.initial_params())
    found = smelt.jit(demo.training_step, target="cuda")(state, images, labels)
    wanted = demo.numpy_step(state, images, labels)
    for left, right in zip(optree.tree_leaves(found[0]["first"]), optree.tree_leaves(wanted[0]["first"])):
        np.testing.assert_allclose(left, right, atol=1e-6)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5)


# Kernels as text: what the passes do not make today.


def run_kernel(text: str, arrays: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """All buffers after a kernel's launches."""
    module = emit_module(parse_kernels(text), simulated=True)
    program: Any = SimpleNamespace(source=module.source, launches=module.launches, places=[])
    return Simulated(program).run(arrays, sizes)[0]


SKIPPED = """
kernel @f(%y: out f32[64], %z: out f32[64], %x: f32[64]) where N >= 0 {
  block<64> %i in 0..1 {
    alloc %row: f32[64]
    thread %j in 0..64 {
      %0 = load %x[%j]
      store %row[%j], %0
    }
    serial %k in 0..N {
      thread %j in 0..64 {
        %1 = load %x[63 - %j]
        store %z[%j], %1
      }
    }
    thread %j in 0..64 {
      %2 = load %row[63 - %j]
      store %y[%j], %2
    }
  }
}
"""


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_loop_that_may_not_run_is_no_barrier(times: int) -> None:
    x = numbers(64)
    assert (run_kernel(SKIPPED, {"%x": x}, {"N": times})["%y"] == x[::-1]).all()


LOADED = """
kernel @f(%y: out f32[128], %z: out f32[2], %x: f32[128]) where N >= 0 {
  block<64> %i in 0..1 {
    serial %k in 0..N {
      thread %j in 0..128 reduce %1: f32 = add {
        %0 = load %x[%j]
        yield %0
      }
      store %z[0], %1
    }
    thread %j in 0..128 reduce %3: f32 = add {
      %2 = load %x[%j]
      yield %2
    }
    store %z[1], %3
    thread %j in 0..128 {
      %4 = load %x[%j]
      store %y[%j], %4
    }
  }
}
"""


@pytest.mark.parametrize("times", [0, 1])
def test_a_loop_that_may_not_run_loads_nothing_for_others(times: int) -> None:
    x = numbers(128)
    assert (run_kernel(LOADED, {"%x": x}, {"N": times})["%y"] == x).all()


# The simulator itself.


TURNED = """
def turned(target, between):
    thread = cuda.threadIdx.x
    between[thread] = thread
    {wait}
    target[thread] = between[(thread + 1) % 64]
"""
OUTSIDE = """
def outside(target, between):
    target[{place}] = between[0]
"""


def launch(source: str, kind: str = "block") -> np.ndarray:
    """What the function of this source leaves in its first parameter, run by a block of 64 threads."""
    from numba import cuda

    target, between = Memory(np.zeros(64, np.int64)), Memory(np.zeros(64, np.int64))
    space: dict[str, Any] = {"cuda": cuda}
    exec(source, space)
    function = next(item for name, item in space.items() if name in ("turned", "outside"))
    with taking_turns() as choose:
        choose(kind)
        cuda.jit(function)[1, 64](target, between)
    return target.array


def test_a_missing_barrier_shows() -> None:
    wanted = (np.arange(64) + 1) % 64
    assert (launch(TURNED.format(wait="cuda.syncthreads()")) == wanted).all()
    with pytest.raises(Race, match="is touched by threads"):
        launch(TURNED.format(wait="pass"))


ROUNDS = """
def turned(target, between):
    thread = cuda.threadIdx.x
    for step in range(2):
        if thread == 0:
            between[0] = step
        cuda.syncthreads()
        target[thread] = between[0]
        {wait}
"""


def test_what_others_still_read_is_not_overwritten() -> None:
    assert (launch(ROUNDS.format(wait="cuda.syncthreads()")) == 1).all()
    with pytest.raises(Race, match="element 0 is touched by threads"):
        launch(ROUNDS.format(wait="pass"))


def test_exchanges_and_barriers_of_other_warps_order_nothing() -> None:
    with pytest.raises(Race):
        launch(TURNED.format(wait="cuda.exchange_registers()"))
    with pytest.raises(Race, match="threads (31 and 32|32 and 31|63 and 0|0 and 63)"):
        launch(TURNED.format(wait="cuda.syncthreads()"), "warp")


def test_threads_of_a_grid_do_not_wait() -> None:
    with pytest.raises(RuntimeError, match="waits for others"):
        launch(TURNED.format(wait="cuda.syncthreads()"), "grid")


def test_sums_of_indices_do_not_overflow() -> None:
    assert names()["sum32"](np.int32(2), 3, np.int64(-7)) == -2
    with pytest.raises(OverflowError):
        names()["sum32"](np.int32((1 << 31) - 1), np.int32(1))


@pytest.mark.parametrize("place", ["-1", "64"])
@pytest.mark.parametrize("kind", ["block", "grid"])
def test_memory_has_bounds(place: str, kind: str) -> None:
    with pytest.raises(IndexError):
        launch(OUTSIDE.format(place=place), kind)


def test_the_receipt() -> None:
    function = smelt.jit(lambda x: ops.softmax(x, 1), target="cuda")
    function(numbers(6, 40))
    (kernel,) = function.report().kernels
    assert kernel.regions == 1 and kernel.threads == 6 * 32 and kernel.reads == "960 B"
    assert "off" in str(function.report())


def test_sizes_are_computed_as_python_does() -> None:
    """Quotients and remainders of numbers of any sign, by divisors of any sign."""
    from size_trees import cases, expected, extents

    chosen = [case for case in cases(100, 60) if not isinstance(case[1], int)]
    compiled = compile_graph(extents([made for _, made in chosen]), CompileOptions(target="cuda"))
    for sizes in ({"N": 5, "M": 8, "K": 3}, {"N": 2, "M": 33, "K": 7}):
        results = compiled([np.zeros(sizes[name], np.float32) for name in "NMK"])
        for (tree, made), result in zip(chosen, results, strict=True):
            wanted = expected(tree, sizes)
            assert wanted is None or int(np.asarray(result)) == wanted, (tree, made, sizes)


@pytest.mark.parametrize("first", range(9_000_000, 9_000_040, 10))
def test_random_programs_from_schemas(first: int) -> None:
    """As in test_fuzz.py: small programs and their gradients, in which the simulator sees races."""
    failed = [found for seed in range(first, first + 10) if "failure" in (found := check(seed, ("simulator",)))]
    assert not failed, "\n\n".join(f"seed {item['seed']}: {item['failure']}" for item in failed)
