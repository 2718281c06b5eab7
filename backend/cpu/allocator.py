"""Memory of arrays: aligned, and that of large ones kept for the next array instead of given back to the system.

A fresh page costs a fault and is filled with zeros first: for a large result that takes several times as long as
writing it. So blocks from LARGE bytes up are mapped here, on huge pages where they are long enough, and a block
whose array has died waits for the next array of about its size. Smaller blocks come from the C library; they are
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
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .control_group import limits
from .once import Once
from .runtime import HAS_ALLOCATOR, runtime

MIDDLE = 1 << 10  # bytes from which an array is aligned
LARGE = 1 << 18  # bytes from which its memory is mapped, and kept
ALIGNMENT = 64
PAGE, HUGE = mmap.PAGESIZE, 1 << 21  # 64 KB pages on some ARM machines: parts of a page cannot be given back
MOST_BLOCKS = 1024  # that wait
PART = 8  # of the machine's memory that may wait: one in so many
PERIOD = 1_000_000_000  # ns; the largest use of this period and of the one before counts

# Slots of the allocator's state. Behind them the blocks that wait, the oldest first: address and size.
LOCK, COUNT, WAITING, USED, PEAK, EARLIER, SINCE, MOST, BLOCKS = range(9)

# A block's size stands in a page before it, so that data starts on a page: then data of all arrays is aligned in the
# same way, and no store looks like the load of a neighbour to the processor, which compares 12 bits of the address.
TEXT = f"""
@table = constant [5 x ptr] [ptr @allocate, ptr @allocate_zeros, ptr @reallocate, ptr @release, ptr @empty]

define internal void @hold(ptr %state) #0 {{
entry:
  br label %try
try:
  %taken = cmpxchg ptr %state, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %done, label %busy
busy:
  %ignored = call i32 @sched_yield()
  br label %try
done:
  ret void
}}

define internal void @unhold(ptr %state) #0 {{
  store atomic i64 0, ptr %state seq_cst, align 8
  ret void
}}

; The block at a position leaves those that wait.
define internal ptr @take(ptr %state, i64 %position) #0 {{
  %blocks = getelementptr i64, ptr %state, i64 {BLOCKS}
  %at = getelementptr [2 x i64], ptr %blocks, i64 %position
  %block = load ptr, ptr %at
  %size.at = getelementptr i64, ptr %at, i64 1
  %size = load i64, ptr %size.at
  %waiting.at = getelementptr i64, ptr %state, i64 {WAITING}
  %waiting = load i64, ptr %waiting.at
  %less = sub i64 %waiting, %size
  store i64 %less, ptr %waiting.at
  %count.at = getelementptr i64, ptr %state, i64 {COUNT}
  %count = load i64, ptr %count.at
  %left = sub i64 %count, 1
  store i64 %left, ptr %count.at
  %behind = sub i64 %left, %position
  %bytes = mul i64 %behind, 16
  %from = getelementptr [2 x i64], ptr %at, i64 1
  call void @llvm.memmove.p0.p0.i64(ptr %at, ptr %from, i64 %bytes, i1 false)
  ret ptr %block
}}

; Give back the oldest until so many bytes wait at most.
define internal void @shrink(ptr %state, i64 %most) #0 {{
entry:
  %waiting.at = getelementptr i64, ptr %state, i64 {WAITING}
  br label %look
look:
  %waiting = load i64, ptr %waiting.at
  %over = icmp sgt i64 %waiting, %most
  %some = icmp sgt i64 %waiting, 0
  %go = and i1 %over, %some
  br i1 %go, label %drop, label %done
drop:
  %block = call ptr @take(ptr %state, i64 0)
  call void @unmap(ptr %block)
  br label %look
done:
  ret void
}}

