"""Samples of grouped products, masked softmax and what else is a product with something around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .table import ANY, FLOAT, FULL, Entry, S, entry, mask, t, values

PLAIN = {"special": False, "dtypes": FULL}
ENDS = values(2, 2, 5, dtype="i32", differentiate=False)
SOME = values(0, 1, 0, 0, 0, 1, dtype="bool", shape=(2, 3), differentiate=False)


def grouped(self: torch.Tensor, mat2: torch.Tensor, offs: torch.Tensor | None = None) -> torch.Tensor:
    """_grouped_mm, which PyTorch's CPU kernel has for sizes that are multiples of 16 bytes alone."""
    if offs is None:
        return self @ mat2
    ends = [int(end) for end in np.asarray(offs)]
    starts = [0, *ends[:-1]]
    if self.ndim == mat2.ndim:
        return torch.stack([self[:, low:high] @ mat2[low:high] for low, high in zip(starts, ends)])
    if self.ndim == 2:
        rows = [self[low:high] @ mat2[at] for at, (low, high) in enumerate(zip(starts, ends))]
        rest = torch.zeros(self.shape[0] - ends[-1], mat2.shape[2], dtype=self.dtype)
        return torch.cat([*rows, rest])
    columns = [self[at] @ mat2[:, low:high] for at, (low, high) in enumerate(zip(starts, ends))]
    return torch.cat([*columns, torch.zeros(self.shape[1], mat2.shape[1] - ends[-1], dtype=self.dtype)], 1)


def masked(x: Any, mask: Any, dim: Any = -1, kind: Any = None) -> Any:
    """_masked_softmax, whose CPU kernel has neither forward mode nor second derivatives."""
    if kind == 1:
        mask = mask.reshape(mask.shape[0], 1, 1, mask.shape[1])
    return torch.softmax(x.masked_fill(mask, float("-inf")), -1 if dim is None else dim)


ENTRIES: dict[str, Entry] = {
    "_addmm_activation": entry(
        S(t(4), t(3, 5), t(5, 4)), S(t(4), t(3, 5), t(5, 4), beta=0.5, alpha=2.0, use_gelu=True), **PLAIN
    ),
    "_grouped_mm": entry(
        S(t(6, 4), t(3, 4, 5), ENDS),
        S(t(4, 6), t(6, 5), ENDS),
        S(t(3, 4, 6), t(6, 7), ENDS),
        S(t(2, 3, 4), t(2, 4, 5)),
        **PLAIN,
        torch=grouped,
    ),
    "conv_tbc": entry(S(t(7, 2, 3), t(3, 3, 4), t(4), 1), S(t(5, 1, 3), t(2, 3, 2), t(2)), **PLAIN),
    "conv_tbc_backward": entry(S(t(7, 2, 4), t(7, 2, 3), t(3, 3, 4), t(4), 1), derivative=False, **PLAIN),
    "_masked_softmax": entry(
        S(t(2, 3), SOME, -1, 2),
        S(t(2, 3), SOME),
        S(t(2, 2, 3, 3), SOME, -1, 1),
        S(t(3, 4), mask(3, 4), 1, 2).forward_only(),
        special=False,
        dtypes=FLOAT,
        torch=masked,
    ),
    "_masked_softmax_backward": entry(
        S(t(2, 3), values(0.3, 0.0, 0.7, 0.5, 0.5, 0.0, shape=(2, 3)), SOME, -1), derivative=False, **PLAIN
    ),
    "_chunk_cat": entry(
        S([t(5), t(3, 2)], 0, 2), S([t(2, 5, 3), t(2, 4)], 1, 3), S([t(4), t(4)], 0, 2), special=False, dtypes=ANY
    ),
    "_is_all_true": entry(S(mask(3, 4)), S(values(1, 1, dtype="bool")), S(mask(0)), dtypes=("f64",), derivative=False),
    "_is_any_true": entry(S(mask(3, 4)), S(values(0, 0, dtype="bool")), S(mask(0)), dtypes=("f64",), derivative=False),
}
