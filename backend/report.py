"""The receipt: what was compiled, what shares a kernel, what does not and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ..ir.graph import Graph
from ..ir.symbolic import Dim
from ..kernels.loop_ir import Concurrent, Kernel, Loop, walk
from ..passes.fuse import Fused


@dataclass(frozen=True)
class KernelReport:
    """One kernel."""

    name: str
    ops: list[str]
    regions: int  # times that threads are set to work; what runs on the caller alone counts as one, too
    vector_widths: list[int]
    reads: str  # bytes
    writes: str


@dataclass(frozen=True)
class Report:
    """What the compiler did with one graph. Sizes are bytes; with symbolic sizes they are formulas."""

    name: str
    ops: int
    kernels: list[KernelReport]
    refusals: list[str]
    bytes_before: str
    bytes_after: str
    arena: str
    milliseconds: dict[str, float] = field(default_factory=dict)

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.ops} ops in {len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}"]
        for kernel in self.kernels:
            widths = f", vectors of {', '.join(map(str, kernel.vector_widths))}" if kernel.vector_widths else ""
            count = f"{len(kernel.ops)} op{'s' * (len(kernel.ops) != 1)}"
            lines.append(f"  {kernel.name}: {count}{widths}, reads {kernel.reads}, writes {kernel.writes}")
            lines.append(f"    {' '.join(kernel.ops)}")
        if self.refusals:
            lines.append("  not fused:")
            lines.extend(f"    {refusal}" for refusal in self.refusals)
        lines.append(f"  memory traffic: {self.bytes_before} op by op, {self.bytes_after} fused; arena {self.arena}")
        if self.milliseconds:
            shown = ", ".join(f"{stage} {time:.1f}" for stage, time in self.milliseconds.items())
            lines.append(f"  milliseconds: {shown}")
        return "\n".join(lines)


def size_text(value: Dim) -> str:
    """A number of bytes for people; a formula where sizes are symbolic."""
    if not isinstance(value, int):
        return f"{value} B"
    number = float(value)
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def regions(kernel: Kernel) -> int:
    """Parallel regions of a kernel; what runs before, between or after them on the caller counts as one each."""
    total, serial = 0, False
    for statement in kernel.body:
        parallel = isinstance(statement, Concurrent) or (isinstance(statement, Loop) and statement.kind == "parallel")
        if parallel or not serial:
            total += 1
        serial = not parallel
    return total


def make_report(
    graph: Graph, fused: Fused, kernels: list[Kernel], arena: Dim, milliseconds: Mapping[str, float]
) -> Report:
    entries: list[KernelReport] = []
    after: Dim = 0
    for groups, kernel in zip(fused.launches, kernels, strict=True):
        ops = [op.name for group in groups for op in group.ops]
        reads: Dim = 0
        writes: Dim = 0
        for buffer in kernel.buffers:
            nbytes: Dim = buffer.dtype.bytes
            for size in buffer.shape:
                nbytes = nbytes * size
            if buffer.role == "in":
                reads = reads + nbytes
            elif buffer.role == "out":
                writes = writes + nbytes
        after = after + reads + writes
        widths = sorted({item.width for item in walk(kernel.body) if isinstance(item, Loop) and item.kind == "vector"})
        entries.append(KernelReport(kernel.name, ops, regions(kernel), widths, size_text(reads), size_text(writes)))
    before: Dim = 0
    for op in graph.ops:
        for value in (*op.operands, *op.results):
            if value.op is None or value.op.name != "constant":
                before = before + value.type.nbytes
    return Report(
        graph.name,
        len(graph.ops),
        entries,
        [str(refusal) for refusal in fused.refusals],
        size_text(before),
        size_text(after),
        size_text(arena),
        {stage: round(1000 * seconds, 2) for stage, seconds in milliseconds.items()},
    )
