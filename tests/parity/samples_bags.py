"""Samples of bags of embeddings, of segments, and of reductions by an index."""

from __future__ import annotations

from typing import Any

import torch

from .table import FULL, NUMBER, Entry, S, distinct, entry, t, values

PLAIN = {"special": False, "dtypes": FULL}
INDICES = values(1, 3, 3, 0, 5, 2, 1, dtype="i64", differentiate=False)
OFFSETS = values(0, 2, 2, 5, dtype="i64", differentiate=False)
ENDS = values(0, 2, 2, 5, 7, dtype="i64", differentiate=False)
EMPTY = values(dtype="i64", shape=(0,), differentiate=False)
BAGS = values(0, 0, 2, 2, 2, 3, 3, dtype="i64", differentiate=False)
SIZES = values(2, 0, 3, 2, dtype="i64", differentiate=False)
ROWS = values(1, 3, 0, 0, 5, 3, 2, 1, 1, 3, 0, 0, dtype="i64", shape=(4, 3), differentiate=False)


def bag(mode: int, padding: int = -1, last: bool = False) -> Any:
    return S(distinct(6, 3), INDICES, ENDS if last else OFFSETS, False, mode, False, None, last, padding)


SUMS = (
    bag(0),
    bag(0, 3),
    bag(0, -1, True),
    S(t(6, 3), INDICES, OFFSETS, False, 0, False, t(7)),
    S(t(6, 3), INDICES, OFFSETS, False, 0, False, t(7), False, 3),
)
OTHERS = (bag(1), bag(1, 3), bag(1, -1, True), bag(2), bag(2, 3), bag(2, -1, True))
BY_FREQUENCY = S(t(6, 3), INDICES, OFFSETS, True, 0)


