"""Ops that move elements and compute nothing: views, and ops on shapes and parts composed of them.

A view is an index map from the result to the operand, so a chain of views costs nothing: the map is applied
where an element is read. The derivatives of slice, diagonal and unfold put parts back: join.py.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import ceil_divide, floor_divide, maximum, minimum, remainder
from ..ir.symbolic import Dim, Expr, SizeNeeded, contiguous_strides, product
from .define import Dims, Size, Tensor, composite, prim, zero_derivative
from .derivatives import forward_to
from .kinds import Arguments, Index, View
from .shapes import Shape, at_least, broadcast, clamp_slice, dimension, dimensions, divides, equal, resolve_reshape


def replaced(shape: Sequence[Dim], dim: int, *sizes: Dim) -> Shape:
    """Return the shape with one dimension replaced by others, or removed."""
    return (*shape[:dim], *sizes, *shape[dim + 1 :])


def axis_of(dim: int, rank: int) -> int:
    """Return a dimension counted from the front, of a tensor with at least one."""
    if rank == 0:
        raise ShapeError("a 0-dim tensor has no dimension to work on")
    return dimension(dim, rank)


# Index maps


@prim(View(lambda a: a["self"].shape, lambda index, a: index))
def alias(self: Tensor) -> Tensor:
    """self, as another value."""


@alias.vjp
def alias_vjp(grad):
    return grad


def _permute_index(index: Index, arguments: Arguments) -> Index:
    source: list[Dim] = [0] * len(index)
    for position, dim in enumerate(arguments["dims"]):
        source[dim] = index[position]
    return source


def _permute_rigid(arguments: Arguments, shape: Shape) -> tuple[int | None, ...]:
    position = {dim: at for at, dim in enumerate(arguments["dims"])}
    return tuple(position[dim] for dim in range(len(shape)))


@prim(
    View(lambda a: tuple(a["self"].shape[dim] for dim in a["dims"]), _permute_index, once=True, rigid=_permute_rigid),
    keeps_sign=True,
    turns=True,
)
def permute(self: Tensor, dims: Size) -> Tensor:
    """The dimensions in another order: result dimension k is dims[k] of self."""
    wanted = tuple(dimension(dim, self.ndim) for dim in dims)  # type: ignore[arg-type]
    if sorted(wanted) != list(range(self.ndim)):
        raise ArgumentError(f"dims {list(dims)} is not an order of the {self.ndim} dimensions of self")
    return {"dims": wanted}


@permute.vjp
def permute_vjp(grad, dims):
    return permute(grad, tuple(dims.index(position) for position in range(len(dims))))


def _expand_index(index: Index, arguments: Arguments) -> Index:
    old: Shape = arguments["self"].shape
    kept = index[len(index) - len(old) :]
    new = arguments["size"][len(index) - len(old) :]
    return [0 if size == 1 and target != 1 else place for place, size, target in zip(kept, old, new)]


def _expand_rigid(arguments: Arguments, shape: Shape) -> tuple[int | None, ...]:
    sizes = arguments["self"].shape
    lead = len(shape) - len(sizes)
    return tuple(lead + dim if shape[lead + dim] == size else None for dim, size in enumerate(sizes))


@prim(View(lambda a: a["size"], _expand_index, rigid=_expand_rigid), keeps_sign=True)
def expand(self: Tensor, size: Size) -> Tensor:
    """Dimensions of size 1 repeated to size, and new ones added in front; -1 keeps a size."""
    added = len(size) - self.ndim
    if added < 0:
        raise ShapeError(f"{len(size)} sizes for a tensor of {self.ndim} dimensions")
    result: list[Dim] = []
    for position, wanted in enumerate(size):
        old: Dim = self.shape[position - added] if position >= added else 1
        if isinstance(wanted, int) and wanted == -1:
            if position < added:
                raise ShapeError(f"size {list(size)} has -1 for a new dimension")
            wanted = old
        elif old != 1 and old != wanted and not equal(old, wanted):
            raise ShapeError(f"cannot expand {list(self.shape)} to {list(size)}: {old} meets {wanted}")
        result.append(wanted)
    return {"size": tuple(result)}


@expand.vjp
def expand_vjp(grad, self, size):
    added = len(size) - self.ndim
    repeated = [position for position in range(self.ndim) if self.shape[position] == 1 and size[position + added] != 1]
    if repeated:
        grad = grad.sum(tuple(position + added for position in repeated), True)
    return grad.sum(tuple(range(added))) if added else grad


def _slice_shape(arguments: Arguments) -> Shape:
    dim, start, end = arguments["dim"], arguments["start"], arguments["end"]
    return replaced(arguments["self"].shape, dim, ceil_divide(end - start, arguments["step"]))


def _slice_index(index: Index, arguments: Arguments) -> Index:
    dim = arguments["dim"]
    return replaced(index, dim, index[dim] * arguments["step"] + arguments["start"])


@prim(View(_slice_shape, _slice_index, once=True), keeps_sign=True)
def slice(self: Tensor, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1) -> Tensor:
    """Every step-th element of dimension dim from start to before end."""
    dim = axis_of(dim, self.ndim)
    if isinstance(step, Expr):
        raise SizeNeeded(step)
    if not isinstance(step, int) or step < 1:
        raise ArgumentError(f"step is {step}, expected a positive int")
    low, high = clamp_slice(self.shape[dim], start, end)
    return {"dim": dim, "start": low, "end": high}


def dim_groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Return the dimensions of old that make up those of new, in groups as small as possible. Sizes of 1 are left
    out."""
    left = [position for position, size in enumerate(old) if size != 1]
    right = [position for position, size in enumerate(new) if size != 1]
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        first, second = i, j
        have, want = old[left[i]], new[right[j]]
        i, j = i + 1, j + 1
        while have != want:
            if isinstance(have, int) and isinstance(want, int):
                grow_left = have < want
            elif remainder(want, have) == 0:
                grow_left = True
            elif remainder(have, want) == 0:
                grow_left = False
            else:
                i, j = len(left), len(right)
                break
            if grow_left and i < len(left):
                have = have * old[left[i]]
                i += 1
            elif not grow_left and j < len(right):
                want = want * new[right[j]]
                j += 1
            else:
                i, j = len(left), len(right)
                break
        found.append((left[first:i], right[second:j]))
    if found and (i < len(left) or j < len(right)):
        found[-1] = (found[-1][0] + left[i:], found[-1][1] + right[j:])
    return found


