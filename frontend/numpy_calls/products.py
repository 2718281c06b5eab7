"""NumPy's products of tensors."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ShapeError, TraceError
from ..ir.graph import current_location
from ..ops.shapes import equal
from ..promotion import apply_ufunc
from .common import arrays_together, axes_of, call, inexact, is_int, numpys, refuse, tensor, together


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


@numpys(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    left, right = arrays_together(a, b)
    if not left.ndim or not right.ndim:
        return apply_ufunc(np.multiply, left, right)
    return _contracted(left, right, (left.ndim - 1, right.ndim - 1), "inner")


@numpys(np.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """np.cross of vectors of three elements."""
    if axis is not None:
        axisa = axisb = axisc = axis
    left, right = arrays_together(a, b)
    left, right = np.moveaxis(left, axisa, -1), np.moveaxis(right, axisb, -1)
    if not (equal(left.type.shape[-1], 3) and equal(right.type.shape[-1], 3)):
        raise ShapeError(
            f"numpy.cross: vectors of {left.type.shape[-1]} and {right.type.shape[-1]}, expected 3", current_location()
        )
    one, other = ([item[..., at] for at in range(3)] for item in (left, right))
    found = np.stack(
        [
            one[1] * other[2] - one[2] * other[1],
            one[2] * other[0] - one[0] * other[2],
            one[0] * other[1] - one[1] * other[0],
        ],
        axis=-1,
    )
    return np.moveaxis(found, -1, axisc)


@numpys(np.linalg.multi_dot)
def multi_dot(arrays: Any, *, out: None = None) -> Any:
    """np.linalg.multi_dot, from left to right."""
    refuse("multi_dot", out=(out, None))
    items = list(map(tensor, arrays))
    if len(items) < 2:
        raise ArgumentError(f"numpy.linalg.multi_dot of {len(items)} arrays, expected two or more", current_location())
    return reduce(dot, items)


@numpys(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    x = tensor(a)
    if x.ndim < 2 or not equal(x.type.shape[-1], x.type.shape[-2]):
        raise ShapeError(f"numpy.linalg.matrix_power of {x.type}: expected square matrices", current_location())
    if not is_int(n) or n < 0:
        raise ArgumentError(f"numpy.linalg.matrix_power: n is {n!r}, expected no negative int", current_location())
    if not n:
        return np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype.numpy), x.shape) * np.ones_like(x)
    found = None
    while n:
        found = (x if found is None else found @ x) if n & 1 else found
        n >>= 1
        x = x @ x if n else x
    return found


@numpys(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm of vectors, and the norms of matrices that need no singular values."""
    given = inexact(tensor(x))
    size = np.abs(given)
    if axis is None:
        if ord is None or (ord in ("f", "fro") and given.ndim == 2) or (ord == 2 and given.ndim == 1):
            found = np.sqrt(np.sum(size * size))
            return np.reshape(found, (1,) * given.ndim) if keepdims else found
        axis = tuple(range(given.ndim))
    axes = axes_of(tuple(axis) if isinstance(axis, list) else axis, given.ndim)
    if len(axes) == 1:
        return _vector_norm(size, 2 if ord is None else ord, axes, keepdims)
    if len(axes) != 2:
        raise ArgumentError(f"numpy.linalg.norm over {len(axes)} dims, expected one or two", current_location())
    if ord is None or ord in ("f", "fro"):
        return _vector_norm(size, 2, axes, keepdims)
    if ord in (1, -1, np.inf, -np.inf):
        inner_axis, outer_axis = axes if abs(ord) == 1 else axes[::-1]
        sums = np.sum(size, axis=inner_axis, keepdims=True)
        found = (np.max if ord > 0 else np.min)(sums, axis=outer_axis, keepdims=True)
        return found if keepdims else np.squeeze(found, axis=axes)
    raise ArgumentError(f"numpy.linalg.norm: ord={ord!r} of matrices needs their singular values", current_location())


def _vector_norm(size: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ArgumentError(f"numpy.linalg.norm: ord is {ord!r} for vectors", current_location())
    if ord in (np.inf, -np.inf):
        return (np.max if ord > 0 else np.min)(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return call("cast", np.sum(size != 0, axis=axes, keepdims=keepdims), size.dtype)
    if ord == 1:
        return np.sum(size, axis=axes, keepdims=keepdims)
    if ord == 2:
        return np.sqrt(np.sum(size * size, axis=axes, keepdims=keepdims))
    return np.sum(size**ord, axis=axes, keepdims=keepdims) ** (1.0 / ord)
