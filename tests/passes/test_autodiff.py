"""Derivatives of any order in both modes, against PyTorch and differences; named backward ops; errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import optree
import pytest
import torch
from smelt import ops
from smelt.backend.interp.graph import interpret
from smelt.ir.errors import ArgumentError, DerivativeError, ShapeError
from smelt.ir.graph import Graph, Value
from smelt.ir.symbolic import Symbol
from smelt.ir.types import TensorType, dtype
from smelt.passes.autodiff.vjp import call_rule, rule_parameters
from smelt.transforms import grad, jvp, value_and_grad, vjp

functional = torch.nn.functional


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of traced tensors on arrays: the one place that knows how programs are evaluated here."""
    leaves, structure = optree.tree_flatten(arguments)
    arrays = [np.asarray(leaf) for leaf in leaves]
    params = [
        Value(TensorType(dtype(array.dtype), array.shape), name=f"x{position}") for position, array in enumerate(arrays)
    ]
    results, result_structure = optree.tree_flatten(function(*optree.tree_unflatten(structure, params)))
    with np.errstate(all="ignore"):
        values = interpret(Graph.build("test", params, results), arrays)
    return optree.tree_unflatten(result_structure, values)


def traced(type: str, *shape: Any) -> Value:
    return Value(TensorType(dtype(type), shape), name="x")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + 7 * sum(shape) + len(shape)).normal(size=shape)


