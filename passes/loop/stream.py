"""Which stores bypass the caches."""

from __future__ import annotations

from dataclasses import replace

from ...ir.symbolic import product
from ...kernels.loop_ir import Buffer, Concurrent, Kernel, Load, Loop, Statement, Store, Transpose, walk, with_body
from ...kernels.loop_verify import streamable
from ..manager import loop_pass


@loop_pass("stream")
def stream(kernel: Kernel, *, least: int = 8 << 20) -> Kernel:
    """Stores to results of at least so many bytes, which the caches would not keep, go straight to memory.

        store %y[%i, %j], %3   ->   stream %y[%i, %j], %3

    A cached store first reads the line that it is about to overwrite: a third of the traffic of a copy. Only whole
    vectors at multiples of a cache line can go this way, and a kernel must not read them again.
    """
    read = {item.buffer.name for item in walk(kernel.body) if isinstance(item, Load)}
    read |= {item.source.buffer.name for item in walk(kernel.body) if isinstance(item, Transpose)}

    def large(buffer: Buffer) -> bool:
        size = product(buffer.shape)
        return isinstance(size, int) and size * buffer.dtype.bytes >= least and buffer.name not in read

    def visit(statement: Statement, around: Loop | None) -> Statement:
        if isinstance(statement, Concurrent):
            branches = [visit(branch, None) for branch in statement.branches]
            return Concurrent(tuple(branch for branch in branches if isinstance(branch, Loop)))
        if isinstance(statement, Loop):
            return with_body(statement, [visit(item, statement) for item in statement.body])
        if isinstance(statement, Store) and around is not None and large(statement.buffer):
            return replace(statement, stream=True) if streamable(statement, around) else statement
        return statement

    return replace(kernel, body=tuple(visit(statement, None) for statement in kernel.body))