def _reshape_index(index: Index, arguments: Arguments) -> Index:
    old: Shape = arguments["self"].shape
    new: Shape = arguments["shape"]
    source: list[Dim] = [0] * len(old)
    if any(size == 0 for size in old):
        return source
    for olds, news in dim_groups(old, new):
        linear: Dim = 0
        for position, stride in zip(news, contiguous_strides(new[position] for position in news)):
            linear = linear + index[position] * stride
        strides = contiguous_strides(old[position] for position in olds)
        for order, (position, stride) in enumerate(zip(olds, strides)):
            place = floor_divide(linear, stride)
            source[position] = place if order == 0 else remainder(place, old[position])
    return source


def _reshape_rigid(arguments: Arguments, shape: Shape) -> tuple[int | None, ...] | None:
    sources = unit_reshape(arguments["self"].shape, shape)
    if sources is None:
        return None
    back = {source: at for at, source in enumerate(sources) if source is not None}
    return tuple(back.get(dim) for dim in range(len(arguments["self"].shape)))


@prim(View(lambda a: a["shape"], _reshape_index, once=True, keeps_order=True, rigid=_reshape_rigid), keeps_sign=True)
def reshape(self: Tensor, shape: Size) -> Tensor:
    """The same elements in row-major order under another shape; one size may be -1."""
    return {"shape": resolve_reshape(self.shape, shape)}


@reshape.vjp
def reshape_vjp(grad, self):
    return reshape(grad, self.shape)


def unit_reshape(old_shape: Shape, new_shape: Shape) -> tuple[int | None, ...] | None:
    """Return, for a reshape that only inserts or removes sizes of 1, the old dimension of each new one, None if new.

    None for all other reshapes."""
    result: list[int | None] = []
    i = 0
    for size in new_shape:
        while i < len(old_shape) and old_shape[i] != size and old_shape[i] == 1:
            i += 1
        if i < len(old_shape) and old_shape[i] == size:
            result.append(i)
            i += 1
        elif size == 1:
            result.append(None)
        else:
            return None
    return tuple(result) if all(size == 1 for size in old_shape[i:]) else None


