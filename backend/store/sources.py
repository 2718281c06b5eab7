"""smelt's own source files as part of every cache key: code that an older smelt made is never taken for today's.

The version number alone would not do: in a checkout the files change without it. So the key has a hash of their
contents, which is also the same for the same smelt on another machine. To read them all is a fifth of what a hit in the
cache takes, so the hash is remembered in the cache directory, beside what the system says about the files: whoever
writes to one of them changes that, and they are read again.

A process that goes on after its files were edited has loaded some of them before and some after: what it compiles
from then on belongs to no key.
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
SETTLED_SECONDS = 2  # a file written as recently could be written again without a change of its times

SourceFile = tuple[str, str, os.stat_result]


@lru_cache
def fingerprint(folder: str | None) -> str | None:
    """A hash of the files that decide what code comes out; None if they are not those that were loaded.

    folder: where to remember it.
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
    """What is another one as soon as any file has another content; None where there is no such thing.

    That takes the time of a file's last change, which no program can set. Windows has none, and an image of a file
    system that was made to come out the same every time has the same one for all files, in whole seconds.
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
    """Name, path and facts of each file. In a checkout the parts lie beside the package, installed inside of it."""
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
