"""Workloads: one function over a namespace of ops, its inputs, and its sizes.

    @workload("softmax", one, sizes(tiny=(3, 5), small=(32, 64), medium=(256, 1024), large=(4096, 1024)))
    def softmax_rows(xp: Names, x: Array) -> Array:
        '''Softmax of each row.'''
        return xp.softmax(x, -1)

`xp` is one of the modules `names_smelt`, `names_numpy`, `names_torch` and `names_jax`: PyTorch's names, spelled
for each library. Where other code is better for a library, the workload gets a separate version:
`@softmax_rows.by_numpy`, `@softmax_rows.by_numba`. Numba works on loops, so it has no namespace: `by_numba` takes
a function that is given the module numba and returns the compiled function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optree

Array = Any
Names = Any
Function = Callable[..., Any]
Size = tuple[int, ...]

SIZES = ("tiny", "small", "medium", "large")


class Draw:
    """Random inputs. Floats are drawn in f64 and rounded to the workload's type afterwards."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return self.random.normal(0.0, scale, shape)

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        return self.random.uniform(low, high, shape)

    def integers(self, below: int, *shape: int) -> np.ndarray:
        return self.random.integers(0, below, shape)

    def mask(self, *shape: int) -> np.ndarray:
        return self.random.random(shape) < 0.8


@dataclass
class Workload:
    """A function to measure, with its inputs. `dtype` is the type of its floats."""

    name: str
    group: str
    function: Function
    inputs: Callable[..., Sequence[Any]]
    sizes: dict[str, Size]
    dtype: str = "f32"
    has_numpy: bool = True
    own: dict[str, Function] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        return " ".join((self.function.__doc__ or "").split())

    def make_inputs(self, size: str, dtype: str | None = None) -> list[Any]:
        """Return the inputs: the same numbers in every call, for every contender."""
        wanted = np.dtype({"f32": np.float32, "f64": np.float64}[dtype or self.dtype])
        drawn = self.inputs(Draw(seed=0), *self.sizes[size])

        def rounded(array: np.ndarray) -> np.ndarray:
            return array.astype(wanted) if array.dtype.kind == "f" else array

        return [optree.tree_map(rounded, item) for item in drawn]

    def by_numpy(self, function: Function) -> Function:
        """Register a NumPy version."""
        self.own["numpy"] = function
        self.has_numpy = True
        return function

    def by_numba(self, make: Function) -> Function:
        """Register a Numba version: `make(numba)` returns the compiled function."""
        self.own["numba"] = make
        return make


def sizes(tiny: Size, small: Size, medium: Size, large: Size) -> dict[str, Size]:
    """Return the arguments, by size, of the function that draws inputs. Large exceeds the caches, tiny is for tests."""
    return dict(zip(SIZES, (tiny, small, medium, large), strict=True))


def workload(
    group: str,
    inputs: Callable[..., Sequence[Any]],
    sizes: dict[str, Size],
    *,
    dtype: str = "f32",
    has_numpy: bool = True,
) -> Callable[[Function], Workload]:
    """Make a workload of a function; it is named after the function. Without `has_numpy` NumPy is left out."""

    def declare(function: Function) -> Workload:
        return Workload(function.__name__, group, function, inputs, sizes, dtype, has_numpy)

    return declare
