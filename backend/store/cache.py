"""The disk cache: compiled code for later processes, one file per entry.

An entry's name is its key: a hash of the program's text, and a hash of all else that determines the code (options,
instruction set, versions, smelt's own sources). So entries are never out of date, and there is no invalidation. Names
of entries of the same program have the same prefix: a miss can report which field of the key differs.

A file is a line with its checksum, a line of JSON (the key's fields and the caller's data beside the code), and the
machine code. It is written under a temporary name and then renamed: no process ever reads half an entry. Damaged files
are ignored, noted, and written anew. Of processes that miss the same entry at the same time one compiles, and the
others wait for it.

No file error ever reaches the user's program: without a writable directory, entries live as long as the process, and
one warning says so. A directory or file that another user can write is not used (files.py).

This module is imported in every process that compiles or hits: it has plain classes, since defining one dataclass takes
as long as reading an entry.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ...ir.process import process
from .files import (
    LOCK,
    TEMPORARY,
    Lock,
    check_directory,
    check_folder,
    make_folder,
    open_file,
    read_file,
    remove,
    write_file,
)
from .limits import LIMITS
from .sources import fingerprint, is_unchanged

VARIABLE = "SMELT_CACHE_DIR"
OFF = "off"
# By platform: the environment variable with the cache directory, and the default within the home directory.
PLACES = {
    "linux": ("XDG_CACHE_HOME", ".cache"),
    "darwin": ("XDG_CACHE_HOME", "Library", "Caches"),
    "win32": ("LOCALAPPDATA", "AppData", "Local"),
}
SUFFIX = ".smelt"
MAGIC = "smelt-cache"
NAME_DIGITS = 32
HALF_WRITTEN = re.compile(r"(sources|machine)-[0-9a-f]{16}\.\d+")  # names of temporary files by older versions

Found = TypeVar("Found")


class Key:
    """The key of an entry."""

    def __init__(self, title: str, program: str, fields: dict[str, Any]):
        self.title = title  # for people
        self.program = program  # hash of the program's text
        self.fields = fields  # all else that determines the code, in the order in which `why` compares
        rest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        self.name = f"{program[:NAME_DIGITS]}-{rest[:NAME_DIGITS]}{SUFFIX}"


def make_key(target: str, title: str, text: str, options: dict[str, Any], environment: dict[str, Any]) -> Key | None:
    """Make the key of a program's code for a target; None if smelt's files changed since they were imported."""
    smelt = fingerprint(current().directory)
    if smelt is None:
        return None
    fields = {"options": options, **environment, "smelt": smelt, "target": target}
    return Key(title, hashlib.sha256(f"{target}\n{text}".encode()).hexdigest(), fields)


class Lookup:
    """The result of a look-up in the cache."""

    def __init__(self, state: str, detail: str = "", notes: Sequence[str] = ()):
        self.state = state  # hit, missed or off
        self.detail = detail  # the entry, or why there is none
        self.notes = list(notes)  # ignored entries, with reasons

    def __str__(self) -> str:
        return "; ".join([f"{self.state}: {self.detail}" if self.detail else self.state, *self.notes])


class Entry:
    """A file in the cache."""

    def __init__(self, path: str, size: int, used: float):
        self.path = path
        self.name = os.path.basename(path)
        self.size = size
        self.used = used  # time of its last use


class Damaged(Exception):
    """Raised for a file that is not an entry, or not a whole one."""


def write_entry(path: str, key: Key, about: dict[str, Any], code: bytes) -> None:
    header = {"title": key.title, "program": key.program, "fields": key.fields, "about": about}
    body = json.dumps(header, separators=(",", ":")).encode() + b"\n" + code
    content = f"{MAGIC} {hashlib.sha256(body).hexdigest()}\n".encode() + body
    if len(content) > LIMITS.entry:
        return  # no reader would accept it
    try:
        write_file(path, content)
    except OSError:
        # Where a file that is open elsewhere cannot be replaced, the existing entry is as good.
        if not os.path.exists(path):
            raise


def read_entry(path: str) -> tuple[dict[str, Any], bytes]:
    """Read the header and the code of an entry; raise OSError if there is none."""
    content = read_file(path)
    try:
        head, _, body = content.partition(b"\n")
        words = head[:200].decode("ascii", "replace").split(" ")
        if len(words) != 2 or words[0] != MAGIC:
            raise Damaged("it is not an entry of smelt's cache")
        if hashlib.sha256(body).hexdigest() != words[1]:
            raise Damaged("its checksum is wrong")
        header, _, code = body.partition(b"\n")
        found = json.loads(header)
    except (ValueError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, dict):
        raise Damaged("its header cannot be read")
    return found, code


def read_header(path: str) -> dict[str, Any] | None:
    """Read the header alone, without its checksum; None if there is none."""
    try:
        with open(open_file(path)[0], "rb") as file:
            found = json.loads(file.readline(200) and file.readline(LIMITS.header))
    except (OSError, ValueError, RecursionError, MemoryError):
        return None
    kinds = {"title": str, "program": str, "fields": dict}
    whole = isinstance(found, dict) and all(isinstance(found.get(name), kind) for name, kind in kinds.items())
    return found if whole else None


class Cache:
    """A directory to read and write, and further read-only ones. None without further ones: no cache."""

    def __init__(self, directory: str | None, baked: Sequence[str] = (), limit: int = LIMITS.directory):
        self.directory = directory
        self.baked = tuple(baked)
        self.limit = limit
        self.writable = directory is not None
        self.is_checked = False
        self.memory: dict[str, tuple[dict[str, Any], bytes]] = {}  # entries that could not be written

    @property
    def is_on(self) -> bool:
        return self.directory is not None or bool(self.baked)

    @property
    def directories(self) -> tuple[str, ...]:
        return self.baked if self.directory is None else (self.directory, *self.baked)

    def check(self) -> None:
        """Check the directories before their use; replace those that cannot be trusted."""
        self.is_checked = True
        reasons = {place: why for place in self.directories if (why := why_not(place))}
        self.baked = tuple([place for place in self.baked if place not in reasons])
        if self.directory in reasons:
            self.directory = private_directory()
            self.writable = self.directory is not None
        if reasons:
            refused = "; ".join(f"{place} ({why})" for place, why in reasons.items())
            instead = "nowhere" if self.directory is None else f"in {self.directory}"
            warn(
                f"smelt does not use the cache directory {refused}; compiled code is kept {instead}. Whoever can write "
                f"to a cache decides what your programs run: take that right away from others (chmod go-w), or name a "
                f"directory of your own with {VARIABLE} or smelt.set_cache_dir"
            )

    # One entry.

    def path(self, key: Key) -> str | None:
        """Return the path at which an entry is written."""
        return None if self.directory is None else os.path.join(self.directory, key.name[:2], key.name)

    def find(self, key: Key, read: Callable[[dict[str, Any], bytes], Found]) -> tuple[Found | None, Lookup]:
        """Find an entry and decode it by `read`; return the result and the look-up: its path, or why there is none."""
        name = key.name
        known = self.memory.get(name)
        if known is not None:
            return read(*known), Lookup("hit", f"{name} in memory")
        notes: list[str] = []
        for directory in self.directories:
            path = os.path.join(directory, name[:2], name)
            try:
                check_folder(os.path.dirname(path))
                header, code = read_entry(path)
                if header.get("program") != key.program or header.get("fields") != key.fields:
                    raise Damaged("it is another key's entry")
                try:
                    found = read(header["about"], code)
                except Exception as error:
                    raise Damaged(f"its header cannot be understood ({error!r})") from None
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                notes.append(f"{path} ignored: {error.strerror}")
                continue
            except Damaged as error:
                notes.append(f"{path} ignored: {error}")
                continue
            if directory == self.directory:
                touch(path)
            return found, Lookup("hit", path, notes)
        return None, Lookup("missed", self.why(key), notes)

    def find_or_lock(
        self, key: Key, read: Callable[[dict[str, Any], bytes], Found], is_patient: bool = True
    ) -> tuple[Found | None, Lookup, Lock | None]:
        """Find an entry; on a miss, also take the lock for compiling it, to be released after `store`. While another
        process has the lock, wait for its entry if `is_patient`, for LIMITS.patience seconds at most."""
        found, lookup = self.find(key, read)
        path = self.path(key)
        if found is not None or path is None or not self.writable:
            return found, lookup, None
        lock: Lock | None = None
        end, (pause, longest) = time.monotonic() + LIMITS.patience, LIMITS.pauses
        try:
            make_folder(os.path.dirname(path))
            while (lock := Lock.take(f"{path}{LOCK}")) is None and is_patient and time.monotonic() < end:
                if os.path.exists(path):
                    break
                time.sleep(pause)
                pause = min(pause * 1.5, longest)
        except OSError:
            pass  # no locks there: each process compiles
        if os.path.exists(path):  # stored meanwhile by another process
            found, again = self.find(key, read)
            if found is not None:
                if lock is not None:
                    lock.release()
                return found, again, None
        return found, lookup, lock

    def why(self, key: Key) -> str:
        """Explain a miss: the first field of the key in which no entry of the same program agrees."""
        others = [
            header
            for directory in self.directories
            for entry in entries(directory, key.program)
            if entry.name != key.name and (header := read_header(entry.path)) is not None
        ]
        if not others:
            return "program: it was not compiled before"
        fields = [header["fields"] for header in others]
        for name, wanted in key.fields.items():
            agreeing = [other for other in fields if other.get(name) == wanted]
            if not agreeing:
                return f"{name}: {difference(wanted, fields[0].get(name))}"
            fields = agreeing
        return "the entry was damaged or removed"

    def store(self, key: Key, about: dict[str, Any], code: bytes) -> None:
        """Store an entry: on disk, or in this process where the directory is not writable."""
        if not is_unchanged():
            return
        path = self.path(key)
        if path is not None and self.writable:
            try:
                make_folder(os.path.dirname(path))
                check_directory(str(self.directory))  # another user may have made it first
                check_folder(os.path.dirname(path))
                write_entry(path, key, about, code)
            except OSError as error:
                self.writable = False
                warn(f"smelt cannot keep compiled code in {self.directory} ({error.strerror}): {ADVICE}")
        if not self.writable:
            if len(self.memory) < LIMITS.memory:
                self.memory[key.name] = (about, code)
        elif int(key.name[:8], 16) % LIMITS.sweep == 0:
            # The name is a hash: one in so many stores sweeps, without state shared among processes.
            self.sweep()

    # All entries.

    def sweep(self) -> int:
        """Remove the least recently used entries until a tenth of the limit is free; return their number."""
        if self.directory is None:
            return 0
        found = sorted(entries(self.directory), key=lambda entry: entry.used)
        total = sum(entry.size for entry in found)
        removed = 0
        if total > self.limit:
            for entry in found:
                if total <= self.limit - self.limit // 10:
                    break
                if remove(entry.path):
                    total -= entry.size
                    removed += 1
        for path in abandoned(self.directory):
            remove(path)
        return removed

    def clear(self) -> int:
        """Remove all entries of the directory; return their number."""
        return 0 if self.directory is None else sum(remove(entry.path) for entry in list(entries(self.directory)))


def entries(directory: str, program: str = "") -> Iterator[Entry]:
    """List the entries of a directory, or those of one program."""
    for file in _files(directory, program):
        if file.name.endswith(SUFFIX):
            try:
                facts = file.stat(follow_symlinks=False)
            except OSError:
                continue  # removed meanwhile
            yield Entry(file.path, facts.st_size, facts.st_mtime)


def abandoned(directory: str) -> Iterator[str]:
    """List temporary files and locks left behind long ago by processes that ended."""
    for file in (*_listed(directory), *_files(directory)):
        if file.name.endswith((TEMPORARY, LOCK)) or HALF_WRITTEN.fullmatch(file.name):
            try:
                if time.time() - file.stat(follow_symlinks=False).st_mtime > LIMITS.abandoned:
                    yield file.path
            except OSError:
                continue


def _files(directory: str, program: str = "") -> Iterator[os.DirEntry[str]]:
    folders = [program[:2]] if program else [f"{number:02x}" for number in range(256)]
    for folder in folders:
        for file in _listed(os.path.join(directory, folder)):
            if file.name.startswith(program[:NAME_DIGITS]):
                yield file


def _listed(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (OSError, ValueError):
        return []


def touch(path: str) -> None:
    """Set an entry's time of last use; not each time, which would be a write for every read."""
    try:
        if time.time() - os.stat(path).st_mtime > LIMITS.touch:
            os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)
    except OSError:
        pass


