"""Samples of sorting: NaN, infinities, both zeros, ties, odd and long rows, every dim."""

from __future__ import annotations

from typing import Any

import torch

from .samples_random import seeded
from .table import FLOAT, FULL, NUMBER, REAL, S, T, distinct, entry, t, values

NAN, INF = float("nan"), float("inf")
ODD = values(1.0, NAN, -INF, 0.0, -0.0, INF, NAN, -1.0, -0.0, 0.0, 2.0, 1.0, INF, -INF)
TIES = T((5, 37), -2, 2, "i64", differentiate=False)
LONG = T((2, 70), -9, 9, "i32", differentiate=False)


def _places(x: torch.Tensor, descending: bool = False, start: int = 0, count: int | None = None) -> torch.Tensor:
    found = torch.sort(x, dim=-1, descending=descending, stable=True).indices
    return found.narrow(-1, start, found.shape[-1] - start if count is None else count)


def _values(x: torch.Tensor, descending: bool = False, start: int = 0, count: int | None = None) -> torch.Tensor:
    found = torch.sort(x, dim=-1, descending=descending, stable=True).values
    return found.narrow(-1, start, found.shape[-1] - start if count is None else count)


def _sort(x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    return torch.sort(x, dim=dim, descending=descending, stable=True)


def _argsort(x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> torch.Tensor:
    return torch.argsort(x, dim=dim, descending=descending, stable=True)


def _mode(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """torch.mode with the last place of the mode: in long rows torch's own is any, as its sort is not stable."""
    value = torch.mode(x, dim, True).values
    numbers = torch.arange(x.shape[dim] if x.ndim else 1).reshape(
        [-1 if at == dim % x.ndim else 1 for at in range(x.ndim)]
    )
    hit = (x == value) | (x != x) & (value != value)
    place = torch.where(hit, numbers if x.ndim else 0, -1).amax(dim, True)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


SHARES = values(0.1, 0.25, 0.6)
ENDS = values(0.0, 1.0)
QUANTILES = (
    S(distinct(37), 0.3),
    S(distinct(4, 6), SHARES),
    S(distinct(4, 6), SHARES, 1),
    S(distinct(4, 6), ENDS, 1).forward_only(),
    S(distinct(4, 6), SHARES, 0, True),
    S(distinct(2, 3, 5), 0.45, 1, True),
    S(distinct(2, 3, 5), 0.45, 1),
    S(distinct(2, 3, 5), 0.5, None, True),
    S(distinct(3, 8), 0.4, -1, interpolation="lower"),
    S(distinct(3, 8), 0.4, -1, interpolation="higher"),
    S(distinct(3, 8), 0.4, -1, interpolation="midpoint"),
    S(distinct(3, 8), 0.4, -1, interpolation="nearest"),
    S(t(), 0.5),
    S(values(1.0, NAN, 3.0, 2.0), SHARES).forward_only(),
)

ROWS = (
    S(distinct(37)),
    S(distinct(2, 3, 5), True),
    S(distinct(3, 17), False, 0, 4),
    S(distinct(3, 37), True, 5),
    S(ODD, False, 3, 8).forward_only(),
    S(LONG, False, 20, 30),
    S(ODD).forward_only(),
    S(ODD, True).forward_only(),
    S(t(0)),
    S(t(3, 0)),
    S(t(1)),
    S(t(3, 4), False, 0, 0),
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
    "topk": entry(
        S(distinct(37), 5),
        S(distinct(2, 3, 5), 2, 1),
        S(distinct(4, 5), 3, 0, False),
        S(distinct(3, 200), 4, largest=False, sorted=True),
        S(t(), 1),
        S(t(3, 4), 0),
        S(distinct(4, 9), 9),
        dtypes=FLOAT,
        special=False,
        outputs=1,
    ),
    "kthvalue": entry(
        S(distinct(37), 5),
        S(distinct(2, 3, 5), 2, 1),
        S(distinct(4, 5), 3, 0, True),
        S(distinct(3, 200), 100),
        S(t(), 1),
        S(t(), 1, 0, True),
        dtypes=FLOAT,
        special=False,
        outputs=1,
    ),
    "median": entry(
        S(distinct(37)),
        S(distinct(2, 3, 5)),
        S(distinct(4, 6)),
        S(values(2.0, 1.0, 2.0, 2.0, 3.0)),
        S(t()),
        S(values(1.0, NAN, 2.0)).forward_only(),
        S(distinct(2, 3, 5), 1),
        S(distinct(4, 6), 0, True),
        S(distinct(3, 200), -1),
        S(t(), 0),
        S(ODD, 0).forward_only(),
        dtypes=NUMBER,
        special=False,
        outputs=1,
    ),
    "nanmedian": entry(
        S(distinct(37)),
        S(distinct(4, 6)),
        S(values(2.0, 1.0, NAN, 2.0, 3.0)),
        S(values(NAN, NAN)).forward_only(),
        S(t()),
        S(distinct(2, 3, 5), 1),
        S(distinct(4, 6), 0, True),
        S(values(1.0, NAN, 5.0, NAN, NAN, 3.0, 0.5, 4.0), 0),
        S(t(), 0, True),
        dtypes=NUMBER,
        special=False,
        outputs=1,
    ),
    "median_of_all": entry(
        S(distinct(37)), S(distinct(4, 6)), S(t()), dtypes=NUMBER, torch=torch.median, special=False
    ),
    "mode": entry(
        S(values(2.0, 1.0, 2.0, 3.0, 3.0, 2.0, 1.0)),
        S(TIES, 0),
        S(TIES, 1, True),
        S(distinct(3, 5)),
        S(T((3, 40), 0, 4, "i32", differentiate=False)),
        S(t()),
        S(t(1), 0, True),
        S(values(1.0, NAN, NAN, NAN, 0.0)).forward_only(),
        dtypes=NUMBER,
        torch=_mode,
        special=False,
        outputs=1,
    ),
    "quantile": entry(*QUANTILES, dtypes=FULL, special=False),
    "nanquantile": entry(
        *QUANTILES,
        S(values(NAN, NAN), 0.5).forward_only(),
        S(values(1.0, NAN, 3.0, 2.0, NAN), values(0.2, 0.9), interpolation="nearest"),
        dtypes=FULL,
        special=False,
    ),
    "randperm": seeded(S(37), S(0), S(1), S(3000, dtype="i32"), dtypes=("f64",)),
    "multinomial": seeded(
        S(t(37, low=0.0), 5),
        S(t(3, 8, low=0.0), 8),
        S(values(0.0, 1.0, 0.0, 2.0, 0.0), 50, True),
        S(t(3, 40, low=0.0), 9, True),
        dtypes=FULL,
    ),
}
