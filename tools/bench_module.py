"""`smelt bench FILE.py:FUNCTION`: a PyTorch module with smelt's back end, in eager and with Inductor.

Every setting runs in a process of its own (workloads/module.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from .bench_report import TimesTable, show_rest
from .bench_setup import (
    TUNED,
    busy_processors,
    check_known,
    check_writable,
    chosen_settings,
    describe_machine,
    is_installed,
    show_machine,
    split_words,
    verdict,
    warn_if_busy,
    write_json,
)
from .program import split_name
from .terminal import UsageError, UserError, heading, progress, table, time_text

CONTENDERS = ("smelt", "eager", "inductor")
PARTS = {"dynamo": "Dynamo", "aot": "AOTAutograd", "compile": "its own"}
PROCESSES = 2  # that find the code on disk: the fastest counts
UNUSED = {"only": None, "group": None, "list": False, "calls": False, "plot": None, "size": "large"}


def run_module(options: Namespace) -> int:
    for name, default in UNUSED.items():
        if getattr(options, name) != default:
            raise UsageError(f"--{name} is for the suite of workloads, not for a module")
    if not is_installed("torch"):
        raise UserError('a module needs PyTorch: pip install "smelt[torch]"')
    if options.optimizer is not None and not options.train:
        raise UsageError("--optimizer is a part of a training step: --train")
    contenders = chosen(options.contenders)
    split_name(options.module)
    check_writable(options.json)
    settings = chosen_settings(options)
    machine = describe_machine(contenders)
    show_machine(machine)
    records: list[dict[str, Any]] = []
    name = f"{options.module} {'training step' if options.train else 'forward'}"
    if options.optimizer is not None:
        name += f" with {options.optimizer}"
    for setting in settings:
        text = f"{setting.threads} thread{'s' * (setting.threads != 1)}, {setting.malloc} malloc"
        request = {
            "module": options.module,
            "train": options.train,
            "optimizer": options.optimizer,
            "threads": setting.threads,
            "contenders": contenders,
            "repeat": options.repeat,
            "seconds": options.seconds,
            "cache": None,
        }
        with progress(f"measuring {name}, {text}"):
            found = measured(setting, request)
            if options.compile and "smelt" in contenders:
                found["smelt"] |= from_disk(setting, request)
        print(heading(f"\n{text}"))
        times = TimesTable([name], contenders)
        record = {
            "workload": name,
            "group": "modules",
            "setting": text,
            "threads": setting.threads,
            "malloc": setting.malloc,
            "contenders": found,
        }
        times.add(record)
        show_rest([record], contenders, False, options.memory)
        if options.compile:
            show_first_calls(found)
        records.append(record)
    machine["busy_afterwards"] = busy_processors()
    warn_if_busy(machine["busy_afterwards"])
    if options.json:
        write_json(options.json, {"machine": machine, "startups": [], "results": records})
    return verdict(records)


def chosen(text: str | None) -> list[str]:
    if text is None:
        return list(CONTENDERS)
    names = split_words(text)
    check_known("contender", names, CONTENDERS)
    if not names:
        raise UsageError("--contenders names no contender")
    return [name for name in CONTENDERS if name in names]


def measured(setting: Any, request: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", f"{__package__}.workloads.module"]
    if setting.malloc == "tuned":
        command = ["env", *TUNED, *command]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing on standard error"])[-1]
        raise UserError(f"{request['module']}: the process that measures ended with code {done.returncode}: {last}")
    found = json.loads(done.stdout.splitlines()[-1])
    if "refused" in found:
        raise UserError(found["refused"])
    return found


def from_disk(setting: Any, request: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of smelt in the first call of a new process, with the code in the disk cache."""
    with tempfile.TemporaryDirectory() as folder:
        only = {**request, "contenders": ["smelt"], "repeat": 0, "cache": os.path.join(folder, "code")}
        found = [measured(setting, only)["smelt"] for _ in range(1 + PROCESSES)]
    own = [item["compile"] for item in found[1:] if "compile" in item]
    return {"hit": min(own)} if own else {}


def show_first_calls(found: dict[str, Any]) -> None:
    rows: list[Sequence[str]] = [("", "first call", *PARTS.values())]
    for name, item in found.items():
        if "compile" in item:
            parts = [time_text(item[part]) for part in PARTS]
            rows.append((name, time_text(item["first_call"]), *parts))
    print(heading("\nfirst call, with compilation: nothing cached, all libraries loaded"))
    print(table(rows, right=range(1, 5)))
    if "hit" in found.get("smelt", {}):
        print(
            f"  smelt's own part with the code in the disk cache, in a new process: {time_text(found['smelt']['hit'])}"
        )
