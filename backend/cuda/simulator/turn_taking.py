"""Run the threads of a simulated block in turns, and detect races.

Numba's own blocks run all threads at once and poll whether all wait at a barrier: most of the time goes to switches
between threads. Here one thread runs at a time, until a barrier or its end, and the order of threads is shuffled from
barrier to barrier: a missing barrier shows as a wrong result, deterministically. Races that cannot show, because no
thread is stopped between barriers, are detected: memory records the accesses to each element since the last barrier,
and a write that no barrier orders with another thread's access is an error.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from ....kernels.gpu import GPU


class Abandoned(BaseException):
    """Raised at a barrier in a block of which another thread failed."""


class Race(RuntimeError):
    """A race: two threads access an element without a barrier in between, at least one of them writes it."""


class Access(NamedTuple):
    """The time of a thread's access: barriers order the threads of a team, nothing orders teams."""

    launch: int
    block: int
    team: int
    passed: int  # number of barriers passed
    thread: int


class Thread:
    """A Python thread, which plays one thread of each block."""

    def __init__(self, number: int, pool: Pool):
        self.number = number
        self.pool = pool
        self.turn = threading.Lock()
        self.turn.acquire()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self.turn.acquire()
            block = self.pool.block
            if block is None:
                return
            block.play()


class Pool:
    """The Python threads of a program, used by all its blocks, which run one after the other."""

    def __init__(self) -> None:
        self.threads: list[Thread] = []
        self.block: Block | None = None
        self.random = random.Random(0)
        self.done = threading.Lock()
        self.done.acquire()

    def first(self, count: int) -> list[Thread]:
        while len(self.threads) < count:
            self.threads.append(Thread(len(self.threads), self))
        return self.threads[:count]

    def close(self) -> None:
        self.block = None
        for thread in self.threads:
            thread.turn.release()


class Block:
    """The threads of a block; `current` is the one that runs."""

    def __init__(self, pool: Pool, place: Any, count: int, function: Callable[[], None]):
        self.pool = pool
        self.place = place
        self.function = function
        self.pending = pool.first(count)  # threads that have not reached the barrier
        pool.random.shuffle(self.pending)
        self.waiting: list[Thread] = []
        self.current = self.pending.pop()
        self.error: Exception | None = None
        self.passed = [0] * count  # barriers passed, by thread

    def run(self) -> None:
        self.pool.block = self
        self.current.turn.release()
        self.pool.done.acquire()
        if self.error is not None:
            raise self.error

    def play(self) -> None:
        """Run the current thread from beginning to end."""
        try:
            if self.error is None:
                self.function()
        except Abandoned:
            pass
        except Exception as error:
            error.add_note(f"in thread {self.current.number} of block {self.place.x}")
            self.error = error
        if self._choose():
            self.current.turn.release()
        else:
            self.pool.done.release()

    def wait(self, orders: bool = True) -> None:
        """Wait at a barrier, in the current thread. orders: false for shuffles, which do not order memory accesses."""
        mine = self.current
        self.passed[mine.number] += orders
        self.waiting.append(mine)
        self._choose()
        if self.current is not mine:
            self.current.turn.release()
            mine.turn.acquire()
        if self.error is not None:
            raise Abandoned

    def _choose(self) -> bool:
        if not self.pending:
            self.pending, self.waiting = self.waiting, self.pending
            self.pool.random.shuffle(self.pending)
        if not self.pending:
            return False
        self.current = self.pending.pop()
        return True


class Alone:
    """A block without barriers: its threads run one after the other."""

    def __init__(self, place: Any, count: int, function: Callable[[], None]):
        self.place = place
        self.count = count
        self.function = function
        self.current: Any = self
        self.number = 0
        self.passed = [0] * count

    def run(self) -> None:
        for number in range(self.count):
            self.number = number
            self.function()

    def wait(self, orders: bool = True) -> None:
        raise RuntimeError("a thread of a grid waits for others")


