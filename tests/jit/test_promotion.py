"""Operators and ufuncs of traced tensors have the types and values of NumPy's (NEP 50), for all pairs of types."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from smelt import ops
from smelt.ir.errors import ArgumentError, DTypeError, NumberRangeError, SmeltError
from smelt.ops.define import REGISTRY
from smelt.promotion import UFUNCS
from support import interpret

TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")
NUMBERS = (True, 3, 2.5, 0.1, 1 + 2j)

BINARY: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift",
        "lt", "le", "gt", "ge", "eq", "ne",
    )
}  # fmt: skip
BINARY["divmod"] = divmod
UNARY: dict[str, Callable[..., Any]] = {name: getattr(operator, name) for name in ("neg", "pos", "invert", "abs")}

# np.reciprocal of integers is refused: what it makes of 0 depends on the machine.
REFUSED = {("reciprocal", kind) for kind in "bui"}
UFUNC_TABLE = {
    ufunc.__name__: ufunc
    for ufunc in vars(np).values()
    if isinstance(ufunc, np.ufunc) and ufunc.signature is None and ufunc.nin <= 2
    and (UFUNCS.get(ufunc.__name__, ufunc.__name__) in REGISTRY or ufunc is np.divmod)
}  # fmt: skip

# Functions that no two libraries round alike: errors in units of the last place, and beside zero.
ULP = 8
ROUNDED = {
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cos", "cosh", "exp", "exp2", "expm1",
    "float_power", "hypot", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "pow", "power", "sin", "sinh",
    "tan", "tanh", "deg2rad", "rad2deg", "degrees", "radians",
}  # fmt: skip
# NumPy's zero of these has the one sign or the other, as the processor has it, and for f16 another than for f32.
ANY_ZERO = {"maximum", "minimum", "fmax", "fmin", "nextafter"}


def values(kind: str, name: str, is_right: bool) -> np.ndarray:
    """Special values of a type, within what NumPy itself has an answer for."""
    dtype = np.dtype(kind)
    found: Sequence[Any]
    if dtype.kind == "b":
        found = [0, 1, 1, 0, 1]
    elif name in ("pow", "power", "float_power"):
        # No negative powers of integers; complex powers of what is not too large.
        found = [0, 1, 2, 3, 5] if dtype.kind in "iu" else [0.5, 1, 2, 1.5, 3]
    elif dtype.kind in "iu":
        found = [0, 1, 7, np.iinfo(dtype).max, np.iinfo(dtype).min] if dtype.kind == "i" else [0, 1, 7, 200, 255]
        found = [*found, -1] if dtype.kind == "i" else found
    elif dtype.kind == "f":
        found = [0.0, -0.0, 0.1, 1.5, -2.25, np.inf, np.nan]
    else:
        found = [0, 1 + 2j, -1.5 - 0.5j, 3, 2j, 1 - 1j]
    return np.array(found, dtype)


def grid(kinds: Sequence[str], name: str) -> tuple[np.ndarray, ...]:
    if len(kinds) == 1:
        return (values(kinds[0], name, False),)
    return tuple(
        item.ravel().copy() for item in np.meshgrid(values(kinds[0], name, False), values(kinds[1], name, True))
    )


def in_numpy(function: Callable[..., Any], operands: Sequence[Any]) -> tuple[Any, ...] | None:
    """None if NumPy refuses."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = function(*operands)
        except (TypeError, ValueError, OverflowError):
            return None
    return found if isinstance(found, tuple) else (found,)


def assert_same(found: Any, expected: Any, name: str, what: str) -> None:
    assert found.dtype == expected.dtype, f"{what}: {found.dtype}, in NumPy {expected.dtype}"
    # Complex products, quotients and square roots are rounded in more than one way.
    if found.dtype.kind == "c" and found.dtype.kind != "b" or (name in ROUNDED and found.dtype.kind == "f"):
        eps = float(np.finfo(found.dtype).eps)
        near = np.allclose(
            found, expected, rtol=ULP * eps * (4 if found.dtype.kind == "c" else 1), atol=4 * eps, equal_nan=True
        )
        assert near, f"{what}: {found}, in NumPy {expected}"
    else:
        np.testing.assert_array_equal(found, expected, err_msg=what)
        if found.dtype.kind == "f" and name not in ANY_ZERO:
            signs = (np.signbit(item[item == 0]) for item in (found, expected))
            np.testing.assert_array_equal(*signs, err_msg=f"{what}: signs of zeros")


