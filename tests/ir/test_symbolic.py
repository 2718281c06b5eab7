"""Symbolic sizes: the arithmetic against numbers, and programs of symbolic sizes against NumPy and torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from smelt import ops
from smelt.ir import proofs
from smelt.ir.errors import VerifyError
from smelt.ir.graph import Graph, Value
from smelt.ir.proofs import (
    COMPOUND,
    ceil_divide,
    differs,
    floor_divide,
    is_multiple,
    limit,
    maximum,
    minimum,
    non_negative,
    remainder,
    substitute,
)
from smelt.ir.symbolic import Dim, Symbol, contiguous_strides, evaluate, product, same, symbols_of, transform, weight
from smelt.ir.types import TensorType, f32
from smelt.ir.verify import verify_graph
from smelt.ops.shapes import clamp_slice

# Symbols as sizes (N and M) and as the index of a loop (i, below N).
N, M = Symbol("N", 2), Symbol("M", 2)
I = Symbol("i", 0, N.expr() - 1)
SYMBOLS = (N, M, I)


@dataclass(frozen=True)
class Formula:
    """An expression, and the number that it is for some values of the symbols, worked out without `Expr`."""

    value: Dim
    number: Callable[[dict[str, int]], int]


def leaf(symbol: Symbol) -> Formula:
    return Formula(symbol.expr(), lambda sizes: sizes[symbol.name])


def literal(number: int) -> Formula:
    return Formula(number, lambda sizes: number)


OPERATIONS: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int]]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "min": (minimum, min),
    "max": (maximum, max),
}
# Divisors are positive, sizes and strides, but for those of Python's own division.
DIVISIONS: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int]]] = {
    "floor": (floor_divide, lambda a, b: a // b),
    "rest": (remainder, lambda a, b: a % b),
    "ceil": (ceil_divide, lambda a, b: -(-a // b)),
}


def combine(left: Formula, right: Formula, name: str) -> Formula:
    symbolic, number = OPERATIONS[name]
    return Formula(symbolic(left.value, right.value), lambda sizes: number(left.number(sizes), right.number(sizes)))


def divide(left: Formula, right: Formula, name: str) -> Formula:
    symbolic, number = DIVISIONS[name]
    return Formula(symbolic(left.value, right.value), lambda sizes: number(left.number(sizes), right.number(sizes)))


divisors = st.one_of(
    st.integers(1, 9).map(literal),
    st.sampled_from([N, M]).map(leaf),
    st.tuples(st.sampled_from([N, M]), st.integers(1, 5)).map(
        lambda item: combine(leaf(item[0]), literal(item[1]), "mul")
    ),
    st.just(combine(leaf(N), leaf(M), "mul")),
    st.tuples(st.sampled_from([N, M]), st.integers(0, 4)).map(
        lambda item: combine(leaf(item[0]), literal(item[1]), "add")
    ),
)
formulas = st.recursive(
    st.one_of(st.integers(-9, 9).map(literal), st.sampled_from(SYMBOLS).map(leaf)),
    lambda inner: st.one_of(
        st.builds(combine, inner, inner, st.sampled_from(sorted(OPERATIONS))),
        st.builds(divide, inner, divisors, st.sampled_from(sorted(DIVISIONS))),
        st.builds(divide, inner, st.integers(-9, -1).map(literal), st.sampled_from(["floor", "rest"])),
    ),
    max_leaves=6,
)
polynomials = st.recursive(
    st.one_of(st.integers(-9, 9).map(literal), st.sampled_from(SYMBOLS).map(leaf)),
    lambda inner: st.builds(combine, inner, inner, st.sampled_from(["add", "sub", "mul"])),
    max_leaves=4,
)
sizes_at_hand = st.tuples(st.integers(2, 40), st.integers(2, 40), st.floats(0, 1, exclude_max=True)).map(
    lambda item: {"N": item[0], "M": item[1], "i": int(item[2] * item[0])}
)
quick = settings(max_examples=300, deadline=None)


@quick
@given(formulas, st.lists(sizes_at_hand, min_size=3, max_size=3))
def test_an_expression_means_its_formula(formula: Formula, cases: list[dict[str, int]]) -> None:
    for sizes in cases:
        assert evaluate(formula.value, sizes) == formula.number(sizes), (str(formula.value), sizes)


@quick
@given(formulas, formulas, sizes_at_hand)
def test_substitution_and_evaluation_commute(formula: Formula, size: Formula, sizes: dict[str, int]) -> None:
    base = sizes | {"i": 0}
    # The replacement is a size as N is one: at least 2.
    replacement = combine(size, literal(2), "max")
    replaced = substitute(formula.value, {N: replacement.value, I: 0})
    assert evaluate(replaced, base) == formula.number(base | {"N": replacement.number(base)})
    everything = substitute(formula.value, {symbol: sizes[symbol.name] for symbol in SYMBOLS})
    assert everything == formula.number(sizes)
    assert transform(formula.value, lambda symbol: None, COMPOUND) == formula.value


@quick
@given(formulas, sizes_at_hand)
def test_limits_hold(formula: Formula, sizes: dict[str, int]) -> None:
    number = formula.number(sizes)
    for keep in (frozenset(), frozenset({N, M}), frozenset({I})):
        low, high = limit(formula.value, False, keep), limit(formula.value, True, keep)
        assert low is None or evaluate(low, sizes) <= number, (str(formula.value), str(low), keep)
        assert high is None or number <= evaluate(high, sizes), (str(formula.value), str(high), keep)
    assert not non_negative(formula.value) or number >= 0


@quick
@given(formulas, formulas, sizes_at_hand)
def test_proofs_hold(left: Formula, right: Formula, sizes: dict[str, int]) -> None:
    if differs(left.value, right.value):
        assert left.number(sizes) != right.number(sizes), (str(left.value), str(right.value))
    if same(left.value, right.value):
        assert left.number(sizes) == right.number(sizes)
        assert hash(left.value) == hash(right.value)
    for factor in (2, 3, 8):
        if is_multiple(left.value, factor):
            assert left.number(sizes) % factor == 0


@quick
@given(formulas, st.sampled_from(SYMBOLS), sizes_at_hand)
def test_coefficient_is_the_slope(formula: Formula, symbol: Symbol, sizes: dict[str, int]) -> None:
    value = formula.value
    if isinstance(value, int):
        return
    slope = value.coefficient(symbol)
    if slope is None:
        return
    assert symbol not in symbols_of(slope)
    further = sizes | {symbol.name: sizes[symbol.name] + 3}
    assert evaluate(value, further) - evaluate(value, sizes) == 3 * evaluate(slope, sizes)


@quick
@given(polynomials, polynomials, polynomials)
def test_the_same_polynomial_is_the_same_expression(a: Formula, b: Formula, c: Formula) -> None:
    x, y, z = a.value, b.value, c.value
    assert x + y == y + x and x * y == y * x and (x + y) + z == x + (y + z) and (x * y) * z == x * (y * z)
    assert x - x == 0 and x + 0 == x and x * 1 == x and x * 0 == 0
    assert (x + y) - y == x and x * (y + z) == x * y + x * z and 0 - (0 - x) == x


@quick
@given(polynomials, polynomials.filter(lambda formula: not same(formula.value, 0)))
def test_a_product_divides_by_its_factor(a: Formula, b: Formula) -> None:
    assert same(floor_divide(a.value * b.value, b.value), a.value)
    assert same(remainder(a.value * b.value, b.value), 0)


n, m, i = N.expr(), M.expr(), I.expr()
j = Symbol("j", 0, m - 1).expr()
FLATTEN: dict[str, tuple[Dim, Dim]] = {
    "a row of a matrix": ((i * m + j) // m, i),
    "a column of a matrix": ((i * m + j) % m, j),
    "a number of columns": ((i * 64 + Symbol("k", 0, 63).expr()) // 64, i),
    "quotient of a quotient": ((i // 4) // 8, i // 32),
    "remainder of a remainder": ((i % 24) % 8, i % 8),
    "put together again": (8 * (i // 8) + i % 8, i),
    "put together again, symbolic": (m * (i // m) + i % m, i),
    "a product over a factor": ((n * m) // n, m),
    "a multiple over a factor": ((6 * n) // 3, 2 * n),
    "nothing left": ((6 * n) % 3, 0),
    "an index is below its bound": (i % n, i),
    "a polynomial over a polynomial": ((n * n + 3 * n + 2) // (n + 1), n + 2),
    "smaller of a size and one less": (minimum(n, n - 1), n - 1),
    "larger of a size and one": (maximum(n, 1), n),
    "the same minimum twice": (minimum(minimum(n, m), m), minimum(n, m)),
}


@pytest.mark.parametrize("name", FLATTEN)
def test_simplification(name: str) -> None:
    simplified, expected = FLATTEN[name]
    assert simplified == expected


def test_text() -> None:
    assert str(n * m + 2 * n - 1) == "M * N + 2 * N - 1"
    assert str((n + 1) // 2) == "(N + 1) // 2"
    assert str(minimum(n, m)) == "min(N, M)"
    assert str(3 * (n % 4)) == "3 * (N % 4)"


def test_strides_and_products() -> None:
    assert contiguous_strides((n, m, 4)) == (4 * m, 4, 1)
    assert product((n, 2, m)) == 2 * n * m
    assert product(()) == 1


def test_differs() -> None:
    assert differs(n, 1) and differs(n, n + 1) and differs(n * m, 3)
    assert not differs(n, m) and not differs(n, 5)


@pytest.mark.parametrize(
    ("first", "last"), [(2, -1), (1, -2), (2, None), (None, -3), (5, -5), (-7, None), (None, 7), (-9, -2), (3, 40)]
)
def test_sizes_of_slices_of_slices_stay_short(first: int | None, last: int | None) -> None:
    size: Dim = Symbol("rows", 2).expr()
    sizes = [size]
    for _ in range(20):
        start, end = clamp_slice(size, first, last)
        size = end - start
        sizes.append(size)
    assert max(weight(item) for item in sizes) <= 4
    for rows in range(2, 90):
        left = range(rows)
        for item in sizes:
            assert evaluate(item, {"rows": rows}) == len(left)
            left = left[first:last]


def test_slices_of_known_sizes_are_pythons() -> None:
    places = [None, *range(-6, 7), 2**62, -(2**62)]
    for size, start, end in itertools.product(range(5), places, places):
        low, high = clamp_slice(size, start, end)
        assert list(range(low, high)) == list(range(size))[start:end] and 0 <= low <= high <= size


@pytest.mark.parametrize("gradient", [False, True])
def test_compiling_slices_of_slices_takes_time_by_their_number(gradient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def counted(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return limit(*arguments)

    def work(count: int) -> int:
        def program(x: Any) -> Any:
            for _ in range(count):
                x = x[2:-1] * 1.5
            return x

        nonlocal asked
        asked = 0
        proofs._is_proved.cache_clear()
        compiled = smelt.jit(smelt.grad(lambda x: program(x).sum()) if gradient else program)
        for size in (3 * count + 9, 3 * count + 10, 3 * count - 1, 2, 40):
            x = np.arange(size, dtype=np.float64)
            expected = np.full(size, 0.0)
            expected[2 * count : max(size - count, 0)] = 1.5**count
            np.testing.assert_allclose(compiled(x), expected if gradient else program(x), rtol=1e-12)
        assert compiled.compiles == 2
        return asked

    monkeypatch.setattr(proofs, "limit", counted)
    few, many = work(8), work(24)
    assert many < 5 * few < 200_000


def test_numbers_of_numpy_are_numbers() -> None:
    assert n + np.int64(3) == n + 3 and n * np.int32(2) == 2 * n and n // np.int64(1) == n


# Programs. Each is compiled for one size, then symbolically, and runs on further sizes.


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + 31 * len(shape) + sum(shape)).standard_normal(shape).astype("float32")


def labels(count: int, classes: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, classes, count)


def in_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: function(*map(torch.from_numpy, arrays)).numpy()


def torch_pools(x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool2d(x, 3, 2, 1) + functional.avg_pool2d(x, 3, 2, 1, False, False)


def torch_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(first: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        leaf = torch.from_numpy(first).requires_grad_()
        function(leaf, *map(torch.from_numpy, rest)).backward()
        return leaf.grad.numpy()

    return gradient


def attention(x: Any, module: Any) -> Any:
    scores = module.softmax(module.matmul(x, x.mT) * 0.125, -1)
    return module.matmul(scores, x)


functional = torch.nn.functional
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[int, int], Sequence[np.ndarray]]]] = {
    "softmax of symbolic rows": (
        lambda x: ops.softmax(x, -1), in_torch(lambda x: x.softmax(-1)), lambda a, b: [floats(a, 33)],
    ),
    "softmax along a symbolic dim": (
        lambda x: ops.softmax(x, 1), in_torch(lambda x: x.softmax(1)), lambda a, b: [floats(a, b)],
    ),
    "softmax of columns": (
        lambda x: ops.softmax(x, 0), in_torch(lambda x: x.softmax(0)), lambda a, b: [floats(a, b)],
    ),
    "layer_norm": (
        lambda x, w: ops.layer_norm(x, (16,), w), in_torch(lambda x, w: functional.layer_norm(x, (16,), w)),
        lambda a, b: [floats(a, b, 16), floats(16)],
    ),
    "layer_norm over a symbolic dim": (
        lambda x: ops.layer_norm(x, x.shape[1:]), in_torch(lambda x: functional.layer_norm(x, x.shape[1:])),
        lambda a, b: [floats(a, b)],
    ),
    "matmul": (lambda x, y: x @ y, lambda x, y: x @ y, lambda a, b: [floats(a, b), floats(b, 5)]),
    "batched matmul": (lambda x, y: x @ y, lambda x, y: x @ y, lambda a, b: [floats(3, a, b), floats(b, a)]),
    "attention": (
        lambda x: attention(x, ops), in_torch(lambda x: attention(x, torch)), lambda a, b: [floats(2, a, b)],
    ),
    "cat": (
        lambda x, y: ops.cat([x, y * 2, x[:1]]), lambda x, y: np.concatenate([x, y * 2, x[:1]]),
        lambda a, b: [floats(a, 3), floats(b, 3)],
    ),
    "stack and flip": (
        lambda x: ops.flip(ops.stack([x, x + 1], 1), (0,)), lambda x: np.stack([x, x + 1], 1)[::-1],
        lambda a, b: [floats(a, b)],
    ),
    "slices": (
        lambda x: (x[1:] - x[:-1])[:, ::2] * x[-1, ::2], lambda x: (x[1:] - x[:-1])[:, ::2] * x[-1, ::2],
        lambda a, b: [floats(a, b)],
    ),
    "reshape": (
        lambda x: x.reshape(-1, 4).sum(1).reshape(x.shape[0], 6), lambda x: x.reshape(len(x), 6, 4).sum(2),
        lambda a, b: [floats(a, 24)],
    ),
    "flatten and transpose": (
        lambda x: x.permute(2, 0, 1).reshape(-1) + 1, lambda x: x.transpose(2, 0, 1).reshape(-1) + 1,
        lambda a, b: [floats(a, 3, b)],
    ),
    "mean of everything": (lambda x: x.mean(), lambda x: x.mean(), lambda a, b: [floats(a, b)]),
    "mean along a symbolic dim": (lambda x: x.mean(0), lambda x: x.mean(0), lambda a, b: [floats(a, 7)]),
    "variance": (lambda x: x.var(1), lambda x: x.var(1, ddof=1), lambda a, b: [floats(a, b)]),
    "running sum": (lambda x: x.cumsum(0), lambda x: x.cumsum(0), lambda a, b: [floats(a, b)]),
    "argmax": (lambda x: x.argmax(1), lambda x: x.argmax(1), lambda a, b: [floats(a, b)]),
    "broadcast": (lambda x, y: x[:, None] * y, lambda x, y: x[:, None] * y, lambda a, b: [floats(a), floats(b)]),
    "rows by index": (
        lambda table, index: table[index] * 2, lambda table, index: table[index] * 2,
        lambda a, b: [floats(9, b), labels(a, 9)],
    ),
    "count": (
        lambda x: ops.arange(x.shape[0]) + x.shape[1], lambda x: np.arange(len(x)) + x.shape[1],
        lambda a, b: [floats(a, b)],
    ),
    "lower triangle": (lambda x: ops.tril(x), lambda x: np.tril(x), lambda a, b: [floats(a, b)]),
    "cross_entropy": (
        lambda x, y: ops.cross_entropy(x, y), in_torch(functional.cross_entropy),
        lambda a, b: [floats(a, 10), labels(a, 10)],
    ),
    "gradient of cross_entropy": (
        smelt.grad(lambda x, y: ops.cross_entropy(x, y)), torch_gradient(functional.cross_entropy),
        lambda a, b: [floats(a, b), labels(a, b)],
    ),
    "padded windows": (
        lambda x: ops.max_pool2d(x, 3, 2, 1) + ops.avg_pool2d(x, 3, 2, 1, False, False),
        lambda x: torch_pools(torch.from_numpy(x)).numpy(),
        lambda a, b: [floats(2, a, b)],
    ),
    "windows that are the whole": (
        lambda x: ops._adaptive_avg_pool2d(x, (1, 1)),
        lambda x: functional.adaptive_avg_pool2d(torch.from_numpy(x), (1, 1)).numpy(),
        lambda a, b: [floats(2, a, b)],
    ),
    "gradient of windows": (
        smelt.grad(lambda x: (ops.max_pool2d(x, 3, 2, 1) + ops.avg_pool2d(x, 3, 2, 1, False, False)).sum()),
        torch_gradient(lambda x: torch_pools(x).sum()),
        lambda a, b: [floats(2, a, b)],
    ),
    "gradient of repeated edges": (
        smelt.grad(lambda x: (ops.replication_pad2d(x, (1, 2, 3, 0)) ** 2).sum()),
        torch_gradient(lambda x: (functional.pad(x[None], (1, 2, 3, 0), mode="replicate") ** 2).sum()),
        lambda a, b: [floats(2, a, b)],
    ),
    "gradient of layer_norm": (
        smelt.grad(lambda x, w: (ops.layer_norm(x, (8,), w) ** 3).sum()),
        torch_gradient(lambda x, w: (functional.layer_norm(x, (8,), w) ** 3).sum()),
        lambda a, b: [floats(a, 8), floats(8)],
    ),
    "gradient of a product": (
        smelt.grad(lambda w, x: ((x @ w).tanh() ** 2).mean()),
        torch_gradient(lambda w, x: ((x @ w).tanh() ** 2).mean()),
        lambda a, b: [floats(b, 4), floats(a, b)],
    ),
    "gradient of slices and cat": (
        smelt.grad(lambda x: (ops.cat([x[1:], x[:2]]) * x[0]).sum()),
        torch_gradient(lambda x: (torch.cat([x[1:], x[:2]]) * x[0]).sum()),
        lambda a, b: [floats(a, b)],
    ),
}  # fmt: skip
SIZES = ((4, 6), (5, 9), (17, 33), (2, 2), (64, 7), (3, 70))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_symbolic_sizes(name: str) -> None:
    function, reference, arguments = PROGRAMS[name]
    compiled = smelt.jit(function)
    for first, second in SIZES:
        arrays = arguments(first, second)
        result, expected = compiled(*arrays), reference(*arrays)
        assert result.shape == np.shape(expected)
        np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-5, err_msg=f"{name} of {first}, {second}")
    # One program for the first sizes, one for all that vary.
    assert compiled.compiles == 2


OUTSIDE: dict[str, Callable[[Any], Any]] = {
    "select": lambda x: x[-5] * 2,
    "select of a slice": lambda x: x[:-4][-1],
    "narrow": lambda x: ops.narrow(x, 0, -5, 2),
    "as_strided": lambda x: ops.as_strided(x, (3, 2), (2, 1)),
    "reflection": lambda x: ops.pad(ops.unsqueeze(x, 0), (4, 4), "reflect"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_size_is_read_outside_of(name: str) -> None:
    """What fits the sizes that a program was traced with need not fit a smaller one: that is an error, as ever."""
    compiled = smelt.jit(OUTSIDE[name])
    for size in (9, 10, 8):
        assert np.max(compiled(np.ones(size, np.float32))) <= 2
    for size in (4, 3, 2):
        with pytest.raises(smelt.SmeltError):
            compiled(np.ones(size, np.float32))


def test_a_slice_from_a_computed_size() -> None:
    """Below zero it counts from the end, as it does for numbers."""
    last, first = smelt.jit(lambda x: x[x.shape[0] - 3 :]), smelt.jit(lambda x: x[: x.shape[0] - 3])
    for size in (7, 8, 3, 2):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(last(x), x[size - 3 :])
        np.testing.assert_array_equal(first(x), x[: size - 3])


def test_no_index_outside_of_open_sizes() -> None:
    """gather and scatter_add take as many rows as the index has, which must be there."""
    gathered = smelt.jit(lambda x, index: ops.gather(x, 1, index))
    added = smelt.jit(lambda x, index: ops.scatter_add(x, 1, index, index.cast("f32")))
    for rows, taken in ((6, 4), (7, 5), (8, 8)):
        x, index = np.ones((rows, 3), np.float32), np.zeros((taken, 2), np.int64)
        np.testing.assert_array_equal(gathered(x, index), np.ones((taken, 2)))
        np.testing.assert_array_equal(added(x, index), x)
    for function in (gathered, added):
        with pytest.raises(smelt.SmeltError):
            function(np.ones((5, 3), np.float32), np.zeros((9, 2), np.int64))


def test_a_symbol_is_its_name_and_its_range() -> None:
    """What is remembered for one range answers for no other."""
    assert Symbol("N", 2) == Symbol("N", 2) and hash(Symbol("N", 2)) == hash(Symbol("N", 2))
    upper = N.expr() * 2 - 1
    assert Symbol("i", 0, upper) == Symbol("i", 0, N.expr() * 2 - 1) != Symbol("i", 0, N.expr() - 1)
    assert not same(Symbol("N", 2).expr() + 1, Symbol("N", 3).expr() + 1)
    assert str(Symbol("N", 2).expr() + 1) == str(Symbol("N", 3).expr() + 1)


def test_one_program_has_one_range_of_a_size() -> None:
    values = [Value(TensorType(f32, (Symbol("N", lower).expr(),)), name=f"x{lower}") for lower in (2, 3)]
    with pytest.raises(VerifyError, match="the size N has two ranges"):
        verify_graph(Graph.build("two", values, values))


def test_proofs_by_cases() -> None:
    n, m = N.expr(), M.expr()
    low = maximum(n - 4, 0)
    assert non_negative(n - low)
    assert minimum(low, n) == low
    assert non_negative(ceil_divide(n - low, 2))
    assert non_negative(maximum(minimum(3, n), minimum(m, n)) - minimum(3, n))
    assert not non_negative(low - 1)
    assert not non_negative(minimum(n, m) - 3)
    assert differs(maximum(n, m), 1)


def test_proofs_of_quotients() -> None:
    n, m = N.expr(), M.expr()
    half = floor_divide(n, 2)
    assert non_negative(n - 2 * half)
    assert non_negative(n - ceil_divide(n, 2))
    assert minimum(half, n) == half
    assert non_negative(n + m - half - floor_divide(m, 3))
    assert not non_negative(n - 2 * half - 1)
    assert not non_negative(2 * half - n)
    assert not non_negative(n - ceil_divide(n, 2) - 2)
    assert non_negative(Symbol("L", 7).expr() - 2 * ceil_divide(Symbol("L", 7).expr(), 3) - 1)
    quarter, twelfth = floor_divide(n, 4), floor_divide(n, 12)
    assert non_negative(quarter - 3 * twelfth)
    assert non_negative(4 * quarter - 3 * minimum(2, quarter + twelfth))
    assert not non_negative(quarter - 3 * twelfth - 1)
    assert not non_negative(quarter - 4 * twelfth)
    assert not non_negative(quarter - 3 * floor_divide(n, 10))


def test_what_a_size_tells() -> None:
    n = N.expr()
    for spelled in (n, 4 * floor_divide(n, 4), 4 * floor_divide(n, 4) + 3):
        assert spelled.measured == N
    for other in (2 * n, n + 1, floor_divide(n, 4), 4 * floor_divide(n, 4) + 4, 2 * floor_divide(n, 4), n * M.expr()):
        assert other.measured is None