def close(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().numpy(force=True)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def tensors(arrays: tuple) -> tuple:
    return tuple(torch.tensor(array) for array in arrays)


def finite_difference(function: Callable[..., Any], arrays: tuple, tangents: tuple, step: float = 1e-6) -> Any:
    """The change of a function along tangents, by central differences in f64."""

    def moved(distance: float) -> Any:
        # Arithmetic on 0-dim arrays gives NumPy scalars, not arrays.
        return run(function, *(np.asarray(x + distance * t) for x, t in zip(arrays, tangents, strict=True)))

    return (moved(step) - moved(-step)) / (2 * step)


def wave(x: Any, library: Any = ops) -> Any:
    return library.sin(x) * library.exp(x) / (1.0 + x * x)


def energy(x: Any, w: Any) -> Any:
    """A scalar of a small network, with broadcasting, reuse, views and reductions."""
    hidden = (x @ w).tanh()
    return (hidden * x.sum(1, keepdim=True)).exp().sum() + (x * x).amax(1).sum()


def torch_energy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = (x @ w).tanh()
    return (hidden * x.sum(1, keepdim=True)).exp().sum() + (x * x).amax(1).sum()


# Orders and modes


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_any_order(order: int) -> None:
    ours, theirs = wave, lambda x: wave(x, torch)
    for _ in range(order):
        ours, theirs = grad(ours), torch.func.grad(theirs)
    point = np.array(0.7)
    close(run(ours, point), theirs(torch.tensor(0.7, dtype=torch.float64)))
    if order <= 3:
        below = wave
        for _ in range(order - 1):
            below = grad(below)
        close(run(ours, point), finite_difference(below, (point,), (np.array(1.0),)), 1e-7)


def test_reverse_mode() -> None:
    arrays = (random(3, 4), random(4, 5))
    for ours, theirs in zip(
        run(grad(energy, (0, 1)), *arrays),
        torch.func.grad(torch_energy, (0, 1))(*tensors(arrays)),
        strict=True,
    ):
        close(ours, theirs)


def test_forward_mode() -> None:
    arrays, tangents = (random(3, 4), random(4, 5)), (random(3, 4, seed=1), random(4, 5, seed=1))
    value, change = run(lambda *given: jvp(energy, given[:2], given[2:]), *arrays, *tangents)
    expected_value, expected = torch.func.jvp(torch_energy, tensors(arrays), tensors(tangents))
    close(value, expected_value)
    close(change, expected)
    close(change, finite_difference(energy, arrays, tangents), 1e-6)


def test_forward_over_reverse() -> None:
    arrays, tangents = (random(3, 4), random(4, 5)), (random(3, 4, seed=1), random(4, 5, seed=1))
    _value, change = run(lambda *given: jvp(grad(energy), given[:2], given[2:]), *arrays, *tangents)
    close(change, torch.func.jvp(torch.func.grad(torch_energy), tensors(arrays), tensors(tangents))[1])
    close(change, finite_difference(grad(energy), arrays, tangents), 1e-5)


def test_reverse_over_forward() -> None:
    arrays, tangents = (random(3, 4), random(4, 5)), (random(3, 4, seed=1), random(4, 5, seed=1))

    def slope(x: Value, w: Value, *along: Value) -> Any:
        return jvp(energy, (x, w), along)[1]

    def torch_slope(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(torch_energy, (x, w), tensors(tangents))[1]

    _value, (ours,) = run(
        lambda x, w, v, u, seed: (lambda out: (out[0], out[1](seed)))(vjp(lambda x: slope(x, w, v, u), x)),
        *arrays,
        *tangents,
        np.array(2.0),
    )
    close(ours, 2.0 * torch.func.grad(torch_slope)(*tensors(arrays)))


def test_hessian_is_symmetric() -> None:
    x, u, v = random(4), random(4, seed=1), random(4, seed=2)

    def function(x: Value) -> Any:
        return ops.logsumexp(x * x.sin(), 0)

    def product(x: Value, direction: Value) -> Any:
        return jvp(grad(function), (x,), (direction,))[1]

    left, right = run(lambda x, u, v: ((product(x, u) * v).sum(), (product(x, v) * u).sum()), x, u, v)
    close(left, right)


def test_perturbations_do_not_mix() -> None:
    # d/dx (x * d/dy (x + y)) = 1: an inner derivative must not see the outer variable.
    result = run(grad(lambda x: x * grad(lambda y: x + y)(np.float64(1.0) * x)), np.array(3.0))
    close(result, 1.0)


def test_same_value_in_two_places() -> None:
    close(run(grad(lambda x: x * x), np.array(3.0)), 6.0)
    close(run(lambda x, t: jvp(lambda x: x * x, (x,), (t,))[1], np.array(3.0), np.array(2.0)), 12.0)
    close(run(grad(lambda x: ops.cat([x, x, 2.0 * x]).sum()), random(3)), np.full(3, 4.0))


# What is passed and returned


def test_nested_arguments_and_aux() -> None:
    params = {"w": random(3, 2), "b": [random(2)]}
    x = random(4, 3)

    def loss(params: dict, x: Value) -> tuple:
        out = x @ params["w"] + params["b"][0]
        return (out * out).mean(), {"out": out}

    (value, aux), gradients = run(value_and_grad(loss, has_aux=True), params, x)
    out = x @ params["w"] + params["b"][0]
    close(value, (out * out).mean())
    close(aux["out"], out)
    close(gradients["w"], x.T @ out * (2 / out.size))
    close(gradients["b"][0], out.sum(0) * (2 / out.size))
    only, aux = run(grad(loss, has_aux=True), params, x)
    close(only["w"], gradients["w"])
    close(aux["out"], out)


def test_negative_argnums() -> None:
    close(run(grad(lambda a, b: (a * b).sum(), -1), random(3), random(3, seed=1)), random(3))


def test_several_results_and_unused_ones() -> None:
    x = random(3)

    def function(x: Value) -> dict:
        return {"sin": x.sin(), "square": x * x}

    def gradients(x: Value, seed: Value) -> Any:
        _result, pull = vjp(function, x)
        return pull({"sin": seed, "square": seed})[0]

    seed = random(3, seed=1)
    close(run(gradients, x, seed), seed * np.cos(x) + 2 * x * seed)
    # var_mean with only one of its results used.
    close(run(grad(lambda x: ops.layer_norm(x, (3,)).sum() + x.sum()), x), np.ones(3), 1e-7)


def test_independent_argument_is_zero() -> None:
    close(run(grad(lambda x, y: x.sum(), 1), random(3), random(2, 2)), np.zeros((2, 2)))


def test_integers_on_the_way_stop_the_walk() -> None:
    x = random(5)
    close(run(grad(lambda x: (x * x.argmax().to("f64")).sum()), x), np.full(5, float(x.argmax())))
    close(run(grad(lambda x: ops.where(x > 0, x, 0.0).sum()), x), (x > 0).astype(float))


def test_the_angle_of_the_origin_has_gradient_zero() -> None:
    y, x = np.array([0.0, 1.0, 0.0, -2.0, 1e-200]), np.array([0.0, 0.0, -1.0, 3.0, 1e-200])
    expected = [torch.tensor(item, requires_grad=True) for item in (y, x)]
    torch.atan2(*expected).sum().backward()
    found = grad(lambda y, x: ops.atan2(y, x).sum(), argnums=(0, 1))(y, x)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other.grad.numpy(), rtol=1e-15)
    second = grad(lambda y: grad(lambda y: ops.atan2(y, x).sum())(y).sum())(y)
    assert np.isfinite(second).all()


def test_detach() -> None:
    x = random(3)
    close(run(grad(lambda x: (x * x.detach()).sum()), x), x)
    close(run(lambda x, t: jvp(lambda x: x * x.detach(), (x,), (t,))[1], x, np.ones(3)), x)


def test_gradients_fit_their_operands() -> None:
    x, y = random(3, 4).astype(np.float32), random(1, seed=1)
    by_x, by_y = run(grad(lambda x, y: (x * y).sum(), (0, 1)), x, y)
    assert by_x.dtype == np.float32 and by_x.shape == (3, 4)
    assert by_y.dtype == np.float64 and by_y.shape == (1,)
    close(by_y, np.array([x.sum(dtype=np.float64)]), 1e-6)
    leading = run(grad(lambda x, y: (x * y).sum(), 1), random(2, 3, 4), random(3, 1, seed=1))
    close(leading, random(2, 3, 4).sum((0, 2))[:, None])


def test_complex() -> None:
    z = random(3) + 1j * random(3, seed=1)

    def function(z: Any) -> Any:
        return (z * z * (2 - 1j)).abs().sum()

    close(run(grad(function), z), torch.func.grad(function)(torch.tensor(z)))
    tangent = random(3, seed=2) + 1j * random(3, seed=3)
    close(
        run(lambda z, t: jvp(lambda z: (z * z).exp(), (z,), (t,))[1], z, tangent),
        torch.func.jvp(lambda z: (z * z).exp(), (torch.tensor(z),), (torch.tensor(tangent),))[1],
    )
    # A real argument of a complex function has a real gradient.
    real = run(grad(lambda x: (x * (1 + 2j)).abs().sum()), random(3))
    assert real.dtype == np.float64
    close(real, np.sqrt(5) * np.sign(random(3)))


def test_symbolic_sizes() -> None:
    rows = Symbol("N", 2).expr()
    param = traced("f64", rows, 4)
    gradient = grad(lambda x: ops.mse_loss(ops.layer_norm(x, (4,)), x))(param)
    assert gradient.shape == (rows, 4)
    graph = Graph.build("symbolic", [param], [gradient])
    x = random(3, 4)

    def reference(x: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(functional.layer_norm(x, (4,)), x)

    close(interpret(graph, [x])[0], torch.func.grad(reference)(torch.tensor(x)))


def test_ops_are_located_at_the_line_of_the_forward_op() -> None:
    param = traced("f64", 3)

    def function(x: Value) -> Any:
        return (x * x).sum()

    graph = Graph.build("located", [param], [grad(function)(param)])
    lines = {op.loc.line for op in graph.ops if op.name in ("mul", "expand")}
    assert lines == {function.__code__.co_firstlineno + 1}


def test_on_arrays() -> None:
    traces = []

    def loss(params: dict, scale: Any) -> Any:
        traces.append(1)
        return (params["w"] * params["w"] * scale).sum()

    params = {"w": random(3)}
    for factor in (2.0, 3.0):
        close(grad(loss)(params, np.array(factor))["w"], 2 * factor * params["w"])
    assert len(traces) == 1, "the second call must not trace again"
    result, pull = vjp(lambda x: (x.sin(), x.sum()), random(3))
    close(result[0], np.sin(random(3)))
    close(pull((np.ones(3), np.array(2.0)))[0], np.cos(random(3)) + 2)
    value, change = jvp(lambda x, y: x * y, (random(3), random(3, seed=1)), (np.ones(3), np.zeros(3)))
    close(value, random(3) * random(3, seed=1))
    close(change, random(3, seed=1))


# Every op with a rule of its own, against PyTorch: gradient, forward derivative, gradient of the gradient

MASK = np.array([[True, False, True], [False, False, False], [True, True, True]])
CLASSES = np.array([2, -100, 0])


def weighted_cross_entropy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """PyTorch has no derivative by the weights, so this spells the loss out."""
    rows = torch.tensor([0, 2])
    classes = torch.tensor(CLASSES)[rows]
    return -(w[classes] * torch.log_softmax(x, 1)[rows, classes]).sum() / w[classes].sum()


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple]] = {
    "softmax": (lambda x: ops.softmax(x, 1), lambda x: torch.softmax(x, 1), (random(3, 4),)),
    "log_softmax": (lambda x: ops.log_softmax(x, 0), lambda x: torch.log_softmax(x, 0), (random(3, 4),)),
    "layer_norm": (
        lambda x, w, b: ops.layer_norm(x, (4,), w, b),
        lambda x, w, b: functional.layer_norm(x, (4,), w, b),
        (random(3, 4), random(4), random(4, seed=1)),
    ),
    "rms_norm": (
        lambda x, w: ops.rms_norm(x, (4,), w, 1e-5),
        lambda x, w: functional.rms_norm(x, (4,), w, 1e-5),
        (random(3, 4), random(4)),
    ),
    "group_norm": (
        lambda x, w, b: ops.group_norm(x, 2, w, b),
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        (random(2, 4, 3), random(4), random(4, seed=1)),
    ),
    "instance_norm": (
        lambda x, w, b: ops.instance_norm(x, w, b),
        lambda x, w, b: functional.instance_norm(x, None, None, w, b),
        (random(2, 3, 5), random(3), random(3, seed=1)),
    ),
    "batch_norm": (
        lambda x, w, b: ops.batch_norm(x, w, b, None, None, True, 0.1, 1e-5),
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, True, 0.1, 1e-5),
        (random(4, 3, 2), random(3), random(3, seed=1)),
    ),
    "batch_norm by running statistics": (
        lambda x, w, b: ops.batch_norm(x, w, b, np.arange(3.0), np.arange(1.0, 4.0), False, 0.1, 1e-5),
        lambda x, w, b: functional.batch_norm(
            x, torch.arange(3.0).double(), torch.arange(1.0, 4.0).double(), w, b, False, 0.1, 1e-5
        ),
        (random(4, 3, 2), random(3), random(3, seed=1)),
    ),
    "normalize": (lambda x: ops.normalize(x), lambda x: functional.normalize(x), (random(3, 4),)),
    "mse_loss": (ops.mse_loss, functional.mse_loss, (random(3, 4), random(3, 4, seed=1))),
    "smooth_l1_loss": (
        lambda x, y: ops.smooth_l1_loss(x, y, "sum", 0.7),
        lambda x, y: functional.smooth_l1_loss(x, y, reduction="sum", beta=0.7),
        (random(3, 4), random(3, 4, seed=1)),
    ),
    "huber_loss": (
        lambda x, y: ops.huber_loss(x, y, "none", 0.7),
        lambda x, y: functional.huber_loss(x, y, reduction="none", delta=0.7),
        (random(3, 4), random(3, 4, seed=1)),
    ),
    "binary_cross_entropy": (
        lambda x: ops.binary_cross_entropy(ops.sigmoid(x), np.full((3, 4), 0.3)),
        lambda x: functional.binary_cross_entropy(torch.sigmoid(x), torch.full((3, 4), 0.3, dtype=torch.float64)),
        (random(3, 4),),
    ),
    "binary_cross_entropy_with_logits": (
        ops.binary_cross_entropy_with_logits,
        functional.binary_cross_entropy_with_logits,
        (random(3, 4), abs(random(3, 4, seed=1))),
    ),
    "soft_margin_loss": (
        lambda x: ops.soft_margin_loss(x, np.sign(random(3, 4, seed=1))),
        lambda x: functional.soft_margin_loss(x, torch.tensor(np.sign(random(3, 4, seed=1)))),
        (random(3, 4),),
    ),
    "kl_div": (
        lambda x, y: ops.kl_div(x, y, "batchmean"),
        lambda x, y: functional.kl_div(x, y, reduction="batchmean"),
        (random(3, 4), abs(random(3, 4, seed=1))),
    ),
    "cross_entropy": (
        lambda x: ops.cross_entropy(x, CLASSES),
        lambda x: functional.cross_entropy(x, torch.tensor(CLASSES)),
        (random(3, 4),),
    ),
    "cross_entropy with weights and smoothing": (
        lambda x: ops.cross_entropy(x, CLASSES, np.arange(1.0, 5.0), label_smoothing=0.1),
        lambda x: functional.cross_entropy(
            x, torch.tensor(CLASSES), torch.arange(1.0, 5.0).double(), label_smoothing=0.1
        ),
        (random(3, 4),),
    ),
    "cross_entropy by its weights": (
        lambda x, w: ops.cross_entropy(x, CLASSES, w),
        weighted_cross_entropy,
        (random(3, 4), abs(random(4))),
    ),
    "cross_entropy of probabilities": (
        lambda x, y: ops.cross_entropy(x, y, reduction="none"),
        lambda x, y: functional.cross_entropy(x, y, reduction="none"),
        (random(3, 4), abs(random(3, 4, seed=1))),
    ),
    "attention": (
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        (random(2, 3, 4), random(2, 3, 4, seed=1), random(2, 3, 4, seed=2)),
    ),
    "attention with a row that is masked everywhere": (
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, MASK, scale=0.4),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, torch.tensor(MASK), scale=0.4),
        (random(2, 3, 4), random(2, 3, 4, seed=1), random(2, 3, 4, seed=2)),
    ),
    "attention with an added mask": (
        lambda q, k, v, m: ops.scaled_dot_product_attention(q, k, v, m),
        lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, m),
        (random(2, 3, 4), random(2, 3, 4, seed=1), random(2, 3, 4, seed=2), random(3, 3)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    ours, theirs, arrays = CASES[name]
    positions = tuple(range(len(arrays)))
    leaves = tuple(tensor.requires_grad_() for tensor in tensors(arrays))
    expected = theirs(*leaves)
    close(run(ours, *arrays), expected)
    seed = np.random.default_rng(5).normal(size=tuple(expected.shape))

    def weighed(*given: Value) -> Any:
        return (ours(*given) * seed).sum()

    gradients = run(grad(weighed, positions), *arrays)
    expected_gradients = torch.autograd.grad((expected * torch.tensor(seed)).sum(), leaves, create_graph=True)
    for actual, wanted in zip(gradients, expected_gradients, strict=True):
        close(actual, wanted)

    tangents = tuple(random(*array.shape, seed=9) for array in arrays)
    count = len(arrays)
    _value, change = run(lambda *given: jvp(ours, given[:count], given[count:]), *arrays, *tangents)
    inner = sum(
        (gradient * torch.tensor(tangent)).sum() for gradient, tangent in zip(expected_gradients, tangents, strict=True)
    )
    close((change * seed).sum(), inner)

    def along(*given: Value) -> Any:
        first = grad(weighed, positions)(*given)
        return sum((gradient * tangent).sum() for gradient, tangent in zip(first, tangents, strict=True))

    second = torch.autograd.grad(inner, leaves, allow_unused=True)
    for actual, wanted in zip(run(grad(along, positions), *arrays), second, strict=True):
        close(actual, np.zeros_like(actual) if wanted is None else wanted, 1e-8)


# The named backward ops against aten's, on the same arguments


def backward_cases() -> dict[str, tuple]:
    x, g = random(3, 4), random(3, 4, seed=1)
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    image, upstream = random(2, 4, 3, seed=2), random(2, 4, 3, seed=3)
    weight, per_group = random(4), random(2, 2)
    both = (True, True, True)
    one = np.array(0.7)
    q, k, v = (random(2, 2, 3, 4, seed=seed) for seed in range(3))
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*tensors((q, k, v)))
    out, logarithm = (item.numpy() for item in flash)
    return {
        "_softmax_backward_data": (g, abs(x), 1, "f64"),
        "_log_softmax_backward_data": (g, x, 0, "f64"),
        "native_layer_norm_backward": (g, x, (4,), mean, rstd, weight, weight, both),
        "native_group_norm_backward": (upstream, image, per_group, abs(per_group), weight, 2, 4, 3, 2, both),
        "native_batch_norm_backward": (
            upstream, image, weight, None, None, random(4, seed=4), abs(random(4, seed=5)), True, 1e-5, both,
        ),
        "mse_loss_backward": (one, x, g, 1),
        "smooth_l1_loss_backward": (g, x, abs(g), 0, 0.5),
        "huber_loss_backward": (one, x, g, 2, 0.5),
        "binary_cross_entropy_backward": (one, abs(x) / 9, abs(g) / 9, abs(x), 1),
        "soft_margin_loss_backward": (one, x, np.sign(g), 1),
        "nll_loss_backward": (one, x, CLASSES, weight, 1, -100, np.array(1.5)),
        "nll_loss2d_backward": (
            one, random(2, 4, 3, 1), np.full((2, 3, 1), 2), weight, 1, -100, np.array(1.5),
        ),
        "_scaled_dot_product_flash_attention_for_cpu_backward": (q, q, k, v, out, logarithm, 0.0, False),
        "_weight_norm_interface_backward": (g, x, random(3, 1), np.sqrt((x * x).sum(1, keepdims=True)), 0),
    }  # fmt: skip


