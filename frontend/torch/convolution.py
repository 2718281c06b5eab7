"""Chooses the convolutions that smelt compiles: those as fast as PyTorch's, measured forward and backward.

Patches and kernels of size 1 are one matrix product. For depthwise convolutions PyTorch is slow in gradients and for
small kernels, faster for large kernels. All other convolutions are left to PyTorch.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch.fx import Node

from ..ir.errors import CompileError
from ..ops import conv
from ..ops.define import Tensor
from .limits import LIMITS
from .rules import rule


def _is_product(weight: Tensor, a: dict[str, Any]) -> bool:
    """Whether the convolution is one matrix product: kernel size 1, or windows side by side."""
    kernel, rank = weight.shape[2:], weight.ndim - 2
    side_by_side = not any(a["padding"]) and all(apart == 1 for apart in a["dilation"])
    return side_by_side and a["groups"] == 1 and tuple(a["stride"]) in (kernel, kernel[:1]) and rank > 0


def _is_depthwise(weight: Tensor, a: dict[str, Any]) -> bool:
    channels, each = weight.shape[:2]
    plain = not a["transposed"] and all(step == 1 for step in a["stride"])
    return plain and each == 1 and channels == a["groups"] > 1 and prod(weight.shape[2:]) <= conv.MANY_PLACES


def _is_wide(value: Tensor) -> bool:
    return value.dtype.compute is value.dtype


def _check(weight: Tensor, a: dict[str, Any], places: int) -> None:
    """Raise Unsupported with the reason if a convolution is left to PyTorch."""
    if not _is_wide(weight):
        raise CompileError(f"PyTorch's is faster in {weight.dtype}")
    kernel = "x".join(map(str, weight.shape[2:]))
    if _is_depthwise(weight, a) and prod(weight.shape[2:]) > places:
        raise CompileError(
            f"PyTorch's is faster for depthwise kernels of more than {places} places, this one is {kernel}"
        )
    if not _is_depthwise(weight, a) and not _is_product(weight, a):
        kind = "transposed " if a["transposed"] else ""
        steps = "x".join(map(str, a["stride"]))
        groups = f"{a['groups']} group{'s' * (a['groups'] != 1)}"
        raise CompileError(
            f"PyTorch's is faster for a {kind}kernel of {kernel} with stride {steps} and {groups}: "
            "smelt compiles kernels of 1, windows side by side, and small depthwise ones of stride 1"
        )


@rule("convolution")
def convolved(node: Node, a: dict[str, Any]) -> Any:
    _check(a["weight"], a, LIMITS.kernel_places)
    return conv.convolution(**a)


@rule("convolution_backward")
def gradients(node: Node, a: dict[str, Any]) -> Any:
    _check(a["weight"], a, conv.MANY_PLACES)
    return conv.convolution_backward(**a)
