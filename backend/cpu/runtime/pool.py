"""The code of the thread pool as LLVM text: see threads.py. It is loaded only to compile it."""

from __future__ import annotations

from ..abi import WORKERS
from .threads import (
    ACTIVE,
    CALLER_CPU,
    COUNTERS,
    ENDED,
    GENERATION,
    JOB,
    LIMIT,
    LOCK,
    MOST_PINNED,
    MOST_SHARES,
    OPEN,
    SLEEPING,
    WORKER_TABLE,
)

# How long a worker spins, in ticks of the processor's counter. Arm's counter is a slow one.
SPIN_TICKS = {"x86_64": 100_000, "AMD64": 100_000}
SLOW_SPIN_TICKS = 1_000

_PARALLEL = """
define void @parallel(ptr %pool, ptr %function, ptr %ctx, i64 %count, i64 %grain, i1 %long) #0 {{
entry:
  %empty = icmp sle i64 %count, 0
  br i1 %empty, label %return, label %some
some:
  %limit.at = getelementptr i64, ptr %pool, i64 {LIMIT}
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %alone = icmp sle i64 %limit, 1
  %short = icmp sle i64 %count, %grain
  %serial = or i1 %alone, %short
  br i1 %serial, label %all, label %try
try:
  %lock = getelementptr i64, ptr %pool, i64 {LOCK}
  %taken = cmpxchg ptr %lock, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %publish, label %all
all:
  call void %function(ptr %ctx, i64 0, i64 %count, i64 0, i64 0)
  ret void
publish:
  %job = getelementptr i64, ptr %pool, i64 {JOB}
  store ptr %function, ptr %job, align 8
  %job1 = getelementptr i64, ptr %job, i64 1
  store ptr %ctx, ptr %job1, align 8
  %job2 = getelementptr i64, ptr %job, i64 2
  store i64 %count, ptr %job2, align 8
  %job3 = getelementptr i64, ptr %job, i64 3
  store i64 %grain, ptr %job3, align 8
  %shares = call i64 @llvm.smin.i64(i64 %limit, i64 {MOST_SHARES})
  %job4 = getelementptr i64, ptr %job, i64 4
  store i64 %shares, ptr %job4, align 8
  %all.runs = mul i64 %shares, %grain
  %below.next = sub i64 %all.runs, 1
  %rounded.up = add i64 %count, %below.next
  %runs = udiv i64 %rounded.up, %all.runs
  %each = mul i64 %runs, %grain
  %job5 = getelementptr i64, ptr %job, i64 5
  store i64 %each, ptr %job5, align 8
  %counters = getelementptr i64, ptr %pool, i64 {COUNTERS}
  br label %start
start:
  %number = phi i64 [ 0, %publish ], [ %number.next, %start ]
  %counter = getelementptr [8 x i64], ptr %counters, i64 %number
  %first = mul i64 %number, %each
  store atomic i64 %first, ptr %counter monotonic, align 8
  %number.next = add i64 %number, 1
  %another = icmp slt i64 %number.next, %shares
  br i1 %another, label %start, label %announce
announce:
  %open = getelementptr i64, ptr %pool, i64 {OPEN}
  store atomic i64 1, ptr %open seq_cst, align 8
  %generation = getelementptr i64, ptr %pool, i64 {GENERATION}
  %old = atomicrmw add ptr %generation, i32 1 seq_cst
  %sleeping.at = getelementptr i64, ptr %pool, i64 {SLEEPING}
  %sleeping = load atomic i64, ptr %sleeping.at seq_cst, align 8
  %some.sleep = icmp sgt i64 %sleeping, 0
  br i1 %some.sleep, label %count.awake, label %work
count.awake:
  %awake = sub i64 %limit, %sleeping
  %by.awake = mul i64 %awake, %grain
  %left.over = icmp slt i64 %by.awake, %count
  br i1 %left.over, label %how.long, label %work
how.long:
  %ended.at = getelementptr i64, ptr %pool, i64 {ENDED}
  %ended = load i64, ptr %ended.at
  %begun = call i64 @llvm.readcyclecounter()
  %between = sub i64 %begun, %ended
  %follows = icmp ult i64 %between, {spin_ticks}
  %worth = or i1 %long, %follows
  br i1 %worth, label %rouse, label %work
rouse:
{place}
  call void @wake(ptr %pool, i32 1)
  br label %work
work:
  call void @share(ptr %pool, i64 0)
  store atomic i64 0, ptr %open seq_cst, align 8
  %active.at = getelementptr i64, ptr %pool, i64 {ACTIVE}
  br label %wait
wait:
  %active = load atomic i64, ptr %active.at seq_cst, align 8
  %done = icmp eq i64 %active, 0
  br i1 %done, label %release, label %pause
pause:
  {pause}
  br label %wait
release:
  %end.at = getelementptr i64, ptr %pool, i64 {ENDED}
  %end = call i64 @llvm.readcyclecounter()
  store i64 %end, ptr %end.at
  store atomic i64 0, ptr %lock seq_cst, align 8
  br label %return
return:
  ret void
}}

define internal void @wake(ptr %pool, i32 %number) #0 {{
  %generation = getelementptr i64, ptr %pool, i64 {GENERATION}
{wake}
  ret void
}}
{move}
define internal void @share(ptr %pool, i64 %worker) #0 {{
entry:
  %job = getelementptr i64, ptr %pool, i64 {JOB}
  %function = load ptr, ptr %job, align 8
  %job1 = getelementptr i64, ptr %job, i64 1
  %ctx = load ptr, ptr %job1, align 8
  %job2 = getelementptr i64, ptr %job, i64 2
  %count = load i64, ptr %job2, align 8
  %job3 = getelementptr i64, ptr %job, i64 3
  %grain = load i64, ptr %job3, align 8
  %job4 = getelementptr i64, ptr %job, i64 4
  %shares = load i64, ptr %job4, align 8
  %job5 = getelementptr i64, ptr %job, i64 5
  %each = load i64, ptr %job5, align 8
  %counters = getelementptr i64, ptr %pool, i64 {COUNTERS}
  %own = urem i64 %worker, %shares
  br label %look
look:
  %number = phi i64 [ %own, %entry ], [ %following, %finished ]
  %seen = phi i64 [ 1, %entry ], [ %seen.next, %finished ]
  %before.all = phi i64 [ 0, %entry ], [ %before.next, %finished ]
  %counter = getelementptr [8 x i64], ptr %counters, i64 %number
  %first = mul i64 %number, %each
  %behind = add i64 %first, %each
  %stop = call i64 @llvm.smin.i64(i64 %behind, i64 %count)
  %now = load atomic i64, ptr %counter monotonic, align 8
  %some = icmp slt i64 %now, %stop
  br i1 %some, label %take, label %finished
take:
  %before = phi i64 [ %before.all, %look ], [ %end, %run ]
  %begin = atomicrmw add ptr %counter, i64 %grain seq_cst
  %more = icmp slt i64 %begin, %stop
  br i1 %more, label %run, label %finished
run:
  %over = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %over, i64 %stop)
  call void %function(ptr %ctx, i64 %begin, i64 %end, i64 %worker, i64 %before)
  br label %take
finished:
  %before.next = phi i64 [ %before.all, %look ], [ %before, %take ]
  %seen.next = add i64 %seen, 1
  %number.next = add i64 %number, 1
  %last = icmp eq i64 %number.next, %shares
  %following = select i1 %last, i64 0, i64 %number.next
  %others = icmp slt i64 %seen, %shares
  br i1 %others, label %look, label %done
done:
  ret void
}}

define void @worker(ptr %pool, i64 %number) #0 {{
entry:
  %generation = getelementptr i64, ptr %pool, i64 {GENERATION}
  %sleeping.at = getelementptr i64, ptr %pool, i64 {SLEEPING}
  %open.at = getelementptr i64, ptr %pool, i64 {OPEN}
  %first = load atomic i32, ptr %generation seq_cst, align 8
  br label %look
look:
  %seen = phi i32 [ %first, %entry ], [ %now, %join ]
  %began = call i64 @llvm.readcyclecounter()
  br label %spin
spin:
  %now.spin = load atomic i32, ptr %generation seq_cst, align 8
  %new = icmp ne i32 %now.spin, %seen
  br i1 %new, label %join, label %rest
rest:
  {pause}
  %clock = call i64 @llvm.readcyclecounter()
  %waited = sub i64 %clock, %began
  %tired = icmp ugt i64 %waited, {spin_ticks}
  br i1 %tired, label %sleep, label %spin
sleep:
  %counted = atomicrmw add ptr %sleeping.at, i64 1 seq_cst
{sleep}
  %uncounted = atomicrmw sub ptr %sleeping.at, i64 1 seq_cst
  %now.sleep = load atomic i32, ptr %generation seq_cst, align 8
  %woken = icmp ne i32 %now.sleep, %seen
  br i1 %woken, label %pass.on, label %sleep
pass.on:
  %others = load atomic i64, ptr %sleeping.at seq_cst, align 8
  %some.sleep = icmp sgt i64 %others, 0
  %still.open = load atomic i64, ptr %open.at monotonic, align 8
  %work.left = icmp ne i64 %still.open, 0
  %useful = and i1 %some.sleep, %work.left
  br i1 %useful, label %wake.more, label %join
wake.more:
  call void @wake(ptr %pool, i32 2)
  br label %join
join:
  %now = phi i32 [ %now.spin, %spin ], [ %now.sleep, %pass.on ], [ %now.sleep, %wake.more ]
  call void @join(ptr %pool, i64 %number)
  br label %look
}}

define void @join(ptr %pool, i64 %number) #0 {{
entry:
  %limit.at = getelementptr i64, ptr %pool, i64 {LIMIT}
  %limit = load atomic i64, ptr %limit.at seq_cst, align 8
  %wanted = icmp slt i64 %number, %limit
  br i1 %wanted, label %announce, label %return
announce:
  %active.at = getelementptr i64, ptr %pool, i64 {ACTIVE}
  %in = atomicrmw add ptr %active.at, i64 1 seq_cst
  %open.at = getelementptr i64, ptr %pool, i64 {OPEN}
  %open = load atomic i64, ptr %open.at seq_cst, align 8
  %is.open = icmp ne i64 %open, 0
  br i1 %is.open, label %look.inside, label %leave
look.inside:
  %args.at = getelementptr i64, ptr %pool, i64 {ARGUMENTS}
  %args = load ptr, ptr %args.at, align 8
  %ctx = load ptr, ptr %args, align 8
  %workers.at = getelementptr i64, ptr %ctx, i64 {WORKERS}
  %workers = load i64, ptr %workers.at, align 8
  %has.scratch = icmp slt i64 %number, %workers
  br i1 %has.scratch, label %help, label %leave
help:
  call void @share(ptr %pool, i64 %number)
  br label %leave
leave:
  %out = atomicrmw sub ptr %active.at, i64 1 seq_cst
  br label %return
return:
  ret void
}}

define void @rest() #0 {{
  {pause}
  ret void
}}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.readcyclecounter()
{declarations}
attributes #0 = {{ nounwind }}
"""

