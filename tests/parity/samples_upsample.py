"""Samples of resized images. A given scale fits the sizes, as `interpolate` makes them: for others PyTorch's kernels
disagree with each other."""

from __future__ import annotations

from math import floor

from .table import FLOAT, FULL, S, Sample, entry, t

WITH_BYTES = (*FLOAT, "u8")
# Sizes of image and result: other ones, twice and eight times as many, fewer, equal ones, single pixels.
LINES = (
    ((5,), (7,)),
    ((4,), (8,)),
    ((3,), (24,)),
    ((9,), (4,)),
    ((6,), (6,)),
    ((1,), (5,)),
    ((5,), (1,)),
    ((2,), (79,)),
)
PLANES = (((5, 7), (9, 4)), ((4, 3), (8, 24)), ((1, 6), (3, 6)), ((17, 2), (1, 5)), ((3, 4), (3, 44)))
SOLIDS = (((3, 4, 5), (5, 7, 2)), ((2, 1, 3), (4, 3, 6)), ((4, 3, 1), (4, 1, 3)))
SIZES = {1: LINES, 2: PLANES, 3: SOLIDS}
# Sizes of an image and a scale.
SCALED = {1: (((5,), 2.3), ((4,), 2.0), ((9,), 0.5)), 2: (((4, 5), 2.3), ((6, 4), 0.5)), 3: (((4, 5, 4), 2.3),)}


def calls(rank: int, corners: bool) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[object, ...]]]:
    """Size of an image, size of the result, all other arguments."""
    found: list[tuple[tuple[int, ...], tuple[int, ...], tuple[object, ...]]] = []
    for size, count in SIZES[rank]:
        found += [(size, count, (aligned,)) for aligned in (False, True)] if corners else [(size, count, ())]
    for size, scale in SCALED[rank]:
        count = tuple(floor(item * scale) for item in size)
        found.append((size, count, ((False,) if corners else ()) + (scale,) * rank))
    return found


def forward(rank: int, corners: bool) -> list[Sample]:
    batches = [S(t(2, 3, *size, low=0, high=255), count, *rest) for size, count, rest in calls(rank, corners)]
    size, count = SIZES[rank][0]
    return [*batches, S(t(0, 2, *size), count, *((False,) if corners else ()))]


def backward(rank: int, corners: bool) -> list[Sample]:
    return [S(t(2, 3, *count), count, (2, 3, *size), *rest) for size, count, rest in calls(rank, corners)]


def rounded() -> list[Sample]:
    """Bytes, whose sums are rounded in integers."""
    return [
        S(t(2, channels, *size, low=0, high=255, dtype="u8"), count, *rest).forward_only()
        for channels in (3, 5)
        for size, count, rest in calls(2, True)
    ]


# Many taps: more than one chain has.
REDUCED = (S(t(2, 3, 40, 90), (3, 2), False), S(t(1, 2, 40, 90), (3, 2), True))

ENTRIES = {}
for _rank in (1, 2, 3):
    for _name in ("upsample_nearest", "_upsample_nearest_exact"):
        ENTRIES[f"{_name}{_rank}d"] = entry(*forward(_rank, False), dtypes=WITH_BYTES)
        ENTRIES[f"{_name}{_rank}d_backward"] = entry(*backward(_rank, False), dtypes=FULL)
for _name, _rank in (("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)):
    _bytes = rounded() if _rank == 2 else []
    ENTRIES[f"upsample_{_name}{_rank}d"] = entry(*forward(_rank, True), *_bytes, dtypes=FLOAT)
    ENTRIES[f"upsample_{_name}{_rank}d_backward"] = entry(*backward(_rank, True), dtypes=FULL)
for _name in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
    ENTRIES[_name] = entry(*forward(2, True), *rounded(), *REDUCED, dtypes=FLOAT)
    ENTRIES[f"{_name}_backward"] = entry(*backward(2, True), dtypes=FULL)
