"""Sum long reductions in blocks, so that rounding errors grow with the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir.proofs import ceil_divide, minimum
from ...ir.symbolic import Dim, Symbol
from ...kernels.loop.ir import Accumulator, Concurrent, Kernel, Loop, Register, Statement, fresh, prefixes, with_body
from ..registry import loop_pass


@loop_pass("blocked_sum")
def blocked_sum(kernel: Kernel, *, steps: int = 128) -> Kernel:
    """Cut a long sum into sums of about `steps` vectors: rounding errors grow with a block, not with the whole.

    vector<64> %j in 0..32768 reduce %s: f32 = add { ... }   ->

    serial %b0 in 0..4 reduce %s: f32 = add {
      vector<64> %j in (8192 * %b0)..(8192 * %b0 + 8192) reduce %s.part: f32 = add { ... }
      yield %s.part
    }
    """
    variables = (f"%b{number}" for number in fresh(kernel, "%b{}"))
    return replace(kernel, body=tuple(_statement(item, steps, variables) for item in kernel.body))


def _statement(statement: Statement, steps: int, fresh: Iterator[str]) -> Statement:
    if isinstance(statement, Concurrent):
        branches = [_statement(branch, steps, fresh) for branch in statement.branches]
        return Concurrent(tuple(branch for branch in branches if isinstance(branch, Loop)))
    if not isinstance(statement, Loop):
        return statement
    if any(isinstance(item, Loop) for item in statement.body):
        return with_body(statement, [_statement(item, steps, fresh) for item in statement.body])
    return _split(statement, steps, fresh) if _sums(statement) else statement


def _sums(loop: Loop) -> bool:
    """Whether a loop is a sum of floating-point numbers."""
    return not prefixes(loop) and any(
        item.combiner == "add" and item.results[0].dtype.is_inexact for item in loop.accumulators
    )


def _split(loop: Loop, steps: int, fresh: Iterator[str]) -> Loop:
    length = _length(loop.extent, loop.width, steps)
    if length is None:
        return loop
    blocks = ceil_divide(loop.extent, length)
    variable = Symbol(next(fresh), 0, blocks - 1)
    start = loop.start + variable.expr() * length
    parts = [
        replace(item, results=tuple(Register(f"{result.name}.part", result.dtype) for result in item.results))
        for item in loop.accumulators
    ]
    inner = replace(loop, start=start, stop=minimum(start + length, loop.stop), accumulators=tuple(parts))
    whole = [
        Accumulator(item.results, item.combiner, part.results)
        for item, part in zip(loop.accumulators, parts, strict=True)
    ]
    return Loop("serial", variable, 0, blocks, (inner,), 1, tuple(whole))


def _length(extent: Dim, width: int, steps: int) -> int | None:
    """Return the iterations of a block: a divisor of the whole if there is one; None if the sum is short."""
    if not isinstance(extent, int):
        return steps * width
    if extent <= 2 * steps * width:
        return None
    for blocks in range(extent // (2 * steps * width) + 1, 2 * extent // (steps * width) + 1):
        if extent % (blocks * width) == 0:
            return extent // blocks
    return steps * width
