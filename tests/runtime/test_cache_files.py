"""The files of the disk cache: damaged ones, places, sizes, many processes. No trouble with them reaches the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from cached_programs import PROGRAM, call, entry_of, files, flip, fresh, run, state_of
from smelt.backend.store import cache

# ----- files that are not what they should be


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + b"\n\0" * 50)


def senseless(path: Path) -> None:
    """A whole entry of the right key, of which nothing can be made."""
    header = cache.read_header(str(path))
    assert header is not None
    key = cache.Key(header["title"], header["program"], header["fields"])
    cache.write_entry(str(path), key, {"stored": "nonsense"}, b"")


def swapped(path: Path) -> None:
    """The entry of another program under this name."""
    key = cache.Key("other", "0" * 64, {})
    cache.write_entry(str(path), key, {}, b"code")


@pytest.mark.parametrize("damage", [cut, empty, flip, foreign, senseless, swapped], ids=lambda item: item.__name__)
def test_damaged_entries_are_ignored_noted_and_replaced(folder: Path, damage: Any) -> None:
    expected = call().results
    path = entry_of(folder, "wave")
    good = path.read_bytes()
    damage(path)
    fresh(folder)
    program = call()
    found = program.report().cache
    assert found.state == "missed"
    (note,) = found.notes
    assert note.startswith(f"{path} ignored: ") and note in str(program.report())
    np.testing.assert_array_equal(program.results[0], expected[0])
    assert path.read_bytes() == good
    fresh(folder)
    assert state_of(call()) == "hit"


@pytest.mark.parametrize(
    "header", ['{"title": 1, "program": 2, "fields": [3]}', '{"title": "", "program": "", "fields": 4}', "[" * 200_000]
)
def test_what_cannot_be_understood_does_not_explain_a_miss(folder: Path, header: str) -> None:
    """Nor does it stop a program: the other entries of one that is missing are read to say what differs."""
    call()
    path = entry_of(folder, "wave")
    path.rename(path.with_name(f"{path.name[:40]}.smelt"))
    path.with_name(f"{path.name[:40]}.smelt").write_text(f"smelt-cache 0\n{header}\n")
    fresh(folder)
    assert call().report().cache.detail == "program: it was not compiled before"


def test_a_directory_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    smelt.set_cache_dir(tmp_path / "file" / "cache")
    try:
        with pytest.warns(RuntimeWarning, match="cannot keep compiled code") as caught:
            first = call()
            call(lambda x, y: x - y)
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = call()
        assert "memory" in again.report().cache.detail
        np.testing.assert_array_equal(first.results[0], again.results[0])
    finally:
        smelt.set_cache_dir(None)


def test_no_room_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        call()
    assert files(folder) == []


def test_the_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.default_directory() == str(tmp_path / ".cache" / "smelt")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.default_directory() == str(tmp_path / ".cache" / "smelt")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache.default_directory() == "/xdg/smelt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.default_directory() == str(tmp_path / "Library" / "Caches" / "smelt")
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    assert cache.default_directory() is None


def test_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def directories(text: str) -> tuple[str | None, tuple[str, ...]]:
        monkeypatch.setenv(cache.VARIABLE, text)
        found = cache.from_environment()
        return found.directory, found.baked

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert directories("") == ("/xdg/smelt", ())
    assert directories("off") == (None, ())
    assert directories(os.pathsep.join(["/a", "/b", "", "/c"])) == ("/a", ("/b", "/c"))
    assert directories(f"off{os.pathsep}/b") == (None, ("/b",))
    assert directories(f"{os.pathsep}/b") == ("/xdg/smelt", ("/b",))


def test_no_home_at_all(tmp_path: Path) -> None:
    home = tmp_path / "missing"
    done = run(PROGRAM, environment={"HOME": str(home)}, cwd=tmp_path)
    assert json.loads(done.stdout)["state"] == "off"
    assert done.stderr.count("RuntimeWarning") == 1 and "no home directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_wrong_limits() -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        smelt.set_cache_dir("/tmp", limit=-1)


# ----- directories that are only read


def test_baked_directories_are_read_and_left_alone(folder: Path, tmp_path: Path) -> None:
    call()
    before = {path: path.stat().st_mtime_ns for path in files(folder)}
    other = tmp_path / "other"
    for place in (None, other):
        smelt.set_cache_dir(place, baked=[folder])
        assert call().report().cache.detail == str(entry_of(folder, "wave"))
    call(lambda x, y: x - y)
    assert [cache.read_header(str(path))["title"][:6] for path in files(other)] == ["lambda"]  # type: ignore[index]
    smelt.set_cache_dir(None, baked=[folder])
    assert state_of(call(lambda x, y: x - y * 2)) == "missed"
    assert {path: path.stat().st_mtime_ns for path in files(folder)} == before


# ----- size


def test_what_was_not_used_for_longest_goes_first(folder: Path) -> None:
    store = cache.Cache(str(folder), limit=12_000)
    # Names for which storing does not look at the size.
    keys = [cache.Key(f"f{number}", f"{number:02x}{'f' * 62}", {}) for number in range(11)]
    for number, key in enumerate(keys[:8]):
        store.store(key, {}, bytes(1000))
        past = time.time() - 10_000 * (number + 1)
        os.utime(str(store.path(key)), (past, past))
    assert store.sweep() == 0
    assert store.find(keys[7], lambda about, code: len(code))[0] == 1000  # the oldest, used again just now
    for key in keys[8:]:
        store.store(key, {}, bytes(1000))
    abandoned = Path(str(store.path(keys[0]))).with_suffix(".1-1.tmp")
    abandoned.write_bytes(b"half")
    os.utime(abandoned, (1, 1))
    assert store.sweep() > 0
    left = {entry.name[:2] for entry in cache.entries(str(folder))}
    assert sum(entry.size for entry in cache.entries(str(folder))) <= 10_800
    assert "07" in left and "00" in left and "06" not in left
    assert not abandoned.exists()


def test_storing_keeps_the_limit(folder: Path) -> None:
    store = cache.Cache(str(folder), limit=50_000)
    for number in range(300):
        digits = f"{number * 2654435761 % 2**32:08x}"
        store.store(cache.Key("f", digits * 8, {}), {}, bytes(1000))
    total = sum(entry.size for entry in cache.entries(str(folder)))
    assert total <= 50_000 + 2 * cache.LIMITS.sweep * 1200


# ----- many processes

CROWD = """
import sys
import numpy as np
import smelt
x = np.arange(12, dtype="float32")
for number in range(8):
    assert smelt.jit(lambda x: x * number + 1)(x)[1] == number + 1
"""


def test_many_processes_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, cache.VARIABLE: str(tmp_path)}
    crowd = [subprocess.Popen([sys.executable, "-W", "error", "-c", CROWD], env=environment) for _ in range(4)]
    assert [process.wait() for process in crowd] == [0] * 4
    found = [path for path in files(tmp_path) if path.suffix == cache.SUFFIX]
    assert len(found) == 9  # and the run time
    for path in found:
        cache.read_entry(str(path))