def operand_pairs(name: str, arity: int) -> list[tuple[Any, ...]]:
    if arity == 1:
        return [grid((kind,), name) for kind in TYPES]
    pairs: list[tuple[Any, ...]] = [grid(kinds, name) for kinds in itertools.product(TYPES, TYPES)]
    for kind, number in itertools.product(TYPES, NUMBERS):
        array = values(kind, name, False)
        pairs += [(array, number), (number, array)]
    return pairs


class Table:
    """What a function of one or two operands is for all types, in NumPy and in smelt."""

    def __init__(self, name: str, function: Callable[..., Any], arity: int):
        self.name = name
        self.function = function
        self.pairs = operand_pairs(name, arity)
        self.expected = [in_numpy(function, pair) for pair in self.pairs]
        self.refused: dict[int, SmeltError] = {}

    def program(self, literals: bool) -> Callable[..., Any]:
        """With Python numbers as literals, or as arguments."""

        def run(given: list[Any]) -> list[Any]:
            found: list[Any] = []
            for at, traced in enumerate(given):
                pair = [
                    known if literals and not isinstance(known, np.ndarray) else item
                    for known, item in zip(self.pairs[at], traced)
                ]
                try:
                    result = self.function(*pair)
                except SmeltError as error:
                    self.refused[at] = error
                    result = ()
                found.append(result if isinstance(result, tuple) else (result,))
            return found

        return run

    def compare(self, results: list[Any]) -> int:
        for at, (pair, expected, found) in enumerate(zip(self.pairs, self.expected, results, strict=True)):
            kinds = [str(item.dtype) if isinstance(item, np.ndarray) else repr(item) for item in pair]
            what = f"{self.name} of {', '.join(kinds)}"
            if expected is None or (self.name, np.result_type(*pair).kind) in REFUSED:
                assert at in self.refused, f"{what}: {found}, NumPy refuses"
                continue
            assert at not in self.refused, f"{what}: {self.refused.get(at)}"
            for one, other in zip(found, expected, strict=True):
                assert_same(np.asarray(one), np.asarray(other), self.name, what)
        return len(self.pairs)


@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_operators_of_all_types(name: str) -> None:
    table = Table(name, BINARY.get(name) or UNARY[name], 2 if name in BINARY else 1)
    count = sum(table.compare(smelt.jit(table.program(literals))(table.pairs)) for literals in (True, False))
    print(f"\n{name}: {count} pairs of operands are as in NumPy")


@pytest.mark.parametrize("name", UFUNC_TABLE)
def test_ufuncs_of_all_types(name: str) -> None:
    ufunc = UFUNC_TABLE[name]
    table = Table(name, ufunc, ufunc.nin)
    function = smelt.jit(table.program(literals=True))
    graph = function.trace(table.pairs)
    found = iter(interpret(graph, [np.asarray(item) for pair in table.pairs for item in pair]))
    results = [
        [next(found) for _ in range(ufunc.nout)] if at not in table.refused else () for at in range(len(table.pairs))
    ]
    print(f"\n{name}: {table.compare(results)} pairs of operands are as in NumPy")


def arrays_of(kind: str) -> st.SearchStrategy[np.ndarray]:
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        items: st.SearchStrategy[Any] = st.booleans()
    elif dtype.kind in "iu":
        items = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    elif dtype.kind == "f":
        items = st.floats(width=dtype.itemsize * 8)  # type: ignore[arg-type]
    else:
        items = st.complex_numbers(max_magnitude=1e6, min_magnitude=1e-3, width=dtype.itemsize * 8)  # type: ignore[arg-type]
    return st.lists(items, min_size=4, max_size=4).map(lambda found: np.array(found, dtype))


