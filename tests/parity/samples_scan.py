"""Samples of the scans and sorts."""

from __future__ import annotations

import torch

from .table import ANY, COMPLEX, FLOAT, FULL, NUMBER, REAL, D, S, distinct, entry, nonzero, t, values

TIES = values(1.0, 3.0, 3.0, 2.0, 3.0, 1.0)
# logcumsumexp computes in f64: what is large on both sides cancels.
DIFFERENCES = (S(t(7), t(7), t(7), 0), S(t(2, 3, 4), t(2, 3, 4), t(2, 3, 4), 1))
GRADIENTS = (
    S(t(7), t(7), 0),
    S(t(2, 3, 4), t(2, 3, 4), 1),
    S(t(5), values(2.0, 0.0, 3.0, 1.5, -1.0), 0),
    S(t(6), values(2.0, 0.0, 3.0, 0.0, 1.5, 0.0), 0),
)

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
        S(values(2.0, 0.0, 3.0, 0.0, 1.5), 0),
        S(t(5), 0, dtype=D("f64")),
        dtypes=(*REAL, *COMPLEX),
    ),
    "logcumsumexp": entry(
        S(t(37), 0),
        S(t(2, 3, 4), 1),
        S(t(), 0),
        S(t(9, low=90, high=99), 0),
        S(t(0), 0).forward_only(),
        S(values(1e4, 0.0, -1e4, 1e4 + 8), 0),
        S(values(0.0, -float("inf"), 2.0), 0),
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
    "running_product_backward": entry(*GRADIENTS, dtypes=FLOAT),
    "running_product_jvp": entry(*GRADIENTS, dtypes=FLOAT),
    "running_logsumexp_backward": entry(*DIFFERENCES, dtypes=("f64",)),
    "running_logsumexp_jvp": entry(*DIFFERENCES, dtypes=("f64",)),
    "linear_recurrence": entry(
        *(S(t(size), t(size), 0) for size in (0, 1, 2, 5, 8)),
        S(t(5), values(2.0, 0.0, -1.0, 0.0, 3.0), 0),
        S(t(2, 3, 4), t(2, 3, 4), 1),
        dtypes=FLOAT,
    ),
    "prod_of_others": entry(
        S(t(5)),
        S(t(2, 3, 4), 1),
        S(t(2, 3, 4), (0, 2)),
        S(t()),
        S(values(1.0, 0.0, 0.0, 3.0)),
        S(values(0.0, 2.0, 1.0, 3.0, 0.0, 0.0, 0.5, 2.0, shape=(2, 2, 2)), (0, 2)),
        dtypes=FLOAT,
    ),
}
