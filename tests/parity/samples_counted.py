"""Samples of histograms."""

from __future__ import annotations

from .table import FULL, Entry, S, entry, t, values

PLAIN = {"special": False, "dtypes": FULL, "derivative": False}
EDGES = values(-2.0, -0.5, 0.0, 1.25, 2.5)

ENTRIES: dict[str, Entry] = {
    "histc": entry(
        S(t(37), 5),
        S(t(3, 7), 4, -1, 2),
        S(t(), 3, -1, 1),
        S(t(0), 4),
        S(values(2.0, 2.0), 2),
        S(values(0.0, 0.5, 1.0, 2.0), 4, 0, 2),
        **PLAIN,
    ),
    "histogram": entry(
        S(t(37), 5),
        S(t(3, 7), 4, range=[-1.0, 2.0]),
        S(t(37), EDGES),
        S(t(37), EDGES, weight=t(37, low=0.0), density=True),
        S(t(37), 6, density=True),
        S(t(0), 3),
        S(values(2.0, 2.0), 2),
        S(values(0.0, 0.5, 1.0, 2.0, 3.0), 4, range=[0.0, 2.0]),
        **PLAIN,
    ),
    "_histogramdd_bin_edges": entry(S(t(9, 2), [2, 3]), S(t(9, 2), [2, 3], range=[0.0, 1.0, -1.0, 2.0]), **PLAIN),
    "_histogramdd_from_bin_cts": entry(
        S(t(19, 2), [2, 3]),
        S(t(19, 2), [2, 3], range=[-1.0, 1.0, -1.0, 2.0], density=True),
        S(t(19, 3), [2, 1, 3], weight=t(19, low=0.0)),
        **PLAIN,
    ),
    "_histogramdd_from_bin_tensors": entry(
        S(t(19, 2), [EDGES, values(-2.0, 0.0, 1.0)]), S(t(19, 1), [EDGES], density=True), **PLAIN
    ),
}
