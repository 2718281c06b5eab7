"""Samples of sorting: NaN, infinities, both zeros, ties, odd and long rows, every dim."""

from __future__ import annotations

from typing import Any

import torch

from .table import NUMBER, REAL, S, T, distinct, entry, t, values

NAN, INF = float("nan"), float("inf")
ODD = values(1.0, NAN, -INF, 0.0, -0.0, INF, NAN, -1.0, -0.0, 0.0, 2.0, 1.0, INF, -INF)
TIES = T((5, 37), -2, 2, "i64", differentiate=False)
LONG = T((2, 2100), -90, 90, "i32", differentiate=False)


def _places(x: torch.Tensor, descending: bool = False, count: int | None = None) -> torch.Tensor:
    return torch.sort(x, dim=-1, descending=descending, stable=True).indices[..., :count]


def _values(x: torch.Tensor, descending: bool = False, count: int | None = None) -> torch.Tensor:
    return torch.sort(x, dim=-1, descending=descending, stable=True).values[..., :count]


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    return torch.sort(x, dim=dim, descending=descending, stable=True)


def _argsort(x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> torch.Tensor:
    return torch.argsort(x, dim=dim, descending=descending, stable=True)


ROWS = (
    S(distinct(37)),
    S(distinct(2, 3, 5), True),
    S(distinct(3, 17), False, 4),
    S(ODD).forward_only(),
    S(ODD, True).forward_only(),
    S(t(0)),
    S(t(3, 0)),
    S(t(1)),
    S(t(3, 4), False, 0),
    S(TIES, True),
    S(LONG),
)

ENTRIES = {
    "sorted_values": entry(*ROWS, dtypes=REAL, torch=_values, special=False),
    "sorted_places": entry(*ROWS, dtypes=REAL, torch=_places, special=False),
    "sort": entry(
        S(distinct(37)),
        S(distinct(2, 3, 5), 1),
        S(distinct(4, 5), 0, True),
        S(t()),
        S(t(), 0, True),
        S(t(0), 0),
        S(t(3, 0), 0),
        S(ODD).forward_only(),
        S(ODD, 0, True, stable=True).forward_only(),
        S(TIES, 0, stable=True),
        S(TIES, 1, True),
        S(LONG),
        dtypes=REAL,
        torch=_sort,
        special=False,
        outputs=1,
    ),
    "argsort": entry(
        S(distinct(37)),
        S(distinct(2, 3, 5), 1),
        S(t()),
        S(ODD, 0, True),
        S(TIES, 0, stable=True),
        dtypes=REAL,
        torch=_argsort,
        special=False,
    ),
    "msort": entry(S(distinct(37)), S(distinct(3, 4)), S(t(3, 0)), S(ODD).forward_only(), dtypes=NUMBER, special=False),
}
