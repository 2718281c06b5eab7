"""Special values: every op against PyTorch (parity/special.py), and single ops where a value once was wrong."""

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
from parity.gaps import INTERNAL
from parity.special import KNOWN, OF_SOME_MACHINES, run, unexplained
from smelt import ops
from smelt.ops.define import REGISTRY
from smelt.passes.autodiff.vjp import vjp
from support import BACKENDS, OWN_OPS, evaluate, from_torch, to_torch

pytestmark = pytest.mark.filterwarnings("ignore")

OPS = sorted(name for name in OWN_OPS if name not in INTERNAL)
SPREAD = {"interp": 8, "cpu": 12, "cuda": 12}  # one in so many cases, unless --long is given


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPS)
def test_special_values(name: str, backend: str, request: pytest.FixtureRequest) -> None:
    spread = 1 if request.config.getoption("--long") else SPREAD[backend]
    wrong = unexplained(REGISTRY[name], backend, spread)
    assert not wrong, "\n".join(wrong)


def test_every_difference_has_a_reason() -> None:
    assert all(KNOWN.values())


@pytest.mark.skipif("cpu" not in BACKENDS, reason="the list is for all back ends, the compiled code of CPUs among them")
@pytest.mark.parametrize("pattern", KNOWN)
def test_every_difference_remains(pattern: str) -> None:
    """A pattern that explains nothing any more would hide the next defect."""
    names = [name for name in OPS if fnmatch.fnmatchcase(name, pattern.split()[0])]
    assert names
    if KNOWN[pattern] not in OF_SOME_MACHINES:
        assert any(run(REGISTRY[name], backend, only=pattern) for backend in BACKENDS for name in names)


