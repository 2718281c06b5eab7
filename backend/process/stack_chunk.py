"""Calls with room on Python's stack.

CPython has the frames of Python functions in chunks of 16 KB, and gives a chunk back to the system as soon as the call
that asked for it returns. A loop whose calls cross the end of a chunk asks for a new one each time: compiling takes up
to half as long again if its caller happens to be so deep, as one that PyTorch calls may be.
"""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable
from types import CodeType
from typing import TypeVar

T = TypeVar("T")

# Words of a frame. A chunk is as long as the next power of two, so about as many are left for the frames inside.
ROOM = 1 << 15
# Bytes of memory without which nothing is compiled: where there is none for a chunk, CPython's stack is broken, and
# LLVM and the C library end the process, the latter where a thread that has begun (8 MB of stack) finds none for its
# own data. With 5 and 6 MB a program of 150 kernels was ended so, with 8 MB and more it never was.
LEAST = 32 << 20


def with_room(function: Callable[[], T]) -> T:
    """Call a function at the beginning of a new chunk that it does not come to the end of, without collections."""
    try:
        mmap.mmap(-1, LEAST).close()
    except OSError:
        raise MemoryError(f"compiling takes {LEAST >> 20} MB at least, which the system does not give") from None
    if not gc.isenabled():  # the caller wants none, or another thread compiles and lets them go on
        return _on_new_chunk(function)
    try:
        gc.disable()
        return _on_new_chunk(function)
    finally:
        gc.enable()  # the first call here, so that no handler of a signal raises before it


def _on_new_chunk(function: Callable[[], T]) -> T:
    return function()


def ask_for_room(code: CodeType, room: int) -> CodeType:
    """The same code, which says that its frame takes so many words; as it is where the interpreter refuses that."""
    try:
        return code.replace(co_stacksize=room)
    except (AttributeError, TypeError, ValueError, OverflowError):
        return code


_on_new_chunk.__code__ = ask_for_room(_on_new_chunk.__code__, ROOM)
