"""Samples of the activation functions and their named backwards."""

from __future__ import annotations

import torch

from .table import FLOAT, NUMBER, S, binary, entry, t, unary, values

KINK = values(-6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0)
GRADS = t(9)


def backward(*rest: object, **kwargs: object) -> object:
    """grad_output, self, and what follows: random points, the kinks, and a broadcast-free 2-d case."""
    return entry(
        S(t(37), t(37), *rest, **kwargs),
        S(GRADS, KINK, *rest, **kwargs).forward_only(),
        S(t(2, 3), t(2, 3), *rest, **kwargs),
        S(t(0), t(0), *rest, **kwargs),
        special=False,
    )


def log_sigmoid_backward(grad: torch.Tensor, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """torch trusts the buffer to be that of the forward."""
    return torch.ops.aten.log_sigmoid_backward(grad, x, (-x.abs()).exp())


ENTRIES = {
    "relu": unary(S(KINK), dtypes=NUMBER),
    "relu6": unary(S(KINK), S(t(9, low=-9, high=9)), dtypes=NUMBER),
    "leaky_relu": unary(S(KINK), S(t(9), 0.2)),
    "elu": unary(S(KINK), S(t(9), 1.5)),
    "selu": unary(S(KINK)),
    "celu": unary(S(KINK), S(t(9), 1.5)),
    "gelu": unary(S(t(9), approximate="tanh"), S(t(9, low=-9, high=9))),
    "silu": unary(S(t(9, low=-30, high=30))),
    "mish": unary(S(t(9, low=-30, high=30))),
    "softplus": unary(S(t(9), 2.0), S(t(9, low=-30, high=30), 1.5, 10.0)),
    "hardtanh": unary(S(KINK), S(t(9), -0.5, 1.5), S(KINK, -3.0, 3.0)),
    "hardsigmoid": unary(S(KINK), S(t(9, low=-9, high=9))),
    "hardswish": unary(S(KINK), S(t(9, low=-9, high=9))),
    "hardshrink": unary(S(KINK), S(t(9), 1.0)),
    "softshrink": unary(S(KINK), S(t(9), 1.0)),
    "tanhshrink": unary(dtypes=FLOAT, special=False),
    "softsign": unary(S(KINK), special=False),
    "threshold": entry(
        S(t(37), 0.5, -1.0),
        S(KINK, 0.5, 2.0),
        S(t(), 0.0, 0.0),
        S(t(0), 0.0, 1.0),
        S(values(-2, -1, 0, 1, dtype="i32"), -0.5, 1).forward_only(),
        S(values(-20, -1, 0, 1, dtype="i16"), -7, 2.7).forward_only(),
    ),
    "log_sigmoid": unary(S(t(9, low=-30, high=30))),
    "prelu": entry(S(t(2, 3, 4), t(3)), S(t(5), t(1)), S(t(2, 3), t(1)), special=False),
    "glu": entry(S(t(4, 6)), S(t(4, 6), 0), S(t(2, 4, 3), 1), special=False),
    "gelu_backward": entry(S(t(37), t(37)), S(t(9), t(9), approximate="tanh"), S(t(2, 3), t(2, 3)), special=False),
    "silu_backward": backward(),
    "mish_backward": backward(),
    "sigmoid_backward": backward(),
    "tanh_backward": backward(),
    "elu_backward": entry(
        S(t(37), 1.0, 1.0, 1.0, False, t(37)),
        S(t(9), 1.5, 1.0, 1.0, False, KINK).forward_only(),
        S(t(9), 1.5, 1.1, 0.5, False, t(9)),
        S(t(9), 1.5, 1.0, 1.0, True, t(9, low=-1.4)),
        special=False,
    ),
    "softplus_backward": backward(1.5, 10.0),
    "hardsigmoid_backward": backward(),
    "hardswish_backward": backward(),
    "hardtanh_backward": backward(-1.0, 1.0),
    "leaky_relu_backward": backward(0.1, False),
    "threshold_backward": backward(0.5),
    "hardshrink_backward": backward(0.5),
    "softshrink_backward": backward(0.5),
    "log_sigmoid_backward": entry(
        S(t(9), t(9), t(9, differentiate=False)), derivative=False, special=False, torch=log_sigmoid_backward
    ),
    "glu_backward": entry(S(t(4, 3), t(4, 6), 1), S(t(2, 6), t(4, 6), 0), special=False),
    "_prelu_kernel": binary(mixed=False, special=False),
    "_prelu_kernel_backward": entry(S(t(2, 3), t(2, 3), t(2, 3)), special=False),
    "logit_backward": entry(S(t(9), t(9, low=0.1, high=0.9)), S(t(9), t(9, low=0.1, high=0.9), 0.3), special=False),
    "log_sigmoid_forward": entry(S(t(9)), S(t(2, 3)), outputs=1),
}
