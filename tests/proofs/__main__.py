"""`make proofs`: what the verifier proves of the kernels of many programs, on both targets.

make proofs                       a spread: every workload, a few samples of each op, some random programs
make proofs ARGS="--long"         all models and parity samples, and 20 000 random programs
make proofs ARGS="--only drawn --seed 12 --count 1"
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from functools import partial

from smelt.tools.terminal import table
from workers import run, show_progress

from .answer import COLUMNS, answer
from .programs import NAMED, SEEDED

CHUNK = 10  # random programs of a task
COUNT, LONG_COUNT = 100, 6667  # random programs of a kind
PATIENCE = 600.0
LINE = 20.0  # seconds between two lines of progress, where nobody watches


def tasks_of(kinds: list[str], seed: int, count: int, long: bool) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for kind in kinds:
        if kind in SEEDED:
            found += [(kind, str(at), str(min(at + CHUNK, seed + count))) for at in range(seed, seed + count, CHUNK)]
        elif kind != "model" or long:
            found += [(kind, name) for name in NAMED[kind]()]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="proofs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    kinds = [*NAMED, *SEEDED]
    parser.add_argument("--long", action="store_true", help="all models and samples, and many more random programs")
    parser.add_argument("--only", default=",".join(kinds), help=f"kinds of programs, with commas ({','.join(kinds)})")
    parser.add_argument("--count", type=int, default=None, help=f"random programs of a kind ({COUNT}, {LONG_COUNT})")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--minutes", type=float, default=None, help="begin nothing after so many minutes")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if wrong := [kind for kind in chosen if kind not in kinds]:
        parser.error(f"no kind {', '.join(wrong)}; there are {', '.join(kinds)}")
    count = options.count if options.count is not None else LONG_COUNT if options.long else COUNT
    tasks = tasks_of(chosen, options.seed, count, options.long)
    begin = shown = time.monotonic()
    until = None if options.minutes is None else begin + 60 * options.minutes
    totals: dict[str, Counter[str]] = {kind: Counter() for kind in chosen}
    answers = run(
        tasks,
        partial(answer, few=not options.long),
        most=sys.maxsize - 1,
        workers=options.workers,
        patience=PATIENCE,
        until=until,
    )
    failed = 0
    for done, (task, outcomes) in enumerate(answers, 1):
        for outcome in outcomes:
            totals[task[0]].update(outcome.get("counts", {}))
            if not outcome["passed"]:
                failed += 1
                totals[task[0]]["failed"] += 1
                print(f"----- {' '.join(task)}: {outcome['why']}", flush=True)
        show_progress(done, len(tasks), failed, " ".join(task), begin)
        now = time.monotonic()
        if not sys.stderr.isatty() and now - shown > LINE:
            print(f"{done} of {len(tasks)} in {now - begin:.0f} s, {failed} failed", file=sys.stderr, flush=True)
            shown = now
    head = ("", *COLUMNS.values(), "failed")
    rows = [(kind, *(str(found[name]) for name in (*COLUMNS, "failed"))) for kind, found in totals.items()]
    print(table([head, *rows]))
    numbers = sum(found["by_numbers"] for found in totals.values())
    print(f"{numbers} proofs about memory are for sampled sizes (by numbers), not for all; {failed} programs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
