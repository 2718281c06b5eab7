"""`make parity-torch`: every sample of the databases with smelt and with aot_eager, and what came of it as a table."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from smelt.tools.terminal import fail
from workers import run, show_progress

from .check import answer
from .summary import print_summary, worse

BACKENDS = ("smelt", "aot_eager")


def main() -> int:
    parser = argparse.ArgumentParser(prog="parity_torch", description=__doc__)
    parser.add_argument("--only", default="*", help="names or patterns of ops and modules, with commas between them")
    parser.add_argument("--samples", type=int, default=3, help="samples of each op or module (3)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--part", default="1/1", help="one part of all: 2/5 is the second fifth")
    parser.add_argument("--baseline", choices=("all", "none"), default="all", help="what is run with aot_eager (all)")
    parser.add_argument("--results", type=Path, default=Path("build/parity-torch.json"), help="where results are kept")
    parser.add_argument("--failed", action="store_true", help="only what failed in those results")
    parser.add_argument("--show", action="store_true", help="run nothing, show the results")
    options = parser.parse_args()

    kept: dict[str, dict[str, list[Any]]] = {item: {} for item in BACKENDS}
    if options.results.exists():
        kept = json.loads(options.results.read_text())
    from .cases import subjects

    names = [name for name in subjects() if any(fnmatch.fnmatch(name, item) for item in options.only.split(","))]
    part, parts = map(int, options.part.split("/"))
    names = names[part - 1 :: parts]
    if options.failed:
        names = [name for name in names if any(not item["passed"] for item in kept["smelt"].get(name, ()))]
    if not names:
        fail("nothing has such a name")
        return 1
    tasks = [("smelt", name) for name in names]
    if options.baseline == "all":
        # What aot_eager does is PyTorch's business: it is run once.
        tasks += [("aot_eager", name) for name in names if _is_stale(kept["aot_eager"].get(name), options.samples)]
    tasks = [] if options.show else tasks
    begin, failed = time.monotonic(), 0
    options.results.parent.mkdir(parents=True, exist_ok=True)
    samples = options.samples
    found = run(tasks, partial(answer, samples=samples), most=samples, workers=options.workers)
    for done, ((backend, name), outcomes) in enumerate(found, 1):
        kept[backend][name] = outcomes
        failed += any(not item["passed"] for item in outcomes)
        show_progress(done, len(tasks), failed, name, begin)
        if done % 20 == 0 or done == len(tasks):
            options.results.write_text(json.dumps(kept))
    chosen = {backend: {name: found[name] for name in names if name in found} for backend, found in kept.items()}
    print_summary(chosen, {name: item.family for name, item in subjects().items()})
    return 1 if worse(chosen) else 0


def _is_stale(outcomes: list[Any] | None, samples: int) -> bool:
    return outcomes is None or len(outcomes) < samples


if __name__ == "__main__":
    sys.exit(main())
