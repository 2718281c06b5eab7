"""What the back end did in this process: what smelt compiled, what fell back to PyTorch and why."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from typing import Any

_lock = threading.Lock()
_graphs: list[dict[str, Any]] = []
_warned = False


def record(entry: dict[str, Any]) -> None:
    """A graph that was compiled."""
    global _warned
    with _lock:
        _graphs.append(entry)
        warn = bool(entry["fallback"]) and not _warned
        _warned = _warned or warn
    if warn:
        names = ", ".join(sorted({name for name, _ in entry["fallback"]}))
        warnings.warn(
            f"smelt has no code for {names}: PyTorch runs what it must (said once; smelt.torch.report() has it all)",
            stacklevel=2,
        )


def reset_stats() -> None:
    """Forget all graphs so far."""
    with _lock:
        _graphs.clear()


def stats() -> dict[str, Any]:
    """Totals over the graphs since reset_stats()."""
    with _lock:
        graphs = list(_graphs)
    return {
        "graphs": len(graphs),
        "native_ops": sum(item["native_ops"] for item in graphs),
        "fallback_ops": sum(len(item["fallback"]) for item in graphs),
        "fallback_names": dict(Counter(name for item in graphs for name, _ in item["fallback"])),
        "kernels": sum(item["kernels"]() for item in graphs),
        "compilations": sum(item["compilations"]() for item in graphs),
        "compile_ms": sum(item["compile_ms"]() for item in graphs),
    }


def report() -> str:
    """Each graph: how many ops smelt compiled into how many kernels, and what PyTorch runs, with the reason."""
    with _lock:
        graphs = list(_graphs)
    lines: list[str] = []
    for number, item in enumerate(graphs):
        lines.append(
            f"graph {number} ({item['kind']}): {item['native_ops']} ops in {item['kernels']()} kernels, "
            f"{item['steps']()} native calls, {item['compile_ms']():.1f} ms"
        )
        reasons = Counter(item["fallback"])
        lines.extend(f"  PyTorch runs {name} ({count} times): {why}" for (name, why), count in reasons.items())
    return "\n".join(lines) or "nothing was compiled yet"
