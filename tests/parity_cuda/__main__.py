"""`make parity-cuda`: every op and every workload in Numba's simulator, and their kernels as machine code."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from parity.gaps import INTERNAL
from parity.runner import MODES
from smelt.ops.define import REGISTRY
from smelt.tools.workloads.suite import all_workloads
from workers import run, show_progress

from .check import answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="parity_cuda", description=__doc__)
    parser.add_argument("--only", default="*", help="names or patterns of ops and workloads, with commas between them")
    parser.add_argument("--what", default="", help="forward, vjp, jvp, workload or compile; with commas (all)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--results", type=Path, default=Path("build/parity-cuda.json"), help="where results are kept")
    options = parser.parse_args()
    kinds = options.what.split(",") if options.what else [*MODES, "workload", "compile"]
    simulated = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
    # Code is compiled by the real compiler, which a process with the simulator does not have.
    kinds = [item for item in kinds if (item == "compile") != simulated]

    def chosen(name: str) -> bool:
        return any(fnmatch.fnmatch(name, item) for item in options.only.split(","))

    ops = [name for name in sorted(REGISTRY) if name not in INTERNAL and chosen(name)]
    tasks = [(kind, name) for kind in kinds if kind != "workload" for name in ops]
    tasks += [("workload", name) for name in all_workloads() if "workload" in kinds and chosen(name)]
    begin, failures = time.monotonic(), []
    kept: dict[str, Any] = json.loads(options.results.read_text()) if options.results.exists() else {}
    for done, (task, outcomes) in enumerate(run(tasks, answer, most=1, workers=options.workers), 1):
        kept["/".join(task)] = outcomes
        bad = [item["why"] for item in outcomes if not item["passed"]]
        failures += [f"{'/'.join(task)}: {why}" for why in bad]
        show_progress(done, len(tasks), len(failures), "/".join(task), begin)
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(json.dumps(kept, indent=1))
    print("\n".join(["", *failures, f"{len(tasks) - len(failures)} passed, {len(failures)} failed"]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