define internal void @unmap(ptr %block) #0 {{
  %size.at = getelementptr i8, ptr %block, i64 -16
  %size = load i64, ptr %size.at
  %start = getelementptr i8, ptr %block, i64 -{PAGE}
  %length = add i64 %size, {PAGE}
  %ignored = call i32 @munmap(ptr %start, i64 %length)
  ret void
}}

; The bytes that may wait, from what is in use and was in use of late.
define internal i64 @allowed(ptr %state) #0 {{
entry:
  %clock = alloca [2 x i64], align 8
  %peak.at = getelementptr i64, ptr %state, i64 {PEAK}
  %earlier.at = getelementptr i64, ptr %state, i64 {EARLIER}
  %since.at = getelementptr i64, ptr %state, i64 {SINCE}
  %used.at = getelementptr i64, ptr %state, i64 {USED}
  %most.at = getelementptr i64, ptr %state, i64 {MOST}
  %used = load i64, ptr %used.at
  %ignored = call i32 @clock_gettime(i32 1, ptr %clock)
  %seconds = load i64, ptr %clock
  %rest.at = getelementptr i64, ptr %clock, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %since = load i64, ptr %since.at
  %passed = sub i64 %now, %since
  %late = icmp sgt i64 %passed, {PERIOD}
  br i1 %late, label %turn, label %sum
turn:
  %last = load i64, ptr %peak.at
  %longer = icmp sgt i64 %passed, {2 * PERIOD}
  %before = select i1 %longer, i64 %used, i64 %last
  store i64 %before, ptr %earlier.at
  store i64 %used, ptr %peak.at
  store i64 %now, ptr %since.at
  br label %sum
sum:
  %old.peak = load i64, ptr %peak.at
  %peak = call i64 @llvm.smax.i64(i64 %old.peak, i64 %used)
  store i64 %peak, ptr %peak.at
  %earlier = load i64, ptr %earlier.at
  %high = call i64 @llvm.smax.i64(i64 %peak, i64 %earlier)
  %twice = mul i64 %high, 2
  %room = sub i64 %twice, %used
  %most = load i64, ptr %most.at
  %allowed = call i64 @llvm.smin.i64(i64 %room, i64 %most)
  ret i64 %allowed
}}

; Lengths in steps of an eighth: blocks of about the same size serve each other.
define internal i64 @rounded(i64 %size) #0 {{
  %least = call i64 @llvm.smax.i64(i64 %size, i64 {PAGE})
  %zeros = call i64 @llvm.ctlz.i64(i64 %least, i1 true)
  %exponent = sub i64 60, %zeros
  %step = shl i64 1, %exponent
  %grain = call i64 @llvm.smax.i64(i64 %step, i64 {PAGE})
  %last = sub i64 %grain, 1
  %over = add i64 %least, %last
  %mask = sub i64 0, %grain
  %round = and i64 %over, %mask
  ret i64 %round
}}

; A block that waits, of at least this size and at most twice: the smallest of them, the youngest of equals.
define internal ptr @reuse(ptr %state, i64 %size) #0 {{
entry:
  %count.at = getelementptr i64, ptr %state, i64 {COUNT}
  %count = load i64, ptr %count.at
  %blocks = getelementptr i64, ptr %state, i64 {BLOCKS}
  %limit = mul i64 %size, 2
  %beyond = add i64 %limit, 1
  br label %look
look:
  %position = phi i64 [ %count, %entry ], [ %here, %next ]
  %best = phi i64 [ -1, %entry ], [ %best.now, %next ]
  %best.size = phi i64 [ %beyond, %entry ], [ %size.now, %next ]
  %here = sub i64 %position, 1
  %end = icmp slt i64 %here, 0
  %exact = icmp eq i64 %best.size, %size
  %stop = or i1 %end, %exact
  br i1 %stop, label %found, label %next
