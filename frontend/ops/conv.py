"""Convolution, its transpose and its gradients, as matrix products of windows.

A window is a view of the padded input. The lowering of a convolution depends on its shape:

- kernel 1: a matrix product with the input in place;
- kernel = stride, no padding: the windows are disjoint and become rows of a matrix; the channels of the result are last
  in memory, the layout that the ops after patches mostly read;
- depthwise: a sum over the kernel's elements of shifted inputs times a weight, without a matrix product;
- otherwise: the windows are copied into columns of a matrix (im2col).

The transpose multiplies first and then adds up the windows of the result one dimension at a time (col2im).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as every
from math import prod

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.proofs import floor_divide
from ..ir.record import Record
from ..ir.symbolic import Dim, product
from .concat_pad import constant_pad_nd, stack
from .create import zeros
from .define import Tensor, composite
from .linalg import bmm
from .pointwise import conjugate, rounded_once
from .reduce import sum as total
from .shapes import Shape, at_least, equal
from .view import expand, flip, permute, replaced, reshape, select, slice, unfold, unsqueeze

Lengths = int | Sequence[int]  # one for all dims, or one for each

MANY_PLACES = 64  # kernel elements: beyond that im2col, not a sum of terms. Chosen, not measured


class Windows(Record):
    """The geometry of a convolution's windows, one number for each spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def reach(self) -> tuple[int, ...]:
        """The distance from the first to the last element of a window."""
        return tuple((size - 1) * apart for size, apart in zip(self.kernel, self.dilation))

    @property
    def are_patches(self) -> bool:
        """Whether windows are adjacent and disjoint, and larger than one element."""
        plain = not any(self.padding) and all(size == 1 for size in self.dilation)
        return plain and self.kernel == self.stride and prod(self.kernel) > 1

    def count(self, sizes: Sequence[Dim]) -> Shape:
        """Return the number of windows along each dimension of an input of these sizes."""
        result: list[Dim] = []
        for size, pad, reach, step in zip(sizes, self.padding, self.reach, self.stride):
            room = size + 2 * pad - reach - 1
            if not at_least(room, 0):
                raise ShapeError(
                    f"a kernel that reaches over {reach + 1} is larger than the padded input, {room + reach + 1}"
                )
            result.append(floor_divide(room, step) + 1)
        return tuple(result)


def _whole(value: Lengths, rank: int, name: str, least: int) -> tuple[int, ...]:
    """Return one number for each spatial dimension, checked."""
    given = (value,) if isinstance(value, int) else tuple(value)
    if len(given) not in (1, rank):
        raise ArgumentError(f"{name} has {len(given)} numbers, expected 1 or {rank}")
    if any(not isinstance(item, int) or item < least for item in given):
        raise ArgumentError(f"{name} is {list(given)}, expected numbers that are at least {least}")
    return given * rank if len(given) == 1 else given


def _check(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int, transposed: bool) -> None:
    rank = weight.ndim - 2
    if rank < 1:
        raise ShapeError(f"weight has {weight.ndim} dimensions, expected at least 3 (out and in channels, kernel)")
    if any(not isinstance(size, int) or size < 1 for size in weight.shape[2:]):
        raise ShapeError(f"the sizes of the kernel are {list(weight.shape[2:])}, expected positive numbers")
    if input.ndim != weight.ndim:
        raise ShapeError(f"input has {input.ndim} dimensions, expected {rank + 1} or {rank + 2} (those of weight)")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype is not input.dtype:
            raise DTypeError(f"{name} is {tensor.dtype} and input is {input.dtype}, expected the same")
    if not isinstance(groups, int) or groups < 1:
        raise ArgumentError(f"groups is {groups}, expected a positive int")
    first = weight.shape[0]
    if isinstance(first, int) and first % groups:
        raise ShapeError(f"weight has {first} channels first, expected a multiple of the {groups} groups")
    wanted = first if transposed else weight.shape[1] * groups
    if not equal(input.shape[1], wanted):
        raise ShapeError(f"input has {input.shape[1]} channels, expected {wanted} (weight and groups)")
    outer = weight.shape[1] * groups if transposed else first
    if bias is not None and not (bias.ndim == 1 and equal(bias.shape[0], outer)):
        raise ShapeError(f"bias has shape {list(bias.shape)}, expected [{outer}]")


