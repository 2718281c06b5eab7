"""Reading and writing elements at data-dependent indices: gather and scatter.

There are three ways to read and two to write; all other ops are composed of them. `index` and `index_update` take
index tensors for some dimensions, broadcast together. `gather` and `scatter_combine` take one index tensor of
the result's rank for one dimension. `index_select` takes a list of indices along one dimension.

A bool mask as an index stands for the indices of its true elements, as many as data decide (places.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.symbolic import Dim, product
from ..ir.types import DType, TensorType, bool_, i64
from . import pointwise
from .create import full, iota, number_of, ones_like, zeros, zeros_like
from .define import Scalar, Size, Tensor, composite, constant, prim
from .kinds import Arguments, ElementBuilder, Gather, Index, Scatter
from .places import indices_at, places_as_many, places_of, truth
from .registry import as_held, rounded
from .scan import cumsum
from .shapes import Shape, at_least, broadcast, dimension, equal
from .view import as_strided, expand, reshape, unsqueeze


def _check_index(index: Tensor, what: str = "index") -> None:
    if index.dtype is bool_:
        raise DTypeError(f"{what} is a bool{'' if index.ndim else ' of no dims'}, expected an integer type")
    if not index.dtype.is_integer:
        raise DTypeError(f"{what} is {index.dtype}, expected an integer type")


def _typed(value: Tensor | Scalar, dtype: DType) -> Tensor:
    """Return a number or tensor in the type of the tensor that it is written into."""
    return pointwise.convert(value, dtype) if isinstance(value, Tensor) else constant(value, dtype)


# index_select


def _select_along_type(arguments: Arguments) -> TensorType:
    value, dim = arguments["self"], arguments["dim"]
    return TensorType(value.dtype, (*value.shape[:dim], *arguments["index"].shape, *value.shape[dim + 1 :]))


def _select_along_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    value, dim = arguments["self"], arguments["dim"]
    after = dim + arguments["index"].ndim
    chosen = builder.load(arguments["index"], tuple(index[dim:after]))
    place, guard = builder.dynamic(chosen, value.shape[dim], False)
    return builder.load(value, (*index[:dim], place, *index[after:]), guard)


def _select_along_aligned(arguments: Arguments) -> dict[str, tuple[int | None, ...]]:
    dim, rank, added = arguments["dim"], arguments["self"].ndim, arguments["index"].ndim
    kept = tuple(at if at < dim else None if at == dim else at + added - 1 for at in range(rank))
    return {"self": kept, "index": tuple(range(dim, dim + added))}


@prim(Gather(_select_along_type, _select_along_element, _select_along_aligned))
def select_along(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of self at index along dim; the dims of index, any number, replace dim."""
    _check_index(index)
    if self.ndim == 0:
        raise ShapeError("self has 0 dimensions, expected at least 1")
    return {"dim": dimension(dim, self.ndim)}


@select_along.vjp
def select_along_vjp(grad, self, dim, index):
    count = product(index.shape)
    rows = reshape(grad, (*self.shape[:dim], count, *self.shape[dim + 1 :]))
    return {"self": index_add(full(self.shape, 0, dtype=grad.dtype), dim, reshape(index, (count,)), rows)}


