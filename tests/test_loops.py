"""The loop IR: its text, its verifier, and that lowering and every loop pass keep the meaning of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
from random_programs import Seeded, build, disagreement
from smelt import ops
from smelt.backend.cpu.build import name_values
from smelt.backend.interp.loops import interpret_kernels
from smelt.ir.errors import IndexRangeError, ParseError, VerifyError
from smelt.ir.graph import Graph, Value
from smelt.ir.parser import parse_graph
from smelt.ir.symbolic import Compound, Expr, Symbol
from smelt.ir.types import TensorType, bool_, dtype, f16, f32, f64, i32, i64, u8
from smelt.kernels.loop_ir import Buffer, Kernel, Let, Literal, Load, Loop, Register, Store
from smelt.kernels.loop_parser import parse_kernel, parse_kernels
from smelt.kernels.loop_text import kernel_hash, print_kernel
from smelt.kernels.loop_verify import verify_kernel
from smelt.passes.fuse import Fused, fuse
from smelt.passes.loop.analysis import independent
from smelt.passes.lower import lower
from smelt.passes.manager import VERIFIERS, Pipeline
from smelt.passes.pipelines import GRAPH, LOOPS
from support import interpret
from test_golden import EXPECT, Case, read_cases, update

RANDOM_PROGRAMS = range(2000, 2030)
GOLDEN = Path(__file__).parent / "golden" / "loops"
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
    "scalars": (lambda x: ops.exp(x) + 1, [numbers()]),
    "a result twice and a parameter": (lambda x: (x, ops.exp(x), ops.reshape(ops.exp(x), (13, 9))), [X]),
}

# Sizes that are symbols: names of the dims of each argument, numbers stay as they are.
SYMBOLIC: dict[str, Sequence[Sequence[str]]] = {
    "softmax": ["N M"],
    "softmax gradient": ["N 13"],
    "layer_norm gradient": ["N 13", "13", "13"],
    "column sums": ["N M"],
    "sum of many": ["N M"],
    "transpose": ["N M", "M N"],
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


def lowered(graph: Graph) -> tuple[Fused, list[Kernel]]:
    """A graph of any ops, after all graph passes, as kernels of serial loops."""
    fused = fuse(Pipeline(GRAPH).run(graph, verify_each=True))
    name_values(fused)
    return fused, lower(fused)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small programs are scheduled as large ones are."""
    monkeypatch.setattr("smelt.passes.loop.parallelize.WORTH", 1)
    monkeypatch.setattr("smelt.passes.loop.parallelize.TILES", (64, 64))
    monkeypatch.setattr("smelt.passes.fuse.FULL_REDUCTION_SPLIT", 100)
    monkeypatch.setattr("smelt.passes.tree.CHUNK_ELEMENTS", 16)


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


def assert_meaning(graph: Graph, arrays: Sequence[np.ndarray]) -> None:
    fused, kernels = lowered(graph)
    wanted = interpret(fused.graph, arrays)
    for stage in ("lower", *LOOPS):
        if stage != "lower":
            kernels = [Pipeline([stage]).run(kernel, verify_each=True) for kernel in kernels]
        for kernel in kernels:
            verify_kernel(kernel)
            assert_round_trip(kernel)
        for left, right in zip(wanted, interpret_kernels(fused, kernels, arrays), strict=True):
            assert_close(f"after {stage}:\n" + "\n".join(map(str, kernels)), left, right)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lowering_and_loop_passes_keep_the_meaning(name: str) -> None:
    function, arrays = PROGRAMS[name]
    assert_meaning(trace(function, arrays, None), arrays)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", PROGRAMS)
def test_small_programs_scheduled_like_large_ones(name: str) -> None:
    function, arrays = PROGRAMS[name]
    assert_meaning(trace(function, arrays, None), arrays)


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name: str) -> None:
    function, arrays = PROGRAMS[name]
    assert_meaning(trace(function, arrays, SYMBOLIC[name]), arrays)


