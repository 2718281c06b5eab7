"""The code of the allocator as LLVM text: see allocator.py. It is loaded only to compile it."""

from __future__ import annotations

from .allocator import ALIGNMENT, BLOCKS, COUNT, EARLIER, LARGE, MOST, MOST_BLOCKS, PEAK, SINCE, SIZES, USED, WAITING
from .runtime import PAGE

HUGE = 1 << 21
PERIOD = 1_000_000_000  # ns; the largest use of this period and of the one before counts

# Mapped data starts on a page: then data of all arrays is aligned in the same way, and no store looks like the load of
# a neighbour to the processor, which compares 12 bits of the address.
#
# A block's size stands in a table, not before the block, where it would take a page. At most one block starts in any
# LARGE bytes of addresses, so these are the table's index, in two steps as the processor's own tables: a table of
# tables, which are mapped when they are needed. A word has the size and, in the bits that are zero in sizes, which page
# of the LARGE bytes the block starts at.
STEP = LARGE.bit_length() - 1
INDEX = 15  # bits of each of the two indices: 48 of addresses, which is what Linux gives to those who ask for no more
TABLE = 8 << INDEX
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
  call void @unmap(ptr %state, ptr %block)
  br label %look
done:
  ret void
}}

; A table, from where its address stands; a new one if there is none. Held.
define internal ptr @table_at(ptr %at) #0 {{
entry:
  %known = load atomic ptr, ptr %at monotonic, align 8
  %missing = icmp eq ptr %known, null
  br i1 %missing, label %new, label %found
found:
  ret ptr %known
new:
  %made = call ptr @mmap(ptr null, i64 {TABLE}, i32 3, i32 34, i32 -1, i64 0)
  %number = ptrtoint ptr %made to i64
  %failed = icmp eq i64 %number, -1
  br i1 %failed, label %nothing, label %keep
keep:
  store atomic ptr %made, ptr %at release, align 8
  ret ptr %made
nothing:
  ret ptr null
}}

define internal ptr @word_in(ptr %table, i64 %address) #0 {{
  %all = lshr i64 %address, {STEP}
  %index = and i64 %all, {(1 << INDEX) - 1}
  %at = getelementptr i64, ptr %table, i64 %index
  ret ptr %at
}}

define internal i64 @page_bits(i64 %address) #0 {{
  %page = lshr i64 %address, 12
  %bits = and i64 %page, {(LARGE >> 12) - 1}
  ret i64 %bits
}}

; Remember the size of a mapped block; false if there is no memory for that.
define internal i1 @note(ptr %state, ptr %block, i64 %size) #0 {{
entry:
  %address = ptrtoint ptr %block to i64
  %first = lshr i64 %address, {STEP + INDEX}
  %beyond = icmp uge i64 %first, {1 << INDEX}
  br i1 %beyond, label %refuse, label %look
refuse:
  ret i1 false
look:
  call void @hold(ptr %state)
  %tables.at = getelementptr i64, ptr %state, i64 {SIZES}
  %tables = call ptr @table_at(ptr %tables.at)
  %no.tables = icmp eq ptr %tables, null
  br i1 %no.tables, label %short, label %second
second:
  %table.at = getelementptr ptr, ptr %tables, i64 %first
  %table = call ptr @table_at(ptr %table.at)
  %no.table = icmp eq ptr %table, null
  br i1 %no.table, label %short, label %store
short:
  call void @unhold(ptr %state)
  ret i1 false
store:
  call void @unhold(ptr %state)
  %at = call ptr @word_in(ptr %table, i64 %address)
  %bits = call i64 @page_bits(i64 %address)
  %word = or i64 %size, %bits
  store atomic i64 %word, ptr %at monotonic, align 8
  ret i1 true
}}

; Where the size of a block stands, if it is a mapped one; else null. What others map meanwhile starts elsewhere.
define internal ptr @noted(ptr %state, ptr %block) #0 {{
entry:
  %address = ptrtoint ptr %block to i64
  %low = and i64 %address, {(1 << 12) - 1}
  %between = icmp ne i64 %low, 0
  %first = lshr i64 %address, {STEP + INDEX}
  %beyond = icmp uge i64 %first, {1 << INDEX}
  %refused = or i1 %between, %beyond
  br i1 %refused, label %no, label %look
look:
  %tables.at = getelementptr i64, ptr %state, i64 {SIZES}
  %tables = load atomic ptr, ptr %tables.at acquire, align 8
  %no.tables = icmp eq ptr %tables, null
  br i1 %no.tables, label %no, label %second
second:
  %table.at = getelementptr ptr, ptr %tables, i64 %first
  %table = load atomic ptr, ptr %table.at acquire, align 8
  %no.table = icmp eq ptr %table, null
  br i1 %no.table, label %no, label %compare
