"""Samples of the scans and sorts."""

from __future__ import annotations

import torch

from .table import ANY, COMPLEX, FLOAT, FULL, NUMBER, REAL, D, S, distinct, entry, nonzero, t, values

TIES = values(1.0, 3.0, 3.0, 2.0, 3.0, 1.0)

ENTRIES = {
    "cumsum": entry(
        S(t(37), 0),
        S(t(2, 3, 4), 1),
        S(t(2, 3), -1),
        S(t(), 0),
        S(t(0), 0),
        S(t(5), 0, dtype=D("f64")),
        S(t(200), 0),
        dtypes=ANY,
    ),
    "cumprod": entry(
        S(nonzero(7), 0),
        S(nonzero(2, 3, 4), 1),
        S(nonzero(2, 3), -1),
        S(t(), 0),
        S(values(2.0, 0.0, 3.0), 0),
        S(t(5), 0, dtype=D("f64")),
        dtypes=(*REAL, *COMPLEX),
    ),
    "logcumsumexp": entry(
        S(t(37), 0),
        S(t(2, 3, 4), 1),
        S(t(), 0),
        S(t(9, low=90, high=99), 0),
        S(t(0), 0).forward_only(),
        dtypes=FULL,
    ),
    "cummax": entry(S(distinct(37), 0), S(distinct(2, 3, 4), 1), S(TIES, 0).forward_only(), S(t(), 0), dtypes=NUMBER),
    "cummin": entry(S(distinct(37), 0), S(distinct(2, 3, 4), 1), S(TIES, 0).forward_only(), S(t(), 0), dtypes=NUMBER),
    "running_max": entry(
        S(distinct(37), 0),
        S(distinct(2, 3, 4), 1),
        S(TIES, 0).forward_only(),
        dtypes=NUMBER,
        torch=lambda x, dim: torch.cummax(x, dim).values,
    ),
    "running_min": entry(
        S(distinct(37), 0),
        S(distinct(2, 3, 4), 1),
        S(TIES, 0).forward_only(),
        dtypes=NUMBER,
        torch=lambda x, dim: torch.cummin(x, dim).values,
    ),
    "running_sum": entry(S(t(37), 0), S(t(2, 3, 4), 1), S(t(0), 0), dtypes=(*FLOAT, *COMPLEX, "i64"), torch="cumsum"),
    "running_product": entry(
        S(nonzero(7), 0), S(nonzero(2, 3, 4), 1), dtypes=(*FLOAT, *COMPLEX, "i64"), torch="cumprod"
    ),
    "running_logsumexp": entry(S(t(37), 0), S(t(2, 3, 4), 1), dtypes=FULL, torch="logcumsumexp"),
}
