"""`smelt bench`: smelt against NumPy, PyTorch, JAX and Numba, on a suite of workloads.

Every combination of size, thread count and allocator setting runs in a process of its own (workloads/measure.py),
so that no setting leaks into the next one, and a crash costs one workload.
"""

from __future__ import annotations

import fnmatch
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from typing import Any

from ..ir.errors import suggest
from .bench_module import run_module
from .bench_report import TimesTable, draw_plot, show_rest, show_summary
from .bench_setup import (
    MALLOCS,
    TUNED,
    Setting,
    busy_processors,
    check_known,
    check_writable,
    chosen_settings,
    describe_machine,
    is_installed,
    processors,
    show_machine,
    split_words,
    verdict,
    warn_if_busy,
    write_json,
)
from .calls import show_calls
from .terminal import FINE, UsageError, UserError, count, heading, paint, table
from .workloads.contenders import CONTENDERS, installed
from .workloads.define import SIZES, Workload
from .workloads.suite import all_workloads

# Optimizers of torch.optim whose step needs only gradients.
OPTIMIZERS = (
    "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"
)  # fmt: skip


def configure(parser: ArgumentParser) -> None:
    cores = len(processors())
    parser.add_argument(
        "module", nargs="?", metavar="FILE.py:FUNCTION", help="measure the PyTorch module that a function makes instead"
    )
    parser.add_argument("--train", action="store_true", help="of a module: forward and backward, not forward alone")
    parser.add_argument(
        "--optimizer", metavar="NAME", choices=OPTIMIZERS,
        help="with --train: the step of such an optimizer, too, compiled as the module is: " + ", ".join(OPTIMIZERS),
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="the workloads there are")
    parser.add_argument("--only", metavar="PATTERN", help='workloads by name: "softmax*", or several with commas')
    parser.add_argument("--group", metavar="NAMES", help="groups of workloads, with commas")
    parser.add_argument(
        "--contenders", metavar="NAMES", help=f"the contenders (default: those installed of {', '.join(CONTENDERS)})"
    )
    parser.add_argument("--size", default="large", metavar="SIZES", help=f"{', '.join(SIZES)} (default: large)")
    parser.add_argument(
        "--threads", default=str(cores), metavar="COUNTS", help=f'such as "1,2" (default: {cores}, all processors)'
    )
    parser.add_argument(
        "--malloc", choices=list(MALLOCS), default="default", help="tuned: memory is kept rather than given back"
    )
    parser.add_argument("--repeat", type=count, default=30, help="at most so many samples of each (default: 30)")
    parser.add_argument(
        "--seconds", type=duration, default=2.0, help="to spend on the samples of a workload (default: 2)"
    )
    parser.add_argument(
        "--compile", action="store_true", help="show the times of compiling, too, with nothing cached on disk"
    )
    parser.add_argument("--memory", action="store_true", help="show the memory that calls take, too")
    parser.add_argument("--calls", action="store_true", help="only show what a call of smelt costs, by parts")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured to a file")
    parser.add_argument("--plot", metavar="FILE", help="draw the ratios into a file (.png, .svg, .pdf)")


def duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise ArgumentTypeError(f"expected seconds, got {text!r}")
    return seconds


def run(options: Namespace) -> int:
    if options.module is not None:
        return run_module(options)
    if options.train:
        raise UsageError("--train needs a module: smelt bench FILE.py:FUNCTION --train")
    if options.optimizer:
        raise UsageError("--optimizer needs a module: smelt bench FILE.py:FUNCTION --train --optimizer AdamW")
    if options.calls:
        show_machine(describe_machine(["smelt"]))
        show_calls()
        return FINE
    workloads = chosen_workloads(options)
    if options.list:
        rows = [(item.name, item.group, item.dtype, str(item.sizes["large"]), item.summary) for item in workloads]
        print(table([("workload", "group", "type", "large", ""), *rows]))
        return FINE
    contenders = chosen_contenders(options.contenders)
    settings = chosen_settings(options)
    for path in (options.json, options.plot):
        check_writable(path)
    if options.plot and not is_installed("matplotlib"):
        raise UserError('--plot needs matplotlib: pip install "smelt[bench]"')

    machine = describe_machine(contenders)
    show_machine(machine)
    records: list[dict[str, Any]] = []
    startups: list[dict[str, Any]] = []
    for setting in settings:
        request = {
            "size": setting.size,
            "threads": setting.threads,
            "contenders": contenders,
            "compile": options.compile,
            "startup": options.compile,
            "repeat": options.repeat,
            "seconds": options.seconds,
        }
        print(heading(f"\n{setting}"))
        times = TimesTable([item.name for item in workloads], contenders)
        found = []
        for item, result in measure_all(workloads, setting, request, startups):
            found.append(measured(item, setting, result))
            times.add(found[-1])
        show_rest(found, contenders, options.compile, options.memory)
        records += found
    show_summary(records, [str(setting) for setting in settings], startups)
    machine["busy_afterwards"] = busy_processors()
    warn_if_busy(machine["busy_afterwards"])
    if options.json:
        write_json(options.json, {"machine": machine, "startups": startups, "results": records})
    if options.plot:
        draw_plot(options.plot, records, [str(setting) for setting in settings])
    return verdict(records)


