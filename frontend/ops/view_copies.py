"""Copies. smelt's values are never overwritten, so a copy of a view is the view."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

from ..ir.symbolic import Dim
from . import pointwise
from .create import full
from .define import REGISTRY, OpDef, Size, Tensor, composite
from .view import alias, expand, reshape, split, split_with_sizes

# NAME_copy is the op NAME.
VIEWS = (
    "alias",
    "as_strided",
    "detach",
    "diagonal",
    "narrow",
    "permute",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unfold",
    "unsqueeze",
    "view",
    "view_as_complex",
    "view_as_real",
)


def _declare(op: OpDef) -> None:
    @wraps(op.function)
    def body(**arguments: Any) -> Any:
        return op(**arguments)

    # The signature, which is the schema, is the view's.
    body.__name__, body.__module__ = f"{op.name}_copy", __name__
    composite(body)


for _name in VIEWS:
    _declare(REGISTRY[_name])


@composite
def expand_copy(self: Tensor, size: Size, *, implicit: bool = False) -> Tensor:
    """Dimensions of size 1 repeated to size, and new ones added in front; -1 keeps a size."""
    return expand(self, size)


@composite
def _reshape_copy(self: Tensor, size: Size) -> Tensor:
    """The same elements in row-major order under another shape; one size may be -1."""
    return reshape(self, size)


@composite
def lift_fresh_copy(self: Tensor) -> Tensor:
    """self."""
    return alias(self)


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
