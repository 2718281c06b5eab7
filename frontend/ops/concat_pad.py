"""Concatenation, padding, scattering of parts into place, triangles.

A join chooses its operand by the index. The derivatives of ops that take a part of a tensor (view.py) are here: they
pad the part with zeros.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import ceil_divide, differs, floor_divide
from ..ir.symbolic import Dim, product
from ..ir.types import TensorType, bool_, i64, promote
from . import pointwise
from .create import full, iota
from .define import Scalar, Size, Tensor, composite, prim, scalar_value
from .kinds import Arguments, ElementBuilder, Index, Join
from .shapes import at_least, clamp_slice, dimension, equal
from .view import (
    alias,
    axis_of,
    diagonal,
    expand,
    movedim,
    place_of,
    ravel,
    replaced,
    reshape,
    slice,
    unfold,
    unsqueeze,
)


def _cat_type(arguments: Arguments) -> TensorType:
    first, *others = arguments["tensors"]
    dim = arguments["dim"]
    total = first.shape[dim]
    for position, value in enumerate(others, 1):
        if value.ndim != first.ndim:
            raise ShapeError(f"tensor {position} has {value.ndim} dimensions, expected {first.ndim} (that of tensor 0)")
        for axis, (size, wanted) in enumerate(zip(value.shape, first.shape)):
            if axis != dim and not equal(size, wanted):
                raise ShapeError(f"tensor {position} has size {size} in dimension {axis}, expected {wanted}")
        total = total + value.shape[dim]
    return TensorType(first.dtype, replaced(first.shape, dim, total))


def _cat_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    dim = arguments["dim"]
    tensors = arguments["tensors"]
    if len(tensors) == 1:
        return builder.load(tensors[0], index)
    result: Any = None
    start: Dim = 0
    for value in tensors:
        end = start + value.shape[dim]
        here = builder.inside(index[dim], start, end)
        element = builder.load(value, replaced(index, dim, index[dim] - start), here)
        result = element if result is None else builder.scalar("where", here, element, result)
        start = end
    return result


@prim(Join(_cat_type, _cat_element))
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along dim."""
    if not tensors:
        raise ArgumentError("there is nothing to join: tensors is empty")
    wanted = promote([value.type for value in tensors])
    # As in PyTorch, an empty 1-dim tensor concatenates with any shape.
    kept = [value for value in tensors if value.shape != (0,)] or [tensors[0]]
    if kept[0].ndim == 0:
        raise ShapeError("0-dim tensors cannot be joined: use stack")
    return {
        "tensors": tuple(pointwise.convert(value, wanted) for value in kept),
        "dim": dimension(dim, kept[0].ndim),
    }


@cat.vjp
def cat_vjp(grad, tensors, dim):
    pieces = []
    start: Dim = 0
    for value in tensors:
        end = start + value.shape[dim]
        pieces.append(slice(grad, dim, start, end))
        start = end
    return {"tensors": tuple(pieces)}


def _pads(arguments: Arguments) -> list[tuple[Dim, Dim]]:
    """Return (before, after) for each dimension."""
    pad = arguments["pad"]
    given = [(pad[position], pad[position + 1]) for position in range(0, len(pad), 2)]
    return [(0, 0)] * (arguments["self"].ndim - len(given)) + given[::-1]


def _pad_type(arguments: Arguments) -> TensorType:
    value: Tensor = arguments["self"]
    shape = tuple(before + size + after for size, (before, after) in zip(value.shape, _pads(arguments)))
    for size in shape:
        if not at_least(size, 0):
            raise ShapeError(f"pad {list(arguments['pad'])} crops more elements than {list(value.shape)} has")
    return TensorType(value.dtype, shape)


def _pad_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    value: Tensor = arguments["self"]
    guard: Any = None
    source: list[Dim] = []
    for place, size, (before, after) in zip(index, value.shape, _pads(arguments)):
        source.append(place - before)
        if before == 0 and after == 0:
            continue
        inside = builder.inside(place - before, 0, size)
        guard = inside if guard is None else builder.scalar("logical_and", guard, inside)
    element = builder.load(value, source, guard)
    fill = arguments["value"]
    if guard is None or (fill == 0 and str(fill)[0] != "-"):
        return element
    return builder.scalar("where", guard, element, builder.constant(fill, value.dtype))


