"""Programs on bools whose masks LLVM could know: compiling them ends, and they compute what NumPy does."""

from __future__ import annotations

from support import run

PROGRAMS = """
import numpy as np
import smelt
from smelt import ops

generator = np.random.default_rng(0)

def check(function, *arrays):
    found, wanted = smelt.jit(function)(*arrays), function(*arrays)
    assert np.array_equal(found, wanted), (function, [array.shape for array in arrays])

for length in (17, 33, 63, 64, 65, 100, 127):
    a, b, c, d = (generator.random(length) < 0.5 for _ in range(4))
    numbers = np.arange(length)
    check(lambda a, b, c, d: np.concatenate([a, b, c, d]).sum(), a, b, c, d)
    check(lambda a, b: np.concatenate([a, b]), a, b)
    check(lambda a, b: np.concatenate([a, b]).any() & np.concatenate([b, a]).all(), a, b)
    check(lambda a, n: (np.pad(a, (3, 5)).sum(), n.sum())[0], a, numbers)
    check(lambda a, n: n - np.roll(a, 3), a, numbers)
    check(lambda a, n: n + np.flip(np.concatenate([a, a]))[: n.shape[0]], a, numbers)
    check(lambda a, b: np.where(np.arange(a.shape[0]) % 3 == 0, a, b).sum(), a, b)
    check(lambda a, b: np.where(np.arange(a.shape[0]) < 5, a, b).argmax(), a, b)
    check(lambda a: np.tril(np.broadcast_to(a, (a.shape[0], a.shape[0]))).sum(0), a)
    check(lambda a: np.cumsum(np.concatenate([a, a])), a)
    found = smelt.jit(lambda a: ops.cummax(ops.cat([a, a]), 0)[0])(a)
    assert np.array_equal(found, np.maximum.accumulate(np.concatenate([a, a]))), length
print("done")
"""


def test_no_program_on_bools_keeps_llvm_from_ending() -> None:
    assert run(PROGRAMS) == "done"