# Whose CPU the caller is on now moves to where the caller was.
_PLACE = """
  %cpu.32 = call i32 @sched_getcpu()
  %cpu = sext i32 %cpu.32 to i64
  %caller.at = getelementptr i64, ptr %pool, i64 {CALLER_CPU}
  %caller = load i64, ptr %caller.at
  %pinned = icmp sge i64 %caller, 0
  %moved = icmp ne i64 %caller, %cpu
  %known = icmp sge i64 %cpu, 0
  %pinned.known = and i1 %pinned, %known
  %swap = and i1 %pinned.known, %moved
  br i1 %swap, label %exchange, label %stay
exchange:
  call void @move(ptr %pool, i64 %cpu, i64 %caller)
  store i64 %cpu, ptr %caller.at
  br label %stay
stay:
"""
_MOVE = """
define internal void @move(ptr %pool, i64 %from, i64 %to) #0 {
entry:
  %mask = alloca [{MASK_BYTES} x i8], align 8
  %limit.at = getelementptr i64, ptr %pool, i64 {LIMIT}
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %rows = call i64 @llvm.smin.i64(i64 %limit, i64 {MOST_PINNED})
  %table = getelementptr i64, ptr %pool, i64 {WORKER_TABLE}
  br label %next
next:
  %number = phi i64 [ 1, %entry ], [ %number.next, %look ]
  %more = icmp slt i64 %number, %rows
  br i1 %more, label %look, label %done
look:
  %number.next = add i64 %number, 1
  %row = getelementptr [2 x i64], ptr %table, i64 %number
  %home.at = getelementptr i64, ptr %row, i64 1
  %home = load i64, ptr %home.at
  %found = icmp eq i64 %home, %from
  br i1 %found, label %pin, label %next
pin:
  store i64 %to, ptr %home.at
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 {MASK_BYTES}, i1 false)
  %byte = lshr i64 %to, 3
  %bit = and i64 %to, 7
  %bit.8 = trunc i64 %bit to i8
  %set = shl i8 1, %bit.8
  %at = getelementptr i8, ptr %mask, i64 %byte
  store i8 %set, ptr %at
  %thread = load i64, ptr %row
  %thread.32 = trunc i64 %thread to i32
  %ignored = call i32 @sched_setaffinity(i32 %thread.32, i64 {MASK_BYTES}, ptr %mask)
  br label %done
done:
  ret void
}
"""

