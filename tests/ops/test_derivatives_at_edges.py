"""Derivatives at edges: every op against PyTorch (parity/edges.py), and single ops where one once was wrong."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
import torch
from parity.edges import run
from parity.gaps import INTERNAL
from smelt import ops
from smelt.ops.define import REGISTRY
from support import OWN_OPS
from torch.autograd import forward_ad

pytestmark = pytest.mark.filterwarnings("ignore")

OPS = sorted(name for name, op in OWN_OPS.items() if op.differentiable and name not in INTERNAL)
SPREAD = 24  # one edge in so many, unless --long is given
INFINITE = math.inf


# "op sample edge: mode" patterns, and why PyTorch is not followed there.
FORWARD = "PyTorch's other derivatives take another side at the kink than its gradient, which smelt follows in all"
POLE = "beside a pole or outside of the domain, where PyTorch has a large or a leftover number"
INFINITY = "infinities that cancel, in another order"
TIES = "PyTorch's order of equal elements is open; in smelt they keep their order"
UNDERFLOW = "PyTorch's quotients of the smallest numbers over- or underflow"
CLAMPED = (
    "PyTorch's gradient by target does not know of the limit of the logarithms, nor does its second derivative of that "
    "of the divisor"
)
KNOWN = {
    "_prelu_kernel * -0.0: *": FORWARD,
    "_prelu_kernel * 0.0: *": FORWARD,
    "_prelu_kernel_backward * 0.0: *": FORWARD,
    "_prelu_kernel_backward * -0.0: *": FORWARD,
    "prelu * -0.0: *": FORWARD,
    "prelu * 0.0: *": FORWARD,
    "fmax *: forward, *": FORWARD,
    "digamma * -*: *": POLE,
    "lgamma * -*: * over *": POLE,
    "mvlgamma * -*: *": POLE,
    "polygamma 0 * -*: *": POLE,
    "special_entr * -*: * over *": POLE,
    "xlogy *: *": POLE,
    "binary_cross_entropy * *.0: *": CLAMPED,
    "binary_cross_entropy * 1e-200: *": CLAMPED,
    "binary_cross_entropy_backward 0 *.0: *": CLAMPED,
    "_weight_norm_interface 0 *: * over *": "PyTorch takes the norm for a constant",
    "embedding_dense_backward 2 *: reverse, *": "PyTorch does not divide by how often an index occurs",
    "copysign * 1e-200: * over *": "PyTorch divides by self, which changes nothing",
    "logcumsumexp * *800.0: forward, *": UNDERFLOW,
    "cumprod * 1e-200: * over *": UNDERFLOW,
    "prod * 1e-200: * over *": UNDERFLOW,
    "running_product * 1e-200: * over *": UNDERFLOW,
    "var 4 *: * over *": "of one element: 0 / 0",
    "msort * all *: *": TIES,
    "topk * all *: *": TIES,
    "* inf: *": INFINITY,
    "* -inf: *": INFINITY,
}


@pytest.mark.parametrize("name", OPS)
def test_edges(name: str, request: pytest.FixtureRequest) -> None:
    spread = 1 if request.config.getoption("--long") else SPREAD
    wrong = []
    for edge, message in run(REGISTRY[name], spread):
        what = f"{name} {edge.name}: {message}"
        if not any(fnmatch.fnmatchcase(what, pattern) for pattern in KNOWN):
            wrong.append(what)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("pattern", [pattern for pattern in KNOWN if not pattern.startswith("*")])
def test_every_difference_remains(pattern: str) -> None:
    """A pattern that explains nothing any more would hide the next defect."""
    name, place = pattern.split()[0], pattern.split(":")[0]
    found = (f"{name} {edge.name}: {message}" for edge, message in run(REGISTRY[name], only=place))
    assert any(fnmatch.fnmatchcase(what, pattern) for what in found)


def gradients(function: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """In reverse mode, by all arrays, of the sum of the results."""
    found = smelt.grad(lambda *given: function(*given).sum(), tuple(range(len(arrays))))(*arrays)
    return [np.asarray(item) for item in found]


def changes(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """In forward mode, along ones."""
    return np.asarray(smelt.jvp(function, arrays, tuple(np.ones_like(item) for item in arrays))[1])


def second(function: Callable[..., Any], array: np.ndarray) -> list[np.ndarray]:
    """The derivative of the gradient along ones, by both modes."""

    def slope(x: Any) -> Any:
        return smelt.grad(lambda x: function(x).sum())(x)

    reverse = smelt.grad(lambda x: slope(x).sum())(array)
    return [np.asarray(reverse), np.asarray(smelt.jvp(slope, (array,), (np.ones_like(array),))[1])]


@pytest.mark.parametrize("order", [1.2, 1.5, 1.9, 0.5, 3.0, 2.5])
def test_norms_at_zero(order: float) -> None:
    """Zero, not NaN: of norms, distances and what is scaled by them."""
    none, some = np.zeros(3), np.array([1.0, 0.0, -2.0])
    rows = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, -2.0]])
    for x in (none, some):
        point = torch.from_numpy(x.copy()).requires_grad_()
        torch.linalg.vector_norm(point, order).backward()
        (got,) = gradients(lambda x: ops.linalg_vector_norm(x, order), x)
        np.testing.assert_allclose(got, point.grad.numpy())
        assert np.isfinite(changes(lambda x: ops.linalg_vector_norm(x, order), x))
        assert all(np.isfinite(item).all() for item in second(lambda x: ops.linalg_vector_norm(x, order), x))
        assert all(np.isfinite(item).all() for item in gradients(lambda a, b: ops.dist(a, b, order), x, x))
    assert np.isfinite(gradients(lambda x: ops.renorm(x, order, 0, 1.0), rows)[0]).all()
    assert np.isfinite(changes(lambda a, b: ops.cdist(a, b, order), rows, rows)).all()
    for found in second(lambda x: ops.cdist(x, rows + 0.0, order), rows):
        assert np.isfinite(found).all()


def test_index_fill_with_repeated_indices() -> None:
    x, index, value = np.arange(12.0).reshape(3, 4), np.array([1, 1, 3, 1]), np.array(5.0)
    for shape, dim in (((3, 4), 1), ((), 0)):
        point = torch.from_numpy(x if shape else np.array(2.0)).clone().requires_grad_()
        fill = torch.from_numpy(value.copy()).requires_grad_()
        places = index if shape else np.array([0, 0])
        point.index_fill(dim, torch.from_numpy(places), fill).sum().backward()
        array = x if shape else np.array(2.0)
        got = gradients(lambda x, v: ops.index_fill(x, dim, places, v), array, value)  # noqa: B023
        np.testing.assert_array_equal(got[0], point.grad.numpy())
        np.testing.assert_array_equal(got[1], fill.grad.numpy())
        assert (changes(lambda x, v: ops.index_fill(x, dim, places, v), array, value) == 1).all()  # noqa: B023


@pytest.mark.parametrize("name", ["elu", "selu", "celu"])
def test_second_derivatives_of_elus(name: str) -> None:
    x = np.array([-1000.0, -2.0, 0.0, 2.0, 800.0, 1e5])
    point = torch.from_numpy(x.copy()).requires_grad_()
    (first,) = torch.autograd.grad(getattr(torch.nn.functional, name)(point).sum(), point, create_graph=True)
    (wanted,) = torch.autograd.grad(first.sum(), point)
    for got in second(getattr(ops, name), x):
        np.testing.assert_allclose(got, wanted.numpy())
    inner = smelt.grad(lambda x: smelt.jvp(getattr(ops, name), (x,), (np.ones(6),))[1].sum())(x)
    np.testing.assert_allclose(inner, wanted.numpy())


def test_the_angle_of_zero() -> None:
    z = np.array([0.0, 1e-200 + 1e-200j, 3 - 4j, 1e200j])
    point = torch.tensor([0.0, 3 - 4j], dtype=torch.complex128, requires_grad=True)
    torch.angle(point).sum().backward()
    (got,) = gradients(ops.angle, z)
    np.testing.assert_allclose(got[[0, 2]], point.grad.numpy())
    assert np.isfinite(got).all()
    np.testing.assert_allclose(changes(ops.angle, z), [0, -0.5e200, 0.16, -1e-200])


def test_hardswish_backward_of_infinities() -> None:
    """The part between the kinks, which is not used there, must not make NaN of 0 * inf."""
    x = np.array([-INFINITE, -3.0, -1.0, 3.0, INFINITE])
    found = gradients(lambda g: ops.hardswish_backward(g, x), np.ones(5))[0]
    np.testing.assert_allclose(found, [0, 0, 1 / 6, 1, 1])


@pytest.mark.parametrize("rank", [2, 3])
def test_adaptive_max_pools_take_the_first_of_ties(rank: int) -> None:
    x = np.random.default_rng(0).integers(0, 2, (2, *((5, 7, 6)[:rank]))).astype(np.float64)
    sizes = (3, 4, 4)[:rank]
    pool = {2: torch.nn.functional.adaptive_max_pool2d, 3: torch.nn.functional.adaptive_max_pool3d}[rank]
    point = torch.from_numpy(x).requires_grad_()
    values, indices = pool(point, sizes, return_indices=True)
    values.sum().backward()
    ours = getattr(ops, f"adaptive_max_pool{rank}d")
    np.testing.assert_array_equal(smelt.jit(lambda x: ours(x, sizes)[1])(x), indices.numpy())
    np.testing.assert_array_equal(gradients(lambda x: ours(x, sizes)[0], x)[0], point.grad.numpy())


def test_forward_mode_at_the_limits_of_domains() -> None:
    """What reverse mode has there: PyTorch's forward mode is NaN, which reverse mode is not."""
    x, target = np.array([0.0, 1.0, 0.5, 0.25]), np.array([0.0, 1.0, 1.0, 0.0])
    for function in (
        lambda x: ops.binary_cross_entropy(x, target, None, "none"),
        ops.special_entr,
        ops.logit,
        lambda x: ops.logit(x, 0.25),
    ):
        np.testing.assert_array_equal(changes(function, x), gradients(function, x)[0])
    weight = np.array([1.0, 2.0, 3.0, 4.0])
    forward = changes(lambda x, t, w: ops.binary_cross_entropy(x, t, w, "mean"), x, target, weight)
    reverse = gradients(lambda x, t, w: ops.binary_cross_entropy(x, t, w, "mean"), x, target, weight)
    np.testing.assert_allclose(forward, sum(item.sum() for item in reverse))