def _merged(value: Tensor, *parts: Sequence[int]) -> Tensor:
    """Permute the dimensions into this order and merge those of each part."""
    order = tuple(dim for part in parts for dim in part)
    arranged = value if order == tuple(range(value.ndim)) else permute(value, order)
    return reshape(arranged, tuple(product(value.shape[dim] for dim in part) for part in parts))


def _in_groups(value: Tensor, groups: int, dim: int) -> Tensor:
    """Split the channels in dimension dim into (groups, channels of a group)."""
    return reshape(value, replaced(value.shape, dim, groups, floor_divide(value.shape[dim], groups)))


def _padded(value: Tensor, windows: Windows) -> Tensor:
    if not any(windows.padding):
        return value
    return constant_pad_nd(value, tuple(size for size in reversed(windows.padding) for _ in range(2)))


def _windowed(input: Tensor, windows: Windows) -> Tensor:
    """Return all windows: [batch, groups, channels, *count, *kernel]."""
    value = _padded(input, windows)
    for dim, (size, step, apart, reach) in enumerate(
        zip(windows.kernel, windows.stride, windows.dilation, windows.reach), 2
    ):
        value = unsqueeze(value, -1) if size == step == 1 else unfold(value, dim, reach + 1, step)
        value = value if apart == 1 else slice(value, -1, 0, None, apart)
    return _in_groups(value, windows.groups, 1)


