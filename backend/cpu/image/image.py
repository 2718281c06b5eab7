"""Load an image, linked by link.py or read from the cache, into executable memory.

An image is a line of JSON and then position-independent code with two kinds of relocations left: words that point into
the image ("inside", they hold offsets), and words that point to functions of this process ("outside", by name). So
loading needs no LLVM, and takes as long as copying the bytes.

The whole image is mapped readable and executable and never written again: code of kernels has no variables.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import weakref
from contextlib import suppress
from functools import lru_cache
from typing import Any

from ....ir.errors import CompileError

WORD = struct.Struct("<Q")  # an address, on every processor that link.py knows


def encode(data: bytes | bytearray, symbols: dict[str, int], inside: list[int], outside: dict[str, list[int]]) -> bytes:
    """Encode an image. symbols: offsets of functions and tables. inside, outside: offsets of words to relocate."""
    head = {"symbols": symbols, "inside": inside, "outside": outside}
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + data


class Image:
    """Loaded code; it can be called as long as this object lives."""

    def __init__(self, code: bytes):
        head, _, content = code.partition(b"\n")
        facts = json.loads(head)
        data = bytearray(content)
        self.symbols: dict[str, int] = facts["symbols"]
        self.base = _reserve(len(data))
        for place in facts["inside"]:
            WORD.pack_into(data, place, self.base + WORD.unpack_from(data, place)[0])
        for name, places in facts["outside"].items():
            address = _address(name)
            for place in places:
                WORD.pack_into(data, place, address)
        ctypes.memmove(self.base, bytes(data), len(data))
        _make_executable(self.base, len(data))
        # Not at the exit of the interpreter: other threads may still be running the code.
        weakref.finalize(self, _free, self.base, len(data)).atexit = False

    def __getitem__(self, symbol: str) -> int:
        """Return the address of a function or a table."""
        return self.base + self.symbols[symbol]


def _address(name: str) -> int:
    for library in _libraries():
        found = _find(library, name)
        if found:
            return found
    raise CompileError(f"compiled code calls {name}, a symbol that this process does not have")


if os.name == "nt":
    _RESERVE_AND_COMMIT, _RELEASE, _READ_WRITE, _EXECUTE_READ = 0x3000, 0x8000, 0x04, 0x20

    @lru_cache
    def _libraries() -> tuple[Any, ...]:
        system = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined, unused-ignore]
        system.VirtualAlloc.restype = ctypes.c_void_p
        return system, ctypes.CDLL("ucrtbase"), ctypes.pythonapi

    def _find(library: Any, name: str) -> int:
        return ctypes.cast(getattr(library, name, 0), ctypes.c_void_p).value or 0

    def _reserve(size: int) -> int:
        start = _libraries()[0].VirtualAlloc(None, ctypes.c_size_t(size), _RESERVE_AND_COMMIT, _READ_WRITE)
        if not start:
            raise MemoryError
        return int(start)

    def _make_executable(start: int, size: int) -> None:
        before, system = ctypes.c_ulong(), _libraries()[0]
        room, length = ctypes.c_void_p(start), ctypes.c_size_t(size)
        if not system.VirtualProtect(room, length, _EXECUTE_READ, ctypes.byref(before)):
            raise CompileError("the system does not let this process make its code executable")

    def _free(start: int, size: int) -> None:
        _libraries()[0].VirtualFree(ctypes.c_void_p(start), ctypes.c_size_t(0), _RELEASE)

else:
    # Values of mmap's constants: importing the module would load one more shared library.
    _READ, _WRITE, _EXECUTE, _PRIVATE = 1, 2, 4, 2
    _ANONYMOUS = 0x20 if sys.platform == "linux" else 0x1000

    @lru_cache
    def _libraries() -> tuple[Any, ...]:
        process = ctypes.CDLL(None, use_errno=True)
        process.mmap.restype = process.dlsym.restype = ctypes.c_void_p
        found = [process]
        for name in ("libm.so.6", "libm.so"):  # fmod: the interpreter may have it without exporting it
            with suppress(OSError):
                found.append(ctypes.CDLL(name))
                break
        return tuple(found)

    def _find(library: Any, name: str) -> int:
        # dlsym directly: an attribute of the library would make a function object first.
        return _libraries()[0].dlsym(ctypes.c_void_p(library._handle), name.encode()) or 0

    def _reserve(size: int) -> int:
        kind = _PRIVATE | _ANONYMOUS
        start = _libraries()[0].mmap(None, ctypes.c_size_t(size), _READ | _WRITE, kind, -1, ctypes.c_long(0))
        if start == ctypes.c_void_p(-1).value:
            raise MemoryError
        return int(start)

    def _make_executable(start: int, size: int) -> None:
        # mprotect also flushes instruction caches on processors where they are not coherent with stores.
        if _libraries()[0].mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), _READ | _EXECUTE):
            reason = os.strerror(ctypes.get_errno())
            raise CompileError(f"the system does not let this process make its code executable ({reason})")

    def _free(start: int, size: int) -> None:
        _libraries()[0].munmap(ctypes.c_void_p(start), ctypes.c_size_t(size))
