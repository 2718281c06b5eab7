"""The receipt: what was compiled, what shares a kernel, what does not and why, and where the code came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..store.cache import Lookup


@dataclass(frozen=True)
class KernelReport:
    """One kernel."""

    name: str
    ops: list[str]
    regions: int  # times that threads are set to work; what runs on the caller alone counts as one, too
    pieces: int | str  # that the work is cut into for threads, at most; a formula where sizes are symbolic
    vector_widths: list[int]
    reads: str  # bytes
    writes: str
    scratch: str = ""  # bytes that each thread at work needs beside; not told of a GPU
    threads: int = 1  # that can work on it, at most

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
    """What the compiler did with one graph. Sizes are bytes; with symbolic sizes they are formulas."""

    name: str
    ops: int
    kernels: list[KernelReport]
    refusals: list[str]
    bytes_before: str
    bytes_after: str
    arena: str  # all temporaries at once, and the scratch of kernels that one thread runs
    scratch: str = ""  # that each thread has for the kernels that threads share
    cache: Lookup = field(default_factory=lambda: Lookup("off"))
    milliseconds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)  # how many of the refusals have each reason
    reasons: list[str] = field(
        default_factory=list, compare=False
    )  # why each version of the function was compiled, in order

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2, default=vars)

    def lasting(self) -> dict[str, Any]:
        """What holds for every process that runs this code."""
        return {name: item for name, item in asdict(self).items() if name not in ("cache", "milliseconds", "reasons")}

    @staticmethod
    def read(found: dict[str, Any]) -> Report:
        """The report that `lasting` gave."""
        return Report(**found | {"kernels": [KernelReport(**kernel) for kernel in found["kernels"]]})

    def here(self, threads: int, cache: Lookup, seconds: Mapping[str, float]) -> Report:
        """This report with what is known only in the process at hand."""
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
    """The lines about ops that are not fused: how many there are of each reason, then each of them."""
    if not refusals:
        return []
    counts = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in refused.items())
    return [f"  not fused: {counts}", *(f"    {refusal}" for refusal in refusals)]
