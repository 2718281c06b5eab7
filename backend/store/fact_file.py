"""Fact files: answers that take long to compute and seldom change, in small files of the cache directory.

A file has the facts for which its answer holds: with other facts it counts as missing. Where the directory is not
writable, every process computes the answers anew.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256

from .files import read_file, write_file
from .limits import LIMITS


def remembered(folder: str, name: str, facts: str) -> str | None:
    try:
        content = read_file(os.path.join(folder, name), LIMITS.facts)
    except OSError:
        return None
    check, _, found = content.decode("utf-8", "replace").partition("\n")
    return found if check == _check(facts, found) else None


def remember(folder: str, name: str, facts: str, found: str) -> None:
    with suppress(OSError):
        write_file(os.path.join(folder, name), f"{_check(facts, found)}\n{found}".encode())


def _check(facts: str, found: str) -> str:
    return " ".join(sha256(text.encode()).hexdigest() for text in (facts, found))