next:
  %at = getelementptr [2 x i64], ptr %blocks, i64 %here
  %size.at = getelementptr i64, ptr %at, i64 1
  %block.size = load i64, ptr %size.at
  %enough = icmp sge i64 %block.size, %size
  %smaller = icmp slt i64 %block.size, %best.size
  %better = and i1 %enough, %smaller
  %best.now = select i1 %better, i64 %here, i64 %best
  %size.now = select i1 %better, i64 %block.size, i64 %best.size
  br label %look
found:
  %none = icmp slt i64 %best, 0
  br i1 %none, label %nothing, label %some
some:
  %block = call ptr @take(ptr %state, i64 %best)
  ret ptr %block
nothing:
  ret ptr null
}}

define internal ptr @map(i64 %size) #0 {{
entry:
  %long = icmp sge i64 %size, {HUGE}
  %slack = select i1 %long, i64 {HUGE}, i64 0
  %with.page = add i64 %size, {PAGE}
  %length = add i64 %with.page, %slack
  %start = call ptr @mmap(ptr null, i64 %length, i32 3, i32 34, i32 -1, i64 0)
  %number = ptrtoint ptr %start to i64
  %failed = icmp eq i64 %number, -1
  br i1 %failed, label %nothing, label %mapped
nothing:
  ret ptr null
mapped:
  %first = getelementptr i8, ptr %start, i64 {PAGE}
  br i1 %long, label %huge, label %done
huge:
  ; Huge pages start at multiples of their size; what lies around goes back.
  %first.number = ptrtoint ptr %first to i64
  %up = add i64 %first.number, {HUGE - 1}
  %aligned = and i64 %up, -{HUGE}
  %skipped = sub i64 %aligned, %first.number
  %block.huge = getelementptr i8, ptr %first, i64 %skipped
  %has.front = icmp sgt i64 %skipped, 0
  br i1 %has.front, label %front, label %back
front:
  %ignored.front = call i32 @munmap(ptr %start, i64 %skipped)
  br label %back
back:
  %behind = sub i64 {HUGE}, %skipped
  %has.back = icmp sgt i64 %behind, 0
  br i1 %has.back, label %cut, label %advise
cut:
  %end = getelementptr i8, ptr %block.huge, i64 %size
  %ignored.back = call i32 @munmap(ptr %end, i64 %behind)
  br label %advise
advise:
  %ignored.advice = call i32 @madvise(ptr %block.huge, i64 %size, i32 14)
  br label %done
done:
  %block = phi ptr [ %first, %mapped ], [ %block.huge, %advise ]
  %size.at = getelementptr i8, ptr %block, i64 -16
  store i64 %size, ptr %size.at
  ret ptr %block
}}

define internal ptr @allocate(ptr %state, i64 %wanted) #0 {{
entry:
  %large = icmp uge i64 %wanted, {LARGE}
  br i1 %large, label %mapped, label %short.block
short.block:
  ; From the C library, with room to align it; where it starts stands behind its size. Mapped blocks have 0 there.
  %with.room = add i64 %wanted, {ALIGNMENT + 16}
  %room.start = call ptr @malloc(i64 %with.room)
  %no.room = icmp eq ptr %room.start, null
  br i1 %no.room, label %no.block, label %align
no.block:
  ret ptr null
align:
  %start.number = ptrtoint ptr %room.start to i64
  %last.number = add i64 %start.number, {ALIGNMENT + 15}
  %aligned = and i64 %last.number, -{ALIGNMENT}
  %offset = sub i64 %aligned, %start.number
  %small = getelementptr i8, ptr %room.start, i64 %offset
  %small.size.at = getelementptr i8, ptr %small, i64 -16
  store i64 %wanted, ptr %small.size.at
  %small.start.at = getelementptr i8, ptr %small, i64 -8
  store ptr %room.start, ptr %small.start.at
  ret ptr %small
mapped:
  %size = call i64 @rounded(i64 %wanted)
  %used.at = getelementptr i64, ptr %state, i64 {USED}
  call void @hold(ptr %state)
  %kept = call ptr @reuse(ptr %state, i64 %size)
  %none = icmp eq ptr %kept, null
  br i1 %none, label %fresh, label %again
