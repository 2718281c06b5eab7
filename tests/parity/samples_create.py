"""Samples of the ops that make tensors out of nothing or after another's likeness."""

from __future__ import annotations

import torch
from support import TORCH_DTYPES

from .table import ANY, D, S, entry, index, t

F64 = {"dtypes": ("f64",), "special": False}


def named(name: str) -> torch.dtype:
    return TORCH_DTYPES[str(name)]


ENTRIES = {
    "constant": entry(
        S(value=1.5, dtype=D("f32")),
        S(value=3, dtype=D("i64")),
        S(value=True, dtype=D("bool")),
        **F64,
        torch=lambda value, dtype: torch.tensor(value, dtype=dtype),
    ),
    "iota": entry(
        S((5,), dim=0, dtype=D("i64")),
        S((2, 3), dim=1, dtype=D("f32")),
        S((2, 3), dim=0, dtype=D("i32")),
        **F64,
        torch=lambda size, dim, dtype: (
            torch.arange(size[dim], dtype=dtype).reshape([-1 if i == dim else 1 for i in range(len(size))]).expand(size)
        ),
    ),
    "full": entry(
        S((2, 3), 1.5, dtype=D("f32")),
        S((), 2, dtype=D("i64")),
        S((3,), True, dtype=D("bool")),
        S((2,), 2.5),
        S((2,), 2),
        S((0, 3), 1.0),
        **F64,
    ),
    "zeros": entry(S((2, 3)), S((), dtype=D("i64")), S((3, 0), dtype=D("bool")), **F64),
    "ones": entry(S((2, 3)), S((), dtype=D("i64")), S((3, 0), dtype=D("bool")), **F64),
    "empty": entry(S((2, 3)), S((), dtype=D("i64")), **F64, torch="zeros"),
    "full_like": entry(S(t(2, 3), 2), S(t(), 1), S(t(3), 2.5, dtype=D("f32")), dtypes=ANY, special=False),
    "zeros_like": entry(S(t(2, 3)), S(t()), S(t(3), dtype=D("i32")), dtypes=ANY, special=False),
    "ones_like": entry(S(t(2, 3)), S(t()), S(t(3), dtype=D("i32")), dtypes=ANY, special=False),
    "empty_like": entry(S(t(2, 3)), S(t()), dtypes=ANY, torch="zeros_like", special=False),
    "new_full": entry(S(t(2), (3, 4), 2), S(t(2), (2,), 2, dtype=D("f64")), dtypes=ANY),
    "new_zeros": entry(S(t(2), (3, 4)), S(t(2), (), dtype=D("i64")), dtypes=ANY),
    "new_ones": entry(S(t(2), (3, 4)), S(t(2), (), dtype=D("i64")), dtypes=ANY),
    "new_empty": entry(S(t(2), (3, 4)), dtypes=ANY, torch="Tensor.new_zeros"),
    "fill": entry(S(t(2, 3), 2), S(t(), 1), dtypes=ANY, special=False),
    "arange": entry(
        S(5),
        S(2, 9),
        S(1, 9, 3),
        S(5.0),
        S(0.5, 3.0, 0.5),
        S(5, dtype=D("f32")),
        S(9, 1, -2),
        S(3, 3),
        **F64,
        torch="arange",
    ),
    "linspace": entry(
        S(0, 1, 5),
        S(-1.0, 2.0, 37),
        S(float("inf"), 2.0, 5),
        S(0, 1, 1),
        S(3, 3, 0),
        S(0.0, 1.0, 6, dtype=D("f64")),
        S(-2.7, 3.9, 5, dtype=D("i64")),
        S(0.5, 2.5, 5, dtype=D("u8")),
        **F64,
    ),
    "logspace": entry(
        S(0, 2, 5),
        S(-1.0, 1.0, 7, 2.0),
        S(0.5, 2.5, 5, dtype=D("i64")),
        S(0.5, 2.5, 1, dtype=D("i32")),
        **F64,
    ),
    "eye": entry(S(3), S(3, 4), S(4, 2, dtype=D("i64")), S(0), **F64),
    "one_hot": entry(S(index(5, below=4), 4), S(index(2, 3, below=4), 6), **F64, torch="nn.functional.one_hot"),
    "scalar_tensor": entry(S(2.5), S(3, dtype=D("i64")), S(True, dtype=D("bool")), **F64),
}
