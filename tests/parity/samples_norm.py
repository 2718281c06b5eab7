"""Samples of softmax and the normalisations, with their named backwards."""

from __future__ import annotations

import torch

from .table import FULL, D, S, entry, t, values

MASK3 = (True, True, True)


def fixed(*shape: int, low: float = -3.0, high: float = 3.0) -> object:
    """A statistic: no gradient flows into it."""
    return t(*shape, low=low, high=high, differentiate=False)


def rms_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    shape: list[int],
    rstd: torch.Tensor,
    weight: torch.Tensor,
    mask: list[bool],
) -> tuple[torch.Tensor, torch.Tensor]:
    """torch has this one for GPUs only."""
    standard, scaled = x * rstd, grad * weight
    return rstd * (scaled - standard * (scaled * standard).mean(1, keepdim=True)), (grad * standard).sum(0)


ENTRIES = {
    "softmax": entry(
        S(t(37), 0),
        S(t(2, 3, 4), 1),
        S(t(5, 70), -1),
        S(t(), 0),
        S(t(3, 4), 1, dtype=D("f64")),
        S(t(4, 9, low=80, high=99), 1),
        S(values(-float("inf"), 1.0, 2.0), 0).forward_only(),
        S(t(0, 3), 1),
    ),
    "log_softmax": entry(
        S(t(37), 0),
        S(t(2, 3, 4), 1),
        S(t(5, 70), -1),
        S(t(), 0),
        S(t(3, 4), 1, dtype=D("f64")),
        S(t(4, 9, low=80, high=99), 1),
    ),
    "_softmax": entry(S(t(37), 0, False), S(t(2, 3, 4), 1, False)),
    "_log_softmax": entry(S(t(37), 0, False), S(t(2, 3, 4), 1, False)),
    "_softmax_backward_data": entry(
        S(t(2, 5), t(2, 5, low=0.1, high=0.9), 1, D("f64")).only("f64"),
        S(t(2, 5), t(2, 5, low=0.1, high=0.9), 0, D("f32")).only("f32"),
    ),
    "_log_softmax_backward_data": entry(
        S(t(2, 5), t(2, 5, low=-3.0, high=-0.1), 1, D("f64")).only("f64"),
        S(t(2, 5), t(2, 5, low=-3.0, high=-0.1), 0, D("f32")).only("f32"),
    ),
    "_safe_softmax": entry(
        S(t(2, 5), 1), S(values(-float("inf"), -float("inf"), 1.0, 2.0, shape=(2, 2)), 1).forward_only()
    ),
    "layer_norm": entry(
        S(t(4, 37), (37,)),
        S(t(2, 3, 4), (3, 4), t(3, 4), t(3, 4)),
        S(t(4, 9), (9,), t(9)),
        S(t(4, 9), (9,), t(9), t(9), 0.1),
        S(t(0, 5), (5,), t(5), t(5)),
        S(t(4, 9), (9,), None, t(9)),
    ),
    "native_layer_norm": entry(
        S(t(4, 37), (37,), t(37), t(37), 1e-5),
        S(t(2, 3, 4), (3, 4), None, None, 1e-5),
        dtypes=FULL,
        outputs=1,
    ),
    "native_layer_norm_backward": entry(
        S(t(4, 9), t(4, 9), (9,), fixed(4, 1), fixed(4, 1, low=0.5), t(9), t(9), MASK3),
        S(t(4, 9), t(4, 9), (9,), fixed(4, 1), fixed(4, 1, low=0.5), None, None, (True, False, False)),
        dtypes=FULL,
        derivative=False,
    ),
    "rms_norm": entry(S(t(4, 37), (37,)), S(t(2, 3, 4), (3, 4), t(3, 4)), S(t(4, 9), (9,), t(9), 1e-3)),
    "_fused_rms_norm": entry(S(t(4, 37), (37,), t(37), 1e-5), dtypes=FULL, outputs=1),
    "group_norm": entry(
        S(t(2, 6, 5), 3),
        S(t(2, 6, 4, 3), 2, t(6), t(6)),
        S(t(2, 6), 3, t(6), t(6), 0.1),
        S(t(2, 4, 3), 4, t(4)),
        S(t(2, 4, 3), 1, None, t(4)),
    ),
    "native_group_norm": entry(
        S(t(2, 6, 5), t(6), t(6), 2, 6, 5, 3, 1e-5),
        S(t(2, 6, 2, 2), None, None, 2, 6, 4, 2, 1e-5),
        dtypes=FULL,
        outputs=1,
    ),
    "native_group_norm_backward": entry(
        S(t(2, 6, 5), t(2, 6, 5), fixed(2, 3), fixed(2, 3, low=0.5), t(6), 2, 6, 5, 3, MASK3),
        S(t(2, 6, 5), t(2, 6, 5), fixed(2, 3), fixed(2, 3, low=0.5), None, 2, 6, 5, 3, (True, False, False)),
        dtypes=FULL,
        derivative=False,
    ),
    "batch_norm": entry(
        S(t(4, 3), t(3), t(3), fixed(3), fixed(3, low=0.5), True, 0.1, 1e-5),
        S(t(4, 3, 5), t(3), t(3), fixed(3), fixed(3, low=0.5), False, 0.1, 1e-5),
        S(t(2, 3, 4, 5), None, None, None, None, True, 0.1, 1e-5),
        S(t(2, 3, 4, 5), t(3), None, fixed(3), fixed(3, low=0.5), False, 0.1, 1e-3),
        torch=lambda x, weight, bias, mean, variance, training, momentum, eps: torch.nn.functional.batch_norm(
            x, mean, variance, weight, bias, training, momentum, eps
        ),
    ),
    "native_batch_norm": entry(
        S(t(4, 3), t(3), t(3), fixed(3), fixed(3, low=0.5), True, 0.1, 1e-5),
        S(t(2, 3, 4), t(3), t(3), None, None, True, 0.1, 1e-5),
        dtypes=FULL,
        outputs=1,
    ),
    "_native_batch_norm_legit_functional": entry(
        S(t(4, 3), t(3), t(3), fixed(3), fixed(3, low=0.5), True, 0.1, 1e-5),
        S(t(4, 3), t(3), t(3), fixed(3), fixed(3, low=0.5), False, 0.1, 1e-5).forward_only(),
        dtypes=FULL,
        outputs=1,
    ),
    "_native_batch_norm_legit_no_training": entry(
        S(t(4, 3), t(3), t(3), fixed(3), fixed(3, low=0.5), 0.1, 1e-5), dtypes=FULL, outputs=1
    ),
    "native_batch_norm_backward": entry(
        S(
            t(4, 3),
            t(4, 3),
            t(3),
            fixed(3),
            fixed(3, low=0.5),
            fixed(3),
            fixed(3, low=0.5),
            True,
            1e-5,
            MASK3,
        ),
        S(
            t(4, 3, 5),
            t(4, 3, 5),
            t(3),
            fixed(3),
            fixed(3, low=0.5),
            fixed(3),
            fixed(3, low=0.5),
            False,
            1e-5,
            MASK3,
        ),
        S(
            t(2, 3, 2, 2),
            t(2, 3, 2, 2),
            None,
            None,
            None,
            fixed(3),
            fixed(3, low=0.5),
            True,
            1e-5,
            (True, False, False),
        ),
        dtypes=FULL,
        derivative=False,
    ),
    "instance_norm": entry(
        S(t(2, 3, 5), t(3), t(3), None, None, True, 0.1, 1e-5),
        S(t(2, 3, 4, 5), None, None, None, None, True, 0.1, 1e-5),
        torch=lambda x, weight, bias, mean, variance, use, momentum, eps: torch.nn.functional.instance_norm(
            x, mean, variance, weight, bias, use, momentum, eps
        ),
    ),
    "normalize": entry(
        S(t(4, 5)),
        S(t(4, 5), 1.0, 0),
        S(t(2, 3, 4), 2.0, -1, 1e-6),
        S(t(4, 5), 3.0, 1),
        torch="nn.functional.normalize",
    ),
    "_weight_norm_interface": entry(S(t(4, 5), t(4, 1), 0), outputs=1),
    "_fused_rms_norm_backward": entry(
        S(t(4, 9), t(4, 9), (9,), fixed(4, 1, low=0.5), t(9), (True, True)),
        dtypes=FULL,
        derivative=False,
        torch=rms_norm_backward,
    ),
    "_native_batch_norm_legit": entry(
        S(t(4, 3), t(3), t(3), training=True, momentum=0.1, eps=1e-5),
        S(t(2, 3, 4), None, None, training=True, momentum=0.1, eps=1e-5),
        S(t(4, 3), t(3), t(3), fixed(3), fixed(3, low=0.5), False, 0.1, 1e-5),
        S(t(2, 3, 4), None, None, fixed(3), fixed(3, low=0.5), True, 0.1, 1e-5),
        dtypes=FULL,
        outputs=1,
    ),
    "_weight_norm_interface_backward": entry(
        S(t(4, 5), t(4, 5), t(4, 1), fixed(4, 1, low=0.5), 0), dtypes=FULL, derivative=False
    ),
    "_batch_norm_with_update_functional": entry(
        S(t(4, 3), t(3), t(3), fixed(3), fixed(3, low=0.5), 0.1, 1e-5),
        S(t(2, 3, 4, 2), t(3), t(3), fixed(3), fixed(3, low=0.5), 0.3, 1e-3),
        dtypes=FULL,
        outputs=1,
    ),
    "_batch_norm_no_update": entry(
        S(t(4, 3), t(3), t(3), fixed(3), fixed(3, low=0.5), 0.1, 1e-5), dtypes=FULL, outputs=1
    ),
    "batch_norm_backward": entry(
        *(
            S(
                t(4, 3, 5),
                t(4, 3, 5),
                t(3),
                fixed(3),
                fixed(3, low=0.5),
                fixed(3),
                fixed(3, low=0.5),
                update,
                1e-5,
                MASK3,
                t(0, dtype="u8"),
            )
            for update in (True, False)
        ),
        dtypes=FULL,
        derivative=False,
    ),
}