again:
  %kept.at = getelementptr i8, ptr %kept, i64 -16
  %kept.size = load i64, ptr %kept.at
  %used.again = load i64, ptr %used.at
  %more.again = add i64 %used.again, %kept.size
  store i64 %more.again, ptr %used.at
  %ignored = call i64 @allowed(ptr %state)
  call void @unhold(ptr %state)
  ret ptr %kept
fresh:
  %used = load i64, ptr %used.at
  %more = add i64 %used, %size
  store i64 %more, ptr %used.at
  %room = call i64 @allowed(ptr %state)
  call void @shrink(ptr %state, i64 %room)
  call void @unhold(ptr %state)
  %new = call ptr @map(i64 %size)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %short, label %made
made:
  ret ptr %new
short:
  call void @empty(ptr %state)
  %last = call ptr @map(i64 %size)
  %hopeless = icmp eq ptr %last, null
  br i1 %hopeless, label %nothing, label %rescued
rescued:
  ret ptr %last
nothing:
  call void @hold(ptr %state)
  %used.then = load i64, ptr %used.at
  %less = sub i64 %used.then, %size
  store i64 %less, ptr %used.at
  call void @unhold(ptr %state)
  ret ptr null
}}

define internal ptr @allocate_zeros(ptr %state, i64 %count, i64 %each) #0 {{
entry:
  %product = call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %bytes = extractvalue {{ i64, i1 }} %product, 0
  %beyond = extractvalue {{ i64, i1 }} %product, 1
  br i1 %beyond, label %nothing, label %fits
fits:
  %block = call ptr @allocate(ptr %state, i64 %bytes)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %nothing, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %block, i8 0, i64 %bytes, i1 false)
  ret ptr %block
nothing:
  ret ptr null
}}

define internal ptr @reallocate(ptr %state, ptr %old, i64 %bytes) #0 {{
entry:
  %block = call ptr @allocate(ptr %state, i64 %bytes)
  %failed = icmp eq ptr %block, null
  %fresh = icmp eq ptr %old, null
  %done.now = or i1 %failed, %fresh
  br i1 %done.now, label %done, label %move
move:
  %size.at = getelementptr i8, ptr %old, i64 -16
  %size = load i64, ptr %size.at
  %common = call i64 @llvm.umin.i64(i64 %size, i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %block, ptr %old, i64 %common, i1 false)
  call void @release(ptr %state, ptr %old, i64 %size)
  br label %done
done:
  ret ptr %block
}}

define internal void @release(ptr %state, ptr %block, i64 %bytes) #0 {{
entry:
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %done, label %some
some:
  %size.at = getelementptr i8, ptr %block, i64 -16
  %size = load i64, ptr %size.at
  %start.at = getelementptr i8, ptr %block, i64 -8
  %start = load ptr, ptr %start.at
  %mapped = icmp eq ptr %start, null
  br i1 %mapped, label %map.block, label %short.block
short.block:
  call void @free(ptr %start)
  ret void
map.block:
  call void @hold(ptr %state)
  %room = call i64 @allowed(ptr %state)
  %used.at = getelementptr i64, ptr %state, i64 {USED}
  %used = load i64, ptr %used.at
  %less = sub i64 %used, %size
  store i64 %less, ptr %used.at
  %count.at = getelementptr i64, ptr %state, i64 {COUNT}
  %count = load i64, ptr %count.at
  %full = icmp eq i64 %count, {MOST_BLOCKS}
  br i1 %full, label %displace, label %keep
displace:
  %oldest = call ptr @take(ptr %state, i64 0)
  call void @unmap(ptr %oldest)
  br label %keep