def _flip_index(index: Index, arguments: Arguments) -> Index:
    shape, dims = arguments["self"].shape, arguments["dims"]
    return [shape[position] - 1 - place if position in dims else place for position, place in enumerate(index)]


@prim(View(lambda a: a["self"].shape, _flip_index, once=True), keeps_sign=True)
def flip(self: Tensor, dims: Size) -> Tensor:
    """The order of the elements reversed along dims."""
    return {"dims": dimensions(dims, self.ndim, empty_is_all=False)}  # type: ignore[arg-type]


flip.derivative = forward_to(flip, self="grad")


def _roll_index(index: Index, arguments: Arguments) -> Index:
    source = list(index)
    for shift, dim in zip(arguments["shifts"], arguments["dims"]):
        size = arguments["self"].shape[dim]
        if size != 0:
            source[dim] = remainder(index[dim] + (size - shift), size)
    return source


@prim(View(lambda a: a["self"].shape, _roll_index))
def cyclic_shift(self: Tensor, shifts: Sequence[Dim], dims: Sequence[int]) -> Tensor:
    """Elements moved along dims by shifts, cyclically."""
    wanted = tuple(dimension(dim, self.ndim) for dim in dims)
    if len(wanted) != len(shifts):
        raise ArgumentError(f"{len(shifts)} shifts for {len(wanted)} dims")
    total: dict[int, Dim] = {}  # a dim given twice moves by the sum of its shifts
    for shift, dim in zip(shifts, wanted):
        total[dim] = total.get(dim, 0) + shift
    whole = tuple(remainder(shift, self.shape[dim]) if self.shape[dim] != 0 else 0 for dim, shift in total.items())
    return {"shifts": whole, "dims": tuple(total)}


@cyclic_shift.vjp
def cyclic_shift_vjp(grad, shifts, dims):
    return cyclic_shift(grad, tuple(-shift for shift in shifts), dims)


def _diagonal_length(rows: Dim, columns: Dim, offset: int) -> Dim:
    return maximum(minimum(rows, columns - offset) if offset >= 0 else minimum(rows + offset, columns), 0)


def _diagonal_shape(arguments: Arguments) -> Shape:
    shape, one, two = arguments["self"].shape, arguments["dim1"], arguments["dim2"]
    rest = (size for position, size in enumerate(shape) if position not in (one, two))
    return (*rest, _diagonal_length(shape[one], shape[two], arguments["offset"]))


def _diagonal_index(index: Index, arguments: Arguments) -> Index:
    one, two, offset = arguments["dim1"], arguments["dim2"], arguments["offset"]
    rest = iter(index[:-1])
    place = {one: index[-1] + builtins.max(-offset, 0), two: index[-1] + builtins.max(offset, 0)}
    return [place[position] if position in place else next(rest) for position in range(len(index) + 1)]


@prim(View(_diagonal_shape, _diagonal_index, once=True), keeps_sign=True)
def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements whose index along dim2 is offset more than along dim1, as the last dimension."""
    one, two = axis_of(dim1, self.ndim), axis_of(dim2, self.ndim)
    if one == two:
        raise ArgumentError(f"dim1 and dim2 are the same dimension {one}")
    return {"dim1": one, "dim2": two}


def _unfold_shape(arguments: Arguments) -> Shape:
    shape, dim, size = arguments["self"].shape, arguments["dimension"], arguments["size"]
    if not shape:
        return (size,)
    return (*replaced(shape, dim, floor_divide(shape[dim] - size, arguments["step"]) + 1), size)


def _unfold_index(index: Index, arguments: Arguments) -> Index:
    dim = arguments["dimension"]
    if len(index) == 1:
        return []
    return replaced(index[:-1], dim, index[dim] * arguments["step"] + index[-1])


@prim(View(_unfold_shape, _unfold_index))
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of size along dimension, step apart; the position in the window is the last dimension."""
    extent = self.shape[axis_of(dimension, self.ndim)] if self.ndim else 1
    if step < 1 or size < 0:
        raise ArgumentError(f"size is {size} and step {step}, expected size >= 0 and step >= 1")
    if not at_least(extent, size):
        raise ShapeError(f"a window of {size} is larger than the dimension, which has {extent}")
    return {"dimension": dimension % builtins.max(self.ndim, 1)}


