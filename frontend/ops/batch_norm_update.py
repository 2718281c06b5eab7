"""Batch normalisation under the names of PyTorch's newer interface, which hands a reserve from forward to backward.

The reserve belongs to other back ends' libraries; here it is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.types import u8
from .create import full
from .define import Tensor, composite
from .norm import _native_batch_norm_legit_functional, native_batch_norm, native_batch_norm_backward


@composite
def _batch_norm_with_update_functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """batch_norm in training, the statistics for its backward, and the running statistics after this batch."""
    *saved, mean, variance = _native_batch_norm_legit_functional(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return (*saved, full((0,), 0, dtype=u8), mean, variance)


@composite
def _batch_norm_no_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """batch_norm by running statistics, and the statistics for its backward."""
    saved = native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
    return (*saved, full((0,), 0, dtype=u8))


@composite
def batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of batch_norm by input, weight and bias; zeros where output_mask is false."""
    return native_batch_norm_backward(
        grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )
