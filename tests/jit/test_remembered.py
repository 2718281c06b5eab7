"""What the compiler remembers is remembered under all that it depends on: the second call never gets what holds for the
first one alone."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.ir.parser import parse_graph
from smelt.ops.define import REGISTRY, Tensor, composite

X = np.linspace(-2.0, 3.0, 12)


@composite
def remembered_scaled(self: Tensor, factor: Tensor) -> Tensor:
    """self * (factor + factor), through another composite."""
    return ops.rsub(ops.rsub(self * factor, 0.0), 0.0) + self * factor


# Numbers that neither f32 nor f16 hold.
NUMBERS = [(0.1, 0.7), (1e300, 1e-300), (1 / 3, 2 / 3)]


@pytest.mark.parametrize("first, second", NUMBERS)
def test_bodies_of_composites_have_their_own_numbers(first: float, second: float) -> None:
    """One composite, twice, on numbers that differ: the number in full is an operand of the body."""

    def both(x, a, b):
        return (
            remembered_scaled(x, a),
            remembered_scaled(x, b),
            ops.rsub(x, a * 2),
            ops.rsub(x, b * 2),
            ops.lerp(x, x + 1, a),
            ops.lerp(x, x + 1, 1 - b),
        )

    for x in (X, X.reshape(3, 4), X + 1j):
        results = smelt.jit(both)(x, first, second)
        expected = (
            2 * x * first,
            2 * x * second,
            first * 2 - x,
            second * 2 - x,
            x + first,
            x + (1 - second),
        )
        for result, wanted in zip(results, expected, strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, rtol=1e-14)


def test_complex_numbers_of_bodies() -> None:
    compiled = smelt.jit(lambda x, a, b: (ops.rsub(x, a), ops.rsub(x, b)))
    one, two = compiled(X + 0j, 0.1 + 0.2j, 0.3 - 0.4j)
    np.testing.assert_allclose(one, 0.1 + 0.2j - X, rtol=1e-15)
    np.testing.assert_allclose(two, 0.3 - 0.4j - X, rtol=1e-15)


@pytest.mark.parametrize("number_first", [True, False])
def test_types_of_composites_tell_numbers_from_tensors(number_first: bool) -> None:
    """A Python number takes the type of the f16 beside it, a 0-dim f32 does not, in whichever order they are met."""
    calls = [(1.5, np.float16), (np.asarray(1.5, np.float32), np.float32)]
    REGISTRY["rsub"]._bodies.clear()
    compiled = smelt.jit(lambda x, s: ops.rsub(x, s))
    for scalar, expected in calls if number_first else reversed(calls):
        assert compiled(np.float16(2), scalar).dtype == expected


def test_numbers_are_seen_in_the_graph() -> None:
    """A Python number is cast to what it meets, in the text too, so what is parsed means the same."""
    graph = smelt.jit(lambda x, s: ops.rsub(x, s * 2)).trace(np.float16(2), 1.5)
    assert "{dtype = f16}" in str(graph)
    again = parse_graph(str(graph))
    assert str(again) == str(graph)
    assert again.results[0].dtype.name == "f16"


def test_what_comes_of_numbers_alone_is_a_number() -> None:
    """By primitives and composites: 1 - s, which is rsub, meets an f16 as s does."""

    def mixed(x, s):
        return x + (1 - s), x * ops.rsub(s, 1), x + s * s

    for result in smelt.jit(mixed)(np.float16(2), 0.25):
        assert result.dtype == np.float16


def test_types_of_composites_know_what_their_bodies_call() -> None:
    """An op that is defined anew changes the types of those that call it, too."""

    def define(wanted):
        @composite
        def remembered_inner(self: Tensor) -> Tensor:
            """self as another type."""
            return ops.cast(self, wanted)

        return remembered_inner

    @composite
    def remembered_outer(self: Tensor) -> Tensor:
        """What the other op of this test makes of self."""
        return REGISTRY["remembered_inner"](self) * 2

    x = np.ones(3, np.float32)
    for name in ("f64", "f16"):
        define(smelt.dtype(name))
        assert str(smelt.jit(remembered_outer).trace(x).results[0].dtype) == name


def listed(p):
    """A function that looks at the order of a dict."""
    first, *others = p.values()
    total = first * 1
    for at, other in enumerate(others):
        total = total * 10 + other * (at + 2)
    return total, list(p)


def in_orders(names: str) -> list[dict[str, np.ndarray]]:
    arrays = {name: np.arange(3.0) + ord(name) for name in names}
    return [{name: arrays[name] for name in order} for order in (names, names[::-1], names[1:] + names[0])]


def assert_same(found: object, expected: object) -> None:
    """Numbers, keys and the order of dicts."""
    if isinstance(expected, dict):
        assert isinstance(found, dict) and list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, (tuple, list)):
        assert isinstance(found, (tuple, list)) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected


# How a function gets a dict, and how it is called with one.
ORDERS = {
    "dict": (listed, lambda f, p: f(p)),
    "inside": (lambda q: listed(q[0]["inner"]), lambda f, p: f([{"inner": p}])),
    "keywords": (lambda **p: listed(p), lambda f, p: f(**p)),
    "beside": (lambda x, *, k, **p: (listed(p), k - x), lambda f, p: f(np.ones(3), **p, k=np.zeros(3))),
    "returned": (lambda p: {name: value * 2 for name, value in p.items()}, lambda f, p: f(p)),
    "nested": (lambda p, q: (listed(p), listed(q)), lambda f, p: f(p, dict(reversed(p.items())))),
}


@pytest.mark.parametrize("how", ORDERS)
def test_the_order_of_dicts_is_that_of_the_call(how: str) -> None:
    """In Python's way of a call and in the native one, which takes over from the third call on."""
    function, call = ORDERS[how]
    compiled = smelt.jit(function)
    for _ in range(4):
        for p in in_orders("abc"):
            assert_same(call(compiled, p), call(function, p))
    assert compiled.recent


def test_static_arguments_keep_their_place_among_keywords() -> None:
    def function(x, **rest):
        names = list(rest)
        return x + rest["a"] * rest["mode"], names

    compiled = smelt.jit(function, static_argnames="mode")
    x = np.ones(3)
    for _ in range(4):
        for call in ({"a": x, "mode": 2}, {"mode": 2, "a": x}, {"mode": 3, "a": x}):
            assert_same(compiled(x, **call), function(x, **call))


def test_named_parameters_come_in_any_order_for_one_program() -> None:
    compiled = smelt.jit(lambda x, y, *, k, j: x - y * k + j)
    x, y, k, j = np.arange(12.0).reshape(4, 3)
    expected = x - y * k + j
    for _ in range(4):
        for named in ({"k": k, "j": j, "y": y}, {"j": j, "y": y, "k": k}, {"y": y, "j": j, "k": k}):
            np.testing.assert_array_equal(compiled(x, **named), expected)
    assert compiled.compiles == 1


class Key(str):
    """A key that runs code of its own where it is compared."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        EMPTIED.clear()
        return str.__eq__(self, other)


EMPTIED: list[np.ndarray] = []


def test_keys_run_no_code_while_native_code_looks() -> None:
    compiled = smelt.jit(lambda p, q: p["a"] + q[0])
    for _ in range(4):
        EMPTIED[:] = [np.ones(3)]
        np.testing.assert_array_equal(compiled({"a": np.ones(3)}, EMPTIED), np.full(3, 2.0))
    for _ in range(3):
        EMPTIED[:] = [np.ones(3)]
        p = {Key("a"): np.ones(3)}
        assert len(compiled.recent) == 1
        assert compiled.recent[0][0]((p, EMPTIED), {}) is NotImplemented
        assert len(EMPTIED) == 1


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "?", "c16", "f2"])
@pytest.mark.parametrize("part", [slice(None), slice(None, None, 2), slice(None, None, -1)])
def test_captured_arrays_that_change_between_their_uses(dtype: str, part: slice) -> None:
    """Each use has what the array held then: while tracing, and whatever the caller does to it later."""
    buffer = np.zeros(12, dtype)

    def function(x):
        total = x * 0
        for number in range(4):
            buffer[:] = number % 2
            total = total + x * buffer[part] * (number + 1)
            total = total + buffer[part]
        return total

    x = np.arange(12, dtype="f8")[part]
    compiled = smelt.jit(function)
    expected = function(x)
    np.testing.assert_array_equal(compiled(x), expected)
    buffer[:] = 1
    np.testing.assert_array_equal(compiled(x), expected)


def test_captured_arrays_differ_by_their_bits() -> None:
    buffer = np.zeros(3)

    def function(x):
        first = 1 / (x + buffer)
        buffer[:] = -0.0
        return first, 1 / (x + buffer)

    with np.errstate(divide="ignore"):
        for result, sign in zip(smelt.jit(function)(np.full(3, -0.0)), (1, -1), strict=True):
            np.testing.assert_array_equal(result, np.full(3, sign * np.inf))


def test_captured_arrays_that_do_not_change_are_one_parameter() -> None:
    weights = np.arange(6.0).reshape(2, 3)
    graph = smelt.jit(lambda x: x @ weights + (x + 1) @ weights * (weights.T @ x.T).T[:, :1]).trace(np.ones((2, 2)))
    assert len(graph.params) == 3


def test_callers_do_not_get_at_captured_arrays() -> None:
    table = np.arange(4.0)
    compiled = smelt.jit(lambda x: (table, x + table, ops.reshape(table, (2, 2))))
    for _ in range(4):
        for result in compiled(np.zeros(4)):
            np.testing.assert_array_equal(result.reshape(-1), np.arange(4.0))
            result[...] = -1


def test_code_with_constants_that_have_no_hash() -> None:
    """As PyTorch makes it where a graph breaks at x[:, i]: before Python 3.12, slices cannot be hashed."""

    def function(x):
        return x * 2

    code = function.__code__
    odd = FunctionType(code.replace(co_consts=(*code.co_consts, [1])), globals())
    with pytest.raises(TypeError, match="unhashable"):
        hash(odd.__code__)
    op = smelt.jit(odd).trace(X).results[0].op
    assert str(op.loc) == f"test_remembered.py:{code.co_firstlineno + 1}"
    assert repr(op.loc.inside("mul"))


def test_lines_are_those_of_the_function_itself() -> None:
    """Also where many functions come and go, and new ones take the places of old ones in memory."""
    for number in range(200):
        scope: dict[str, Any] = {}
        exec(compile("\n" * number + "def function(x): return x * 2", "made.py", "exec"), scope)
        op = smelt.jit(scope.pop("function")).trace(X).results[0].op
        assert op.loc.line == number + 1


def test_bodies_do_not_remember_what_the_sizes_at_hand_decided() -> None:
    """Types are remembered for a size that is open: a branch in a body is not decided by the first one."""

    @composite
    def remembered_branch(self: Tensor) -> Tensor:
        """self, twice where it is long."""
        return ops.cat([self, self]) if self.shape[0] > 8 else self * 3

    compiled = smelt.jit(remembered_branch)
    for size in (5, 6, 7, 12, 13, 8, 9, 6):
        x = np.arange(float(size))
        np.testing.assert_array_equal(compiled(x), np.concatenate([x, x]) if size > 8 else x * 3)


@composite
def remembered_below(self: Tensor, small: Tensor, bound: Tensor) -> Tensor:
    """self, one more where small is less than bound."""
    return self + ops.where(ops.lt(small, bound), 1.0, 0.0)


@pytest.mark.parametrize("size_first", [True, False])
def test_bodies_tell_open_sizes_from_numbers(size_first: bool) -> None:
    """What is compared with a size need not hold it; a 0-dim tensor has the type of what it meets. An open size has the
    type of such a tensor, and one composite meets both."""

    def both(x, small, number):
        bounds = (x.shape[0], number) if size_first else (number, x.shape[0])
        return [remembered_below(x, small, bound) for bound in bounds]

    compiled = smelt.jit(both)
    for size in (400, 500, 600):
        x, small = np.zeros(size, np.float32), np.full(size, 200, np.uint8)
        of_size, of_number = compiled(x, small, np.array(400))[:: 1 if size_first else -1]
        np.testing.assert_array_equal(of_size, x + 1)  # 200 < size
        np.testing.assert_array_equal(of_number, x)  # 200 < 400 - 256


def test_rules_that_cannot_be_hashed() -> None:
    class Rule:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, factor: float):
            self.factor = factor

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Rule)

        def __call__(self, grad):
            return grad * self.factor

    for factor in (2.0, 5.0):

        @composite
        def remembered_ruled(self: Tensor) -> Tensor:
            """self, with a slope of its own."""
            return self * 1

        remembered_ruled.vjp(Rule(factor))
        np.testing.assert_array_equal(smelt.grad(lambda x, op=remembered_ruled: op(x).sum())(X), np.full(12, factor))


@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda items: defaultdict(int, items)])
def test_the_order_of_other_dicts(kind: Any) -> None:
    compiled = smelt.jit(listed)
    for _ in range(3):
        for p in in_orders("abc"):
            assert_same(compiled(kind(p)), listed(kind(p)))


def test_gradients_of_dicts_in_any_order() -> None:
    def loss(p):
        return sum((value * (at + 1)).sum() for at, value in enumerate(p.values()))

    gradient = smelt.grad(loss)
    for p in in_orders("abc"):
        assert_same(gradient(p), {name: np.full(3, at + 1.0) for at, name in enumerate(p)})
