"""Samples of ops that are other ops under PyTorch's names of copies, in-place calls and kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .samples_random import seeded
from .table import ANY, FULL, NUMBER, D, Entry, S, entry, index, mask, nonzero, t, values

PLAIN = {"special": False, "dtypes": FULL}
KEPT = {"special": False, "dtypes": ANY}
F = nn.functional


def depthwise2d(x: Any, weight: Any, size: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    return F.conv2d(x, weight, bias, stride, padding, dilation, x.shape[1])


def depthwise3d(x: Any, weight: Any, size: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    return F.conv3d(x, weight, bias, stride, padding, dilation, x.shape[1])


def slow_conv2d_backward(grad: Any, x: Any, weight: Any, size: Any, stride: Any, padding: Any, wanted: Any) -> Any:
    channels = [weight.shape[0]]
    return torch.ops.aten.convolution_backward(
        grad, x, weight, channels, stride, padding, [1, 1], False, [0, 0], 1, wanted
    )


def linear_backward(x: Any, grad: Any, weight: Any, wanted: Any) -> Any:
    rows, inner = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
    return grad @ weight, rows.T @ inner, rows.sum(0)


def max_pool2d_backward(grad: Any, x: Any, *window: Any) -> Any:
    indices = F.max_pool2d(x, *window, return_indices=True)[1]
    return torch.ops.aten.max_pool2d_with_indices_backward(grad, x, *window, False, indices)


def efficient(q: Any, k: Any, v: Any, bias: Any, wanted: bool, p: float = 0.0, causal: bool = False) -> Any:
    output, logarithm = attended(q, k, v, bias, causal)
    return output, logarithm if wanted else logarithm[..., :0], *(torch.zeros((), dtype=torch.int64),) * 2


def attended(q: Any, k: Any, v: Any, bias: Any, causal: bool) -> Any:
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def flash(q: Any, k: Any, v: Any, p: float = 0.0, causal: bool = False) -> Any:
    whole = torch.int64
    none = torch.zeros(0, dtype=whole)
    sizes = (torch.tensor(item.shape[-2]) for item in (q, k))
    state = torch.zeros(2, dtype=whole), torch.zeros((), dtype=whole)
    return *attended(q, k, v, None, causal), none, none, *sizes, *state, torch.zeros(0, dtype=q.dtype)


def flash_forward(q: Any, k: Any, v: Any, *rest: Any) -> Any:
    output, logarithm = attended(*(item.transpose(1, 2) for item in (q, k, v)), None, rest[5])
    state = torch.zeros(2, dtype=torch.int64), torch.zeros((), dtype=torch.int64)
    return output.transpose(1, 2), logarithm, *state, torch.zeros(0, dtype=q.dtype)


QKV = t(2, 3, 4, 5), t(2, 3, 6, 5), t(2, 3, 6, 5)
IMAGE, KERNEL = t(2, 3, 6, 5), t(4, 3, 3, 2)
VOLUME, CUBE = t(1, 2, 4, 4, 3), t(3, 2, 2, 2, 2)

ENTRIES: dict[str, Entry] = {
    "_convolution": entry(
        S(IMAGE, KERNEL, t(4), [1, 1], [1, 0], [1, 1], False, [0, 0], 1, False, False, True, True),
        S(t(2, 4, 5), t(4, 2, 3), None, [2], [1], [1], True, [1], 2, False, False, True, True),
        **PLAIN,
    ),
    "_conv_depthwise2d": entry(
        S(IMAGE, t(3, 1, 3, 2), [3, 2], t(3), [1, 1], [1, 1], [1, 1]),
        S(IMAGE, t(6, 1, 2, 2), [2, 2], None, [2, 1], [0, 0], [1, 2]),
        **PLAIN,
        torch=depthwise2d,
    ),
    "conv_depthwise3d": entry(
        S(VOLUME, t(2, 1, 2, 2, 2), [2, 2, 2], t(2), [1, 1, 1], [0, 1, 0], [1, 1, 1]), **PLAIN, torch=depthwise3d
    ),
    "_slow_conv2d_forward": entry(S(IMAGE, KERNEL, [3, 2], t(4), [1, 2], [1, 0]), **PLAIN),
    "_slow_conv2d_backward": entry(
        S(t(2, 4, 4, 4), IMAGE, KERNEL, [3, 2], [1, 1], [0, 0], [True, True, True]), **PLAIN, torch=slow_conv2d_backward
    ),
    "slow_conv3d_forward": entry(S(VOLUME, CUBE, [2, 2, 2], t(3), [1, 1, 1], [0, 1, 0]), **PLAIN),
    "slow_conv_dilated2d": entry(S(IMAGE, t(4, 3, 2, 2), [2, 2], t(4), [1, 1], [1, 1], [2, 2]), **PLAIN),
    "slow_conv_dilated3d": entry(S(VOLUME, CUBE, [2, 2, 2], t(3), [1, 1, 1], [1, 1, 1], [2, 1, 2]), **PLAIN),
    "slow_conv_transpose2d": entry(S(IMAGE, t(3, 2, 3, 2), [3, 2], t(2), [2, 1], [1, 0], [1, 0], [1, 1]), **PLAIN),
    "slow_conv_transpose3d": entry(
        S(VOLUME, t(2, 3, 2, 2, 2), [2, 2, 2], t(3), [2, 1, 1], [0, 1, 0], [1, 0, 0], [1, 1, 1]), **PLAIN
    ),
    "_scaled_dot_product_efficient_attention": entry(
        S(*QKV, t(2, 3, 4, 6), True), S(*QKV, None, False, 0.0, True), **PLAIN, torch=efficient, outputs=2
    ),
    "_scaled_dot_product_flash_attention": entry(S(*QKV), S(*QKV, 0.0, True), **PLAIN, torch=flash, outputs=2),
    "_flash_attention_forward": entry(
        S(t(2, 4, 3, 5), t(2, 6, 3, 5), t(2, 6, 3, 5), None, None, 4, 6, 0.0, True, False),
        **PLAIN,
        torch=flash_forward,
        outputs=2,
    ),
    "_euclidean_dist": entry(S(t(4, 3), t(5, 3)), S(t(2, 4, 3), t(2, 1, 3)), **PLAIN, torch="cdist"),
    "_fused_dropout": seeded(S(t(37), 0.7), S(t(2, 3), 1.0), dtypes=FULL),
    "_grid_sampler_2d_cpu_fallback": entry(
        S(t(2, 3, 4, 5), t(2, 3, 2, 2, low=-1.0, high=1.0), 0, 0, False),
        S(t(2, 3, 4, 5), t(2, 3, 2, 2, low=-1.0, high=1.0), 0, 1, True),
        **PLAIN,
        torch="ops.aten.grid_sampler_2d",
    ),
    "_index_put_impl": entry(
        S(t(5), [values(1, 3, 0, dtype="i64")], t(3)), S(t(3, 4), [index(6, below=3)], t(6, 4), True), **KEPT
    ),
    "linear_backward": entry(
        S(t(3, 4), t(3, 2), t(2, 4), [True, True, True]),
        S(t(2, 3, 4), t(2, 3, 2), t(2, 4), [True, True, True]),
        **PLAIN,
        torch=linear_backward,
    ),
    "max_pool2d_backward": entry(
        S(t(2, 3, 2, 2), t(2, 3, 4, 5), [2, 2], [2, 2], [0, 0], [1, 1]),
        S(t(1, 2, 3, 3), t(1, 2, 5, 5), [3, 3], [2, 2], [1, 1], [1, 1]),
        **PLAIN,
        torch=max_pool2d_backward,
    ),
    "_reshape_alias": entry(S(t(2, 6), [3, 4], [4, 1]), **KEPT),
    "broadcast_in_dim": entry(
        S(t(3), [2, 3], [1]),
        S(t(3), [3, 2], [0]),
        S(t(2, 1), [2, 4, 5], [0, 2]),
        **KEPT,
        torch=torch.ops.prims.broadcast_in_dim,
    ),
    "convert_element_type": entry(S(t(37), D("f64")), S(t(2, 3), D("i64")), torch=torch.Tensor.to),
    "_to_copy": entry(S(t(37)), S(t(2, 3), dtype=D("f32")), **KEPT),
    "device_put": entry(S(t(37)), **KEPT, torch=torch.clone),
    "philox_rand": entry(
        S([37], values(7, dtype="i64", shape=()), values(3, dtype="i64", shape=())), torch="interp", dtypes=("f64",)
    ),
    "lift": entry(S(t(2, 3)), **KEPT),
    "lift_fresh": entry(S(t(2, 3)), **KEPT),
    "detach_": entry(S(t(2, 3)), **KEPT, torch=torch.detach),
    "view_of": entry(S(t(2, 3)), **KEPT, torch=torch.clone),
    "_neg_view": entry(S(t(2, 3)), special=False, dtypes=NUMBER, torch=torch.neg),
    "_unsafe_view": entry(S(t(2, 6), [3, 4]), **KEPT),
    "conj_physical": entry(S(t(37)), S(t(2, 3)), **KEPT),
    "as_strided_": entry(S(t(12), [2, 3], [4, 1], 1), **KEPT, torch=torch.as_strided),
    "squeeze_": entry(S(t(1, 3, 1)), S(t(1, 3, 1), 0), **KEPT, torch=torch.squeeze),
    "unsqueeze_": entry(S(t(2, 3), 1), **KEPT, torch=torch.unsqueeze),
    "bernoulli_": seeded(S(t(37, low=0.0, high=1.0)), S(t(2, 3), 0.3)),
    "put": entry(
        S(t(3, 4), values(1, 11, 4, dtype="i64"), t(3)),
        S(t(3, 4), index(2, 3, below=12), t(2, 3), True),
        S(t(3), values(-1, dtype="i64"), t(1)),
        **KEPT,
    ),
    "masked_scatter": entry(
        S(t(37), mask(37), t(37)),
        S(t(3, 4), mask(4), t(2, 10)),
        S(t(4), mask(3, 1), t(12)),
        S(t(3), values(0, 0, 0, dtype="bool", differentiate=False), t(0)),
        S(t(0), mask(0), t(0)),
        **KEPT,
    ),
    "_trilinear": entry(
        S(t(3, 4), t(3, 5), t(3, 6), [2, 3], [1, 3], [1, 2], [0]),
        S(t(3, 4), t(3, 4), t(3, 4), [], [], [], [1]),
        **PLAIN,
    ),
    "broadcast_tensors": entry(
        S([t(2, 1), t(3)]), S([t(), t(2, 3), t(1)]), **KEPT, torch=lambda all: torch.broadcast_tensors(*all)
    ),
    "exponential": seeded(S(t(37)), S(t(2, 3), 2.0)),
    "cauchy": seeded(S(t(37)), S(t(2, 3), 1.0, 2.0), dtypes=FULL),
    "log_normal": seeded(S(t(37)), S(t(2, 3), 0.5, 0.25), dtypes=FULL),
    "geometric": seeded(S(t(37), 0.5), S(t(2, 3), 0.1), S(t(5, dtype="i64"), 0.2)),
    "random": seeded(S(t(37)), S(t(2, 3), 2), S(t(2, 3), -3, 4), dtypes=NUMBER),
    "seed": seeded(S(), dtypes=("f64",)),
    "seeds": seeded(S(3), dtypes=("f64",)),
    "lookup_seed": entry(
        S(values(5, 7, 9, dtype="i64"), 1), torch=lambda seeds, at: seeds[at], dtypes=("f64",), special=False
    ),
    "rrelu_with_noise": seeded(
        S(nonzero(37), t(37, differentiate=False), 0.1, 0.3, True),
        S(nonzero(2, 3), t(2, 3, differentiate=False)),
        dtypes=FULL,
    ),
}
