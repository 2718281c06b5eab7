"""Hash smelt's own source files as a part of every cache key: code of another smelt is never used.

The version number is not enough: in a checkout the files change without it. So the key has a hash of their contents,
which is the same for the same smelt on another machine. Reading all files takes a fifth of the time of a cache hit, so
the hash is kept in a fact file, with the files' stats as its facts: writing a file changes its stat, and the files are
read again.

A process that continues after an edit may have imported some files before and some after it: code that it compiles from
then on has no key.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

from .fact_file import remember, remembered

LOADED = time.time()  # `import smelt` loads this module
PARTS = ("kernels", "passes", "backend")
NOT_COMPILING = ("tools", "torch", "__pycache__")
SETTLED_SECONDS = 2  # seconds; a file written more recently could be written again without a change of its times

SourceFile = tuple[str, str, os.stat_result]


@lru_cache
def fingerprint(folder: str | None) -> str | None:
    """Hash the files that determine generated code; None if they changed since they were imported.

    folder: directory of the fact file.
    """
    try:
        files = _files()
        if not files or not is_unchanged(files):
            return None
        facts = _facts(files) if folder is not None else None
        if folder is None or facts is None:
            return _hash(files)
        name = f"sources-{sha256(__file__.encode()).hexdigest()[:16]}"
        found = remembered(folder, name, facts)
        if found is None:
            found = _hash(files)
            remember(folder, name, facts, found)
        return found
    except OSError:
        return None


def _hash(files: Sequence[SourceFile]) -> str:
    total = sha256()
    for name, path, _ in files:
        total.update(f"\n{name}\n".encode())
        with open(path, "rb", buffering=0) as file:
            total.update(file.read())
    return total.hexdigest()


def _facts(files: Sequence[SourceFile]) -> str | None:
    """Make a text that changes with the content of any file; None where there is none.

    It has the files' ctime, which no program can set. Windows has none, and in a reproducible file system image all
    files have the same one, in whole seconds.
    """
    settled = int((time.time() - SETTLED_SECONDS) * 1e9)
    lines: list[str] = []
    for name, _, facts in files:
        changed = facts.st_ctime_ns
        if os.name != "posix" or changed > settled or facts.st_mtime_ns > settled or not changed % 1_000_000_000:
            return None
        lines.append(f"{name} {facts.st_size} {facts.st_mtime_ns} {changed} {facts.st_ino} {facts.st_dev}")
    return sha256("\n".join(lines).encode()).hexdigest()


def is_unchanged(files: Sequence[SourceFile] | None = None) -> bool:
    """Whether no file was written since smelt was imported."""
    try:
        found = _files() if files is None else files
        return max(max(facts.st_mtime, facts.st_ctime) for _, _, facts in found) <= LOADED
    except (OSError, ValueError):
        return False


def _files() -> list[SourceFile]:
    """List name, path and stat of each file. The parts are beside the package in a checkout, in it when installed."""
    package = sys.modules[__package__.partition(".")[0]]
    backend = sys.modules[f"{package.__name__}.backend"]
    parts = os.path.dirname(next(iter(backend.__path__)))
    pending = [("", next(iter(package.__path__))), *((part, os.path.join(parts, part)) for part in PARTS)]
    found: list[SourceFile] = []
    while pending:
        name, folder = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                file = entry.name
                if file.endswith(".py"):
                    found.append((f"{name}/{file}", entry.path, entry.stat()))
                elif entry.is_dir() and file not in NOT_COMPILING and (name or file not in PARTS):
                    pending.append((f"{name}/{file}", entry.path))
    found.sort()
    return found
