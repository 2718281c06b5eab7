"""Native code of the allocator (see allocator.py). This module is imported only to compile it.

Mapped data is page-aligned: elements of the same index have the same low 12 address bits in all arrays, so no store
aliases the load of a neighbouring element for the processor, which compares these bits (4K aliasing).

A block's size is kept in a table, not before the block, where it would take a page. At most one block starts in any
`large` bytes of addresses, so `address / large` is the index, in two levels as in page tables; second-level tables are
mapped on demand. A word has the size and, in the bits that are zero in sizes, the number of the page within the
`large` bytes at which the block starts.
"""

from __future__ import annotations

from typing import Any

from ....kernels.machine import DEFAULT
from ..abi import I1, I32, I64, NULL, PTR, U64, to
from ..llvm.writer import Function, Unit, extern
from .records import ALIGNMENT, ALLOCATOR, PAGE, AllocatorState, Linux

STEP = ALLOCATOR.large.bit_length() - 1
INDEX = 15  # bits of each level's index; together 48-bit addresses, the most that Linux maps without a hint
FRAME = DEFAULT.page  # bytes; sizes are multiples of it
FRESH = (3, 34, -1, 0)  # mmap: PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, no file

STATE = to(AllocatorState)
WORD = to(I64)

unit = Unit()
malloc = extern("malloc", PTR, U64)
free = extern("free", None, PTR)
mmap = extern("mmap", PTR, PTR, I64, I32, I32, I32, I64)
munmap = extern("munmap", I32, PTR, I64)
madvise = extern("madvise", I32, PTR, I64, I32)
sched_yield = extern("sched_yield", I32)
clock_gettime = extern("clock_gettime", I32, I32, PTR)
memmove = extern("memmove", PTR, PTR, PTR, I64)
memset = extern("memset", PTR, PTR, I32, U64)
leading_zeros = extern("llvm.ctlz.i64", I64, I64, I1)


@unit.function(None, state=STATE)
def hold(f: Function, state: Any) -> None:
    with f.while_(lambda: ~state.atomic("lock").replace(0, 1)):
        sched_yield(f)


@unit.function(None, state=STATE)
def unhold(f: Function, state: Any) -> None:
    state.atomic("lock").store(0)


@unit.function(PTR, state=STATE, position=I64)
def take(f: Function, state: Any, position: Any) -> None:
    """Remove the block at a position from the free list; return its start."""
    at = state.blocks[position]
    start = at.start
    state.waiting = state.waiting - at.size
    state.count = state.count - 1
    memmove(f, at, at + 1, (state.count - position) * 16)
    f.return_(start)


@unit.function(None, state=STATE, most=I64)
def shrink(f: Function, state: Any, most: Any) -> None:
    """Unmap the oldest free blocks until at most so many bytes are free."""
    with f.while_(lambda: (state.waiting > most) & (state.waiting > 0)):
        unmap(f, state, take(f, state, 0))


@unit.function(PTR, at=to(PTR))
def table_at(f: Function, at: Any) -> None:
    """Load the address of a table; map a new one if there is none. The lock is held."""
    known = at.atomic().load("monotonic")
    with f.if_(known != NULL):
        f.return_(known)
    made = mmap(f, None, 8 << INDEX, *FRESH)
    f.return_if(made.as_(I64) == -1, NULL)
    at.atomic().store(made, "release")
    f.return_(made)


@unit.function(WORD, table=WORD, address=U64)
def word_in(f: Function, table: Any, address: Any) -> None:
    f.return_(table + ((address >> STEP) & (1 << INDEX) - 1))


@unit.function(I64, address=U64)
def page_bits(f: Function, address: Any) -> None:
    f.return_((address >> 12) & (ALLOCATOR.large >> 12) - 1)


