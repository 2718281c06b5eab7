"""The native code of backend/cpu/call/entry.py: from a call's arguments to its results.

A plan (entry_words.py) says what a call has to look like, where its parts are and what it returns. This is the way of
a call; what it asks about arguments, where its arrays come from and how its output is put together are texts of their
own, and all of them one module of LLVM.
"""

from __future__ import annotations

from ..abi import ARENA, POOL, SCRATCH, WORKERS
from . import entry_words, guard_text, output_text, result_text
from .allocator import MIDDLE
from .threads import LIMIT, STARTED

_ENTER = """
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
"""

_DECLARATIONS = """
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
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
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare i32 @PyUnicode_Compare(ptr, ptr)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
attributes #0 = {{ nounwind }}
"""


def entry_text(data_offset: int) -> str:
    """The code, for arrays that have the address of their data at this offset."""
    names = vars(entry_words) | {
        "DATA": data_offset, "MIDDLE": MIDDLE, "ARENA": ARENA, "POOL": POOL, "SCRATCH": SCRATCH, "WORKERS": WORKERS,
        "LIMIT": LIMIT, "STARTED": STARTED,
    }  # fmt: skip
    return "".join((_ENTER, result_text.TEXT, guard_text.TEXT, output_text.TEXT, _DECLARATIONS)).format_map(names)