def test_logcumsumexp_behind_nothing() -> None:
    x = np.array([-INFINITE, -INFINITE, 0.0, 1.0])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.from_numpy(x), torch.ones(4, dtype=torch.float64))
        wanted = forward_ad.unpack_dual(torch.logcumsumexp(dual, 0)).tangent
    np.testing.assert_allclose(changes(lambda x: ops.logcumsumexp(x, 0), x), wanted.numpy())
    share = 1 / (1 + math.e)
    np.testing.assert_allclose(gradients(lambda x: ops.logcumsumexp(x, 0), x)[0], [0, 0, 1 + share, 1 - share])
    assert all(np.isfinite(item).all() for item in second(lambda x: ops.logcumsumexp(x, 0), x))


def test_renorm_without_a_bound() -> None:
    """The derivative of the scale is not multiplied by an infinite bound."""
    for found in gradients(lambda x: ops.renorm(x, 0.5, -1, math.inf), np.full((1, 5, 1), 3.0)):
        np.testing.assert_array_equal(found, np.ones((1, 5, 1)))


def test_tangents_of_quotients_at_a_pole() -> None:
    x, y = np.array([-0.3, 2.0]), np.array([0.0, 0.0])
    slopes = np.array([1.0, -1.0]), np.array([0.5, 0.25])
    wanted = torch.func.jvp(torch.div, tuple(map(torch.from_numpy, (x, y))), tuple(map(torch.from_numpy, slopes)))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(smelt.jvp(lambda a, b: a / b, (x, y), slopes)[1], wanted[1].numpy())


