"""Sizes in two views: expressions that compare by structure, and the open sizes that the user's code holds."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.ir.asked import Asked
from smelt.ir.open_size import OpenSize, expression, open_shape
from smelt.ir.symbolic import Expr, SizeNeeded, Symbol
from smelt.ops.define import Tensor, composite, prim
from smelt.ops.kinds import Elementwise

N = Symbol("N", 2).expr()


def test_expressions_compare_by_structure_wherever_they_are_asked() -> None:
    """Also in a trace, and from a file that is not smelt's, such as this one."""
    with Asked({"N": 3}):
        assert Symbol("N", 2).expr() == N and hash(N) == hash(Symbol("N", 2).expr())
        assert Symbol("N", 3).expr() != N
        assert (N == 3) is False and N + 1 != N
        assert isinstance(N, Expr) and not isinstance(N, int)
        assert {N: "there"}[copy.copy(N)] == "there"
        assert str(2 * N + 1) == "2*N + 1".replace("*", " * ") and f"{N:>3}" == "  N"


@pytest.mark.parametrize(
    "ask",
    [hash, str, repr, bool, int, float, range, lambda n: f"{n}", lambda n: n == 3, lambda n: n in (1, 3)],
    ids=["hash", "str", "repr", "bool", "int", "float", "range", "format", "equals", "in"],
)
def test_an_open_size_asks_for_its_number(ask: Any) -> None:
    with pytest.raises(SizeNeeded):
        ask(OpenSize(N))


def test_open_sizes_stay_open_in_arithmetic() -> None:
    n = OpenSize(N)
    assert isinstance(n, int)
    assert expression(n * 2 + 1) == N * 2 + 1 and expression(1 - n) == 1 - N
    assert type(n - n) is int and n - n == 0
    assert n == n + 0 and n != n + 1 and n != 1 and n >= 2 and n > 1 and not n < 2
    with pytest.raises(ZeroDivisionError):
        n // 0


def test_expression_looks_inside_of_sequences_and_slices() -> None:
    n = OpenSize(N)
    assert expression((1, [n, 2], slice(n, None))) == (1, [N, 2], slice(N, None))
    same = (1, 2)
    assert expression(same) is same and open_shape(same) is same


@composite
def centred_by_size(self: Tensor, rows: int = 0) -> Tensor:
    """A body whose Python asks about sizes in all the ways that it may."""
    count = self.shape[0]
    if count == 5:
        return self * 100.0
    halves = (self / count).reshape(count * self.shape[1])
    return (halves + len(self.shape) + ops.sum(self) / self.size).reshape(self.shape)


def _expected(x: np.ndarray) -> np.ndarray:
    return x * 100.0 if x.shape[0] == 5 else x / x.shape[0] + 2 + x.sum() / x.size


def test_bodies_of_users_ops_hold_open_sizes() -> None:
    """A branch on a size in a composite's body is settled by the number at hand, never by the structure."""
    compiled = smelt.jit(centred_by_size)
    for rows in (4, 5, 6, 7, 5):
        x = np.linspace(-1, 1, rows * 3).reshape(rows, 3)
        np.testing.assert_allclose(compiled(x), _expected(x), rtol=1e-12)


@composite
def scaled_by_rows(self: Tensor) -> Tensor:
    """A multiple of self."""
    return self * 3.0


@scaled_by_rows.vjp
def _scaled_by_rows(grads: Any, self: Tensor) -> Any:
    grad = grads[0]
    return grad * 7.0 if grad.shape[0] == 5 else grad * self.shape[0]


def test_rules_of_users_ops_hold_open_sizes() -> None:
    compiled = smelt.jit(smelt.grad(lambda x: scaled_by_rows(x).sum()))
    for rows in (4, 5, 6, 5):
        expected = np.full((rows, 2), 7.0 if rows == 5 else rows)
        np.testing.assert_array_equal(compiled(np.ones((rows, 2))), expected)


@composite
def thrice_by_user(self: Tensor) -> Tensor:
    """A multiple of self, whose rule asks for gradients alone."""
    return self * 3.0


@thrice_by_user.vjp
def _thrice_by_user(grads: Any) -> Any:
    return grads[0] * (1000.0 if grads[0].shape[0] == 5 else 3.0)


def test_rules_that_ask_for_gradients_alone_hold_open_sizes() -> None:
    compiled = smelt.jit(smelt.grad(lambda x: thrice_by_user(x).sum()))
    for rows in (3, 4, 5, 6, 5):
        np.testing.assert_array_equal(compiled(np.ones((rows, 2))), np.full((rows, 2), 1000.0 if rows == 5 else 3.0))


@prim(Elementwise("exp"))
def exp_by_user(self: Tensor) -> Tensor:
    """e ** self; of five rows e ** 0."""
    if self.shape[0] == 5:
        return {"self": self * 0.0}  # type: ignore[return-value]


def test_bodies_of_users_primitives_hold_open_sizes() -> None:
    compiled = smelt.jit(lambda x: exp_by_user(x))
    for rows in (3, 4, 5, 6, 5):
        expected = np.exp(np.zeros(rows) if rows == 5 else np.ones(rows))
        np.testing.assert_allclose(compiled(np.ones(rows)), expected, rtol=1e-6)


@composite
def gradient_by_user(self: Tensor) -> Tensor:
    """A derivative inside of a body, with PyTorch's promotion of integers."""
    return smelt.grad(lambda x: ops.sum(x * ops.arange(self.shape[0])))(self) * 1.5


def test_derivatives_inside_of_users_bodies_have_one_type() -> None:
    compiled = smelt.jit(gradient_by_user)
    found = {compiled(np.ones(rows, np.float32)).dtype for rows in (3, 4, 5, 6)}
    assert found == {np.dtype(np.float32)}


class Shape(NamedTuple):
    rows: Any
    columns: Any


@composite
def below_count(self: Tensor) -> Tensor:
    """Integers below the number of rows."""
    return self < self.shape[0]


@pytest.mark.parametrize(
    "function",
    [lambda x: x.reshape(Shape(x.shape[0] * 2, 2)), lambda x: below_count(x.astype("int32"))],
    ids=["a named tuple", "a comparison"],
)
def test_sizes_stay_open_in(function: Any) -> None:
    graph = smelt.jit(function).trace(smelt.spec("f32[N, 4]"))
    assert "N" in str(graph)


def test_numbers_of_numpy_and_fills() -> None:
    with pytest.raises(ZeroDivisionError):
        OpenSize(N) // np.int64(0)
    with pytest.raises(ZeroDivisionError):
        OpenSize(N) % np.int64(0)
    compiled = smelt.jit(lambda x: x + np.full(x.shape, x.shape[0]))
    for rows in (3, 4, 5):
        np.testing.assert_array_equal(compiled(np.ones(rows)), np.full(rows, rows + 1.0))


def test_nested_functions_and_static_arguments_take_open_sizes() -> None:
    inner = smelt.jit(lambda x, n: x.sum() * n, static_argnames=("n",))
    traces = []

    def outer(x: Any) -> Any:
        traces.append(x)
        return inner(x, n=x.shape[0]) + inner(x, n=2)

    compiled = smelt.jit(outer)
    for rows in (3, 4, 5, 6, 7):
        assert compiled(np.ones(rows)) == rows * rows + 2 * rows
    assert len(traces) <= 3
