"""Blocks for Numba's simulator, whose threads take turns.

The simulator's own let all threads run at once and looks again and again whether they all wait: most of the time goes
to switches between them. Here one thread runs at a time, until it waits for the others or ends, and from barrier to
barrier they come in another order: one that is missing shows as a wrong result, the same one at every run. What does
not show, since a thread is never stopped between barriers, is looked for: memory knows who touched each element since
the last one, and a write that nothing orders with another thread's access is an error.
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
    """Raised where a thread waits in a block of which another thread failed."""


class Race(RuntimeError):
    """Two threads touch an element, at least one of them writes it, and no barrier is between them."""


class Access(NamedTuple):
    """When a thread touched an element: barriers order threads of a team, and nothing orders teams."""

    launch: int
    block: int
    team: int
    passed: int  # barriers
    thread: int


class Thread:
    """A thread of the machine, which plays one thread of each block."""

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
    """The threads of all blocks of a program, which run one after the other."""

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
        self.pending = pool.first(count)  # who still runs, up to where all wait
        pool.random.shuffle(self.pending)
        self.waiting: list[Thread] = []
        self.current = self.pending.pop()
        self.error: Exception | None = None
        self.passed = [0] * count  # barriers, by thread

    def run(self) -> None:
        self.pool.block = self
        self.current.turn.release()
        self.pool.done.acquire()
        if self.error is not None:
            raise self.error

    def play(self) -> None:
        """One thread, from beginning to end."""
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
        """The barrier, for the current thread. An exchange of registers orders no accesses to memory."""
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
    """The threads of a block that never wait, one after the other."""

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
    """Makes the simulator run blocks like this. Call what it gives before a launch, with the kind of its outermost
    loop: in a grid no thread waits for others."""
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
    """The shared array of a line of source; a block finds in it what the one before left."""
    frame = sys._getframe(1)
    place = frame.f_code.co_filename, frame.f_lineno
    if place not in shared._allocations:
        shared._allocations[place] = Memory(np.empty(shape, dtype), shared=True)
    return shared._allocations[place]


class Notes:
    """An array that threads may touch in any order: where kernels note errors. The simulator copies NumPy's arrays for
    each launch and back, with all that lies behind them; it takes an object like this as it is."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    def __getitem__(self, place: int) -> Any:
        return self.array[place]

    def __setitem__(self, place: int, value: Any) -> None:
        self.array[place] = value


class Memory:
    """An array whose elements are found by numbers from 0 on, and none outside of it. All that blocks have of it is one
    array, or (`shared`) one that each block has for itself."""

    __slots__ = ("array", "read", "shared", "written")
    access: Callable[[], Access] = staticmethod(lambda: Access(0, 0, 0, 0, 0))  # who is at it, while blocks run

    def __init__(self, array: np.ndarray, shared: bool = False):
        self.array = array
        self.shared = shared
        self.written: dict[int, Access] = {}
        # The first and the last read that nothing orders, of two threads, and of two teams if there are such.
        self.read: dict[int, tuple[Access, Access]] = {}

    def __getitem__(self, place: Any) -> Any:
        if place < 0:
            raise IndexError(f"a load at {place}")
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
            raise IndexError(f"a store at {place}")
        number, here = int(place), self.access()
        self._order(here, self.written.get(number), number)
        for other in self.read.get(number, ()):
            self._order(here, other, number)
        self.array[place] = value
        self.written[number] = here

    def _at_once(self, left: Access, right: Access) -> bool:
        """Whether nothing orders two accesses of different threads."""
        if left.launch != right.launch or (self.shared and left.block != right.block):
            return False
        return left.block != right.block or left.team != right.team or left.passed == right.passed

    def _order(self, here: Access, other: Access | None, place: int) -> None:
        if other is None or (other.thread == here.thread and other.block == here.block):
            return
        if self._at_once(other, here):
            raise Race(f"element {place} is touched by threads {other.thread} and {here.thread} at once")
