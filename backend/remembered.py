"""What takes long to find out and seldom changes, in small files of the cache directory.

A file has the facts that its content is true for: whoever finds others there finds nothing. Where a directory
cannot be written, everything is found out anew in every process.
"""

from __future__ import annotations

import os
from hashlib import sha256


def remembered(folder: str, name: str, facts: str) -> str | None:
    try:
        with open(os.path.join(folder, name), "rb", buffering=0) as file:
            check, _, found = file.read().decode("utf-8", "replace").partition("\n")
    except OSError:
        return None
    return found if check == _check(facts, found) else None


def remember(folder: str, name: str, facts: str, found: str) -> None:
    path = os.path.join(folder, name)
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb", buffering=0) as file:
            file.write(f"{_check(facts, found)}\n{found}".encode())
        os.replace(temporary, path)
    except OSError:
        pass


def _check(facts: str, found: str) -> str:
    return " ".join(sha256(text.encode()).hexdigest() for text in (facts, found))
