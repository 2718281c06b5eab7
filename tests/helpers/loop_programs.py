"""Programs for the tests of loops: traced, lowered, and compared at every stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import smelt
from smelt import ops
from smelt.backend.interp.loops import interpret_kernels
from smelt.ir.graph import Graph, Value
from smelt.ir.symbolic import Compound, Expr, Symbol
from smelt.ir.types import TensorType, bool_, dtype, f16, f32, f64, i32, u8
from smelt.kernels.loop.ir import Kernel
from smelt.kernels.loop.parser import parse_kernel
from smelt.kernels.loop.text import kernel_hash, print_kernel
from smelt.kernels.loop.verify import verify_kernel
from smelt.kernels.machine import DEFAULT, Machine
from smelt.passes.fusion.fuse import fuse
from smelt.passes.fusion.fused import Fused
from smelt.passes.lower.lower import lower
from smelt.passes.manager import PASSES, Pipeline, Step
from smelt.passes.pipelines import GRAPH, LOOPS
from support import interpret

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "complex64": 2e-5}


# Programs


def numbers(*shape: int, seed: int = 0, kind: Any = np.float32) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if np.dtype(kind).kind in "iu":
        return generator.integers(-9, 10, shape).astype(kind)
    real = generator.uniform(-2, 2, shape)
    return (real + 1j * generator.uniform(-2, 2, shape) if np.dtype(kind).kind == "c" else real).astype(kind)


def indices(below: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, below, shape)


def gradient(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The function's gradient by its first arguments, of the sum of squares of what it returns."""

    def traced(*arguments: Any) -> Any:
        def loss(*items: Any) -> Any:
            result = function(*items, *arguments[count:])
            return ops.sum(result * result)

        return smelt.grad(loss, argnums=tuple(range(count)))(*arguments[:count])

    return traced


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return ops.layer_norm(x, (13,), weight, bias)


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return ops.batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)


def joined(x: Any, y: Any) -> Any:
    both = ops.cat([ops.flip(x, (0,)), y[1:], ops.exp(x)], 0)
    return ops.constant_pad_nd(both, (1, 2, -1, 0), 0.5), both[::2, 1:], ops.roll(both, 2, 0)


def updates(x: Any, y: Any, g: Any, h: Any) -> Any:
    return x - 0.1 * g, y - 0.1 * h, g * 0.9


def wide(*shape: int, seed: int = 0) -> np.ndarray:
    return numbers(*shape, seed=seed, kind=np.float64)


