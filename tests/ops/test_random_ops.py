"""The random ops: distributions, streams, seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from scipy import stats
from smelt.ir.printer import print_graph
from smelt.ops.define import REGISTRY
from smelt.passes.autodiff.vjp import vjp
from support import evaluate

COUNT = 40000
SEED = np.array([42, 0], np.int64)


def op(name: str) -> Callable[..., Any]:
    return REGISTRY[name]


def drawn(function: Callable[[Any], Any], seed: np.ndarray = SEED) -> np.ndarray:
    return evaluate(function, [seed], "interp")[0]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_rand_is_uniform(dtype: str) -> None:
    numbers = drawn(lambda seed: op("rand")((COUNT,), dtype=dtype, seed=seed, stream=1)).astype(np.float64)
    assert numbers.min() >= 0 and numbers.max() < 1
    counts, _ = np.histogram(numbers, 16, (0, 1))
    # Pearson's statistic of sixteen bins: beyond 60 once in a million seeds if they are equally likely.
    assert ((counts - COUNT / 16) ** 2 / (COUNT / 16)).sum() < 60


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_randn_is_normal(dtype: str) -> None:
    numbers = drawn(lambda seed: op("randn")((COUNT,), dtype=dtype, seed=seed, stream=1)).astype(np.float64)
    assert np.isfinite(numbers).all()
    assert abs(numbers.mean()) < 0.03 and abs(numbers.std() - 1) < 0.03
    assert abs((numbers**3).mean()) < 0.1 and abs((numbers**4).mean() - 3) < 0.25
    assert abs((np.abs(numbers) < 1).mean() - 0.6827) < 0.015


def test_randint_covers_its_range() -> None:
    numbers = drawn(lambda seed: op("randint")(-3, 4, (COUNT,), seed=seed, stream=1))
    assert numbers.dtype == np.int64
    counts = np.bincount(numbers + 3, minlength=7)
    assert len(counts) == 7 and (np.abs(counts - COUNT / 7) < 6 * np.sqrt(COUNT / 7)).all()


@pytest.mark.parametrize(
    ("name", "arguments", "below", "middle"),
    [
        # The share of numbers below a point, by the distribution function.
        ("exponential", (2.0,), 0.5, 1 - np.exp(-1.0)),
        ("cauchy", (1.0, 2.0), 3.0, 0.75),
        ("log_normal", (0.5, 0.25), np.exp(0.75), 0.841345),
        ("geometric", (0.3,), 2.5, 1 - 0.7**2),
        ("random", (-2, 6), 0.5, 3 / 8),
        ("random", (), 2.0**23, 0.5),
    ],
)
def test_distribution(name: str, arguments: tuple, below: float, middle: float) -> None:
    like = np.zeros(COUNT, np.float32)
    (numbers,) = evaluate(lambda x, seed: op(name)(x, *arguments, seed=seed, stream=1), [like, SEED], "interp")
    assert np.isfinite(numbers).all()
    deviation = np.sqrt(middle * (1 - middle) / COUNT)
    assert abs((numbers < below).mean() - middle) < 5 * deviation


@pytest.mark.parametrize("shape", [0.3, 1.0, 4.5, 200.0])
def test_gamma(shape: float) -> None:
    like = np.full(COUNT, shape)
    (numbers,) = evaluate(lambda x, seed: op("_standard_gamma")(x, seed=seed, stream=1), [like, SEED], "interp")
    assert stats.kstest(numbers, "gamma", args=(shape,)).pvalue > 1e-4


def counts_fit(numbers: np.ndarray, law: Any) -> bool:
    """Pearson's test of counts, of which each is expected five times at least; all others are one class."""
    places = np.arange(int(law.ppf(1 - 1e-9)) + 2)
    expected = law.pmf(places) * len(numbers)
    seen = np.bincount(numbers.astype(np.int64), minlength=len(places))[: len(places)]
    usual = expected >= 5
    expected = np.append(expected[usual], len(numbers) - expected[usual].sum())
    seen = np.append(seen[usual], len(numbers) - seen[usual].sum())
    statistic = ((seen - expected) ** 2 / np.maximum(expected, 1.0)).sum()
    return bool(stats.chi2.sf(statistic, usual.sum()) > 1e-4)


@pytest.mark.parametrize("mean", [0.1, 4.0, 9.9, 10.1, 60.0, 3000.0])
def test_poisson(mean: float) -> None:
    like = np.full(COUNT, mean, np.float32)
    (numbers,) = evaluate(lambda x, seed: op("poisson")(x, seed=seed, stream=1), [like, SEED], "interp")
    assert counts_fit(numbers, stats.poisson(np.float32(mean)))


