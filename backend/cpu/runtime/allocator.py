"""Memory of arrays: aligned, and that of large ones kept for the next array instead of given back to the system.

A fresh page costs a fault and is filled with zeros first: for a large result that takes several times as long as
writing it. So large blocks are mapped here, on huge pages where they are long enough, and a block whose array has died
waits for the next array of about its size. Smaller blocks come from the C library; they are
aligned, as vectors that cross cache lines take twice as long. NumPy itself calls this allocator, as the handler (NEP
49) that was in place when the array was made: the arrays own their data like any other.

What waits is bounded. All blocks together, in use and waiting, stay below twice what was in use at once during the
last seconds, and those that wait below a part of the machine's memory; the ones that waited longest go first. When
the system has no more memory, all of them go. `empty_cache` gives all of them back.

All of it is native code under a lock of its own: NumPy may free an array without holding the interpreter's lock.
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

Layout = tuple[tuple[int, ...], np.dtype]  # of an array: its shape and its element type

# Places in the table of NumPy's functions, and what the versions there have to be: of the ABI, and of the functions.
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
    """The address of the table of NumPy's functions; None if it is not the one that this code knows."""
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
    """The process's allocator of arrays. It lives as long as the process: arrays outlive the interpreter."""

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
        # With the interpreter's lock held: one who has the allocator's lock must never have to wait for that one.
        self._empty = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(code["give_back"])
        process.in_child(self._forget)

    def _forget(self) -> None:
        """In a forked child: if another thread was inside, which is not in this process, all that waited is lost."""
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
        """Bytes that wait for another array."""
        return self.state.waiting

    @property
    def used(self) -> int:
        """Bytes of the large blocks of arrays that live."""
        return self.state.used


def _make() -> Allocator | None:
    table = numpy_functions() if HAS_ALLOCATOR else None
    return None if table is None else Allocator(table)


allocator = Once("allocator", _make)  # None where there is none


def empty_arrays(layouts: Sequence[Layout]) -> list[np.ndarray]:
    """Arrays of any numbers; all but small ones start at a multiple of ALIGNMENT. All at once: it takes longer to tell
    NumPy whose memory it is than to make one."""
    large = [math.prod(shape) * dtype.itemsize >= ALLOCATOR.middle for shape, dtype in layouts]
    own = allocator() if True in large else None
    made = iter(own.empty(compress(layouts, large)) if own is not None else map(_aligned, compress(layouts, large)))
    return [next(made) if is_large else np.empty(*layout) for layout, is_large in zip(layouts, large)]


def _aligned(layout: Layout) -> np.ndarray:
    """Where there is no allocator."""
    shape, dtype = layout
    nbytes = math.prod(shape) * dtype.itemsize
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[start : start + nbytes].view(dtype).reshape(shape)


def empty_cache() -> None:
    """Give memory that is kept for further results back to the system."""
    for own in allocator.made:
        if own is not None:
            own.give_back()


def memory_size() -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for _, words in limits("memory", "memory.max", "memory.limit_in_bytes"):
        if words[0].isdigit():
            sizes.append(int(words[0]))
    return min(sizes)
