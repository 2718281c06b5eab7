"""Ops that PyTorch itself says in terms of others, which smelt has: what they become is compiled with all around them.

Only ops whose parts are as exact and as quick as the op itself are here. An op that smelt has is never taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table

from ..ops.define import REGISTRY
from .rules import RULES, SAME

NAMES = {
    "_addmm_activation", "_batch_norm_with_update_functional", "_chunk_cat", "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "_weight_norm", "affine_grid_generator", "batch_norm_backward", "block_diag",
    "channel_shuffle", "grid_sampler_2d", "im2col", "isin", "linalg_cross", "max_unpool2d", "max_unpool3d",
    "multi_margin_loss", "multilabel_margin_loss_forward", "mvlgamma", "native_channel_shuffle", "pixel_shuffle",
    "pixel_unshuffle", "renorm", "rrelu_with_noise_backward", "special_log_ndtr", "special_ndtr", "tril_indices",
    "triu_indices", "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d",
}  # fmt: skip


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """By overload, as AOTAutograd wants them."""
    wanted = NAMES - set(REGISTRY) - set(RULES) - set(SAME)
    return {
        target: function
        for target, function in decomposition_table.items()
        if isinstance(target, torch._ops.OpOverload) and target._schema.name.removeprefix("aten::") in wanted
    }
