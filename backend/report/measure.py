"""Count a compiled graph's traffic, regions and memory for its report."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Graph
from ...ir.proofs import ceil_divide
from ...ir.symbolic import Dim
from ...kernels.loop.ir import OUTERMOST, Concurrent, Kernel, Loop, walk
from ...ops.create import constant
from ...passes.fusion.groups import Group
from ...passes.fusion.names import Interface
from .report import KernelReport, Report


def make_report(
    graph: Graph,
    launches: Sequence[Sequence[Group]],
    interface: Interface,
    kernels: Sequence[Kernel],
    arena: Dim,
    scratch: Sequence[Dim] | None = None,
    own_scratch: Dim = 0,
) -> Report:
    """Make the report. scratch: bytes per thread of each kernel; own_scratch: bytes per thread of parallel kernels."""
    entries: list[KernelReport] = []
    after: Dim = 0
    for number, (groups, kernel) in enumerate(zip(launches, kernels, strict=True)):
        reads, writes = traffic(kernel)
        after = after + reads + writes
        ops = [op.name for group in groups for op in group.ops]
        widths = sorted({item.width for item in walk(kernel.body) if isinstance(item, Loop) and item.kind == "vector"})
        texts = size_text(reads), size_text(writes), "" if scratch is None else size_text(scratch[number])
        entries.append(KernelReport(kernel.name, ops, regions(kernel), pieces(kernel), widths, *texts))
    before: Dim = 0
    for op in graph.ops:
        for value in (*op.operands, *op.results):
            if value.op is None or value.op.defn is not constant:
                before = before + value.type.nbytes
    return Report(
        graph.name,
        len(graph.ops),
        entries,
        interface.refusals,
        size_text(before),
        size_text(after),
        size_text(arena),
        "" if scratch is None else size_text(own_scratch),
        refused=interface.refused,
    )


def size_text(value: Dim) -> str:
    """Format a number of bytes for people; a formula where sizes are symbolic."""
    if not isinstance(value, int):
        return f"{value} B"
    number = float(value)
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def traffic(kernel: Kernel) -> tuple[Dim, Dim]:
    """Count the bytes that a kernel reads and writes."""
    moved: dict[str, Dim] = {"in": 0, "out": 0, "temp": 0}
    for buffer in kernel.buffers:
        nbytes: Dim = buffer.dtype.bytes
        for size in buffer.shape:
            nbytes = nbytes * size
        moved[buffer.role] = moved[buffer.role] + nbytes
    return moved["in"], moved["out"]


def regions(kernel: Kernel) -> int:
    """Count the parallel regions of a kernel; serial code before, between or after them counts as one each."""
    total, serial = 0, False
    for statement in kernel.body:
        parallel = isinstance(statement, Concurrent) or (isinstance(statement, Loop) and statement.kind in OUTERMOST)
        if parallel or not serial:
            total += 1
        serial = not parallel
    return total


def pieces(kernel: Kernel) -> int | str:
    """Count the pieces of work of the largest region; on a GPU, the threads that it has work for."""
    most = 1
    for statement in kernel.body:
        loops = statement.branches if isinstance(statement, Concurrent) else (statement,)
        parallel = [loop for loop in loops if isinstance(loop, Loop) and loop.kind in OUTERMOST]
        if not parallel:
            continue
        total: Dim = len(loops) - len(parallel)
        for loop in parallel:
            each = {"parallel": ceil_divide(loop.extent, loop.width), "grid": loop.extent, "warp": loop.extent * 32}
            total = total + each.get(loop.kind, loop.extent * loop.width)
        if not isinstance(total, int):
            return str(total)
        most = max(most, total)
    return most
