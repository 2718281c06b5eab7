"""`make parity-cuda`: every op and every workload in Numba's simulator, and their kernels as machine code."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.gaps import INTERNAL
from parity.runner import MODES
from smelt.backend.store.sources import fingerprint
from smelt.ops.define import REGISTRY
from smelt.tools.terminal import table
from smelt.tools.workloads.suite import all_workloads
from workers import run, show_progress

from .check import answer

LINE = 20.0  # seconds between two lines of progress, where nobody watches


def main() -> int:
    parser = argparse.ArgumentParser(prog="parity_cuda", description=__doc__)
    parser.add_argument("--only", default="*", help="names or patterns of ops and workloads, with commas between them")
    parser.add_argument("--what", default="", help="forward, vjp, jvp, workload or compile; with commas (all)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--results", type=Path, default=Path("build/parity-cuda.json"), help="where results are kept")
    parser.add_argument("--resume", action="store_true", help="leave out what passed before with the same sources")
    parser.add_argument("--seconds", type=float, help="stop after so long; --resume goes on from there")
    options = parser.parse_args()
    known = [*MODES, "workload", "compile"]
    kinds = options.what.split(",") if options.what else known
    if wrong := [item for item in kinds if item not in known]:
        parser.error(f"--what {','.join(wrong)}: there are {', '.join(known)}")
    simulated = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
    # Code is compiled by the real compiler, which a process with the simulator does not have.
    kinds = [item for item in kinds if (item == "compile") != simulated]

    def chosen(name: str) -> bool:
        return any(fnmatch.fnmatch(name, item) for item in options.only.split(","))

    ops = [name for name in sorted(REGISTRY) if name not in INTERNAL and chosen(name)]
    tasks = [(kind, name) for kind in kinds if kind != "workload" for name in ops]
    workloads = [name for name in all_workloads() if chosen(name)]
    if not ops and not workloads:
        parser.error(f"--only {options.only}: there is no such op or workload")
    tasks += [("workload", name) for name in workloads if "workload" in kinds]
    kept = Kept(options.results)
    pending = [task for task in tasks if not (options.resume and kept.has_passed(task))]
    begin = shown = time.monotonic()
    until = begin + options.seconds if options.seconds else None
    failed = 0
    for done, (task, outcomes) in enumerate(run(pending, answer, most=1, workers=options.workers, until=until), 1):
        kept.add(task, outcomes)
        failed += not kept.has_passed(task)
        show_progress(done, len(pending), failed, "/".join(task), begin)
        now = time.monotonic()
        if not sys.stderr.isatty() and now - shown > LINE:
            print(f"{done} of {len(pending)} in {now - begin:.0f} s, {failed} failed", file=sys.stderr, flush=True)
            shown = now
    print(kept.table(tasks))
    return 0 if all(map(kept.has_passed, tasks)) else 1


class Kept:
    """Outcomes in a file, with the sources that they are of."""

    def __init__(self, path: Path):
        self.path = path
        self.sources = fingerprint(None)
        found = json.loads(path.read_text()) if path.exists() else {}
        # Those of other sources say nothing.
        self.tasks: dict[str, Any] = found.get("tasks", {}) if found.get("sources") == self.sources else {}

    def add(self, task: tuple[str, ...], outcomes: list[Any]) -> None:
        self.tasks["/".join(task)] = outcomes
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"sources": self.sources, "tasks": self.tasks}, indent=1))

    def of(self, task: tuple[str, ...]) -> list[Any] | None:
        return self.tasks.get("/".join(task))

    def has_passed(self, task: tuple[str, ...]) -> bool:
        outcomes = self.of(task)
        return bool(outcomes) and all(item["passed"] for item in outcomes)

    def table(self, tasks: Sequence[tuple[str, ...]]) -> str:
        """What failed, and how many tasks of each kind passed and how long they took."""
        failures = [
            f"{'/'.join(task)}: {item['why']}" for task in tasks for item in self.of(task) or [] if not item["passed"]
        ]
        rows: list[tuple[str, ...]] = [("", "passed", "failed", "to do", "seconds", "slowest")]
        for kind in dict.fromkeys(kind for kind, _ in tasks):
            mine = [task for task in tasks if task[0] == kind]
            done = {task: found for task in mine if (found := self.of(task)) is not None}
            passed = sum(map(self.has_passed, mine))
            took = {task[1]: sum(item.get("seconds", 0) for item in found) for task, found in done.items()}
            slowest = sorted(took, key=lambda name: -took[name])[:3]
            numbers = map(str, (passed, len(done) - passed, len(mine) - len(done), round(sum(took.values()))))
            rows.append((kind, *numbers, ", ".join(f"{name} {took[name]:.0f}" for name in slowest)))
        return "\n".join([*failures, table(rows)])


if __name__ == "__main__":
    sys.exit(main())
