"""Allocate the memory of arrays: aligned, with a free list that keeps large blocks for the next arrays.

A fresh page costs a page fault and is zeroed first: for a large result that takes several times as long as writing
it. So large blocks are mapped here, on huge pages where they are long enough, and the block of a dead array goes to a
free list, for the next array of about its size. Smaller blocks come from the C library; they are aligned, since
vectors that cross cache lines take twice as long. NumPy calls this allocator as the array's handler (NEP 49), the one
in place when the array was made: arrays own their data like any other.

Free blocks are bounded. All blocks together, used and free, stay below twice the peak use of the last seconds, and
the free ones below a fraction of the machine's memory; the oldest are unmapped first. When the system is out of
memory, all free blocks are unmapped. `empty_cache` does the same on request.

The allocator is native code under a lock of its own: NumPy may free an array without holding the GIL.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np

from ....ir.process import process
from ...process.process_wide import Once
from .cgroup import limits
from .records import ALIGNMENT, ALLOCATOR, HAS_ALLOCATOR, AllocatorState
from .runtime import runtime

Layout = tuple[tuple[int, ...], np.dtype]  # shape and element type of an array

# Indices into NumPy's table of C functions, and the versions of ABI and API that this code expects there.
_VERSION, _FEATURES, _SET_HANDLER = 0, 211, 304
_VERSIONS, _LEAST_FEATURES = (0x01000009, 0x02000000), 0x0F


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("state", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * 4),  # malloc, calloc, realloc, free
    ]


@lru_cache
def numpy_functions() -> int | None:
    """Find the address of NumPy's table of C functions; None if its versions are not the expected ones."""
    try:
        from numpy._core import multiarray  # type: ignore[attr-defined]

        capsule = multiarray._ARRAY_API
    except (ImportError, AttributeError):
        return None
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    start = int(pointer_of(capsule, None))
    version, features = (
        ctypes.PYFUNCTYPE(ctypes.c_uint)(ctypes.c_void_p.from_address(start + 8 * place).value or 0)()
        for place in (_VERSION, _FEATURES)
    )
    return start if version in _VERSIONS and features >= _LEAST_FEATURES else None


class Allocator:
    """The array allocator of the process. It lives as long as the process: arrays outlive the interpreter."""

    def __init__(self, numpy_table: int) -> None:
        code = runtime()
        functions = [code[name] for name in ("allocate", "allocate_zeros", "reallocate", "release")]
        self.allocate, self.release = functions[0], functions[3]
        self.state = AllocatorState(most=memory_size() // ALLOCATOR.share)
        handler = _Handler(b"smelt", 1, ctypes.addressof(self.state), (ctypes.c_void_p * 4)(*functions))
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self._name = ctypes.create_string_buffer(b"mem_handler")
        self.handler = make(ctypes.addressof(handler), ctypes.cast(self._name, ctypes.c_char_p), None)
        for thing in (self.state, handler, self._name, self.handler):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
        set_handler = ctypes.c_void_p.from_address(numpy_table + 8 * _SET_HANDLER).value
        self._set: Callable[[Any], Any] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(set_handler or 0)
        # Called with the GIL held: the holder of the allocator's lock must never wait for the GIL.
        self._empty = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(code["give_back"])
        process.in_child(self._forget)

    def _forget(self) -> None:
        """Reset the lock in a forked child: if another thread held it at the fork, all free blocks are lost."""
        if self.state.lock:
            self.state.count = self.state.waiting = 0
            self.state.lock = 0

    def empty(self, layouts: Iterable[Layout]) -> list[np.ndarray]:
        before = self._set(self.handler)
        try:
            return [np.empty(shape, dtype) for shape, dtype in layouts]
        finally:
            self._set(before)

    def give_back(self) -> None:
        self._empty(ctypes.addressof(self.state))

    @property
    def waiting(self) -> int:
        """Return the bytes in free blocks."""
        return self.state.waiting

    @property
    def used(self) -> int:
        """Return the bytes of large blocks in use."""
        return self.state.used


def _make() -> Allocator | None:
    table = numpy_functions() if HAS_ALLOCATOR else None
    return None if table is None else Allocator(table)


allocator = Once("allocator", _make)  # None where the system has no such allocator


def empty_arrays(layouts: Sequence[Layout]) -> list[np.ndarray]:
    """Make uninitialized arrays; all but small ones are aligned to ALIGNMENT. All in one call: setting NumPy's handler
    takes longer than making an array."""
    large = [math.prod(shape) * dtype.itemsize >= ALLOCATOR.middle for shape, dtype in layouts]
    own = allocator() if True in large else None
    made = iter(own.empty(compress(layouts, large)) if own is not None else map(_aligned, compress(layouts, large)))
    return [next(made) if is_large else np.empty(*layout) for layout, is_large in zip(layouts, large)]


def _aligned(layout: Layout) -> np.ndarray:
    """Make an aligned array where there is no allocator."""
    shape, dtype = layout
    nbytes = math.prod(shape) * dtype.itemsize
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[start : start + nbytes].view(dtype).reshape(shape)


def empty_cache() -> None:
    """Return memory that is kept for further results to the system."""
    for own in allocator.made:
        if own is not None:
            own.give_back()


def memory_size() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its control group's."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for _, words in limits("memory", "memory.max", "memory.limit_in_bytes"):
        if words[0].isdigit():
            sizes.append(int(words[0]))
    return min(sizes)
