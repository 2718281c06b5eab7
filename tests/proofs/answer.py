"""The work of a process: the proofs of a task's programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from .programs import SEEDED, graphs
from .prove import TARGETS, prove

# What is counted, and how a table calls it.
COLUMNS = {
    "graphs": "graphs", "kernels": "kernels", "proved": "proved", "guarded": "guarded", "checked": "checked",
    "unproved": "unproved", "results": "results", "reads": "reads", "chosen": "by data", "pairs": "pairs apart",
    "by_numbers": "by numbers", "unwritten": "unwritten", "conflicts": "conflicts",
}  # fmt: skip


def answer(task: tuple[str, ...], skip: int, few: bool) -> Iterator[dict[str, Any]]:
    """An outcome for each program of a task, from one on. A task is a kind and a name, or a range of seeds."""
    kind, first, *last = task
    names = list(map(str, range(int(first), int(last[0])))) if kind in SEEDED else [first]
    for name in names[skip:]:
        yield outcome(kind, name, few)


def outcome(kind: str, name: str, few: bool) -> dict[str, Any]:
    """What is proved of a program, or of all samples of an op."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    try:
        for what, graph in graphs(kind, name, few):
            counts["graphs"] += 1
            for target in TARGETS:
                found, errors = prove(graph, target)
                counts.update(found)
                wrong += [f"{name} {what}: {text}" for text in errors]
    except Exception as error:
        wrong.append(f"{name}: {type(error).__name__}: {error}")
    return {"passed": not wrong, "why": "\n".join(wrong), "counts": dict(counts)}
