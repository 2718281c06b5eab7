"""Samples of searching, masked indexing, distances and sampling of images."""

from __future__ import annotations

import math

import torch

from .table import ANY, FULL, NUMBER, S, Sample, entry, index, mask, t, values

NAN = math.nan
RAMP = values(*(0.1 * step - 3 for step in range(61)), differentiate=False)


def grids(*samples: Sample, modes: tuple[int, ...] = (0, 1, 2)) -> list[Sample]:
    """Every combination of how to interpolate and what lies outside."""
    return [
        Sample((*sample.args, interpolation, padding, corners), {})
        for number, sample in enumerate(samples)
        for interpolation in modes
        for padding in (0, 1, 2)
        for corners in (False, True)
        if (interpolation + padding + corners + number) % 2 == 0 or number == 0
    ]


def both(grad: torch.Tensor, image: torch.Tensor, grid: torch.Tensor, *options: object) -> tuple[torch.Tensor, ...]:
    """torch's own backward may leave the part that nothing flows into undefined."""
    op = getattr(torch.ops.aten, f"grid_sampler_{image.ndim - 2}d_backward")
    found = op(grad, image, grid, *options)
    return tuple(torch.zeros_like(like) if item is None else item for item, like in zip(found, (image, grid)))


ENTRIES = {
    "isin": entry(
        S(t(3, 4, low=0, high=5), t(7, low=0, high=5)),
        S(t(5, low=0, high=3), 2),
        S(2, t(2, 3, low=0, high=3)),
        S(t(4, low=0, high=5), t(3, 2, low=0, high=5), invert=True),
        S(t(4), t(0)),
        dtypes=NUMBER,
        special=False,
    ),
    "searchsorted": entry(
        S(values(-2.0, -1.0, 0.0, 0.0, 2.0), t(3, 4)),
        S(values(-2.0, -1.0, 0.0, 0.0, 2.0), values(0.0, -2.0, 2.0, NAN, 5.0), right=True),
        S(RAMP, t(5, 7, low=-4, high=4), side="right"),
        S(RAMP, values(-3.0, 3.0, NAN, -9.0, 9.0), out_int32=True),
        S(values(1, 3, 5, 2, 4, 6, shape=(2, 3)), t(2, 4, low=0, high=7)),
        S(values(3, 1, 2), t(4, low=0, high=4), sorter=values(1, 2, 0, dtype="i64")),
        S(values(1, 3, 5), 2),
        S(values(1, 3, 5, dtype="i32"), 3.5),
        dtypes=FULL,
        special=False,
    ),
    "bucketize": entry(
        S(t(3, 4), values(-2.0, -1.0, 0.0, 0.0, 2.0)),
        S(t(3, 4), RAMP, right=True, out_int32=True),
        S(1.5, values(1.0, 2.0)),
        S(2.0, values(False, True, dtype="bool")),
        S(2.5, values(0, 2, 3, 4, dtype="i32")),
        S(NAN, values(0, 2, 3, 4, dtype="i32")),
        dtypes=FULL,
        special=False,
    ),
    "_unsafe_index": entry(
        S(t(3, 4), [None, index(2, 2, below=4)]), S(t(5), [index(7, below=5, low=-5)]), dtypes=ANY, special=False
    ),
    "_unsafe_index_put": entry(
        S(t(3, 4), [values(2, 0, dtype="i64"), values(1, 3, dtype="i64")], t(2)),
        S(t(3, 4), [index(6, below=3)], t(6, 4), True),
        dtypes=ANY,
        special=False,
    ),
    "_unsafe_masked_index": entry(
        S(t(3, 4), mask(6), [index(6, below=3), index(6, below=4)], 0),
        S(
            t(5),
            values(True, False, True, False, dtype="bool", differentiate=False),
            [values(1, 99, 4, -99, dtype="i64")],
            2.0,
        ),
        dtypes=FULL,
        special=False,
    ),
    "_unsafe_masked_index_put_accumulate": entry(
        S(t(3, 4), mask(6), [index(6, below=3), index(6, below=4)], t(6)),
        S(
            t(5),
            values(True, False, True, False, dtype="bool", differentiate=False),
            [values(1, 99, 4, -99, dtype="i64")],
            t(4),
        ),
        dtypes=FULL,
        special=False,
    ),
    "_cdist_forward": entry(
        *(S(t(4, 3), t(5, 3), p, None) for p in (2.0, 1.0, 1.5, 3.0, math.inf, 0.0)),
        S(t(2, 4, 3), t(2, 5, 3), 2.0, 2),
        S(t(0, 3), t(5, 3), 2.0, None),
        S(values(1.0, 2.0, 0.0, 3.0, shape=(2, 2)), values(1.0, 2.0, 0.0, -3.0, shape=(2, 2)), 2.0, None),
        S(t(2, 0), t(5, 0), 1.0, None).forward_only(),
        dtypes=FULL,
        special=False,
    ),
    "_cdist_backward": entry(
        *(S(t(4, 5), t(4, 3), t(5, 3), p, t(4, 5, low=1, high=4)) for p in (2.0, 1.0, 1.5, 3.0)),
        dtypes=FULL,
        derivative=False,
        special=False,
    ),
    "cdist": entry(S(t(4, 3), t(5, 3)), S(t(2, 1, 4, 3), t(3, 5, 3), 1.0), dtypes=FULL, special=False),
    "_pdist_forward": entry(
        *(S(t(5, 3), p) for p in (2.0, 1.0, 1.5, 3.0, math.inf)),
        S(values(1.0, 2.0, 1.0, 2.0, 0.0, 3.0, shape=(3, 2)), 2.0),
        S(t(1, 3)).forward_only(),
        S(t(70, 2)).forward_only(),
        dtypes=FULL,
        special=False,
    ),
    "_pdist_backward": entry(
        *(S(t(10), t(5, 3), p, t(10, low=1, high=4)) for p in (2.0, 1.0, 1.5, 3.0)),
        dtypes=FULL,
        derivative=False,
        special=False,
    ),
    "pdist": entry(S(t(5, 3)), dtypes=FULL, special=False),
    "linalg_cross": entry(
        S(t(4, 3), t(4, 3)), S(t(3, 1, 2), t(3, 4, 1), dim=0), S(t(3), t(3)), dtypes=ANY[:4] + ANY[-2:], special=False
    ),
    "renorm": entry(S(t(4, 3), 2, 0, 1.5), S(t(2, 3, 4), 1, 1, 3.0), S(t(4, 3), 3.0, -1, 100.0), special=False),
    "grid_sampler_2d": entry(
        *grids(
            S(t(2, 3, 5, 6), t(2, 3, 4, 2, low=-1.4, high=1.4)),
            S(t(1, 2, 4, 3), t(1, 2, 2, 2, low=-3.3, high=3.3)),
        ),
        dtypes=FULL,
        special=False,
    ),
    "grid_sampler_2d_backward": entry(
        *(
            S(*sample.args, mask)
            for sample, mask in zip(
                grids(S(t(2, 3, 3, 4), t(2, 3, 5, 6), t(2, 3, 4, 2, low=-1.4, high=1.4)))[::5],
                ((True, True), (True, True), (True, True), (False, True)),
            )
        ),
        dtypes=FULL,
        derivative=False,
        special=False,
        torch=both,
    ),
    "grid_sampler_3d": entry(
        *grids(
            S(t(2, 3, 4, 5, 3), t(2, 2, 3, 4, 3, low=-1.4, high=1.4)),
            S(t(1, 2, 2, 4, 3), t(1, 2, 1, 2, 3, low=-3.3, high=3.3)),
            modes=(0, 1),
        ),
        dtypes=FULL,
        special=False,
    ),
    "grid_sampler_3d_backward": entry(
        *(
            S(*sample.args, mask)
            for sample, mask in zip(
                grids(
                    S(t(2, 2, 2, 3, 4), t(2, 2, 3, 4, 5), t(2, 2, 3, 4, 3, low=-1.4, high=1.4)),
                    modes=(0, 1),
                )[::5],
                ((True, True), (True, True), (False, True)),
            )
        ),
        dtypes=FULL,
        derivative=False,
        special=False,
        torch=both,
    ),
    "affine_grid_generator": entry(
        *(
            S(t(2, len(size) - 2, len(size) - 1), size, corners)
            for size in ((2, 3, 5, 4), (2, 1, 1, 6), (2, 2, 3, 1, 4))
            for corners in (False, True)
        ),
        dtypes=FULL,
        special=False,
    ),
    "affine_grid_generator_backward": entry(
        *(
            S(t(2, *size[2:], len(size) - 2), size, corners)
            for size in ((2, 3, 5, 4), (2, 2, 3, 1, 4))
            for corners in (False, True)
        ),
        dtypes=FULL,
        special=False,
    ),
}
