"""Report a graph's code for a GPU: registers, shared memory, occupancy, bytes, and a lower bound of its time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ....ir.proofs import limit
from ....ir.symbolic import Dim
from ....kernels.loop.analysis import cost, count
from ....kernels.loop.ir import Concurrent, Gemm, Kernel, Loop, Statement
from ...report.measure import size_text, traffic
from ...report.report import refusal_lines
from ...store.cache import Lookup
from .code import Code, Resources
from .gpus import GPUS, occupancy, predicted


@dataclass(frozen=True)
class LaunchReport:
    """One launch."""

    function: str
    kind: str
    threads: int
    resources: Resources
    occupancy: float


@dataclass(frozen=True)
class KernelReport:
    """One kernel: one launch or several."""

    name: str
    launches: list[LaunchReport]
    bytes: int | str  # a formula where sizes are symbolic
    microseconds: dict[str, float]  # lower bound, by GPU; empty where sizes are symbolic


@dataclass(frozen=True)
class Report:
    """The report of one graph for one architecture."""

    name: str
    architecture: str
    kernels: list[KernelReport]
    cache: str  # where the code came from
    refusals: list[str]  # pairs of ops that are not fused, with the reason
    refused: dict[str, int]  # number of refusals by reason

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)} for {self.architecture}"]
        for kernel in self.kernels:
            moved = size_text(kernel.bytes) if isinstance(kernel.bytes, int) else f"{kernel.bytes} B"
            lines.append(f"  {kernel.name}: moves {moved}")
            for launch in kernel.launches:
                taken = launch.resources
                what = "blocks" if launch.kind == "block" else f"{launch.kind}, blocks"
                spills = f"{taken.spills} B of spills" if taken.spills else "no spills"
                lines.append(
                    f"    {launch.function}: {what} of {launch.threads} threads, {taken.registers} registers, "
                    f"{size_text(taken.shared)} shared, {spills}, occupancy {launch.occupancy:.0%}"
                )
            if kernel.microseconds:
                shown = ", ".join(f"{name} {time:.1f}" for name, time in kernel.microseconds.items())
                lines.append(f"    at least, in microseconds: {shown}")
        return "\n".join([*lines, *refusal_lines(self.refusals, self.refused), f"  cache: {self.cache}"])


def make_report(name: str, architecture: str, code: Code, kernels: Sequence[Kernel], cache: Lookup) -> Report:
    """Make the report of a program whose launches were compiled for an architecture."""
    program = code.program
    found: list[KernelReport] = []
    made = {item.name: item for item in code.compiled}
    for kernel in kernels:
        own = [launch for launch in program.launches if launch.kernel == kernel.name]
        launches = [
            LaunchReport(
                launch.function,
                launch.kind,
                launch.threads,
                made[launch.function].resources,
                occupancy(made[launch.function].resources, launch.threads, architecture),
            )
            for launch in own
        ]
        reads, writes = traffic(kernel)
        moved: Dim = reads + writes
        times: dict[str, float] = {}
        if isinstance(moved, int):
            work = operations(kernel.body)
            times = {gpu.name: round(1e6 * predicted(moved, work, gpu), 1) for gpu in GPUS}
        found.append(KernelReport(kernel.name, launches, moved if isinstance(moved, int) else str(moved), times))
    told = program.report
    return Report(name, architecture, found, str(cache), told["refusals"], told["refused"])


def operations(statements: Sequence[Statement]) -> int:
    """Estimate the number of additions and multiplications."""
    total = 0
    for item in statements:
        if isinstance(item, Concurrent):
            total += operations(item.branches)
        elif isinstance(item, Loop):
            total += count(item.extent) * (operations(item.body) + len(item.accumulators))
        elif isinstance(item, Gemm):
            # A multiply-add is two operations; partial tiles count as whole ones.
            rows, columns, depth = (_tile_side(size) for size in (item.rows, item.columns, item.depth))
            total += 2 * rows * columns * depth
        else:
            total += cost([item])
    return total


def _tile_side(size: Dim) -> int:
    upper = limit(size, True)
    return count(upper if isinstance(upper, int) else size)