NUMBER = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.complex_numbers(max_magnitude=1e6, min_magnitude=1e-3),
)
OPERAND = st.one_of(st.sampled_from(TYPES).flatmap(arrays_of), NUMBER)
COMPILED = {name: smelt.jit(function) for name, function in BINARY.items()}


@pytest.mark.filterwarnings("ignore:.*was compiled")
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(BINARY)), st.sampled_from(TYPES).flatmap(arrays_of), OPERAND, st.booleans())
def test_operators_of_any_values(name: str, array: np.ndarray, other: Any, is_reflected: bool) -> None:
    pair = (other, array) if is_reflected else (array, other)
    if any(np.asarray(item).dtype.kind == "c" for item in pair) and name == "pow":
        return  # how near a complex power is depends on its size
    expected = in_numpy(BINARY[name], pair)
    if expected is None:
        with pytest.raises(SmeltError):
            COMPILED[name](*pair)
        return
    found = COMPILED[name](*pair)
    for one, wanted in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert_same(np.asarray(one), np.asarray(wanted), name, f"{name} of {pair}")


# What is no pair of types.


def test_unix_times() -> None:
    times = np.array([1_700_000_000, 1_700_000_061])
    minutes, exact, shifted, means = smelt.jit(lambda t: (t / 60, t * 1.0, ops.true_divide(t, 60), np.mean(t)))(times)
    np.testing.assert_array_equal(minutes, times / 60)
    np.testing.assert_array_equal(exact, times * 1.0)
    np.testing.assert_array_equal(shifted, times / 60)
    assert means == times.mean()


def test_a_number_alone() -> None:
    same = smelt.jit(lambda x: (x, x * 2, -x, ops.exp(x * 0)))
    for number, kind in ((1e300, np.float64), (2**40, np.int64), (1e300j, np.complex128)):
        for _ in range(3):
            found = same(number)
            assert found[0].dtype == kind and found[0] == number and found[1] == number * 2 and found[2] == -number
            assert found[3].dtype == (np.float64 if kind is np.int64 else kind)


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32"])
def test_an_argument_out_of_range(kind: str) -> None:
    function = smelt.jit(lambda x, n: x + n)
    x = np.zeros(3, kind)
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    for _ in range(3):  # compiled, by Python, by native code
        for number in (low, high):
            np.testing.assert_array_equal(function(x, number), x + number)
        for number in (low - 1, high + 1, 2**40):
            with pytest.raises(NumberRangeError, match=rf"test_promotion.py:\d+: {number} is out of range for"):
                function(x, number)
            assert not (function(x.astype("int64"), number) != number).any()
    with pytest.raises(NumberRangeError, match="does not fit|out of range"):
        smelt.jit(lambda x: x + (high + 1))(x)
    np.testing.assert_array_equal(
        smelt.jit(lambda x, n: (x < n, n < x, x == n))(x, high + 1), [[True] * 3, [False] * 3, [False] * 3]
    )


