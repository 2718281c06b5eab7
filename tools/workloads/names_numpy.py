"""The ops that workloads use, by NumPy. Derivatives have no place here: workloads write them out, or go without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special
from numpy import (
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
from numpy import concatenate as cat
from numpy import transpose as permute
from scipy.special import erf
from scipy.special import expit as sigmoid

__all__ = [
    "abs", "amax", "amin", "argmax", "argsort", "attention", "batch_norm", "cat", "clamp", "cross_entropy", "cumsum",
    "embedding", "embedding_bag", "erf", "exp", "gather", "gelu", "group_norm", "index_add", "layer_norm", "log",
    "log1p", "log_softmax", "logsumexp", "lower_median", "maximum", "mean", "minimum", "mish", "permute", "relu",
    "rms_norm", "roll", "sigmoid", "silu", "sin", "softmax", "sort", "special", "sqrt", "stack", "sum", "tanh",
    "topk", "var", "where", "zeros_like",
]  # fmt: skip

Dims = int | Sequence[int] | None


def sum(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return np.sum(x, axis=dim, keepdims=keepdim)


def mean(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return np.mean(x, axis=dim, keepdims=keepdim)


def var(x: Any, dim: Dims = None) -> Any:
    return np.var(x, axis=dim, ddof=1)


def amax(x: Any, dim: Dims = None) -> Any:
    return np.max(x, axis=dim)


def amin(x: Any, dim: Dims = None) -> Any:
    return np.min(x, axis=dim)


def logsumexp(x: Any, dim: int) -> Any:
    largest = np.max(x, axis=dim, keepdims=True)
    return np.log(np.sum(np.exp(x - largest), axis=dim)) + np.squeeze(largest, dim)


def clamp(x: Any, low: float, high: float) -> Any:
    return np.clip(x, low, high)


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def silu(x: Any) -> Any:
    return x * sigmoid(x)


def mish(x: Any) -> Any:
    return x * np.tanh(np.logaddexp(x, 0))


def gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def softmax(x: Any, dim: int) -> Any:
    weights = np.exp(x - np.max(x, axis=dim, keepdims=True))
    weights /= np.sum(weights, axis=dim, keepdims=True)
    return weights


def log_softmax(x: Any, dim: int) -> Any:
    shifted = x - np.max(x, axis=dim, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True))


def normalised(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    centred = x - np.mean(x, axis=axes, keepdims=True)
    centred /= np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True) + eps)
    return centred


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return normalised(x, (-1,), 1e-5) * weight + bias


def rms_norm(x: Any, weight: Any) -> Any:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return normalised(x, (0, 2, 3), 1e-5) * weight[:, None, None] + bias[:, None, None]


def group_norm(x: Any, groups: int, weight: Any, bias: Any) -> Any:
    grouped = x.reshape((x.shape[0], groups, -1))
    return normalised(grouped, (2,), 1e-5).reshape(x.shape) * weight[:, None, None] + bias[:, None, None]


def embedding(table: Any, index: Any) -> Any:
    return table[index]


def embedding_bag(table: Any, index: Any, offsets: Any) -> Any:
    return np.add.reduceat(table[index], offsets, axis=0)  # for bags that are not empty


def gather(x: Any, dim: int, index: Any) -> Any:
    return np.take_along_axis(x, index, axis=dim)


def index_add(x: Any, dim: int, index: Any, source: Any) -> Any:
    assert dim == 0
    result = x.copy()
    np.add.at(result, index, source)
    return result


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -np.mean(log_softmax(logits, -1)[np.arange(len(labels)), labels])


def attention(query: Any, key: Any, value: Any) -> Any:
    scores = query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1])
    return softmax(scores, -1) @ value


def topk(x: Any, k: int) -> Any:
    return np.sort(np.partition(x, x.shape[-1] - k)[..., -k:])[..., ::-1]


def lower_median(x: Any) -> Any:
    middle = (x.shape[-1] - 1) // 2
    return np.partition(x, middle)[..., middle]


SCIPY = {
    "modified_bessel_k0": "k0", "modified_bessel_k1": "k1", "scaled_modified_bessel_k0": "k0e",
    "scaled_modified_bessel_k1": "k1e",
}  # fmt: skip


def special(name: str, *operands: Any) -> Any:
    return getattr(scipy.special, SCIPY.get(name, name))(*operands)