keep:
  %position = load i64, ptr %count.at
  %blocks = getelementptr i64, ptr %state, i64 {BLOCKS}
  %at = getelementptr [2 x i64], ptr %blocks, i64 %position
  store ptr %block, ptr %at
  %entry.size.at = getelementptr i64, ptr %at, i64 1
  store i64 %size, ptr %entry.size.at
  %next = add i64 %position, 1
  store i64 %next, ptr %count.at
  %waiting.at = getelementptr i64, ptr %state, i64 {WAITING}
  %waiting = load i64, ptr %waiting.at
  %more = add i64 %waiting, %size
  store i64 %more, ptr %waiting.at
  %with.own = add i64 %room, %size
  %most.at = getelementptr i64, ptr %state, i64 {MOST}
  %most = load i64, ptr %most.at
  %allowed = call i64 @llvm.smin.i64(i64 %with.own, i64 %most)
  call void @shrink(ptr %state, i64 %allowed)
  call void @unhold(ptr %state)
  br label %done
done:
  ret void
}}

define internal void @empty(ptr %state) #0 {{
  call void @hold(ptr %state)
  call void @shrink(ptr %state, i64 0)
  call void @unhold(ptr %state)
  ret void
}}

declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
declare {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64, i64)
attributes #0 = {{ nounwind }}
"""

_SET_HANDLER = 304  # its place in the table of NumPy's functions


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("state", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * 4),  # malloc, calloc, realloc, free
    ]


def numpy_functions() -> int:
    """The address of the table of NumPy's functions."""
    from numpy._core import multiarray  # type: ignore[attr-defined]

    capsule = multiarray._ARRAY_API
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer_of(capsule, None))


class Allocator:
    """The process's allocator of arrays. It lives as long as the process: arrays outlive the interpreter."""

    def __init__(self) -> None:
        table = (ctypes.c_void_p * 5).from_address(runtime()["table"])
        self.allocate, self.release = table[0] or 0, table[3] or 0
        self.state = (ctypes.c_int64 * (BLOCKS + 2 * MOST_BLOCKS + 2))()
        self.state[MOST] = memory_size() // PART
        handler = _Handler(b"smelt", 1, ctypes.addressof(self.state), (ctypes.c_void_p * 4)(*table[:4]))
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self._name = ctypes.create_string_buffer(b"mem_handler")
        self.handler = make(ctypes.addressof(handler), ctypes.cast(self._name, ctypes.c_char_p), None)
        for thing in (self.state, handler, self._name, self.handler):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
        place = numpy_functions() + 8 * _SET_HANDLER
        set_handler = ctypes.c_void_p.from_address(place).value
        self._set: Callable[[Any], Any] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(set_handler or 0)
        # With the interpreter's lock held: one who has the allocator's lock must never have to wait for that one.
        self._empty = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(table[4] or 0)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a forked child: if another thread was inside, which is not in this process, all that waited is lost."""
        if self.state[LOCK]:
            self.state[COUNT] = self.state[WAITING] = 0
            self.state[LOCK] = 0

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        before = self._set(self.handler)
        try:
            return np.empty(shape, dtype)
        finally:
            self._set(before)

    def give_back(self) -> None:
        self._empty(ctypes.addressof(self.state))

    @property
    def waiting(self) -> int:
        """Bytes that wait for another array."""
        return self.state[WAITING]

    @property
    def used(self) -> int:
        """Bytes of the large blocks of arrays that live."""
        return self.state[USED]


def _make() -> Allocator | None:
    return Allocator() if HAS_ALLOCATOR else None


allocator = Once(_make)  # None where there is none


def empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An array of any numbers; from MIDDLE bytes up, it starts at a multiple of ALIGNMENT."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < MIDDLE:
        return np.empty(shape, dtype)
    own = allocator()
    if own is not None:
        return own.empty(shape, dtype)
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
    for words in limits("memory", "memory.max", "memory.limit_in_bytes"):
        if words[0].isdigit():
            sizes.append(int(words[0]))
    return min(sizes)
