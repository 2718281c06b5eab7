"""What may stand in the place of the cache's files: nothing of it stops a program, or runs unless it is the user's own.

And many processes that miss the same entry: one compiles.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import smelt
from cached_programs import call, entry_of, fresh, state_of
from smelt.backend.cpu.host import host
from smelt.backend.store import cache, files, sources

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX's")
STRANGER = 54321  # a user


@contextmanager
def in_time(seconds: int = 60) -> Iterator[None]:
    """Fail rather than hang."""

    def late(*_: object) -> None:
        raise TimeoutError("it waits for a file")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def as_new_process(folder: Path) -> None:
    sources.fingerprint.cache_clear()
    host.cache_clear()
    fresh(folder)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    sources.fingerprint.cache_clear()
    host.cache_clear()


# ----- what is no entry


def gone(path: Path) -> None:
    pass


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s")
        os.rename("s", path.name)
    finally:
        os.chdir(here)


def directory(path: Path) -> None:
    (path / "inner").mkdir(parents=True)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def circular(path: Path) -> None:
    path.symlink_to(path.name)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("devices are root's")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def huge(path: Path) -> None:
    path.write_bytes(b"smelt-cache 0\n")
    try:
        os.truncate(path, 1 << 42)
    except OSError:
        os.truncate(path, 1 << 33)


def bottomless(path: Path) -> None:
    """A header that no stack has room for, with the right checksum."""
    body = b"[" * 300_000 + b"\n"
    path.write_bytes(b"smelt-cache " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


TROUBLES = [gone, fifo, bound, directory, dangling, circular, endless, device, empty, huge, bottomless]
PLACES = {
    "entry": lambda folder: entry_of(folder, "wave"),
    "folder": lambda folder: entry_of(folder, "wave").parent,
    "sources": lambda folder: next(folder.glob("sources-*")),
    "machine": lambda folder: next(folder.glob("machine-*")),
    "cache": lambda folder: folder,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda item: item.__name__)
def test_nothing_stops_a_program(
    folder: Path, trouble: Callable[[Path], None], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SETTLED_SECONDS", -1e6)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "usual"))
    as_new_process(folder)
    expected = call().results
    path = PLACES[place](folder)
    path.rename(path.with_name("moved"))
    trouble(path)
    with in_time(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            as_new_process(folder)
            program = call()
            assert [item.tobytes() for item in program.results] == [item.tobytes() for item in expected]
            if place == "cache" and trouble is not directory:
                cache.Cache(str(folder)).sweep()
    assert len(said) <= 2, "one warning a process at most"
    with in_time():
        assert list(cache.entries(str(folder))) is not None and cache.current().sweep() == 0


def test_no_memory_for_an_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call()

    def none(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(files.os, "read", none)
    fresh(folder)
    program = call()
    assert state_of(program) == "missed" and "no memory" in str(program.report().cache)


# ----- whose files they are


def strange(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
        return
    real, own = files.distrust, path.stat().st_ino

    def distrust(facts: os.stat_result) -> str:
        return "it belongs to another user" if facts.st_ino == own else real(facts)

    monkeypatch.setattr(files, "distrust", distrust)


@pytest.mark.parametrize("place", ["entry", "folder"])
@pytest.mark.parametrize("how", ["strange", 0o666, 0o620, 0o777])
def test_entries_of_others_are_not_run(
    folder: Path, place: str, how: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call()
    path = PLACES[place](folder)
    if isinstance(how, int):
        path.chmod(how | (0o700 if path.is_dir() else 0))
    else:
        strange(path, monkeypatch)
    fresh(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = call()
    assert state_of(program) == "missed"
    (note,) = program.report().cache.notes
    assert "belongs to another user" in note if how == "strange" else "other users can write" in note
    if place == "entry":  # it was replaced
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_uid == os.geteuid()
        fresh(folder)
        assert state_of(call()) == "hit"


def loosen(path: Path, mode: int) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "place, mode, reason",
    [
        ("cache", 0o777, "other users can write to it (mode 0777)"),
        ("cache", 0o1777, "other users can write to it (mode 1777)"),
        ("cache", 0o770, "other users can write to it (mode 0770)"),
        ("cache", None, "it belongs to another user"),
        (".", 0o777, "everyone can write to "),
        (".", 0o1777, ""),
        (".", 0o755, ""),
        ("cache", 0o755, ""),
        ("cache", 0o700, ""),
    ],
)
def test_directories_of_others_are_not_used(
    tmp_path: Path, place: str, mode: int | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / "home"
    usual.mkdir(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(usual))
    where = tmp_path / "open"
    loosen(where / place, 0o700 if mode is None else mode)
    if mode is None:
        strange(where / place, monkeypatch)
    smelt.set_cache_dir(where / "cache")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first, second = call(), call(lambda x, y: x - y)
    smelt.set_cache_dir(None)
    assert [str(item.message).count(reason) for item in said] == ([1] if reason else [])
    assert state_of(first) == state_of(second) == "missed"
    used, unused = (usual / "smelt", where / "cache") if reason else (where / "cache", usual / "smelt")
    assert len(list(cache.entries(str(used)))) == 2 and not any(cache.entries(str(unused)))


def test_baked_directories_of_others_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call()
    folder.chmod(0o777)
    smelt.set_cache_dir(None, baked=[folder])
    with pytest.warns(RuntimeWarning, match="other users can write") as said:
        assert state_of(call()) == "off"
    assert len(said) == 1
    folder.chmod(0o755)
    smelt.set_cache_dir(None, baked=[folder])
    assert state_of(call()) == "hit"


def test_no_private_directory_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = loosen(tmp_path / "wide", 0o777)
    for name in ("XDG_CACHE_HOME", "TMPDIR", "HOME"):
        monkeypatch.setenv(name, str(wide))
    monkeypatch.setattr("tempfile.tempdir", None)
    smelt.set_cache_dir(wide / "cache")
    with pytest.warns(RuntimeWarning, match="kept nowhere") as said:
        call()
        assert state_of(call()) == "off"
    assert len(said) == 1
    smelt.set_cache_dir(None)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_modes_whatever_the_umask_is(tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SETTLED_SECONDS", -1e6)
    before = os.umask(mask)
    try:
        as_new_process(tmp_path / "made" / "cache")
        call()
    finally:
        os.umask(before)
    smelt.set_cache_dir(None)
    found = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made").rglob("*") if path.is_file()}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made", *(tmp_path / "made").rglob("*/"))}
    assert found == {0o600} and folders - found == {0o700}
    assert list((tmp_path / "made" / "cache").glob("sources-*")) and list(
        (tmp_path / "made" / "cache").glob("machine-*")
    )


# ----- names of directories


def test_a_relative_directory_where_the_working_directory_is_gone(tmp_path: Path) -> None:
    code = """
