"""Sums, means and largest elements of bags of a table's rows, and their gradients.

A bag is a run of `indices` that begins at its offset. A sum is a scatter of gathered rows whose updates are runs. The
compiler makes one kernel of both, so that the gathered rows are never in memory.
"""

from __future__ import annotations

from typing import Any

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim
from ..ir.types import bool_, f16, f32, i64
from .checks import _functional_assert_async
from .concat_pad import cat
from .create import full, iota, number_of, zeros, zeros_like
from .define import Tensor, composite, constant, prim
from .indexing import gather, index_add, index_put, scatter_combine, select_along
from .kinds import Arguments, ElementBuilder, Index, Scatter
from .minmax import clamp_min
from .pointwise import convert, eq, ge, gt, isnan, logical_and, logical_or, where, widen
from .reduce import all_true, linalg_vector_norm
from .reduce import sum as total
from .scan import cumsum
from .shapes import equal
from .view import expand, reshape, select, slice, unsqueeze

MODES = ("sum", "mean", "max")


def _mode(mode: int) -> str:
    if mode not in range(len(MODES)):
        raise ArgumentError(f"mode is {mode}, accepted are 0 (sum), 1 (mean) and 2 (max)")
    return MODES[mode]


def _check(
    weight: Tensor, indices: Tensor, offsets: Tensor, mode: int, per_sample_weights: Tensor | None, last: bool
) -> None:
    for name, item, rank in (("weight", weight, 2), ("indices", indices, 1), ("offsets", offsets, 1)):
        if item.ndim != rank:
            raise ShapeError(f"{name} has {item.ndim} dimensions, expected {rank}")
    if per_sample_weights is not None:
        if _mode(mode) != "sum":
            raise ArgumentError(f"per_sample_weights is given, expected mode 0 (sum), got {mode} ({_mode(mode)})")
        if per_sample_weights.ndim != 1 or not equal(per_sample_weights.shape[0], indices.shape[0]):
            shape = list(per_sample_weights.shape)
            raise ShapeError(f"per_sample_weights has shape {shape}, expected [{indices.shape[0]}] (that of indices)")
    if last and offsets.shape[0] == 0:
        raise ShapeError("offsets is empty, expected at least the last offset")


def bag_numbers(offsets: Tensor, count: Dim) -> Tensor:
    """Return the bag of each of `count` elements: the number of bags that begin at it or before it, less 1. An element
    before all bags gets a number that no bag has."""
    starts = index_add(zeros((count + 1,), dtype=i64), 0, offsets, full(offsets.shape, 1, dtype=i64))
    begun = cumsum(slice(starts, 0, 0, count), 0)
    return where(eq(begun, 0), 1 << 40, begun - 1)


# Sums of runs


def _number_of(builder: ElementBuilder, at: Any, starts: Tensor) -> tuple[Dim, Any]:
    """Search the run of an update: the last one that starts at it or before it."""
    size = starts.shape[0] - 1
    found = builder.constant(0, i64)
    one = builder.constant(1, i64)
    for power in reversed(range(size.bit_length() if isinstance(size, int) else LARGEST)):
        probe = builder.scalar("add", found, builder.constant(1 << power, i64))
        last = builder.scalar("sub", builder.index(size), one)
        place, _ = builder.dynamic(builder.scalar("minimum", probe, last), size, False)
        begins = builder.cast(builder.load(starts, (place,)), i64)
        fits = builder.scalar("logical_and", builder.scalar("le", begins, at), builder.scalar("le", probe, last))
        found = builder.scalar("where", fits, probe, found)
    return builder.dynamic(found, size, False)


LARGEST = 40  # log2 of the largest open number of runs


def _run_place(builder: ElementBuilder, index: Index, arguments: Arguments) -> tuple[Index, Any]:
    starts = arguments["starts"]
    place, _ = _number_of(builder, builder.index(index[0]), starts)
    # Updates before the first run and after the last one go nowhere.
    first, last = (builder.cast(builder.load(starts, (at,)), i64) for at in (0, starts.shape[0] - 1))
    at = builder.index(index[0])
    inside = builder.scalar("logical_and", builder.scalar("le", first, at), builder.scalar("lt", at, last))
    return (place, *index[1:]), inside


@prim(
    Scatter(
        lambda a: a["src"].shape,
        _run_place,
        lambda builder, index, a: builder.load(a["src"], index),
        lambda a: "add",
        lambda a: (None, *range(1, a["self"].ndim)),
        lambda a: range(1),
        lambda a: a["starts"],
    )
)
def run_add(self: Tensor, starts: Tensor, src: Tensor) -> Tensor:
    """self with rows of src added to each row: those from the row's number in starts up to the next row's."""
    if not self.ndim == src.ndim >= 1 or not all(map(equal, self.shape[1:], src.shape[1:])):
        raise ShapeError(f"src has shape {list(src.shape)}, expected rows of shape {list(self.shape[1:])}")
    if starts.ndim != 1 or not starts.dtype.is_integer or not equal(starts.shape[0], self.shape[0] + 1):
        raise ShapeError(f"starts is {starts.type}, expected {self.shape[0] + 1} whole numbers")
    return {"src": convert(src, self.dtype)}  # type: ignore[return-value]