# Of `ops` or of `torch`: operands may be smaller than each other.
UNEQUAL: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "gather": (lambda m, x, i: m.gather(x + 1, 1, i), [wide(40, 1), np.zeros((2, 1), np.int64)]),
    "gather beside its source": (
        lambda m, x, y, i: (s := m.exp(x), m.exp(y) + m.gather(s, 0, i)),
        [wide(1, 11), wide(1, 8, seed=1), np.zeros((1, 8), np.int64)],
    ),
    "gather of rows and its source": (
        lambda m, x, i: (s := m.softmax(x, 1), m.gather(s, 1, i) * 2),
        [wide(9, 5), indices(5, 4, 3)],
    ),
    "gather from the middle": (
        lambda m, x, i: (s := m.tanh(x), m.gather(s, 1, i)),
        [wide(5, 6, 7), indices(6, 3, 9, 2)],
    ),
    "behind a sum": (lambda m, x, i: m.gather(m.sum(m.exp(x), 1, True), 1, i), [wide(30, 6), indices(1, 4, 3)]),
    "sum behind it": (lambda m, x, i: m.sum(m.gather(m.exp(x), 1, i), 1), [wide(30, 6), indices(6, 4, 3)]),
    "transposed": (lambda m, x, i: m.gather(m.permute(x * 2, (1, 0)), 0, i), [wide(8, 5), indices(5, 3, 4)]),
    "take_along_dim": (lambda m, x, i: m.take_along_dim(m.exp(x), i, 1), [wide(6, 5), indices(5, 1, 2)]),
    "scatter": (
        lambda m, x, i, y: m.scatter(m.exp(x), 1, i, m.exp(y)),
        [wide(6, 5), np.array([[4, 1], [0, 3], [2, 1]]), wide(3, 2, seed=1)],
    ),
    "scatter_add": (
        lambda m, x, i, y: m.scatter_add(m.exp(x), 1, i, m.exp(y)) * 2,
        [wide(6, 5), indices(5, 3, 2), wide(3, 2, seed=1)],
    ),
    "scatter_reduce": (
        lambda m, x, i, y: m.scatter_reduce(m.exp(x), 0, i, m.exp(y), "amax"),
        [wide(6, 5), indices(6, 3, 2), wide(3, 2, seed=1)],
    ),
    "larger source": (  # of which PyTorch has no derivative
        lambda m, x, i, y: [m.scatter(m.exp(x), 1, i, m.exp(y)), m.scatter_add(x, 0, i, m.exp(y))],
        [wide(6, 5), np.array([[4, 1], [0, 3], [2, 1]]), wide(4, 3, seed=1)],
    ),
    "index_copy": (
        lambda m, x, i, y: m.index_copy(m.exp(x), 0, i, m.exp(y)),
        [wide(6, 5), np.array([4, 1]), wide(2, 5, seed=1)],
    ),
    "index_add": (
        lambda m, x, i, y: m.index_add(m.exp(x), 1, i, m.exp(y)),
        [wide(6, 5), np.array([4, 1, 4]), wide(6, 3, seed=1)],
    ),
    "index_select": (lambda m, x, i: (s := m.exp(x), m.index_select(s, 1, i)), [wide(6, 5), np.array([4, 1, 4])]),
    "cdist": (lambda m, x, y: m.cdist(m.exp(x), m.exp(y)), [wide(6, 3), wide(4, 3, seed=1)]),
    "join": (lambda m, x, y: m.cat([m.exp(x), m.exp(y)[:2]], 0) * 2, [wide(6, 3), wide(4, 3, seed=1)]),
    "pad": (lambda m, x, y: m.constant_pad_nd(m.exp(x), (0, 1, -2, 0)) + m.exp(y), [wide(6, 3), wide(4, 4, seed=1)]),
    "slices": (lambda m, x, y: (s := m.exp(x), s[:4] + m.exp(y), s[2:, :1] * y), [wide(6, 3), wide(4, 3, seed=1)]),
    "broadcasts": (lambda m, x, y: m.exp(x)[:, :1] * m.exp(y) + m.sum(x, 0)[:1], [wide(6, 3), wide(6, 4, seed=1)]),
}


X, W, B = numbers(9, 13), numbers(13, seed=1), numbers(13, seed=2)

IMAGES, CHANNEL = numbers(3, 4, 2, 5), numbers(4, seed=3)

PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[np.ndarray]]] = {
    "softmax": (lambda x: ops.softmax(x, 1), [X]),
    "softmax of columns": (lambda x: ops.softmax(x, 0), [X]),
    "softmax gradient": (gradient(lambda x: ops.softmax(x, 1), 1), [X]),
    "layer_norm": (layer_norm, [X, W, B]),
    "layer_norm gradient": (gradient(layer_norm, 3), [X, W, B]),
    "cross_entropy": (lambda x, t: ops.cross_entropy(x, t), [X, indices(13, 9)]),
    "cross_entropy gradient": (gradient(lambda x, t: ops.cross_entropy(x, t), 1), [X, indices(13, 9)]),
    "cross_entropy of pixels": (
        gradient(lambda x, t: ops.cross_entropy(x, t), 1),
        [numbers(2, 5, 3, 7), indices(5, 2, 3, 7)],
    ),
    "batch_norm": (batch_norm, [IMAGES, CHANNEL, CHANNEL]),
    "batch_norm gradient": (gradient(batch_norm, 3), [IMAGES, CHANNEL, CHANNEL]),
    "group_norm": (lambda x, w, b: ops.group_norm(x, 2, w, b), [IMAGES, CHANNEL, CHANNEL]),
    "column sums": (lambda x: (ops.sum(x, 0), ops.amax(x, (0,))), [X]),
    "rows and columns": (lambda x: (x - ops.mean(x, 1, True), ops.sum(x - ops.mean(x, 1, True), 0)), [X]),
    "sum of few": (lambda x: ops.sum(x * x), [numbers(3, 4)]),
    "sum of many": (lambda x: ops.mean(ops.exp(x)), [numbers(12, 11)]),
    "sum of the middle": (lambda x: ops.sum(x, 1), [numbers(3, 5, 4)]),
    "variance": (lambda x: ops.var_mean(x, 1), [X]),
    "any and all": (lambda x: (ops.any(x > 1, 1), ops.all(x > -1.9)), [X]),
    "argmax": (lambda x: (ops.argmax(x, 1), ops.argmin(x, 0), ops.argmax(x)), [X]),
    "transpose": (lambda x, y: ops.transpose(x, 0, 1) + y, [X, numbers(13, 9, seed=4)]),
    "transposes of three": (lambda x: ops.permute(x, (2, 0, 1)) * 2.0, [numbers(3, 5, 4)]),
    "sort": (lambda x: (*ops.sort(x * 2, 1), ops.msort(x), ops.argsort(x, 1, True)), [X]),
    "cumsum": (lambda x: (ops.cumsum(x, 1), ops.cumsum(x, 0)), [X]),
    "cumprod gradient": (gradient(lambda x: ops.cumprod(x, 1), 1), [numbers(3, 5)]),
    "index_add": (
        lambda x, i, s: ops.index_add(x, 0, i, s),
        [numbers(5, 4), np.array([0, 3, 3, 1]), numbers(4, 4, seed=1)],
    ),
    "scatter_add": (
        lambda x, i, s: ops.scatter_add(x, 0, i, s),
        [numbers(5, 4), indices(5, 7, 4), numbers(7, 4, seed=1)],
    ),
    "gather": (lambda x, i: ops.gather(x, 1, i), [X, indices(13, 9, 4)]),
    "embedding gradient": (gradient(lambda w, i: ops.embedding(w, i), 1), [numbers(6, 4), indices(6, 5)]),
    "matmul": (lambda x, y: x @ y, [X, numbers(13, 5)]),
    "matmul of transposes": (
        lambda x, y: ops.transpose(x, 0, 1) @ ops.transpose(y, 0, 1),
        [X, numbers(5, 9)],
    ),
    "matmul of broadcasts": (
        lambda x, w: x @ ops.expand(ops.unsqueeze(w, 1), (13, 4)) + ops.expand(w[:9], (4, 9)).T @ x[:4, :4],
        [X, W],
    ),
    "matmul of integers": (
        lambda x, y: x @ y,
        [numbers(3, 4, kind=np.int64), numbers(4, 5, seed=1, kind=np.int64)],
    ),
    "matmul of batches": (lambda x, y: ops.matmul(x, y), [numbers(2, 3, 4), numbers(2, 4, 5)]),
    "cat, pad, slice, flip": (joined, [numbers(3, 4), numbers(4, 4, seed=1)]),
    "pad of a slice": (lambda x: ops.constant_pad_nd(x[1:], (0, 0, 2, 1), 1.0), [numbers(4, 3)]),
    "independent updates": (updates, [numbers(6), numbers(3, 2), numbers(6, seed=1), numbers(3, 2, seed=1)]),
    "bf16": (lambda x: ops.gelu(x * 1.5 + 1), [numbers(4, 9, kind=ml_dtypes.bfloat16)]),
    "f16": (lambda x: ops.softmax(ops.tanh(x), 1), [numbers(4, 9, kind=np.float16)]),
    "complex": (
        lambda x, y: (x * y / (y + 3), ops.abs(x), ops.conj(x), ops.sum(x, 1)),
        [numbers(3, 5, kind=np.complex64), numbers(3, 5, seed=1, kind=np.complex64)],
    ),
    "casts": (
        lambda x: (ops.cast(x, i32), ops.cast(ops.cast(x, f16), f64), ops.cast(x, bool_), ops.cast(x, u8)),
        [np.linspace(0, 9, 20, dtype=np.float32)],
    ),
    "nothing": (lambda x: (ops.sum(x, 0), ops.exp(x), ops.reshape(x, (0, 2)) + 1), [numbers(0, 4)]),
    "a range that is returned and read": (
        lambda x: (ops.arange(9, dtype=f32), ops.cast(ops.arange(9, dtype=f32) * 2, f16), x * 2),
        [X],
    ),
    "sums over the outer and the inner axis": (
        lambda x, y: (ops.sqrt(ops.amax(x * y, (0, 2))), ops.mean(x, (0, 2))),
        [numbers(3, 68, 30), numbers(3, 68, 30)],
    ),
    "a join of what two trees of loops compute": (
        lambda x, y: ops.cat([ops.logsumexp(x, 1), ops.logsumexp(y, 1)], 0),
        [numbers(64, 30), numbers(67, 30, seed=1)],
    ),
    "scalars": (lambda x: ops.exp(x) + 1, [numbers()]),
    "a result twice and a parameter": (lambda x: (x, ops.exp(x), ops.reshape(ops.exp(x), (13, 9))), [X]),
    **{f"unequal: {name}": (partial(function, ops), arrays) for name, (function, arrays) in UNEQUAL.items()},
}

