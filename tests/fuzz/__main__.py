"""`make fuzz`: random programs from the registry's schemas against PyTorch eager, a table of what came of them.

make fuzz ARGS="--count 20000"           all ways in turn
make fuzz ARGS="--seed 1234 --count 1"   one program again, with its text
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from functools import partial

from workers import run, show_progress

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # for the simulator's programs, in the processes to come, too

from .check import WAYS, answer
from .defects import DEFECTS

CHUNK = 20  # programs of a task
PATIENCE = 180.0  # seconds without an answer


def passes(seed: int, ways: tuple[str, ...]) -> bool:
    """Whether the program of a seed passes in a process without any defect."""
    task = (str(seed), str(seed + 1))
    answers = run([task], partial(answer, ways=ways, defect=None), most=1, workers=1, patience=PATIENCE)
    return all(outcome["passed"] for _, outcomes in answers for outcome in outcomes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="programs (1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"how programs are run, with commas ({','.join(WAYS)})")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--minutes", type=float, default=None, help="begin no program after so many minutes")
    parser.add_argument("--defect", choices=DEFECTS, default=None, help="put a mended defect back, end when it shows")
    options = parser.parse_args()
    ways = tuple(options.ways.split(","))
    if unknown := [way for way in ways if way not in WAYS]:
        parser.error(f"no way {', '.join(unknown)}; there are {', '.join(WAYS)}")
    last = options.seed + options.count
    tasks = [(str(at), str(min(at + CHUNK, last))) for at in range(options.seed, last, CHUNK)]
    begin = time.monotonic()
    until = None if options.minutes is None else begin + 60 * options.minutes
    counts: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    typed: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    excused = 0.0
    chunks = run(
        tasks,
        partial(answer, ways=ways, defect=options.defect),
        most=CHUNK,
        workers=options.workers,
        patience=PATIENCE,
        until=until,
    )
    for done, (task, outcomes) in enumerate(chunks, 1):
        for at, outcome in enumerate(outcomes):
            way = outcome.get("way", "process")
            counts[way] += 1
            excused += outcome.get("excused", 0.0)
            refused.update(outcome.get("refused", {}))
            typed.update({text.split("(")[0]: count for text, count in outcome.get("typed", {}).items()})
            ops.update(outcome.get("ops", ()))
            if outcome["passed"]:
                continue
            seed = int(task[0]) + at
            print(f"----- seed {seed}, {way}: {outcome['why']}\n", flush=True)
            if options.defect is None:
                failed[way] += 1
            elif passes(seed, ways):
                print(f"the defect {options.defect} is found within {sum(counts.values())} programs:")
                print(f"the program of seed {seed} passes without it")
                return 0
            else:
                print(f"the program of seed {seed} fails without the defect {options.defect}, too\n", flush=True)
        show_progress(done, len(tasks), sum(failed.values()), task[0], begin)
    total = sum(counts.values())
    print(f"{total} programs in {time.monotonic() - begin:.0f} s, {sum(failed.values())} failed; {len(ops)} ops in")
    print(f"{sum(ops.values())} calls; {100 * excused / max(total, 1):.2f} % of the elements excused")
    for way, count in counts.most_common():
        print(f"  {way:10} {count:6}  {failed[way]} failed")
    print(f"calls that smelt refuses: {sum(refused.values())} of {len({text.split(':')[0] for text in refused})} ops")
    print(f"calls of other result types: {sum(typed.values())} of {len(typed)} ops: {', '.join(sorted(typed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