@pytest.mark.parametrize("element", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_counts_beyond_narrow_types(element: Any) -> None:
    """f16 counts to 2048 and bf16 to 256, one at a time; the largest f16 is 65504."""
    count = 70001
    x, none = np.ones(count, element), np.zeros(count, np.int64)
    share = np.full(count, 1 / count).astype(element)

    def scattered(x: Any) -> Any:
        return ops.scatter_reduce(ops.zeros((1,), dtype=x.dtype), 0, none, x, "amax")

    for function in (ops.amax, lambda x: ops.linalg_vector_norm(x, INFINITE), ops.mean, scattered):
        np.testing.assert_array_equal(gradients(function, x)[0], share)
        # A scatter adds up in its own type, as in PyTorch.
        assert function is scattered or changes(function, x) == 1
    first = np.eye(count, 1).astype(element)
    by_weight = smelt.jit(lambda x: ops.embedding_dense_backward(x, none, 2, -1, True))(first)
    np.testing.assert_array_equal(by_weight[:, 0], [share[0], 0])


def test_forward_mode_of_complex_beside_infinity() -> None:
    infinite = np.full(3, INFINITE)
    np.testing.assert_array_equal(changes(lambda y: ops.complex(infinite, y), np.ones(3)), np.full(3, 1j))
    np.testing.assert_array_equal(changes(lambda x: ops.complex(x, infinite), np.ones(3)), np.full(3, 1 + 0j))


def test_gradients_that_are_nan_stay_nan() -> None:
    """Not zero, which the logarithms of their positive and negative parts would make of them."""
    x, seed = np.arange(4.0), np.array([1.0, np.nan, 1.0, 1.0])
    (got,) = gradients(lambda x: ops.logcumsumexp(x, 0) * seed, x)
    assert np.isnan(got).tolist() == [True, True, False, False]
    _, change = smelt.jvp(lambda x: ops.logcumsumexp(x, 0), (x,), (seed,))
    assert np.isnan(change).tolist() == [False, True, True, True]


@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
@pytest.mark.parametrize("element", ["uint8", "int8", "int16"])
def test_losses_of_more_classes_than_the_type_of_targets_has(name: str, element: str) -> None:
    loss = getattr(ops, name)
    x = np.random.default_rng(0).standard_normal((4, 600))
    target = np.array([44, 100, 12, 7], element)
    for settings in ({}, {"ignore_index": 100}, {"ignore_index": 1000}, {"reduction": "sum"}):
        wanted, found = (
            [np.asarray(smelt.jit(lambda x, t: loss(x, t, **settings))(x, item))]  # noqa: B023
            + gradients(lambda x: loss(x, item, **settings), x)  # noqa: B023
            for item in (target.astype(np.int64), target)
        )
        for got, known in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, known, rtol=1e-14)


