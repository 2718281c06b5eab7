"""Fit a curve with a small network; a training step (loss, gradient, update) is one native call.

python examples/mlp.py
smelt dump examples/mlp.py:loss --grad --stage fuse
smelt explain examples/mlp.py:loss --grad
"""

from __future__ import annotations

import numpy as np
import smelt
from smelt.ops import linear, mse_loss, tanh

RATE = 0.05


def network(params, x):
    hidden = tanh(linear(x, params["weight_1"], params["bias_1"]))
    return linear(hidden, params["weight_2"], params["bias_2"])


def loss(params, x, y):
    return mse_loss(network(params, x), y)


loss.example_args = [
    {
        "weight_1": smelt.spec("f32[32, 1]"),
        "bias_1": smelt.spec("f32[32]"),
        "weight_2": smelt.spec("f32[1, 32]"),
        "bias_2": smelt.spec("f32[1]"),
    },
    "f32[N, 1]",
    "f32[N, 1]",
]


@smelt.jit
def train_step(params, x, y):
    value, grads = smelt.value_and_grad(loss)(params, x, y)
    return {name: params[name] - RATE * grads[name] for name in params}, value


def main():
    random = np.random.default_rng(0)
    params = {
        "weight_1": random.normal(0, 2, (32, 1)),
        "bias_1": random.normal(0, 1, 32),
        "weight_2": random.normal(0, 0.2, (1, 32)),
        "bias_2": np.zeros(1),
    }
    params = {name: value.astype(np.float32) for name, value in params.items()}
    x = np.linspace(-2, 2, 256, dtype=np.float32)[:, None]
    y = np.sin(2 * x)
    for step in range(1, 2001):
        params, value = train_step(params, x, y)
        if step in (1, 10, 100, 1000, 2000):
            print(f"step {step:5d}   loss {float(value):.6f}")


if __name__ == "__main__":
    main()