@pytest.mark.usefixtures("eager")
def test_random_programs() -> None:
    for seed in RANDOM_PROGRAMS:
        program = build(Seeded(seed))
        fused, kernels = lowered(program.graph)
        wanted = interpret(fused.graph, program.inputs)
        for stage in ("lower", *LOOPS):
            if stage != "lower":
                kernels = [Pipeline([stage]).run(kernel, verify_each=True) for kernel in kernels]
            for kernel in kernels:
                verify_kernel(kernel)
                assert_round_trip(kernel)
            difference = disagreement(program, wanted, interpret_kernels(fused, kernels, program.inputs))
            assert not difference, f"seed {seed}, after {stage}: {difference}\n{fused}\n" + "\n".join(map(str, kernels))


@pytest.mark.parametrize("outer", [2, 8, 13])
def test_places_of_loops_with_other_ranges(outer: int) -> None:
    """Two short loops become one, whose variable has the same name for any number of rows; x[m % 64] is at most one
    turn too far for two of them alone."""
    x = np.random.default_rng(outer).integers(-3, 4, (64, 1000)).astype(np.float32)
    y = np.random.default_rng(1).integers(-3, 4, (outer, 64, 1000)).astype(np.float32)
    np.testing.assert_array_equal(smelt.jit(lambda x, y: (x * y).sum(-1))(x, y), (x * y).sum(-1))


def test_a_wrong_index_is_reported() -> None:
    weight, tokens = numbers(6, 4), np.array([0, 6])
    fused, kernels = lowered(trace(lambda w, i: ops.embedding(w, i), [weight, tokens], None))
    with pytest.raises(IndexRangeError, match="index 6 is out of range for a dimension of size 6"):
        interpret_kernels(fused, kernels, [weight, tokens])


def test_names_of_parameters_do_not_meet_those_of_loops_and_registers() -> None:
    text = "graph @f(%i: f32[N, 3], %0: f32[N, 3], %t0: f32[3]) where N >= 2 {\n"
    text += "  %1 = add(%i, %0) : f32[N, 3]\n  %2 = mul(%1, %t0) : f32[N, 3]\n  return %2\n}"
    _, kernels = lowered(parse_graph(text))
    for kernel in kernels:
        scheduled = Pipeline(LOOPS).run(kernel, verify_each=True)
        assert_round_trip(scheduled)


def test_what_a_guard_forbids_is_not_read() -> None:
    """The flipped part of a cat is out of range in the other half: its load needs the guard too."""
    _, (kernel,) = lowered(trace(lambda x: ops.cat([ops.flip(x, (0,)), x], 0), [numbers(4)], None))
    loads = [item for item in kernel.body[0].body if isinstance(item, Load)]  # type: ignore[union-attr]
    assert len(loads) == 2 and all(load.guard is not None for load in loads)


# Golden files


GOLDEN_CASES = [case for file in sorted(GOLDEN.glob("*.ir")) for case in read_cases(file)]


def scheduled_text(case: Case) -> str:
    _, kernels = lowered(parse_graph(case.source, case.file.name))
    passes = Pipeline([case.pipeline])
    return "\n\n".join(print_kernel(passes.run(kernel, verify_each=True), locations=False) for kernel in kernels)


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=str)
def test_golden(case: Case, request: pytest.FixtureRequest) -> None:
    text = scheduled_text(case)
    if request.config.getoption("--update-golden"):
        update(case, text)
        return
    assert text == (case.expected or "").strip(), "run pytest --update-golden if the new schedule is right"


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=str)
def test_golden_text_round_trips(case: Case) -> None:
    text = (case.expected or "").strip()
    assert EXPECT in case.file.read_text()
    assert "\n\n".join(print_kernel(kernel) for kernel in parse_kernels(text)) == text


# The text


