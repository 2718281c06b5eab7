"""Samples of gathers and scatters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from .table import ANY, FLOAT, FULL, NUMBER, S, entry, index, mask, t, values

EVERY = {"dtypes": ANY, "special": False}
NUMBERS = {"dtypes": NUMBER, "special": False}

REDUCES = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter_combine(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, *, combine: str
) -> torch.Tensor:
    if combine == "write":
        return self.scatter(dim, index, src)
    return self.scatter_reduce(dim, index, src, REDUCES[combine])


def scatter_other_products(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each factor's product with the others, by lists of factors."""
    factors: dict[tuple[int, ...], list[torch.Tensor]] = {at: [self[at]] for at in np.ndindex(*self.shape)}
    places = {}
    for at in np.ndindex(*index.shape):
        target = (*at[:dim], int(index[at]), *at[dim + 1 :])
        places[at] = target, len(factors[target])
        factors[target].append(src[at])

    def others(target: tuple[int, ...], number: int) -> torch.Tensor:
        rest = factors[target][:number] + factors[target][number + 1 :]
        return math.prod(rest, start=torch.ones((), dtype=self.dtype))

    ours = [others(at, 0) for at in np.ndindex(*self.shape)]
    theirs = [others(*places[at]) for at in np.ndindex(*index.shape)]
    return torch.stack(ours).reshape(self.shape), torch.stack(theirs).reshape(index.shape)