def test_arithmetic_of_numbers_gives_numbers() -> None:
    x = np.arange(3, dtype=np.int32)
    found = smelt.jit(lambda x, n: (x + (n + 1), x * (n / 2), x + n // 2, x.astype("f4") * (n * 0.1)))(x, 7)
    expected = (x + 8, x * 3.5, x + 3, x.astype("f4") * 0.7000000000000001)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, "", "")
    with pytest.raises(NumberRangeError, match="2147483648 is out of range for i32"):
        smelt.jit(lambda x, n: x + (n + 1))(x, 2**31 - 1)


NUMBERS_ALONE: list[Callable[..., Any]] = [
    lambda x, s: np.sqrt(s) + x,
    lambda x, s: np.add(s, 1) + x,
    lambda x, s: np.maximum(s, 2) * x,
    lambda x, s: np.negative(s) + x,
    lambda x, s: np.divmod(s, 2)[1] + x,
    lambda x, s: (x * s) + (s + 1) / 3 + (-s) * 2 + abs(s) * x,
]


@pytest.mark.parametrize("function", NUMBERS_ALONE)
def test_ufuncs_of_numbers_give_scalars_that_have_a_type(function: Callable[..., Any]) -> None:
    """np.sqrt(2.0) is an np.float64, 2.0 * 3 a number."""
    compiled = smelt.jit(function)
    for kind, number in itertools.product(("f4", "i4", "u1"), (2, 2.5, 1e300)):
        x = np.arange(4).astype(kind)
        with np.errstate(over="ignore"):
            wanted = function(x, number)
        found = compiled(x, number)
        assert found.dtype == wanted.dtype, (kind, number)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_size_beside_a_narrow_type() -> None:
    function = smelt.jit(lambda x: x + x.shape[0])
    for size in (100, 101, 102):
        np.testing.assert_array_equal(function(np.ones(size, np.uint8)), size + 1)
    with pytest.raises(NumberRangeError, match="300 is out of range for u8"):
        function(np.ones(300, np.uint8))


def test_powers_of_integers() -> None:
    x = np.array([1, 2, 3])
    for exponent in (-1, np.array([1, -1, 2]), np.int64(-2)):
        with pytest.raises(ArgumentError, match="powers"):
            smelt.jit(lambda x, exponent=exponent: x**exponent, static_argnames="exponent")(x)
        if not isinstance(exponent, int):
            with pytest.raises(ArgumentError, match="powers"):
                smelt.jit(lambda x, y: x**y)(x, exponent)
    with pytest.raises(ArgumentError, match=r"test_promotion.py:\d+: integers to the power -3: negative powers"):
        smelt.jit(lambda x, n: x**n)(x, -3)


def test_bools() -> None:
    mask = np.array([True, False])
    for function in (lambda x: -x, lambda x: x - x, lambda x: +x, lambda x: x - True):
        with pytest.raises(DTypeError, match=r"test_promotion.py:\d+: \w+: numpy.\w+ takes no bool"):
            smelt.jit(function)(mask)


@pytest.mark.parametrize(
    "kinds", list(itertools.product(("bool", "int32", "float32", "float64", "complex64"), repeat=2))
)
def test_matrix_products_of_mixed_types(kinds: tuple[str, str]) -> None:
    a, b = np.arange(6).reshape(2, 3).astype(kinds[0]), np.arange(12).reshape(3, 4).astype(kinds[1])
    for found in smelt.jit(lambda a, b: (a @ b, np.matmul(a, b), np.dot(a, b), a.dot(b)))(a, b):
        assert_same(found, a @ b, "matmul", str(kinds))


def test_numpy_scalars_and_arrays_without_dims_are_strong() -> None:
    x = np.ones(3, np.float32)
    for number in (np.float64(0.1), np.array(0.1), np.int64(3), np.float16(2), np.bool_(True)):
        expected = x * number
        for found in (
            smelt.jit(lambda x, n: x * n)(x, number),
            smelt.jit(lambda x, n=number: x * n, static_argnames="n")(x),
        ):
            assert_same(found, expected, "", repr(number))


def test_bf16_promotes_as_f16_does() -> None:
    bf16 = smelt.bf16.numpy
    x = np.ones(3, bf16)
    for other in (*TYPES, bf16):
        y = np.ones(3, other)
        for found in (smelt.jit(operator.add)(x, y), smelt.jit(operator.mul)(y, x)):
            expected = (
                (x.astype("f2") + y).dtype
                if other not in ("float16", bf16)
                else np.dtype(bf16 if other == bf16 else "f4")
            )
            assert found.dtype == (bf16 if expected == "f2" else expected)
    assert smelt.jit(lambda x: x * 0.1)(x).dtype == smelt.jit(lambda x, s: x * s)(x, 0.1).dtype == bf16


def test_a_matrix_is_refused() -> None:
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1.0, 2.0]])
    with pytest.raises(ArgumentError, match=r"numpy.matrix .*np.asarray"):
        smelt.jit(lambda x: x * x)(matrix)


# What integers become in ops is the default float type of the trace.