@composite
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of self at index along dim."""
    if index.ndim > 1:
        raise ShapeError(f"index has {index.ndim} dimensions, expected 1")
    return select_along(self, dim, index if index.ndim else reshape(index, (1,)))


# gather


def _fits_inside(index: Tensor, value: Tensor, dim: int, what: str) -> None:
    if index.ndim != value.ndim:
        raise ShapeError(f"index has {index.ndim} dimensions, expected {value.ndim} (those of {what})")
    for position, (inner, outer) in enumerate(zip(index.shape, value.shape)):
        if position == dim:
            continue
        if not at_least(outer, inner):
            raise ShapeError(f"index has size {inner} in dimension {position}, expected at most {outer} (of {what})")


def _gather_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    value, dim = arguments["self"], arguments["dim"]
    chosen = builder.load(arguments["index"], index)
    place, guard = builder.dynamic(chosen, value.shape[dim], False)
    return builder.load(value, (*index[:dim], place, *index[dim + 1 :]), guard)


def _gather_aligned(arguments: Arguments) -> dict[str, tuple[int | None, ...]]:
    dims = range(arguments["self"].ndim)
    return {"self": tuple(None if at == arguments["dim"] else at for at in dims), "index": tuple(dims)}


@prim(Gather(lambda a: TensorType(a["self"].dtype, a["index"].shape), _gather_element, _gather_aligned))
def gather_along(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """gather for tensors of at least one dimension."""
    _check_index(index)
    dim = dimension(dim, self.ndim)
    _fits_inside(index, self, dim, "self")
    return {"dim": dim}


@gather_along.vjp
def gather_along_vjp(grad, self, dim, index):
    return {"self": scatter_add(full(self.shape, 0, dtype=grad.dtype), dim, index, grad)}


def _lifted(*values: Tensor) -> list[Tensor]:
    """Reshape 0-dim tensors to one dimension of size 1."""
    return [value if value.ndim else reshape(value, (1,)) for value in values]


@composite
def gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """result[i, j] = self[index[i, j], j] for dim 0, and likewise for other dimensions."""
    value, places = _lifted(self, index)
    result = gather_along(value, dim, places)
    return result if index.ndim else reshape(result, ())


@composite
def take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather after broadcasting; without dim, from the flattened tensor."""
    if dim is None:
        return gather(reshape(self, (-1,)), 0, reshape(indices, (-1,)))
    dim = dimension(dim, self.ndim)
    if indices.ndim != self.ndim:
        raise ShapeError(f"indices has {indices.ndim} dimensions, expected {self.ndim} (those of self)")
    common = broadcast([(*value.shape[:dim], 1, *value.shape[dim + 1 :]) for value in (self, indices)])
    value, places = (expand(value, (*common[:dim], value.shape[dim], *common[dim + 1 :])) for value in (self, indices))
    return gather(value, dim, places)


# index


class Placement:
    """The origin of each dimension of `self[indices]`, by the rule of NumPy and PyTorch.

    Index tensors are broadcast together. Their common shape stands in place of the first of them if they are adjacent,
    else in front."""

    def __init__(self, value: Tensor, indices: Sequence[Tensor | None]):
        self.indexed = [dim for dim, index in enumerate(indices) if index is not None]
        self.common: Shape = broadcast([indices[dim].shape for dim in self.indexed])  # type: ignore[union-attr]
        first, last = self.indexed[0], self.indexed[-1]
        self.start = first if last - first + 1 == len(self.indexed) else 0
        self.others = [dim for dim in range(value.ndim) if dim not in self.indexed]
        kept = [value.shape[dim] for dim in self.others]
        self.shape: Shape = (*kept[: self.start], *self.common, *kept[self.start :])
        # The dim of the result that each dim of the value follows; None for an indexed dim.
        follows: list[int | None] = [None] * value.ndim
        for at, dim in enumerate(self.others):
            follows[dim] = at if at < self.start else at + len(self.common)
        self.follows = tuple(follows)

    def source(
        self, builder: ElementBuilder, value: Tensor, indices: Sequence[Tensor | None], index: Index
    ) -> tuple[list[Dim], Any]:
        """Return the position in `value` of the result's element at `index`, and the guard that it is in range."""
        rank = len(self.common)
        shared = index[self.start : self.start + rank]
        rest = iter((*index[: self.start], *index[self.start + rank :]))
        place: list[Dim] = [0] * value.ndim
        for dim in self.others:
            place[dim] = next(rest)
        guard: Any = None
        for dim in self.indexed:
            chosen = builder.load(indices[dim], aligned(shared, self.common, indices[dim].shape))  # type: ignore[union-attr, arg-type]
            place[dim], inside = builder.dynamic(chosen, value.shape[dim], True)
            guard = inside if guard is None else builder.scalar("logical_and", guard, inside)
        return place, guard


def aligned(index: Index, shape: Sequence[Dim], operand_shape: Sequence[Dim]) -> list[Dim]:
    """Convert an index into `shape` to an index into an operand that broadcasts to it."""
    added = len(shape) - len(operand_shape)
    return [
        0 if size == 1 and shape[position + added] != 1 else index[position + added]
        for position, size in enumerate(operand_shape)
    ]


