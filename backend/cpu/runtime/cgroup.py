"""What Linux lets the control groups of this process have."""

from __future__ import annotations

import os
from collections.abc import Iterator

ROOT = "/sys/fs/cgroup"
OWN = "/proc/self/cgroup"


def limits(controller: str, *names: str) -> Iterator[tuple[str, list[str]]]:
    """The files of these names, and their words, in the groups that this process is in and in all groups around them.

    There is one tree of groups (version 2), or one for each controller (version 1). In a container the root may be the
    process's own group, while /proc names it as the machine sees it: what is not there is passed over.
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
    # Without Python's buffers and decoders, which take longer than to read a line.
    with open(path, "rb", buffering=0) as file:
        return file.read().decode(errors="replace")
