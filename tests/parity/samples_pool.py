"""Samples of pools."""

from __future__ import annotations

import math

from .table import FLOAT, FULL, S, T, distinct, entry, index, t, values

INF = float("inf")
NAN = float("nan")

MAX2D = (
    S(distinct(2, 3, 7, 8), 2),
    S(distinct(2, 3, 7, 8), (3, 2), (2, 1), (1, 0)),
    S(distinct(2, 7, 9), 3, 2, 1, 1, True),
    S(distinct(1, 2, 9, 8), 2, 1, 1, (2, 3)),
    S(distinct(2, 6, 7), 3, 2, 0, 1, True),
    S(distinct(2, 2, 10, 11), (7, 6), 1, (3, 0)),
    S(distinct(2, 3, 7, 9), (7, 9)),
    S(distinct(2, 1, 9, 9), (7, 8), 3, (3, 1), 1, True),
)
AVG2D = (
    S(t(2, 3, 7, 8), 2),
    S(t(2, 3, 7, 8), (3, 2), (2, 1), (1, 0)),
    S(t(2, 7, 9), 3, 2, 1, True),
    S(t(2, 7, 9), 3, 2, 1, True, False),
    S(t(2, 2, 5, 6), 2, 3, 1, False, False),
    S(t(2, 3, 7, 8), 3, 2, 0, True, True, 5),
    S(t(2, 2, 10, 11), (7, 6), 1, (3, 0)),
    S(t(2, 3, 7, 9), (7, 9)),
    S(t(1, 1, 6, 7), 2, 2, 0, True),
)


# Samples of where windows are, and places without repetition.
SAMPLES2D = t(2, 3, 2, low=0, high=0.999, differentiate=False)
SAMPLES3D = t(2, 3, 3, low=0, high=0.999, differentiate=False)


def places(*shape: int, below: int) -> T:
    """Row-major indices in the last dims, each once."""
    count = math.prod(shape[2:])
    rows = [sorted(range(below), key=lambda at: math.sin(at + row))[:count] for row in range(math.prod(shape[:2]))]
    return values(*(at for row in rows for at in row), shape=shape, dtype="i64", differentiate=False)