def difference(wanted: Any, stored: Any) -> str:
    """Describe how two values of a field differ, for people."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        for name in wanted:
            if wanted[name] != stored.get(name):
                return f"{name} is {wanted[name]}, the entry has {stored.get(name)}"
    if isinstance(wanted, list) and isinstance(stored, list):
        more = [str(item) for item in wanted if item not in stored]
        less = [str(item) for item in stored if item not in wanted]
        parts = [f"only the entry has {' '.join(less)}"] if less else []
        return "; ".join([f"only this machine has {' '.join(more)}", *parts] if more else parts)
    return f"{wanted} is wanted, the entry has {stored}"


# ----- which cache


class _Current:
    """The cache that was set, or made from the environment."""

    cache: Cache | None = None


_current = process.keep("cache", _Current())


def current() -> Cache:
    """Return the cache of this process: as set, else by the environment, else in the platform's default directory."""
    if _current.cache is None:
        _current.cache = from_environment()
    if not _current.cache.is_checked:
        _current.cache.check()
    return _current.cache


def from_environment() -> Cache:
    """Make the cache of SMELT_CACHE_DIR: a directory or "off", then, separated as in PATH, read-only directories."""
    first, *others = os.environ.get(VARIABLE, "").split(os.pathsep)
    baked = [absolute(item) for item in others if item]
    if first == OFF:
        return Cache(None, baked)
    directory = absolute(first) if first else default_directory()
    if directory is None:
        warn(f"smelt finds no home directory to keep compiled code in: {ADVICE}")
    return Cache(directory, baked)


