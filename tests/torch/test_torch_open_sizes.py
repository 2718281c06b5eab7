"""Random programs of open sizes (open_programs.py) through torch.compile with dynamic=True, against eager PyTorch. What
else is a number in them (the place of a slice, the stride of a pool) is open there, too.

`--long` tries many more programs.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from open_programs import TORCH, Program, draw
from open_sizes import ALL_SIZES, ERRORS, FEW_SIZES, FIRST, all_sizes, compare, outcome

PROGRAMS = 6
LONG_PROGRAMS = 300


def check(
    program: Program, compiled: Any, eager: Callable[..., Any], exact: Sequence[bool], sizes: Sequence[tuple[int, int]]
) -> None:
    for rows, columns in all_sizes(program, sizes):
        arguments = [torch.from_numpy(item) for item in program.inputs(rows, columns)]
        wanted = outcome(eager, arguments, ERRORS)
        found = outcome(compiled, arguments, Exception)
        # What nobody needs is not computed, and cannot fail: PyTorch sees to it before smelt does.
        if not isinstance(wanted, Exception):
            compare(found, wanted, exact, f"{rows} x {columns} of\n{program}\n")


def check_values(seed: int, sizes: Sequence[tuple[int, int]]) -> None:
    program = draw(seed)

    def function(*inputs: Any) -> Any:
        return program.run(TORCH, inputs)

    check(program, torch.compile(function, backend="smelt", dynamic=True), function, program.exact, sizes)


def check_gradients(seed: int, sizes: Sequence[tuple[int, int]]) -> None:
    program = draw(seed, inexact=False)

    def loss(*inputs: Any) -> Any:
        return sum(result.sum() for result in program.run(TORCH, inputs))

    def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
            leaves = [item.clone().requires_grad_() for item in inputs[:3]]
            value = function(*leaves, inputs[3])
            if not value.requires_grad:
                return [torch.zeros_like(item) for item in leaves]
            found = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
            return [item.detach() for item in found]

        return run

    compiled = torch.compile(loss, backend="smelt", dynamic=True)
    check(program, gradients(compiled), gradients(loss), (False,) * 3, sizes)


MODES = {"values": check_values, "gradients": check_gradients}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """PyTorch compiles once more for many of the sizes, and says so of sizes that do not fit a program."""
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), torch._dynamo.config.patch(recompile_limit=64, accumulated_recompile_limit=10**6):
        warnings.simplefilter("ignore")
        yield
    logger.setLevel(before)


# Parts run on different workers.
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("mode", MODES)
def test_random_programs(mode: str, part: int, request: pytest.FixtureRequest, fresh_torch: None) -> None:
    long = request.config.getoption("--long")
    for seed in range(part, LONG_PROGRAMS if long else PROGRAMS, 2):
        torch._dynamo.reset()
        MODES[mode](seed, ALL_SIZES if long else (*FIRST, *FEW_SIZES))
