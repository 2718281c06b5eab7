"""The text of every stage of a graph, for both targets."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smelt.backend.compile import compile_graph
from smelt.backend.options import VECTOR_BITS, CompileOptions
from smelt.ir.graph import Graph

from .programs import Task, programs

LAST = {"cpu": "llvm", "cuda": "cuda"}  # the last stage of each target that is recorded


class Enough(Exception):
    """The last stage has been recorded."""


def stages(graph: Graph, target: str, bits: int | None) -> dict[str, str]:
    """Return the text of the graph at each stage of a target."""
    seen: dict[str, str] = {}

    def note(stage: str, thing: Any) -> None:
        seen[stage] = str(thing)
        if stage == LAST[target]:
            raise Enough

    try:
        compile_graph(graph, CompileOptions(target=target, vector_bits=bits), on_stage=note)
    except Enough:
        pass
    except Exception as error:  # a part of the behaviour that must not change
        seen["error"] = f"{type(error).__name__}: {error}"
    return seen


def answer(task: Task, skip: int, directory: Path) -> Iterator[dict[str, Any]]:
    """Record a task's programs. The vector width of a program is a function of its name, so all widths occur."""
    import torch

    torch.manual_seed(0)
    record: dict[str, dict[str, str]] = {}
    for name, graph in programs(task):
        bits = VECTOR_BITS[zlib.crc32(name.encode()) % len(VECTOR_BITS)]
        record[f"{name} cpu-{bits}"] = stages(graph, "cpu", bits)
        record[f"{name} cuda"] = stages(graph, "cuda", None)
    (directory / f"{'-'.join(task)}.z").write_bytes(zlib.compress(json.dumps(record).encode(), 1))
    yield {"passed": True, "why": "", "programs": len(record)}
