"""Record the text of every stage of every program: python -m replayed DIRECTORY [--only KINDS]."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

from proofs.programs import SEEDED
from workers import run, show_progress

from .programs import COUNTED, RANDOM, tasks
from .record import answer

KINDS = ("model", "workload", COUNTED, *SEEDED)
PATIENCE = 600.0  # seconds until a process that does not answer is ended
LINE = 20.0  # seconds between two lines of progress where standard error is no terminal


def main() -> int:
    parser = argparse.ArgumentParser(prog="replayed", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default=",".join(KINDS), help=f"kinds of programs, with commas ({','.join(KINDS)})")
    parser.add_argument("--count", type=int, default=RANDOM, help=f"random programs ({RANDOM})")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    work = tasks(options.only.split(","), options.count)
    begin = shown = time.monotonic()
    failed = recorded = 0
    for done, (task, outcomes) in enumerate(
        run(work, partial(answer, directory=options.directory), most=1, workers=options.workers, patience=PATIENCE), 1
    ):
        for outcome in outcomes:
            recorded += outcome.get("programs", 0)
            if not outcome["passed"]:
                failed += 1
                print(f"----- {' '.join(task)}: {outcome['why']}", flush=True)
        show_progress(done, len(work), failed, " ".join(task), begin)
        if not sys.stderr.isatty() and time.monotonic() - shown > LINE:
            shown = time.monotonic()
            print(f"{done} of {len(work)} tasks in {shown - begin:.0f} s", file=sys.stderr, flush=True)
    print(f"{recorded} programs recorded in {time.monotonic() - begin:.0f} s, {failed} tasks failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
