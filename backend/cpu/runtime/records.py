"""The records of the run time that native code and Python share: of the thread pool, an OpenMP team, the allocator and
the native entry of a call; and where CPython and NumPy have the fields of their objects."""

from __future__ import annotations

import os
import sys
from ctypes import Structure, sizeof
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ....kernels.machine import CACHE_LINE
from ..abi import I32, I64, PTR, Arguments, Context, Problem, line, to

HAS_ALLOCATOR = sys.platform == "linux" and sys.maxsize > 2**32  # it needs Linux's way of mapping memory
# Its blocks are pages; 64 KB on some ARM machines: parts of a page cannot be given back.
PAGE = os.sysconf("SC_PAGE_SIZE") if HAS_ALLOCATOR else 0


class Linux(IntEnum):
    """Numbers of system calls' arguments."""

    ADVISE_HUGE = 14  # madvise: on huge pages
    CLOCK_MONOTONIC = 1  # clock_gettime: the clock that is never set
    FUTEX_WAIT_PRIVATE = 128
    FUTEX_WAKE_PRIVATE = 129


# The thread pool.

UNPINNED = -1  # in place of the caller's CPU: workers may run anywhere


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """No measurement is recorded but for the ticks: 20 to 50 us of spinning are enough (Zen 3)."""

    shares: int = 16  # each has a counter, which costs the caller a store; more threads than these share some of them
    pinned: int = 1024  # CPUs, and so workers, that may be pinned; the table has a thread and a CPU for each
    ticks: int = 100_000  # of the processor's counter that a worker spins
    slow_ticks: int = 1_000  # of Arm's, which is slow
    nap: int = 50  # microseconds, where there is no futex


POOL_SIZES = PoolSizes()


class Job(Structure):
    _fields_ = [
        ("function", PTR),
        ("arguments", to(Arguments)),
        ("count", I64),  # of iterations
        ("grain", I64),  # iterations that are taken at once
        ("shares", I64),
        ("each", I64),  # iterations of a share
    ]


class Counter(Structure):
    """The next iteration of a share."""

    _fields_ = line(("next", I64))


class Place(Structure):
    """A worker's thread, as the system numbers it, and its CPU."""

    _fields_ = [("thread", I64), ("cpu", I64)]


class PoolBlock(Structure):
    _fields_ = [
        *line(("generation", I32)),  # counts jobs; sleepers wait for it to change
        *line(("active", I64)),  # workers that take part
        *line(("sleeping", I64)),  # workers that sleep
        *line(("open", I64)),  # whether workers may join the job
        *line(("lock", I64)),
        *line(("job", Job)),
        *line(("limit", I64), ("started", I64), ("caller_cpu", I64), ("ended", I64)),  # ended: ticks at the last end
        ("counters", Counter * POOL_SIZES.shares),
        ("places", Place * POOL_SIZES.pinned),
    ]


class TeamBlock(Structure):
    """A call that an OpenMP team makes."""

    _fields_ = [
        ("run", PTR),
        ("context", to(Context)),
        ("pool", to(PoolBlock)),
        ("number", PTR),  # the function that gives a thread's number
        ("seen", I32),  # the pool's generation before the call
        ("done", I64),
    ]


# The allocator.

ALIGNMENT = CACHE_LINE


@dataclass(frozen=True, slots=True)
class AllocatorSizes:
    """No measurement is recorded."""

    large: int = 1 << 18  # bytes from which memory is mapped, and kept
    middle: int = 1 << 10  # bytes from which an array is aligned
    huge: int = 1 << 21  # bytes of a huge page, which blocks from this size up are mapped on
    blocks: int = 1024  # that wait
    period: int = 1_000_000_000  # ns; the largest use of this period and of the one before counts
    share: int = 8  # of the machine's memory that may wait: one part in so many


ALLOCATOR = AllocatorSizes()


class Block(Structure):
    _fields_ = [("start", PTR), ("size", I64)]


class AllocatorState(Structure):
    _fields_ = [
        ("lock", I64),
        ("count", I64),  # of blocks that wait
        ("waiting", I64),  # bytes that wait
        ("used", I64),  # bytes of the large blocks of arrays that live
        ("peak", I64),  # the most that was used in this period
        ("earlier", I64),  # and in the one before
        ("since", I64),  # ns; when this period began
        ("most", I64),  # bytes that may wait
        ("tables", to(to(I64))),  # of the sizes of blocks
        ("blocks", Block * (ALLOCATOR.blocks + 1)),  # that wait, the oldest first
    ]