BACKWARD = backward_cases()


@pytest.mark.parametrize("name", BACKWARD)
def test_named_backward(name: str) -> None:
    arguments = BACKWARD[name]
    places = [position for position, item in enumerate(arguments) if isinstance(item, np.ndarray)]

    def call(*arrays: Value) -> Any:
        filled = list(arguments)
        for position, array in zip(places, arrays, strict=True):
            filled[position] = array
        return getattr(ops, name)(*filled)

    given = [torch.tensor(item) if isinstance(item, np.ndarray) else item for item in arguments]
    expected = getattr(torch.ops.aten, name)(*(torch.float64 if item == "f64" else item for item in given))
    actual = run(call, *(arguments[position] for position in places))
    if isinstance(expected, torch.Tensor):
        actual, expected = (actual,), (expected,)
    for one, other in zip(actual, expected, strict=True):
        close(one, other)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_half_statistics_are_computed_in_f32(kind: str) -> None:
    element = dtype(kind).numpy
    x = (random(4, 64) + 50).astype(element)
    exact = torch.layer_norm(torch.tensor(x.astype(np.float64)), (64,)).numpy()
    result = run(lambda x: ops.layer_norm(x, (64,)), x)
    assert result.dtype == element
    # Rounded once: a unit in the last place of values up to 4.
    assert abs(result.astype(np.float64) - exact).max() <= 4 * float(2.0 ** (-11 if kind == "f16" else -8))


