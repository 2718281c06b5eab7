"""Sizes for programs of open sizes, and their outcomes compared with PyTorch's."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from open_programs import Program
from support import flatten

# The first is compiled by itself, the second with sizes left open.
FIRST = ((5, 7), (6, 8))
FEW_SIZES = ((2, 2), (17, 33), (3, 4), (1, 3))
MANY_SIZES = ((2, 2), (3, 2), (2, 9), (17, 33), (64, 5), (4, 130), (1, 3), (3, 1), (1, 1), (300, 70), (33, 4))
ALL_SIZES = (*FIRST, *MANY_SIZES)
ERRORS = (RuntimeError, IndexError, ValueError)


def outcome(function: Callable[..., Any], arguments: Sequence[Any], errors: Any) -> list[np.ndarray] | Exception:
    try:
        return [np.asarray(item) for item in flatten(function(*arguments))]
    except errors as error:
        return error


def compare(found: Any, wanted: Any, exact: Sequence[bool], what: str) -> None:
    if isinstance(found, Exception) or isinstance(wanted, Exception):
        assert isinstance(found, Exception) and isinstance(wanted, Exception), f"{what}: {found!r}, torch: {wanted!r}"
        return
    for number, (one, other, is_exact) in enumerate(zip(found, wanted, exact, strict=True)):
        assert one.shape == other.shape, f"{what}: result {number} is {one.shape}, torch: {other.shape}"
        finite = other[np.isfinite(other)]
        most = 0.0 if is_exact or not finite.size else 1e-4 * (1 + np.abs(finite).max())
        np.testing.assert_allclose(one, other, rtol=0, atol=most, err_msg=f"{what}: result {number}")


def all_sizes(program: Program, sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    rest = list(sizes[2:])
    random.Random(program.seed).shuffle(rest)
    return [*sizes[:2], *rest]
