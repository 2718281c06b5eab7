"""PyTorch's names of kernels, and of steps of its compiler, for what other ops compute under another signature."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.errors import ArgumentError, ShapeError
from ..ir.symbolic import Dim, product
from ..ir.types import DType, f32, i64, u8
from . import pointwise
from .attention import _scaled_dot_product_flash_attention_for_cpu, scaled_dot_product_attention
from .concat_pad import stack
from .conv import convolution, convolution_backward
from .create import full, number_of, zeros
from .define import Size, Tensor, composite
from .distance import _cdist_forward
from .indexing import index_put
from .linalg import matmul
from .pooling import max_pool2d_with_indices, max_pool2d_with_indices_backward
from .random import STREAMS, native_dropout, rand
from .reduce import sum as total
from .shapes import equal
from .view import alias, expand, reshape, transpose
from .windows import Lengths

# Convolutions


@composite
def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    transposed: bool,
    output_padding: Lengths,
    groups: int,
    benchmark: bool = False,
    deterministic: bool = False,
    cudnn_enabled: bool = True,
    allow_tf32: bool = True,
) -> Tensor:
    """convolution; the last four arguments choose among PyTorch's kernels."""
    return convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _check_kernel(weight: Tensor, kernel_size: Lengths) -> None:
    kernel = weight.shape[2:]
    given = (kernel_size,) * len(kernel) if isinstance(kernel_size, int) else tuple(kernel_size)
    if len(given) == 1:
        given *= len(kernel)
    if len(given) != len(kernel) or not all(map(equal, given, kernel)):
        raise ShapeError(f"kernel_size is {list(given)}, expected {list(kernel)} (that of weight)")


def _depthwise(
    self: Tensor,
    weight: Tensor,
    kernel_size: Lengths,
    bias: Tensor | None,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
) -> Tensor:
    _check_kernel(weight, kernel_size)
    channels = self.shape[1 - weight.ndim]
    if not isinstance(channels, int):
        raise ShapeError(f"self has {channels} channels, expected a number that is known while compiling")
    return convolution(self, weight, bias, stride, padding, dilation, False, (0,), channels)


@composite
def _conv_depthwise2d(
    self: Tensor,
    weight: Tensor,
    kernel_size: Lengths,
    bias: Tensor | None,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
) -> Tensor:
    """convolution over two dimensions, each channel by itself."""
    return _depthwise(self, weight, kernel_size, bias, stride, padding, dilation)


@composite
def conv_depthwise3d(
    self: Tensor,
    weight: Tensor,
    kernel_size: Lengths,
    bias: Tensor | None,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
) -> Tensor:
    """convolution over three dimensions, each channel by itself."""
    return _depthwise(self, weight, kernel_size, bias, stride, padding, dilation)


@composite
def _slow_conv2d_forward(
    self: Tensor, weight: Tensor, kernel_size: Lengths, bias: Tensor | None, stride: Lengths, padding: Lengths
) -> Tensor:
    """convolution over two dimensions."""
    _check_kernel(weight, kernel_size)
    return convolution(self, weight, bias, stride, padding, (1,), False, (0,), 1)


