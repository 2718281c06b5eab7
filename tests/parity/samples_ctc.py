"""Samples of connectionist temporal classification. PyTorch's gradient is that by logits, and has no second derivative;
forward mode it has none, and a difference of losses says something else."""

from __future__ import annotations

from typing import Any

import torch

from .table import FULL, Entry, S, T, entry, t, values

PLAIN = {"special": False, "dtypes": FULL}
PROBABILITIES = t(6, 3, 5, low=-4.0, high=-0.2)
LABELS = values(1, 2, 2, 4, 3, 1, 2, 2, 3, dtype="i64", shape=(3, 3), differentiate=False)
CONCATENATED = values(1, 2, 4, 3, 2, dtype="i64", differentiate=False)


def whole(*items: int) -> T:
    return values(*items, dtype="i64", differentiate=False)


INPUTS, TARGETS = whole(6, 5, 4), whole(3, 2, 1)
SHORT, TOO_LONG = whole(3, 2, 0), whole(3, 0, 1)


def alone(*args: Any) -> Any:
    """The losses. PyTorch leaves states after the last one, and steps after the last one, as they were in memory."""
    return torch.ops.aten._ctc_loss(*args)[0], None


REVERSE = ("forward", "vjp")


def call(*args: Any, **kwargs: Any) -> Any:
    sample = S(*args, **kwargs)
    return type(sample)(sample.args, sample.kwargs, sample.dtypes, REVERSE)


CALLS = (
    (PROBABILITIES, LABELS, INPUTS, TARGETS),
    (PROBABILITIES, CONCATENATED, INPUTS, whole(2, 2, 1), 0),
    (PROBABILITIES, LABELS, INPUTS, whole(3, 0, 1), 4),
    (PROBABILITIES, LABELS, SHORT, TOO_LONG, 0),
)
# A forward pass of two sequences of full length, for its gradient.
KNOWN = torch.linspace(-3.0, -0.3, 40, dtype=torch.float64).sin().reshape(4, 2, 5).log_softmax(-1)
LONG = torch.tensor([4, 4]), torch.tensor([2, 2])
LOSS, ALPHA = torch.ops.aten._ctc_loss(KNOWN, torch.tensor([[1, 2], [3, 3]]), *LONG)


def constant(numbers: torch.Tensor) -> T:
    return values(*numbers.flatten().tolist(), shape=tuple(numbers.shape), differentiate=False)


ENTRIES: dict[str, Entry] = {
    "_ctc_loss": entry(
        *(call(*item) for item in CALLS[:3]), S(*CALLS[3]).forward_only(), outputs=1, torch=alone, **PLAIN
    ),
    "ctc_loss": entry(
        call(*CALLS[0]),
        call(*CALLS[0], 0, 0),
        call(*CALLS[1], 2),
        call(*CALLS[3], 1, True),
        call(
            t(6, 5, low=-4.0, high=-0.2),
            whole(1, 2, 2),
            values(6, dtype="i64", shape=()),
            values(3, dtype="i64", shape=()),
        ),
        **PLAIN,
    ),
    "_ctc_loss_backward": entry(
        S(
            t(2),
            constant(KNOWN),
            values(1, 2, 3, 3, dtype="i64", shape=(2, 2)),
            whole(4, 4),
            whole(2, 2),
            constant(LOSS),
            constant(ALPHA),
            0,
        ),
        derivative=False,
        **PLAIN,
    ),
}
