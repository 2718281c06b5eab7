"""Statistics of the back end in this process: the graphs that smelt compiled, the fallbacks to PyTorch with reasons."""

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
    """The compiled graphs, and the counters of Dynamo and AOTAutograd at the last reset."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.graphs: list[dict[str, Any]] = []
        self.warned: set[str] = set()  # ops named in a warning already
        self.aot_seconds = 0.0
        self.breaks_before: Counter[str] = Counter()
        self.frames_before = 0
        # Dynamo's own lists, and their lengths at the last reset.
        self.dynamo_before: dict[str, tuple[list[float], int]] = {}


_receipts = process.keep("receipts of graphs", _Receipts())


def record(entry: dict[str, Any]) -> None:
    """Record a compiled graph, and warn of its fallbacks."""
    with _receipts.lock:
        _receipts.graphs.append(entry)
    warn_of_fallback(entry["fallback"])


def warn_of_fallback(fallback: Sequence[tuple[str, str]]) -> None:
    """Warn of the ops that PyTorch runs, of each once in a process."""
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
    """Context that counts its time as AOTAutograd's, minus the time in which AOTAutograd calls smelt."""
    before, started = own_seconds(), time.perf_counter()
    try:
        yield
    finally:
        _receipts.aot_seconds += time.perf_counter() - started - (own_seconds() - before)


def own_seconds() -> float:
    with _receipts.lock:
        return sum(item["compile_ms"]() for item in _receipts.graphs) / 1000


def _dynamo_times() -> dict[str, list[float]]:
    """Return Dynamo's lists of seconds for compiling frames and for calling the back end; its own reset replaces
    them."""
    from torch._dynamo.utils import compilation_time_metrics as found

    return {name: found.get(name, []) for name in ("_compile.compile_inner", "OutputGraph.call_user_compiler")}


def _dynamo_seconds() -> float:
    """Return the seconds of Dynamo itself since the last reset, as far as its lists reach."""
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
    """A compiled graph from torch.compile or torch.export: one native call."""

    number: int  # in the report
    kind: str
    graph: Graph
    options: CompileOptions

    def text(self, stage: str = "graph") -> str:
        """Return the program at a stage of its compilation: "graph", "fuse", "loops", "llvm", "asm" or another of
        `smelt dump`."""
        from ..backend.compile import compile_stages

        seen = compile_stages(self.graph, (stage,), self.options)
        if stage not in seen:
            raise ArgumentError(f"unknown stage {stage!r}{suggest(stage, seen)}; there are {', '.join(seen)}")
        return str(seen[stage])

    def __str__(self) -> str:
        return self.text()


def graphs() -> list[CompiledGraph]:
    """Return the graphs compiled since reset_stats(), in the order of the report: one for each native call and set of
    sizes."""
    with _receipts.lock:
        found = list(enumerate(_receipts.graphs))
    return [
        CompiledGraph(number, item["kind"], version.traced.graph, version.options)
        for number, item in found
        for step in item["natives"]
        for version in step.versions
    ]


def _breaks() -> dict[str, int]:
    """Return Dynamo's reasons for graph breaks and skipped functions since the last reset, with counts."""
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
    """Return a text with, for each graph, the numbers of ops and kernels, the packed weights, and the ops that PyTorch
    runs, with reasons; then Dynamo's graph breaks."""
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