EVERYTHING = """
kernel @everything(
  %x: f32[N, 64],
  %y: out bf16[N, 64],
  %at: i64[N],
  %z: out c64[N],
  %p: temp f32[16],
) where N >= 2, N <= 4096 {
  site 0 = gather  // model.py:12
  concurrent {
    parallel<8> %i in 0..N {
      alloc %row: f32[64]
      %0 = load %at[%i]
      %1, %2 = check %0 in 0..N wrap site 0
      vector<16> %j in 0..64 reduce %5: f32 = max, %6: f32, %7: i64 = argmax {
        %3 = load %x[%1, %j] if %2
        store %row[%j], %3
        %4 = index(64 * %i + %j)
        yield %3, %3, %4
      }
      vector<8> %j in 0..64 {
        %8 = load %x as [64 * N][64 * %i + %j]
        %9 = sub(%8, %5) : f32
        %10 = round_bf16(%9) : f32
        store %y as [64 * N][64 * %i + %j], %10 if %2
      }
    }
    serial %k in 0..((N + 3) // 4) {
      store %z[min(4 * %k, N - 1)], (0.0-1.5j):c64
    }
  }
  serial %k in 0..16 {
    %11 = prefix max(0.1:f32) from -inf:f32
    store %p[%k], %11
  }
}
""".strip()

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


@pytest.mark.parametrize("text", [EVERYTHING, PRODUCT, PACKED], ids=["everything", "product", "packed"])
def test_text_round_trips(text: str) -> None:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    assert print_kernel(kernel) == text
    assert_round_trip(kernel)
    assert str(kernel) == text


def test_several_kernels_in_one_text() -> None:
    kernels = parse_kernels(f"// two of them\n{EVERYTHING}\n\n{PRODUCT}\n")
    assert [kernel.name for kernel in kernels] == ["everything", "product"]


def test_ranges_follow_from_loops() -> None:
    """Divisions of a loop's variable vanish where its bounds decide them."""
    text = "kernel @k(%y: out i64[8]) {\n  serial %i in 0..8 {\n    %0 = index(%i // 8 + %i % 8)\n"
    text += "    store %y[%i], %0\n  }\n}"
    assert "%0 = index(%i)\n" in print_kernel(parse_kernel(text))


def test_locations_of_sites() -> None:
    kernel = parse_kernel(EVERYTHING)
    assert str(kernel.sites[0].location) == "model.py:12"
    assert "model.py" not in print_kernel(kernel, locations=False)
    assert parse_kernel(print_kernel(kernel, locations=False)).sites[0].location is None


def test_literals_are_what_their_type_has() -> None:
    assert Literal(0.1, f32) == Literal(float(np.float32(0.1)), f32)
    assert Literal(0, f32) == Literal(0.0, f32) and isinstance(Literal(0, f32).value, float)
    assert Literal(-0.0, f32) != Literal(0.0, f32)
    assert Literal(np.int64(3), i64).value == 3 and type(Literal(np.int64(3), i64).value) is int
    assert Literal(1e300, f32).value == float("inf")
    assert Literal(0.1, f64).value == 0.1


def test_hash_is_of_the_content() -> None:
    one = "kernel @{name}(%x: f32[4], %{name}.partial0: temp f32[4]) {{\n  serial %i in 0..{stop} {{\n"
    one += "    %0 = load %x[%i]\n    store %{name}.partial0[%i], %0\n  }}\n}}"
    first = parse_kernel(one.format(name="k0_sum", stop=4))
    assert kernel_hash(first) == kernel_hash(parse_kernel(one.format(name="k1_sum", stop=4)))
    assert kernel_hash(first) != kernel_hash(parse_kernel(one.format(name="k0_sum", stop=3)))
    sited = parse_kernel(EVERYTHING)
    assert kernel_hash(sited) == kernel_hash(parse_kernel(EVERYTHING.replace("model.py:12", "other.py:1")))


def inside(*lines: str) -> str:
    """A kernel with these lines in a loop."""
    head = "kernel @k(%x: f32[8, 4], %y: out f32[8], %n: i64[8], %c: out c64[8]) {\n  serial %i in 0..8 {\n"
    return head + "".join(f"    {line}\n" for line in lines) + "  }\n}"


