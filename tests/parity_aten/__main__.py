"""`make parity`: every aten call of the databases' samples, in smelt and eager, and what came of it by family."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from smelt.ops.define import REGISTRY
from smelt.tools.terminal import fail, heading, table
from workers import run, show_progress

from .check import MODES, answer
from .gaps import reason

DTYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
    "u8": "uint8", "bool": "bool", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
MOST = 400  # calls of a subject


def main() -> int:
    parser = argparse.ArgumentParser(prog="parity_aten", description=__doc__)
    parser.add_argument("--only", default="*", help="names or patterns of ops and modules, with commas between them")
    parser.add_argument(
        "--dtype", default="f64", help=f"element types with commas between them (f64): {' '.join(DTYPES)}"
    )
    parser.add_argument("--samples", type=int, default=1000, help="samples of each op or module (all)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--part", default="1/1", help="one part of all: 2/5 is the second fifth")
    parser.add_argument("--results", type=Path, default=Path("build/parity.json"), help="where results are kept")
    parser.add_argument("--show", action="store_true", help="run nothing, show the results")
    options = parser.parse_args()
    kept: dict[str, list[Any]] = json.loads(options.results.read_text()) if options.results.exists() else {}
    from parity_torch.cases import subjects

    names = [name for name in subjects() if any(fnmatch.fnmatch(name, item) for item in options.only.split(","))]
    part, parts = map(int, options.part.split("/"))
    tasks = [(name, DTYPES[item]) for item in options.dtype.split(",") for name in names[part - 1 :: parts]]
    if not tasks:
        fail("nothing has such a name")
        return 1
    begin, failed = time.monotonic(), 0
    options.results.parent.mkdir(parents=True, exist_ok=True)
    found = run(
        [] if options.show else tasks, partial(answer, samples=options.samples), most=MOST, workers=options.workers
    )
    for done, (task, outcomes) in enumerate(found, 1):
        kept[" ".join(task)] = outcomes
        failed += any(not item["passed"] for item in outcomes)
        show_progress(done, len(tasks), failed, task[0], begin)
        if done % 20 == 0 or done == len(tasks):
            options.results.write_text(json.dumps(kept))
    return print_summary({task: kept[" ".join(task)] for task in tasks if " ".join(task) in kept})


def print_summary(found: dict[tuple[str, ...], list[Any]]) -> int:
    """Print the table by family; return 1 if a call is wrong and no gap says why."""
    counts: dict[str, Counter[str]] = {}
    refusals: Counter[str] = Counter()
    wrong: list[tuple[str, ...]] = []
    for outcomes in found.values():
        for item in outcomes:
            op = REGISTRY.get(item.get("op", ""))
            family = op.module if op is not None else "no op of smelt's"
            if not item["passed"] and not item.get("modes"):  # the process ended
                wrong.append(("", "", item["why"]))
            for mode, text in item.get("modes", {}).items():
                word, _, why = text.partition(": ")
                if word == "wrong" and reason(item["op"], mode, item["call"]):
                    word = "listed"
                counts.setdefault(family, Counter())[f"{mode} {word}"] += 1
                if word == "refused":
                    refusals[f"{item['op']} {mode}: {why}"] += 1
                elif word == "wrong":
                    wrong.append((item["call"], mode, why))
    words = ("same", "refused", "wrong", "listed")
    rows = [("family", *(f"{mode} {word}" if word == "same" else word for mode in MODES for word in words))]
    counts["all"] = sum(counts.values(), Counter())
    for family, numbers in counts.items():
        rows.append((family, *(str(numbers[f"{mode} {word}"] or "-") for mode in MODES for word in words)))
    print(heading("calls of aten ops, by the family of smelt's op"))
    print(table(rows, right=range(1, len(rows[0]))))
    if refusals:
        print(heading("\nrefused"))
        print(table([(str(count), text[:160]) for text, count in refusals.most_common(400)], right=(0,)))
    if wrong:
        print(heading("\nwrong"))
        print(table([(mode, call[:150], why[:200]) for call, mode, why in wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
