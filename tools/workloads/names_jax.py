"""The ops that workloads use, by JAX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
from jax import value_and_grad
from jax.nn import log_softmax, mish, relu, sigmoid, silu, softmax
from jax.numpy import (
    abs,
    argmax,
    argsort,
    cumsum,
    exp,
    log,
    log1p,
    maximum,
    minimum,
    roll,
    sin,
    sort,
    sqrt,
    stack,
    tanh,
    where,
    zeros_like,
)
from jax.numpy import concatenate as cat
from jax.numpy import transpose as permute
from jax.scipy.special import erf, logsumexp

__all__ = [
    "abs", "amax", "amin", "argmax", "argsort", "attention", "batch_norm", "binary_cross_entropy_with_logits", "cat",
    "clamp", "cross_entropy", "cumsum", "embedding", "embedding_bag", "erf", "exp", "gather", "gelu", "group_norm",
    "index_add", "layer_norm", "log", "log1p", "log_softmax", "logsumexp", "lower_median", "maximum", "mean",
    "minimum", "mish", "permute", "relu", "rms_norm", "roll", "sigmoid", "silu", "sin", "softmax", "sort", "special",
    "sqrt", "stack", "sum", "tanh", "topk", "upsample", "value_and_grad", "var", "where", "zeros_like",
]  # fmt: skip

Dims = int | Sequence[int] | None


def sum(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return jnp.sum(x, axis=dim, keepdims=keepdim)


def mean(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return jnp.mean(x, axis=dim, keepdims=keepdim)


def var(x: Any, dim: Dims = None) -> Any:
    return jnp.var(x, axis=dim, ddof=1)


def amax(x: Any, dim: Dims = None) -> Any:
    return jnp.max(x, axis=dim)


def amin(x: Any, dim: Dims = None) -> Any:
    return jnp.min(x, axis=dim)


def clamp(x: Any, low: float, high: float) -> Any:
    return jnp.clip(x, low, high)


def gelu(x: Any, approximate: str = "none") -> Any:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def normalised(x: Any, axes: Sequence[int], eps: float) -> Any:
    centred = x - jnp.mean(x, axis=axes, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, axis=axes, keepdims=True) + eps)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return normalised(x, (-1,), 1e-5) * weight + bias


def rms_norm(x: Any, weight: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return normalised(x, (0, 2, 3), 1e-5) * weight[:, None, None] + bias[:, None, None]


def group_norm(x: Any, groups: int, weight: Any, bias: Any) -> Any:
    grouped = x.reshape((x.shape[0], groups, -1))
    return normalised(grouped, (2,), 1e-5).reshape(x.shape) * weight[:, None, None] + bias[:, None, None]


def embedding(table: Any, index: Any) -> Any:
    return jnp.take(table, index, axis=0)


def upsample(x: Any, factor: int, mode: str) -> Any:
    shape = (*x.shape[:2], *(factor * count for count in x.shape[2:]))
    # Its cubic convolution has another free parameter than PyTorch's.
    return jax.image.resize(x, shape, {"bicubic": "cubic"}.get(mode, mode), antialias=False)


def embedding_bag(table: Any, index: Any, offsets: Any) -> Any:
    bags = jnp.searchsorted(offsets, jnp.arange(index.shape[0]), side="right") - 1
    return jax.ops.segment_sum(jnp.take(table, index, axis=0), bags, offsets.shape[0], indices_are_sorted=True)


def gather(x: Any, dim: int, index: Any) -> Any:
    return jnp.take_along_axis(x, index, axis=dim)


def index_add(x: Any, dim: int, index: Any, source: Any) -> Any:
    assert dim == 0
    return x.at[index].add(source)


def cross_entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(log_softmax(logits, -1), labels[:, None], axis=1)
    return -jnp.mean(chosen)


def binary_cross_entropy_with_logits(logits: Any, wanted: Any) -> Any:
    return jnp.mean(jnp.maximum(logits, 0) - logits * wanted + jnp.log1p(jnp.exp(-jnp.abs(logits))))


def attention(query: Any, key: Any, value: Any) -> Any:
    scores = query @ jnp.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1])
    return softmax(scores, -1) @ value


def topk(x: Any, k: int) -> Any:
    return jax.lax.top_k(x, k)[0]


def lower_median(x: Any) -> Any:
    return jnp.sort(x)[..., (x.shape[-1] - 1) // 2]


def special(name: str, *operands: Any) -> Any:
    return getattr(jax.scipy.special, name)(*operands)