ENTRIES = {
    "index_select": entry(
        S(t(5), 0, index(7, below=5)),
        S(t(3, 4), 1, index(6, below=4)),
        S(t(3, 4), -2, index(2, below=3, dtype="i32")),
        S(t(3, 4), 0, index(0, below=3)),
        **EVERY,
    ),
    "gather": entry(
        S(t(5), 0, index(7, below=5)),
        S(t(3, 4), 1, index(3, 6, below=4)),
        S(t(3, 4), 0, index(2, 3, below=3)),
        S(t(2, 3, 4), -1, index(1, 3, 2, below=4)),
        **EVERY,
    ),
    "index": entry(
        S(t(5), [index(7, below=5)]),
        S(t(5), [index(7, below=5, low=-5)]),
        S(t(3, 4), [index(6, below=3), index(6, below=4)]),
        S(t(3, 4), [None, index(2, 2, below=4)]),
        S(t(3, 4, 5), [index(2, 1, below=3), None, index(3, below=5)]),
        S(t(3, 4, 5), [None, index(2, below=4), index(2, below=5)]),
        S(t(3, 4), [index(below=3)]),
        S(t(3, 4), [index(0, below=3)]),
        **EVERY,
    ),
    "embedding": entry(
        S(t(10, 4), index(3, below=10)),
        S(t(10, 4), index(2, 3, below=10)),
        S(t(10, 4), values(1, 2, 1, 3, dtype="i64"), 1),
        special=False,
    ),
    "take": entry(S(t(3, 4), index(5, below=12)), S(t(3, 4), index(2, 2, below=12, low=-12)), **EVERY),
    "take_along_dim": entry(
        S(t(3, 4), index(3, 2, below=4), 1),
        S(t(3, 4), index(5, below=12)),
        S(t(3, 4), index(1, 4, below=3), 0),
        **EVERY,
    ),
    "index_put": entry(
        S(t(5), [values(1, 3, 0, dtype="i64")], t(3)),
        S(t(5), [index(9, below=5)], t(9), True),
        S(t(3, 4), [values(2, 0, dtype="i64"), values(1, 3, dtype="i64")], t(2)),
        S(t(3, 4), [None, values(3, 1, dtype="i64")], t(3, 2)),
        S(t(3, 4), [values(-1, 0, dtype="i64")], t(4)),
        S(t(3, 4), [index(6, below=3)], t(6, 4), True),
        S(t(3, 4), [values(1, dtype="i64")], t()),
        **EVERY,
    ),
    "scatter": entry(
        S(t(5), 0, values(1, 3, 0, dtype="i64"), t(3)),
        S(t(3, 4), 1, values(1, 0, 3, 2, 0, 1, dtype="i64", shape=(3, 2)), t(3, 2)),
        S(t(3, 4), 0, values(1, 0, 2, 2, dtype="i64", shape=(1, 4)), t(2, 4)),
        S(t(3, 4), 1, index(3, 2, below=4), 2),
        S(t(3, 4), 1, index(2, 2, below=4), 1.5).only(*FLOAT),
        **EVERY,
    ),
    "scatter_add": entry(
        S(t(5), 0, index(9, below=5), t(9)),
        S(t(3, 4), 1, index(3, 6, below=4), t(3, 6)),
        S(t(3, 4), 0, index(2, 3, below=3), t(5, 4)),
        **EVERY,
    ),
    "scatter_reduce": entry(
        *(S(t(5), 0, index(9, below=5), t(9), reduce) for reduce in ("sum", "mean")),
        S(t(5), 0, values(0, 1, 3, 4, 3, dtype="i64"), t(5), "prod"),
        *(S(t(3, 4), 1, index(3, 6, below=4), t(3, 6), reduce) for reduce in ("amax", "amin")),
        *(
            S(t(3, 4), 1, index(3, 6, below=4), t(3, 6), reduce, include_self=False).forward_only()
            for reduce in ("sum", "mean", "amax", "amin", "prod")
        ),
        forward_mode=False,
        dtypes=FULL,
        special=False,
    ),
    "index_add": entry(
        S(t(5), 0, index(9, below=5), t(9)),
        S(t(3, 4), 1, index(6, below=4), t(3, 6), alpha=2),
        S(t(3, 4), 0, values(2, 0, dtype="i64"), t(2, 4)),
        S(t(3, 4), 0, values(2, 0, dtype="i64"), t(2, 4), alpha=1.5),
        **EVERY,
    ),
    "index_copy": entry(
        S(t(5), 0, values(1, 3, dtype="i64"), t(2)),
        S(t(3, 4), 1, values(2, 0, dtype="i64"), t(3, 2)),
        **EVERY,
    ),
    "index_fill": entry(
        S(t(5), 0, values(1, 3, dtype="i64"), 2), S(t(3, 4), 1, values(2, 0, dtype="i64"), t()), **EVERY
    ),
    "masked_fill": entry(
        S(t(37), mask(37), 2),
        S(t(3, 4), mask(4), t()),
        S(t(3, 4), mask(3, 1), 1.5).only(*FLOAT),
        S(t(3), mask(2, 1), 0),
        S(t(), mask(), 1),
        **EVERY,
    ),
    "embedding_dense_backward": entry(
        S(t(3, 4), index(3, below=10), 10, -1, False),
        S(t(2, 3, 4), index(2, 3, below=10), 10, 2, False),
        S(t(5, 4), index(5, below=3), 3, -1, True).forward_only(),
        dtypes=FULL,
        special=False,
    ),
    "gather_along": entry(S(t(5), 0, index(7, below=5)), S(t(3, 4), 1, index(3, 6, below=4)), **EVERY, torch="gather"),
    "index_update": entry(
        S(t(5), [values(1, 3, 0, dtype="i64")], t(3)),
        S(t(3, 4), [index(6, below=3)], t(6, 4), True),
        **EVERY,
        torch="index_put",
    ),
    "scatter_combine": entry(
        *(S(t(5), 0, index(9, below=5), t(9), combine=name) for name in ("add", "mul", "max", "min")),
        S(t(5), 0, values(1, 3, 0, dtype="i64"), t(3), combine="write"),
        forward_mode=False,
        dtypes=FULL,
        special=False,
        torch=scatter_combine,
    ),
    "scatter_other_products": entry(
        S(t(5), 0, values(0, 1, 3, 4, 3, dtype="i64"), t(5)),
        S(t(3, 4), 1, index(3, 6, below=4), t(3, 6)),
        # Its second derivatives, which are the third ones of a product, are wrong at factors of zero.
        replace(
            S(
                values(2.0, 0.0, 3.0, 1.5),
                0,
                values(0, 0, 1, 2, 2, 2, dtype="i64"),
                values(0.0, 3.0, 2.0, 0.0, 0.0, 4.0),
            ),
            modes=("forward", "vjp"),
        ),
        dtypes=FULL,
        special=False,
        torch=scatter_other_products,
    ),
    "select_along": entry(
        S(t(5), 0, index(7, below=5)), S(t(3, 4), 1, index(6, below=4)), **EVERY, torch="index_select"
    ),
}
