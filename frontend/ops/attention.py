"""Scaled dot-product attention: softmax(query @ key^T * scale + mask) @ value.

Scores are computed in f32 for f16 and bf16. A row that is masked everywhere gives zeros. The derivative
computes the scores again and reads the logarithm of each row's sum instead of the weights.
"""

from __future__ import annotations

import math

from ..ir.errors import ArgumentError, ShapeError
from ..ir.proofs import floor_divide
from ..ir.types import bool_, i64
from .create import iota, number_of, zeros
from .define import Tensor, composite
from .elementary import exp, log, rsqrt
from .linalg import matmul
from .pointwise import convert, eq, le, where, widen
from .random import STREAMS, dropout
from .reduce import amax
from .reduce import sum as total
from .shapes import divides
from .softmax import _safe_softmax
from .view import detach, expand, reshape, transpose, unsqueeze


def _scale(query: Tensor, scale: float | None) -> float | Tensor:
    """Return the scale: 1 / sqrt(size of a query) unless given."""
    if scale is not None:
        return scale
    size = number_of(query.shape[-1], query.dtype.compute)
    return rsqrt(size) if isinstance(size, Tensor) else 1.0 / math.sqrt(size) if size else 1.0


def _scores(query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    """query @ key^T * scale, and -inf where a key is masked."""
    for name, tensor in (("query", query), ("key", key)):
        if tensor.ndim < 2:
            raise ShapeError(f"{name} has {tensor.ndim} dimensions, expected at least 2 (rows, features)")
    if is_causal and attn_mask is not None:
        raise ArgumentError("is_causal makes the mask: give no attn_mask with it")
    scores = matmul(widen(query), transpose(widen(key), -2, -1)) * _scale(query, scale)
    if is_causal:
        sizes = scores.shape[-2:]
        past = le(iota(sizes, dim=1, dtype=i64), iota(sizes, dim=0, dtype=i64))
        return where(past, scores, float("-inf"))
    if attn_mask is None:
        return scores
    if attn_mask.dtype is bool_:
        return where(attn_mask, scores, float("-inf"))
    return scores + widen(attn_mask)


@composite
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    seed: Tensor | None = None,
    stream: int = STREAMS,
) -> Tensor:
    """softmax(query @ key^T * scale + attn_mask) @ value; enable_gqa shares keys among heads of queries."""
    if enable_gqa:
        key, value = _shared_heads(query, key), _shared_heads(query, value)
    if dropout_p == 0.0:
        return _scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
        )[0]
    weights = _safe_softmax(_scores(query, key, attn_mask, is_causal, scale), -1)
    dropped = dropout(weights, dropout_p, True, seed=seed, stream=stream)
    return convert(matmul(dropped, widen(value)), query.dtype)


def _shared_heads(query: Tensor, tensor: Tensor) -> Tensor:
    """Repeat the heads of a key or value to the number of the query's heads. 2-dim operands have no heads."""
    if query.ndim < 3 or tensor.ndim < 3:
        return tensor
    wanted, heads = query.shape[-3], tensor.shape[-3]
    if wanted == heads:
        return tensor
    if not divides(wanted, heads):
        raise ShapeError(f"{heads} heads of keys cannot be shared among {wanted} heads of queries")
    *batch, _heads, rows, features = tensor.shape
    times = floor_divide(wanted, heads)
    repeated = expand(unsqueeze(tensor, -3), (*batch, heads, times, rows, features))
    return reshape(repeated, (*batch, wanted, rows, features))


@composite
def _scaled_dot_product_flash_attention_for_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention, and log(sum(exp(scores))) of each row (0 for a row that is masked everywhere)."""
    if dropout_p != 0.0:
        raise ArgumentError(f"dropout_p is {dropout_p}: this form of attention has no dropout, expected 0")
    key, value = _shared_heads(query, key), _shared_heads(query, value)
    scores = _scores(query, key, attn_mask, is_causal, scale)
    # Without keys every row is masked everywhere.
    largest = (
        zeros((*scores.shape[:-1], 1), dtype=scores.dtype) if key.shape[-2] == 0 else detach(amax(scores, -1, True))
    )
    masked = eq(largest, float("-inf"))
    largest = where(masked, 0.0, largest)
    powers = exp(scores - largest)
    # The sum of a masked row is 0, and so are its powers.
    mass = where(masked, 1.0, total(powers, -1, True))
    output = matmul(powers / mass, widen(value))
    return convert(output, query.dtype), reshape(log(mass) + largest, scores.shape[:-1])


@_scaled_dot_product_flash_attention_for_cpu.vjp
def _scaled_dot_product_flash_attention_for_cpu_vjp(grads, results, query, key, value, is_causal, attn_mask, scale):
    output, logarithm = results
    if grads.known(1) is None and attn_mask is None:
        return *_scaled_dot_product_flash_attention_for_cpu_backward(
            grads[0], query, key, value, output, logarithm, 0.0, is_causal, scale=scale
        ), None
    weights, slope = _score_gradient(
        grads[0], query, key, value, output, logarithm, is_causal, attn_mask, scale, grads.known(1)
    )
    return *_operand_gradients(grads[0], query, key, value, weights, slope, scale), slope


def _score_gradient(grad_out, query, key, value, out, logsumexp, is_causal, attn_mask, scale, by_logarithm=None):
    """The attention weights, and the gradient of the scores."""
    key, value = _shared_heads(query, key), _shared_heads(query, value)
    weights = exp(_scores(query, key, attn_mask, is_causal, scale) - unsqueeze(logsumexp, -1))
    gradient = widen(grad_out)
    row = total(gradient * widen(out), -1, True)
    if by_logarithm is not None:
        row = row - unsqueeze(by_logarithm, -1)
    return weights, weights * (matmul(gradient, transpose(widen(value), -2, -1)) - row)


def _operand_gradients(grad_out, query, key, value, weights, slope, scale):
    """The gradients by query, key and value."""
    factor = _scale(query, scale)
    by_query = matmul(slope, _shared_heads(query, widen(key))) * factor
    by_key = matmul(transpose(slope, -2, -1), widen(query)) * factor
    by_value = matmul(transpose(weights, -2, -1), widen(grad_out))
    return by_query, _summed_heads(by_key, key), _summed_heads(by_value, value)


def _summed_heads(gradient: Tensor, operand: Tensor) -> Tensor:
    """The sum over the heads that shared one of a key or value."""
    if gradient.ndim < 3 or operand.ndim < 3:
        return gradient
    heads, wanted = operand.shape[-3], gradient.shape[-3]
    if wanted == heads:
        return gradient
    *batch, _heads, rows, features = gradient.shape
    return total(reshape(gradient, (*batch, heads, floor_divide(wanted, heads), rows, features)), -3)


@composite
def _scaled_dot_product_flash_attention_for_cpu_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of attention by query, key and value."""
    weights, slope = _score_gradient(grad_out, query, key, value, out, logsumexp, is_causal, attn_mask, scale)
    gradients = _operand_gradients(grad_out, query, key, value, weights, slope, scale)
    by_query, by_key, by_value = (
        convert(gradient, operand.dtype) for gradient, operand in zip(gradients, (query, key, value), strict=True)
    )
    return by_query, by_key, by_value
