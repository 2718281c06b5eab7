"""The receipt of a compilation: kernels, the ops fused in each, refusals with reasons, the origin of the code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..store.cache import Lookup


@dataclass(frozen=True)
class KernelReport:
    """Report of one kernel."""

    name: str
    ops: list[str]
    regions: int  # parallel regions; serial code between them counts as one each
    pieces: int | str  # pieces of work for threads, in the largest region; a formula where sizes are symbolic
    vector_widths: list[int]
    reads: str  # bytes
    writes: str
    scratch: str = ""  # bytes of scratch per thread; not reported for a GPU
    threads: int = 1  # threads that can work on it, at most

    def __str__(self) -> str:
        widths = f", vectors of {', '.join(map(str, self.vector_widths))}" if self.vector_widths else ""
        count = f"{len(self.ops)} op{'s' * (len(self.ops) != 1)}"
        threads = f", {self.threads} thread{'s' * (self.threads != 1)}"
        if self.regions > 1:
            threads += f" in {self.regions} regions"
        scratch = f", scratch {self.scratch}" if self.scratch not in ("", "0 B") else ""
        if scratch and self.threads > 1:
            scratch += " a thread"
        return f"{self.name}: {count}{widths}{threads}, reads {self.reads}, writes {self.writes}{scratch}"


@dataclass(frozen=True)
class Report:
    """Report of one compiled graph. Sizes are in bytes, formulas where they are symbolic."""

    name: str
    ops: int
    kernels: list[KernelReport]
    refusals: list[str]
    bytes_before: str
    bytes_after: str
    arena: str  # bytes of all temporaries, and of the scratch of kernels run by one thread
    scratch: str = ""  # bytes per thread, for parallel kernels
    cache: Lookup = field(default_factory=lambda: Lookup("off"))
    milliseconds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)  # number of refusals by reason
    reasons: list[str] = field(
        default_factory=list, compare=False
    )  # why each version of the function was compiled, in order

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2, default=vars)

    def lasting(self) -> dict[str, Any]:
        """Return the fields that hold in every process that runs this code."""
        return {name: item for name, item in asdict(self).items() if name not in ("cache", "milliseconds", "reasons")}

    @staticmethod
    def read(found: dict[str, Any]) -> Report:
        """Make the report of the fields that `lasting` returned."""
        return Report(**found | {"kernels": [KernelReport(**kernel) for kernel in found["kernels"]]})

    def here(self, threads: int, cache: Lookup, seconds: Mapping[str, float]) -> Report:
        """Copy the report with the facts of this process added."""
        kernels = [
            replace(kernel, threads=min(threads, kernel.pieces) if isinstance(kernel.pieces, int) else threads)
            for kernel in self.kernels
        ]
        milliseconds = {stage: round(1000 * duration, 2) for stage, duration in seconds.items()}
        return replace(self, kernels=kernels, cache=cache, milliseconds=milliseconds)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.ops} ops in {len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}"]
        for kernel in self.kernels:
            lines.append(f"  {kernel}")
            lines.append(f"    {' '.join(kernel.ops)}")
        lines += refusal_lines(self.refusals, self.refused)
        scratch = f", scratch of each thread {self.scratch}" if self.scratch not in ("", "0 B") else ""
        lines.append(f"  memory traffic: {self.bytes_before} op by op, {self.bytes_after} fused")
        lines.append(f"  memory: arena {self.arena}{scratch}")
        lines.append(f"  cache: {self.cache}")
        if self.milliseconds:
            shown = ", ".join(f"{stage} {time:.1f}" for stage, time in self.milliseconds.items())
            lines.append(f"  milliseconds: {shown}")
        if len(self.reasons) > 1:
            lines.append(f"  compiled {len(self.reasons)} times, again because")
            lines.extend(f"    {reason}" for reason in self.reasons[1:])
        return "\n".join(lines)


def refusal_lines(refusals: Sequence[str], refused: Mapping[str, int]) -> list[str]:
    """Format the refusals of fusion: the number of each reason, then each of them."""
    if not refusals:
        return []
    counts = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in refused.items())
    return [f"  not fused: {counts}", *(f"    {refusal}" for refusal in refusals)]
