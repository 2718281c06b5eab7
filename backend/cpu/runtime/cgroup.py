"""Read the limits that Linux sets for the control groups of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator

ROOT = "/sys/fs/cgroup"
OWN = "/proc/self/cgroup"


def limits(controller: str, *names: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the files of these names, and their words, in the process's control groups and all groups around them.

    There is one tree of groups (cgroup v2), or one for each controller (v1). In a container the root may be the
    process's own group, while /proc names it as the machine sees it: paths that do not exist are skipped.
    """
    try:
        lines = [line.split(":", 2) for line in _text(OWN).splitlines()]
    except OSError:
        return
    for line in lines:
        if len(line) != 3 or (line[1] and controller not in line[1].split(",")):
            continue
        root = os.path.join(ROOT, controller) if line[1] else ROOT
        path = line[2].strip("/")
        while True:
            for name in names:
                try:
                    words = _text(os.path.join(root, path, name)).split()
                except OSError:
                    continue
                if words:
                    yield name, words
            if not path:
                break
            path = os.path.dirname(path)


def _text(path: str) -> str:
    # Unbuffered and binary: Python's buffers and decoders take longer than reading a line.
    with open(path, "rb", buffering=0) as file:
        return file.read().decode(errors="replace")
