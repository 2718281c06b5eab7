"""Copies whose signature is not that of the view (aliases.py has the others)."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.symbolic import Dim
from . import pointwise
from .create import full
from .define import Size, Tensor, composite
from .view import expand, reshape, split, split_with_sizes


@composite
def expand_copy(self: Tensor, size: Size, *, implicit: bool = False) -> Tensor:
    """Dimensions of size 1 repeated to size, and new ones added in front; -1 keeps a size."""
    return expand(self, size)


@composite
def _reshape_copy(self: Tensor, size: Size) -> Tensor:
    """The same elements in row-major order under another shape; one size may be -1."""
    return reshape(self, size)


@composite
def copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """src in the shape and type of self."""
    return expand(pointwise.convert(src, self.dtype), self.shape)


@composite
def zero(self: Tensor) -> Tensor:
    """0 in the shape of self."""
    return full(self.shape, 0, dtype=self.dtype)


@composite
def unsafe_split(self: Tensor, split_size: Dim, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of split_size along dim."""
    return split(self, split_size, dim)


@composite
def unsafe_split_with_sizes(self: Tensor, split_sizes: Sequence[Dim], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of the given sizes along dim."""
    return split_with_sizes(self, split_sizes, dim)