NOT_KERNELS: dict[str, tuple[str, str]] = {
    "no kernel": ("graph @f() {}", "expected 'kernel', found 'graph'"),
    "text behind it": (inside() + " }", "expected the end of the text"),
    "unknown register": (inside("store %y[%i], %0"), "%0 is not defined here"),
    "unknown variable": (inside("%0 = load %x[%i, %j]"), "%j is not defined here"),
    "unknown buffer": (inside("%0 = load %z[%i]"), "%z is no buffer of this kernel"),
    "register in an index": (inside("%0 = load %n[%i]", "%1 = load %y[%0]"), "%0 is not defined here"),
    "defined twice": (inside("%0 = load %x[%i, 0]", "%0 = load %x[%i, 1]"), "%0 is defined twice"),
    "name of a buffer": (inside("%x = load %y[%i]"), "%x is defined twice"),
    "name of the loop": (inside("serial %i in 0..2 {", "}"), "%i is defined twice"),
    "behind its loop": (
        inside("serial %j in 0..2 {", "%0 = load %y[%j]", "}", "store %y[0], %0"),
        "%0 is not",
    ),
    "no such op": (inside("%0 = expp(1.0:f32) : f32"), "expp is no scalar op (did you mean 'exp'?)"),
    "no such type": (inside("%0 = exp(1.0:f31) : f32"), "unknown dtype 'f31'"),
    "number without type": (inside("store %y[%i], 1.0"), "a number needs its type, as in 0.5:f32"),
    "complex number": (inside("store %y[%i], (1.0+2.0j):f32"), "a complex number is no f32"),
    "no such combiner": (inside("store plus %y[%i], 1.0:f32"), "plus is no combiner"),
    "no such size": (inside("serial %j in 0..N {", "}"), "'N' is not a size"),
    "float in a size": (inside("store %y[0.5], 1.0:f32"), "expected a size, found 0.5"),
    "loop kind": (inside("unrolled %j in 0..4 {", "}"), "expected a statement"),
    "width": (inside("vector<4.5> %j in 0..4 {", "}"), "expected the loop's width"),
    "too few yields": (
        inside("serial %j in 0..4 reduce %0: f32 = add {", "}"),
        "yields 0 values, its head names 1",
    ),
    "yield of nothing": (
        inside("serial %j in 0..4 {", "yield 1.0:f32", "}"),
        "yields 1 values, its head names 0",
    ),
    "sites out of order": ("kernel @k() {\n  site 1 = gather\n}", "sites are numbered in order: this is 0"),
    "concurrent statement": ("kernel @k() {\n  concurrent {\n    site\n  }\n}", "expected a loop"),
    "end": ("kernel @k() {\n  serial %i in 0..8 {", "found the end of the text"),
}


@pytest.mark.parametrize("name", NOT_KERNELS)
def test_text_that_is_no_kernel(name: str) -> None:
    text, message = NOT_KERNELS[name]
    with pytest.raises(ParseError) as caught:
        parse_kernel(text, "k.ir")
    assert message in str(caught.value)
    assert str(caught.value).startswith("k.ir:")


# The verifier