# ----- the request


def chosen_workloads(options: Namespace) -> list[Workload]:
    found = list(all_workloads().values())
    if options.group:
        groups = split_words(options.group)
        check_known("group", groups, list(dict.fromkeys(item.group for item in found)))
        found = [item for item in found if item.group in groups]
    if options.only:
        patterns = split_words(options.only)
        names = [item.name for item in found]
        for pattern in patterns:
            if not fnmatch.filter(names, pattern):
                raise UsageError(f"no workload {pattern!r}{suggest(pattern, names)}; smelt bench --list shows them")
        found = [item for item in found if any(fnmatch.fnmatchcase(item.name, pattern) for pattern in patterns)]
    return found


def chosen_contenders(text: str | None) -> list[str]:
    present = installed()
    if text is None:
        return present
    names = split_words(text)
    check_known("contender", names, list(CONTENDERS))
    for name in names:
        if name not in present:
            raise UserError(f'{name} needs {CONTENDERS[name]}, which is not installed: pip install "smelt[bench]"')
    if not names:
        raise UsageError("--contenders names no contender")
    return [name for name in CONTENDERS if name in names]


# ----- the measuring processes


def measure_all(
    workloads: Sequence[Workload], setting: Setting, request: dict[str, Any], startups: list[dict[str, Any]]
) -> Iterator[tuple[Workload, dict[str, Any]]]:
    """Yield each workload with its results; after a crash, a new process continues with the next workload."""
    by_name = {item.name: item for item in workloads}
    waiting = list(by_name)
    progress = Progress(str(setting), len(waiting))
    while waiting:
        current, doing = waiting[0], "starting"
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            process = start(setting, {**request, "workloads": waiting}, errors)
            assert process.stdout is not None
            with process:
                try:
                    for line in process.stdout:
                        event = json.loads(line)
                        if event["event"] == "startup":
                            startups.append({"setting": str(setting), **event})
                            continue
                        current, doing = event["workload"], event.get("contender", event["event"])
                        progress.show(current, doing, len(by_name) - len(waiting))
                        if event["event"] == "end":
                            waiting.remove(current)
                            progress.clear()
                            yield by_name[current], event["contenders"]
                except BaseException:
                    process.kill()
                    raise
            if process.returncode:
                errors.seek(0)
                last = (errors.read().strip().splitlines() or ["nothing on standard error"])[-1]
                message = f"the process ended with code {process.returncode} ({doing}): {last}"
                if doing == "starting":
                    raise UserError(message)
                waiting.remove(current)
                # During the interleaved timing the culprit is unknown.
                guilty = [doing] if doing in CONTENDERS else request["contenders"]
                progress.clear()
                yield by_name[current], {name: {"error": message} for name in guilty}
        request = {**request, "startup": False}


def start(setting: Setting, request: dict[str, Any], errors: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"{__package__}.workloads.measure"]
    if setting.malloc == "tuned":
        command = ["env", *TUNED, *command]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(request))
    process.stdin.close()
    return process


class Progress:
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, what: str, total: int):
        self.what = what
        self.total = total
        self.begin = time.monotonic()
        self.shown = sys.stderr.isatty()

    def show(self, name: str, doing: str, done: int) -> None:
        if not self.shown:
            return
        width = 24
        full = width * done // max(self.total, 1)
        bar = paint("#" * full, "green", sys.stderr) + "." * (width - full)
        seconds = time.monotonic() - self.begin
        line = f"\r\x1b[K[{bar}] {done}/{self.total} {self.what}  {seconds:.0f} s  {name}: {doing}"
        sys.stderr.write(line[: shutil.get_terminal_size().columns + 20])
        sys.stderr.flush()

    def clear(self) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def measured(workload: Workload, setting: Setting, contenders: dict[str, Any]) -> dict[str, Any]:
    """One row of the results."""
    return {
        "workload": workload.name,
        "group": workload.group,
        "dtype": workload.dtype,
        "setting": str(setting),
        "size": setting.size,
        "sizes": list(workload.sizes[setting.size]),
        "threads": setting.threads,
        "malloc": setting.malloc,
        "contenders": contenders,
    }
