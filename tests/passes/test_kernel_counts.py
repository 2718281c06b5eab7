"""How many kernels a program becomes: the promises of fusion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops


def assert_kernels(function: Callable[..., Any], most: int, *arrays: np.ndarray) -> None:
    """The function compiles to at most (for one: exactly) this many kernels."""
    program = smelt.jit(function)
    program(*arrays)
    kernels = program.report().kernels
    assert 1 <= len(kernels) <= most, f"{len(kernels)} kernels, expected {most}:\n{program.report()}"


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


X, R = floats(64, 128), floats(64, 128, seed=1)
WEIGHT, BIAS = floats(128, seed=2), floats(128, seed=3)
IMAGES, CHANNEL = floats(8, 16, 6, 6), floats(16, seed=4)
TARGET = np.random.default_rng(5).integers(0, 128, 64)


def chain(x: Any, r: Any) -> Any:
    return ops.sqrt(ops.abs(ops.tanh(ops.exp(-x * r + 1.0)) - x) + 2.0)


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return ops.batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)


FORWARD: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "softmax": (lambda x: ops.softmax(x, 1), (X,)),
    "log_softmax": (lambda x: ops.log_softmax(x, 1), (X,)),
    "layer_norm": (lambda x, w, b: ops.layer_norm(x, (128,), w, b), (X, WEIGHT, BIAS)),
    "rms_norm": (lambda x, w: ops.rms_norm(x, (128,), w), (X, WEIGHT)),
    "gelu of layer_norm of a sum": (
        lambda x, r, w, b: ops.gelu(ops.layer_norm(x + r, (128,), w, b)),
        (X, R, WEIGHT, BIAS),
    ),
    "batch_norm in training": (batch_norm, (IMAGES, CHANNEL, CHANNEL)),
    "eight elementwise ops": (chain, (X, R)),
    "maxima of windows and their places": (lambda x: ops.max_pool2d_with_indices(x, 2), (IMAGES,)),
    "means of windows": (lambda x: ops.relu(ops.avg_pool2d(x, 3, 1)), (IMAGES,)),
    "mean of a plane": (lambda x: ops._adaptive_avg_pool2d(x, (1, 1)), (IMAGES,)),
    "mirrored edges": (lambda x: ops.reflection_pad1d(x, (1, 1)) * 2.0, (X,)),
    "distances": (lambda x, r: ops._cdist_forward(x, r, 2.0, None), (X, R)),
    "variance and mean": (lambda x: ops.var_mean(x, 1), (X,)),
}


@pytest.mark.parametrize("name", sorted(FORWARD))
def test_one_kernel(name: str) -> None:
    function, arrays = FORWARD[name]
    assert_kernels(function, 1, *arrays)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "eight elementwise ops"])
def test_backward_is_one_kernel(name: str) -> None:
    function, arrays = FORWARD[name]
    assert_kernels(gradients(function, len(arrays)), 1, *arrays, R)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "gelu of layer_norm of a sum"])
def test_backward_along_rows_is_one_kernel(name: str) -> None:
    """With respect to the input alone: the gradients of weight and bias are sums over the other dimension."""
    function, arrays = FORWARD[name]
    assert_kernels(gradients(function, 1), 1, *arrays, R)


def test_batch_norm_backward_is_one_kernel() -> None:
    assert_kernels(gradients(batch_norm, 3), 1, IMAGES, CHANNEL, CHANNEL, IMAGES)


def gradients(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The gradient with respect to the first arguments; the last one is the cotangent."""

    def traced(*arguments: Any) -> Any:
        *inputs, cotangent = arguments

        def loss(*items: Any) -> Any:
            return ops.sum(function(*items) * cotangent)

        return smelt.grad(loss, argnums=tuple(range(count)))(*inputs)

    return traced


def test_cross_entropy_and_its_gradient_are_two_kernels_at_most() -> None:
    def loss(logits: Any, target: Any) -> Any:
        return ops.cross_entropy(logits, target)

    assert_kernels(smelt.value_and_grad(loss), 2, X, TARGET)


def test_adam_of_five_parameters_is_one_parallel_region() -> None:
    shapes = [(64, 32), (32,), (32, 16), (16,), (7, 5, 3)]
    parameters = [floats(*shape, seed=index) for index, shape in enumerate(shapes)]
    zeros = [np.zeros_like(item) for item in parameters]

    def adam(values: Any, gradients: Any, means: Any, squares: Any) -> Any:
        updated = []
        for value, gradient, mean, square in zip(values, gradients, means, squares):
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient * gradient
            updated.append((value - 1e-3 * mean / (ops.sqrt(square) + 1e-8), mean, square))
        return updated

    program = smelt.jit(adam)
    program(parameters, parameters, zeros, zeros)
    report = program.report()
    assert len(report.kernels) == 1 and report.kernels[0].regions == 1, str(report)


IMAGE = floats(4, 16, 12, 12)


def convolve(kernel: int, stride: int, padding: int, groups: int) -> Callable[..., Any]:
    def apply(x: Any, weight: Any, bias: Any) -> Any:
        return ops.conv2d(x, weight, bias, [stride], [padding], [1], groups)

    return apply


def test_a_kernel_of_one_is_a_product_without_copies() -> None:
    apply = convolve(1, 1, 0, 1)
    assert_kernels(lambda *given: ops.relu(apply(*given)), 1, IMAGE, floats(32, 16, 1, 1), floats(32))


def test_patches_are_copied_and_multiplied() -> None:
    def embed(*given: Any) -> Any:
        return ops.transpose(ops.flatten(convolve(4, 4, 0, 1)(*given), 2), 1, 2) * 2.0

    assert_kernels(embed, 2, IMAGE, floats(32, 16, 4, 4), floats(32))
    assert_kernels(embed, 2, IMAGE[:1], floats(32, 16, 4, 4), floats(32))


def test_one_channel_a_group_needs_no_product() -> None:
    apply = convolve(3, 1, 1, 16)
    assert_kernels(lambda *given: ops.relu(apply(*given)), 2, IMAGE, floats(16, 1, 3, 3), floats(16))  # and padding


def test_windows_are_copied_once() -> None:
    apply = convolve(3, 2, 0, 1)
    assert_kernels(lambda *given: ops.relu(apply(*given)), 2, IMAGE, floats(32, 16, 3, 3), floats(32))
