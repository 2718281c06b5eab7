"""A kernel written with the builder alone: no graph, no groups."""

from __future__ import annotations

import numpy as np
from smelt.backend.interp.loops import interpret_kernel
from smelt.ir.types import f32
from smelt.kernels.loop.ir import Buffer, Kernel, Loop, Store, walk
from smelt.kernels.loop.verify import verify_kernel
from smelt.passes.lower.builder import KernelBuilder


def test_rows_times_their_sum() -> None:
    builder = KernelBuilder("scaled", {"%x", "%y", "%i"})
    x, y = Buffer("%x", f32, (3, 5), "in"), Buffer("%y", f32, (3, 5), "out")

    def row(place: tuple) -> None:
        column = builder.new_variable(5)
        builder.open(column, 0, 5)
        ((total,),) = builder.close([("add", (builder.load_buffer(x, (*place, column.expr())),))])

        def element(inner: tuple) -> None:
            scaled = builder.scalar("mul", builder.load_buffer(x, (*place, *inner)), total)
            inverse = builder.scalar("reciprocal", total)  # does not vary here
            builder.add(len(builder.scopes) - 1, Store(y, (*place, *inner), builder.scalar("mul", scaled, inverse)))

        builder.nest((5,), element)

    builder.nest((3,), row)
    kernel = Kernel(builder.name, (x, y), tuple(builder.statements))
    verify_kernel(kernel)
    loops = [item for item in walk(kernel.body) if isinstance(item, Loop)]
    assert len(loops) == 3 and all(loop.variable.name != "%i" for loop in loops)
    assert not [item for item in loops[-1].body if getattr(item, "op", "") == "reciprocal"]
    numbers = np.arange(1, 16, dtype=np.float32).reshape(3, 5)
    buffers = {"%x": numbers, "%y": np.zeros((3, 5), np.float32)}
    interpret_kernel(kernel, buffers, {})
    np.testing.assert_allclose(buffers["%y"], numbers, rtol=1e-6)