def _index_tensors(
    value: Tensor, indices: Sequence[Tensor | None], count: Dim | None = None
) -> tuple[Tensor | None, ...]:
    wanted = _without_masks(value, indices, count)
    while wanted and wanted[-1] is None:
        wanted.pop()
    if not wanted:
        raise ArgumentError("no index is given")
    if len(wanted) > value.ndim:
        raise ArgumentError(f"{len(wanted)} indices for a tensor of {value.ndim} dimensions")
    for position, index in enumerate(wanted):
        if index is not None:
            _check_index(index, f"index {position}")
    return tuple(wanted)


def _is_mask(item: Tensor | None) -> bool:
    return item is not None and item.dtype is bool_ and item.ndim > 0


def _without_masks(value: Tensor, indices: Sequence[Tensor | None], count: Dim | None) -> list[Tensor | None]:
    """Return indices with each mask replaced by the indices of its true elements, one for each of its dims. count:
    how many there must be, if that is known."""
    found: list[Tensor | None] = []
    for item in indices:
        if item is None or not _is_mask(item):
            found.append(item)
            continue
        sizes = value.shape[len(found) : len(found) + item.ndim]
        if len(sizes) < item.ndim or not all(map(equal, item.shape, sizes)):
            raise ShapeError(f"the mask {list(item.shape)} indexes dims of sizes {list(sizes)}")
        mask = truth(item)
        places = places_of(mask, "index") if count is None else places_as_many(mask, count, "index_put")
        found += indices_at(places, item.shape)
    return found


def _index_type(arguments: Arguments) -> TensorType:
    value = arguments["self"]
    return TensorType(value.dtype, Placement(value, arguments["indices"]).shape)


