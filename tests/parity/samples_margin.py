"""Samples of losses by margins."""

from __future__ import annotations

from .table import FLOAT, FULL, S, entry, index, t, values

POSITIVE = t(4, low=0.2)
LABELS = values(3, 1, -1, 0, 2, -1, 1, 1, -1, -1, 2, 0, dtype="i64", shape=(3, 4))
ALL = values(0, 1, 2, 3, dtype="i64")
PLAIN = {"special": False, "dtypes": FULL}

ENTRIES = {
    "multi_margin_loss": entry(
        S(t(3, 4), index(3, below=4)),
        S(t(3, 4), index(3, below=4), 2, 0.5, None, 0),
        S(t(3, 4), index(3, below=4), 1, 1.5, POSITIVE, 2).forward_only(),
        S(t(3, 4), index(3, below=4), 2, 1.5, t(4, low=0.2, differentiate=False), 1),
        S(t(4), index(below=4)),
        S(t(4), index(1, below=4), 1, 1, None, 2),
        special=False,
        dtypes=FLOAT,
    ),
    "multi_margin_loss_backward": entry(
        S(t(), t(3, 4), index(3, below=4), 1, 1),
        S(t(3), t(3, 4), index(3, below=4), 2, 0.5, None, 0),
        S(t(), t(3, 4), index(3, below=4), 1, 1.5, t(4, low=0.2, differentiate=False), 2),
        S(t(), t(4), index(below=4), 2, 1),
        **PLAIN,
    ),
    "multilabel_margin_loss": entry(
        S(t(3, 4), LABELS), S(t(3, 4), LABELS, 0), S(t(4), ALL, 2), S(t(3, 4), LABELS, 2), special=False, dtypes=FLOAT
    ),
    "multilabel_margin_loss_forward": entry(
        S(t(3, 4), LABELS, 1), S(t(3, 4), LABELS, 0), S(t(4), ALL, 2), outputs=1, **PLAIN
    ),
    "multilabel_margin_loss_backward": entry(
        S(t(), t(4), values(2, 0, -1, 1, dtype="i64"), 1, values(1, 0, 1, 0, differentiate=False)),
        S(
            t(1),
            t(1, 4),
            values(2, 0, -1, 1, dtype="i64", shape=(1, 4)),
            0,
            values(1, 0, 1, 0, shape=(1, 4), differentiate=False),
        ),
        **PLAIN,
    ),
}