def _places(value: Tensor, windows: Windows, weight: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each kernel element its inputs in all windows, [batch, groups, 1, *count], and its weights [g, m]."""
    count = windows.count(value.shape[2:])
    padded = _padded(value, windows)
    kernel = _merged(_in_groups(weight, windows.groups, 0), (0,), (1,), range(2, weight.ndim + 1))
    for number, place in enumerate(every(*map(range, windows.kernel))):
        part = padded
        for dim, (at, many, step, apart) in enumerate(zip(place, count, windows.stride, windows.dilation), 2):
            start = at * apart
            part = slice(part, dim, start, start + (many - 1) * step + 1, step)
        yield unsqueeze(part, 2), select(kernel, 2, number)


def _is_depthwise(weight: Tensor, windows: Windows) -> bool:
    return weight.shape[1] == 1 and windows.groups > 1 and prod(windows.kernel) <= MANY_PLACES


def _spread(value: Tensor, rank: int) -> Tensor:
    """Reshape a number for each channel to broadcast against [..., channels, *spatial]."""
    return reshape(value, (*value.shape, *(1 for _ in range(rank))))


def _forward(input: Tensor, weight: Tensor, bias: Tensor | None, windows: Windows) -> Tensor:
    rank, groups = windows.rank, windows.groups
    batch, outer = input.shape[0], weight.shape[0]
    count = windows.count(input.shape[2:])
    shape = (batch, outer, *count)
    if _is_depthwise(weight, windows):
        result: Tensor | None = None if bias is None else _spread(_in_groups(bias, groups, 0), rank)
        for part, factor in _places(input, windows, weight):
            term = part * _spread(factor, rank)
            result = term if result is None else result + term
        assert result is not None
        return reshape(result, shape)
    value = _windowed(input, windows)
    seen, inside = range(3, 3 + rank), range(3 + rank, 3 + 2 * rank)
    kernel = _merged(_in_groups(weight, groups, 0), (0,), (1,), range(2, 3 + rank))
    if windows.are_patches:
        rows = bmm(_merged(value, (1,), (0, *seen), (2, *inside)), permute(kernel, (0, 2, 1)))
        rows = rows if bias is None else rows + unsqueeze(_in_groups(bias, groups, 0), 1)
        parts = reshape(rows, (groups, batch, *count, floor_divide(outer, groups)))
        return reshape(permute(parts, (1, 0, 2 + rank, *range(2, 2 + rank))), shape)
    columns = _merged(value, (0, 1), (2, *inside), seen)
    many = _merged(expand(kernel, (batch, *kernel.shape)), (0, 1), (2,), (3,))
    result = reshape(bmm(many, columns), (batch, outer, product(count)))
    return reshape(result if bias is None else result + _spread(bias, 1), shape)


def _folded(value: Tensor, at: int, windows: Windows) -> Tensor:
    """Add up overlapping windows of spatial dimension `at`.

    [batch, channels, kernel 0..at, count 0..at, sizes after] loses the last kernel and count dims and gains a size.
    """
    size, step, apart = windows.kernel[at], windows.stride[at], windows.dilation[at]
    inside, seen = 2 + at, 2 + 2 * at  # the dim of the kernel, and that of the count after the kernel's removal
    count = value.shape[seen + 1]
    length = count + windows.reach[at] // step
    behind = value.ndim - 2 - seen
    phases: list[Tensor | None] = [None] * step  # every step-th element of the result
    for number in range(size):
        late, phase = divmod(number * apart, step)
        term = select(value, inside, number)
        if length != count:
            term = constant_pad_nd(term, (*(0 for _ in range(2 * behind)), late, length - count - late))
        known = phases[phase]
        phases[phase] = term if known is None else known + term
    first = phases[0]
    assert first is not None
    if step == 1:
        return first
    parts = [zeros(first.shape, dtype=value.dtype) if item is None else item for item in phases]
    return reshape(stack(parts, seen + 1), replaced(first.shape, seen, length * step))


def _transposed(input: Tensor, weight: Tensor, sizes: Sequence[Dim], windows: Windows) -> Tensor:
    """Apply the transpose of `_forward`: each input element scales a window of a result of these sizes."""
    rank, groups = windows.rank, windows.groups
    batch, channels = input.shape[0], weight.shape[1]
    count = input.shape[2:]
    value = _merged(_in_groups(input, groups, 1), (0, 1), (2,), range(3, 3 + rank))
    kernel = _merged(_in_groups(weight, groups, 0), (0,), (1,), range(2, 3 + rank))
    many = _merged(expand(kernel, (batch, *kernel.shape)), (0, 1), (2,), (3,))
    fits = all(size <= step for size, step in zip(windows.kernel, windows.stride))
    if _is_depthwise(weight, windows) and weight.shape[0] == groups and set(windows.stride) == {1}:
        turned = flip(weight, tuple(range(2, 2 + rank)))
        result = _forward(input, turned, None, windows.but(padding=windows.reach))
    elif fits and set(windows.dilation) == {1}:
        # The windows are disjoint: each fills a block of the size of the stride.
        rows = bmm(permute(value, (0, 2, 1)), many)
        result = reshape(rows, (batch, groups, *count, channels, *windows.kernel))
        if windows.kernel != windows.stride:
            missing = [step - size for size, step in zip(windows.kernel, windows.stride)]
            result = constant_pad_nd(result, tuple(size for room in reversed(missing) for size in (0, room)))
        pairs = [(2 + at, 3 + rank + at) for at in range(rank)]
        result = _merged(result, (0,), (1, 2 + rank), *pairs)
    else:
        columns = bmm(permute(many, (0, 2, 1)), value)
        result = reshape(columns, (batch, channels * groups, *windows.kernel, *count))
        for at in reversed(range(rank)):
            result = _folded(result, at, windows)
    around: list[Dim] = []
    for size, pad, have in zip(reversed(sizes), reversed(windows.padding), reversed(result.shape)):
        around += [-pad, size - (have - pad)]
    return constant_pad_nd(result, around) if any(amount != 0 for amount in around) else result


def _weight_gradient(grad: Tensor, input: Tensor, weight: Tensor, windows: Windows) -> Tensor:
    """Return the gradient of `_forward` by weight."""
    rank, groups = windows.rank, windows.groups
    slopes = _in_groups(grad, groups, 1)
    if _is_depthwise(weight, windows):
        over = (0, *range(3, 3 + rank))
        sums = [total(slopes * part, over) for part, _ in _places(input, windows, weight)]
        return reshape(stack(sums, 2), weight.shape)
    value = _windowed(input, windows)
    seen, inside = range(3, 3 + rank), range(3 + rank, 3 + 2 * rank)
    if windows.are_patches:
        rows = _merged(value, (1,), (0, *seen), (2, *inside))
        return reshape(bmm(_merged(slopes, (1,), (2,), (0, *seen)), rows), weight.shape)
    if prod(windows.kernel) == 1 and _is_less(weight.shape[0] * weight.shape[1], input.shape, grad.shape):
        # Both are in the right layout for one product per batch element.
        each = bmm(_merged(slopes, (0, 1), (2,), seen), _merged(value, (0, 1), seen, (2, *inside)))
        return reshape(total(reshape(each, (grad.shape[0], groups, *each.shape[1:])), 0), weight.shape)
    columns = _merged(value, (1,), (2, *inside), (0, *seen))
    found = bmm(columns, _merged(slopes, (1,), (0, *seen), (2,)))
    return reshape(permute(found, (0, 2, 1)), weight.shape)


def _is_less(elements: Dim, *shapes: Shape) -> bool:
    """Whether `elements` is less than the elements per batch entry in tensors of these shapes; open sizes count as 1
    there, and an open `elements` is taken as less."""
    known = [prod(size for size in shape[1:] if isinstance(size, int)) for shape in shapes]
    return not isinstance(elements, int) or elements < sum(known)


def _described(weight: Tensor, stride: Lengths, padding: Lengths, dilation: Lengths, groups: int) -> Windows:
    rank = weight.ndim - 2
    return Windows(
        tuple(size for size in weight.shape[2:] if isinstance(size, int)),
        _whole(stride, rank, "stride", 1),
        _whole(padding, rank, "padding", 0),
        _whole(dilation, rank, "dilation", 1),
        groups,
    )


@composite
@rounded_once
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    transposed: bool,
    output_padding: Lengths,
    groups: int,
) -> Tensor:
    """The sum of weight times each window of input, plus bias; or the transpose of that linear map."""
    if input.ndim == weight.ndim - 1:
        batch = unsqueeze(input, 0)
        result = convolution(batch, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        return reshape(result, result.shape[1:])
    _check(input, weight, bias, groups, transposed)
    windows = _described(weight, stride, padding, dilation, groups)
    if not transposed:
        return _forward(input, weight, bias, windows)
    extra = _whole(output_padding, windows.rank, "output_padding", 0)
    sizes: list[Dim] = []
    for count, step, pad, apart, reach, more in zip(
        input.shape[2:], windows.stride, windows.padding, windows.dilation, windows.reach, extra
    ):
        if more >= max(step, apart):
            raise ArgumentError(f"output_padding is {more}, expected less than stride or dilation, {max(step, apart)}")
        sizes.append((count - 1) * step - 2 * pad + reach + 1 + more)
        if not at_least(sizes[-1], 1):
            raise ShapeError(f"padding {pad} leaves nothing of the result, whose size would be {sizes[-1]}")
    result = _transposed(input, weight, sizes, windows)
    return result if bias is None else result + _spread(bias, windows.rank)


@convolution.vjp
def convolution_vjp(grad, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    mask = (True, True, bias is not None)
    sizes = None if bias is None else bias.shape
    batched = input.ndim == weight.ndim
    by_input, by_weight, by_bias = convolution_backward(
        grad if batched else unsqueeze(grad, 0),
        conjugate(input if batched else unsqueeze(input, 0)),
        conjugate(weight), sizes, stride, padding, dilation, transposed, output_padding, groups, mask,
    )  # fmt: skip
    return by_input if batched else reshape(by_input, input.shape), by_weight, None if bias is None else by_bias


@composite
@rounded_once
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[Dim] | None,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    transposed: bool,
    output_padding: Lengths,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of convolution by input, weight and bias; zeros where output_mask is false."""
    _check(input, weight, None, groups, transposed)
    windows = _described(weight, stride, padding, dilation, groups)
    rank = windows.rank
    by_input, by_weight, by_bias = output_mask
    inner, within = grad_output, windows
    if transposed and any(extra := _whole(output_padding, rank, "output_padding", 0)):
        # Output padding moves the end of the last windows into the padding.
        ends = [amount for pad, more in zip(windows.padding, extra) for amount in (pad - more, pad)]
        inner, within = constant_pad_nd(inner, ends[::-1]), windows.but(padding=(0,) * rank)
    results: list[Tensor] = []
    if not by_input:
        results.append(zeros(input.shape, dtype=input.dtype))
    elif transposed:
        results.append(_forward(inner, weight, None, within))
    else:
        results.append(_transposed(inner, weight, input.shape[2:], windows))
    if not by_weight:
        results.append(zeros(weight.shape, dtype=weight.dtype))
    else:
        results.append(_weight_gradient(*((input, inner) if transposed else (inner, input)), weight, within))
    if by_bias:
        over = (0, *range(2, 2 + rank))
        results.append(total(grad_output, over))
    else:
        results.append(zeros((grad_output.shape[1],) if bias_sizes is None else tuple(bias_sizes), dtype=weight.dtype))
    first, second, third = results
    return first, second, third


def _paddings(
    input: Tensor, weight: Tensor, padding: str | Lengths, stride: Lengths, dilation: Lengths
) -> tuple[Tensor, Lengths]:
    """Return the input and the padding for "valid" or "same"; an odd total pads one more at the end."""
    if not isinstance(padding, str):
        return input, padding
    rank = weight.ndim - 2
    if padding == "valid":
        return input, (0,) * rank
    if padding != "same":
        raise ArgumentError(f"padding is {padding!r}, accepted are numbers, 'valid' and 'same'")
    if set(_whole(stride, rank, "stride", 1)) != {1}:
        raise ArgumentError(f"padding 'same' needs stride 1, got {stride}")
    reach = _described(weight, stride, (0,), dilation, 1).reach
    if any(size % 2 for size in reach):
        input = constant_pad_nd(input, tuple(amount for size in reversed(reach) for amount in (0, size % 2)))
    return input, tuple(size // 2 for size in reach)


def _ranked(input: Tensor, weight: Tensor, rank: int) -> None:
    if weight.ndim != rank + 2:
        raise ShapeError(f"weight has {weight.ndim} dimensions, expected {rank + 2} (out and in channels, kernel)")
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"input has {input.ndim} dimensions, expected {rank + 1} or {rank + 2}")


@composite
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: str | Lengths = (0,),
    dilation: Lengths = (1,),
    groups: int = 1,
) -> Tensor:
    """convolution over one dimension; padding may be "valid" or "same"."""
    _ranked(input, weight, 1)
    input, numbers = _paddings(input, weight, padding, stride, dilation)
    return convolution(input, weight, bias, stride, numbers, dilation, False, (0,), groups)


