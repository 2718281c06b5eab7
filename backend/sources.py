"""smelt's own source files as part of every cache key: code that an older smelt made is never taken for today's.

The version number alone would not do: in a checkout the files change without it. So the key has a hash of their
contents (a millisecond or two, once in a process), which is also the same for the same smelt on another machine.

A process that goes on after its files were edited has loaded some of them before and some after: what it compiles
from then on belongs to no key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import import_module

LOADED = time.time()  # `import smelt` loads this module
PARTS = ("kernels", "passes", "backend")
NOT_COMPILING = ("tools", "__pycache__")

SourceFile = tuple[str, str, os.stat_result]


@lru_cache
def fingerprint() -> str | None:
    """A hash of the files that decide what code comes out; None if they are not those that were loaded."""
    import hashlib

    total = hashlib.sha256()
    try:
        files = sorted(_files(), key=lambda item: item[0])
        for name, path, _ in files:
            total.update(f"\n{name}\n".encode())
            with open(path, "rb", buffering=0) as file:
                total.update(file.read())
    except OSError:
        return None
    return total.hexdigest() if files and is_unchanged(files) else None


def is_unchanged(files: Iterable[SourceFile] | None = None) -> bool:
    """Whether no file was written since smelt was imported."""
    try:
        found = _files() if files is None else files
        return all(facts.st_mtime <= LOADED and facts.st_ctime <= LOADED for _, _, facts in found)
    except OSError:
        return False


def _files() -> Iterator[SourceFile]:
    """Name, path and facts of each file. In a checkout the parts lie beside the package, installed inside of it."""
    root = __package__.partition(".")[0]
    for part in ("", *PARTS):
        package = import_module(f"{root}.{part}".rstrip("."))
        pending = [(part, next(iter(package.__path__)))]
        while pending:
            name, folder = pending.pop()
            with os.scandir(folder) as entries:
                for entry in entries:
                    inner = f"{name}/{entry.name}"
                    if entry.name.endswith(".py"):
                        yield inner, entry.path, entry.stat()
                    elif entry.is_dir() and entry.name not in NOT_COMPILING and inner.strip("/") not in PARTS:
                        pending.append((inner, entry.path))