@pytest.mark.parametrize("backend", BACKENDS)
def test_lerp_of_integers(backend: str) -> None:
    low, high = np.array([250, 5, 0], np.uint8), np.array([5, 250, 255], np.uint8)
    weight = np.array([0.25, 0.25, 0.75], np.float32)
    exact = low + (high.astype(np.float64) - low) * 0.25
    (by_number,) = evaluate(lambda a, b: ops.lerp(a, b, 0.25), [low, high], backend)
    np.testing.assert_allclose(by_number, exact)
    by_tensor, slope = evaluate(
        lambda a, b, w: (ops.lerp(a, b, w), vjp([ops.lerp(a, b, w)], [ops.ones_like(w)], [w])[0]),
        [low, high, weight],
        backend,
    )
    np.testing.assert_allclose(by_tensor, low + (high.astype(np.float64) - low) * weight)
    np.testing.assert_allclose(slope, high.astype(np.float64) - low)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("element", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_rms_norm_without_eps(backend: str, element: torch.dtype) -> None:
    x = torch.full((2, 64), 1e-3, dtype=element)
    wanted = torch.nn.functional.rms_norm(x, (64,))
    (got,) = evaluate(lambda x: ops.rms_norm(x, (64,)), [from_torch(x)], backend)
    np.testing.assert_allclose(got.astype(float), from_torch(wanted).astype(float), rtol=2 * torch.finfo(element).eps)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", [2, 1, 3, 0.5, 1.5, 0, math.inf, -math.inf, -1])
def test_norms_of_one_element(backend: str, order: float) -> None:
    x = np.array([[1e20], [-1e-30], [3.0], [np.inf], [np.nan], [0.0], [-0.0]], np.float32)
    for dims in (1, (1,), (1, 2)):
        array = x if dims != (1, 2) else x[..., None]
        wanted = torch.linalg.vector_norm(torch.from_numpy(array), order, dims)
        (got,) = evaluate(lambda x: ops.linalg_vector_norm(x, order, dims), [array], backend)  # noqa: B023
        np.testing.assert_array_equal(got, wanted.numpy())
    scaled = torch.nn.functional.normalize(torch.from_numpy(x[:3]), dim=1).numpy()
    np.testing.assert_array_equal(evaluate(lambda x: ops.normalize(x), [x[:3]], backend)[0], scaled)


@pytest.mark.parametrize("backend", BACKENDS)
def test_logit_with_bounds_that_cross(backend: str) -> None:
    x = np.linspace(-0.5, 1.5, 64)
    for eps in (0.3, 0.5, 0.6, 0.9, 1.0, 1.2, 0.0, -0.2):
        wanted = torch.logit(torch.from_numpy(x), eps).numpy()
        np.testing.assert_allclose(evaluate(lambda x: ops.logit(x, eps), [x], backend)[0], wanted)  # noqa: B023


@pytest.mark.parametrize("backend", BACKENDS)
def test_lgamma_near_zero(backend: str) -> None:
    x = -np.array([1e-3, 1e-50, 1e-99, 1e-101, 1e-150, 1e-162, 1e-200, 1e-300, 5e-324])
    wanted = torch.lgamma(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(evaluate(ops.lgamma, [x], backend)[0], wanted, rtol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["layer", "group", "batch"])
@pytest.mark.parametrize("element", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_gradients_of_norms_of_nearly_constant_rows(backend: str, name: str, element: Any) -> None:
    """A mean that was rounded to f16 is off by more than the deviation."""
    random = np.random.default_rng(0)
    x = (np.full((32, 8, 6), 100.0) + random.integers(0, 2, (32, 8, 6))).astype(element)
    seed = random.standard_normal(x.shape).astype(element)
    size = 6 if name == "layer" else 8
    weight = np.ones(size, element)

    def ours(x: Any, w: Any) -> Any:
        if name == "layer":
            return ops.layer_norm(x, (6,), w, None)
        if name == "group":
            return ops.group_norm(x, 2, w, None)
        return ops.batch_norm(x, w, None, None, None, True, 0.1, 1e-5)

    got = evaluate(lambda x, w, g: vjp([ours(x, w)], [g], [x, w]), [x, weight, seed], backend)
    exact, scale = (to_torch(item).double().requires_grad_() for item in (x, weight))
    functional = torch.nn.functional
    if name == "layer":
        result = functional.layer_norm(exact, (6,), scale)
    elif name == "group":
        result = functional.group_norm(exact, 2, scale)
    else:
        result = functional.batch_norm(exact, None, None, scale, None, True)
    result.backward(to_torch(seed).double())
    for found, wanted in zip(got, (exact.grad, scale.grad), strict=True):
        error = np.abs(found.astype(float) - wanted.numpy()).max()
        assert error <= 2 * float(ml_dtypes.finfo(element).eps) * np.abs(wanted.numpy()).max()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [1e-30, 1e-22, 1.0, 1e19, 1e25, 1e37])
def test_std_where_squares_leave_the_range(backend: str, size: float) -> None:
    x = (np.random.default_rng(0).uniform(-1, 1, (3, 50)) * size).astype(np.float32)

    def program(x: Any) -> Any:
        result = ops.std(x, 1)
        return [result, ops.var(x, 1), *vjp([result], [ops.ones_like(result)], [x])]

    exact = torch.from_numpy(x).double().requires_grad_()
    result = torch.std(exact, 1)
    result.sum().backward()
    with np.errstate(over="ignore"):
        variance = result.detach().numpy().astype(float) ** 2
        wanted = [result.detach().numpy(), variance.astype(np.float32), exact.grad.numpy()]
    for got, known in zip(evaluate(program, [x], backend), wanted, strict=True):
        np.testing.assert_allclose(got, known, rtol=2e-6, atol=1e-45 if known is not wanted[2] else 1e-7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_as_an_integer(backend: str) -> None:
    for kind in (np.float32, np.float64):
        x = np.array([np.nan, 1.5, np.nan, -2.5], kind)
        for target in ("int32", "int64", "int16", "uint8"):
            (got,) = evaluate(lambda x: ops.cast(ops.abs(x), target), [x], backend)  # noqa: B023
            np.testing.assert_array_equal(got, [0, 1, 0, 2])


def test_gpus_make_zero_of_nan() -> None:
    """CUDA's conversions make the smallest integer of NaN, but for the one from f32 to i32."""
    from smelt.backend.cuda.codegen.library import CONVERSIONS, NATIVE_SOURCE

    for (source, target), name in CONVERSIONS.items():
        expected = f"def {source}_to_{target}(value):\n    return {name}(value) if value == value else {target}(0)\n"
        assert expected in NATIVE_SOURCE


def test_attention_without_keys() -> None:
    q, none = np.ones((2, 3, 4), np.float32), np.ones((2, 0, 4), np.float32)
    got = smelt.jit(lambda q, k, v: ops.scaled_dot_product_attention(q, k, v))(q, none, none)
    np.testing.assert_array_equal(got, np.zeros_like(q))


PARTS = (math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e200, -1e200, 1e-200, 3e154, -1e-310)
COMPLEX = {
    name: f"arc{name[1:]}" if name.startswith("a") else name
    for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "sin", "cos", "sinh", "cosh", "exp", "log", "sqrt")
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_functions_at_infinity(backend: str, name: str) -> None:
    """Against NumPy, which PyTorch agrees with but for the signs of some zeros of acos."""
    z = np.array([complex(a, b) for a in PARTS for b in PARTS])
    if name in ("sin", "cos", "sinh", "cosh", "exp"):
        # Periodic along one axis: nothing is known of an infinite angle, and what is left of it is not compared.
        angle = z.real if name in ("sin", "cos") else z.imag
        z = z[np.isfinite(angle)]
    with np.errstate(all="ignore"):
        wanted = getattr(np, COMPLEX[name])(z)
    (got,) = evaluate(getattr(ops, name), [z], backend)
    for part, known in ((got.real, wanted.real), (got.imag, wanted.imag)):
        np.testing.assert_allclose(part, known, rtol=1e-12, atol=0)
        zeros = known == 0
        np.testing.assert_array_equal(np.signbit(part[zeros]), np.signbit(known[zeros]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [7, 32, 65, 1000])
def test_search_in_rows_that_end_with_nan(length: int, backend: str) -> None:
    """NumPy sorts NaN last; a NaN that is looked for comes after all, as in PyTorch."""
    row = np.sort(np.random.default_rng(length).standard_normal(length).astype(np.float32))
    row[-3:] = np.nan
    values = np.array([-9.0, 0.0, row[2], row[3], 9.0, np.inf, -np.inf, np.nan], np.float32)
    for right in (False, True):
        wanted = np.searchsorted(row, values, "right" if right else "left")
        wanted[-1] = length
        (got,) = evaluate(lambda row, values: ops.searchsorted(row, values, right=right), [row, values], backend)  # noqa: B023
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_counts_of_differences_beside_nan(backend: str) -> None:
    """Distances of order 0 count, but NaN is no count."""
    x = np.array([[1.0, np.nan, 2.0], [1.0, 3.0, 2.0], [np.inf, 0.0, 2.0]])
    wanted = torch.cdist(torch.from_numpy(x), torch.from_numpy(x[1:]), 0.0).numpy()
    np.testing.assert_array_equal(evaluate(lambda x: ops.cdist(x, x[1:], 0.0), [x], backend)[0], wanted)
    wanted = torch.pdist(torch.from_numpy(x), 0.0).numpy()
    np.testing.assert_array_equal(evaluate(lambda x: ops.pdist(x, 0.0), [x], backend)[0], wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_elu_at_zero_with_an_infinite_input_scale(backend: str) -> None:
    x = np.array([0.0, 1.0, -1.0], np.float32)
    wanted = torch.ops.aten.elu(torch.from_numpy(x), 1, 1, math.inf).numpy()
    np.testing.assert_array_equal(evaluate(lambda x: ops.elu(x, 1, 1, math.inf), [x], backend)[0], wanted)


def test_statistics_without_a_dimension_are_refused() -> None:
    x, one = np.ones((2, 3, 4), np.float32), np.ones((), np.float32)
    with pytest.raises(smelt.SmeltError, match="one dimension"):
        smelt.jit(lambda x, s: ops.instance_norm(x, None, None, s, s, False))(x, one)


@pytest.mark.parametrize("backend", BACKENDS)
def test_huber_loss_without_a_limit(backend: str) -> None:
    x = np.array([1.0, -2.0, math.inf], np.float32)
    wanted = torch.nn.functional.huber_loss(torch.from_numpy(x), torch.zeros(3), "none", math.inf).numpy()
    found = evaluate(lambda x: ops.huber_loss(x, ops.zeros((3,)), 0, math.inf), [x], backend)[0]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gaussian_nll_loss_of_a_number_beside_integers(backend: str) -> None:
    """What has dimensions decides the type, but integers do not make f32 of an f64 number."""
    value, target, var = np.array(0.3), np.array([1, 0, 2]), np.array(0.1)
    wanted = torch.nn.functional.gaussian_nll_loss(*map(torch.from_numpy, (value, target, var))).numpy()
    found = evaluate(ops.gaussian_nll_loss, [value, target, var], backend)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


WHOLE: dict[str, Callable[[Any], Any]] = {
    "layer_norm": lambda x: ops.layer_norm(x, (4,)),
    "rms_norm": lambda x: ops.rms_norm(x, (4,)),
    "group_norm": lambda x: ops.group_norm(x, 1),
    "instance_norm": ops.instance_norm,
    "adaptive_avg_pool1d": lambda x: ops.adaptive_avg_pool1d(x, (3,)),
    "logcumsumexp": lambda x: ops.logcumsumexp(x, 2),
}


@pytest.mark.parametrize("name", WHOLE)
def test_integers_become_floats_where_results_are_no_integers(name: str) -> None:
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4) % 7
    found, wanted = smelt.jit(WHOLE[name])(x), smelt.jit(WHOLE[name])(x.astype(np.float64))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_polar_of_an_integer_beside_f64(backend: str) -> None:
    (found,) = evaluate(ops.polar, [np.array([1.0, 2.0]), np.array(6)], backend)
    np.testing.assert_allclose(found, [np.exp(6j), 2 * np.exp(6j)], rtol=1e-14)
