"""`smelt demo`: a small classifier: checked, trained, inspected and timed.

The data is drawn by a formula: seven-segment digits, shifted and covered with noise. The model is two layers
with layer norm and gelu between them; a whole training step (loss, gradient, Adam) is one compiled function.
The same step is written by hand in NumPy, to compare results and speed with.
"""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend.report.report import Report
from ..ir.graph import Graph
from .program import compile_stages
from .terminal import FINE, WRONG_INPUT, count, fail, heading, highlight, paint, progress, table, time_text

HEIGHT, WIDTH = 12, 10
CLASSES = 10
HIDDEN = 128
BATCH = 256
STEPS = 200
RATE, DECAY_1, DECAY_2, EPSILON = 3e-3, 0.9, 0.999, 1e-8

# Which segments a digit lights: top, upper left, upper right, middle, lower left, lower right, bottom.
SEGMENTS = (
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
)

Params = dict[str, Any]


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--steps", type=count, default=STEPS, help=f"training steps (default: {STEPS})")


def run(options: Namespace) -> int:
    from .. import jit

    train_images, train_labels = make_digits(8192, seed=1)
    test_images, test_labels = make_digits(1024, seed=2)
    batches = Batches(train_images, train_labels)
    show_data(train_images, train_labels)

    step = jit(training_step)
    state = initial_state(initial_params())
    images, labels = batches.next()
    with progress("compiling"):
        begin = time.perf_counter()
        compiled_result = step(state, images, labels)
        compile_seconds = time.perf_counter() - begin
    if not show_check(compiled_result, numpy_step(state, images, labels)):
        fail("smelt and NumPy disagree")
        return WRONG_INPUT

    state = train(step, state, batches, options.steps)
    model = jit(forward)
    show_accuracy(model, state, test_images, test_labels)
    show_fusion(step.report())
    show_loops(model.trace(state["params"], images))
    show_speed(step, numpy_step, state, images, labels, compile_seconds)
    print("\nYour own function: smelt explain model.py:function --args 'f32[N, 64]' (all of it: docs/guide.md)")
    return FINE


# ----- the data


def make_digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images f32[count, HEIGHT * WIDTH] and labels i64[count]."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    images = random.normal(0.0, 0.25, (count, HEIGHT, WIDTH))
    shifts = random.integers(0, 3, (count, 2))
    shapes = [digit_shape(digit) for digit in range(CLASSES)]
    for image, label, (down, right) in zip(images, labels, shifts, strict=True):
        image[down : down + 9, right + 1 : right + 7] += shapes[label]
    return images.reshape(count, -1).astype(np.float32), labels.astype(np.int64)


def digit_shape(digit: int) -> np.ndarray:
    """A digit of 9 x 6 pixels."""
    strokes = (
        (slice(0, 1), slice(1, 5)), (slice(1, 4), slice(0, 1)), (slice(1, 4), slice(5, 6)),
        (slice(4, 5), slice(1, 5)), (slice(5, 8), slice(0, 1)), (slice(5, 8), slice(5, 6)),
        (slice(8, 9), slice(1, 5)),
    )  # fmt: skip
    shape = np.zeros((9, 6))
    for lit, stroke in zip(SEGMENTS[digit], strokes, strict=True):
        if lit == "1":
            shape[stroke] = 1.0
    return shape


class Batches:
    """Batches in order, cyclically."""

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        self.images = images
        self.labels = labels
        self.position = 0

    def next(self) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(self.position, self.position + BATCH)
        self.position = (self.position + BATCH) % len(self.labels)
        return self.images[rows], self.labels[rows]


# ----- the model, for smelt


def initial_params() -> Params:
    random = np.random.default_rng(0)
    pixels = HEIGHT * WIDTH
    drawn: Params = {
        "weight_1": random.normal(0, pixels**-0.5, (pixels, HIDDEN)),
        "bias_1": np.zeros(HIDDEN),
        "scale": np.ones(HIDDEN),
        "shift": np.zeros(HIDDEN),
        "weight_2": random.normal(0, HIDDEN**-0.5, (HIDDEN, CLASSES)),
        "bias_2": np.zeros(CLASSES),
    }
    return {name: value.astype(np.float32) for name, value in drawn.items()}


def initial_state(params: Params) -> dict[str, Any]:
    """Return parameters, and Adam's moments and step count."""
    zeros = {name: np.zeros_like(value) for name, value in params.items()}
    return {"params": params, "first": zeros, "second": dict(zeros), "count": np.zeros((), np.float32)}


