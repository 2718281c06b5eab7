"""The native code of backend/cpu/entry.py: from a call's arguments to its results.

A plan says what a call has to look like, where its parts are and what it returns. It, the guards, the results and
the output are lists of 64-bit words; what they mean is said here, where they are read.
"""

from __future__ import annotations

from .allocator import MIDDLE
from .context import ARENA, POOL, SCRATCH, WORKERS
from .threads import LIMIT, STARTED

# Words of a plan.
(
    BUSY, CONTEXT, RUN, POOL_AT, GUARDS, RESULTS, RESULT_COUNT, FIRST_RESULT, OUTPUT, HELD, HELD_COUNT, ERROR_AT,
    ON_ERROR, SEED, SEED_SLOT, BORROWED, ARENA_BYTES, STATE, ALLOCATE, RELEASE, HANDLER, NUMPY, OTHERWISE, TRUE,
    NDARRAY, TUPLE, LIST, DICT, FLOAT, INT, PLAN_WORDS,
) = range(31)  # fmt: skip

# Guards. An array: its kind, its slot in ctx, its dtype's word, its rank, the kind of number that will do instead and
# where that goes, its sizes. A tuple or list: its kind, its length, its items; a dict has a key before each. What is
# the same object or equals it: its kind and the object.
IS_ARRAY, IS_TUPLE, IS_LIST, IS_DICT, IS_SAME, IS_EQUAL = range(6)
ARRAY_WORDS = 6
NO_NUMBER, FLOAT_NUMBER, INT_NUMBER, BOOL_NUMBER = range(4)

# The output. A result: its kind and its number; the containers as in guards; any other object: its kind and itself.
PUT_RESULT, PUT_TUPLE, PUT_LIST, PUT_DICT, PUT_OBJECT = range(5)

TYPE_AT = 8  # in an object
# In an array object, behind the address of its data.
RANK_AT, SIZES_AT, DESCRIPTOR_AT, FLAGS_AT, HANDLER_AT = 8, 16, 40, 48, 72
PLAIN_FLAGS = 0x101  # contiguous and aligned
NEW_FLAGS = PLAIN_FLAGS | 0x400  # writable, too
OWNING = 0x4
DTYPE_AT = 24  # in a dtype: its kind, its letter, its byte order, something else, its number
DTYPE_MASK = ~(0xFF << 24)
NEW_FROM_DESCRIPTOR = 94  # its place in the table of NumPy's functions

