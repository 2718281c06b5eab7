"""What the back end did in this process: what smelt compiled, what fell back to PyTorch and why."""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..backend.options import CompileOptions
from ..ir.errors import ArgumentError, suggest
from ..ir.graph import Graph
from ..ir.process import process


class _Receipts:
    """The graphs that were compiled, and the counters of Dynamo and AOTAutograd when the statistics began."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.graphs: list[dict[str, Any]] = []
        self.warned: set[str] = set()  # ops that a warning has named
        self.aot_seconds = 0.0
        self.breaks_before: Counter[str] = Counter()
        self.frames_before = 0
        # Dynamo's own lists, and how long they were.
        self.dynamo_before: dict[str, tuple[list[float], int]] = {}


_receipts = process.keep("receipts of graphs", _Receipts())


def record(entry: dict[str, Any]) -> None:
    """A graph that was compiled."""
    with _receipts.lock:
        _receipts.graphs.append(entry)
    warn_of_fallback(entry["fallback"])


def warn_of_fallback(fallback: Sequence[tuple[str, str]]) -> None:
    """Name the ops that PyTorch runs, each once in a process."""
    with _receipts.lock:
        new = sorted({name for name, _ in fallback} - _receipts.warned)
        _receipts.warned.update(new)
    if new:
        warnings.warn(
            f"PyTorch runs some of this program, for smelt has no code or slower code: {', '.join(new)} "
            "(each is named once; smelt.torch.report() has all, with the reasons)",
            stacklevel=3,
        )


@contextmanager
def timed_tracing() -> Iterator[None]:
    """Around AOTAutograd, which calls smelt: the time that is not smelt's is counted as AOTAutograd's."""
    before, started = own_seconds(), time.perf_counter()
    try:
        yield
    finally:
        _receipts.aot_seconds += time.perf_counter() - started - (own_seconds() - before)


def own_seconds() -> float:
    with _receipts.lock:
        return sum(item["compile_ms"]() for item in _receipts.graphs) / 1000


def _dynamo_times() -> dict[str, list[float]]:
    """Seconds that Dynamo took to compile frames, and those for which it called the back end; its reset begins anew."""
    from torch._dynamo.utils import compilation_time_metrics as found

    return {name: found.get(name, []) for name in ("_compile.compile_inner", "OutputGraph.call_user_compiler")}


def _dynamo_seconds() -> float:
    """What Dynamo itself took since the beginning, as far as it remembers."""
    since = []
    for name, times in _dynamo_times().items():
        known, length = _receipts.dynamo_before.get(name, (times, 0))
        since.append(sum(times[length:] if times is known else times))
    whole, back_end = since
    return whole - back_end


def reset_stats() -> None:
    """Forget all graphs so far."""
    counts = _dynamo_counts()
    _receipts.breaks_before, _receipts.frames_before = counts["graph_break"], counts["frames"]["total"]
    with _receipts.lock:
        _receipts.graphs.clear()
        _receipts.aot_seconds = 0.0
        _receipts.dynamo_before = {name: (times, len(times)) for name, times in _dynamo_times().items()}


def stats() -> dict[str, Any]:
    """Totals over the graphs since reset_stats()."""
    with _receipts.lock:
        graphs = list(_receipts.graphs)
    return {
        "graphs": len(graphs),
        "native_ops": sum(item["native_ops"] for item in graphs),
        "fallback_ops": sum(len(item["fallback"]) for item in graphs),
        "fallback_names": dict(Counter(name for item in graphs for name, _ in item["fallback"])),
        "kernels": sum(item["kernels"]() for item in graphs),
        "compilations": sum(item["compilations"]() for item in graphs),
        "packed_weights": sum(len(item["packed"]) for item in graphs),
        "packed_bytes": sum(size for item in graphs for _, size in item["packed"]),
        "compile_ms": sum(item["compile_ms"]() for item in graphs),
        "aot_ms": 1000 * _receipts.aot_seconds,
        "dynamo_ms": 1000 * _dynamo_seconds(),
    }


@dataclass(frozen=True)
class CompiledGraph:
    """A graph of smelt's that came from torch.compile or torch.export: one native call."""

    number: int  # in the report
    kind: str
    graph: Graph
    options: CompileOptions

    def text(self, stage: str = "graph") -> str:
        """The program at a stage of its compilation: "graph", "fuse", "loops", "llvm", "asm" and the others of
        `smelt dump`."""
        from ..backend.compile import compile_stages

        seen = compile_stages(self.graph, (stage,), self.options)
        if stage not in seen:
            raise ArgumentError(f"unknown stage {stage!r}{suggest(stage, seen)}; there are {', '.join(seen)}")
        return str(seen[stage])

    def __str__(self) -> str:
        return self.text()


def graphs() -> list[CompiledGraph]:
    """What smelt compiled since reset_stats(), in the order of the report: one for each native call and its sizes."""
    with _receipts.lock:
        found = list(enumerate(_receipts.graphs))
    return [
        CompiledGraph(number, item["kind"], version.traced.graph, version.options)
        for number, item in found
        for step in item["natives"]
        for version in step.versions
    ]


def _breaks() -> dict[str, int]:
    """Why Dynamo ended graphs or left functions to PyTorch, since the beginning, and how often."""
    found = _dynamo_counts()["graph_break"]
    since: Counter[str] = Counter()
    for text, count in found.items():
        first, *lines = text.splitlines()
        why = next((line.partition("Explanation: ")[2] for line in lines if "Explanation: " in line), "")
        known = _receipts.breaks_before.get(text, 0)
        since[f"{first}: {why}" if why else first] += count - known if count >= known else count
    return {text: count for text, count in since.items() if count}


def _dynamo_counts() -> dict[str, Counter[str]]:
    from torch._dynamo.utils import counters

    return {name: Counter(counters[name]) for name in ("graph_break", "frames") if name in counters} | {
        name: Counter() for name in ("graph_break", "frames") if name not in counters
    }


def report() -> str:
    """Each graph: how many ops smelt compiled into how many kernels, which weights are kept in the order in which
    products read them, and what PyTorch runs, with the reason; then what Dynamo kept from all back ends."""
    with _receipts.lock:
        graphs = list(_receipts.graphs)
    lines: list[str] = []
    for number, item in enumerate(graphs):
        places = "" if set(item["devices"]) <= {"cpu"} else f" on {' and '.join(item['devices'])}"
        lines.append(
            f"graph {number} ({item['kind']}): {item['native_ops']} ops in {item['kernels']()} kernels, "
            f"{item['steps']} native calls{places}, {item['compile_ms']():.1f} ms"
        )
        reasons = Counter(item["fallback"])
        lines.extend(f"  {name} packed once, {_bytes_text(size)}" for name, size in item["packed"])
        lines.extend(f"  PyTorch runs {name} ({count} times): {why}" for (name, why), count in reasons.items())
    if not graphs and _dynamo_counts()["frames"]["total"] != _receipts.frames_before:
        lines.append("Dynamo gave smelt no graph: PyTorch runs all that was compiled")
    lines.extend(f"Dynamo broke off ({count} times): {why}" for why, count in _breaks().items())
    return "\n".join(lines) or "nothing was compiled yet"


def _bytes_text(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.2f} kB"
