"""The thread pool: dispatch and waiting are native code, the workers are Python daemon threads parked in it.

A job is a function, its ctx and a number of iterations, divided into one share per thread. A thread takes runs of
iterations from its own share, by the share's atomic counter, then steals from the shares of the others until none is
left. The caller does the same, so a job is done even if no worker wakes up. Shares are contiguous: a thread goes
through memory in long stretches, which the hardware prefetches, and in the next job of the same size through the
stretches that its own caches still hold.

A worker increments `active` before it checks whether the job is still open; the caller closes the job and then waits
until `active` is zero. Idle workers spin for some microseconds, then sleep on a futex (where there is none, they nap).

A call brings scratch memory for the workers that existed when it began; workers started since then do not join its
jobs.

While the pool is busy with the job of another Python thread, the caller runs its whole job itself. No result of a
kernel depends on which thread runs which iterations.

Sleepers are woken only if there are more runs than threads awake. A wake-up takes the caller as long as a short job, so
a short job that comes alone is not worth it; one that soon follows another may be one of many. The caller wakes one
worker, and each woken worker wakes two more while there is work left.

Where there are as many threads as CPUs, each worker is pinned to a CPU of its own: otherwise the scheduler often queues
a woken worker behind the very caller that waits for it. The caller may run anywhere. If it has moved to a worker's CPU
since the last wake-up, that worker moves to the CPU that the caller came from.
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
    """Count the CPUs that this process may use, by affinity and by cgroup quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, count if quota is None else min(count, quota))


def _cgroup_quota() -> int | None:
    """Read the smallest CPU quota of the control groups around this process, in CPUs; None if there is no quota."""
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
    """The thread pool of the process. Workers start when a job first could use them."""

    def __init__(self) -> None:
        addresses = runtime()
        self.parallel = addresses["parallel"]
        self._worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(addresses["worker"])
        self.lock = threading.Lock()
        self.cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        self.limit = available_cpus()
        self.current = ctypes.c_int64()  # the block's address: holders compare theirs, which may be from before a fork
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.current))
        self._fresh()
        process.in_child(self._fresh)  # a forked child has this block, but no workers

    def _fresh(self) -> None:
        self.lock = threading.Lock()
        self.block, memory = aligned(PoolBlock)
        # Never freed: workers outlive the interpreter's last objects and read this block.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        self.address = self.current.value = ctypes.addressof(self.block)
        self._count(1)
        self.threads: dict[int, int] = {}  # the system's id of each running worker
        self.resize(self.limit)

    def resize(self, count: int) -> None:
        """Use at most `count` threads, the caller included."""
        self.limit = self.block.limit = count
        self._place()

    def ready(self) -> None:
        """Start the missing workers. Where the system allows no more threads, the pool stays smaller."""
        if self.started < self.limit:
            apart(self._start)

    def _start(self) -> None:
        with self.lock:
            if self.started == 1 and self.cpus:
                self.cpus = os.sched_getaffinity(0)  # threads inherit it; a fork may have changed it
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
        """Run the native loop of a worker."""
        self.threads[number] = threading.get_native_id()
        self._worker(address, number)

    def run(self, function: Any, context: int) -> None:
        """Call native code that uses the pool."""
        function(context)

    def _count(self, started: int) -> None:
        self.started = self.block.started = started

    def _place(self) -> None:
        """Pin each worker to a CPU if there are as many threads as CPUs; else leave placement to the scheduler."""
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
    """Set how many threads compiled code may use in this process, the calling one included."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"the number of threads must be a positive int, got {count!r}")
    pool().resize(count)


def get_num_threads() -> int:
    return pool().limit


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads inside the block. Calls of other Python threads meanwhile use as many."""
    before = get_num_threads()
    set_num_threads(count)
    try:
        yield
    finally:
        set_num_threads(before)