ENTRIES = {
    "fractional_max_pool2d": entry(
        S(distinct(2, 3, 9, 10), (2, 3), (4, 3), SAMPLES2D),
        S(distinct(2, 3, 7, 5), (2, 2), (1, 4), SAMPLES2D),
        S(distinct(3, 8, 8), (3, 2), (6, 7), t(1, 3, 2, low=0, high=0.999, differentiate=False)),
        S(
            values(*([NAN, -INF, 3.0, NAN, 1.0, -INF] * 15), shape=(1, 1, 9, 10)),
            (2, 3),
            (4, 3),
            t(1, 1, 2, low=0, high=0.999, differentiate=False),
        ).forward_only(),
        outputs=1,
    ),
    "fractional_max_pool3d": entry(
        S(distinct(2, 3, 5, 6, 7), (2, 3, 2), (3, 2, 4), SAMPLES3D),
        S(distinct(3, 4, 4, 5), (2, 2, 2), (2, 1, 3), t(1, 3, 3, low=0, high=0.999, differentiate=False)),
        outputs=1,
    ),
    "fractional_max_pool2d_backward": entry(
        S(t(2, 3, 4, 3), t(2, 3, 9, 10, differentiate=False), (2, 3), (4, 3), index(2, 3, 4, 3, below=90)), dtypes=FULL
    ),
    "fractional_max_pool3d_backward": entry(
        S(
            t(2, 3, 3, 2, 4),
            t(2, 3, 5, 6, 7, differentiate=False),
            (2, 3, 2),
            (3, 2, 4),
            index(2, 3, 3, 2, 4, below=210),
        ),
        dtypes=FULL,
    ),
    "max_unpool2d": entry(
        S(t(2, 3, 3, 4), places(2, 3, 3, 4, below=42), (6, 7)),
        S(t(1, 3, 4), values(*range(0, 24, 2), shape=(1, 3, 4), dtype="i64", differentiate=False), (5, 5)),
    ),
    "max_unpool3d": entry(
        S(t(2, 3, 2, 3, 2), places(2, 3, 2, 3, 2, below=60), (3, 4, 5), (2, 2, 2), (0, 0, 0)),
    ),
    "max_pool2d_with_indices": entry(
        *MAX2D,
        S(
            values(NAN, 1, -INF, 2, NAN, -INF, -INF, -INF, 5, 5, 1, 5, dtype=None, shape=(1, 3, 4)),
            (2, 2),
            (1, 1),
            (1, 0),
        ).forward_only(),
        S(values(*([-INF] * 12), shape=(1, 3, 4)), 2, 2, 1).forward_only(),
        S(t(1, 2, 5, 6, dtype="i32", differentiate=False), 3, 2, 1).forward_only(),
        S(t(0, 2, 5, 6), 3, 2, 1),
        S(distinct(2, 3, 4, 5), 1, 2),
        dtypes=FLOAT,
    ),
    "max_pool3d_with_indices": entry(
        S(distinct(2, 2, 4, 5, 6), 2),
        S(distinct(2, 5, 6, 5), (3, 2, 3), 2, 1, 1, True),
        S(distinct(1, 2, 6, 6, 6), 2, 1, 0, (1, 2, 3)),
        S(distinct(1, 2, 5, 6, 4), (4, 3, 3), 1, 1),
        S(distinct(2, 1, 4, 5, 4), (4, 5, 4)),
        dtypes=FLOAT,
    ),
    "max_pool2d_with_indices_backward": entry(
        S(t(2, 3, 3, 4), t(2, 3, 7, 8, differentiate=False), 2, 2, 0, 1, False, index(2, 3, 3, 4, below=56)),
        S(t(2, 3, 4), t(2, 5, 7, differentiate=False), 2, 2, 1, 1, False, index(2, 3, 4, below=35)),
        dtypes=FULL,
    ),
    "max_pool3d_with_indices_backward": entry(
        S(t(2, 3, 2, 2, 2), t(2, 3, 4, 4, 5, differentiate=False), 2, 2, 0, 1, False, index(2, 3, 2, 2, 2, below=80)),
        dtypes=FULL,
    ),
    "max_pool1d": entry(
        S(distinct(2, 3, 9), 3), S(distinct(2, 9), (2,), (1,), (1,), (2,)), S(distinct(2, 9), 2, 2, 0, 1, True)
    ),
    "max_pool2d": entry(*MAX2D[:3], dtypes=FULL),
    "max_pool3d": entry(S(distinct(2, 2, 4, 5, 6), 2), dtypes=FULL),
    "avg_pool1d": entry(S(t(2, 3, 9), 3), S(t(2, 9), (3,), (2,), (1,), True, False)),
    "avg_pool2d": entry(*AVG2D, S(t(1, 2, 5, 6, dtype="i64", low=-9, high=9), 3, 2, 1).forward_only()),
    "avg_pool3d": entry(
        S(t(2, 2, 4, 5, 6), 2),
        S(t(2, 5, 6, 5), (3, 2, 3), 2, 1, True, False),
        S(t(1, 2, 5, 6, 4), (4, 3, 3), 1, 1),
        S(t(2, 1, 4, 5, 4), (4, 5, 4), 4, 0, False, True, 3),
        dtypes=FULL,
    ),
    "avg_pool2d_backward": entry(
        S(t(2, 3, 3, 4), t(2, 3, 7, 8), 2, 2, 0, False, True, None),
        S(t(2, 3, 4, 7), t(2, 3, 7, 8), (3, 2), (2, 1), (1, 0), False, True, None),
        S(t(2, 4, 5), t(2, 7, 9), 3, 2, 1, True, False, None),
        S(t(2, 2, 2, 3), t(2, 2, 5, 6), 2, 3, 1, False, False, 7),
        S(t(2, 2, 10, 6), t(2, 2, 10, 11), (7, 6), 1, (3, 0), False, True, None),
        dtypes=FULL,
    ),
    "avg_pool3d_backward": entry(
        S(t(2, 2, 2, 2, 3), t(2, 2, 4, 5, 6), 2, 2, 0, False, True, None),
        S(t(2, 3, 4, 3), t(2, 5, 6, 5), (3, 2, 3), 2, 1, True, False, None),
        dtypes=FULL,
    ),
    "_adaptive_avg_pool2d": entry(
        S(t(2, 3, 7, 8), (1, 1)),
        S(t(2, 3, 8, 6), (4, 3)),
        S(t(2, 7, 8), (3, 5)),
        S(t(2, 3, 4), (7, 8)),
        S(t(2, 3, 4, 5), (4, 2)),
    ),
    "_adaptive_avg_pool3d": entry(S(t(2, 3, 4, 5, 6), (1, 1, 1)), S(t(2, 4, 5, 7), (2, 3, 7)), dtypes=FULL),
    "_adaptive_avg_pool2d_backward": entry(
        S(t(2, 3, 1, 1), t(2, 3, 7, 8)),
        S(t(2, 3, 4, 3), t(2, 3, 8, 6)),
        S(t(2, 3, 5), t(2, 7, 8)),
        S(t(2, 7, 8), t(2, 3, 4)),
        dtypes=FULL,
    ),
    "_adaptive_avg_pool3d_backward": entry(S(t(2, 2, 3, 7), t(2, 4, 5, 7)), dtypes=FULL),
    "adaptive_avg_pool1d": entry(S(t(2, 3, 7), 3), S(t(2, 8), (4,))),
    "adaptive_avg_pool2d": entry(
        S(t(2, 3, 7, 8), (3, None)),
        S(t(2, 3, 4, 5), (0, 2)).forward_only(),
        torch="nn.functional.adaptive_avg_pool2d",
        dtypes=FULL,
    ),
    "adaptive_avg_pool3d": entry(S(t(2, 4, 5, 7), (2, 3, 7)), dtypes=FULL),
    "adaptive_max_pool1d": entry(S(distinct(2, 3, 7), 3), S(distinct(2, 8), (4,))),
    "adaptive_max_pool2d": entry(
        S(distinct(2, 3, 7, 8), (1, 1)),
        S(distinct(2, 3, 8, 6), (4, 3)),
        S(distinct(2, 7, 8), (3, 5)),
        S(distinct(2, 3, 4), (7, 8)),
        S(distinct(2, 3, 4, 5), (2, 0)).forward_only(),
        S(values(float("nan"), *range(63), float("nan"), 9.0, shape=(1, 1, 66)), (1, 1)).forward_only(),
    ),
    "adaptive_max_pool3d": entry(S(distinct(2, 4, 5, 7), (2, 3, 7)), S(distinct(2, 4, 6, 4), (2, 3, 2)), dtypes=FULL),
    "adaptive_max_pool2d_backward": entry(
        S(t(2, 3, 3, 4), t(2, 3, 7, 8, differentiate=False), index(2, 3, 3, 4, below=56)), dtypes=FULL
    ),
    "adaptive_max_pool3d_backward": entry(
        S(t(3, 2, 2, 2), t(3, 4, 4, 5, differentiate=False), index(3, 2, 2, 2, below=80)), dtypes=FULL
    ),
}
