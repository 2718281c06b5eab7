"""The corpus of replay: graphs of workloads, kernel-count programs, models and random programs, by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from proofs.programs import NAMED, SEEDED, graphs
from smelt.ir.graph import Graph

TESTS = Path(__file__).parent.parent
RANDOM = 500  # random programs, shared among the kinds
CHUNK = 10  # random programs of a task
COUNTED = "counted"
Task = tuple[str, ...]


def tasks(kinds: list[str], count: int = RANDOM) -> list[Task]:
    """Return (kind, name) or (kind, first seed, end) for each unit of work, the slow ones first."""
    found: list[Task] = [(kind, name) for kind in ("model", "workload") if kind in kinds for name in NAMED[kind]()]
    if COUNTED in kinds:
        found.append((COUNTED, "test_kernel_counts.py"))
    for place, kind in enumerate(SEEDED):
        if kind in kinds:
            share = count // len(SEEDED) + (place < count % len(SEEDED))
            found += [(kind, str(at), str(min(at + CHUNK, share))) for at in range(0, share, CHUNK)]
    return found


def programs(task: Task) -> Iterator[tuple[str, Graph]]:
    """Yield the graphs of a task with unique names."""
    kind, first, *last = task
    names = [str(seed) for seed in range(int(first), int(last[0]))] if kind in SEEDED else [first]
    for name in names:
        found = recorded(name) if kind == COUNTED else graphs(kind, name, few=True)
        for number, (_, graph) in enumerate(found):
            yield f"{kind} {name} {number}", graph


def recorded(file: str) -> list[tuple[str, Graph]]:
    """Run a test file and collect the graphs that its calls of smelt.jit compile."""
    found: list[tuple[str, Graph]] = []
    module = sys.modules["smelt.jit"]
    compile_graph: Callable[..., Any] = module._compile  # type: ignore[attr-defined]

    def note(graph: Graph, options: Any) -> Any:
        found.append((file, graph))
        return compile_graph(graph, options)

    place = next(TESTS.rglob(file))
    with patch.object(module, "_compile", note):
        code = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", str(place)])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"{file} ends with {code!r}: its programs are not complete")
    return found
