"""Sizes that data decide under torch.compile: unbacked sizes, without PyTorch's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import smelt.torch
import torch
import torch._dynamo

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "nonzero": lambda x: torch.nonzero(x > 0) * 2,
    "argwhere": lambda x: torch.argwhere(x > 0),
    "where": lambda x: torch.where(x > 0)[0] + 1,
    "a mask": lambda x: (x[x > 0] * 2).sum(),
    "a mask of rows": lambda x: x[x[:, 0] > 0] @ x.T,
    "masked_select": lambda x: torch.masked_select(x, x > 0) + 1,
    "two masks": lambda x: x[x > 0][x[x > 0] > 0.5] * 2,
    "unique": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "unique rows": lambda x: torch.unique(x.sign(), dim=0, return_counts=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x.round(), return_counts=True),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, (x[:, 0] > 0).long() + 1, dim=0) * 2,
    "bincount": lambda x: torch.bincount((x.flatten() > 0).long()) + 1,
}


@pytest.fixture(autouse=True)
def captured() -> Iterator[None]:
    config = torch._dynamo.config
    with config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def results(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    smelt.torch.reset_stats()
    compiled = torch.compile(PROGRAMS[name], backend="smelt", fullgraph=True, dynamic=False)
    for seed in range(4):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)).to(dtype)
        given = (x, -x.abs(), x.abs() + 0.1)[min(seed, 2)]
        for found, wanted in zip(results(compiled(given)), results(PROGRAMS[name](given)), strict=True):
            torch.testing.assert_close(found, wanted)
    found = smelt.torch.stats()
    assert found["graphs"] == 1 and not found["fallback_names"], found


def test_gradients() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x[x > 0] ** 2).sum() + x.masked_select(x < -1).sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="smelt", fullgraph=True)
    for seed in range(3):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(one).backward()
        loss(other).backward()
        torch.testing.assert_close(one.grad, other.grad)