@contextmanager
def taking_turns() -> Iterator[Callable[[str], None]]:
    """Make the simulator use these blocks, within the context. Call the yielded function before each launch, with the
    kind of its outermost loop: in a grid loop there are no barriers."""
    from numba.cuda.simulator import kernel
    from numba.cuda.simulator.kernelapi import Dim3, FakeCUDAModule, FakeCUDAShared

    pool = Pool()
    block: Any = None
    teams = "block"
    launches = 0

    class Manager:
        def __init__(self, function: Callable[..., None], grid: Sequence[int], threads: Sequence[int], debug: bool):
            self.function, self.threads = function, threads[0]

        def run(self, place: Sequence[int], *arguments: Any) -> None:
            nonlocal block

            def play() -> None:
                self.function(*arguments)

            alone = teams == "grid"
            block = Alone(Dim3(*place), self.threads, play) if alone else Block(pool, Dim3(*place), self.threads, play)
            block.run()

    def choose(kind: str) -> None:
        nonlocal teams, launches
        teams = kind
        launches += 1

    def access() -> Access:
        thread = block.current.number
        team = {"grid": thread, "warp": thread // GPU.warp, "block": 0}[teams]
        return Access(launches, block.place.x, team, block.passed[thread], thread)

    places = [Dim3(number, 0, 0) for number in range(1024)]
    replaced: dict[str, Any] = {
        "threadIdx": property(lambda module: places[block.current.number]),
        "blockIdx": property(lambda module: block.place),
        "syncthreads": lambda module: block.wait(),
        "exchange_registers": lambda module: block.wait(orders=False),
    }
    with (
        patch.object(kernel, "BlockManager", Manager),
        patch.multiple(FakeCUDAModule, create=True, **replaced),
        patch.object(FakeCUDAShared, "array", _shared_array),
        patch.object(Memory, "access", staticmethod(access)),
    ):
        try:
            yield choose
        finally:
            pool.close()


def _shared_array(shared: Any, shape: int, dtype: Any) -> Memory:
    """Return the shared array of a line of source; it keeps the values of the previous block."""
    frame = sys._getframe(1)
    place = frame.f_code.co_filename, frame.f_lineno
    if place not in shared._allocations:
        shared._allocations[place] = Memory(np.empty(shape, dtype), shared=True)
    return shared._allocations[place]


class Notes:
    """The array of noted errors, whose accesses need no order. A wrapper, since the simulator copies NumPy arrays, with
    the whole memory behind them, for each launch and back."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    def __getitem__(self, place: int) -> Any:
        return self.array[place]

    def __setitem__(self, place: int, value: Any) -> None:
        self.array[place] = value


class Memory:
    """An array that checks bounds and records accesses. Global memory is one array for all blocks; shared memory
    (`shared`) is separate for each block."""

    __slots__ = ("array", "read", "shared", "written")
    access: Callable[[], Access] = staticmethod(lambda: Access(0, 0, 0, 0, 0))  # current access, while blocks run

    def __init__(self, array: np.ndarray, shared: bool = False):
        self.array = array
        self.shared = shared
        self.written: dict[int, Access] = {}
        # The first and the last of the unordered reads, by two threads, and by two teams if possible.
        self.read: dict[int, tuple[Access, Access]] = {}

    def __getitem__(self, place: Any) -> Any:
        if place < 0:
            raise IndexError(f"a load at index {place}, out of bounds")
        value = self.array[place]
        number, here = int(place), self.access()
        self._order(here, self.written.get(number), number)
        first, last = self.read.get(number, (here, here))
        if not self._at_once(first, here):
            first, last = (here, last) if self._at_once(last, here) else (here, here)
        elif not self._at_once(last, here) or last.thread == first.thread or first.team != here.team:
            last = here
        self.read[number] = first, last
        return value

    def __setitem__(self, place: Any, value: Any) -> None:
        if place < 0:
            raise IndexError(f"a store at index {place}, out of bounds")
        number, here = int(place), self.access()
        self._order(here, self.written.get(number), number)
        for other in self.read.get(number, ()):
            self._order(here, other, number)
        self.array[place] = value
        self.written[number] = here

    def _at_once(self, left: Access, right: Access) -> bool:
        """Whether no barrier orders two accesses of different threads."""
        if left.launch != right.launch or (self.shared and left.block != right.block):
            return False
        return left.block != right.block or left.team != right.team or left.passed == right.passed

    def _order(self, here: Access, other: Access | None, place: int) -> None:
        if other is None or (other.thread == here.thread and other.block == here.block):
            return
        if self._at_once(other, here):
            raise Race(f"element {place} is touched by threads {other.thread} and {here.thread} at once")