@composite
def _slow_conv2d_backward(
    grad_output: Tensor,
    self: Tensor,
    weight: Tensor,
    kernel_size: Lengths,
    stride: Lengths,
    padding: Lengths,
    output_mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of _slow_conv2d_forward by self, weight and bias; zeros where output_mask is false."""
    _check_kernel(weight, kernel_size)
    return convolution_backward(  # type: ignore[no-any-return]
        grad_output, self, weight, None, stride, padding, (1,), False, (0,), 1, output_mask
    )


@composite
def slow_conv3d_forward(
    self: Tensor, weight: Tensor, kernel_size: Lengths, bias: Tensor | None, stride: Lengths, padding: Lengths
) -> Tensor:
    """convolution over three dimensions."""
    _check_kernel(weight, kernel_size)
    return convolution(self, weight, bias, stride, padding, (1,), False, (0,), 1)


@composite
def slow_conv_dilated2d(
    self: Tensor,
    weight: Tensor,
    kernel_size: Lengths,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: Lengths = (0,),
    dilation: Lengths = (1,),
) -> Tensor:
    """convolution over two dimensions."""
    _check_kernel(weight, kernel_size)
    return convolution(self, weight, bias, stride, padding, dilation, False, (0,), 1)


@composite
def slow_conv_dilated3d(
    self: Tensor,
    weight: Tensor,
    kernel_size: Lengths,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: Lengths = (0,),
    dilation: Lengths = (1,),
) -> Tensor:
    """convolution over three dimensions."""
    _check_kernel(weight, kernel_size)
    return convolution(self, weight, bias, stride, padding, dilation, False, (0,), 1)


@composite
def slow_conv_transpose2d(
    self: Tensor,
    weight: Tensor,
    kernel_size: Lengths,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: Lengths = (0,),
    output_padding: Lengths = (0,),
    dilation: Lengths = (1,),
) -> Tensor:
    """The transpose of a convolution over two dimensions, plus bias."""
    _check_kernel(weight, kernel_size)
    return convolution(self, weight, bias, stride, padding, dilation, True, output_padding, 1)


@composite
def slow_conv_transpose3d(
    self: Tensor,
    weight: Tensor,
    kernel_size: Lengths,
    bias: Tensor | None = None,
    stride: Lengths = (1,),
    padding: Lengths = (0,),
    output_padding: Lengths = (0,),
    dilation: Lengths = (1,),
) -> Tensor:
    """The transpose of a convolution over three dimensions, plus bias."""
    _check_kernel(weight, kernel_size)
    return convolution(self, weight, bias, stride, padding, dilation, True, output_padding, 1)


# Attention


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    seed: Tensor | None,
    stream: int,
) -> tuple[Tensor, Tensor]:
    """Return attention, and log(sum(exp(scores))) of each row, which dropout leaves as it is."""
    whole, logarithm = _scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=bias, scale=scale
    )
    if dropout_p == 0.0:
        return whole, logarithm
    dropped = scaled_dot_product_attention(
        query, key, value, bias, dropout_p, is_causal, scale=scale, seed=seed, stream=stream
    )
    return dropped, logarithm


def _whole(size: Dim) -> Tensor:
    """Return a size as a 0-dim tensor."""
    return full((), 0, dtype=i64) + number_of(size, i64)


@composite
def _scaled_dot_product_efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attention, log(sum(exp(scores))) of each row if wanted, and the (unused) seed and offset of its dropout."""
    output, logarithm = _attended(query, key, value, attn_bias, dropout_p, is_causal, scale, seed, stream)
    if not compute_log_sumexp:
        logarithm = zeros((*logarithm.shape[:-1], 0), dtype=logarithm.dtype)
    return output, logarithm, zeros((), dtype=i64), zeros((), dtype=i64)


@composite
def _scaled_dot_product_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Attention, log(sum(exp(scores))), and what CUDA's kernel returns beside: lengths, its random state, a mask."""
    output, logarithm = _attended(query, key, value, None, dropout_p, is_causal, scale, seed, stream)
    none = zeros((0,), dtype=query.dtype)
    lengths = zeros((0,), dtype=i64)
    state = zeros((2,), dtype=i64)
    longest = _whole(query.shape[-2]), _whole(key.shape[-2])
    return output, logarithm, lengths, lengths, *longest, state, zeros((), dtype=i64), none


@composite
def _flash_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: Dim,
    max_k: Dim,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Attention of [batch, rows, heads, features], log(sum(exp(scores))), and what CUDA's kernel returns beside."""
    if cum_seq_q is not None or cum_seq_k is not None:
        raise ArgumentError("cum_seq_q and cum_seq_k are given: sequences of several lengths in one are not supported")
    rows, keys, values = (transpose(item, 1, 2) for item in (query, key, value))
    output, logarithm = _attended(rows, keys, values, None, dropout_p, is_causal, scale, seed, stream)
    state = zeros((2,), dtype=i64)
    return transpose(output, 1, 2), logarithm, state, zeros((), dtype=i64), zeros((0,), dtype=query.dtype)


# Others


@composite
def _euclidean_dist(x1: Tensor, x2: Tensor) -> Tensor:
    """The Euclidean distance of every row of x1 from every row of x2."""
    return _cdist_forward(x1, x2, 2.0, None)


@composite
def _fused_dropout(
    self: Tensor, p: float, *, seed: Tensor | None = None, stream: int = STREAMS
) -> tuple[Tensor, Tensor]:
    """self with elements kept with probability p and scaled by 1 / p, and the mask of those as u8."""
    kept, mask = native_dropout(self, 1 - p, True, seed=seed, stream=stream)
    return kept, pointwise.convert(mask, u8)


@composite
def _index_put_impl(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """self with values written or added at indices."""
    return index_put(self, indices, values, accumulate)


@composite
def linear_backward(
    self: Tensor, grad_output: Tensor, weight: Tensor, output_mask: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of linear by input, weight and bias; zeros where output_mask is false."""
    by_self, by_weight, by_bias = output_mask
    features = (grad_output.shape[-1],)
    rows = reshape(grad_output, (product(grad_output.shape[:-1]), *features))
    inner = reshape(self, (product(self.shape[:-1]), self.shape[-1]))
    return (
        matmul(grad_output, weight) if by_self else zeros(self.shape, dtype=self.dtype),
        matmul(transpose(rows, 0, 1), inner) if by_weight else zeros(weight.shape, dtype=weight.dtype),
        total(rows, 0) if by_bias else zeros(features, dtype=weight.dtype),
    )


@composite
def max_pool2d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The gradient of max_pool2d."""
    indices = max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)[1]
    return max_pool2d_with_indices_backward(
        grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
    )


@composite
def _reshape_alias(self: Tensor, size: Size, stride: Size) -> Tensor:
    """self in another shape; the strides say nothing, as memory is row-major."""
    return reshape(self, size)


@composite
def broadcast_in_dim(a: Tensor, shape: Size, broadcast_dimensions: Sequence[int]) -> Tensor:
    """a repeated to shape; each dimension of a becomes one of broadcast_dimensions."""
    dims = tuple(broadcast_dimensions)
    if len(dims) != a.ndim or list(dims) != sorted(set(dims)) or any(not 0 <= dim < len(shape) for dim in dims):
        raise ArgumentError(
            f"broadcast_dimensions is {list(dims)}, expected {a.ndim} increasing dimensions below {len(shape)}"
        )
    sizes: list[Dim] = [1] * len(shape)
    for dim, size in zip(dims, a.shape):
        sizes[dim] = size
    return expand(reshape(a, sizes), shape)


@composite
def convert_element_type(a: Tensor, dtype: DType) -> Tensor:
    """a converted to dtype."""
    return alias(a) if a.dtype is dtype else pointwise.convert(a, dtype)


@composite
def _to_copy(self: Tensor, *, dtype: DType | None = None) -> Tensor:
    """self, converted to dtype if that is given."""
    return convert_element_type(self, dtype or self.dtype)


@composite
def device_put(a: Tensor, device: object = None, non_blocking: bool = False) -> Tensor:
    """a: all tensors of a program are on one device."""
    return alias(a)


@composite(differentiable=False)
def philox_rand(
    size: Size, seed: Tensor, offset: Tensor, stride: Size | None = None, device: object = None, dtype: DType = f32
) -> tuple[Tensor, Tensor]:
    """Numbers uniformly distributed in [0, 1) by a seed and an offset, and the offsets that the call used."""
    state = stack([reshape(pointwise.convert(item, i64), ()) for item in (seed, offset)])
    return rand(size, dtype=dtype, seed=state, stream=0), full((), 1, dtype=i64)