def test_integers_in_ops() -> None:
    n = np.array([16777217, 3])
    wanted = {
        "exp": lambda x: ops.exp(x * 0), "log": ops.log, "sigmoid": ops.sigmoid, "softmax": lambda x: ops.softmax(x, 0),
        "mul": lambda x: ops.mul(x, 1.5), "where": lambda x: ops.where(x > 5, x, 0.1),
        "xlogy": lambda x: ops.xlogy(x, x),
        "add to 0-dim": lambda x: ops.add(x[0], 0.5), "numbers": lambda x: ops.where(x > 5, 0.1, 0.2),
        "mse_loss": lambda x: ops.mse_loss(x, x[::-1]), "arange": lambda x: ops.arange(3) / 7,
    }  # fmt: skip
    found = smelt.jit(lambda x: [function(x) for function in wanted.values()])(n)
    assert [str(item.dtype) for item in found] == ["float64"] * len(found)
    np.testing.assert_allclose(found[1], np.log(n), rtol=4e-16)
    np.testing.assert_array_equal(found[5], [16777217, 0.1])
    np.testing.assert_array_equal(ops.true_divide(n, 60), n / 60)
    # Floats keep their type, and so do tensors of PyTorch's types beside each other.
    for kind in ("float16", "float32", "complex64"):
        same = smelt.jit(lambda x, n: (ops.exp(x), ops.mul(x, 0.1), ops.add(x, n)))(np.ones(2, kind), n)
        assert [item.dtype for item in same] == [np.dtype(kind)] * 3
    graph = str(smelt.jit(lambda x: ops.exp(x)).trace(n))
    assert "cast(%x) {dtype = f64}" in graph and "exp(%0) : f64[2]" in graph


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_numbers_that_become_doubles_keep_their_digits(kind: Any) -> None:
    """float_power computes in f64 whatever it is given: also an argument that is a Python number."""
    x = np.array([4, 0, -2], kind)
    t = torch.from_numpy(x.astype(np.float64))
    for number in (0.001, 1 / 3, 5):
        for function, wanted in (
            (lambda n, x: ops.float_power(n, x), torch.float_power(number, t)),
            (lambda n, x: ops.float_power(x, n), torch.float_power(t, number)),
        ):
            got = smelt.jit(function)(number, x)
            np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-14)
    narrow = smelt.jit(lambda n, x: (ops.add(x, n), ops.pow(x, n), ops.mul(x, n)))(0.001, np.abs(x))
    assert [item.dtype for item in narrow] == [np.dtype(kind)] * 3


def test_numbers_beside_doubles_keep_their_digits() -> None:
    x = np.array([0.1, 0.7, 2.0])
    t = torch.from_numpy(x)
    calls: dict[str, tuple[Any, Any]] = {
        "isin": (lambda x, s: ops.isin(x, s), torch.isin(t, 0.1)),
        "float_power": (lambda x, s: ops.float_power(x, s), torch.float_power(t, 0.1)),
        "of a number": (lambda x, s: ops.float_power(s, x), torch.float_power(0.1, t)),
        "xlogy": (lambda x, s: ops.xlogy(x, s), torch.xlogy(t, 0.1)),
        "xlogy of a number": (lambda x, s: ops.xlogy(s, x), torch.xlogy(0.1, t)),
        "special_xlog1py": (lambda x, s: ops.special_xlog1py(x, s), torch.special.xlog1py(t, 0.1)),
        "special_xlog1py of a number": (lambda x, s: ops.special_xlog1py(s, x), torch.special.xlog1py(0.1, t)),
        "rsub": (lambda x, s: ops.rsub(x, s), torch.rsub(t, 0.1)),
        "lerp": (lambda x, s: ops.lerp(x, x * 2, s), torch.lerp(t, t * 2, 0.1)),
        "a list": (lambda x, s: ops.add(x, [0.1, 0.2, 0.3]), t + torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)),
    }
    literals = smelt.jit(lambda x: [function(x, 0.1) for function, _ in calls.values()])(x)
    arguments = smelt.jit(lambda x, s: [function(x, s) for function, _ in calls.values()])(x, 0.1)
    for name, (_, expected), *found in zip(calls, calls.values(), literals, arguments, strict=True):
        for item in found:
            np.testing.assert_allclose(item, expected.numpy(), rtol=4e-16, err_msg=name)
