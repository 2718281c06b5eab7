"""Samples of views, joins and other movements of elements."""

from __future__ import annotations

import torch

from .table import ANY, D, S, Sample, entry, t, values

EVERY = {"dtypes": ANY, "special": False}


def moves(*samples: Sample, **fields: object) -> object:
    return entry(*samples, **(EVERY | fields))


def as_strided_scatter(
    self: torch.Tensor, src: torch.Tensor, size: list[int], stride: list[int], offset: int = 0
) -> torch.Tensor:
    """PyTorch's op, whose gradient by self is that of the overwritten elements in place of the others'."""
    places = torch.as_strided(torch.arange(self.numel()), size, stride, offset)
    return self.reshape(-1).index_put((places,), src).reshape(self.shape)


HALVES = values(
    0.0, -0.0, 1.0, -2.5, 65504.0, float("inf"), -float("inf"), 6e-8, -6e-5, 6.104e-5, 0.333, float("nan"), dtype="f16"
)

ENTRIES = {
    "permute": moves(
        S(t(2, 3, 4), (2, 0, 1)), S(t(2, 3), (-1, 0)), S(t(), ()), S(t(0, 3), (1, 0)), S(t(37, 5), (1, 0))
    ),
    "expand": moves(S(t(3, 1), (3, 4)), S(t(3, 1), (2, -1, 4)), S(t(), (2, 3)), S(t(1), (0,)), S(t(2, 3), (2, 3))),
    "slice": moves(
        S(t(10)),
        S(t(10), 0, 2, 7),
        S(t(10), 0, 1, 9, 3),
        S(t(4, 10), 1, -3),
        S(t(4, 10), -1, 0, -2),
        S(t(5), 0, 7, 9),
        S(t(5), 0, 3, 1),
        S(t(5), 0, 2, 2**63 - 1),
    ),
    "reshape": moves(
        S(t(2, 3, 4), (6, 4)),
        S(t(2, 3, 4), (4, -1)),
        S(t(), (1, 1)),
        S(t(1, 5, 1), (5,)),
        S(t(0, 3), (3, 0)),
        S(t(37), (37, 1)),
    ),
    "bitcast": entry(
        S(t(37), D("i32")),
        S(t(2, 3), D("i32")),
        S(t(), D("i32")),
        S(t(0), D("i32")),
        torch=torch.Tensor.view,
        dtypes=("f32",),
        special=False,
    ),
    "view_dtype": entry(
        S(t(37), D("i32")),
        S(t(2, 3), D("i16")),
        S(t(2, 4), D("f64")),
        S(t(2, 4), D("bf16")),
        S(t(4), D("c64")),
        S(t(3, 4), D("u8")),
        S(t(), D("i32")),
        S(t(0), D("i64")),
        S(t(6, dtype="f16"), D("i16")),
        S(HALVES, D("i16")),
        S(HALVES, D("i32")),
        S(t(2, 3), D("f16")),
        S(values(*range(-32768, 32767, 997), dtype="i16"), D("f16")),
        S(values(0, 1, 1023, 1024, 31743, 31744, -1024, -32768, dtype="i16"), D("f16")),
        torch=torch.Tensor.view,
        dtypes=("f32",),
        special=False,
    ),
    "view": moves(S(t(2, 3, 4), (6, 4)), S(t(6), (2, -1)), S(t(), (1,))),
    "flip": moves(S(t(5), (0,)), S(t(2, 3, 4), (0, 2)), S(t(2, 3), (-1,)), S(t(0, 3), (0, 1))),
    "diagonal": moves(
        S(t(3, 4)),
        S(t(3, 4), 1),
        S(t(4, 3), -2),
        S(t(2, 3, 4), 0, 1, 2),
        S(t(2, 3, 4), -1, 2, 0),
        S(t(3, 3), 5),
    ),
    "as_strided": moves(
        S(t(12), (3, 4), (4, 1)),
        S(t(3, 4), (2, 2), (5, 2), 1),
        S(t(9), (4, 3), (2, 1)),
        S(t(5), (3, 2), (0, 1), 2),
        S(t(5), (), (), 3),
        S(t(4), (0, 2), (2, 1)),
    ),
    "as_strided_scatter": moves(
        S(t(3, 4), t(2, 2), (2, 2), (5, 2), 1), S(t(12), t(3), (3,), (4,)), torch=as_strided_scatter
    ),
    "unfold": moves(S(t(10), 0, 3, 2), S(t(3, 7), 1, 2, 1), S(t(7, 2), 0, 7, 3), S(t(7), -1, 3, 3)),
    "transpose": moves(S(t(2, 3, 4), 0, 2), S(t(2, 3), -1, -2), S(t(5), 0, 0)),
    "t": moves(S(t(3, 4)), S(t(4)), S(t())),
    "swapaxes": moves(S(t(2, 3, 4), 0, 2)),
    "movedim": moves(S(t(2, 3, 4), 0, 2), S(t(2, 3, 4, 5), (0, 1), (2, 3)), S(t(2, 3, 4), -1, 0)),
    "squeeze": moves(S(t(1, 3, 1)), S(t(1, 3, 1), 0), S(t(1, 3, 1), 1), S(t(1, 3, 1), -1), S(t(1, 3, 1), (0, 2))),
    "unsqueeze": moves(S(t(3), 0), S(t(3), -1), S(t(2, 3), 1), S(t(), 0)),
    "view_as": moves(S(t(2, 6), t(3, 4))),
    "reshape_as": moves(S(t(2, 6), t(3, 4))),
    "flatten": moves(S(t(2, 3, 4)), S(t(2, 3, 4), 1), S(t(2, 3, 4), 0, 1), S(t()), S(t(2, 0, 3), 1)),
    "unflatten": moves(S(t(2, 12), 1, (3, 4)), S(t(2, 12), -1, (3, -1))),
    "ravel": moves(S(t(2, 3)), S(t())),
    "select": moves(S(t(3, 4), 0, 1), S(t(3, 4), 1, -1), S(t(5), 0, 2)),
    "narrow": moves(S(t(5, 4), 0, 1, 3), S(t(5, 4), 1, 2, 2), S(t(5), 0, 2, 0)),
    "split": moves(S(t(7), 3), S(t(2, 6), 2, 1), S(t(2, 6), (1, 2, 3), 1)),
    "split_with_sizes": moves(S(t(6), (1, 2, 3)), S(t(2, 6), (4, 2), 1), S(t(3), (0, 3))),
    "chunk": moves(S(t(7), 3), S(t(2, 6), 4, 1), S(t(3), 5)),
    "tensor_split": moves(S(t(7), 3), S(t(2, 7), (2, 5), 1)),
    "unbind": moves(S(t(3, 4)), S(t(3, 4), 1), S(t(3), 0)),
    "expand_as": moves(S(t(3, 1), t(3, 4))),
    "broadcast_to": moves(S(t(3, 1), (2, 3, 4)), S(t(), (3,))),
    "repeat": moves(S(t(3), (2,)), S(t(2, 3), (2, 1, 2)), S(t(), (3,)), S(t(2, 3), (0, 1))),
    "tile": moves(S(t(3), (2,)), S(t(2, 3), (2,)), S(t(3), (2, 1, 2))),
    "slice_scatter": moves(S(t(8), t(3), 0, 2, 5), S(t(4, 8), t(4, 4), 1, 0, 8, 2), S(t(4, 8), t(2, 8), 0, -2)),
    "select_scatter": moves(S(t(3, 4), t(4), 0, 1), S(t(3, 4), t(3), 1, -1)),
    "diagonal_scatter": moves(S(t(3, 4), t(3)), S(t(3, 4), t(3), 1)),
    "slice_backward": moves(S(t(3), (8,), 0, 2, 5, 1), S(t(4, 4), (4, 8), 1, 0, 8, 2)),
    "select_backward": moves(S(t(4), (3, 4), 0, 1), S(t(3), (3, 4), 1, -1)),
    "diagonal_backward": moves(S(t(3), (3, 4), 0, 0, 1), S(t(2, 2), (2, 3, 4), -1, 1, 2)),
    "unfold_backward": moves(S(t(4, 3), (10,), 0, 3, 2), S(t(3, 6, 2), (3, 7), 1, 2, 1), dtypes=("f32", "f64")),
    "alias": moves(S(t(3, 4)), S(t())),
    "detach": moves(S(t(3, 4)), S(t()), derivative=False),
    "contiguous": moves(S(t(3, 4))),
    "clone": moves(S(t(3, 4)), S(t())),
    "roll": moves(
        S(t(7), 2),
        S(t(2, 5), (1, -2), (0, 1)),
        S(t(2, 5), 3),
        S(t(4, 3), -1, 0),
        S(t(0, 3), 1, 1),
        S(t(2, 5), (1, 2), (1, 1)),
    ),
    "rot90": moves(S(t(2, 3)), S(t(2, 3), 2), S(t(2, 3, 4), -1, (1, 2)), S(t(2, 3), 3, (1, 0))),
    "cat": moves(
        S([t(2, 3), t(4, 3)]),
        S([t(2, 3), t(2, 1), t(2, 2)], 1),
        S([t(3)]),
        S([t(0), t(3)]),
        S([t(2, 3), t(2, 3)], -1),
        S([t(3), t(3, dtype="i32", differentiate=False)]),
        S([t(5, 1), t(5, 37)], 1),
    ),
    "concat": moves(S([t(2, 3), t(4, 3)])),
    "constant_pad_nd": moves(
        S(t(5), (1, 2)),
        S(t(2, 3), (1, 0, 2, 1), 1),
        S(t(5), (-1, -2)),
        S(t(2, 3), (-1, 2), 2),
        S(t(2, 3), (0, 0)),
        S(t(0), (2, 1), 3),
    ),
    "pad": moves(
        S(t(5), (1, 2)),
        S(t(2, 3), (1, 1), "constant", 2.0),
        S(t(2, 3, 5), (2, 1), "reflect"),
        S(t(2, 3, 5), (2, 3), "replicate"),
        S(t(2, 3, 5), (2, 1), "circular"),
        S(t(2, 3, 4, 5), (1, 2, 2, 1), "reflect"),
        S(t(2, 3, 4, 5), (1, 2, 2, 1), "replicate"),
        dtypes=("f32", "f64"),
        torch="nn.functional.pad",
    ),
    "stack": moves(S([t(2, 3), t(2, 3)]), S([t(2), t(2), t(2)], 1), S([t(), t()]), S([t(2, 3), t(2, 3)], -1)),
    "hstack": moves(S([t(2), t(3)]), S([t(2, 3), t(2, 1)]), S([t(), t()])),
    "vstack": moves(S([t(3), t(3)]), S([t(2, 3), t(1, 3)])),
    "tril": moves(S(t(3, 4)), S(t(4, 3), 1), S(t(2, 3, 3), -1), S(t(0, 3))),
    "triu": moves(S(t(3, 4)), S(t(4, 3), 1), S(t(2, 3, 3), -1), S(t(0, 3))),
    "diag_embed": moves(S(t(3)), S(t(2, 3), 1), S(t(2, 3), 0, 0, 2), S(t(2, 3), -1)),
    "diag": moves(S(t(3)), S(t(3, 4)), S(t(3), 1), S(t(3, 4), -1)),
    "meshgrid": moves(
        S([t(2), t(3)]),
        S([t(2), t(3), t(4)], indexing="ij"),
        S([t(2), t(3)], indexing="xy"),
        torch=lambda tensors, indexing="ij": torch.meshgrid(tensors, indexing=indexing),
    ),
    "cyclic_shift": moves(S(t(7), (2,), (0,)), S(t(2, 5), (1, -2), (0, 1)), S(t(0, 3), (1,), (1,)), torch="roll"),
}