import os, sys, warnings
os.makedirs("here"); os.chdir("here"); os.rmdir(os.getcwd())
import numpy as np, smelt
if len(sys.argv) > 1:
    smelt.set_cache_dir(sys.argv[1], baked=["other"])
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    program = smelt.jit(lambda x: x + 1)
    assert program(np.ones(3, np.float32))[0] == 2
print(len(said), smelt.get_cache_dir())
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "usual"), cache.VARIABLE: "relative"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    for arguments in ([], ["given"]):
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.stdout.split() == ["1", str(tmp_path / "usual" / "smelt")], done.stderr


def test_the_home_directory_by_its_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(cache.VARIABLE, os.pathsep.join(["~/x", "~/y"]))
    found = cache.from_environment()
    assert (found.directory, found.baked) == (str(tmp_path / "x"), (str(tmp_path / "y"),))
    smelt.set_cache_dir("~/z")
    assert smelt.get_cache_dir() == str(tmp_path / "z")
    smelt.set_cache_dir(None)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "\udcff"])
def test_names_that_no_directory_has(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    smelt.set_cache_dir(tmp_path / name)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(call().results[1], call().results[1])
    assert len(said) <= 1
    smelt.set_cache_dir(None)


# ----- what killed processes leave, and what several do at once


def test_files_of_killed_writers_are_removed(folder: Path) -> None:
    call()
    path = entry_of(folder, "wave")
    left = [folder / "sources-0123456789abcdef.4711", folder / "machine-0123456789abcdef.4711.tmp"]
    left += [path.with_name(f"{path.name}{suffix}") for suffix in (".1-2.tmp", ".lock")]
    for file in left:
        file.write_bytes(b"half")
    assert cache.current().sweep() == 0 and all(file.exists() for file in left), "they may still be written"
    for file in left:
        os.utime(file, (1, 1))
    kept = set(folder.iterdir()) - set(left)
    cache.current().sweep()
    assert not any(file.exists() for file in left) and path.exists() and set(folder.iterdir()) == kept


COLD = """
import sys
import numpy as np, smelt
from smelt import ops
sys.stdin.readline()
x = np.ones((8, 16), np.float32)
for number in range(2):
    program = smelt.jit(lambda x: ops.softmax(ops.sin(x) * (number + 2), 1) @ x.T)
    program(x)
    print(program.report().cache.state)
"""


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    environment = {**os.environ, cache.VARIABLE: str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", COLD]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    crowd = [subprocess.Popen(command, env=environment, **pipes) for _ in range(6)]  # type: ignore[call-overload]
    for process in crowd:
        process.stdin.write("\n")
        process.stdin.flush()
    states = [process.communicate(timeout=120)[0].split() for process in crowd]
    assert sorted(state for two in states for state in two) == ["hit"] * 10 + ["missed"] * 2
    assert not list(tmp_path.rglob("*.lock"))


def test_another_process_that_compiles_is_waited_for_but_not_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call()
    path = entry_of(folder, "wave")
    moved = path.with_name("moved")
    path.rename(moved)
    lock = files.Lock.take(f"{path}.lock")
    assert lock is not None and files.Lock.take(f"{path}.lock") is None
    fresh(folder)
    threading.Timer(0.3, lambda: moved.rename(path)).start()
    start = time.monotonic()
    assert state_of(call()) == "hit" and time.monotonic() - start > 0.25
    path.unlink()
    fresh(folder)
    monkeypatch.setattr(cache, "LIMITS", cache.LIMITS.but(patience=0.2))
    assert state_of(call()) == "missed" and path.exists(), "it never came"
    lock.release()
    assert files.Lock.take(f"{path}.lock") is not None


def test_the_lock_of_a_killed_process_is_free(folder: Path) -> None:
    call()
    path = entry_of(folder, "wave")
    take = "from smelt.backend.store.files import Lock; lock = Lock.take(sys.argv[1])"
    code = f"import sys, os; {take}; os.kill(os.getpid(), 9)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", code, f"{path}.lock"], env=environment)
    assert Path(f"{path}.lock").exists()
    path.unlink()
    fresh(folder)
    start = time.monotonic()
    assert state_of(call()) == "missed" and time.monotonic() - start < cache.LIMITS.patience / 2
    assert not Path(f"{path}.lock").exists()


def test_a_compile_that_fails_leaves_no_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from smelt.backend.cpu import build

    def fails(*arguments: object) -> None:
        raise RuntimeError("no code")

    monkeypatch.setattr(build, "build", fails)
    with pytest.raises(RuntimeError, match="no code"):
        call()
    assert not list(folder.rglob("*.lock"))


def test_entries_hold_json_and_code_only(folder: Path) -> None:
    call()
    header, code = cache.read_entry(str(entry_of(folder, "wave")))
    assert json.loads(json.dumps(header)) == header and code
