"""Ops whose result has a size that data decide: nonzero, masked_select, unique, bincount, ...

All of them are made of one primitive, the places of a mask's true elements, whose size is an argument. It is a number,
the user's `size=`, or the symbol of a count that the program computes (`places_of`, ir/decided.py).
"""

from __future__ import annotations

from ..ir.errors import DTypeError
from ..ir.symbolic import Dim, product
from ..ir.types import bool_, i64
from . import pointwise
from .concat_pad import stack
from .create import full
from .define import Tensor, composite
from .indexing import index_select
from .places import indices_at, places_of, true_places, truth
from .shapes import broadcast
from .view import expand, reshape, unsqueeze


@composite(differentiable=False)
def nonzero_static(self: Tensor, *, size: Dim, fill_value: int = -1) -> Tensor:
    """The indices of the first size nonzero elements, a row each; rows beyond them are fill_value."""
    if not self.ndim:
        return full((size, 0), 0, dtype=i64)
    places = true_places(truth(self), size)
    indices = stack(indices_at(places, self.shape), 1)
    return pointwise.where(unsqueeze(places < 0, 1), fill_value, indices)


@composite(differentiable=False)
def nonzero(self: Tensor, *, size: Dim | None = None, fill_value: int = 0) -> Tensor:
    """The indices of the nonzero elements, a row each; with size, of the first size, then rows of fill_value."""
    if size is not None:
        return nonzero_static(self, size=size, fill_value=fill_value)
    places = places_of(truth(self), "nonzero")
    return stack(indices_at(places, self.shape), 1) if self.ndim else full((places.shape[0], 0), 0, dtype=i64)


@composite(differentiable=False)
def argwhere(self: Tensor, *, size: Dim | None = None, fill_value: int = 0) -> Tensor:
    """nonzero."""
    return nonzero(self, size=size, fill_value=fill_value)


@composite
def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements of self where mask holds, in row-major order."""
    if mask.dtype is not bool_:
        raise DTypeError(f"mask is {mask.dtype}, accepted is bool")
    shape = broadcast([self.shape, mask.shape])
    places = places_of(truth(expand(mask, shape)), "masked_select")
    return index_select(reshape(expand(self, shape), (product(shape),)), 0, places)