@composite
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: str | Lengths = (0,),
    dilation: Lengths = (1,),
    groups: int = 1,
) -> Tensor:
    """convolution over two dimensions; padding may be "valid" or "same"."""
    _ranked(input, weight, 2)
    input, numbers = _paddings(input, weight, padding, stride, dilation)
    return convolution(input, weight, bias, stride, numbers, dilation, False, (0,), groups)


@composite
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: str | Lengths = (0,),
    dilation: Lengths = (1,),
    groups: int = 1,
) -> Tensor:
    """convolution over three dimensions; padding may be "valid" or "same"."""
    _ranked(input, weight, 3)
    input, numbers = _paddings(input, weight, padding, stride, dilation)
    return convolution(input, weight, bias, stride, numbers, dilation, False, (0,), groups)


@composite
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: Lengths = (0,),
    output_padding: Lengths = (0,),
    groups: int = 1,
    dilation: Lengths = (1,),
) -> Tensor:
    """The transpose of conv1d, plus bias."""
    _ranked(input, weight, 1)
    return convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@composite
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: Lengths = (0,),
    output_padding: Lengths = (0,),
    groups: int = 1,
    dilation: Lengths = (1,),
) -> Tensor:
    """The transpose of conv2d, plus bias."""
    _ranked(input, weight, 2)
    return convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


@composite
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: Lengths = (0,),
    output_padding: Lengths = (0,),
    groups: int = 1,
    dilation: Lengths = (1,),
) -> Tensor:
    """The transpose of conv3d, plus bias."""
    _ranked(input, weight, 3)
    return convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)
