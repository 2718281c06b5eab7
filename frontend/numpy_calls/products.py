"""NumPy's products of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ShapeError, TraceError
from ..ir.graph import current_location
from ..ops.shapes import equal
from ..promotion import apply_ufunc
from .common import arrays_together, axes_of, call, is_int, numpys, refuse, tensor, together


@numpys(np.dot)
def dot(a: Any, b: Any, out: None = None) -> Any:
    """np.dot: a product of numbers, or a contraction of the last dim of a with the last but one of b."""
    refuse("dot", out=(out, None))
    ranks = np.ndim(a), np.ndim(b)
    if 0 in ranks:
        return apply_ufunc(np.multiply, tensor(a), tensor(b))
    if ranks[1] <= 2:
        return apply_ufunc(np.matmul, a, b)
    left, right = together(a, b)
    return _contracted(left, right, (ranks[0] - 1, ranks[1] - 2), "dot")


@numpys(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    left, right = arrays_together(a, b)
    return _contracted(left, right, axes, "tensordot")


def _contracted(left: Any, right: Any, axes: Any, function: str) -> Any:
    """Contract pairs of dims; their sizes must be equal, since NumPy, unlike PyTorch, does not broadcast them."""
    ranks = left.ndim, right.ndim
    if is_int(axes):
        if not 0 <= axes <= min(ranks):
            raise ShapeError(
                f"numpy.{function} over {axes} dims of tensors of {ranks[0]} and {ranks[1]}", current_location()
            )
        axes = tuple(range(ranks[0] - axes, ranks[0])), tuple(range(axes))
    if not isinstance(axes, (tuple, list)) or len(axes) != 2:
        raise ArgumentError(f"numpy.{function}: axes is {axes!r}, expected an int or two lists", current_location())
    first, second = (axes_of(tuple(item) if isinstance(item, list) else item, rank) for item, rank in zip(axes, ranks))
    if len(first) != len(second) or not all(
        equal(left.type.shape[i], right.type.shape[j]) for i, j in zip(first, second)
    ):
        raise ShapeError(
            f"numpy.{function}: dims {first} of {left.type} and {second} of {right.type} differ in size",
            current_location(),
        )
    return call("tensordot", left, right, first, second)


@numpys(np.outer)
def outer(a: Any, b: Any, out: None = None) -> Any:
    refuse("outer", out=(out, None))
    left, right = (call("ravel", item) for item in arrays_together(a, b))
    return call("outer", left, right)


@numpys(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    left, right = (call("ravel", item) for item in arrays_together(a, b))
    return apply_ufunc(np.matmul, call("conj", left) if left.dtype.is_complex else left, right)


@numpys(np.kron)
def kron(a: Any, b: Any) -> Any:
    return call("kron", *arrays_together(a, b))


@numpys(np.einsum)
def einsum(subscripts: str, *operands: Any) -> Any:
    if not isinstance(subscripts, str):
        raise TraceError("numpy.einsum on traced tensors takes its subscripts as a text first", current_location())
    return call("einsum", subscripts, arrays_together(*operands))
