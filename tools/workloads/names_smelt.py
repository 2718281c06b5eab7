"""The ops that workloads use, by smelt."""

from __future__ import annotations

from typing import Any

from ... import ops, value_and_grad
from ...ops import (
    abs,
    amax,
    amin,
    argmax,
    argsort,
    binary_cross_entropy_with_logits,
    cat,
    clamp,
    cross_entropy,
    cumsum,
    embedding,
    erf,
    exp,
    gather,
    gelu,
    group_norm,
    index_add,
    log,
    log1p,
    log_softmax,
    logsumexp,
    mean,
    minimum,
    mish,
    permute,
    relu,
    roll,
    sigmoid,
    silu,
    sin,
    softmax,
    sqrt,
    stack,
    sum,
    tanh,
    var,
    where,
    zeros_like,
)
from ...ops import scaled_dot_product_attention as attention

__all__ = [
    "abs", "amax", "amin", "argmax", "argsort", "attention", "batch_norm", "binary_cross_entropy_with_logits", "cat",
    "clamp", "cross_entropy", "cumsum", "embedding", "embedding_bag", "erf", "exp", "gather", "gelu", "group_norm",
    "index_add", "layer_norm", "log", "log1p", "log_softmax", "logsumexp", "lower_median", "maximum", "mean",
    "minimum", "mish", "permute", "relu", "rms_norm", "roll", "sigmoid", "silu", "sin", "softmax", "sort", "special",
    "sqrt", "stack", "sum", "tanh", "topk", "upsample", "value_and_grad", "var", "where", "zeros_like",
]  # fmt: skip


def upsample(x: Any, factor: int, mode: str) -> Any:
    size = tuple(factor * count for count in x.shape[2:])
    return ops.upsample_nearest2d(x, size) if mode == "nearest" else getattr(ops, f"upsample_{mode}2d")(x, size, False)


def embedding_bag(table: Any, index: Any, offsets: Any) -> Any:
    return ops.embedding_bag(table, index, offsets)[0]


def maximum(x: Any, y: Any) -> Any:
    return ops.maximum(x, y)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return ops.layer_norm(x, weight.shape, weight, bias)


def rms_norm(x: Any, weight: Any) -> Any:
    return ops.rms_norm(x, weight.shape, weight, 1e-6)


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return ops.batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)


def sort(x: Any) -> Any:
    return ops.sort(x)[0]


def topk(x: Any, k: int) -> Any:
    return ops.topk(x, k)[0]


def lower_median(x: Any) -> Any:
    return ops.median(x, -1)[0]


ALIASES = {"i0": "i0", "gammainc": "igamma", "gammaincc": "igammac"}


def special(name: str, *operands: Any) -> Any:
    return getattr(ops, ALIASES.get(name, f"special_{name}"))(*operands)