@pytest.mark.parametrize(("trials", "chance"), [(5, 0.3), (100, 0.05), (40, 0.5), (1000, 0.9), (3000, 0.2)])
def test_binomial(trials: int, chance: float) -> None:
    arrays = [np.full(COUNT, trials, np.float64), np.full(COUNT, chance), SEED]
    (numbers,) = evaluate(lambda n, p, seed: op("binomial")(n, p, seed=seed, stream=1), arrays, "interp")
    assert counts_fit(numbers, stats.binom(trials, chance))


def test_dirichlet() -> None:
    weights = np.array([0.5, 2.0, 7.5])
    like = np.broadcast_to(weights, (COUNT, 3)).copy()
    (numbers,) = evaluate(lambda x, seed: op("_sample_dirichlet")(x, seed=seed, stream=1), [like, SEED], "interp")
    law = stats.dirichlet(weights)
    np.testing.assert_allclose(numbers.sum(-1), 1.0)
    np.testing.assert_allclose(numbers.mean(0), law.mean(), atol=0.01)
    np.testing.assert_allclose(numbers.var(0), law.var(), rtol=0.05)


def test_gradient_of_gamma_is_that_of_pytorch() -> None:
    shapes = np.random.default_rng(0).uniform(0.05, 40.0, 500)

    def drawn(x: Any, seed: Any) -> Any:
        return op("_standard_gamma")(x, seed=seed, stream=1)

    def slope(x: Any, seed: Any) -> Any:
        return vjp([drawn(x, seed)], [REGISTRY["ones_like"](x)], [x])[0]

    numbers, slopes = evaluate(lambda x, seed: (drawn(x, seed), slope(x, seed)), [shapes, SEED], "interp")
    expected = torch._standard_gamma_grad(torch.tensor(shapes), torch.tensor(numbers)).numpy()
    np.testing.assert_allclose(slopes, expected, rtol=1e-11)


def test_random_whole_numbers_fill_their_type() -> None:
    like = np.zeros(COUNT, np.uint8)
    (numbers,) = evaluate(lambda x, seed: op("random")(x, seed=seed, stream=1), [like, SEED], "interp")
    assert numbers.min() == 0 and numbers.max() == 255


def test_dropout_keeps_the_mean() -> None:
    ones = np.ones(COUNT, np.float32)
    (kept,) = evaluate(lambda x, seed: op("dropout")(x, 0.25, seed=seed, stream=1), [ones, SEED], "interp")
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((kept == 0).mean() - 0.25) < 0.02


def test_same_seed_same_numbers() -> None:
    first, second = (drawn(lambda seed: op("rand")((50,), seed=seed, stream=2)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_seed_offset_and_stream_change_the_numbers() -> None:
    base = drawn(lambda seed: op("rand")((50,), seed=seed, stream=2))
    others = [
        drawn(lambda seed: op("rand")((50,), seed=seed, stream=3)),
        drawn(lambda seed: op("rand")((50,), seed=seed, stream=2), np.array([43, 0], np.int64)),
        drawn(lambda seed: op("rand")((50,), seed=seed, stream=2), np.array([42, 1], np.int64)),
    ]
    for other in others:
        assert (base != other).mean() > 0.95


def test_two_ops_never_share_a_stream() -> None:
    first, second = evaluate(
        lambda seed: (op("rand")((50,), seed=seed), op("rand")((50,), seed=seed)), [SEED], "interp"
    )
    assert (first != second).mean() > 0.95
    correlation = np.corrcoef(first, second)[0, 1]
    assert abs(correlation) < 0.6


def test_shape_does_not_change_the_sequence() -> None:
    flat = drawn(lambda seed: op("rand")((12,), seed=seed, stream=4))
    shaped = drawn(lambda seed: op("rand")((3, 4), seed=seed, stream=4))
    np.testing.assert_array_equal(flat.reshape(3, 4), shaped)


def test_what_draws_nothing_has_no_seed() -> None:
    query = np.ones((2, 4, 8), np.float32)

    def attend(x: Any, p: float) -> Any:
        return REGISTRY["scaled_dot_product_attention"](x, x, x, None, p)

    jitted = smelt.jit(attend, static_argnames="p")
    assert [param.name for param in jitted.trace(query, 0.0).params] == ["x"]
    assert [param.name for param in jitted.trace(query, 0.5).params] == ["x", "seed"]


def test_the_same_function_is_the_same_program() -> None:
    def noisy(x: Any) -> Any:
        REGISTRY["rand"]((3,))  # nobody needs it
        attended = REGISTRY["scaled_dot_product_attention"](x, x, x)
        return REGISTRY["dropout"](attended, 0.5, True) + REGISTRY["dropout"](attended, 0.5, True)

    x = np.ones((2, 4, 8), np.float32)
    texts = {print_graph(smelt.jit(noisy).trace(x), locations=False) for _ in range(2)}
    assert len(texts) == 1
    first, second = (op for op in smelt.jit(noisy).trace(x).ops if op.name == "dropout")
    assert first.arguments["stream"] != second.arguments["stream"]