def forward(params: Params, images: Any) -> Any:
    from ..ops import gelu, layer_norm

    hidden = images @ params["weight_1"] + params["bias_1"]
    hidden = layer_norm(hidden, (HIDDEN,), params["scale"], params["shift"])
    return gelu(hidden, approximate="tanh") @ params["weight_2"] + params["bias_2"]


def loss_of(params: Params, images: Any, labels: Any) -> Any:
    from ..ops import cross_entropy

    return cross_entropy(forward(params, images), labels)


def training_step(state: dict[str, Any], images: Any, labels: Any) -> tuple[dict[str, Any], Any]:
    """One step of Adam; returns the new state and the loss."""
    from .. import value_and_grad
    from ..ops import sqrt

    loss, grads = value_and_grad(loss_of)(state["params"], images, labels)
    return adam(state, grads, sqrt), loss


def adam(state: dict[str, Any], grads: Params, sqrt: Callable[[Any], Any]) -> dict[str, Any]:
    """Update one parameter by Adam; works on traced tensors and on NumPy arrays."""
    count = state["count"] + 1
    first, second, params = {}, {}, {}
    for name, grad in grads.items():
        first[name] = DECAY_1 * state["first"][name] + (1 - DECAY_1) * grad
        second[name] = DECAY_2 * state["second"][name] + (1 - DECAY_2) * grad * grad
        mean = first[name] / (1 - DECAY_1**count)
        spread = second[name] / (1 - DECAY_2**count)
        params[name] = state["params"][name] - RATE * mean / (sqrt(spread) + EPSILON)
    return {"params": params, "first": first, "second": second, "count": count}


# ----- the same by hand, for NumPy


def numpy_step(state: dict[str, Any], images: np.ndarray, labels: np.ndarray) -> tuple[dict[str, Any], Any]:
    """Compute training_step in NumPy, forward and backward written out."""
    params = state["params"]
    rows = np.arange(len(labels))
    hidden = images @ params["weight_1"] + params["bias_1"]
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    inverse = 1 / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + np.float32(1e-5))
    normal = centred * inverse
    inner = normal * params["scale"] + params["shift"]
    factor = np.float32((2 / np.pi) ** 0.5)
    bent = np.tanh(factor * (inner + np.float32(0.044715) * inner * inner * inner))
    active = 0.5 * inner * (1 + bent)
    logits = active @ params["weight_2"] + params["bias_2"]
    shifted = logits - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(axis=1, keepdims=True)
    loss = (np.log(total[:, 0]) - shifted[rows, labels]).mean()

    logits_grad = weights / total
    logits_grad[rows, labels] -= 1
    logits_grad /= np.float32(len(labels))
    active_grad = logits_grad @ params["weight_2"].T
    slope = factor * (1 + np.float32(3 * 0.044715) * inner * inner)
    inner_grad = active_grad * (0.5 * (1 + bent) + 0.5 * inner * (1 - bent * bent) * slope)
    normal_grad = inner_grad * params["scale"]
    mean_grad = normal_grad.mean(axis=1, keepdims=True)
    along = (normal_grad * normal).mean(axis=1, keepdims=True)
    hidden_grad = inverse * (normal_grad - mean_grad - normal * along)
    grads = {
        "weight_1": images.T @ hidden_grad,
        "bias_1": hidden_grad.sum(axis=0),
        "scale": (inner_grad * normal).sum(axis=0),
        "shift": inner_grad.sum(axis=0),
        "weight_2": active.T @ logits_grad,
        "bias_2": logits_grad.sum(axis=0),
    }
    return adam(state, grads, np.sqrt), loss


# ----- the output


def show_data(images: np.ndarray, labels: np.ndarray) -> None:
    print(heading("A classifier for noisy digits"))
    shown = [int(np.flatnonzero(labels == digit)[0]) for digit in range(6)]
    shades = " .:-=+*#%@"
    pictures = images[shown].reshape(-1, HEIGHT, WIDTH)
    levels = np.clip((pictures - 0.1) * len(shades), 0, len(shades) - 1).astype(int)
    for row in range(HEIGHT):
        print("  " + paint("  ".join("".join(shades[level] for level in picture[row]) for picture in levels), "cyan"))
    pixels = HEIGHT * WIDTH
    print(f"  {pixels} pixels -> {HIDDEN} -> layer norm -> gelu -> {CLASSES} classes; batches of {BATCH}\n")


