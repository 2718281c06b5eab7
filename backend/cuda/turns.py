"""Blocks for Numba's simulator, whose threads take turns.

The simulator's own let all threads run at once and looks again and again whether they all wait: most of the time goes
to switches between them. Here one thread runs at a time, until it waits for the others or ends, and from barrier to
barrier they come in another order: one that is missing shows as a wrong result, the same one at every run.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np


class Abandoned(BaseException):
    """Raised where a thread waits in a block of which another thread failed."""


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

    def wait(self) -> None:
        """The barrier, for the current thread."""
        mine = self.current
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

    def run(self) -> None:
        for number in range(self.count):
            self.number = number
            self.function()

    def wait(self) -> None:
        raise RuntimeError("a thread of a grid waits for others")


@contextmanager
def taking_turns() -> Iterator[Callable[[bool], None]]:
    """Makes the simulator run blocks like this. Call what it gives before a launch: whether its threads wait."""
    from numba.cuda.simulator import kernel
    from numba.cuda.simulator.kernelapi import Dim3, FakeCUDAModule, FakeCUDAShared

    pool = Pool()
    block: Any = None
    waits = True

    class Manager:
        def __init__(self, function: Callable[..., None], grid: Sequence[int], threads: Sequence[int], debug: bool):
            self.function, self.threads = function, threads[0]

        def run(self, place: Sequence[int], *arguments: Any) -> None:
            nonlocal block

            def play() -> None:
                self.function(*arguments)

            block = Block(pool, Dim3(*place), self.threads, play) if waits else Alone(Dim3(*place), self.threads, play)
            block.run()

    def choose(given: bool) -> None:
        nonlocal waits
        waits = given

    places = [Dim3(number, 0, 0) for number in range(1024)]
    replaced: dict[str, Any] = {
        "threadIdx": property(lambda module: places[block.current.number]),
        "blockIdx": property(lambda module: block.place),
        "syncthreads": lambda module: block.wait(),
    }
    with (
        patch.object(kernel, "BlockManager", Manager),
        patch.multiple(FakeCUDAModule, **replaced),
        patch.object(FakeCUDAShared, "array", _shared_array),
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
        shared._allocations[place] = Memory(np.empty(shape, dtype))
    return shared._allocations[place]


class Memory:
    """An array whose elements are found by numbers from 0 on, and none outside of it."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    def __getitem__(self, place: Any) -> Any:
        if place < 0:
            raise IndexError(f"a load at {place}")
        return self.array[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        if place < 0:
            raise IndexError(f"a store at {place}")
        self.array[place] = value
