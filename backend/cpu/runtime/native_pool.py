"""Native code of the thread pool and of OpenMP teams (see threads.py, openmp.py). Imported only to compile it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..abi import I1, I8, I32, I64, NULL, PTR, U64, Arguments, to
from ..llvm.writer import Function, Unit, extern
from .records import POOL_SIZES, Linux, PoolBlock, TeamBlock

X86 = ("x86_64", "AMD64")
FUTEX = {"x86_64": 202, "AMD64": 202, "aarch64": 98, "arm64": 98}  # number of Linux's futex system call

POOL = to(PoolBlock)


class Platform(NamedTuple):
    """An operating system and a processor, as Python's module platform names them."""

    system: str
    machine: str

    @property
    def futex(self) -> int | None:
        return FUTEX.get(self.machine) if self.system == "Linux" else None

    @property
    def spin_ticks(self) -> int:
        return POOL_SIZES.ticks if self.machine in X86 else POOL_SIZES.slow_ticks


unit = Unit()
ticks = extern("llvm.readcyclecounter", U64)
pause = extern("llvm.x86.sse2.pause", None)
syscall = extern("syscall", I64, I64, variadic=True)
sleep_milliseconds = extern("Sleep", None, I32)
usleep = extern("usleep", I32, I32)
sched_getcpu = extern("sched_getcpu", I32)
sched_setaffinity = extern("sched_setaffinity", I32, I32, I64, PTR)
memset = extern("memset", PTR, PTR, I32, I64)


def rest(f: Function) -> None:
    """Write one iteration of a spin loop: a pause instruction, or a compiler fence."""
    if f.facts.machine in X86:
        pause(f)
    else:
        f.write('fence syncscope("singlethread") seq_cst')


def futex(f: Function, pool: Any, operation: Linux, value: Any) -> None:
    """Write Linux's futex system call on the pool's generation."""
    none, zero = f.constant(NULL), f.constant(0, I32)
    syscall(f, f.facts.futex, pool.address("generation"), f.constant(operation, I32), value, none, none, zero)


@unit.function(None, public=True, pool=POOL, function=PTR, arguments=to(Arguments), count=I64, grain=I64, long=I1)
def parallel(f: Function, pool: Any, function: Any, arguments: Any, count: Any, grain: Any, long: Any) -> None:
    """Run a job. long: it takes long enough to be worth waking a sleeping thread."""
    f.return_if(count <= 0)
    limit = pool.atomic("limit").load("monotonic")
    lock = pool.atomic("lock")
    with f.if_((limit <= 1) | (count <= grain)):
        alone(f, function, arguments, count)
        f.return_()
    with f.if_(~lock.replace(0, 1)):
        alone(f, function, arguments, count)
        f.return_()
    job = pool.job
    job.function, job.arguments, job.count, job.grain = function, arguments, count, grain
    job.shares = shares = f.min(limit, POOL_SIZES.shares)
    runs = (count + (shares * grain - 1)).as_(U64) // (shares * grain)
    job.each = each = runs.as_(I64) * grain
    with f.for_(0, shares) as number:
        pool.counters[number].atomic("next").store(number * each, "monotonic")
    pool.atomic("open").store(1)
    pool.atomic("generation").add(1)
    sleeping = pool.atomic("sleeping").load()
    with f.if_((sleeping > 0) & ((limit - sleeping) * grain < count)):
        follows = ticks(f) - pool.ended.as_(U64) < f.facts.spin_ticks
        with f.if_(long | follows):
            if f.facts.futex:
                trade_places(f, pool)
            wake(f, pool, 1)
    share(f, pool, 0)
    pool.atomic("open").store(0)
    with f.while_(lambda: pool.atomic("active").load() != 0):
        rest(f)
    pool.ended = ticks(f).as_(I64)
    lock.store(0)


@unit.function(None, function=PTR, arguments=to(Arguments), count=I64)
def alone(f: Function, function: Any, arguments: Any, count: Any) -> None:
    zero = f.constant(0)
    f.call(function, None, arguments, zero, count, zero, zero)


@unit.function(None, pool=POOL, number=I32)
def wake(f: Function, pool: Any, number: Any) -> None:
    """Wake so many sleeping workers by the futex. Without a futex, naps end by themselves."""
    if f.facts.futex:
        futex(f, pool, Linux.FUTEX_WAKE_PRIVATE, number)