compare:
  %at = call ptr @word_in(ptr %table, i64 %address)
  %word = load atomic i64, ptr %at monotonic, align 8
  %there = icmp ne i64 %word, 0
  %word.bits = and i64 %word, {(1 << 12) - 1}
  %bits = call i64 @page_bits(i64 %address)
  %starts.here = icmp eq i64 %word.bits, %bits
  %mapped = and i1 %there, %starts.here
  br i1 %mapped, label %yes, label %no
yes:
  ret ptr %at
no:
  ret ptr null
}}

; The size of a mapped block; 0 of one from the C library.
define internal i64 @mapped_size(ptr %state, ptr %block) #0 {{
entry:
  %at = call ptr @noted(ptr %state, ptr %block)
  %other = icmp eq ptr %at, null
  br i1 %other, label %none, label %some
none:
  ret i64 0
some:
  %word = load atomic i64, ptr %at monotonic, align 8
  %size = and i64 %word, -{1 << 12}
  ret i64 %size
}}

define internal void @unmap(ptr %state, ptr %block) #0 {{
  %at = call ptr @noted(ptr %state, ptr %block)
  %word = load atomic i64, ptr %at monotonic, align 8
  %size = and i64 %word, -{1 << 12}
  store atomic i64 0, ptr %at monotonic, align 8
  %ignored = call i32 @munmap(ptr %block, i64 %size)
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

define internal ptr @map(ptr %state, i64 %size) #0 {{
entry:
  %long = icmp sge i64 %size, {HUGE}
  %slack = select i1 %long, i64 {HUGE}, i64 0
  %length = add i64 %size, %slack
  %start = call ptr @mmap(ptr null, i64 %length, i32 3, i32 34, i32 -1, i64 0)
  %number = ptrtoint ptr %start to i64
  %failed = icmp eq i64 %number, -1
  br i1 %failed, label %nothing, label %mapped
mapped:
  br i1 %long, label %huge, label %done
huge:
  ; Huge pages start at multiples of their size; what lies around goes back.
  %up = add i64 %number, {HUGE - 1}
  %aligned = and i64 %up, -{HUGE}
  %skipped = sub i64 %aligned, %number
  %block.huge = getelementptr i8, ptr %start, i64 %skipped
  %has.front = icmp sgt i64 %skipped, 0
  br i1 %has.front, label %front, label %back
front:
  %ignored.front = call i32 @munmap(ptr %start, i64 %skipped)
  br label %back
back:
  %behind = sub i64 {HUGE}, %skipped
  %end = getelementptr i8, ptr %block.huge, i64 %size
  %ignored.back = call i32 @munmap(ptr %end, i64 %behind)
  %ignored.advice = call i32 @madvise(ptr %block.huge, i64 %size, i32 14)
  br label %done
done:
  %block = phi ptr [ %start, %mapped ], [ %block.huge, %back ]
  %remembered = call i1 @note(ptr %state, ptr %block, i64 %size)
  br i1 %remembered, label %made, label %undo
made:
  ret ptr %block
undo:
  %ignored.undo = call i32 @munmap(ptr %block, i64 %size)
  br label %nothing
nothing:
  ret ptr null
}}

define internal ptr @allocate(ptr %state, i64 %wanted) #0 {{
entry:
  %large = icmp uge i64 %wanted, {LARGE}
  br i1 %large, label %mapped, label %short.block
short.block:
  ; From the C library, with room to align it; before it stand its size and where it starts.
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
  %kept.size = call i64 @mapped_size(ptr %state, ptr %kept)
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
  %new = call ptr @map(ptr %state, i64 %size)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %short, label %made
made:
  ret ptr %new
short:
  call void @empty(ptr %state)
  %last = call ptr @map(ptr %state, i64 %size)
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
  %mapped.size = call i64 @mapped_size(ptr %state, ptr %old)
  %mapped = icmp ne i64 %mapped.size, 0
  br i1 %mapped, label %copy, label %short.block
short.block:
  %size.at = getelementptr i8, ptr %old, i64 -16
  %short.size = load i64, ptr %size.at
  br label %copy
copy:
  %size = phi i64 [ %mapped.size, %move ], [ %short.size, %short.block ]
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
  %size = call i64 @mapped_size(ptr %state, ptr %block)
  %mapped = icmp ne i64 %size, 0
  br i1 %mapped, label %map.block, label %short.block
short.block:
  %start.at = getelementptr i8, ptr %block, i64 -8
  %start = load ptr, ptr %start.at
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
  call void @unmap(ptr %state, ptr %oldest)
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