def _strided_index(index: Index, arguments: Arguments) -> Index:
    place: Dim = arguments["storage_offset"]
    for position, stride in zip(index, arguments["stride"]):
        place = place + position * stride
    return [place]


@prim(View(lambda a: a["size"], _strided_index))
def as_strided(self: Tensor, size: Size, stride: Size, storage_offset: Dim | None = None) -> Tensor:
    """Of the elements in row-major order, those at storage_offset plus any multiples, below size, of stride."""
    if len(size) != len(stride):
        raise ArgumentError(f"{len(size)} sizes for {len(stride)} strides")
    start: Dim = 0 if storage_offset is None else storage_offset
    last, count = start, product(self.shape)
    for extent, step in zip(size, stride):
        last = last + (extent - 1) * step
    if all(extent != 0 for extent in size):
        ends = (last, start, *stride)
        if not at_least(count, last + 1) or any(isinstance(end, int) and end < 0 for end in ends):
            raise ShapeError(
                f"sizes {list(size)}, strides {list(stride)} and offset {start} are out of range for {count} elements"
            )
    return {"self": reshape(self, (-1,)) if self.ndim != 1 else self, "storage_offset": start}


# Shapes


@composite
def detach(self: Tensor) -> Tensor:
    """self, through which no derivative passes."""
    return alias(self)


zero_derivative(detach)


@composite
def contiguous(self: Tensor, *, memory_format: object = None) -> Tensor:
    """self: smelt's tensors are always contiguous."""
    return alias(self)


@composite
def clone(self: Tensor, *, memory_format: object = None) -> Tensor:
    """A copy of self; copies are only made where something would be overwritten."""
    return alias(self)