# Objects.


class Object(Structure):
    _fields_ = [("references", I64), ("type", PTR)]


class Descriptor(Structure):
    """An array's dtype: its kind, its letter, its byte order, something else, its number."""

    _fields_ = [*Object._fields_, ("class_", PTR), ("facts", I64)]


class ArrayObject(Structure):
    _fields_ = [
        *Object._fields_,
        ("data", PTR),
        ("rank", I32),
        ("sizes", to(I64)),
        ("strides", to(I64)),
        ("base", PTR),
        ("descriptor", to(Descriptor)),
        ("flags", I32),
        ("weak", PTR),
        ("buffers", PTR),
        ("handler", PTR),
    ]


class StandIn(Structure):
    """Looks like an array object to native code: its data is the number behind it."""

    _fields_ = [("array", ArrayObject), ("number", I64)]


FACTS = ~(0xFF << 24)  # of Descriptor.facts, those that tell dtypes apart
PLAIN = 0x101  # flags of an array: contiguous and aligned
NEW = PLAIN | 0x400  # writable, too
OWNING = 0x4
NEW_FROM_DESCRIPTOR = 94  # its place in the table of NumPy's functions


def _find_data_offset() -> int | None:
    """Where an array object holds the address of its data, by looking; None if it does not show."""
    probe = np.empty(3)
    data = probe.__array_interface__["data"][0]
    for offset in (16, 24, 32, 40):
        if I64.from_address(id(probe) + offset).value == data:
            return offset
    return None


DATA_OFFSET = _find_data_offset()
HAS_ENTRY = ArrayObject.data.offset == DATA_OFFSET

# The native entry of a call. Guards and output are records one behind the other.


class Plan(Structure):
    """How a call has to look, where its parts are and what it returns."""

    _fields_ = [
        ("busy", I64),
        ("context", to(Context)),
        ("run", PTR),
        ("pool_at", to(to(PoolBlock))),  # where the address of the process's pool is
        ("guards", PTR),
        ("results", PTR),
        ("result_count", I64),
        ("first_result", I64),  # its slot in ctx
        ("output", PTR),
        ("held", to(PTR)),  # objects that the call needs until it ends
        ("held_count", I64),
        ("problem", to(Problem)),
        ("on_error", PTR),  # called if there is a problem
        ("seed", PTR),  # called for a seed, if there is one
        ("seed_slot", I64),
        ("borrowed", I64),  # bytes of temporaries that are allocated for the call
        ("arena_bytes", I64),
        ("state", PTR),  # of the allocator, with its functions
        ("allocate", PTR),
        ("release", PTR),
        ("handler", PTR),
        ("numpy", to(PTR)),  # the table of NumPy's functions
        ("otherwise", PTR),  # what is returned if Python is to make the call
        ("true", to(Object)),
        ("ndarray", PTR),
        ("tuple", PTR),
        ("list", PTR),
        ("dict", PTR),
        ("float", PTR),
        ("int", PTR),
    ]


IS_ARRAY, IS_TUPLE, IS_LIST, IS_DICT, IS_SAME, IS_EQUAL, IS_ANYTHING = range(7)
NO_NUMBER, FLOAT_NUMBER, INT_NUMBER, BOOL_NUMBER = range(4)
PUT_RESULT, PUT_TUPLE, PUT_LIST, PUT_DICT, PUT_OBJECT = range(5)


class Guard(Structure):
    """Of an argument, or of a part of the output. word: an object, a result's number, or a container's length; behind a
    container are the records of its items, in a dict with a key before each."""

    _fields_ = [("kind", I64), ("word", I64)]


class ArrayGuard(Structure):
    """Behind it the array's sizes."""

    _fields_ = [
        ("kind", I64),
        ("slot", I64),  # in ctx
        ("dtype", I64),  # its facts
        ("rank", I64),
        ("number", I64),  # the kind of number that will do instead
        ("stand_in", to(ArrayObject)),  # where that goes
    ]


class Result(Structure):
    """Behind it the array's sizes and strides."""

    _fields_ = [("rank", I64), ("descriptor", PTR), ("bytes", I64)]


def words(*records: Structure) -> list[int]:
    """Records as 64-bit words."""
    return [word for record in records for word in (I64 * (sizeof(record) // 8)).from_buffer(record)]
