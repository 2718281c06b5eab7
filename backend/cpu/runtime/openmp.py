"""Run a call on OpenMP's threads in place of the pool's own.

The threads of an OpenMP library spin for milliseconds after each parallel region. If another library of the process
has such regions between calls (PyTorch's eager ops), they would take the CPUs from the pool's workers; so a long call
is itself a parallel region, with the pool's protocol inside: the first thread of the team runs the kernels, the others
join their jobs until it is done.

A team belongs to one calling thread, as in OpenMP. A forked child has none of OpenMP's threads, and the library does
not notice: there are no teams in the child.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from ....ir.process import process
from ...process.process_wide import Once
from ..abi import aligned
from .records import PoolBlock, TeamBlock
from .runtime import runtime
from .threads import Pool, pool

LIBRARIES = ("libgomp", "libomp", "libiomp5")  # all of them have libgomp's entry points


class Team:
    """The threads of one OpenMP team, with the interface of Pool that a launcher needs."""

    def __init__(self, parallel: Any, number: Any, own: Pool):
        self.own = own
        self.parallel = own.parallel
        self.started = 1  # no thread needs scratch memory beyond the limit
        self.block, self.memory = aligned(PoolBlock)
        self.address = ctypes.addressof(self.block)
        self.call = TeamBlock(pool=self.address, number=ctypes.cast(number, ctypes.c_void_p).value)
        self._parallel = parallel
        self._function = runtime()["team"]
        self._call_at = ctypes.addressof(self.call)

    @property
    def limit(self) -> int:
        return self.own.limit

    def ready(self) -> None:
        """Do nothing: OpenMP starts its threads itself."""

    def run(self, function: Any, context: int) -> None:
        call, block = self.call, self.block
        call.run, call.context = ctypes.cast(function, ctypes.c_void_p), context
        block.limit, call.seen, call.done = self.limit, block.generation, 0
        self._parallel(self._function, self._call_at, self.limit, 0)


Threads = Pool | Team


class _Library:
    """The OpenMP library of the process, if it has loaded one."""

    def __init__(self) -> None:
        self.teams = threading.local()
        self.routines: tuple[Any, Any] | None = None
        found = _mapped_library()
        if found is not None:
            parallel, number = found.GOMP_parallel, found.omp_get_thread_num
            parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            parallel.restype = None
            self.routines = parallel, number
        process.in_child(self._leave)

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
    """Find the OpenMP library that the process has loaded; None if there is none."""
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


_openmp = Once("OpenMP", _Library)


def openmp_threads() -> Threads:
    """Return the team of the calling thread; the pool where there is no OpenMP, or only one thread."""
    return _openmp().threads()
