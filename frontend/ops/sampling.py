"""Random permutations and choices."""

from __future__ import annotations

from ..ir.errors import ArgumentError, ShapeError
from ..ir.types import DType, i64
from . import pointwise
from .checks import _functional_assert_async
from .define import Tensor, composite
from .elementary import log1p
from .minmax import clamp_min, minimum
from .ordering import sorted_places
from .random import STREAMS, rand, random_bits
from .reduce import all_true, amax
from .scan import cumsum
from .shapes import Dim, at_least
from .sorted_search import searchsorted
from .view import narrow


@composite(differentiable=False)
def randperm(n: Dim, *, dtype: DType | None = None, seed: Tensor | None = None, stream: int = STREAMS) -> Tensor:
    """A random permutation of the integers below n: the places of random numbers in sorted order."""
    return pointwise.cast(sorted_places(random_bits((n,), seed=seed, stream=stream)), dtype or i64)


def _probabilities(weights: Tensor) -> Tensor:
    """Return weights, which must be finite and not negative, and not all zeros in a row."""
    largest = amax(weights, -1)
    fits = pointwise.logical_and(largest > 0, largest < float("inf"))
    holds = pointwise.logical_and(all_true(fits), all_true(weights >= 0))
    return _functional_assert_async(
        holds, "multinomial: the weights of a row must be finite, not negative and not all zeros", weights
    )


@composite(differentiable=False)
def multinomial(
    self: Tensor,
    num_samples: Dim,
    replacement: bool = False,
    *,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> Tensor:
    """num_samples indices of each row, drawn with probabilities in proportion to its elements."""
    if not self.dtype.is_float:
        raise ArgumentError(f"self is {self.dtype}, expected a float type")
    if self.ndim not in (1, 2):
        raise ShapeError(f"self has {self.ndim} dimensions, expected 1 or 2")
    length = self.shape[-1]
    if length == 0:
        raise ShapeError("a row has no elements, expected 1 or more")
    weights = _probabilities(pointwise.convert(self, self.dtype.compute))
    if not replacement:
        if not at_least(length, num_samples):
            raise ArgumentError(f"num_samples is {num_samples}, without replacement expected at most {length}")
        # The largest of weights divided by exponentially distributed numbers, which are not 0.
        drawn = clamp_min(-log1p(-rand(self.shape, dtype=weights.dtype, seed=seed, stream=stream)), 1e-30)
        return sorted_places(weights / drawn, True, 0, num_samples)
    totals = cumsum(weights, -1)
    total = narrow(totals, -1, length - 1, 1)
    drawn = rand((*self.shape[:-1], num_samples), dtype=weights.dtype, seed=seed, stream=stream) * total
    # A number rounded up to the total belongs to the last index with a weight.
    return minimum(searchsorted(totals, drawn, right=True), searchsorted(totals, total))
