"""The ops that workloads use, by PyTorch: eager, or inside of torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree
import torch
import torch.nn.functional as nn
from torch import (
    abs,
    amax,
    amin,
    argmax,
    argsort,
    cat,
    clamp,
    cumsum,
    erf,
    exp,
    gather,
    index_add,
    log,
    log1p,
    log_softmax,
    logsumexp,
    mean,
    permute,
    relu,
    roll,
    sigmoid,
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
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, gelu, group_norm, mish, silu
from torch.nn.functional import scaled_dot_product_attention as attention

__all__ = [
    "abs", "amax", "amin", "argmax", "argsort", "attention", "batch_norm", "binary_cross_entropy_with_logits", "cat",
    "clamp", "cross_entropy", "cumsum", "embedding", "embedding_bag", "erf", "exp", "gather", "gelu", "group_norm",
    "index_add", "layer_norm", "log", "log1p", "log_softmax", "logsumexp", "lower_median", "maximum", "mean",
    "minimum", "mish", "permute", "relu", "rms_norm", "roll", "sigmoid", "silu", "sin", "softmax", "sort", "special",
    "sqrt", "stack", "sum", "tanh", "topk", "upsample", "value_and_grad", "var", "where", "zeros_like",
]  # fmt: skip


def maximum(x: Any, y: float) -> Any:
    return clamp(x, min=y)


def minimum(x: Any, y: float) -> Any:
    return clamp(x, max=y)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return nn.layer_norm(x, weight.shape, weight, bias)


def rms_norm(x: Any, weight: Any) -> Any:
    return nn.rms_norm(x, weight.shape, weight, 1e-6)


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return nn.batch_norm(x, None, None, weight, bias, True)


def embedding(table: Any, index: Any) -> Any:
    return nn.embedding(index, table)


def upsample(x: Any, factor: int, mode: str) -> Any:
    return nn.interpolate(x, scale_factor=factor, mode=mode)


def embedding_bag(table: Any, index: Any, offsets: Any) -> Any:
    return nn.embedding_bag(index, table, offsets, mode="sum")


def value_and_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    """The value of a function of one tree of tensors, and its gradient."""

    def both(argument: Any) -> tuple[Any, Any]:
        if torch.compiler.is_compiling():
            # One graph for the loss, its gradient and what follows: the best that torch.compile can be given.
            grads, value = torch.func.grad_and_value(function)(argument)
            return value, grads
        leaves, structure = optree.tree_flatten(argument)
        with torch.enable_grad():
            leaves = [leaf.detach().requires_grad_() for leaf in leaves]
            value = function(optree.tree_unflatten(structure, leaves))
            grads = torch.autograd.grad(value, leaves)
        return value.detach(), optree.tree_unflatten(structure, grads)

    return both


def sort(x: Any) -> Any:
    return torch.sort(x).values


def topk(x: Any, k: int) -> Any:
    return torch.topk(x, k).values


def lower_median(x: Any) -> Any:
    return torch.median(x, -1).values


def special(name: str, *operands: Any) -> Any:
    return getattr(torch.special, name)(*operands)