# Sizes that are symbols: names of the dims of each argument, numbers stay as they are.
SYMBOLIC: dict[str, Sequence[Sequence[str]]] = {
    "softmax": ["N M"],
    "softmax of columns": ["9 M"],
    "softmax gradient": ["N 13"],
    "layer_norm gradient": ["N 13", "13", "13"],
    "column sums": ["N M"],
    "sum of many": ["N M"],
    "transpose": ["N M", "M N"],
    "sort": ["N M"],
    "cumsum": ["N M"],
    "gather": ["N M", "N 4"],
    "embedding gradient": ["N M", "5"],
    "scatter_add": ["N M", "7 M", "7 M"],
    "matmul": ["N 13", "13 M"],
    "argmax": ["N M"],
    "cat, pad, slice, flip": ["N M", "K M"],
    "independent updates": ["N", "M 2", "N", "M 2"],
}


def trace(function: Callable[..., Any], arrays: Sequence[np.ndarray], names: Sequence[str] | None) -> Graph:
    params: list[Value] = []
    for position, array in enumerate(arrays):
        shape: list[Any] = list(array.shape)
        if names is not None:
            words = names[position].split()
            shape = [int(word) if word.isdigit() else Symbol(word, 2).expr() for word in words]
        params.append(Value(TensorType(dtype(array.dtype), shape), name=f"x{position}"))
    results = function(*params)
    return Graph.build("test", params, list(results) if isinstance(results, (tuple, list)) else [results])


def lowered(graph: Graph, machine: Machine | None = None) -> tuple[Fused, list[Kernel]]:
    """A graph of any ops, after all graph passes, as kernels of serial loops."""
    fused = fuse(Pipeline(GRAPH).run(graph, verify_each=True), machine=machine)
    return fused, lower(fused, machine or DEFAULT)


def spelled(part: Any) -> Any:
    """A part of a kernel with all that its text says. Of a variable that is its name: what is assumed of it may be less
    than what its loop says, where that was cut into parts."""
    if isinstance(part, Symbol):
        return part.name
    if isinstance(part, Expr):
        return tuple((spelled(monomial), factor) for monomial, factor in part.terms)
    if isinstance(part, Compound):
        return part.operator, spelled(part.left), spelled(part.right)
    if isinstance(part, (tuple, list)):
        return tuple(map(spelled, part))
    if is_dataclass(part):
        return type(part), *(spelled(getattr(part, item.name)) for item in fields(part) if item.compare)
    return part


def assert_round_trip(kernel: Kernel) -> None:
    """Print, parse, print: the same text; and the kernel itself, but for the folders of the sites' files."""
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert print_kernel(again) == text
    assert [site.op for site in again.sites] == [site.op for site in kernel.sites]
    assert spelled(replace(again, sites=())) == spelled(replace(kernel, sites=()))
    assert kernel_hash(again) == kernel_hash(kernel)