def show_check(ours: tuple[dict[str, Any], Any], theirs: tuple[dict[str, Any], Any]) -> bool:
    """Print the largest differences between a step of smelt and the same step in NumPy."""
    print(heading("One training step against NumPy"))
    rows = [("loss", float(abs(np.asarray(ours[1]) - theirs[1])))]
    for name, value in theirs[0]["first"].items():
        # After the first step Adam's first moment is the gradient, scaled.
        difference = np.abs(np.asarray(ours[0]["first"][name]) - value) / (1 - DECAY_1)
        rows.append((f"gradient of {name}", float(difference.max())))
    good = all(difference < 1e-5 for _, difference in rows)
    print(table([(name, f"{difference:.1e}") for name, difference in rows], right=(1,)))
    print("  " + (paint("the same", "green") if good else paint("different", "red")) + " within 1e-5\n")
    return good


def train(step: Callable[..., Any], state: dict[str, Any], batches: Batches, steps: int) -> dict[str, Any]:
    print(heading("Training: loss, gradient and Adam in one native call"))
    first = None
    for index in range(steps):
        state, loss = step(state, *batches.next())
        if index == 0 or (index + 1) % max(steps // 5, 1) == 0:
            value = float(loss)
            first = first or value
            bar = "#" * max(round(40 * min(value / first, 1)), 1)
            print(f"  step {index + 1:4d}   loss {value:8.5f}  {paint(bar, 'blue')}")
    return state


def show_accuracy(model: Callable[..., Any], state: dict[str, Any], images: np.ndarray, labels: np.ndarray) -> None:
    guesses = np.asarray(model(state["params"], images)).argmax(axis=1)
    print(f"  accuracy on {len(labels)} unseen digits: {paint(f'{(guesses == labels).mean():.1%}', 'green')}\n")


def show_fusion(report: Report) -> None:
    """Print the kernels of the training step, and the refusals of fusion."""
    print(heading("What was fused"))
    count = sum(len(kernel.ops) for kernel in report.kernels)
    print(f"  {count} primitive ops in {len(report.kernels)} kernels")
    rows = []
    for kernel in report.kernels:
        widths = ", ".join(map(str, kernel.vector_widths))
        how = f"vectors of {widths}" if widths else "matrix product" if "bmm" in kernel.ops else ""
        rows.append((kernel.name, f"{len(kernel.ops)}", f"reads {kernel.reads}", f"writes {kernel.writes}", how))
    print(table([("kernel", "ops", "", "", ""), *rows], right=(1,)))
    print(f"  memory traffic {report.bytes_after}, {report.bytes_before} without fusion\n")
    print(heading("Why not more: some of the refusals"))
    for refusal in report.refusals[:4]:
        print(f"  {refusal}")
    print()


def show_loops(graph: Graph) -> None:
    """Print the loop IR of the largest kernel: bias, layer norm and gelu of each row."""
    from ..kernels.loop.text import print_kernel

    print(heading("One kernel of the model: bias, layer norm and gelu"))
    kernels = compile_stages(graph, ["loops"])["loops"]
    # Without source lines: the model is in one of smelt's own files, whose lines are not shown.
    text = max((print_kernel(kernel, locations=False) for kernel in kernels), key=len)
    print(highlight("\n".join(f"  {line}" for line in text.splitlines())))
    print()


def show_speed(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    state: dict[str, Any],
    images: np.ndarray,
    labels: np.ndarray,
    compile_seconds: float,
) -> None:
    print(heading("Speed of one training step"))
    # Interleaved, so that a busy moment of the machine affects both.
    fast = slow = float("inf")
    for _ in range(5):
        fast = min(fast, best_time(ours, (state, images, labels)))
        slow = min(slow, best_time(theirs, (state, images, labels)))
    cores, load = os.cpu_count() or 1, os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    # On a busy machine the threads of NumPy's BLAS wait for each other: the ratio would flatter smelt.
    ratio = f"{slow / fast:.1f} times as fast" if load <= cores else ""
    rows = [("NumPy", time_text(slow), ""), ("smelt", time_text(fast), ratio)]
    print(table([*rows, ("first call, with compilation", time_text(compile_seconds), "")], right=(1,)))
    if load > cores:
        print(paint(f"  no comparison: a load of {load:.1f} on {cores} cores makes these times unreliable", "yellow"))


def best_time(function: Callable[..., Any], arguments: Sequence[Any], seconds: float = 0.2) -> float:
    """Return the seconds of the fastest of many runs, the least disturbed one."""
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        function(*arguments)
        best = min(best, time.perf_counter() - begin)
    return best
