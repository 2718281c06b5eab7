"""Call functions with enough room on Python's stack.

CPython keeps the frames of Python functions in chunks of 16 KB, and frees a chunk as soon as the call that allocated it
returns. A loop whose calls cross the end of a chunk allocates a new one each time: compiling takes up to 50 % longer if
its caller happens to be at such a depth, as calls from PyTorch may be.
"""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable
from types import CodeType
from typing import TypeVar

T = TypeVar("T")

# Words of a frame. A chunk has the next power of two, so about as many words are left for the frames of callees.
ROOM = 1 << 15
# Bytes of memory that compiling requires: without memory for a chunk CPython's stack is corrupted, and LLVM and the C
# library abort the process, the latter when a new thread (8 MB of stack) finds none for its own data. Measured with a
# program of 150 kernels: aborted at 5 and 6 MB, never at 8 MB and more.
LEAST = 32 << 20


def with_room(function: Callable[[], T]) -> T:
    """Call a function at the beginning of a new chunk that it does not exhaust, with garbage collection disabled."""
    try:
        mmap.mmap(-1, LEAST).close()
    except OSError:
        raise MemoryError(f"compiling takes at least {LEAST >> 20} MB, and the system has no more memory") from None
    if not gc.isenabled():  # disabled by the caller, or by another thread that compiles and will enable it
        return _on_new_chunk(function)
    try:
        gc.disable()
        return _on_new_chunk(function)
    finally:
        gc.enable()  # the first call in `finally`, so that no signal handler raises before it


def _on_new_chunk(function: Callable[[], T]) -> T:
    return function()


def ask_for_room(code: CodeType, room: int) -> CodeType:
    """Change a function's code to declare a frame of so many words; unchanged where the interpreter refuses."""
    try:
        return code.replace(co_stacksize=room)
    except (AttributeError, TypeError, ValueError, OverflowError):
        return code


_on_new_chunk.__code__ = ask_for_room(_on_new_chunk.__code__, ROOM)