@prim(Join(_pad_type, _pad_element))
def constant_pad_nd(self: Tensor, pad: Size, value: Scalar = 0) -> Tensor:
    """self with value added before and after its last dimensions (the last one first); negative pads crop."""
    if len(pad) % 2 or len(pad) > 2 * self.ndim:
        raise ArgumentError(f"pad {list(pad)} must be pairs for at most {self.ndim} dimensions")
    result = self
    kept: list[Dim] = []
    for position in range(0, len(pad), 2):
        dim = self.ndim - 1 - position // 2
        before, after = pad[position], pad[position + 1]
        size = self.shape[dim]
        start: Dim = -before if isinstance(before, int) and before < 0 else 0
        end: Dim = size + after if isinstance(after, int) and after < 0 else size
        if (start != 0 or end != size) and not at_least(end, start):
            raise ShapeError(f"pad {list(pad)} crops more elements than {list(self.shape)} has")
        if start != 0 or end != size:
            result = slice(result, dim, start, end)
        kept += [before if start == 0 else 0, after if end == size else 0]
    return {"self": result, "pad": tuple(kept), "value": scalar_value(value, self.dtype)}


@constant_pad_nd.vjp
def constant_pad_nd_vjp(grad, pad):
    return constant_pad_nd(grad, tuple(-size for size in pad))


@constant_pad_nd.jvp
def constant_pad_nd_jvp(self_tangent, pad):
    return constant_pad_nd(self_tangent, pad)


# Parts put back


def padding_of(rank: int, dim: int, before: Dim, after: Dim) -> tuple[Dim, ...]:
    """Return the pad argument that pads one dimension."""
    return (*(0 for _ in range(2 * (rank - 1 - dim))), before, after)


@slice.vjp
def slice_vjp(grad, self, dim, start, end, step):
    return slice_backward(grad, self.shape, dim, start, end, step)


@composite
def slice_backward(
    grad_output: Tensor, input_sizes: Sequence[Dim], dim: int, start: Dim | None, end: Dim | None, step: int
) -> Tensor:
    """Zeros of input_sizes with grad_output at the elements that slice reads."""
    rank = grad_output.ndim
    dim = axis_of(dim, rank)
    size = input_sizes[dim]
    low, high = clamp_slice(size, start, end)
    if step == 1:
        return constant_pad_nd(grad_output, padding_of(rank, dim, low, size - high))
    count = grad_output.shape[dim]
    spread = constant_pad_nd(unsqueeze(grad_output, dim + 1), padding_of(rank + 1, dim + 1, 0, step - 1))
    joined = reshape(spread, replaced(grad_output.shape, dim, count * step))
    return constant_pad_nd(joined, padding_of(rank, dim, low, size - low - count * step))


@composite
def select_backward(grad_output: Tensor, input_sizes: Sequence[Dim], dim: int, index: Dim) -> Tensor:
    """Zeros of input_sizes with grad_output at the elements that select reads."""
    dim = axis_of(dim, len(input_sizes))
    start = place_of(index, input_sizes[dim])
    return slice_backward(unsqueeze(grad_output, dim), input_sizes, dim, start, start + 1, 1)


@diagonal.vjp
def diagonal_vjp(grad, self, offset, dim1, dim2):
    return diagonal_backward(grad, self.shape, offset, dim1, dim2)