@pytest.mark.parametrize("name", ["asin", "acos", "acosh", "asinh", "atan", "atanh", "log", "log1p", "sqrt", "rsqrt"])
def test_derivatives_along_branch_cuts(name: str) -> None:
    """On the side that the sign of the zero part says: differences of the function along the cut."""
    function, step = getattr(ops, name), 1e-6
    places = [(part, zero) for part in (-3.0, -2.0, -0.3, 0.3, 2.0, 3.0) for zero in (0.0, -0.0)]
    is_upright = name in ("asinh", "atan")
    z, before, after = (
        np.array([complex(*((zero, part + d) if is_upright else (part + d, zero))) for part, zero in places])
        for d in (0, -step, step)
    )
    value = smelt.jit(function)
    wanted = (value(after) - value(before)) / (2 * step) / (1j if is_upright else 1)
    np.testing.assert_allclose(changes(function, z), wanted, rtol=1e-6, atol=1e-8)
    (by_real,) = gradients(lambda z: ops.real(function(z)), z)
    np.testing.assert_allclose(by_real, wanted.conj(), rtol=1e-6, atol=1e-8)


def test_the_buffer_of_log_sigmoid_is_a_constant() -> None:
    """In both modes, as in PyTorch."""
    x = np.array([-1.0, 0.5])
    assert (gradients(lambda x: ops.log_sigmoid_forward(x)[1], x)[0] == 0).all()
    assert (changes(lambda x: ops.log_sigmoid_forward(x)[1], x) == 0).all()
    np.testing.assert_allclose(changes(lambda x: ops.log_sigmoid_forward(x)[0], x), changes(ops.log_sigmoid, x))


def test_forward_derivatives_of_ctc_loss() -> None:
    """Most states of the first steps have the probability 0, whose logarithm has no derivative."""
    generator = np.random.default_rng(0)
    logits, towards = generator.normal(size=(2, 7, 2, 5))
    targets, steps, lengths = np.array([[1, 2, 2], [3, 1, 4]]), np.array([7, 5]), np.array([3, 2])

    def loss(logits: Any) -> Any:
        return ops.ctc_loss(ops.log_softmax(logits, -1), targets, steps, lengths)

    by_logits = torch.tensor(logits, requires_grad=True)
    given = [torch.from_numpy(item) for item in (targets, steps, lengths)]
    torch.nn.functional.ctc_loss(by_logits.log_softmax(-1), *given).backward()
    wanted = (by_logits.grad.numpy() * towards).sum()
    np.testing.assert_allclose(smelt.jvp(loss, (logits,), (towards,))[1], wanted, rtol=1e-10)
