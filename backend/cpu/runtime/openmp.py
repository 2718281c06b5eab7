"""OpenMP's threads in place of the pool's own, for the length of one call.

The threads of an OpenMP library go on spinning for milliseconds after each parallel loop. Where another library in the
process has such loops between calls (PyTorch's eager ops), they would take the processors from the pool's workers; so a
long call is itself such a loop, with the pool's protocol inside: the first thread of the team runs the kernels, the
others take part in their jobs until it is done.

A team belongs to one thread of the caller's, as it does in OpenMP. A forked child has none of OpenMP's threads, and
the library does not know: no teams there.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from ...process.process_wide import Once
from .runtime import runtime
from .threads import COUNTERS, GENERATION, LIMIT, MOST_SHARES, Pool, pool

LIBRARIES = ("libgomp", "libomp", "libiomp5")  # all of them can be called as libgomp is
RUN, CONTEXT, POOL, NUMBER, SEEN, DONE, WORDS = range(7)  # of the block that a team gets

TEXT = f"""
define void @team(ptr %team) nounwind {{
entry:
  %number.at = getelementptr i64, ptr %team, i64 {NUMBER}
  %number.of = load ptr, ptr %number.at
  %number.32 = call i32 %number.of()
  %number = sext i32 %number.32 to i64
  %pool.at = getelementptr i64, ptr %team, i64 {POOL}
  %pool = load ptr, ptr %pool.at
  %done.at = getelementptr i64, ptr %team, i64 {DONE}
  %is.first = icmp eq i64 %number, 0
  br i1 %is.first, label %run, label %member
run:
  %run.at = getelementptr i64, ptr %team, i64 {RUN}
  %function = load ptr, ptr %run.at
  %ctx.at = getelementptr i64, ptr %team, i64 {CONTEXT}
  %ctx = load ptr, ptr %ctx.at
  call void %function(ptr %ctx)
  store atomic i64 1, ptr %done.at seq_cst, align 8
  ret void
member:
  %generation = getelementptr i64, ptr %pool, i64 {GENERATION}
  %seen.at = getelementptr i64, ptr %team, i64 {SEEN}
  %first.64 = load i64, ptr %seen.at
  %first = trunc i64 %first.64 to i32
  br label %spin
spin:
  %seen = phi i32 [ %first, %member ], [ %seen, %rest ], [ %now, %join ]
  %now = load atomic i32, ptr %generation seq_cst, align 8
  %new = icmp ne i32 %now, %seen
  br i1 %new, label %join, label %look
look:
  %done = load atomic i64, ptr %done.at seq_cst, align 8
  %is.done = icmp ne i64 %done, 0
  br i1 %is.done, label %return, label %rest
rest:
  call void @rest()
  br label %spin
join:
  call void @join(ptr %pool, i64 %number)
  br label %spin
return:
  ret void
}}

declare void @join(ptr, i64)
declare void @rest()
"""


class Team:
    """What a launcher needs of threads, as Pool has it."""

    def __init__(self, parallel: Any, number: Any, own: Pool):
        self.own = own
        self.parallel = own.parallel
        self.started = 1  # none that would need scratch memory beyond the limit
        slots = COUNTERS + 8 * MOST_SHARES
        self.memory = (ctypes.c_int64 * (slots + WORDS + 8))()
        start = ctypes.addressof(self.memory)
        self.address = start + -start % 64
        self.block = (ctypes.c_int64 * slots).from_address(self.address)
        self.words = (ctypes.c_int64 * WORDS).from_address(self.address + 8 * slots)
        self.words[POOL] = self.address
        self.words[NUMBER] = ctypes.cast(number, ctypes.c_void_p).value or 0
        self._parallel = parallel
        self._function = runtime()["team"]
        self._words_at = ctypes.addressof(self.words)

    @property
    def limit(self) -> int:
        return self.own.limit

    def ready(self) -> None:
        """OpenMP starts its threads itself."""

    def run(self, function: Any, context: int) -> None:
        words, block = self.words, self.block
        words[RUN], words[CONTEXT] = ctypes.cast(function, ctypes.c_void_p).value or 0, context
        block[LIMIT], words[SEEN], words[DONE] = self.limit, block[GENERATION], 0
        self._parallel(self._function, self._words_at, self.limit, 0)


Threads = Pool | Team


class _Library:
    """The process's OpenMP, if there is one."""

    def __init__(self) -> None:
        self.teams = threading.local()
        self.routines: tuple[Any, Any] | None = None
        found = _mapped_library()
        if found is not None:
            parallel, number = found.GOMP_parallel, found.omp_get_thread_num
            parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            parallel.restype = None
            self.routines = parallel, number
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave)

    def _leave(self) -> None:
        self.routines = None

    def threads(self) -> Threads:
        own = pool()
        if self.routines is None or own.limit == 1:
            return own
        try:
            return self.teams.mine
        except AttributeError:
            self.teams.mine = Team(*self.routines, own)
            return self.teams.mine


def _mapped_library() -> ctypes.CDLL | None:
    """The OpenMP library that the process has loaded."""
    try:
        with open("/proc/self/maps") as file:
            paths = {line.split(maxsplit=5)[-1].strip() for line in file}
    except OSError:
        return None
    for path in sorted(paths):
        if os.path.basename(path).startswith(LIBRARIES):
            try:
                library = ctypes.CDLL(path)
            except OSError:
                continue
            if hasattr(library, "GOMP_parallel") and hasattr(library, "omp_get_thread_num"):
                return library
    return None


_openmp = Once(_Library)


def openmp_threads() -> Threads:
    """The team of the calling thread; the pool where there is no OpenMP, or nothing to share."""
    return _openmp().threads()
