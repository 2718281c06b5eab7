"""Losses, optimizers, and models: forward, and whole training steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .define import Array, Draw, Names, sizes, workload
from .pointwise import LONG, MATRIX

Params = dict[str, Array]


def class_inputs(draw: Draw, rows: int, classes: int) -> Sequence[Array]:
    return [draw.normal(rows, classes), draw.integers(classes, rows)]


CLASSES = sizes(tiny=(3, 7), small=(16, 100), medium=(128, 4000), large=(512, 32000))


@workload("loss", class_inputs, CLASSES)
def cross_entropy(xp: Names, logits: Array, labels: Array) -> Array:
    """Cross entropy of logits and labels."""
    return xp.cross_entropy(logits, labels)


@workload("loss", class_inputs, CLASSES)
def cross_entropy_training(xp: Names, logits: Array, labels: Array) -> Array:
    """Cross entropy, and its gradient by the logits."""

    def loss(logits: Array) -> Array:
        return xp.cross_entropy(logits, labels)

    return xp.value_and_grad(loss)(logits)


@cross_entropy_training.by_numpy
def cross_entropy_training_numpy(logits: Array, labels: Array) -> Array:
    rows = np.arange(len(labels))
    shifted = logits - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(axis=1, keepdims=True)
    loss = (np.log(total[:, 0]) - shifted[rows, labels]).mean()
    weights /= total
    weights[rows, labels] -= 1
    weights /= len(labels)
    return loss, weights


def pair_inputs(draw: Draw, rows: int, columns: int) -> Sequence[Array]:
    return [draw.normal(rows, columns), draw.uniform(0.0, 1.0, rows, columns)]


@workload("loss", pair_inputs, MATRIX, has_numpy=False)
def binary_cross_entropy_training(xp: Names, logits: Array, wanted: Array) -> Array:
    """Binary cross entropy of logits, and its gradient."""

    def loss(logits: Array) -> Array:
        return xp.binary_cross_entropy_with_logits(logits, wanted)

    return xp.value_and_grad(loss)(logits)


@workload("loss", pair_inputs, MATRIX, has_numpy=False)
def huber_training(xp: Names, guess: Array, wanted: Array) -> Array:
    """A Huber loss written out, and its gradient."""

    def loss(guess: Array) -> Array:
        distance = xp.abs(guess - wanted)
        return xp.mean(xp.where(distance < 1.0, 0.5 * distance * distance, distance - 0.5))

    return xp.value_and_grad(loss)(guess)


RATE, DECAY_1, DECAY_2, EPSILON = 1e-3, 0.9, 0.999, 1e-8


def adam(xp: Names, param: Array, grad: Array, first: Array, second: Array, step: int) -> tuple[Array, Array, Array]:
    """One update of Adam: the new parameter and moments."""
    first = DECAY_1 * first + (1 - DECAY_1) * grad
    second = DECAY_2 * second + (1 - DECAY_2) * grad * grad
    size = RATE / (1 - DECAY_1**step)
    root = xp.sqrt(second) / math.sqrt(1 - DECAY_2**step) + EPSILON
    return param - size * first / root, first, second


def moment_inputs(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.normal(count), draw.normal(count), draw.normal(count), draw.uniform(0.0, 1.0, count)]


@workload("optimizer", moment_inputs, LONG)
def adam_update(xp: Names, param: Array, grad: Array, first: Array, second: Array) -> Array:
    """One update of Adam."""
    return adam(xp, param, grad, first, second, 10)


@workload("optimizer", moment_inputs, LONG)
def momentum_update(xp: Names, param: Array, grad: Array, first: Array, second: Array) -> Array:
    """One update of gradient descent with momentum and weight decay."""
    first = 0.9 * first + grad + 1e-4 * param
    return param - 0.1 * first, first


def many_inputs(draw: Draw, count: int, width: int) -> Sequence[Array]:
    def draw_each() -> list[Array]:
        shapes = [(width, width) if number % 2 else (width,) for number in range(count)]
        return [draw.uniform(0.0, 1.0, *shape) for shape in shapes]

    return [draw_each(), draw_each(), draw_each(), draw_each()]


@workload("optimizer", many_inputs, sizes(tiny=(2, 3), small=(8, 16), medium=(24, 64), large=(48, 256)))
def adam_many(xp: Names, params: list[Array], grads: list[Array], firsts: list[Array], seconds: list[Array]) -> Array:
    """One update of Adam for many parameters of different sizes."""
    return [adam(xp, *group, 10) for group in zip(params, grads, firsts, seconds)]


# ----- a multilayer perceptron


def dense_params(draw: Draw, widths: Sequence[int]) -> Params:
    params: Params = {}
    for number, (rows, columns) in enumerate(zip(widths, widths[1:])):
        params[f"weight_{number}"] = draw.normal(rows, columns, scale=rows**-0.5)
        params[f"bias_{number}"] = draw.normal(columns, scale=0.1)
    return params


def mlp(xp: Names, params: Params, x: Array) -> Array:
    for number in range(len(params) // 2 - 1):
        x = xp.gelu(x @ params[f"weight_{number}"] + params[f"bias_{number}"], approximate="tanh")
    number = len(params) // 2 - 1
    return x @ params[f"weight_{number}"] + params[f"bias_{number}"]


def mlp_inputs(draw: Draw, batch: int, width: int, classes: int) -> Sequence[Array]:
    params = dense_params(draw, (width, 2 * width, 2 * width, classes))
    return [params, draw.normal(batch, width), draw.integers(classes, batch)]


MLP = sizes(tiny=(3, 4, 3), small=(16, 32, 10), medium=(64, 256, 10), large=(256, 784, 10))


@workload("model", mlp_inputs, MLP)
def mlp_forward(xp: Names, params: Params, x: Array, labels: Array) -> Array:
    """Three dense layers with gelu between them."""
    return mlp(xp, params, x)


@workload("model", mlp_inputs, MLP, has_numpy=False)
def mlp_training(xp: Names, params: Params, x: Array, labels: Array) -> Array:
    """Loss, gradient and a step of gradient descent."""

    def loss(params: Params) -> Array:
        return xp.cross_entropy(mlp(xp, params, x), labels)

    value, grads = xp.value_and_grad(loss)(params)
    return value, {name: params[name] - 0.1 * grads[name] for name in params}


def mlp_adam_inputs(draw: Draw, batch: int, width: int, classes: int) -> Sequence[Array]:
    params, x, labels = mlp_inputs(draw, batch, width, classes)
    first = {name: 0.01 * draw.normal(*value.shape) for name, value in params.items()}
    second = {name: draw.uniform(0.001, 0.01, *value.shape) for name, value in params.items()}
    return [params, first, second, x, labels]


@workload("model", mlp_adam_inputs, MLP, has_numpy=False)
def mlp_adam_training(xp: Names, params: Params, first: Params, second: Params, x: Array, labels: Array) -> Array:
    """Loss, gradient and a step of Adam."""

    def loss(params: Params) -> Array:
        return xp.cross_entropy(mlp(xp, params, x), labels)

    value, grads = xp.value_and_grad(loss)(params)
    return value, {name: adam(xp, params[name], grads[name], first[name], second[name], 10) for name in params}


# ----- an encoder


def attention_inputs(draw: Draw, batch: int, heads: int, length: int, width: int) -> Sequence[Array]:
    shape = (batch, heads, length, width)
    return [draw.normal(*shape), draw.normal(*shape), draw.normal(*shape)]


@workload(
    "model",
    attention_inputs,
    sizes(tiny=(1, 2, 4, 3), small=(1, 4, 32, 16), medium=(4, 8, 64, 64), large=(8, 8, 128, 64)),
)
def attention(xp: Names, query: Array, key: Array, value: Array) -> Array:
    """Scaled dot product attention."""
    return xp.attention(query, key, value)


def encoder_params(draw: Draw, width: int) -> Params:
    params = {
        "joint": draw.normal(width, 3 * width, scale=width**-0.5),
        "out": draw.normal(width, width, scale=width**-0.5),
        "up": draw.normal(width, 4 * width, scale=width**-0.5),
        "down": draw.normal(4 * width, width, scale=(4 * width) ** -0.5),
    }
    biases = {f"{name}_bias": draw.normal(value.shape[1], scale=0.1) for name, value in params.items()}
    norms = {name: draw.uniform(0.5, 1.5, width) for name in ("scale_1", "shift_1", "scale_2", "shift_2")}
    return {**params, **biases, **norms}


def encoder_layer(xp: Names, params: Params, x: Array, heads: int) -> Array:
    batch, length, width = x.shape

    def dense(x: Array, name: str) -> Array:
        return x @ params[name] + params[f"{name}_bias"]

    joint = dense(xp.layer_norm(x, params["scale_1"], params["shift_1"]), "joint")
    split = xp.permute(joint.reshape((batch, length, 3, heads, width // heads)), (2, 0, 3, 1, 4))
    seen = xp.permute(xp.attention(split[0], split[1], split[2]), (0, 2, 1, 3)).reshape((batch, length, width))
    x = x + dense(seen, "out")
    hidden = xp.gelu(dense(xp.layer_norm(x, params["scale_2"], params["shift_2"]), "up"))
    return x + dense(hidden, "down")


def encoder_inputs(draw: Draw, layers: int, batch: int, length: int, width: int) -> Sequence[Array]:
    return [[encoder_params(draw, width) for _ in range(layers)], draw.normal(batch, length, width)]


ENCODER = sizes(tiny=(1, 2, 3, 8), small=(1, 2, 16, 32), medium=(2, 2, 64, 128), large=(2, 4, 128, 512))
HEADS = 4


@workload("model", encoder_inputs, ENCODER)
def encoder_forward(xp: Names, layers: list[Params], x: Array) -> Array:
    """Transformer encoder layers: norm, attention, norm, gelu."""
    for params in layers:
        x = encoder_layer(xp, params, x, HEADS)
    return x


@workload("model", encoder_inputs, ENCODER, has_numpy=False)
def encoder_training(xp: Names, layers: list[Params], x: Array) -> Array:
    """A loss of encoder layers, its gradient, and a step of gradient descent."""

    def loss(layers: list[Params]) -> Array:
        result = encoder_forward.function(xp, layers, x)
        return xp.mean(result * result)

    value, grads = xp.value_and_grad(loss)(layers)
    return value, [{name: old[name] - 0.1 * new[name] for name in old} for old, new in zip(layers, grads)]
