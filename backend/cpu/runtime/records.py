"""Records of the run time that native code and Python share (thread pool, OpenMP team, allocator, native entry), and
the layout of CPython's and NumPy's objects."""

from __future__ import annotations

import os
import sys
from ctypes import Structure, sizeof
from enum import IntEnum

import numpy as np

from ....ir.record import Record
from ....kernels.machine import CACHE_LINE
from ..abi import I32, I64, PTR, Arguments, Context, Problem, line, to

HAS_ALLOCATOR = sys.platform == "linux" and sys.maxsize > 2**32  # needs Linux's mmap and madvise
# Its blocks are whole pages (64 KB on some ARM machines): parts of a page cannot be unmapped.
PAGE = os.sysconf("SC_PAGE_SIZE") if HAS_ALLOCATOR else 0


class Linux(IntEnum):
    """Argument values of system calls."""

    ADVISE_HUGE = 14  # madvise: MADV_HUGEPAGE
    CLOCK_MONOTONIC = 1  # clock_gettime: not affected by setting the time
    FUTEX_WAIT_PRIVATE = 128
    FUTEX_WAKE_PRIVATE = 129


# The thread pool.

UNPINNED = -1  # value of caller_cpu where workers are not pinned


class PoolSizes(Record):
    """Sizes of the thread pool. Measured: spinning of 20 to 50 us is enough (Zen 3); the others are chosen."""

    shares: int = 16  # of a job, at most: each costs the caller a store to its counter; more threads share
    pinned: int = 1024  # workers that can be pinned, and CPUs; length of the table of thread and CPU
    ticks: int = 100_000  # a worker spins, in ticks of the time stamp counter
    slow_ticks: int = 1_000  # the same in ticks of Arm's timer, which is slow
    nap: int = 50  # microseconds of a sleep where there is no futex


POOL_SIZES = PoolSizes()


class Job(Structure):
    _fields_ = [
        ("function", PTR),
        ("arguments", to(Arguments)),
        ("count", I64),  # of iterations
        ("grain", I64),  # iterations that a thread takes at once
        ("shares", I64),
        ("each", I64),  # iterations of a share
    ]


class Counter(Structure):
    """The next iteration of a share."""

    _fields_ = line(("next", I64))


class Place(Structure):
    """A worker's thread (the system's id) and its CPU."""

    _fields_ = [("thread", I64), ("cpu", I64)]


class PoolBlock(Structure):
    _fields_ = [
        *line(("generation", I32)),  # number of the job; sleepers wait for a change
        *line(("active", I64)),  # workers in the job
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
        ("number", PTR),  # function that returns a thread's number
        ("seen", I32),  # the pool's generation before the call
        ("done", I64),
    ]


# The allocator.

ALIGNMENT = CACHE_LINE


class AllocatorSizes(Record):
    """Sizes of the allocator; chosen, no measurement is recorded."""

    large: int = 1 << 18  # bytes from which a block is mapped, and kept when freed
    middle: int = 1 << 10  # bytes from which an array is allocated aligned, by smelt
    huge: int = 1 << 21  # bytes of a huge page; blocks from this size up are mapped on huge pages
    blocks: int = 1024  # free blocks at most
    # ns; free blocks are bounded by the peak use of this period and of the one before
    period: int = 1_000_000_000
    share: int = 8  # one part in so many of the machine's memory may be free blocks


ALLOCATOR = AllocatorSizes()


class Block(Structure):
    _fields_ = [("start", PTR), ("size", I64)]


class AllocatorState(Structure):
    _fields_ = [
        ("lock", I64),
        ("count", I64),  # of free blocks
        ("waiting", I64),  # bytes in free blocks
        ("used", I64),  # bytes of large blocks in use
        ("peak", I64),  # bytes; the most that was used in this period
        ("earlier", I64),  # bytes; in the period before
        ("since", I64),  # ns; start of this period
        ("most", I64),  # bytes that may be in free blocks
        ("tables", to(to(I64))),  # two-level table of the sizes of mapped blocks
        ("blocks", Block * (ALLOCATOR.blocks + 1)),  # free, the oldest first
    ]


# Objects.


class Object(Structure):
    _fields_ = [("references", I64), ("type", PTR)]


class Descriptor(Structure):
    """A dtype object (PyArray_Descr): kind, type character, byte order, flags, type number."""

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
    """A 0-dim array to native code: its data is the number stored behind it."""

    _fields_ = [("array", ArrayObject), ("number", I64)]


FACTS = ~(0xFF << 24)  # mask of Descriptor.facts: the bytes that tell dtypes apart
PLAIN = 0x101  # array flags: C-contiguous and aligned
NEW = PLAIN | 0x400  # writable, too
OWNING = 0x4
NEW_FROM_DESCRIPTOR = 94  # index in NumPy's table of C functions: PyArray_NewFromDescr


def _find_data_offset() -> int | None:
    """Find the offset of an array object's data pointer by inspecting objects; None if that fails."""
    probe = np.empty(3)
    data = probe.__array_interface__["data"][0]
    for offset in (16, 24, 32, 40):
        if I64.from_address(id(probe) + offset).value == data:
            return offset
    return None


DATA_OFFSET = _find_data_offset()
HAS_ENTRY = ArrayObject.data.offset == DATA_OFFSET

# The native entry of a call. Guards and output are sequences of records.


class Plan(Structure):
    """What the native entry needs for its calls: guards of the arguments, places of the parts, the output."""

    _fields_ = [
        ("busy", I64),
        ("context", to(Context)),
        ("run", PTR),
        ("pool_at", to(to(PoolBlock))),  # place of the address of the process's pool
        ("guards", PTR),
        ("results", PTR),
        ("result_count", I64),
        ("first_result", I64),  # its slot in ctx
        ("output", PTR),
        ("held", to(PTR)),  # objects that the call needs until it ends
        ("held_count", I64),
        ("problem", to(Problem)),
        ("on_error", PTR),  # called if the kernels noted a problem
        ("seed", PTR),  # called for the seed; null if the graph has none
        ("seed_slot", I64),
        ("borrowed", I64),  # bytes of temporaries that are allocated for the call
        ("arena_bytes", I64),
        ("state", PTR),  # of the allocator, with its functions
        ("allocate", PTR),
        ("release", PTR),
        ("handler", PTR),
        ("numpy", to(PTR)),  # the table of NumPy's functions
        ("otherwise", PTR),  # returned if Python must make the call (NotImplemented)
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
    """Guard of an argument, or of a part of the output. word: an object, a result's number, or a container's length. A
    container is followed by the records of its items; in a dict, a key precedes each."""

    _fields_ = [("kind", I64), ("word", I64)]


class ArrayGuard(Structure):
    """Guard of an array; the array's sizes follow it."""

    _fields_ = [
        ("kind", I64),
        ("slot", I64),  # in ctx
        ("dtype", I64),  # its facts
        ("rank", I64),
        ("number", I64),  # kind of Python number that is taken instead
        ("stand_in", to(ArrayObject)),  # receives that number
    ]


class Result(Structure):
    """Result array; its sizes and strides follow it."""

    _fields_ = [("rank", I64), ("descriptor", PTR), ("bytes", I64)]


def words(*records: Structure) -> list[int]:
    """Return records as 64-bit words."""
    return [word for record in records for word in (I64 * (sizeof(record) // 8)).from_buffer(record)]