_TEXT = """
define ptr @enter(ptr %self, ptr %arguments, i64 %count) #0 {{
entry:
  %cursor = alloca ptr, align 8
  %plan.at = getelementptr i8, ptr %self, i64 {DATA}
  %plan = load ptr, ptr %plan.at
  %otherwise.at = getelementptr i64, ptr %plan, i64 {OTHERWISE}
  %otherwise = load ptr, ptr %otherwise.at
  %two = icmp eq i64 %count, 2
  br i1 %two, label %try, label %refuse
try:
  %taken = cmpxchg ptr %plan, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %threads, label %refuse
refuse:
  call void @Py_IncRef(ptr %otherwise)
  ret ptr %otherwise

threads:
  ; The pool is the one that the frame was made for, its workers have started, and all have scratch memory.
  %ctx.at = getelementptr i64, ptr %plan, i64 {CONTEXT}
  %ctx = load ptr, ptr %ctx.at
  %held.count.at = getelementptr i64, ptr %plan, i64 {HELD_COUNT}
  store i64 0, ptr %held.count.at
  %pool.at.at = getelementptr i64, ptr %plan, i64 {POOL_AT}
  %pool.at = load ptr, ptr %pool.at.at
  %pool = load ptr, ptr %pool.at
  %frame.pool.at = getelementptr i64, ptr %ctx, i64 {POOL}
  %frame.pool = load ptr, ptr %frame.pool.at
  %same.pool = icmp eq ptr %pool, %frame.pool
  br i1 %same.pool, label %workers, label %release.refuse
workers:
  %limit.at = getelementptr i64, ptr %pool, i64 {LIMIT}
  %limit = load i64, ptr %limit.at
  %started.at = getelementptr i64, ptr %pool, i64 {STARTED}
  %started = load i64, ptr %started.at
  %workers.at = getelementptr i64, ptr %ctx, i64 {WORKERS}
  %room = load i64, ptr %workers.at
  %all.started = icmp sle i64 %limit, %started
  %all.room = icmp sle i64 %limit, %room
  %ready = and i1 %all.started, %all.room
  br i1 %ready, label %guards, label %release.refuse

guards:
  %guards.at = getelementptr i64, ptr %plan, i64 {GUARDS}
  %first = load ptr, ptr %guards.at
  %positional = load ptr, ptr %arguments
  %named.at = getelementptr ptr, ptr %arguments, i64 1
  %named = load ptr, ptr %named.at
  %second = call ptr @matches(ptr %plan, ptr %ctx, ptr %first, ptr %positional)
  %first.differs = icmp eq ptr %second, null
  br i1 %first.differs, label %release.refuse, label %guards.named
guards.named:
  %last = call ptr @matches(ptr %plan, ptr %ctx, ptr %second, ptr %named)
  %second.differs = icmp eq ptr %last, null
  br i1 %second.differs, label %release.refuse, label %seed
release.refuse:
  call void @let_go(ptr %plan)
  store atomic i64 0, ptr %plan seq_cst, align 8
  br label %refuse

seed:
  %seed.at = getelementptr i64, ptr %plan, i64 {SEED}
  %draw = load ptr, ptr %seed.at
  %seeded = icmp ne ptr %draw, null
  br i1 %seeded, label %draw.seed, label %provide
draw.seed:
  %state = call ptr @PyObject_CallNoArgs(ptr %draw)
  %no.state = icmp eq ptr %state, null
  br i1 %no.state, label %fail, label %keep.seed
keep.seed:
  %seed.slot.at = getelementptr i64, ptr %plan, i64 {SEED_SLOT}
  %seed.slot = load i64, ptr %seed.slot.at
  %seed.in.ctx = getelementptr i64, ptr %ctx, i64 %seed.slot
  store ptr %state, ptr %seed.in.ctx
  call void @keep(ptr %plan, ptr %state)
  br label %provide

provide:
  %done = call i1 @provide(ptr %plan, ptr %ctx)
  br i1 %done, label %run, label %fail

run:
  %run.at = getelementptr i64, ptr %plan, i64 {RUN}
  %native = load ptr, ptr %run.at
  %thread = call ptr @PyEval_SaveThread()
  call void %native(ptr %ctx)
  call void @PyEval_RestoreThread(ptr %thread)
  %error.at.at = getelementptr i64, ptr %plan, i64 {ERROR_AT}
  %error.at = load ptr, ptr %error.at.at
  %error = load i64, ptr %error.at
  %wrong = icmp ne i64 %error, 0
  br i1 %wrong, label %complain, label %output
output:
  %output.at = getelementptr i64, ptr %plan, i64 {OUTPUT}
  %output.words = load ptr, ptr %output.at
  store ptr %output.words, ptr %cursor
  %first.result.at = getelementptr i64, ptr %plan, i64 {FIRST_RESULT}
  %first.result = load i64, ptr %first.result.at
  %result.slots = getelementptr i64, ptr %ctx, i64 %first.result
  %answer = call ptr @build(ptr %result.slots, ptr %cursor)
  br label %leave
complain:
  %complaint.at = getelementptr i64, ptr %plan, i64 {ON_ERROR}
  %complaint = load ptr, ptr %complaint.at
  %ignored = call ptr @PyObject_CallNoArgs(ptr %complaint)
  %all.at = getelementptr i64, ptr %plan, i64 {RESULT_COUNT}
  %all = load i64, ptr %all.at
  call void @undo(ptr %plan, ptr %ctx, i64 %all)
  br label %fail
fail:
  br label %leave
leave:
  %returned = phi ptr [ %answer, %output ], [ null, %fail ]
  call void @give_back(ptr %plan, ptr %ctx)
  call void @let_go(ptr %plan)
  store atomic i64 0, ptr %plan seq_cst, align 8
  ret ptr %returned
}}

; The memory of temporaries, if it is borrowed, and the results.
define internal i1 @provide(ptr %plan, ptr %ctx) #0 {{
entry:
  %borrowed.at = getelementptr i64, ptr %plan, i64 {BORROWED}
  %borrowed = load i64, ptr %borrowed.at
  %borrows = icmp sgt i64 %borrowed, 0
  br i1 %borrows, label %borrow, label %results
borrow:
  %memory = call ptr @allocate(ptr %plan, i64 %borrowed)
  %arena.at = getelementptr i64, ptr %ctx, i64 {ARENA}
  store ptr %memory, ptr %arena.at
  %no.memory = icmp eq ptr %memory, null
  br i1 %no.memory, label %short, label %place
short:
  %ignored = call ptr @PyErr_NoMemory()
  br label %nothing
place:
  %arena.bytes.at = getelementptr i64, ptr %plan, i64 {ARENA_BYTES}
  %arena.bytes = load i64, ptr %arena.bytes.at
  %scratch = getelementptr i8, ptr %memory, i64 %arena.bytes
  %scratch.at = getelementptr i64, ptr %ctx, i64 {SCRATCH}
  store ptr %scratch, ptr %scratch.at
  br label %results

results:
  %results.at = getelementptr i64, ptr %plan, i64 {RESULTS}
  %result.words = load ptr, ptr %results.at
  %result.count.at = getelementptr i64, ptr %plan, i64 {RESULT_COUNT}
  %result.count = load i64, ptr %result.count.at
  %first.result.at = getelementptr i64, ptr %plan, i64 {FIRST_RESULT}
  %first.result = load i64, ptr %first.result.at
  %result.slots = getelementptr i64, ptr %ctx, i64 %first.result
  br label %next.result
next.result:
  %number = phi i64 [ 0, %results ], [ %number.next, %store.result ]
  %words = phi ptr [ %result.words, %results ], [ %words.next, %store.result ]
  %more = icmp slt i64 %number, %result.count
  br i1 %more, label %make.result, label %done
make.result:
  %rank = load i64, ptr %words
  %descriptor.at = getelementptr i64, ptr %words, i64 1
  %descriptor = load ptr, ptr %descriptor.at
  %bytes.at = getelementptr i64, ptr %words, i64 2
  %bytes = load i64, ptr %bytes.at
  %sizes = getelementptr i64, ptr %words, i64 3
  %strides = getelementptr i64, ptr %sizes, i64 %rank
  %result = call ptr @make(ptr %plan, i64 %rank, ptr %sizes, ptr %strides, ptr %descriptor, i64 %bytes)
  %no.result = icmp eq ptr %result, null
  br i1 %no.result, label %undo, label %store.result
store.result:
  %slot = getelementptr i64, ptr %result.slots, i64 %number
  store ptr %result, ptr %slot
  %number.next = add i64 %number, 1
  %words.next = getelementptr i64, ptr %strides, i64 %rank
  br label %next.result
undo:
  call void @undo(ptr %plan, ptr %ctx, i64 %number)
  br label %nothing
nothing:
  ret i1 false
done:
  ret i1 true
}}

; The first so many results are not wanted after all.
define internal void @undo(ptr %plan, ptr %ctx, i64 %count) #0 {{
entry:
  %first.result.at = getelementptr i64, ptr %plan, i64 {FIRST_RESULT}
  %first.result = load i64, ptr %first.result.at
  %slots = getelementptr i64, ptr %ctx, i64 %first.result
  br label %next
next:
  %left = phi i64 [ %count, %entry ], [ %left.next, %one ]
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %one, label %done
one:
  %left.next = sub i64 %left, 1
  %slot = getelementptr i64, ptr %slots, i64 %left.next
  %unwanted = load ptr, ptr %slot
  call void @Py_DecRef(ptr %unwanted)
  br label %next
done:
  ret void
}}

; What a call needs until it ends: another thread may change the list or dict that held it.
define internal void @keep(ptr %plan, ptr %object) #0 {{
  %count.at = getelementptr i64, ptr %plan, i64 {HELD_COUNT}
  %count = load i64, ptr %count.at
  %held.at = getelementptr i64, ptr %plan, i64 {HELD}
  %held = load ptr, ptr %held.at
  %at = getelementptr ptr, ptr %held, i64 %count
  store ptr %object, ptr %at
  %next = add i64 %count, 1
  store i64 %next, ptr %count.at
  ret void
}}

define internal void @let_go(ptr %plan) #0 {{
entry:
  %count.at = getelementptr i64, ptr %plan, i64 {HELD_COUNT}
  %count = load i64, ptr %count.at
  %held.at = getelementptr i64, ptr %plan, i64 {HELD}
  %held = load ptr, ptr %held.at
  br label %next
next:
  %left = phi i64 [ %count, %entry ], [ %left.next, %one ]
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %one, label %done
one:
  %left.next = sub i64 %left, 1
  %at = getelementptr ptr, ptr %held, i64 %left.next
  %object = load ptr, ptr %at
  call void @Py_DecRef(ptr %object)
  br label %next
done:
  store i64 0, ptr %count.at
  ret void
}}

define internal ptr @allocate(ptr %plan, i64 %bytes) #0 {{
  %state.at = getelementptr i64, ptr %plan, i64 {STATE}
  %state = load ptr, ptr %state.at
  %allocate.at = getelementptr i64, ptr %plan, i64 {ALLOCATE}
  %allocate = load ptr, ptr %allocate.at
  %memory = call ptr %allocate(ptr %state, i64 %bytes)
  ret ptr %memory
}}

define internal void @release(ptr %plan, ptr %memory, i64 %bytes) #0 {{
  %state.at = getelementptr i64, ptr %plan, i64 {STATE}
  %state = load ptr, ptr %state.at
  %release.at = getelementptr i64, ptr %plan, i64 {RELEASE}
  %release = load ptr, ptr %release.at
  call void %release(ptr %state, ptr %memory, i64 %bytes)
  ret void
}}

; What was borrowed for the call, if it came so far.
define internal void @give_back(ptr %plan, ptr %ctx) #0 {{
entry:
  %borrowed.at = getelementptr i64, ptr %plan, i64 {BORROWED}
  %borrowed = load i64, ptr %borrowed.at
  %borrows = icmp sgt i64 %borrowed, 0
  br i1 %borrows, label %some, label %done
some:
  %arena.at = getelementptr i64, ptr %ctx, i64 {ARENA}
  %memory = load ptr, ptr %arena.at
  store ptr null, ptr %arena.at
  call void @release(ptr %plan, ptr %memory, i64 %borrowed)
  br label %done
done:
  ret void
}}

; A new array. From {MIDDLE} bytes up its memory comes from the run time's allocator, and it owns that.
define internal ptr @make(ptr %plan, i64 %rank, ptr %sizes, ptr %strides, ptr %descriptor, i64 %bytes) #0 {{
entry:
  %numpy.at = getelementptr i64, ptr %plan, i64 {NUMPY}
  %numpy = load ptr, ptr %numpy.at
  %new.at = getelementptr ptr, ptr %numpy, i64 {NEW_FROM_DESCRIPTOR}
  %new = load ptr, ptr %new.at
  %ndarray.at = getelementptr i64, ptr %plan, i64 {NDARRAY}
  %ndarray = load ptr, ptr %ndarray.at
  %short.rank = trunc i64 %rank to i32
  call void @Py_IncRef(ptr %descriptor)
  %tiny = icmp slt i64 %bytes, {MIDDLE}
  br i1 %tiny, label %usual, label %own
usual:
  %small.array = call ptr %new(ptr %ndarray, ptr %descriptor, i32 %short.rank, ptr %sizes, ptr %strides, ptr null,
                               i32 0, ptr null)
  ret ptr %small.array
own:
  %memory = call ptr @allocate(ptr %plan, i64 %bytes)
  %no.memory = icmp eq ptr %memory, null
  br i1 %no.memory, label %short, label %wrap
short:
  call void @Py_DecRef(ptr %descriptor)
  %ignored = call ptr @PyErr_NoMemory()
  ret ptr null
wrap:
  %array = call ptr %new(ptr %ndarray, ptr %descriptor, i32 %short.rank, ptr %sizes, ptr %strides, ptr %memory,
                         i32 {NEW_FLAGS}, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %lost, label %give
lost:
  call void @release(ptr %plan, ptr %memory, i64 %bytes)
  ret ptr null
give:
  %handler.at = getelementptr i64, ptr %plan, i64 {HANDLER}
  %handler = load ptr, ptr %handler.at
  call void @Py_IncRef(ptr %handler)
  %fields = getelementptr i8, ptr %array, i64 {DATA}
  %own.handler.at = getelementptr i8, ptr %fields, i64 {HANDLER_AT}
  store ptr %handler, ptr %own.handler.at
  %flags.at = getelementptr i8, ptr %fields, i64 {FLAGS_AT}
  %flags = load i32, ptr %flags.at
  %owning = or i32 %flags, {OWNING}
  store i32 %owning, ptr %flags.at
  ret ptr %array
}}

; Whether an object is what the guards expect; the words behind them if so, null if not.
define internal ptr @matches(ptr %plan, ptr %ctx, ptr %words, ptr %object) #0 {{
entry:
  %overflow = alloca i32, align 4
  %kind = load i64, ptr %words
  %word1.at = getelementptr i64, ptr %words, i64 1
  %word1 = load i64, ptr %word1.at
  %expected = inttoptr i64 %word1 to ptr
  %type.at = getelementptr i8, ptr %object, i64 {TYPE_AT}
  %type = load ptr, ptr %type.at
  switch i64 %kind, label %no [
    i64 {IS_ARRAY}, label %array
    i64 {IS_TUPLE}, label %tuple
    i64 {IS_LIST}, label %list
    i64 {IS_DICT}, label %dict
    i64 {IS_SAME}, label %same
    i64 {IS_EQUAL}, label %equal
  ]
no:
  ret ptr null

array:
  %slot = getelementptr i64, ptr %ctx, i64 %word1
  %rank.at = getelementptr i64, ptr %words, i64 3
  %rank = load i64, ptr %rank.at
  %sizes = getelementptr i64, ptr %words, i64 {ARRAY_WORDS}
  %behind.array = getelementptr i64, ptr %sizes, i64 %rank
  %ndarray.at = getelementptr i64, ptr %plan, i64 {NDARRAY}
  %ndarray = load ptr, ptr %ndarray.at
  %is.array = icmp eq ptr %type, %ndarray
  br i1 %is.array, label %array.fields, label %number
array.fields:
  %fields = getelementptr i8, ptr %object, i64 {DATA}
  %dtype.at = getelementptr i64, ptr %words, i64 2
  %dtype = load i64, ptr %dtype.at
  %descriptor.at = getelementptr i8, ptr %fields, i64 {DESCRIPTOR_AT}
  %descriptor = load ptr, ptr %descriptor.at
  %own.dtype.at = getelementptr i8, ptr %descriptor, i64 {DTYPE_AT}
  %own.dtype.all = load i64, ptr %own.dtype.at
  %own.dtype = and i64 %own.dtype.all, {DTYPE_MASK}
  %same.dtype = icmp eq i64 %dtype, %own.dtype
  %own.rank.at = getelementptr i8, ptr %fields, i64 {RANK_AT}
  %own.rank.32 = load i32, ptr %own.rank.at
  %own.rank = sext i32 %own.rank.32 to i64
  %same.rank = icmp eq i64 %rank, %own.rank
  %flags.at = getelementptr i8, ptr %fields, i64 {FLAGS_AT}
  %flags = load i32, ptr %flags.at
  %plain.flags = and i32 %flags, {PLAIN_FLAGS}
  %is.plain = icmp eq i32 %plain.flags, {PLAIN_FLAGS}
  %fits.some = and i1 %same.dtype, %same.rank
  %fits = and i1 %fits.some, %is.plain
  %own.sizes.at = getelementptr i8, ptr %fields, i64 {SIZES_AT}
  %own.sizes = load ptr, ptr %own.sizes.at
  br i1 %fits, label %next.size, label %no
next.size:
  %axis = phi i64 [ 0, %array.fields ], [ %axis.next, %size ]
  %more.sizes = icmp slt i64 %axis, %rank
  br i1 %more.sizes, label %size, label %array.fits
size:
  %axis.next = add i64 %axis, 1
  %wanted.at = getelementptr i64, ptr %sizes, i64 %axis
  %wanted = load i64, ptr %wanted.at
  %own.size.at = getelementptr i64, ptr %own.sizes, i64 %axis
  %own.size = load i64, ptr %own.size.at
  %same.size = icmp eq i64 %wanted, %own.size
  br i1 %same.size, label %next.size, label %no
array.fits:
  store ptr %object, ptr %slot
  call void @Py_IncRef(ptr %object)
  call void @keep(ptr %plan, ptr %object)
  ret ptr %behind.array

number:
  ; A Python number where an array without axes is expected: native code finds it as the data of one.
  %number.kind.at = getelementptr i64, ptr %words, i64 4
  %number.kind = load i64, ptr %number.kind.at
  %stand.in.at = getelementptr i64, ptr %words, i64 5
  %stand.in = load ptr, ptr %stand.in.at
  %place.at = getelementptr i8, ptr %stand.in, i64 {DATA}
  switch i64 %number.kind, label %no [
    i64 {FLOAT_NUMBER}, label %float
    i64 {INT_NUMBER}, label %int
    i64 {BOOL_NUMBER}, label %bool
  ]
float:
  %float.type.at = getelementptr i64, ptr %plan, i64 {FLOAT}
  %float.type = load ptr, ptr %float.type.at
  %is.float = icmp eq ptr %type, %float.type
  br i1 %is.float, label %take.float, label %no
take.float:
  %double = call double @PyFloat_AsDouble(ptr %object)
  %float.place = load ptr, ptr %place.at
  store double %double, ptr %float.place
  br label %number.fits
int:
  %int.type.at = getelementptr i64, ptr %plan, i64 {INT}
  %int.type = load ptr, ptr %int.type.at
  %is.int = icmp eq ptr %type, %int.type
  br i1 %is.int, label %take.int, label %no
take.int:
  %integer = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %over = load i32, ptr %overflow
  %in.range = icmp eq i32 %over, 0
  br i1 %in.range, label %store.int, label %no
store.int:
  %int.place = load ptr, ptr %place.at
  store i64 %integer, ptr %int.place
  br label %number.fits
bool:
  %true.at = getelementptr i64, ptr %plan, i64 {TRUE}
  %true = load ptr, ptr %true.at
  %true.type.at = getelementptr i8, ptr %true, i64 {TYPE_AT}
  %bool.type = load ptr, ptr %true.type.at
  %is.bool = icmp eq ptr %type, %bool.type
  br i1 %is.bool, label %take.bool, label %no
take.bool:
  %is.true = icmp eq ptr %object, %true
  %bit = zext i1 %is.true to i8
  %bool.place = load ptr, ptr %place.at
  store i8 %bit, ptr %bool.place
  br label %number.fits
number.fits:
  store ptr %stand.in, ptr %slot
  ret ptr %behind.array

tuple:
  %tuple.type.at = getelementptr i64, ptr %plan, i64 {TUPLE}
  %tuple.type = load ptr, ptr %tuple.type.at
  %is.tuple = icmp eq ptr %type, %tuple.type
  br i1 %is.tuple, label %tuple.length, label %no
tuple.length:
  %tuple.count = call i64 @PyTuple_Size(ptr %object)
  br label %sequence
list:
  %list.type.at = getelementptr i64, ptr %plan, i64 {LIST}
  %list.type = load ptr, ptr %list.type.at
  %is.list = icmp eq ptr %type, %list.type
  br i1 %is.list, label %list.length, label %no
list.length:
  %list.count = call i64 @PyList_Size(ptr %object)
  br label %sequence
sequence:
  %own.count = phi i64 [ %tuple.count, %tuple.length ], [ %list.count, %list.length ]
  %same.count = icmp eq i64 %own.count, %word1
  %items = getelementptr i64, ptr %words, i64 2
  br i1 %same.count, label %next.item, label %no
next.item:
  %position = phi i64 [ 0, %sequence ], [ %position.next, %item.fits ]
  %item.words = phi ptr [ %items, %sequence ], [ %behind.item, %item.fits ]
  %more.items = icmp slt i64 %position, %word1
  br i1 %more.items, label %item, label %container.fits
item:
  %position.next = add i64 %position, 1
  %of.tuple = icmp eq i64 %kind, {IS_TUPLE}
  br i1 %of.tuple, label %tuple.item, label %list.item
tuple.item:
  %from.tuple = call ptr @PyTuple_GetItem(ptr %object, i64 %position)
  br label %item.known
list.item:
  %from.list = call ptr @PyList_GetItem(ptr %object, i64 %position)
  br label %item.known
item.known:
  %member = phi ptr [ %from.tuple, %tuple.item ], [ %from.list, %list.item ]
  %behind.item = call ptr @matches(ptr %plan, ptr %ctx, ptr %item.words, ptr %member)
  %item.differs = icmp eq ptr %behind.item, null
  br i1 %item.differs, label %no, label %item.fits
item.fits:
  br label %next.item
container.fits:
  ret ptr %item.words

dict:
  %dict.type.at = getelementptr i64, ptr %plan, i64 {DICT}
  %dict.type = load ptr, ptr %dict.type.at
  %is.dict = icmp eq ptr %type, %dict.type
  br i1 %is.dict, label %dict.length, label %no
dict.length:
  %entry.count = call i64 @PyDict_Size(ptr %object)
  %same.entries = icmp eq i64 %entry.count, %word1
  %entries = getelementptr i64, ptr %words, i64 2
  br i1 %same.entries, label %next.entry, label %no
next.entry:
  %entry.number = phi i64 [ 0, %dict.length ], [ %entry.next, %entry.fits ]
  %entry.words = phi ptr [ %entries, %dict.length ], [ %behind.entry, %entry.fits ]
  %more.entries = icmp slt i64 %entry.number, %word1
  br i1 %more.entries, label %look.up, label %dict.fits
look.up:
  %entry.next = add i64 %entry.number, 1
  %key = load ptr, ptr %entry.words
  %value = call ptr @PyDict_GetItemWithError(ptr %object, ptr %key)
  %missing = icmp eq ptr %value, null
  br i1 %missing, label %no.entry, label %has.entry
no.entry:
  call void @PyErr_Clear()
  ret ptr null
has.entry:
  %value.words = getelementptr i64, ptr %entry.words, i64 1
  %behind.entry = call ptr @matches(ptr %plan, ptr %ctx, ptr %value.words, ptr %value)
  %entry.differs = icmp eq ptr %behind.entry, null
  br i1 %entry.differs, label %no, label %entry.fits
entry.fits:
  br label %next.entry
dict.fits:
  ret ptr %entry.words

same:
  %behind.same = getelementptr i64, ptr %words, i64 2
  %is.same = icmp eq ptr %object, %expected
  br i1 %is.same, label %same.fits, label %no
same.fits:
  ret ptr %behind.same
equal:
  ; Of one of the types whose equal values are the same to a program, and whose comparison is harmless.
  %behind.equal = getelementptr i64, ptr %words, i64 2
  %identical = icmp eq ptr %object, %expected
  br i1 %identical, label %equal.fits, label %equal.type
equal.type:
  %expected.type.at = getelementptr i8, ptr %expected, i64 {TYPE_AT}
  %expected.type = load ptr, ptr %expected.type.at
  %same.type = icmp eq ptr %type, %expected.type
  br i1 %same.type, label %compare, label %no
compare:
  %compared = call i32 @PyObject_RichCompareBool(ptr %object, ptr %expected, i32 2)
  %is.equal = icmp eq i32 %compared, 1
  br i1 %is.equal, label %equal.fits, label %no
equal.fits:
  ret ptr %behind.equal
}}

; The results in the shape of what the function returned.
define internal ptr @build(ptr %results, ptr %cursor) #0 {{
entry:
  %words = load ptr, ptr %cursor
  %kind = load i64, ptr %words
  %word1.at = getelementptr i64, ptr %words, i64 1
  %word1 = load i64, ptr %word1.at
  %behind = getelementptr i64, ptr %words, i64 2
  store ptr %behind, ptr %cursor
  switch i64 %kind, label %object [
    i64 {PUT_RESULT}, label %result
    i64 {PUT_TUPLE}, label %tuple
    i64 {PUT_LIST}, label %list
    i64 {PUT_DICT}, label %dict
  ]
object:
  %fixed = inttoptr i64 %word1 to ptr
  call void @Py_IncRef(ptr %fixed)
  ret ptr %fixed
result:
  %at = getelementptr ptr, ptr %results, i64 %word1
  %array = load ptr, ptr %at
  ret ptr %array
tuple:
  %new.tuple = call ptr @PyTuple_New(i64 %word1)
  br label %sequence
list:
  %new.list = call ptr @PyList_New(i64 %word1)
  br label %sequence
sequence:
  %made = phi ptr [ %new.tuple, %tuple ], [ %new.list, %list ]
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %nothing, label %next.item
next.item:
  %position = phi i64 [ 0, %sequence ], [ %position.next, %placed ]
  %more = icmp slt i64 %position, %word1
  br i1 %more, label %item, label %done
item:
  %position.next = add i64 %position, 1
  %member = call ptr @build(ptr %results, ptr %cursor)
  %no.member = icmp eq ptr %member, null
  br i1 %no.member, label %drop, label %place
place:
  %is.tuple = icmp eq i64 %kind, {PUT_TUPLE}
  br i1 %is.tuple, label %place.tuple, label %place.list
place.tuple:
  %ignored.tuple = call i32 @PyTuple_SetItem(ptr %made, i64 %position, ptr %member)
  br label %placed
place.list:
  %ignored.list = call i32 @PyList_SetItem(ptr %made, i64 %position, ptr %member)
  br label %placed
placed:
  br label %next.item
done:
  ret ptr %made
drop:
  call void @Py_DecRef(ptr %made)
  br label %nothing
nothing:
  ret ptr null

dict:
  %new.dict = call ptr @PyDict_New()
  %no.dict = icmp eq ptr %new.dict, null
  br i1 %no.dict, label %nothing, label %next.entry
next.entry:
  %number = phi i64 [ 0, %dict ], [ %number.next, %entered ]
  %more.entries = icmp slt i64 %number, %word1
  br i1 %more.entries, label %enter, label %dict.done
enter:
  %number.next = add i64 %number, 1
  %key.at = load ptr, ptr %cursor
  %key = load ptr, ptr %key.at
  %value.words = getelementptr i64, ptr %key.at, i64 1
  store ptr %value.words, ptr %cursor
  %value = call ptr @build(ptr %results, ptr %cursor)
  %no.value = icmp eq ptr %value, null
  br i1 %no.value, label %drop.dict, label %set
set:
  %status = call i32 @PyDict_SetItem(ptr %new.dict, ptr %key, ptr %value)
  call void @Py_DecRef(ptr %value)
  %refused = icmp ne i32 %status, 0
  br i1 %refused, label %drop.dict, label %entered
entered:
  br label %next.entry
drop.dict:
  call void @Py_DecRef(ptr %new.dict)
  br label %nothing
dict.done:
  ret ptr %new.dict
}}

declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare void @PyErr_Clear()
declare ptr @PyErr_NoMemory()
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare i64 @PyDict_Size(ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
attributes #0 = {{ nounwind }}
"""