@unit.function(I1, state=STATE, block=PTR, size=I64)
def note(f: Function, state: Any, block: Any, size: Any) -> None:
    """Record the size of a mapped block; false if there is no memory for the table."""
    address = block.as_(U64)
    first = address >> STEP + INDEX
    f.return_if(first >= 1 << INDEX, False)
    hold(f, state)
    v = f.variables
    v.table = table_at(f, state.address("tables"))
    with f.if_(v.table != NULL):
        v.table = table_at(f, v.table.as_(to(PTR)) + first)
    unhold(f, state)
    f.return_if(v.table == NULL, False)
    word_in(f, v.table, address).atomic().store(size | page_bits(f, address), "monotonic")
    f.return_(True)


@unit.function(WORD, state=STATE, block=PTR)
def noted(f: Function, state: Any, block: Any) -> None:
    """Find the table word of a mapped block, else null. Blocks mapped concurrently start at other addresses."""
    address = block.as_(U64)
    first = address >> STEP + INDEX
    f.return_if((address & FRAME - 1) != 0, NULL)
    f.return_if(first >= 1 << INDEX, NULL)
    tables = state.atomic("tables").load("acquire")
    f.return_if(tables == NULL, NULL)
    table = (tables + first).atomic().load("acquire")
    f.return_if(table == NULL, NULL)
    at = word_in(f, table, address)
    word = at.atomic().load("monotonic")
    f.return_if(word == 0, NULL)
    f.return_if((word & FRAME - 1) != page_bits(f, address), NULL)
    f.return_(at)


@unit.function(I64, state=STATE, block=PTR)
def mapped_size(f: Function, state: Any, block: Any) -> None:
    """Return the size of a mapped block; 0 for one from the C library."""
    at = noted(f, state, block)
    f.return_if(at == NULL, 0)
    f.return_(at.atomic().load("monotonic") & -FRAME)


@unit.function(None, state=STATE, block=PTR)
def unmap(f: Function, state: Any, block: Any) -> None:
    at = noted(f, state, block).atomic()
    size = at.load("monotonic") & -FRAME
    at.store(0, "monotonic")
    munmap(f, block, size)


@unit.function(I64, state=STATE)
def allowed(f: Function, state: Any) -> None:
    """Compute how many bytes may be free, from the current use and the recent peak."""
    used, clock = state.used, f.local(I64 * 2)
    clock_gettime(f, Linux.CLOCK_MONOTONIC, clock)
    now = clock[0] * 1_000_000_000 + clock[1]
    passed = now - state.since
    with f.if_(passed > ALLOCATOR.period):
        state.earlier = f.select(passed > 2 * ALLOCATOR.period, used, state.peak)
        state.peak = used
        state.since = now
    state.peak = f.max(state.peak, used)
    high = f.max(state.peak, state.earlier)
    f.return_(f.min(high * 2 - used, state.most))


@unit.function(I64, size=I64)
def rounded(f: Function, size: Any) -> None:
    """Round a length up to its size class; the classes are steps of an eighth."""
    least = f.max(size, PAGE)
    eighth = 1 << (60 - leading_zeros(f, least, True))
    grain = f.max(eighth, PAGE)
    f.return_((least + (grain - 1)) & -grain)


@unit.function(PTR, state=STATE, size=I64)
def reuse(f: Function, state: Any, size: Any) -> None:
    """Take a free block of at least this size and at most twice: the smallest (best fit), the youngest of equals."""
    v = f.variables
    v.best, v.best_size, v.at = -1, size * 2 + 1, state.count - 1
    with f.while_(lambda: (v.at >= 0) & (v.best_size != size)):
        here = state.blocks[v.at].size
        better = (here >= size) & (here < v.best_size)
        v.best, v.best_size = f.select(better, v.at, v.best), f.select(better, here, v.best_size)
        v.at = v.at - 1
    f.return_if(v.best < 0, NULL)
    f.return_(take(f, state, v.best))