@composite(turns=True)
def transpose(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """self with two dimensions swapped."""
    order = list(range(self.ndim))
    if order:
        one, two = dimension(dim0, self.ndim), dimension(dim1, self.ndim)
        order[one], order[two] = order[two], order[one]
    return permute(self, order)


@composite(turns=True)
def swapaxes(self: Tensor, axis0: int, axis1: int) -> Tensor:
    """self with two dimensions swapped."""
    return transpose(self, axis0, axis1)


@composite(turns=True)
def t(self: Tensor) -> Tensor:
    """A matrix transposed; a vector as it is."""
    if self.ndim > 2:
        raise ShapeError(f"self has {self.ndim} dimensions, expected at most 2: use transpose")
    return permute(self, tuple(reversed(range(self.ndim))))


@composite(turns=True)
def movedim(self: Tensor, source: Dims, destination: Dims) -> Tensor:
    """Dimensions source moved to the positions destination; the others keep their order."""
    old = [dimension(dim, self.ndim) for dim in ([source] if isinstance(source, int) else source or ())]
    new = [dimension(dim, self.ndim) for dim in ([destination] if isinstance(destination, int) else destination or ())]
    if len(old) != len(new) or len(set(old)) != len(old) or len(set(new)) != len(new):
        raise ArgumentError(f"source {source} and destination {destination} must be distinct and as many")
    placed = dict(zip(new, old))
    rest = iter(dim for dim in range(self.ndim) if dim not in old)
    return permute(self, [placed[dim] if dim in placed else next(rest) for dim in range(self.ndim)])


@composite
def squeeze(self: Tensor, dim: Dims = None) -> Tensor:
    """self without the dimensions of size 1, or without those of dim that have size 1."""
    dims = dimensions(dim, self.ndim, empty_is_all=False)
    dropped = {position for position in dims if equal(self.shape[position], 1)}
    return reshape(self, tuple(size for position, size in enumerate(self.shape) if position not in dropped))


@composite
def unsqueeze(self: Tensor, dim: int) -> Tensor:
    """self with a dimension of size 1 inserted at dim."""
    dim = dimension(dim, self.ndim + 1)
    return reshape(self, (*self.shape[:dim], 1, *self.shape[dim:]))


@composite
def view(self: Tensor, size: Size) -> Tensor:
    """The same elements in row-major order under another shape."""
    return reshape(self, size)


@composite
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """self in the shape of other."""
    return reshape(self, other.shape)


@composite
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """self in the shape of other."""
    return reshape(self, other.shape)


@composite
def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from start_dim to end_dim made one."""
    start, end = dimension(start_dim, self.ndim), dimension(end_dim, self.ndim)
    if start > end:
        raise ArgumentError(f"start_dim {start_dim} comes after end_dim {end_dim}")
    if self.ndim == 0:
        return reshape(self, (1,))
    return reshape(self, (*self.shape[:start], product(self.shape[start : end + 1]), *self.shape[end + 1 :]))


@composite
def unflatten(self: Tensor, dim: int, sizes: Size) -> Tensor:
    """Dimension dim split into sizes, one of which may be -1."""
    dim = axis_of(dim, self.ndim)
    return reshape(self, replaced(self.shape, dim, *resolve_reshape((self.shape[dim],), sizes)))


@composite
def ravel(self: Tensor) -> Tensor:
    """All elements in one dimension."""
    return reshape(self, (self.type.numel,))


@composite
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """self expanded to the shape of other."""
    return expand(self, other.shape)


@composite
def broadcast_to(self: Tensor, size: Size) -> Tensor:
    """self expanded to size."""
    return expand(self, size)


@composite
def broadcast_tensors(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All tensors expanded to the shape that they have together."""
    shape = broadcast([tensor.shape for tensor in tensors])
    return tuple(expand(tensor, shape) for tensor in tensors)


@composite
def repeat(self: Tensor, repeats: Size) -> Tensor:
    """self side by side, repeats[k] times along dimension k."""
    if len(repeats) < self.ndim:
        raise ArgumentError(f"{len(repeats)} repeats for a tensor of {self.ndim} dimensions")
    shape = (*(1 for _ in range(len(repeats) - self.ndim)), *self.shape)
    if all(count == 1 for count in repeats):
        return reshape(self, shape)
    paired = [size for old in shape for size in (1, old)]
    grown = [size for old, count in zip(shape, repeats) for size in (count, old)]
    return reshape(expand(reshape(self, paired), grown), tuple(old * count for old, count in zip(shape, repeats)))


@composite
def tile(self: Tensor, dims: Size) -> Tensor:
    """self side by side, dims[k] times along the last dimensions."""
    return repeat(self, (*(1 for _ in range(self.ndim - len(dims))), *dims))


def each_repeated(value: Tensor, repeats: Dim, axis: int) -> Tensor:
    """Return a value with each element along an axis repeated in place."""
    spread = expand(unsqueeze(value, axis + 1), (*value.shape[: axis + 1], repeats, *value.shape[axis + 1 :]))
    return reshape(spread, replaced(value.shape, axis, value.shape[axis] * repeats))


@composite
def roll(self: Tensor, shifts: int | Sequence[Dim], dims: Dims = ()) -> Tensor:
    """Elements moved along dims by shifts, cyclically; without dims along the flattened tensor."""
    amounts = tuple(shifts) if isinstance(shifts, tuple | list) else (shifts,)
    axes = (dims,) if isinstance(dims, int) else tuple(dims or ())
    if axes:
        return cyclic_shift(self, amounts, axes)
    return reshape(cyclic_shift(ravel(self), amounts, (0,)), self.shape)


@composite(turns=True)
def rot90(self: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """self turned by k quarter turns in the plane of two dimensions, from the first towards the second."""
    one, two = (axis_of(dim, self.ndim) for dim in dims)
    turns = k % 4
    if turns == 0:
        return alias(self)
    if turns == 2:
        return flip(self, (one, two))
    return transpose(flip(self, (two,)), one, two) if turns == 1 else flip(transpose(self, one, two), (two,))


# Parts


def place_of(index: Dim, size: Dim) -> Dim:
    """Return an index counted from the front; checked if it is a number."""
    if isinstance(index, int) and not at_least(size, -index if index < 0 else index + 1):
        raise ArgumentError(f"index {index} is out of range for a dimension of size {size}")
    return index + size if isinstance(index, int) and index < 0 else index


@composite
def select(self: Tensor, dim: int, index: Dim) -> Tensor:
    """The part of self at one index of dim, without that dimension."""
    dim = axis_of(dim, self.ndim)
    start = place_of(index, self.shape[dim])
    return reshape(slice(self, dim, start, start + 1), replaced(self.shape, dim))


@composite
def narrow(self: Tensor, dim: int, start: Dim, length: Dim) -> Tensor:
    """length elements of dimension dim from start."""
    dim = axis_of(dim, self.ndim)
    size = self.shape[dim]
    backwards = isinstance(start, int) and start < 0
    first = start + size if backwards else start
    inside = at_least(size, first + length) and at_least(length, 0)
    if not inside or (backwards and not at_least(size, -start)):
        raise ShapeError(f"start {start} and length {length} are out of range for a dimension of size {size}")
    return slice(self, dim, first, first + length)


@composite
def split_with_sizes(self: Tensor, split_sizes: Sequence[Dim], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of the given sizes along dim."""
    dim = axis_of(dim, self.ndim)
    total = builtins.sum(split_sizes)
    if not equal(total, self.shape[dim]):
        raise ShapeError(f"the sizes {list(split_sizes)} add up to {total}, but the dimension has {self.shape[dim]}")
    parts = []
    start: Dim = 0
    for size in split_sizes:
        parts.append(slice(self, dim, start, start + size))
        start = start + size
    return tuple(parts)


def _pieces(size: Dim, piece: Dim) -> list[Dim]:
    """Return the sizes of equal pieces; the last one may be smaller."""
    if isinstance(size, int) and isinstance(piece, int):
        if piece < 1:
            if size == 0:
                return [0]
            raise ArgumentError(f"the size of a part is {piece}, expected at least 1")
        return [builtins.min(piece, size - start) for start in range(0, size, piece)] or [0]
    count = floor_divide(size, piece)
    if not isinstance(count, int) or not divides(size, piece):
        raise ShapeError(f"the number of parts of {piece} in a dimension of size {size} must be known while tracing")
    return [piece] * count


@composite
def split(self: Tensor, split_size: Dim | Sequence[Dim], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of split_size along dim, or of each size in a list of them."""
    dim = axis_of(dim, self.ndim)
    if isinstance(split_size, Sequence):
        return split_with_sizes(self, split_size, dim)
    return split_with_sizes(self, _pieces(self.shape[dim], split_size), dim)


@composite
def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most chunks equal parts along dim."""
    if chunks < 1:
        raise ArgumentError(f"chunks is {chunks}, expected at least 1")
    dim = axis_of(dim, self.ndim)
    size = self.shape[dim]
    if isinstance(size, int) and size == 0:
        return split_with_sizes(self, (0,) * chunks, dim)
    piece = ceil_divide(size, chunks)
    if isinstance(size, int):
        return split(self, piece, dim)
    last = size - piece * (chunks - 1)
    if not at_least(last, 1):
        raise ShapeError(f"the number of parts of {piece} in a dimension of size {size} must be known while tracing")
    return split_with_sizes(self, (*(piece,) * (chunks - 1), last), dim)


@composite
def tensor_split(self: Tensor, indices_or_sections: int | Sequence[Dim], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts along dim that end before each index, or as many parts as asked, as equal as they can be."""
    dim = axis_of(dim, self.ndim)
    size = self.shape[dim]
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count < 1:
            raise ArgumentError(f"sections is {count}, expected at least 1")
        small, larger = floor_divide(size, count), remainder(size, count)
        if isinstance(larger, Expr):
            raise SizeNeeded(larger)
        return split_with_sizes(self, [small + (position < larger) for position in range(count)], dim)
    ends: list[Dim | None] = [*indices_or_sections, None]
    starts: list[Dim] = [0, *indices_or_sections]
    return tuple(slice(self, dim, start, end) for start, end in zip(starts, ends))


@composite
def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All parts along dim, without that dimension."""
    dim = axis_of(dim, self.ndim)
    count = self.shape[dim]
    if not isinstance(count, int):
        raise ShapeError(f"the number of parts must be known while tracing, got the size {count}")
    return tuple(select(self, dim, position) for position in range(count))
