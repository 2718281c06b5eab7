"""The thread pool: dispatch and waiting are native code, the threads are Python's, daemons that are parked in it.

A job is a function, its ctx and a number of iterations, which are divided into shares, one for each thread. Whoever
runs takes runs of iterations from its share, by the share's counter, and then from the shares of the others until none
is left: the caller too, so a job is done even if no worker wakes up. So a thread goes through memory in long stretches,
which processors fetch ahead, and in the next job of the same size through those that its own caches still hold.

A worker announces itself (`active`) before it looks whether the job is still open; the caller closes the job and then
waits only for those that announced themselves. Waiting workers spin for some microseconds, then sleep on a futex
(where there is none, they nap).

A call brings scratch memory for as many workers as there were when it began; those that were started since then
leave its jobs to the others.

When the pool is busy with the job of another Python thread, the caller does all of its job itself. Nothing that
a kernel computes depends on who does which part.

Sleepers are woken only if there are more runs than threads awake. That takes the caller as long as a short job, so a
short one that comes alone is not worth it; one that soon follows another may be one of many. The caller wakes one
worker, and who was woken wakes two more while there is work left.

Where there are as many threads as CPUs, each worker has a CPU of its own: else the system often lets a woken worker
wait behind the very caller that waits for it. The caller may run anywhere. If it has moved to a worker's CPU since
it last woke one, that worker moves to the CPU that the caller came from.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ....ir.process import process
from ...process.apart import Pauses, apart, start_thread
from ...process.patience import PATIENCE
from ...process.process_wide import Once
from ..abi import aligned
from .cgroup import limits
from .records import POOL_SIZES, UNPINNED, PoolBlock
from .runtime import runtime


def available_cpus() -> int:
    """How many CPUs this process may use, by affinity and by cgroup quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, count if quota is None else min(count, quota))


def _cgroup_quota() -> int | None:
    """The smallest number of CPUs that a control group around this process may use; None if they set no bound."""
    found: list[tuple[str, str]] = []
    quota = ""
    for name, words in limits("cpu", "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"):
        if name == "cpu.max" and len(words) == 2:
            found.append((words[0], words[1]))
        elif name == "cpu.cfs_quota_us":
            quota = words[0]
        elif name == "cpu.cfs_period_us":
            found.append((quota, words[0]))
            quota = ""
    counts = [int(quota) // max(int(period), 1) for quota, period in found if quota.isdigit() and period.isdigit()]
    return max(1, min(counts)) if counts else None


class Pool:
    """The process's workers. They start when a job first could use them."""

    def __init__(self) -> None:
        addresses = runtime()
        self.parallel = addresses["parallel"]
        self._worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(addresses["worker"])
        self.lock = threading.Lock()
        self.cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        self.limit = available_cpus()
        self.current = ctypes.c_int64()  # the block's address, for those who hold one that may be of before a fork
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.current))
        self._fresh()
        process.in_child(self._fresh)  # a forked child has this block, but none of the threads

    def _fresh(self) -> None:
        self.lock = threading.Lock()
        self.block, memory = aligned(PoolBlock)
        # Workers outlive the interpreter's last objects: nobody ever frees what they look at.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        self.address = self.current.value = ctypes.addressof(self.block)
        self._count(1)
        self.threads: dict[int, int] = {}  # workers that run, as the system numbers them
        self.resize(self.limit)

    def resize(self, count: int) -> None:
        """Use at most `count` threads, the caller included."""
        self.limit = self.block.limit = count
        self._place()

    def ready(self) -> None:
        """Start the workers that are missing. Where the system allows no more threads, those that there are will do."""
        if self.started < self.limit:
            apart(self._start)

    def _start(self) -> None:
        with self.lock:
            if self.started == 1 and self.cpus:
                self.cpus = os.sched_getaffinity(0)  # which threads inherit; a fork ago it may have been another
            while self.started < self.limit:
                number = self.started
                self._count(number + 1)
                if not start_thread(self._serve, self.address, number):
                    self._count(number)
                    break
        pauses = Pauses()
        while len(self.threads) + 1 < self.started and pauses.seconds < PATIENCE.begin:
            pauses.pause()
        self.resize(min(self.started, self.limit))

    def _serve(self, address: int, number: int) -> None:
        """What a worker runs."""
        self.threads[number] = threading.get_native_id()
        self._worker(address, number)

    def run(self, function: Any, context: int) -> None:
        """Call native code that uses the pool."""
        function(context)

    def _count(self, started: int) -> None:
        self.started = self.block.started = started

    def _place(self) -> None:
        """A CPU for each worker if there are as many threads as CPUs; else the system places them as it likes."""
        if not hasattr(os, "sched_setaffinity") or self.limit == 1:
            return
        cpus = sorted(self.cpus)
        block = self.block
        with self.lock:
            wanted = range(1, self.limit)
            pinned = (
                len(cpus) == self.limit <= self.started
                and cpus[-1] < POOL_SIZES.pinned
                and all(number in self.threads for number in wanted)
            )
            block.caller_cpu = cpus[0] if pinned else UNPINNED
            for number in wanted:
                if number not in self.threads:
                    continue
                thread = self.threads[number]
                try:
                    os.sched_setaffinity(thread, [cpus[number]] if pinned else cpus)
                except OSError:
                    block.caller_cpu = UNPINNED  # the process may no longer use that CPU
                if pinned:
                    block.places[number] = thread, cpus[number]


pool = Once("thread pool", Pool)


def set_num_threads(count: int) -> None:
    """How many threads compiled code may use in this process, the calling one included."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"the number of threads must be a positive int, got {count!r}")
    pool().resize(count)


def get_num_threads() -> int:
    return pool().limit


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads inside of the block. So do calls that other Python threads make meanwhile."""
    before = get_num_threads()
    set_num_threads(count)
    try:
        yield
    finally:
        set_num_threads(before)
