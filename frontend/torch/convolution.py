"""Which convolutions are smelt's: those that are as fast as PyTorch's, measured forward and backward.

Patches and kernels of 1 are one matrix product. With one channel for each group PyTorch's gradients are slow, and so
is its small kernel; a large one it runs faster. All else is PyTorch's.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch.fx import Node

from ..ops import conv
from ..ops.define import Tensor
from .rules import rule

SMALL = 9  # places of a kernel


def _is_product(weight: Tensor, a: dict[str, Any]) -> bool:
    """Whether windows are points, or lie side by side."""
    kernel, rank = weight.shape[2:], weight.ndim - 2
    side_by_side = not any(a["padding"]) and all(apart == 1 for apart in a["dilation"])
    return side_by_side and a["groups"] == 1 and tuple(a["stride"]) in (kernel, kernel[:1]) and rank > 0


def _is_depthwise(weight: Tensor, a: dict[str, Any]) -> bool:
    channels, each = weight.shape[:2]
    plain = not a["transposed"] and all(step == 1 for step in a["stride"])
    return plain and each == 1 and channels == a["groups"] > 1 and prod(weight.shape[2:]) <= conv.MANY_PLACES


def _is_wide(value: Tensor) -> bool:
    return value.dtype.compute is value.dtype


@rule("convolution")
def convolved(node: Node, a: dict[str, Any]) -> Any:
    weight = a["weight"]
    small = _is_depthwise(weight, a) and prod(weight.shape[2:]) <= SMALL
    native = _is_wide(weight) and (small or _is_product(weight, a))
    return conv.convolution(**a) if native else NotImplemented


@rule("convolution_backward")
def gradients(node: Node, a: dict[str, Any]) -> Any:
    weight = a["weight"]
    native = _is_wide(weight) and (_is_depthwise(weight, a) or _is_product(weight, a))
    return conv.convolution_backward(**a) if native else NotImplemented