def _index_element(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    value, indices = arguments["self"], arguments["indices"]
    place, guard = Placement(value, indices).source(builder, value, indices, index)
    return builder.load(value, place, guard)


@prim(Gather(_index_type, _index_element))
def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """self[indices]: index tensors, broadcast together, index their dimensions; None keeps a dimension."""
    if indices and _is_mask(indices[0]) and all(item is None for item in indices[1:]):
        return _rows(self, indices[0])  # type: ignore[return-value, arg-type]
    return {"indices": _index_tensors(self, indices)}


def _rows(value: Tensor, mask: Tensor) -> Tensor:
    """Return the rows of a value, over the first dims, where a mask of these dims holds."""
    kept = value.shape[mask.ndim :]
    if mask.ndim > value.ndim or not all(map(equal, mask.shape, value.shape)):
        raise ShapeError(f"the mask {list(mask.shape)} indexes dims of sizes {list(value.shape[: mask.ndim])}")
    return index_select(reshape(value, (product(mask.shape), *kept)), 0, places_of(truth(mask), "index"))


@index.vjp
def index_vjp(grad, self, indices):
    return {"self": index_update(full(self.shape, 0, dtype=grad.dtype), indices, grad, True)}


@composite
def take(self: Tensor, index: Tensor) -> Tensor:
    """The elements of the flattened tensor at index."""
    return _at(reshape(self, (-1,)), index)


def _at(value: Tensor, *places: Tensor) -> Tensor:
    """Return value[places]; for bodies in which a parameter named index hides the op."""
    return index(value, places)


# index_put


def _update_placement(arguments: Arguments) -> Placement:
    return Placement(arguments["self"], arguments["indices"])


def _update_place(builder: ElementBuilder, index: Index, arguments: Arguments) -> tuple[Index, Any]:
    return _update_placement(arguments).source(builder, arguments["self"], arguments["indices"], index)


def _update_item(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    values = arguments["values"]
    return builder.load(values, aligned(index, _update_placement(arguments).shape, values.shape))


def _update_follows(arguments: Arguments) -> tuple[int | None, ...]:
    return _update_placement(arguments).follows


def _update_chosen_by(arguments: Arguments) -> range:
    placement = _update_placement(arguments)
    return range(placement.start, placement.start + len(placement.common))


def _count_of(value: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> Dim | None:
    """Return how many values there are for a mask that is the only index; None if they are broadcast."""
    given = [item for item in indices if item is not None]
    if len(given) != 1 or not _is_mask(given[0]) or given[0] is not indices[0]:
        return None
    dim = values.ndim - 1 - (value.ndim - given[0].ndim)
    return None if dim < 0 or values.shape[dim] == 1 else values.shape[dim]


@prim(
    Scatter(
        lambda a: _update_placement(a).shape,
        _update_place,
        _update_item,
        lambda a: "add" if a["accumulate"] else None,
        _update_follows,
        _update_chosen_by,
    )
)
def index_update(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """self with values, broadcast to the shape of self[indices], written or added at indices."""
    wanted = _index_tensors(self, indices, _count_of(self, indices, values))
    shape = Placement(self, wanted).shape
    surplus = values.ndim - len(shape)
    if surplus > 0:
        values = reshape(values, values.shape[surplus:])
    if broadcast([values.shape, shape]) != shape:
        raise ShapeError(f"values {list(values.shape)} do not broadcast to {list(shape)}, the shape of self[indices]")
    return {"indices": wanted, "values": _typed(values, self.dtype)}


@index_update.vjp
def index_update_vjp(grad, self, indices, accumulate):
    kept = grad if accumulate else index_update(grad, indices, constant(0, grad.dtype))
    return {"self": kept, "values": index(grad, indices)}


@index_update.jvp
def index_update_jvp(self_tangent, values_tangent, self, indices, values, accumulate):
    return index_update(
        zeros_like(self) if self_tangent is None else self_tangent,
        indices,
        zeros_like(values) if values_tangent is None else values_tangent,
        accumulate,
    )


@composite
def index_put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """self with values written or added at indices; a bool mask takes one value."""
    given = [item for item in indices if item is not None]
    if len(given) == 1 and given[0].dtype is bool_ and values.type.numel == 1:
        before = next(position for position, item in enumerate(indices) if item is not None)
        after = self.ndim - before - given[0].ndim
        mask = reshape(given[0], (*given[0].shape, *(1 for _ in range(after))))
        new = reshape(_typed(values, self.dtype), ())
        return pointwise.where(mask, self + new if accumulate else new, self)
    return index_update(self, indices, values, accumulate)


@composite
def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """self with the elements of source written or added at index into the flattened tensor."""
    flat, places, items = (reshape(value, (-1,)) for value in (self, index, source))
    return reshape(index_update(flat, (places,), items, accumulate), self.shape)


def _along(dim: int, index: Tensor) -> tuple[Tensor | None, ...]:
    """Return the index list that indexes one dimension."""
    return (*(None for _ in range(dim)), index if index.ndim else reshape(index, (1,)))


@composite
def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1) -> Tensor:
    """self with alpha times the slices of source added at index along dim."""
    value, parts = _lifted(self, source)
    factor = rounded(as_held(alpha, self.dtype), self.dtype)
    scaled = parts if factor == 1 else parts * factor
    return reshape(index_update(value, _along(dimension(dim, value.ndim), index), scaled, True), self.shape)


@composite
def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """self with the slices of source written at index along dim."""
    value, parts = _lifted(self, source)
    return reshape(index_update(value, _along(dimension(dim, value.ndim), index), parts), self.shape)


@composite
def index_fill(self: Tensor, dim: int, index: Tensor, value: Tensor | Scalar) -> Tensor:
    """self with value written at index along dim."""
    (whole,) = _lifted(self)
    places = _along(dimension(dim, whole.ndim), index)
    return reshape(index_update(whole, places, _typed(value, self.dtype)), self.shape)


def _filled(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return the mask of positions along dim that occur in an index; it broadcasts against self."""
    (whole,) = _lifted(self)
    axis = dimension(dim, whole.ndim)
    none = zeros((whole.shape[axis],), dtype=bool_)
    chosen = index_update(none, _along(0, index), constant(True, bool_))
    return reshape(chosen, tuple(size if at == axis else 1 for at, size in enumerate(whole.shape))[-self.ndim :])


@index_fill.vjp
def index_fill_vjp(grad, self, dim, index, value):
    filled = _filled(self, dim, index)
    by_value = pointwise.where(filled, grad, 0) if isinstance(value, Tensor) else None
    return {"self": pointwise.where(filled, 0, grad), "value": by_value}


@index_fill.jvp
def index_fill_jvp(self_tangent, value_tangent, self, dim, index):
    filled = _filled(self, dim, index)
    kept = zeros_like(self) if self_tangent is None else self_tangent
    return pointwise.where(filled, 0 if value_tangent is None else _typed(value_tangent, self.dtype), kept)


# scatter


def _scatter_place(builder: ElementBuilder, index: Index, arguments: Arguments) -> tuple[Index, Any]:
    dim = arguments["dim"]
    chosen = builder.load(arguments["index"], index)
    place, guard = builder.dynamic(chosen, arguments["self"].shape[dim], False)
    return (*index[:dim], place, *index[dim + 1 :]), guard


def _scatter_item(builder: ElementBuilder, index: Index, arguments: Arguments) -> Any:
    source = arguments["src"]
    return builder.load(source, index if source.ndim else ())


@prim(
    Scatter(
        lambda a: a["index"].shape,
        _scatter_place,
        _scatter_item,
        lambda a: None if a["combine"] == "write" else a["combine"],
        lambda a: tuple(None if dim == a["dim"] else dim for dim in range(a["self"].ndim)),
        lambda a: range(a["self"].ndim),
    )
)
def scatter_combine(self: Tensor, dim: int, index: Tensor, src: Tensor, *, combine: str) -> Tensor:
    """self with src combined in at index along dim; combine is write, add, mul, max or min."""
    _check_index(index)
    if combine not in ("write", "add", "mul", "max", "min"):
        raise ArgumentError(f"combine is {combine!r}, accepted are 'write', 'add', 'mul', 'max' and 'min'")
    dim = dimension(dim, self.ndim)
    _fits_inside(index, self, dim, "self")
    if src.ndim:
        _fits_inside(index, src, -1, "src")
    return {"dim": dim, "src": _typed(src, self.dtype)}


def _scattered(self: Tensor, dim: int, index: Tensor, src: Tensor, combine: str) -> Tensor:
    if self.ndim:
        return scatter_combine(self, dim, index, src, combine=combine)
    value, places, source = _lifted(self, index, src)
    return reshape(scatter_combine(value, dim, places, source, combine=combine), ())


@composite
def scatter(
    self: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | Scalar | None = None,
    *,
    value: Scalar | None = None,
    reduce: str | None = None,
) -> Tensor:
    """self with src (or a value) written at index along dim, or combined by reduce: "add" or "multiply"."""
    given = value if src is None else src
    if given is None:
        raise ArgumentError("src is missing")
    names = {None: "write", "add": "add", "multiply": "mul"}
    if reduce not in names:
        raise ArgumentError(f"reduce is {reduce!r}, accepted are None, 'add' and 'multiply'")
    return _scattered(self, dim, index, _typed(given, self.dtype), names[reduce])


@composite
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """self with src added at index along dim."""
    return _scattered(self, dim, index, src, "add")


REDUCTIONS = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}


def neutral(reduce: str, dtype: DType) -> Scalar:
    """Return the identity element of a reduction."""
    if reduce in ("amax", "amin"):
        if dtype.is_float:
            return float("-inf") if reduce == "amax" else float("inf")
        if dtype is bool_:
            return reduce == "amin"
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        high = (1 << (dtype.bits - (dtype.kind == "i"))) - 1
        return low if reduce == "amax" else high
    return 1 if reduce == "prod" else 0


@composite
def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """self with src reduced in at index along dim by sum, prod, mean, amax or amin."""
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"reduce is {reduce!r}, accepted are {', '.join(map(repr, REDUCTIONS))}")
    base = self
    if not include_self:
        base = _scattered(self, dim, index, constant(neutral(reduce, self.dtype), self.dtype), "write")
    total = _scattered(base, dim, index, src, REDUCTIONS[reduce])
    if reduce != "mean":
        return total
    start = ones_like(self)
    if not include_self:
        start = _scattered(start, dim, index, constant(0, self.dtype), "write")
    count = _scattered(start, dim, index, constant(1, self.dtype), "add")
    return total / count if self.dtype.is_inexact else pointwise.floor_divide(total, count)


# Masks and tables


@composite
def masked_fill(self: Tensor, mask: Tensor, value: Tensor | Scalar) -> Tensor:
    """value where mask holds, else self."""
    if mask.dtype is not bool_:
        raise DTypeError(f"mask is {mask.dtype}, accepted is bool")
    return pointwise.where(mask, _typed(value, self.dtype), self)


@composite
def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """self with the k-th element of source at the k-th place where mask holds; too few elements are an error."""
    if mask.dtype is not bool_:
        raise DTypeError(f"mask is {mask.dtype}, accepted is bool")
    if source.dtype is not self.dtype:
        raise DTypeError(f"source is {source.dtype}, expected {self.dtype} (that of self)")
    shape = broadcast([self.shape, mask.shape])
    items, wanted = reshape(source, (-1,)), expand(mask, shape)
    first = 0
    if items.shape[0] == 0:
        # An element that takes no place, so that any element that is wanted is out of range.
        items, first = zeros((1,), dtype=self.dtype), 1
    order = reshape(cumsum(reshape(wanted, (-1,)), 0, dtype=i64), shape)
    places = pointwise.where(wanted, order + (first - 1), 0)
    return pointwise.where(wanted, _at(items, places), expand(self, shape))


@composite
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of weight that indices name; the row padding_idx gets no gradient."""
    if weight.ndim != 2:
        raise ShapeError(f"weight has {weight.ndim} dimensions, expected 2")
    return select_along(weight, 0, indices)


@embedding.vjp
def embedding_vjp(grad, weight, indices, padding_idx, scale_grad_by_freq):
    count = weight.shape[0]
    return {"weight": embedding_dense_backward(grad, indices, count, padding_idx, scale_grad_by_freq)}


@composite
def embedding_dense_backward(
    grad_output: Tensor, indices: Tensor, num_weights: Dim, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """The rows of grad_output added up at the rows that indices name, but for padding_idx."""
    width = grad_output.shape[-1]
    flat = reshape(indices, (product(indices.shape),))
    rows = reshape(grad_output, (product(indices.shape), width))
    if padding_idx >= 0:
        rows = pointwise.where(unsqueeze(flat == padding_idx, 1), 0, rows)
    if scale_grad_by_freq:
        wide = rows.dtype.compute  # f16 and bf16 do not represent large counts
        counts = index_add(full((num_weights,), 0, dtype=wide), 0, flat, full(flat.shape, 1, dtype=wide))
        rows = pointwise.convert(rows / unsqueeze(index_select(counts, 0, flat), 1), rows.dtype)
    return index_add(full((num_weights, width), 0, dtype=rows.dtype), 0, flat, rows)


# The inverse of as_strided: writes elements at the positions that it reads.


def _strided_places(size: Shape, stride: Shape, storage_offset: Dim) -> Tensor:
    """Return the positions that as_strided reads."""
    place = full(size, 0, dtype=i64) + number_of(storage_offset, i64)
    for dim, step in enumerate(stride):
        place = place + iota(size, dim=dim, dtype=i64) * number_of(step, i64)
    return reshape(place, (-1,))


@as_strided.vjp
def as_strided_vjp(grad, self, size, stride, storage_offset):
    places = _strided_places(size, stride, storage_offset)
    return index_add(zeros(self.shape, dtype=grad.dtype), 0, places, reshape(grad, (-1,)))


@composite
def as_strided_scatter(
    self: Tensor, src: Tensor, size: Size, stride: Size, storage_offset: Dim | None = None
) -> Tensor:
    """self with src written at the elements that as_strided reads."""
    places = _strided_places(tuple(size), tuple(stride), 0 if storage_offset is None else storage_offset)
    source = reshape(pointwise.convert(src, self.dtype), (-1,))
    return reshape(index_copy(reshape(self, (-1,)), 0, places, source), self.shape)