@unit.function(PTR, state=STATE, size=I64)
def map_block(f: Function, state: Any, size: Any) -> None:
    v = f.variables
    v.block = start = mmap(f, None, size + f.select(size >= ALLOCATOR.huge, ALLOCATOR.huge, 0), *FRESH)
    f.return_if(start.as_(I64) == -1, NULL)
    with f.if_(size >= ALLOCATOR.huge):
        # Huge pages are aligned to their size; the memory around is unmapped.
        number = start.as_(I64)
        skipped = ((number + (ALLOCATOR.huge - 1)) & -ALLOCATOR.huge) - number
        v.block = start + skipped
        with f.if_(skipped > 0):
            munmap(f, start, skipped)
        munmap(f, v.block + size, ALLOCATOR.huge - skipped)
        madvise(f, v.block, size, Linux.ADVISE_HUGE)
    with f.if_(~note(f, state, v.block, size)):
        munmap(f, v.block, size)
        v.block = NULL
    f.return_(v.block)


@unit.function(PTR, wanted=U64)
def allocate_short(f: Function, wanted: Any) -> None:
    """Allocate from the C library, with room for alignment; size and start of the allocation are stored before it."""
    start = malloc(f, wanted + (ALIGNMENT + 16))
    f.return_if(start == NULL, NULL)
    aligned = (start.as_(U64) + (ALIGNMENT + 15)) & -ALIGNMENT
    block = aligned.as_(to(U64))
    block[-2] = wanted
    block[-1] = start.as_(U64)
    f.return_(block)


@unit.function(PTR, public=True, state=STATE, wanted=U64)
def allocate(f: Function, state: Any, wanted: Any) -> None:
    with f.if_(wanted < ALLOCATOR.large):
        f.return_(allocate_short(f, wanted))
    size = rounded(f, wanted)
    hold(f, state)
    kept = reuse(f, state, size)
    with f.if_(kept != NULL):
        state.used = state.used + mapped_size(f, state, kept)
        allowed(f, state)
        unhold(f, state)
        f.return_(kept)
    state.used = state.used + size
    shrink(f, state, allowed(f, state))
    unhold(f, state)
    v = f.variables
    v.block = map_block(f, state, size)
    with f.if_(v.block == NULL):
        give_back(f, state)
        v.block = map_block(f, state, size)
        with f.if_(v.block == NULL):
            hold(f, state)
            state.used = state.used - size
            unhold(f, state)
    f.return_(v.block)


@unit.function(PTR, public=True, state=STATE, count=U64, each=U64)
def allocate_zeros(f: Function, state: Any, count: Any, each: Any) -> None:
    size = count * each
    with f.if_(each != 0):
        f.return_if(size // each != count, NULL)
    block = allocate(f, state, size)
    with f.if_(block != NULL):
        memset(f, block, 0, size)
    f.return_(block)


@unit.function(PTR, public=True, state=STATE, old=PTR, size=U64)
def reallocate(f: Function, state: Any, old: Any, size: Any) -> None:
    block = allocate(f, state, size)
    with f.if_((block != NULL) & (old != NULL)):
        v = f.variables
        v.before = mapped_size(f, state, old)
        with f.if_(v.before == 0):
            v.before = old.as_(WORD)[-2]
        memmove(f, block, old, f.min(v.before.as_(U64), size).as_(I64))
        release(f, state, old, v.before)
    f.return_(block)


@unit.function(None, public=True, state=STATE, block=PTR, told=I64)
def release(f: Function, state: Any, block: Any, told: Any) -> None:
    f.return_if(block == NULL)
    size = mapped_size(f, state, block)
    with f.if_(size == 0):
        free(f, block.as_(to(PTR))[-1])
        f.return_()
    hold(f, state)
    room = allowed(f, state)
    state.used = state.used - size
    with f.if_(state.count == ALLOCATOR.blocks):
        unmap(f, state, take(f, state, 0))
    last = state.blocks[state.count]
    last.start = block
    last.size = size
    state.count = state.count + 1
    state.waiting = state.waiting + size
    shrink(f, state, f.min(room + size, state.most))
    unhold(f, state)


@unit.function(None, public=True, state=STATE)
def give_back(f: Function, state: Any) -> None:
    """Unmap all free blocks."""
    hold(f, state)
    shrink(f, state, 0)
    unhold(f, state)
