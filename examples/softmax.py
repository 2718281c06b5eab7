"""Softmax out of five ops becomes one kernel: each row is read once and written once.

python examples/softmax.py
smelt dump examples/softmax.py:softmax --stage loops
"""

from __future__ import annotations

import time

import numpy as np
import smelt
from smelt.ops import amax, exp, sum


@smelt.jit
def softmax(x):
    e = exp(x - amax(x, -1, keepdim=True))
    return e / sum(e, -1, keepdim=True)


softmax.example_args = ["f32[N, 1024]"]


def numpy_softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def best_time(function, x, repeats=10):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function(x)
        times.append(time.perf_counter() - begin)
    return min(times)


def main():
    x = np.random.default_rng(0).normal(size=(2048, 1024)).astype(np.float32)
    difference = np.abs(np.asarray(softmax(x)) - numpy_softmax(x)).max()
    print(f"largest difference from NumPy: {difference:.1e}")
    print(f"NumPy {best_time(numpy_softmax, x) * 1e3:6.2f} ms")
    print(f"smelt {best_time(softmax, x) * 1e3:6.2f} ms")
    print(softmax.report())


if __name__ == "__main__":
    main()
