"""Open, create and check files of the cache.

Entries are native code, so a file or directory is trusted only if just this user and root can write it. A path may be
something else than a file: opening it must neither block (a FIFO) nor follow a link, and its type and size are checked
before it is read. All failures are OSErrors.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress

from .limits import LIMITS

TEMPORARY = ".tmp"
LOCK = ".lock"
FOLDER_MODE, FILE_MODE = 0o700, 0o600
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_COMMON = [getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NOCTTY", "O_NONBLOCK")]
_READ = os.O_RDONLY | sum(_COMMON)
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | sum(_COMMON)
_LOCK = os.O_RDWR | os.O_CREAT | sum(_COMMON)


class Refused(OSError):
    """Raised for a path that exists but is not used; strerror says why."""

    def __init__(self, why: str):
        super().__init__(errno.EPERM, why)


def distrust(facts: os.stat_result) -> str:
    """Say why another user may have written a file or directory; empty if none can have."""
    if os.name != "posix":
        return ""
    if facts.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {facts.st_uid})"
    if facts.st_mode & OTHERS_WRITE:
        return f"other users can write to it (mode {stat.S_IMODE(facts.st_mode):04o})"
    return ""


def open_file(path: str) -> tuple[int, os.stat_result]:
    """Open a trusted regular file; return its descriptor and its stat."""
    try:
        descriptor = os.open(path, _READ)
    except ValueError as error:  # not a valid path, such as one with a null character
        raise Refused(str(error)) from None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise Refused("it is not a regular file")
        if why := distrust(facts):
            raise Refused(why)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, facts


def read_file(path: str, largest: int = LIMITS.entry) -> bytes:
    descriptor, facts = open_file(path)
    try:
        if facts.st_size > largest:
            raise Refused(f"it has {facts.st_size} bytes, more than {largest}")
        parts: list[bytes] = []
        left = facts.st_size + 1  # one more than its size, to see the end
        while left and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    except MemoryError:
        raise Refused(f"there is no memory for its {facts.st_size} bytes") from None
    finally:
        os.close(descriptor)


def write_file(path: str, content: bytes) -> None:
    """Write a file atomically: under a temporary name, then renamed."""
    temporary = f"{path}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}"
    try:
        try:
            descriptor = os.open(temporary, _MAKE, FILE_MODE)
        except FileExistsError:  # left by a killed process with this number
            os.unlink(temporary)
            descriptor = os.open(temporary, _MAKE, FILE_MODE)
        try:
            if os.name == "posix":
                os.fchmod(descriptor, FILE_MODE)  # whatever the umask is
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except ValueError as error:
        raise Refused(str(error)) from None
    except BaseException:
        remove(temporary)
        raise


def remove(path: str) -> bool:
    try:
        os.unlink(path)
    except (OSError, ValueError):
        return False
    return True


def check_directory(directory: str) -> None:
    """Raise Refused unless only this user and root can change a directory's contents; a missing one may be made."""
    if os.name != "posix":
        return
    try:
        real = os.path.realpath(directory)
        for path in {*_parents(directory), *_parents(real)}:
            try:
                mode = os.stat(path).st_mode
            except OSError:
                continue
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise Refused(f"everyone can write to {path} (mode {stat.S_IMODE(mode):04o})")
        check_folder(real)
    except ValueError as error:
        raise Refused(str(error)) from None


def check_folder(path: str) -> None:
    """Raise Refused unless a subdirectory of a checked one is trusted. A missing one shows when it is used."""
    try:
        facts = os.lstat(path)
    except OSError:
        return
    if stat.S_ISLNK(facts.st_mode):
        raise Refused("it is a link")
    if stat.S_ISDIR(facts.st_mode) and (why := distrust(facts)):
        raise Refused(why)


def _parents(path: str) -> Iterator[str]:
    while (above := os.path.dirname(path)) != path:
        path = above
        yield path


def make_folder(path: str) -> None:
    """Make a directory and those above it, for this user alone whatever the umask is. Existing ones are unchanged."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above and above != path:
        make_folder(above)
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        return
    except ValueError as error:
        raise Refused(str(error)) from None
    os.chmod(path, FOLDER_MODE)


class Lock:
    """A file lock, among processes and threads. The system releases the locks of processes that die."""

    def __init__(self, descriptor: int, path: str):
        self.descriptor, self.path, self.process = descriptor, path, os.getpid()

    @staticmethod
    def take(path: str) -> Lock | None:
        """Take the lock; None if it is held elsewhere; raise OSError where there are no locks."""
        try:
            from fcntl import LOCK_EX, LOCK_NB, flock
        except ImportError:
            raise Refused("this system has no file locks") from None
        descriptor = os.open(path, _LOCK, FILE_MODE)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            # The previous owner may have removed the file meanwhile.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return Lock(descriptor, path)
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def release(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor < 0:
            return
        try:
            if self.process == os.getpid():  # a forked child has a copy of the object, but does not own the lock
                from fcntl import LOCK_UN, flock

                remove(self.path)
                flock(descriptor, LOCK_UN)  # releases it for copies of the descriptor, too
        finally:
            os.close(descriptor)

    def __del__(self) -> None:
        with suppress(Exception):
            self.release()
