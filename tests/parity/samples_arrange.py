"""Samples of padding by own elements, rearrangements, and copies."""

from __future__ import annotations

import torch

from .table import ANY, COMPLEX, FULL, NUMBER, Entry, S, Sample, entry, t

EVERY = {"dtypes": ANY, "special": False}


def moves(*samples: Sample, **fields: object) -> Entry:
    return entry(*samples, **(EVERY | fields))


def pads(name: str, *samples: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> dict[str, Entry]:
    """A padding and its backward, from (shape, padding, shape of the result)."""
    return {
        name: entry(*(S(t(*shape), padding) for shape, padding, _ in samples), dtypes=NUMBER, special=False),
        f"{name}_backward": entry(
            *(S(t(*result), t(*shape), padding) for shape, padding, result in samples), dtypes=FULL, special=False
        ),
    }


def nested(tensors: list[torch.Tensor], *args: object) -> torch.Tensor:
    """PyTorch's, of a nested tensor."""
    return torch.nested.as_nested_tensor(tensors).to_padded_tensor(*args)


COMPLEX_ONLY = {"dtypes": COMPLEX, "special": False}

ENTRIES = {
    **pads("reflection_pad1d", ((2, 3, 5), (2, 3), (2, 3, 10)), ((3, 5), (0, 4), (3, 9))),
    **pads("reflection_pad2d", ((2, 3, 4, 5), (1, 2, 3, 0), (2, 3, 7, 8)), ((2, 4, 5), (2, 2, 1, 1), (2, 6, 9))),
    **pads("reflection_pad3d", ((2, 3, 3, 4, 5), (1, 2, 2, 1, 0, 2), (2, 3, 5, 7, 8))),
    **pads("replication_pad1d", ((2, 3, 5), (2, 7), (2, 3, 14)), ((3, 5), (0, 4), (3, 9))),
    **pads("replication_pad2d", ((2, 3, 4, 5), (1, 2, 5, 0), (2, 3, 9, 8)), ((2, 4, 5), (2, -2, -1, 1), (2, 4, 5))),
    **pads("replication_pad3d", ((2, 3, 3, 4, 5), (1, 2, 2, 1, 0, 4), (2, 3, 7, 7, 8))),
    "to_padded_tensor": moves(
        S([t(2, 3), t(4, 1)], 0.5),
        S([t(2), t(5), t(1)], -1.0),
        S([t(3, 2), t(1, 2)], 2.0, (2, 4, 3)),
        dtypes=("f32", "f64", "f16", "bf16"),
        torch=nested,
    ),
    "pixel_shuffle": moves(S(t(2, 8, 3, 4), 2), S(t(9, 2, 2), 3), S(t(0, 4, 2, 2), 2)),
    "pixel_unshuffle": moves(S(t(2, 2, 4, 6), 2), S(t(1, 6, 3), 3)),
    "channel_shuffle": moves(S(t(2, 6, 3, 2), 3), S(t(2, 6, 3), 2)),
    "native_channel_shuffle": moves(S(t(2, 6, 3, 2), 3), dtypes=FULL),
    "im2col": entry(
        S(t(2, 3, 5, 6), (2, 3), (1, 1), (0, 0), (1, 1)),
        S(t(2, 5, 6), (3, 2), (2, 1), (1, 2), (2, 1)),
        S(t(1, 2, 4, 6), (2, 2), (1, 1), (0, 0), (2, 3)),
        special=False,
    ),
    "col2im": entry(
        S(t(2, 18, 16), (5, 6), (2, 3), (1, 1), (0, 0), (1, 1)),
        S(t(12, 18), (5, 6), (3, 2), (2, 1), (1, 2), (2, 1)),
        S(t(1, 8, 4), (4, 6), (2, 2), (1, 1), (0, 0), (2, 3)),
        dtypes=FULL,
        special=False,
    ),
    "view_as_real": entry(S(t(3, 4)), S(t()), **COMPLEX_ONLY),
    "view_as_complex": entry(S(t(3, 2)), S(t(2)), dtypes=FULL, special=False),
    "view_as_real_copy": entry(S(t(3, 4)), **COMPLEX_ONLY),
    # torch gives the copy no gradient.
    "view_as_complex_copy": entry(S(t(3, 2)), dtypes=FULL, special=False, torch="view_as_complex"),
    "_conj": entry(S(t(3, 4)), S(t()), **COMPLEX_ONLY),
    "_conj_physical": entry(S(t(3, 4)), S(t()), dtypes=(*COMPLEX, *FULL), special=False),
    "block_diag": moves(
        S([t(2, 3), t(4), t(), t(1, 2)]),
        S([t(3)]),
        S([t(0, 2), t(2, 2)]),
        S([t(dtype="f64"), t(2, 2, dtype="f32")]).forward_only(),
    ),
    "alias_copy": moves(S(t(3, 4))),
    "as_strided_copy": moves(S(t(12), (3, 2), (2, 3), 1)),
    "copy": moves(S(t(3, 4), t(4)), S(t(3), t(3, dtype="i32", differentiate=False)), dtypes=FULL),
    "detach_copy": moves(S(t(3, 4)), derivative=False),
    "diagonal_copy": moves(S(t(3, 4)), S(t(2, 3, 4), -1, 2, 0)),
    "expand_copy": moves(S(t(3, 1), (2, -1, 4)), S(t(), (2, 3))),
    "lift_fresh_copy": moves(S(t(3, 4))),
    "narrow_copy": moves(S(t(5, 3), 0, 1, 3)),
    "permute_copy": moves(S(t(2, 3, 4), (2, 0, 1))),
    "_reshape_copy": moves(S(t(2, 6), (3, -1))),
    "select_copy": moves(S(t(3, 4), 1, -1)),
    "slice_copy": moves(S(t(10), 0, 1, 9, 3)),
    "split_copy": moves(S(t(7, 2), 3)),
    "split_with_sizes_copy": moves(S(t(7, 2), (3, 4))),
    "squeeze_copy": moves(S(t(1, 3, 1)), S(t(1, 3, 1), 0), S(t(1, 3, 1), (0, 2))),
    "t_copy": moves(S(t(3, 4))),
    "transpose_copy": moves(S(t(2, 3, 4), 0, 2)),
    "unbind_copy": moves(S(t(3, 2))),
    "unfold_copy": moves(S(t(10), 0, 3, 2)),
    "unsqueeze_copy": moves(S(t(2, 3), 1)),
    "view_copy": moves(S(t(2, 6), (3, 4))),
    "unsafe_split": moves(S(t(7, 2), 3), S(t(2, 6), 2, -1)),
    "unsafe_split_with_sizes": moves(S(t(7, 2), (3, 4))),
    "zero": moves(S(t(3, 4)), torch=torch.zeros_like),
}