def absolute(path: str | os.PathLike[str]) -> str:
    """Make the path of a directory absolute, with `~` expanded."""
    text = os.path.expanduser(os.fspath(path))
    try:
        return os.path.abspath(text)
    except OSError:  # the working directory was removed, and this one with it
        return text


def default_directory() -> str | None:
    """Return the platform's cache directory; None if there is no home directory."""
    variable, *inside = PLACES.get(sys.platform, PLACES["linux"])
    base = os.environ.get(variable, "")
    if os.path.isabs(base):  # the XDG specification: relative paths are ignored
        return os.path.join(base, "smelt")
    home = os.path.expanduser("~")
    return os.path.join(home, *inside, "smelt") if os.path.isdir(home) else None


def why_not(directory: str) -> str:
    """Say why a directory cannot be used; empty if it can."""
    try:
        check_directory(directory)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def private_directory() -> str | None:
    """Find a directory that only this user can write: the platform's cache directory, or a temporary one."""
    from tempfile import gettempdir

    user = os.geteuid() if os.name == "posix" else ""
    for directory in (default_directory(), os.path.join(gettempdir(), f"smelt-{user}")):
        if directory is not None and not why_not(directory):
            try:
                make_folder(directory)
            except OSError:
                continue
            if not why_not(directory):  # another user may have made it first
                return directory
    return None


ADVICE = (
    f"every process compiles anew. Name another directory with {VARIABLE} or smelt.set_cache_dir, "
    f"or turn the cache off ({VARIABLE}={OFF})"
)


def warn(problem: str) -> None:
    warnings.warn(problem, RuntimeWarning, stacklevel=2)


def set_cache_dir(
    directory: str | os.PathLike[str] | None,
    *,
    baked: Sequence[str | os.PathLike[str]] = (),
    limit: int = LIMITS.directory,
) -> None:
    """Set the cache directory, of at most about `limit` bytes; None: no cache.

    baked: read-only directories, such as `smelt bake` fills.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise ValueError(f"the limit of the cache must be a number of bytes, got {limit!r}")
    _current.cache = Cache(None if directory is None else absolute(directory), list(map(absolute, baked)), limit)


def get_cache_dir() -> str | None:
    """Return the cache directory; None if there is no cache."""
    return current().directory
