"""Samples of the ops whose result has a size that data decide."""

from __future__ import annotations

import torch

from .table import ANY, EXACT, FLOAT, INTEGER, REAL, S, entry, index, mask, t, values

FLAGS = values(True, False, False, True, True, dtype="bool", differentiate=False)
REPEATS = values(2, 0, 3, 1, 1, dtype="i64", differentiate=False)
REPEATED = values(3, 1, 3, 3, 2, 1)
ROWS = values(2, 1, 2, 1, 1, 2, 0, 5, 2, 1, 2, 1, shape=(6, 2))
OFFSETS = values(0, 2, 2, 5, dtype="i64", differentiate=False)
NONE = values(False, False, False, dtype="bool", differentiate=False)


def _places(self: torch.Tensor, size: int, fill_value: int = -1) -> torch.Tensor:
    found = torch.nonzero(self).flatten()[:size]
    return torch.cat([found, found.new_full((size - len(found),), fill_value)])


def _padded(values: torch.Tensor, offsets: list[torch.Tensor], sizes: list[int], fill: float = 0.0) -> torch.Tensor:
    (ends,), (longest,) = [offsets[0].tolist()], sizes
    rows = [values[low : min(high, low + longest)] for low, high in zip(ends, ends[1:])]
    pad = torch.nn.functional.pad
    return torch.stack([pad(row, (0, 0, 0, longest - len(row)), value=fill) for row in rows])


def _jagged(dense: torch.Tensor, offsets: list[torch.Tensor], total: int | None = None) -> torch.Tensor:
    ends = offsets[0].tolist()
    return torch.cat([row[: high - low] for row, low, high in zip(dense, ends, ends[1:])])


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
    "flatnonzero": entry(
        S(t(37, low=-1.4, high=1.4)),
        S(t(2, 3)),
        S(t(0)),
        dtypes=ANY,
        torch=lambda x: torch.nonzero(x.flatten()).flatten(),
    ),
    "bincount": entry(
        S(index(40, below=7)),
        S(index(40, below=7), minlength=9),
        S(index(5, below=3), t(5, differentiate=False)),
        S(index(0, below=3)),
        S(index(1, below=3, dtype="u8"), minlength=2),
        dtypes=(*FLOAT, "i64"),
        derivative=False,
        torch=lambda self, weights=None, minlength=0: torch.bincount(
            self,
            None if weights is None else weights if weights.dtype == torch.float32 else weights.double(),
            minlength,
        ),
    ),
    "repeat_interleave": entry(
        S(t(3), 2),
        S(t(2, 3), 2, 1),
        S(t(2, 3), 3, 0),
        S(t(5), REPEATS),
        S(t(2, 5), REPEATS, 1),
        S(t(2, 5), values(2, dtype="i64", differentiate=False), 1),
        S(t(5), values(0, 0, 0, 0, 0, dtype="i64", differentiate=False)),
        S(t(2, 5), REPEATS, 1, output_size=7),
        dtypes=ANY,
    ),
    "_unique": entry(S(REPEATED), S(t(3, 4, low=-2, high=2), True, True), S(t(0)), dtypes=REAL, derivative=False),
    "_unique2": entry(
        S(REPEATED, True, True, True),
        S(t(3, 4, low=-2, high=2), True, True, True),
        S(t(0), True, True, True),
        S(values(2), True, True, True),
        S(values(1, float("nan"), 1, float("nan")), True, False, True).only(*FLOAT),
        dtypes=REAL,
        derivative=False,
    ),
    "unique": entry(
        S(REPEATED, True, True, True),
        S(REPEATED, True, False, True),
        S(ROWS, True, True, True, 0),
        S(ROWS, True, True, False, 1),
        dtypes=(*FLOAT, *INTEGER),
        derivative=False,
        torch=torch.unique,
    ),
    "unique_dim": entry(S(ROWS, 0, True, True, True), S(ROWS, -1), dtypes=(*FLOAT, *INTEGER), derivative=False),
    "unique_consecutive": entry(
        S(REPEATED, True, True),
        S(REPEATED),
        S(ROWS, True, True, 0),
        S(t(0), True, True),
        dtypes=(*FLOAT, *EXACT),
        derivative=False,
    ),
    "unique_dim_consecutive": entry(S(ROWS, 0, True, True), S(ROWS, 1), dtypes=(*FLOAT, *INTEGER), derivative=False),
    "_jagged_to_padded_dense_forward": entry(
        S(t(5, 3), (OFFSETS,), (4,)),
        S(t(5, 3), (OFFSETS,), (2,), -1.5),
        S(t(5, 2), (OFFSETS,), (3,), 2.0),
        dtypes=("f32", "f64"),
        torch=_padded,
    ),
    "_padded_dense_to_jagged_forward": entry(
        S(t(3, 4, 3), (OFFSETS,)), S(t(3, 3, 2), (OFFSETS,), 5), dtypes=("f32", "f64"), torch=_jagged
    ),
}
