"""The conditions of `smelt bench`: settings, the machine and its load; and the verdict."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.errors import suggest
from .doctor import cpu_name
from .terminal import FINE, WRONG_INPUT, UsageError, UserError, fail, paint
from .workloads.contenders import CONTENDERS
from .workloads.define import SIZES

# By default glibc unmaps large blocks when they are freed, and each new block faults in zeroed pages. With these
# settings it keeps them.
TUNED = (
    "MALLOC_MMAP_THRESHOLD_=4294967296",
    "MALLOC_TRIM_THRESHOLD_=8589934592",
    "MALLOC_TOP_PAD_=268435456",
)
MALLOCS = {"default": ("default",), "tuned": ("tuned",), "both": ("default", "tuned")}


@dataclass(frozen=True)
class Setting:
    """The conditions under which one process measures."""

    size: str
    threads: int
    malloc: str

    def __str__(self) -> str:
        return f"{self.size}, {self.threads} thread{'s' * (self.threads != 1)}, {self.malloc} malloc"


def processors() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def split_words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def check_known(what: str, words: Sequence[str], known: Sequence[str]) -> None:
    for word in words:
        if word not in known:
            raise UsageError(f"unknown {what} {word!r}{suggest(word, known)}; there are {', '.join(known)}")


def chosen_settings(options: Namespace) -> list[Setting]:
    sizes = split_words(options.size)
    check_known("size", sizes, SIZES)
    threads = []
    for word in split_words(options.threads):
        if not word.isdigit() or not 1 <= int(word) <= len(processors()):
            raise UsageError(f"--threads: expected numbers from 1 to {len(processors())}, got {word!r}")
        threads.append(int(word))
    if not sizes or not threads:
        raise UsageError("--size and --threads need at least one word each")
    mallocs = MALLOCS[options.malloc]
    if "tuned" in mallocs and (platform.libc_ver()[0] != "glibc" or shutil.which("env") is None):
        raise UserError("--malloc tuned sets glibc's allocator, which this Python does not use")
    return [Setting(size, number, malloc) for size in sizes for number in threads for malloc in mallocs]


def check_writable(path: str | None) -> None:
    """Raise before the measurements if a file cannot be written after them."""
    if path is not None:
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise UserError(f"{path}: cannot write to {folder}")


def is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def describe_machine(contenders: Sequence[str]) -> dict[str, Any]:
    modules = dict.fromkeys(CONTENDERS[name] for name in contenders)
    return {
        "cpu": cpu_name(),
        "processors": len(processors()),
        "platform": f"{platform.system()} {platform.release()} on {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in modules},
        "busy": busy_processors(),
    }


def busy_processors(seconds: float = 0.3) -> float | None:
    """Return the number of processors busy with other programs; None where the system does not tell."""

    def idle_ticks() -> int:
        with open("/proc/stat") as file:
            idle, waiting = file.readline().split()[4:6]
        return int(idle) + int(waiting)

    try:
        before = idle_ticks()
        time.sleep(seconds)
        idle = (idle_ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds
    except (OSError, ValueError):
        return None
    return max((os.cpu_count() or 1) - idle, 0.0)


def show_machine(machine: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    print(f"{machine['cpu']}, {machine['processors']} processors; Python {machine['python']}, {versions}")
    warn_if_busy(machine["busy"])


def warn_if_busy(busy: float | None) -> None:
    if busy is not None and busy > 0.3:
        text = f"other programs keep {busy:.1f} processors busy: these numbers are worth little"
        print(paint(text, "yellow"), file=sys.stderr)


def write_json(path: str, content: dict[str, Any]) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def verdict(records: Sequence[dict[str, Any]]) -> int:
    """Return the exit code: 1 if results differ, or smelt failed."""
    differing = [
        f"{record['workload']} ({name}; {record['setting']})"
        for record in records
        for name, found in record["contenders"].items()
        if found.get("agrees") is False or (name == "smelt" and "error" in found)
    ]
    if differing:
        fail(f"results differ or are missing: {', '.join(differing)}")
        return WRONG_INPUT
    return FINE