@unit.function(None, pool=POOL, seen=I32)
def sleep(f: Function, pool: Any, seen: Any) -> None:
    """Sleep on the futex until the generation changes; without a futex, nap."""
    if f.facts.futex:
        futex(f, pool, Linux.FUTEX_WAIT_PRIVATE, seen)
    elif f.facts.system == "Windows":
        sleep_milliseconds(f, 1)
    else:
        usleep(f, POOL_SIZES.nap)


@unit.function(None, pool=POOL)
def trade_places(f: Function, pool: Any) -> None:
    """Pin the worker whose CPU the caller now runs on to the CPU that the caller left."""
    if not f.facts.futex:
        return
    here, before = sched_getcpu(f).as_(I64), pool.caller_cpu
    f.return_if((before < 0) | (here < 0) | (before == here))
    pool.caller_cpu = here
    mask = f.local(I8 * (POOL_SIZES.pinned // 8))
    with f.for_(1, f.min(pool.atomic("limit").load("monotonic"), POOL_SIZES.pinned)) as number:
        place = pool.places[number]
        with f.if_(place.cpu == here):
            place.cpu = before
            memset(f, mask, 0, POOL_SIZES.pinned // 8)
            mask[before >> 3] = 1 << (before & 7).as_(I8)
            sched_setaffinity(f, place.thread.as_(I32), POOL_SIZES.pinned // 8, mask)
            f.return_()


@unit.function(None, pool=POOL, worker=I64)
def share(f: Function, pool: Any, worker: Any) -> None:
    """Run the worker's share of the job, then steal from the shares of the others."""
    job = pool.job
    function, arguments, count, grain, shares, each = (getattr(job, name) for name, *_ in job._target._fields_)
    v = f.variables
    v.before, v.number = 0, (worker.as_(U64) % shares).as_(I64)
    with f.for_(0, shares):
        counter = pool.counters[v.number].atomic("next")
        stop = f.min(v.number * each + each, count)
        with f.if_(counter.load("monotonic") < stop), f.while_():
            begin = counter.add(grain)
            f.break_if(begin >= stop)
            end = f.min(begin + grain, stop)
            f.call(function, None, arguments, begin, end, worker, v.before)
            v.before = end
        v.number = v.number + 1
        v.number = f.select(v.number == shares, 0, v.number)


@unit.function(None, public=True, pool=POOL, number=I64)
def worker(f: Function, pool: Any, number: Any) -> None:
    """Loop of a worker, without end: spin for `spin_ticks`, then sleep until the next job."""
    generation, sleeping = pool.atomic("generation"), pool.atomic("sleeping")
    v = f.variables
    v.seen = generation.load()
    with f.while_():
        began = ticks(f)
        v.now = generation.load()
        v.spins = True
        with f.while_(lambda: (v.now == v.seen) & v.spins):
            rest(f)
            v.spins = ticks(f) - began <= f.facts.spin_ticks
            v.now = generation.load()
        with f.if_(v.now == v.seen):
            with f.while_(lambda: v.now == v.seen):
                sleeping.add(1)
                sleep(f, pool, v.seen)
                sleeping.add(-1)
                v.now = generation.load()
            with f.if_((sleeping.load() > 0) & (pool.atomic("open").load("monotonic") != 0)):
                wake(f, pool, 2)
        join(f, pool, number)
        v.seen = v.now


@unit.function(None, public=True, pool=POOL, number=I64)
def join(f: Function, pool: Any, number: Any) -> None:
    """Join the job if it is open and has scratch memory for this worker."""
    f.return_if(number >= pool.atomic("limit").load())
    active = pool.atomic("active")
    active.add(1)
    with f.if_(pool.atomic("open").load() != 0), f.if_(number < pool.job.arguments.context.workers):
        share(f, pool, number)
    active.add(-1)


@unit.function(None, public=True, team=to(TeamBlock))
def team(f: Function, team: Any) -> None:
    """Body of each thread of an OpenMP team: the first one runs the kernels, the others join their jobs."""
    number = f.call(team.number, I32).as_(I64)
    done = team.atomic("done")
    with f.if_(number == 0):
        f.call(team.run, None, team.context)
        done.store(1)
        f.return_()
    v = f.variables
    v.seen = team.seen
    generation = team.pool.atomic("generation")
    with f.while_():
        now = generation.load()
        with f.if_(now != v.seen):
            join(f, team.pool, number)
            v.seen = now
        with f.else_():
            f.return_if(done.load() != 0)
            rest(f)