BROKEN: dict[str, tuple[str, str]] = {
    "types of operands": (
        inside("%0 = add(1.0:f32, 1:i64) : f32"),
        "the operands are f32, i64, expected one type",
    ),
    "type of a result": (inside("%0 = lt(1.0:f32, 2.0:f32) : f32"), "%0 is f32, expected bool"),
    "condition": (inside("%0 = where(1.0:f32, 1.0:f32, 1.0:f32) : f32"), "the condition is not a bool"),
    "arity": (inside("%0 = add(1.0:f32) : f32"), "add takes 2 operands, not 1"),
    "type of an op": (inside("%0 = sqrt(1:i64) : i64"), "sqrt does not take i64"),
    "narrow register": (inside("%0 = cast(1.0:f32) : bf16"), "%0 is bf16, which registers do not hold"),
    "bitcast": (inside("%0 = bitcast(1.0:f32) : i64"), "f32 and i64 are not of the same width"),
    "rounding": (inside("%0 = round_bf16(1.0:f64) : f32"), "round_bf16 takes f32, not f64"),
    "casts of two": (inside("%0 = cast(1.0:f32, 1.0:f32) : f64"), "cast takes 1 operand, not 2"),
    "type of a store": (inside("store %y[%i], 1:i64"), "the value is i64, expected f32"),
    "store to an input": (inside("store %x[%i, 0], 1.0:f32"), "%x is an input and cannot be written"),
    "rank": (inside("%0 = load %x[%i]"), "%x has 2 dims, the index has 1"),
    "rank of what is fetched": (inside("fetch %x[%i]"), "%x has 2 dims, the index has 1"),
    "elements": (inside("%0 = load %x as [31][%i]"), "%x has 32 elements, seen with 31"),
    "guard": (inside("%0 = load %y[%i] if 1:i64"), "the guard is i64, expected bool"),
    "above the range": (inside("%0 = load %x[%i, %i]"), "dim 1 of %x has size 4, the index goes up to 7"),
    "below the range": (inside("%0 = load %y[%i - 1]"), "dim 0 of %y has size 8, the index goes down to -1"),
    "a quotient": (inside("%0 = load %x[0, %i // 2 + 1]"), "dim 1 of %x has size 4, the index goes up to 4"),
    "a minimum": (inside("%0 = load %x[0, min(%i, 4)]"), "dim 1 of %x has size 4, the index goes up to 4"),
    "a sum of two": (
        inside("serial %j in 0..2 {", "%0 = load %y[%i + %j]", "}"),
        "dim 0 of %y has size 8, the index goes up to 8",
    ),
    "symbolic range": (
        "kernel @k(%x: f32[N]) where N >= 2 {\n  serial %i in 0..(N + 1) {\n    %0 = load %x[%i]\n  }\n}",
        "dim 0 of %x has size N, the index goes up to N",
    ),
    "index type": (
        inside("%0 = load %y[%i]", "%1, %2 = check %0 in 0..8 site 0"),
        "the index is f32, expected i64",
    ),
    "no site": (inside("%0 = load %n[%i]", "%1, %2 = check %0 in 0..8 site 0"), "there is no site 0"),
    "combiner's arity": (inside("store argmax %y[%i], 1.0:f32"), "argmax combines 2 values at a time, not 1"),
    "complex extreme": (inside("store max %c[%i], (1.0+0.0j):c64"), "max does not take c64"),
    "accumulator's arity": (
        inside("serial %j in 0..4 reduce %0: f32, %1: f32 = add {", "yield 1.0:f32, 1.0:f32", "}"),
        "add combines 1 values at a time, not 2",
    ),
    "accumulator's type": (
        inside("serial %j in 0..4 reduce %0: f64 = add {", "yield 1.0:f32", "}"),
        "%0 is f64, expected f32",
    ),
    "place of an extreme": (
        inside("serial %j in 0..4 reduce %0: f32, %1: f32 = argmax {", "yield 1.0:f32, 1.0:f32", "}"),
        "the second value of argmax is its place, an i64, not f32",
    ),
    "start of a prefix": (inside("%0 = prefix add(1.0:f32) from 0:i64"), "the start is i64, expected f32"),
    "start inside of the loop": (
        inside("%0 = load %x[%i, 0]", "%1 = prefix add(%0) from %0"),
        "%0, where the prefix starts, is not known before the loop",
    ),
    "prefix of pairs": (inside("%0 = prefix argmax(1.0:f32) from 0.0:f32"), "argmax combines 2 values at a time"),
    "parallel prefix": (
        "kernel @k() {\n  parallel %i in 0..8 {\n    %0 = prefix add(1.0:f32) from 0.0:f32\n  }\n}",
        "a prefix runs along a serial, vector or thread loop",
    ),
    "prefix along nothing": ("kernel @k() {\n  %0 = prefix add(1.0:f32) from 0.0:f32\n}", "a prefix runs along"),
    "nested vectors": (
        inside("vector<4> %j in 0..4 {", "vector<4> %k in 0..4 {", "}", "}"),
        "a vector loop inside of another",
    ),
    "scratch of lanes": (
        inside("vector<4> %j in 0..4 {", "alloc %r: f32[4]", "}"),
        "an alloc inside of a vector",
    ),
    "inner parallel": (inside("parallel %j in 0..4 {", "}"), "a parallel loop inside of another loop"),
    "parallel sum": (
        "kernel @k() {\n  parallel %i in 0..4 reduce %0: f32 = add {\n    yield 1.0:f32\n  }\n}",
        "a parallel loop cannot reduce",
    ),
    "serial width": (inside("serial<4> %j in 0..4 {", "}"), "a serial loop cannot have width 4"),
    "no width": (inside("vector<0> %j in 0..4 {", "}"), "a vector loop cannot have width 0"),
    "inner concurrency": (inside("concurrent {", "}"), "concurrent loops inside of a loop"),
    "branches that write one buffer": (
        "kernel @k(%y: out f32[4]) {\n  concurrent {\n"
        "    serial %i in 0..2 {\n      store %y[%i], 1.0:f32\n    }\n"
        "    serial %i in 2..4 {\n      store %y[%i], 1.0:f32\n    }\n  }\n}",
        "two branches write %y",
    ),
    "branches that wait": (
        "kernel @k(%y: out f32[4], %z: out f32[4]) {\n  concurrent {\n"
        "    serial %i in 0..4 {\n      store %y[%i], 1.0:f32\n    }\n"
        "    serial %i in 0..4 {\n      %0 = load %y[%i]\n      store %z[%i], %0\n    }\n  }\n}",
        "one branch writes %y, another reads it",
    ),
    "types of matrices": (PRODUCT.replace("%w: f32", "%w: f64"), "the matrices are f32, f32, f64"),
    "columns apart": (
        PRODUCT.replace("* %i; 20, 1] =", "* %i; 20, 2] ="),
        "the columns of the output are not",
    ),
    "pack without panels": (PACKED.replace("16, 1600 by 16] = %w", "16, 1] = %w"), "a pack reads a matrix with"),
    "pack with gaps": (PACKED.replace("16, 1600 by 16] = %w", "20, 1600 by 16] = %w"), "as far apart as it is wide"),
    "product into an input": (PRODUCT.replace("out ", ""), "%y is an input and cannot be written"),
    "assigned in two bodies": (
        inside("serial %j in 0..2 {", "%0 = load %y[%j]", "}", "serial %j in 0..2 {", "%0 = load %y[%j]", "}"),
        "%0 is defined twice",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernel(name: str) -> None:
    text, message = BROKEN[name]
    kernel = parse_kernel(text)
    with pytest.raises(VerifyError) as caught:
        verify_kernel(kernel)
    assert message in str(caught.value)
    assert "^^^" in str(caught.value)


FINE = {
    "guarded": inside("%0 = load %y[%i - 1] if true"),
    "loop over nothing": inside("serial %j in 0..0 {", "%0 = load %y[%j + 9]", "}"),
    "remainder": inside("%0 = load %x[0, %i % 4]"),
    "minimum": inside("%0 = load %x[0, min(%i, 3)]"),
    "variable twice": inside("%0 = load %x[%i, %i - 4 * (%i // 4)]"),
    "tiles": inside("serial %j in (2 * (%i // 2))..(min(2 * (%i // 2) + 2, 7)) {", "%0 = load %y[%j]", "}"),
}


@pytest.mark.parametrize("name", FINE)
def test_fine_kernel(name: str) -> None:
    kernel = parse_kernel(FINE[name])
    verify_kernel(kernel)
    assert_round_trip(kernel)


def test_error_shows_the_line() -> None:
    with pytest.raises(VerifyError) as caught:
        verify_kernel(parse_kernel(inside("%0 = load %y[%i]", "store %y[%i + 1], %0")))
    assert str(caught.value) == (
        "@k: dim 0 of %y has size 8, the index goes up to 8\n"
        "    kernel @k(%x: f32[8, 4], %y: out f32[8], %n: i64[8], %c: out c64[8]) {\n"
        "      serial %i in 0..8 {\n"
        "        %0 = load %y[%i]\n"
        "        store %y[%i + 1], %0\n"
        "        ^^^^^^^^^^^^^^^^^^^^ dim 0 of %y has size 8, the index goes up to 8\n"
        "      }\n"
        "    }"
    )


@dataclass(frozen=True)
class Made:
    """What no text can say: a kernel put together by hand."""

    kernel: Kernel
    message: str


Y = Buffer("%y", f32, (4,), "out")
LOOP = Loop("serial", Symbol("%i", 0, 3), 0, 4, (Store(Y, (Symbol("%i").expr(),), Literal(0.0, f32)),))
MADE = {
    "buffer of another kernel": Made(Kernel("k", (), (LOOP,)), "%y is no buffer that is known here"),
    "another type": Made(Kernel("k", (replace(Y, dtype=f64),), (LOOP,)), "%y is out f64, used as out f32"),
    "role": Made(Kernel("k", (replace(Y, role="scratch"),), (LOOP,)), "cannot be scratch"),
    "twice": Made(Kernel("k", (Y, Y), (LOOP,)), "%y is defined twice"),
    "kind": Made(Kernel("k", (Y,), (replace(LOOP, kind="unrolled"),)), "unrolled is no kind of loop"),
    "unknown register": Made(
        Kernel("k", (), (Let(Register("%1", f32), "exp", (Register("%0", f32),)),)), "%0 is not defined here"
    ),
    "another type of register": Made(
        Kernel(
            "k",
            (),
            (
                Let(Register("%0", f32), "exp", (Literal(1.0, f32),)),
                Let(Register("%1", bool_), "logical_not", (Register("%0", bool_),)),
            ),
        ),
        "%0 is f32, used as bool",
    ),
    "unknown variable": Made(Kernel("k", (Y,), (LOOP.body[0],)), "%i is not defined here"),
    "unknown op": Made(Kernel("k", (), (Let(Register("%0", f32), "expp", ()),)), "expp is no scalar op"),
}


@pytest.mark.parametrize("name", MADE)
def test_made_kernel(name: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify_kernel(MADE[name].kernel)
    assert MADE[name].message in str(caught.value)


def test_pipelines_verify_kernels() -> None:
    VERIFIERS["loop"](parse_kernel(PRODUCT), None)
    broken = parse_kernel(inside("%0 = load %y[%i + 1]"))
    with pytest.raises(VerifyError, match="after parallelize: @k: dim 0"):
        Pipeline(["parallelize"]).run(broken, verify_each=True)


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (("%i // 8", "%j", "%i % 8"), True),
        (("%i % 8", "%j", "%i // 8"), True),
        (("%i // 16", "(%i // 4) % 4", "%i % 4"), True),
        (("(4 * %i + %j) // 8", "(4 * %i + %j) % 8", "0"), True),
        (("(2 * %i + %j) // 8", "(2 * %i + %j) % 8", "0"), False),
        (("%i // 8", "%j", "%i % 4"), False),
        (("%i // 8", "%j", "0"), False),
    ],
)
def test_loops_that_count_in_several_dims_are_parallel(places: tuple[str, ...], expected: bool) -> None:
    text = (
        "kernel @k(%y: out f32[512, 512, 512]) {\n  serial %i in 0..64 {\n    serial %j in 0..4 {\n"
        f"      store %y[{', '.join(places)}], 1.0:f32\n    }}\n  }}\n}}"
    )
    (loop,) = parse_kernel(text).body
    assert isinstance(loop, Loop)
    assert independent(loop) == expected
