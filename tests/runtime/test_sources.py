"""smelt's own sources as a part of the cache's key."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from smelt.backend.store import sources


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """smelt as it is installed: all parts inside of one package."""
    root = Path(__file__).resolve().parents[2]
    place = tmp_path / "site"
    copy(root / "frontend", place / "smelt")
    for part in ("kernels", "passes", "backend"):
        copy(root / part, place / "smelt" / part)
    return place


def fingerprint_of(place: Path, memory: Path | None = None) -> list[str]:
    """Whether a process that looks for smelt there finds it there, and the hash of its files."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import smelt; from smelt.backend.store import sources;"
        "sources.SETTLED_SECONDS = 0;"
        "print(smelt.__file__.startswith(sys.argv[1]), sources.fingerprint(sys.argv[2] or None))"
    )
    command = [sys.executable, "-c", script, str(place), str(memory or "")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_the_fingerprint_is_that_of_the_sources(tmp_path: Path, installed: Path) -> None:
    """A changed file changes it, another place does not."""
    here = fingerprint_of(tmp_path)
    assert fingerprint_of(installed) == ["True", here[1]] and here[0] == "False"
    with open(installed / "smelt" / "passes" / "fusion" / "fuse.py", "a") as file:
        file.write("# another smelt\n")
    assert fingerprint_of(installed)[1] != here[1]


@pytest.mark.skipif(os.name != "posix", reason="no time of a file's last change")
def test_the_fingerprint_is_remembered_as_long_as_it_is_true(tmp_path: Path, installed: Path) -> None:
    memory = tmp_path / "memory"
    assert fingerprint_of(installed, memory)[1] == fingerprint_of(installed)[1], "no folder is made"
    assert not memory.exists()
    memory.mkdir()
    true = fingerprint_of(installed, memory)[1]
    (file,) = memory.iterdir()
    false = "0" * len(true)
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in (true, false)]
    file.write_text(file.read_text().replace(true, false).replace(*hashes))
    assert fingerprint_of(installed, memory)[1] == false, "the files were not read again"
    # A change that leaves the size and the time of the content as they were.
    source = installed / "smelt" / "passes" / "fusion" / "fuse.py"
    before = source.stat()
    source.write_bytes(source.read_bytes().replace(b"def fuse(", b"def fus3("))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size and source.stat().st_mtime_ns == before.st_mtime_ns
    changed = fingerprint_of(installed, memory)[1]
    assert changed not in (true, false) and changed == fingerprint_of(installed)[1]
    for damage in ("", "nonsense", file.read_text()[:-1]):
        file.write_text(damage)
        assert fingerprint_of(installed, memory)[1] == changed


def test_files_whose_times_say_little_are_read(tmp_path: Path) -> None:
    """Images of file systems that always come out the same have whole seconds; what was just written may change."""
    path = tmp_path / "file.py"
    path.write_text("")

    def facts(changed: int) -> Any:
        numbers = list(path.stat())
        return os.stat_result(numbers, {"st_mtime_ns": changed, "st_ctime_ns": changed})

    old = 1_600_000_000_123_456_789
    known = sources._facts([("file.py", str(path), facts(old))])
    assert (known is None) == (os.name != "posix")
    if known is not None:
        assert known != sources._facts([("file.py", str(path), facts(old + 1))])
    for changed in (1_600_000_000_000_000_000, time.time_ns()):
        assert sources._facts([("file.py", str(path), facts(changed))]) is None


def copy(source: Path, target: Path) -> None:
    for path in source.rglob("*.py"):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
