"""Samples of the ops whose result has a size that data decide."""

from __future__ import annotations

import torch

from .table import ANY, S, entry, mask, t, values

FLAGS = values(True, False, False, True, True, dtype="bool", differentiate=False)
NONE = values(False, False, False, dtype="bool", differentiate=False)


def _places(self: torch.Tensor, size: int, fill_value: int = -1) -> torch.Tensor:
    found = torch.nonzero(self).flatten()[:size]
    return torch.cat([found, found.new_full((size - len(found),), fill_value)])


ENTRIES = {
    "true_places": entry(
        S(FLAGS, 5),
        S(FLAGS, 2, 7),
        S(FLAGS, 0),
        S(NONE, 4, 9),
        S(mask(0), 2),
        S(mask(40000), 40000),
        S(mask(40000), 30, 0),
        dtypes=("f32",),
        torch=_places,
    ),
    "nonzero": entry(
        S(t(37, low=-1.4, high=1.4)), S(t()), S(t(0)), S(t(2, 3, 5)), S(t(3, 0, 2)), S(mask(3, 4)), dtypes=ANY
    ),
    "nonzero_static": entry(
        S(mask(3, 4), size=5),
        S(mask(3, 4), size=20),
        S(mask(3, 4), size=20, fill_value=7),
        S(t(4), size=0),
        S(mask(0), size=3),
        dtypes=ANY,
    ),
    "argwhere": entry(S(t(37, low=-1.4, high=1.4)), S(t(2, 3)), S(t(0)), dtypes=ANY),
    "masked_select": entry(
        S(t(5), FLAGS),
        S(t(4, 5), FLAGS),
        S(t(2, 3), mask(2, 3)),
        S(t(3), NONE),
        S(t(), mask(4)),
        S(t(0), mask(0)),
        S(t(2, 1, 3), mask(4, 1)),
        dtypes=ANY,
    ),
}