def entry_text(data_offset: int) -> str:
    """The code, for arrays that have the address of their data at this offset."""
    return _TEXT.format(
        DATA=data_offset,
        ALLOCATE=ALLOCATE, ARENA=ARENA, ARENA_BYTES=ARENA_BYTES, ARRAY_WORDS=ARRAY_WORDS, BOOL_NUMBER=BOOL_NUMBER,
        BORROWED=BORROWED, CONTEXT=CONTEXT, DESCRIPTOR_AT=DESCRIPTOR_AT, DICT=DICT, DTYPE_AT=DTYPE_AT,
        DTYPE_MASK=DTYPE_MASK, ERROR_AT=ERROR_AT, FIRST_RESULT=FIRST_RESULT, FLAGS_AT=FLAGS_AT,
        FLOAT=FLOAT, FLOAT_NUMBER=FLOAT_NUMBER, GUARDS=GUARDS, HANDLER=HANDLER, HANDLER_AT=HANDLER_AT, HELD=HELD,
        HELD_COUNT=HELD_COUNT, INT=INT, INT_NUMBER=INT_NUMBER, IS_ARRAY=IS_ARRAY, IS_DICT=IS_DICT, IS_EQUAL=IS_EQUAL,
        IS_LIST=IS_LIST, IS_SAME=IS_SAME, IS_TUPLE=IS_TUPLE, LIMIT=LIMIT, LIST=LIST, MIDDLE=MIDDLE, NDARRAY=NDARRAY,
        NEW_FLAGS=NEW_FLAGS, NEW_FROM_DESCRIPTOR=NEW_FROM_DESCRIPTOR, NUMPY=NUMPY, ON_ERROR=ON_ERROR,
        OTHERWISE=OTHERWISE, OUTPUT=OUTPUT, OWNING=OWNING, PLAIN_FLAGS=PLAIN_FLAGS, POOL=POOL, POOL_AT=POOL_AT,
        PUT_DICT=PUT_DICT, PUT_LIST=PUT_LIST, PUT_RESULT=PUT_RESULT, PUT_TUPLE=PUT_TUPLE, RANK_AT=RANK_AT,
        RELEASE=RELEASE, RESULTS=RESULTS, RESULT_COUNT=RESULT_COUNT, RUN=RUN, SCRATCH=SCRATCH, SEED=SEED,
        SEED_SLOT=SEED_SLOT, SIZES_AT=SIZES_AT, STARTED=STARTED, STATE=STATE, TRUE=TRUE, TUPLE=TUPLE,
        TYPE_AT=TYPE_AT, WORKERS=WORKERS,
    )  # fmt: skip
