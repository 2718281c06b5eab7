"""Operands that are smaller than each other where PyTorch allows it: no loop over the one reads or writes the other.

Each program is written once for `ops` and for `torch`. It runs compiled, with sizes that stay open, in reverse, and
through torch.compile, and is compared with PyTorch; loop_programs.py has the same programs for the loop IR and CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import smelt
import torch
from loop_programs import UNEQUAL
from smelt import CompileOptions, ops
from smelt.passes.fusion.axes import AxisUnion
from support import flatten

FORWARD = ("larger source",)
OPEN = ("gather", "behind a sum", "sum behind it", "scatter", "scatter_add", "larger source")


def torch_of(arrays: list[np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(array.copy()) for array in arrays]


def assert_equal(found: Any, wanted: Any) -> None:
    for mine, theirs in zip(flatten(found), flatten(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", UNEQUAL)
def test_forward(name: str) -> None:
    function, arrays = UNEQUAL[name]
    compiled = smelt.jit(lambda *items: function(ops, *items), options=CompileOptions(verify=True))
    assert_equal(compiled(*arrays), function(torch, *torch_of(arrays)))


def floating(arrays: list[np.ndarray]) -> tuple[int, ...]:
    return tuple(number for number, array in enumerate(arrays) if array.dtype.kind == "f")


def loss(module: Any, function: Callable[..., Any], items: Any) -> Any:
    return sum((module.sum(result * result * 0.5) for result in flatten(function(module, *items))), start=0.0)


@pytest.mark.parametrize("name", [name for name in UNEQUAL if name not in FORWARD])
def test_reverse(name: str) -> None:
    function, arrays = UNEQUAL[name]
    wanted = torch_of(arrays)
    chosen = floating(arrays)
    for number in chosen:
        wanted[number].requires_grad_()
    loss(torch, function, wanted).backward()
    gradient = smelt.grad(lambda *items: loss(ops, function, items), argnums=chosen)
    found = smelt.jit(gradient, options=CompileOptions(verify=True))(*arrays)
    assert_equal(found, [wanted[number].grad.numpy() for number in chosen])


@pytest.mark.parametrize("name", [name for name in UNEQUAL if name not in FORWARD])
def test_torch_compile(name: str) -> None:
    function, arrays = UNEQUAL[name]
    torch._dynamo.reset()
    compiled = torch.compile(lambda *items: function(torch, *items), backend="smelt")
    found, wanted = torch_of(arrays), torch_of(arrays)
    for number in floating(arrays):
        found[number].requires_grad_()
        wanted[number].requires_grad_()
    results, others = flatten(compiled(*found)), flatten(function(torch, *wanted))
    assert_equal([item.detach() for item in results], [item.detach() for item in others])
    sum((item * item).sum() for item in results).backward()
    sum((item * item).sum() for item in others).backward()
    for number in floating(arrays):
        assert_equal(found[number].grad, wanted[number].grad)


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes(name: str) -> None:
    """One program for all sizes: those of the index are open, too, and smaller or equal."""
    function, arrays = UNEQUAL[name]
    compiled = smelt.jit(lambda *items: function(ops, *items), dynamic=True)
    assert_equal(compiled(*arrays), function(torch, *torch_of(arrays)))
    grown = [np.concatenate([array, array], 0) for array in arrays]
    assert_equal(compiled(*grown), function(torch, *torch_of(grown)))


def test_unequal_axes_never_join() -> None:
    axes = AxisUnion()
    first, second = axes.over((3, 4))
    with pytest.raises(AssertionError, match="3 and 4 are one axis"):
        axes.join(first, second)  # type: ignore[arg-type]