def run_add(self: torch.Tensor, starts: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    ends = starts.tolist()
    return self + torch.stack([src[low:high].sum(0) for low, high in zip(ends, ends[1:])])


def first(*args: Any) -> Any:
    """The bags alone: what is kept for a gradient is not computed."""
    return torch.ops.aten._embedding_bag_forward_only(*args)[0], None, None, None


def dense_backward(grad: Any, indices: Any, bags: Any, sizes: Any, rows: Any, count: int, *rest: Any) -> Any:
    """PyTorch's op, but for its scale by frequency on the CPU, which looks the frequency up for another index."""
    if rest[0]:
        return torch.ops.aten.embedding_dense_backward(grad[bags], indices, count, -1, True)
    return torch.ops.aten._embedding_bag_dense_backward(grad, indices, bags, sizes, rows, count, *rest)


LENGTHS = values(2, 0, 3, 1, dtype="i64", differentiate=False)
STARTS = values(0, 2, 2, 5, 6, dtype="i64", differentiate=False)
NESTED = values(2, 3, 1, 4, dtype="i64", shape=(2, 2), differentiate=False)
PLACES = values(0, 2, 0, 1, dtype="i64")
REDUCES = ("sum", "mean", "max", "min", "prod")
FULL_LENGTHS = values(2, 1, 3, dtype="i64", differentiate=False)


def result(reduce: str) -> Any:
    """The result of segment_reduce of the numbers below, which PyTorch's op is given, too."""
    data = torch.tensor(DATA, dtype=torch.float64)
    return values(*torch.segment_reduce(data, reduce, lengths=torch.tensor([2, 1, 3])).tolist(), differentiate=False)


DATA = (0.5, -1.5, 2.0, 1.0, 3.0, -0.5)

ENTRIES: dict[str, Entry] = {
    "_embedding_bag": entry(*SUMS, *OTHERS, BY_FREQUENCY.forward_only(), outputs=1, forward_mode=False, **PLAIN),
    "embedding_bag": entry(
        *SUMS[:1],
        *OTHERS[:1],
        S(t(6, 3), INDICES, OFFSETS, False, 0, False, None, False, -2),
        outputs=1,
        forward_mode=False,
        **PLAIN,
    ),
    "_embedding_bag_forward_only": entry(*SUMS, *OTHERS[:3], derivative=False, **PLAIN, torch=first),
    "_embedding_bag_backward": entry(
        S(t(4, 3), INDICES, OFFSETS, BAGS, SIZES, SIZES, 6, False, 0, False, None),
        S(t(4, 3), INDICES, OFFSETS, BAGS, SIZES, SIZES, 6, False, 1, False, None),
        S(t(4, 3), INDICES, OFFSETS, EMPTY, SIZES, SIZES, 6, False, 0, False, None, 3),
        S(t(4, 3), INDICES, OFFSETS, BAGS, SIZES, ROWS, 6, False, 2, False, None),
        derivative=False,
        **PLAIN,
    ),
    "_embedding_bag_dense_backward": entry(
        S(t(4, 3), INDICES, BAGS, SIZES, SIZES, 6, False, 0, t(7)),
        S(t(4, 3), INDICES, BAGS, SIZES, SIZES, 6, True, 0, None),
        S(t(4, 3), INDICES, BAGS, SIZES, SIZES, 6, False, 1, None, 3),
        S(t(4, 3), INDICES, BAGS, SIZES, ROWS, 6, False, 2, None),
        derivative=False,
        **PLAIN,
        torch=dense_backward,
    ),
    "_embedding_bag_per_sample_weights_backward": entry(
        S(t(4, 3), t(6, 3), INDICES, OFFSETS, BAGS, 0),
        S(t(4, 3), t(6, 3), INDICES, OFFSETS, BAGS, 0, 3),
        derivative=False,
        **PLAIN,
    ),
    "run_add": entry(
        S(t(4, 3), values(0, 2, 2, 5, 7, dtype="i64", differentiate=False), t(7, 3)),
        S(t(2), values(1, 2, 4, dtype="i64", differentiate=False), t(6)),
        S(t(2, 2, 3), values(0, 3, 3, dtype="i64", differentiate=False), t(3, 2, 3)),
        S(t(2, 3), values(0, 0, 0, dtype="i64", differentiate=False), t(0, 3)),
        **PLAIN,
        torch=run_add,
    ),
    "embedding_renorm": entry(
        S(t(6, 3), INDICES, 1.0, 2.0), S(t(6, 3), values(1, 2, dtype="i64"), 0.5, 1.0), derivative=False, **PLAIN
    ),
    "index_reduce": entry(
        *(S(distinct(3, 2), 0, PLACES, distinct(4, 2), name) for name in ("prod", "mean", "amax", "amin")),
        *(
            S(distinct(3, 2), 0, PLACES, distinct(4, 2), name, include_self=False).forward_only()
            for name in ("prod", "mean", "amax", "amin")
        ),
        S(distinct(2, 3), 1, PLACES, distinct(2, 4), "amax"),
        forward_mode=False,
        special=False,
        dtypes=NUMBER,
    ),
    "segment_reduce": entry(
        *(S(distinct(6, 2), name, lengths=FULL_LENGTHS) for name in REDUCES),
        *(S(distinct(6, 2), name, lengths=LENGTHS) for name in ("sum", "prod")),
        *(S(distinct(6, 2), name, lengths=LENGTHS).forward_only() for name in ("mean", "max", "min")),
        *(S(distinct(6), name, offsets=STARTS, initial=0.5) for name in ("sum", "prod", "mean", "max")),
        S(distinct(2, 5, 3), "sum", lengths=NESTED, axis=1),
        S(distinct(2, 5, 3), "max", lengths=NESTED, axis=1, unsafe=True),
        S(distinct(8, 2), "sum", offsets=STARTS),
        S(distinct(8, 2), "prod", lengths=LENGTHS, unsafe=True),
        forward_mode=False,
        **PLAIN,
    ),
    "_segment_reduce_backward": entry(
        *(
            S(t(3), result(name), values(*DATA, differentiate=False), name, lengths=FULL_LENGTHS, axis=0)
            for name in REDUCES
        ),
        derivative=False,
        **PLAIN,
    ),
}
