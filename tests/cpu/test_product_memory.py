"""Matrix products read nothing beyond their matrices: these end, or begin, at a page that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from support import trace

PAGE = mmap.PAGESIZE
TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
# Around register tiles, vectors, blocks, and where dot products begin to pay.
ROWS = (*range(1, 21), 127, 129, 256, 257)
COLUMNS = (*range(1, 21), 33, 130)
DEPTHS = (1, 2, 31, 63, 64, 65, 127, 128, 129, 257, 1025, 2049)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are protected by mprotect")


def fenced(array: np.ndarray, at_end: bool) -> tuple[np.ndarray, mmap.mmap]:
    """A copy of an array between two pages that may not be touched, next to one of them."""
    pages = -(-array.nbytes // PAGE) + 2
    memory = mmap.mmap(-1, pages * PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    start = (pages - 1) * PAGE - array.nbytes if at_end else PAGE
    copy = np.frombuffer(memory, np.uint8, array.nbytes, start).view(array.dtype).reshape(array.shape)
    copy[...] = array
    for page in (base, base + (pages - 1) * PAGE):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), PAGE, 0) == 0
    return copy, memory


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("name", TYPES)
def test_products_of_random_sizes(name: str, bits: int) -> None:
    choice = random.Random(f"{name} {bits}")
    for number in range(12):
        rows, columns, depth = choice.choice(ROWS), choice.choice(COLUMNS), choice.choice(DEPTHS)
        turned_left, turned_right = choice.random() < 0.3, choice.random() < 0.7
        source = np.random.default_rng(number)
        x, w = (source.standard_normal(shape).astype(TYPES[name]) for shape in ((rows, depth), (depth, columns)))
        given = [np.ascontiguousarray(x.T) if turned_left else x, np.ascontiguousarray(w.T) if turned_right else w]

        def product(x: Any, w: Any, left: bool = turned_left, right: bool = turned_right) -> Any:
            return (ops.transpose(x, 0, 1) if left else x) @ (ops.transpose(w, 0, 1) if right else w)

        program = compile_graph(trace(product, given), CompileOptions(vector_bits=bits, verify=True))
        fences = [fenced(array, choice.random() < 0.6) for array in given]
        wide = np.longdouble if name == "f64" else np.float64
        exact, size = x.astype(wide) @ w.astype(wide), np.abs(x.astype(wide)) @ np.abs(w.astype(wide))
        limit = (2.0**-50 if name == "f64" else 2.0**-21) * size + (2.0**-8 if name == "bf16" else 0) * np.abs(exact)
        results = []
        for count in (1, 2, 3):
            with smelt.threads(count):
                (got,) = program([array for array, _ in fences])
            results.append(got.astype(wide))
        assert (np.abs(results[0] - exact) <= limit).all(), (rows, columns, depth, turned_left, turned_right)
        assert all(np.array_equal(results[0], other) for other in results[1:])