def assert_close(stage: str, wanted: np.ndarray, found: np.ndarray) -> None:
    assert wanted.dtype == found.dtype and wanted.shape == found.shape
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted, err_msg=stage)
        return
    tolerance = TOLERANCE.get(str(wanted.dtype), 1e-9)
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(found.astype(wide), wanted.astype(wide), rtol=tolerance, atol=tolerance, err_msg=stage)


def stage_results(
    graph: Graph, arrays: Sequence[np.ndarray], machine: Machine | None = None
) -> Iterator[tuple[str, Any, list[np.ndarray]]]:
    """The kernels after lowering and after each pass over loops, verified: their text, what the fused graph means, and
    what they compute."""
    fused, kernels = lowered(graph, machine)
    wanted = interpret(fused.graph, arrays)
    for stage in ("lower", *LOOPS):
        if stage != "lower":
            target = PASSES[stage]
            options = {"machine": machine} if machine is not None and "machine" in target.options else {}
            kernels = [Pipeline([Step(target, options)]).run(kernel, verify_each=True) for kernel in kernels]
        for kernel in kernels:
            verify_kernel(kernel)
            assert_round_trip(kernel)
        text = f"after {stage}:\n{fused}\n" + "\n".join(map(print_kernel, kernels))
        yield text, wanted, interpret_kernels(fused, kernels, arrays)


def assert_meaning(graph: Graph, arrays: Sequence[np.ndarray], machine: Machine | None = None) -> None:
    for text, wanted, found in stage_results(graph, arrays, machine):
        for left, right in zip(wanted, found, strict=True):
            assert_close(text, left, right)


PRODUCT = """
kernel @product(%x: f32[N, 100], %w: f32[100, 20], %y: out f32[N, 20]) where N >= 2 {
  parallel %i in 0..((N + 255) // 256) {
    gemm %y[5120 * %i; 20, 1] = %x[25600 * %i; 100, 1] * %w[0; 20, 1] over (min(256, -256 * %i + N), 20, 100)
  }
}
""".strip()

PACKED = """
kernel @packed(%x: f32[N, 100], %w: f32[20, 100], %y: out f32[N, 20], %p: temp f32[2, 100, 16]) where N >= 2 {
  serial %k in 0..1 {
    pack %p[0; 16, 1600 by 16] = %w[0; 1, 100] over (100, 20)
  }
  parallel %i in 0..((N + 95) // 96) {
    gemm %y[1920 * %i; 20, 1] = %x[9600 * %i; 100, 1] * %p[0; 16, 1600 by 16] over (min(96, -96 * %i + N), 20, 100)
  }
}
""".strip()


# Each thread packs the right matrix for itself.
OWN = """
kernel @own(%x: f32[N, 100], %w: f32[20, 100], %y: out f32[N, 20]) where N >= 2 {
  parallel %i in 0..((N + 95) // 96) {
    alloc %p: f32[2, 100, 16]
    pack %p[0; 16, 1600 by 16] = %w[0; 1, 100] over (100, 20) once
    gemm %y[1920 * %i; 20, 1] = %x[9600 * %i; 100, 1] * %p[0; 16, 1600 by 16] over (min(96, -96 * %i + N), 20, 100)
  }
}
""".strip()


# The room of a row: two words of 64 bits for each element, counters, and padding.
SORTED = """
kernel @sorted(%x: f32[N, 100], %y: out i64[N, 8]) where N >= 2 {
  parallel %i in 0..N {
    alloc %r: i64[1352]
    sort places descending %y[8 * %i; 8, 1] = %x[100 * %i; 100, 1] in %r[0; 1352, 1] over (1, 100, 2, 8, 1352)
  }
}
""".strip()


def inside(*lines: str) -> str:
    """A kernel with these lines in a loop."""
    head = "kernel @k(%x: f32[8, 4], %y: out f32[8], %n: i64[8], %c: out c64[8]) {\n  serial %i in 0..8 {\n"
    return head + "".join(f"    {line}\n" for line in lines) + "  }\n}"
