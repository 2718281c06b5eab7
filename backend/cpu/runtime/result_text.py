"""Native code: the memory of a call and its result arrays, and their end. A part of entry_text.py."""

from __future__ import annotations

TEXT = """
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

; The first so many objects of a list are not wanted any more.
define internal void @drop(ptr %objects, i64 %count) #0 {{
entry:
  br label %next
next:
  %left = phi i64 [ %count, %entry ], [ %left.next, %one ]
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %one, label %done
one:
  %left.next = sub i64 %left, 1
  %at = getelementptr ptr, ptr %objects, i64 %left.next
  %object = load ptr, ptr %at
  call void @Py_DecRef(ptr %object)
  br label %next
done:
  ret void
}}

; The first so many results are not wanted after all.
define internal void @undo(ptr %plan, ptr %ctx, i64 %count) #0 {{
  %first.result.at = getelementptr i64, ptr %plan, i64 {FIRST_RESULT}
  %first.result = load i64, ptr %first.result.at
  %slots = getelementptr i64, ptr %ctx, i64 %first.result
  call void @drop(ptr %slots, i64 %count)
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
  %count.at = getelementptr i64, ptr %plan, i64 {HELD_COUNT}
  %count = load i64, ptr %count.at
  %held.at = getelementptr i64, ptr %plan, i64 {HELD}
  %held = load ptr, ptr %held.at
  call void @drop(ptr %held, i64 %count)
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
"""