@composite
def diagonal_backward(
    grad_output: Tensor, input_sizes: Sequence[Dim], offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """Zeros of input_sizes with grad_output on the diagonal."""
    rank = len(input_sizes)
    one, two = axis_of(dim1, rank), axis_of(dim2, rank)
    rows, columns = input_sizes[one], input_sizes[two]
    batch = grad_output.shape[:-1]
    length = grad_output.shape[-1]
    # Along the diagonal the row (offset >= 0) or the column (offset < 0) counts from zero.
    extent = rows if offset >= 0 else columns
    padded = grad_output if length == extent else constant_pad_nd(grad_output, (0, extent - length))
    spread = expand(unsqueeze(padded, -1 if offset >= 0 else -2), (*batch, rows, columns))
    matrix = (rows, columns)
    on = (iota(matrix, dim=1, dtype=i64) - iota(matrix, dim=0, dtype=i64)) == offset
    zero = scalar_value(0, spread.dtype)
    return movedim(pointwise.where(on, spread, zero), (-2, -1), (one, two))


@unfold.vjp
def unfold_vjp(grad, self, dimension, size, step):
    if self.ndim == 0:
        return reshape(slice(grad, 0, 0, 1), ()) if size else full((), 0, dtype=grad.dtype)
    return unfold_backward(grad, self.shape, dimension, size, step)


@composite
def unfold_backward(grad_in: Tensor, input_sizes: Sequence[Dim], dim: int, size: int, step: int) -> Tensor:
    """Zeros of input_sizes with the windows of grad_in added up at their positions."""
    rank = len(input_sizes)
    dim = axis_of(dim, rank)
    count = grad_in.shape[dim]
    windows = movedim(grad_in, -1, dim + 1)
    shape = tuple(input_sizes)
    if step >= size:
        # The windows are disjoint: lay them out with their gaps.
        spread = constant_pad_nd(windows, padding_of(rank + 1, dim + 1, 0, step - size))
        joined = reshape(spread, replaced(shape, dim, count * step))
        return constant_pad_nd(joined, padding_of(rank, dim, 0, shape[dim] - count * step))
    places = iota((count, size), dim=0, dtype=i64) * step + iota((count, size), dim=1, dtype=i64)
    zeros = full(shape, 0, dtype=grad_in.dtype)
    return zeros.index_add(dim, ravel(places), reshape(windows, replaced(shape, dim, count * size)))


def _check_part(src: Tensor, place: Tensor) -> None:
    """Raise unless a part has the shape of the region that it replaces."""
    if src.ndim != place.ndim or any(map(differs, src.shape, place.shape)):
        raise ShapeError(f"src has shape {list(src.shape)}, expected {list(place.shape)}")


@composite
def slice_scatter(
    self: Tensor, src: Tensor, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Tensor:
    """self with src written at the elements that slice reads."""
    dim = axis_of(dim, self.ndim)
    size = self.shape[dim]
    low, high = clamp_slice(size, start, end)
    _check_part(src, slice(self, dim, low, high, step))
    if low == 0 and high == size and step == 1:
        return alias(src)
    count = tuple(src.shape[dim] if position == dim else 1 for position in range(self.ndim))
    extent = tuple(size if position == dim else 1 for position in range(self.ndim))
    mask = slice_backward(full(count, True, dtype=bool_), extent, dim, low, high, step)
    placed = slice_backward(pointwise.cast(src, self.dtype), self.shape, dim, low, high, step)
    return pointwise.where(mask, placed, self)


@composite
def select_scatter(self: Tensor, src: Tensor, dim: int, index: Dim) -> Tensor:
    """self with src written at the elements that select reads."""
    dim = axis_of(dim, self.ndim)
    start = place_of(index, self.shape[dim])
    return slice_scatter(self, unsqueeze(src, dim), dim, start, start + 1)


@composite
def diagonal_scatter(self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """self with src on the diagonal."""
    _check_part(src, diagonal(self, offset, dim1, dim2))
    mask = diagonal_backward(full(src.shape, True, dtype=bool_), self.shape, offset, dim1, dim2)
    placed = diagonal_backward(pointwise.cast(src, self.dtype), self.shape, offset, dim1, dim2)
    return pointwise.where(mask, placed, self)


@composite
def diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dimension of self on their diagonal."""
    rank = self.ndim + 1
    one, two = axis_of(dim1, rank), axis_of(dim2, rank)
    size = self.shape[-1] + builtins.abs(offset)
    rest = iter(self.shape[:-1])
    shape = tuple(size if position in (one, two) else next(rest) for position in range(rank))
    return diagonal_backward(self, shape, offset, one, two)


@composite
def diag(self: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or a matrix with a vector on its diagonal."""
    if self.ndim not in (1, 2):
        raise ShapeError(f"self has {self.ndim} dimensions, expected 1 or 2")
    return diag_embed(self, diagonal) if self.ndim == 1 else self.diagonal(diagonal)


def _triangle(value: Tensor, keep: str, diagonal: int) -> Tensor:
    if value.ndim < 2:
        raise ShapeError(f"self has {value.ndim} dimensions, expected at least 2")
    matrix = value.shape[-2:]
    distance = iota(matrix, dim=1, dtype=i64) - iota(matrix, dim=0, dtype=i64)
    mask = distance <= diagonal if keep == "lower" else distance >= diagonal
    return pointwise.where(mask, value, scalar_value(0, value.dtype))


@composite
def tril(self: Tensor, diagonal: int = 0) -> Tensor:
    """self with zeros above the diagonal."""
    return _triangle(self, "lower", diagonal)


@composite
def triu(self: Tensor, diagonal: int = 0) -> Tensor:
    """self with zeros below the diagonal."""
    return _triangle(self, "upper", diagonal)


# Joins made of cat


@composite
def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along dim."""
    return cat(tensors, dim)


@composite
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along a new dimension."""
    if not tensors:
        raise ArgumentError("there is nothing to join: tensors is empty")
    return cat([unsqueeze(value, dim) for value in tensors], dimension(dim, tensors[0].ndim + 1))


@composite
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Vectors one after the other, all else along dimension 1."""
    parts = [reshape(value, (1,)) if value.ndim == 0 else value for value in tensors]
    return cat(parts, 0 if parts and parts[0].ndim == 1 else 1)


@composite
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors as rows one after the other."""
    return cat([reshape(value, (1, value.type.numel)) if value.ndim < 2 else value for value in tensors], 0)


@composite
def meshgrid(tensors: Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of vectors: result k has tensors[k] along dimension k ("xy" swaps the first two)."""
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"indexing is {indexing!r}, accepted are 'ij' and 'xy'")
    swapped = indexing == "xy" and len(tensors) > 1
    axes = [1, 0, *range(2, len(tensors))] if swapped else list(range(len(tensors)))
    shape: list[Dim] = [1] * len(tensors)
    for value, axis in zip(tensors, axes):
        if value.ndim > 1:
            raise ShapeError(f"a tensor has {value.ndim} dimensions, expected at most 1")
        shape[axis] = value.type.numel
    return tuple(
        expand(reshape(value, [shape[axis] if place == axis else 1 for place in range(len(axes))]), shape)
        for value, axis in zip(tensors, axes)
    )


@composite
def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Tensor:
    """Each tensor cut into num_chunks along dim, padded with zeros, and its parts flattened and set side by side."""
    if num_chunks < 1:
        raise ArgumentError(f"num_chunks is {num_chunks}, expected 1 or more")
    parts: list[Tensor] = []
    for tensor in tensors:
        at = dimension(dim, tensor.ndim)
        missing = ceil_divide(tensor.shape[at], num_chunks) * num_chunks - tensor.shape[at]
        whole = constant_pad_nd(tensor, padding_of(tensor.ndim, at, 0, missing))
        rest = floor_divide(whole.shape[at], num_chunks) * product(tensor.shape[at + 1 :])
        parts.append(reshape(whole, (*tensor.shape[:at], num_chunks, rest)))
    return cat(parts, dimension(dim, tensors[0].ndim) + 1)


@composite
def to_padded_tensor(self: Sequence[Tensor], padding: float, output_size: Sequence[int] | None = None) -> Tensor:
    """The tensors, each padded at its ends to the largest sizes, stacked.

    A nested tensor is a sequence of tensors of one rank; `output_size` has the number of them first.
    """
    ranks = {item.ndim for item in self}
    if len(ranks) != 1 or 0 in ranks:
        raise ShapeError(f"the tensors have {sorted(ranks)} dimensions, expected as many of each, one or more")
    if not all(isinstance(size, int) for item in self for size in item.shape):
        raise ShapeError("the sizes of the tensors must be known while tracing: the largest is that of the result")
    largest = [max(sizes) for sizes in zip(*(item.shape for item in self), strict=True)]
    wanted = largest if output_size is None else [int(size) for size in output_size[1:]]
    if output_size is not None and (len(output_size) != 1 + len(largest) or output_size[0] != len(self)):
        raise ShapeError(f"output_size is {list(output_size)} for {len(self)} tensors of {len(largest)} dimensions")
    if any(size < least for size, least in zip(wanted, largest, strict=True)):
        raise ShapeError(f"output_size is {list(output_size or ())}, smaller than the largest sizes, {largest}")
    padded = []
    for item in self:
        ends = [end for size, whole in zip(item.shape, wanted, strict=True) for end in (whole - size, 0)]
        padded.append(constant_pad_nd(item, tuple(reversed(ends)), padding))
    return stack(padded)