_FUTEX = {"x86_64": 202, "AMD64": 202, "aarch64": 98, "arm64": 98}
_WAIT_PRIVATE, _WAKE_PRIVATE = 128, 129


def runtime_text(system: str, machine: str) -> str:
    """The pool's code for an operating system and a processor."""
    place = move = ""
    if system == "Linux" and machine in _FUTEX:
        number = _FUTEX[machine]
        wake = (
            f"  %woke = call i64 (i64, ...) @syscall(i64 {number}, ptr %generation, i32 {_WAKE_PRIVATE}, "
            "i32 %number, ptr null, ptr null, i32 0)"
        )
        sleep = (
            f"  %slept = call i64 (i64, ...) @syscall(i64 {number}, ptr %generation, i32 {_WAIT_PRIVATE}, "
            "i32 %seen, ptr null, ptr null, i32 0)"
        )
        names = {
            "CALLER_CPU": CALLER_CPU, "LIMIT": LIMIT, "MOST_PINNED": MOST_PINNED, "WORKER_TABLE": WORKER_TABLE
        }  # fmt: skip
        place, move = _PLACE, _MOVE.replace("{MASK_BYTES}", str(MOST_PINNED // 8))
        for name, value in names.items():
            place, move = place.replace(f"{{{name}}}", str(value)), move.replace(f"{{{name}}}", str(value))
        declarations = [
            "declare i64 @syscall(i64, ...)",
            "declare i32 @sched_getcpu()",
            "declare i32 @sched_setaffinity(i32, i64, ptr)",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
        ]
    elif system == "Windows":
        wake, sleep = "", "  call void @Sleep(i32 1)"
        declarations = ["declare void @Sleep(i32)"]
    else:
        wake, sleep = "", "  %slept = call i32 @usleep(i32 50)"
        declarations = ["declare i32 @usleep(i32)"]
    if machine in ("x86_64", "AMD64"):
        pause = "call void @llvm.x86.sse2.pause()"
        declarations.append("declare void @llvm.x86.sse2.pause()")
    else:
        pause = 'fence syncscope("singlethread") seq_cst'
    return _PARALLEL.format(
        wake=wake, sleep=sleep, pause=pause, place=place, move=move, declarations="\n".join(declarations),
        spin_ticks=SPIN_TICKS.get(machine, SLOW_SPIN_TICKS),
        GENERATION=GENERATION, ACTIVE=ACTIVE, SLEEPING=SLEEPING, OPEN=OPEN, LOCK=LOCK, JOB=JOB, LIMIT=LIMIT,
        ARGUMENTS=JOB + 1, WORKERS=WORKERS, ENDED=ENDED, COUNTERS=COUNTERS, MOST_SHARES=MOST_SHARES,
    )  # fmt: skip
