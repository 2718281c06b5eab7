"""What tests of torch.compile(backend="smelt") share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import smelt.torch
import torch


def compiled(function: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="smelt", fullgraph=True, **options)


def same(got: Any, expected: Any) -> None:
    """Equal numbers, types and strides."""
    torch.testing.assert_close(got, expected)
    if isinstance(expected, torch.Tensor):
        assert got.stride() == expected.stride()


def assert_native() -> None:
    found = smelt.torch.stats()
    assert found["native_ops"] > 0
    assert found["fallback_names"] == {}
