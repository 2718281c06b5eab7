"""Arguments are taken in the order in which they lie in memory; results lie as NumPy's and PyTorch's do."""

from __future__ import annotations

import numpy as np
import pytest
import smelt
import torch
from smelt import ops
from smelt.passes.graph.layout import layout, result_orders
from smelt.passes.manager import PASSES, Pipeline
from smelt.passes.pipelines import GRAPH


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(step * tensor.element_size() for step in tensor.stride())


PROGRAMS = {
    "channels last": (lambda x, b: ops.permute(x, (0, 2, 3, 1)) + b, lambda x, b: x.permute(0, 2, 3, 1) + b, (4,)),
    "heads": (lambda x, b: ops.permute(x, (0, 2, 1, 3)) * b, lambda x, b: x.permute(0, 2, 1, 3) * b, (1,)),
    "two of one order": (
        lambda x, b: x.T * x.T.exp(),
        lambda x, b: x.permute(3, 2, 1, 0) * x.permute(3, 2, 1, 0).exp(),
        (1,),
    ),
    "a view": (lambda x, b: ops.movedim(x, 0, -1), lambda x, b: x.movedim(0, -1), (1,)),
    "several": (
        lambda x, b: ops.transpose(ops.permute(x, (1, 0, 3, 2)) + b, 0, 3),
        lambda x, b: (x.permute(1, 0, 3, 2) + b).transpose(0, 3),
        (1,),
    ),
    "computed": (
        lambda x, b: ops.permute(x.sum(-1) * b, (2, 1, 0)),
        lambda x, b: (x.sum(-1) * b).permute(2, 1, 0),
        (1,),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_lie_as_pytorch_lays_them_out(name):
    ours, theirs, small = PROGRAMS[name]
    x, b = numbers(2, 4, 3, 5), numbers(*small)
    expected = theirs(torch.from_numpy(x), torch.from_numpy(b))
    function = smelt.jit(ours)
    for _ in range(3):  # compiled, by Python, by native code
        found = function(x, b)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=1e-6)
        assert found.strides == strides(expected)
        assert found.flags.writeable


def test_the_body_of_a_composite_counts():
    x = numbers(6, 7)
    expected = torch.nn.functional.gelu(torch.from_numpy(x).T)
    found = smelt.jit(lambda x: ops.gelu(x.T))(x)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=1e-6)
    assert found.strides == strides(expected) == (4, 28)


def test_operands_of_different_orders_give_rows():
    x = numbers(5, 5)
    found = smelt.jit(lambda x: x.T + x)(x)
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, x.T + x)


def test_updates_of_parameters_are_rows_whatever_their_gradients_are():
    """A gradient comes transposed, what is subtracted from the parameter does not; the gradient itself stays so."""
    weight, x = numbers(6, 7), numbers(5, 6)

    def step(weight, x):
        gradient = smelt.grad(lambda weight: (weight.T @ x.T).sum())(weight)
        return weight - gradient * 0.5, ops.transpose(x, 0, 1) * 2.0

    updated, turned = smelt.jit(step)(weight, x)
    np.testing.assert_allclose(updated, weight - 0.5 * x.sum(0)[:, None], rtol=1e-5, atol=1e-5)
    assert updated.flags.c_contiguous and turned.flags.f_contiguous
    alone = smelt.jit(lambda weight, x: step(weight, x)[0])
    np.testing.assert_array_equal(alone(weight, x), updated)
    assert alone(weight, x).flags.c_contiguous


def test_the_layout_of_results_is_a_pass():
    """It is registered, turns only results that are better stored in another order, and a second time does nothing."""
    graph = smelt.jit(lambda x: (ops.permute(x, (0, 2, 1)) * 2.0, x + 1)).trace(smelt.spec("f32[4, 64, 96]"))
    assert result_orders(graph) == [(0, 2, 1), None]
    stored = PASSES["layout"](graph)
    assert [value.shape for value in stored.results] == [(4, 64, 96), (4, 64, 96)]
    assert [value.shape for value in graph.results] == [(4, 96, 64), (4, 64, 96)]
    assert result_orders(stored) == [None, None] and layout(stored) is stored


def test_no_transposition_is_left():
    graph = layout(smelt.jit(lambda x: ops.permute(x, (0, 2, 1)) * 2.0).trace(smelt.spec("f32[4, 64, 96]")))
    assert all(op.name != "permute" for op in Pipeline(GRAPH).run(graph).ops)


@pytest.mark.parametrize(
    "turn",
    [
        lambda x: x.T,
        lambda x: x.transpose(1, 2, 0),
        lambda x: np.asfortranarray(x),
        lambda x: x[:, ::2],
        lambda x: x[::-1],
        lambda x: x.T[1:],
        lambda x: x[:, :1].T,
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: x[:0].T,
    ],
)
def test_arguments_in_any_order(turn):
    x = turn(numbers(4, 6, 8))
    function = smelt.jit(lambda x: (x * 2.0 + x.sum(0), ops.softmax(x, -1), x.T))
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    expected = (tensor * 2 + tensor.sum(0), torch.softmax(tensor, -1), tensor.permute(2, 1, 0))
    for _ in range(3):
        for one, other in zip(function(x), expected, strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=2e-6, atol=1e-6)


def test_a_dense_argument_is_not_copied():
    x = numbers(64, 32).T
    function = smelt.jit(lambda x: x + 1.0)
    found = function(x)
    assert found.strides == x.strides
    assert "permute" not in str(function.report())


def test_orders_are_told_apart():
    """A transposed array and a plain one of the transposed shape lie alike."""
    function = smelt.jit(lambda x: x.sum(0))
    plain = numbers(3, 5)
    for _ in range(4):
        np.testing.assert_allclose(function(plain), plain.sum(0), rtol=1e-6)
        np.testing.assert_allclose(function(plain.T), plain.T.sum(0), rtol=1e-6)
        np.testing.assert_allclose(function(np.ascontiguousarray(plain.T)), plain.T.sum(0), rtol=1e-6)


def test_open_sizes():
    function = smelt.jit(lambda x: ops.permute(x, (1, 0)) * 2.0)
    for rows in (3, 7, 19):
        x = numbers(rows, 4)
        found = function(x)
        np.testing.assert_allclose(found, x.T * 2)
        assert found.strides == (4, 16)
    assert function.compiles == 2


def test_results_of_one_call_are_arguments_of_the_next():
    first = smelt.jit(lambda x: x.T * 2.0)
    second = smelt.jit(lambda x: x @ x.T)
    x = numbers(6, 9)
    np.testing.assert_allclose(second(first(x)), (x.T * 2) @ (x * 2), rtol=1e-5)