# Errors


def test_result_must_be_scalar() -> None:
    with pytest.raises(DerivativeError, match=r"the result is f64\[3\], expected a scalar"):
        grad(lambda x: x * 2)(traced("f64", 3))
    with pytest.raises(DerivativeError, match="must return one scalar, got tuple"):
        grad(lambda x: (x, x))(traced("f64"))


def test_integer_argument() -> None:
    with pytest.raises(DerivativeError, match=r"argument 0 is i64\[3\]: only floats"):
        grad(lambda x: x.sum())(traced("i64", 3))


def test_argnums_out_of_range() -> None:
    with pytest.raises(ArgumentError, match="argnums has 2, the call has 1 positional"):
        grad(lambda x: x.sum(), 2)(traced("f64", 3))


def test_tangents_must_fit() -> None:
    x = traced("f64", 3)
    with pytest.raises(ShapeError, match=r"tangent 0 has shape \[4\], expected \[3\]"):
        jvp(lambda x: x, (x,), (traced("f64", 4),))
    with pytest.raises(ArgumentError, match="the tangents are nested as"):
        jvp(lambda x: x, (x,), (x, x))
    with pytest.raises(ShapeError, match=r"cotangent 0 has shape \[\], expected \[3\]"):
        vjp(lambda x: x, x)[1](1.0)


def test_op_without_derivative() -> None:
    x = traced("f64", 3)
    with pytest.raises(DerivativeError, match="no derivative of nextafter") as caught:
        grad(lambda x: ops.nextafter(x, x + 1.0).sum())(x)
    assert caught.value.location is not None and "test_autodiff.py" in str(caught.value)
    # Only if a derivative would have to pass it.
    close(
        run(grad(lambda x, y: (x * ops.nextafter(y, y)).sum()), random(3), random(3, seed=1)),
        random(3, seed=1),
    )


class ByScale:
    """A rule that is an object."""

    def __call__(self, grad: Any, result: Any) -> Any:
        return grad * result


@pytest.mark.parametrize(
    "rule", [ByScale(), ByScale().__call__, partial(lambda factor, grad, result: grad * result, 1)]
)
def test_a_rule_is_anything_that_can_be_called(rule: Any) -> None:
    x = Value(TensorType(dtype("float32"), (3,)))
    op = ops.exp(x).op
    found = call_rule(rule, op, grads=[x])
    assert found.op.name == "mul" and set(found.op.operands) == {x, op.results[0]}
    assert rule_parameters(rule) == ("grad", "result")