@run_add.vjp
def run_add_vjp(grad, self, starts, src):
    numbers = bag_numbers(slice(starts, 0, 0, self.shape[0]), src.shape[0])
    after = ge(iota(numbers.shape, dim=0, dtype=i64), select(starts, 0, self.shape[0]))
    outside = logical_or(after, ge(numbers, number_of(self.shape[0], i64)))
    if self.shape[0] == 0:
        return {"self": grad, "src": zeros(src.shape, dtype=grad.dtype)}
    mask = reshape(outside, (src.shape[0],) + (1,) * (src.ndim - 1))
    return {"self": grad, "src": where(mask, 0, select_along(grad, 0, where(outside, 0, numbers)))}


@run_add.jvp
def run_add_jvp(self_tangent, src_tangent, self, starts, src):
    return run_add(
        zeros_like(self) if self_tangent is None else self_tangent,
        starts,
        zeros_like(src) if src_tangent is None else src_tangent,
    )


class Bags:
    """The bags of a call: the bag of each element, and their number. Padding goes to a bag of its own, after the
    others."""

    def __init__(self, indices: Tensor, numbers: Tensor, count: Dim, padding_idx: int):
        self.count = self.within = count
        self.numbers = numbers
        if padding_idx >= 0:
            self.within = count + 1
            self.numbers = where(eq(indices, padding_idx), number_of(count, i64), numbers)

    def _kept(self, found: Tensor) -> Tensor:
        return found if self.within is self.count else slice(found, 0, 0, self.count)

    def sizes(self) -> Tensor:
        """Return the number of elements of each bag."""
        one = full(self.numbers.shape, 1, dtype=i64)
        return self._kept(index_add(zeros((self.within,), dtype=i64), 0, self.numbers, one))

    def largest(self, rows: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest elements of each bag and the rows of the table that they come from, the first of equal
        ones; 0 for an empty bag. NaN is the largest."""
        places = expand(unsqueeze(self.numbers, 1), rows.shape)
        lowest = full((self.within, rows.shape[1]), float("-inf"), dtype=rows.dtype)
        best = scatter_combine(lowest, 0, places, rows, combine="max")
        is_best = logical_or(eq(rows, gather(best, 0, places)), isnan(rows))
        # An element that no bag has is the first of an empty one.
        none = number_of(indices.shape[0], i64)
        steps = where(is_best, iota(rows.shape, dim=0, dtype=i64), none)
        first = scatter_combine(zeros(best.shape, dtype=i64) + none, 0, places, steps, combine="min")
        source = cat([convert(indices, i64), zeros((1,), dtype=i64)])
        found = reshape(select_along(source, 0, reshape(first, (-1,))), first.shape)
        return self._kept(where(eq(first, none), 0, best)), self._kept(found)


def _is_sum_alone(weight: Tensor, mode: int, padding_idx: int) -> bool:
    """Whether PyTorch leaves out the numbers of bags, which its fast kernel of sums does not need."""
    return _mode(mode) == "sum" and weight.dtype in (f32, f16) and padding_idx < 0


@composite
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum, mean (mode 1) or largest elements (2) of bags of rows; and for the gradient: bags, sizes, rows."""
    _check(weight, indices, offsets, mode, per_sample_weights, include_last_offset)
    count = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    offsets = _in_order(offsets)
    numbers = bag_numbers(offsets, indices.shape[0])
    bags = Bags(indices, numbers, count, padding_idx)
    rows = select_along(weight, 0, indices)
    told = zeros((0,), dtype=offsets.dtype)
    if not _is_sum_alone(weight, mode, padding_idx):
        told = convert(numbers, offsets.dtype)
    sizes = zeros((count,), dtype=offsets.dtype)
    if _mode(mode) == "max":
        found, sources = bags.largest(rows, indices)
        return found, told, convert(bags.sizes(), offsets.dtype), convert(sources, offsets.dtype)
    rows = widen(rows)
    if per_sample_weights is not None:
        rows = rows * unsqueeze(widen(per_sample_weights), 1)
    if padding_idx >= 0:
        rows = where(unsqueeze(eq(indices, padding_idx), 1), 0, rows)
    found = run_add(zeros((count, weight.shape[1]), dtype=rows.dtype), _starts(offsets, indices, count), rows)
    if _mode(mode) == "mean":
        sizes = convert(bags.sizes(), offsets.dtype)
        found = found / _divisors(sizes, found)
    return convert(found, weight.dtype), told, sizes, sizes


def _starts(offsets: Tensor, indices: Tensor, count: Dim) -> Tensor:
    """Return the first element of each bag, and the end of the last one."""
    if count == 0:
        return zeros((1,), dtype=i64)
    starts = convert(offsets, i64)
    if offsets.shape[0] is count:
        starts = cat([starts, reshape(zeros((), dtype=i64) + number_of(indices.shape[0], i64), (1,))])
    return starts


def _in_order(offsets: Tensor) -> Tensor:
    """Return offsets, which must begin with 0 and never decrease: each kernel of bags has results of its own for
    others."""
    if offsets.shape[0] == 0:
        return offsets
    rises = ge(slice(offsets, 0, 1), slice(offsets, 0, 0, offsets.shape[0] - 1))
    holds = logical_and(eq(select(offsets, 0, 0), 0), all_true(rises))
    return _functional_assert_async(holds, "embedding_bag: offsets must begin with 0 and not decrease", offsets)


def _divisors(sizes: Tensor, like: Tensor) -> Tensor:
    """Return the sizes of bags as a column, 1 for an empty one."""
    return unsqueeze(convert(clamp_min(sizes, 1), like.dtype), 1)


@_embedding_bag.vjp
def _embedding_bag_vjp(
    grads, results, weight, indices, offsets, scale_grad_by_freq, mode, per_sample_weights, padding_idx
):
    grad, numbers = grads[0], results[1]
    by_weight = _embedding_bag_backward(
        grad,
        indices,
        offsets,
        *results[1:],
        weight.shape[0],
        scale_grad_by_freq,
        mode,
        False,
        per_sample_weights,
        padding_idx,
    )
    by_sample = None
    if per_sample_weights is not None:
        by_sample = _embedding_bag_per_sample_weights_backward(
            grad, weight, indices, offsets, numbers, mode, padding_idx
        )
    return {"weight": by_weight, "per_sample_weights": by_sample}


@composite
def _embedding_bag_forward_only(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """_embedding_bag."""
    return _embedding_bag(  # type: ignore[no-any-return]
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
    )


@composite
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """_embedding_bag; a negative padding_idx counts from the end of the table."""
    rows = weight.shape[0]
    if padding_idx is not None and padding_idx < 0:
        if not isinstance(rows, int):
            raise ArgumentError(f"padding_idx is {padding_idx}, expected 0 or more for a table of {rows} rows")
        padding_idx += rows
    padding = -1 if padding_idx is None else padding_idx
    return _embedding_bag(  # type: ignore[no-any-return]
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding
    )


# Gradients


@composite
def _embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Dim,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of _embedding_bag by weight."""
    numbers = _numbers(offset2bag, offsets, indices)
    return _embedding_bag_dense_backward(
        grad, indices, numbers, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights,
        padding_idx,
    )  # fmt: skip


def _numbers(offset2bag: Tensor, offsets: Tensor, indices: Tensor) -> Tensor:
    """Return the bag of each element, which a sum's forward pass may have left out."""
    is_told = offset2bag.shape[0] != 0 or indices.shape[0] == 0
    return offset2bag if is_told else bag_numbers(offsets, indices.shape[0])


@composite
def _embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Dim,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of _embedding_bag by weight, from the bag of each element."""
    value = widen(grad)
    width = grad.shape[1]
    if _mode(mode) == "max":
        counted = where(unsqueeze(eq(bag_size, 0), 1), 0, value)
        base = zeros((num_weights, width), dtype=value.dtype)
        return convert(scatter_combine(base, 0, maximum_indices, counted, combine="add"), grad.dtype)
    if _mode(mode) == "mean":
        value = value / _divisors(bag_size, value)
    rows = select_along(value, 0, offset2bag)
    if per_sample_weights is not None:
        rows = rows * unsqueeze(widen(per_sample_weights), 1)
    if scale_grad_by_freq:
        ones = full(indices.shape, 1, dtype=rows.dtype)
        counts = index_add(zeros((num_weights,), dtype=rows.dtype), 0, indices, ones)
        rows = rows / unsqueeze(select_along(counts, 0, indices), 1)
    if padding_idx >= 0:
        rows = where(unsqueeze(eq(indices, padding_idx), 1), 0, rows)
    return convert(index_add(zeros((num_weights, width), dtype=rows.dtype), 0, indices, rows), grad.dtype)


@composite
def _embedding_bag_per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of _embedding_bag by per_sample_weights: products of gradients and rows."""
    if _mode(mode) != "sum":
        raise ArgumentError(f"mode is {mode} ({_mode(mode)}), expected 0 (sum)")
    numbers = _numbers(offset2bag, offsets, indices)
    products = select_along(widen(grad), 0, numbers) * select_along(widen(weight), 0, indices)
    found = total(products, 1)
    if padding_idx >= 0:
        found = where(eq(indices, padding_idx), 0, found)
    return convert(found, grad.dtype)


@composite(differentiable=False)
def embedding_renorm(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """self with the rows that indices name scaled down to the norm max_norm where theirs is larger."""
    if self.ndim != 2:
        raise ShapeError(f"self has {self.ndim} dimensions, expected 2")
    places = reshape(indices, (-1,))
    named = index_put(zeros((self.shape[0],), dtype=bool_), (places,), constant(True, bool_))
    lengths = linalg_vector_norm(self, norm_type, 1)
    scale = where(logical_and(named, gt(lengths, max_norm)), max_norm / (lengths + 1e-7), 1)
    return self * unsqueeze(convert(scale, self.dtype), 1)
