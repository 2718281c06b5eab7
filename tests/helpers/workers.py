"""Processes that answer tasks: what crashes one, or never ends, costs one answer. And how far they are."""

from __future__ import annotations

import multiprocessing
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

PATIENCE = 120.0  # seconds until a process that does not answer is ended
MEMORY = 4 << 30  # bytes that a process may hold before it is ended, so that the machine has room for the others
LOOK = 0.1  # seconds between two looks at what a process holds
REPORTS = 50  # lines of progress where no person looks on
Task = tuple[str, ...]
Outcome = dict[str, Any]  # passed, why, and more
# The outcomes of a task from a number of them on. It is pickled, and called in the processes.
Answer = Callable[[Task, int], Iterable[Outcome]]


def work(pipe: Connection, answer: Answer) -> None:
    """A worker: takes a task and how many outcomes it has, answers with each other one, then with nothing."""
    os.environ["SMELT_CACHE_DIR"] = "off"
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while (given := pipe.recv()) is not None:
        for outcome in answer(*given):
            pipe.send(outcome)
        pipe.send(None)


class Worker(threading.Thread):
    """A thread that gives tasks to a process of its own and makes a new one whenever that dies."""

    def __init__(self, tasks: deque[Task], answer: Answer, most: int, patience: float, found: queue.Queue[Any]):
        super().__init__(daemon=True)
        self.tasks, self.answer, self.most, self.patience, self.found = tasks, answer, most, patience, found

    def run(self) -> None:
        self._begin()
        while True:
            try:
                task = self.tasks.popleft()
            except IndexError:
                break
            self._finish(task)
            if resident(self.process.pid) > MEMORY // 2:  # what libraries remember of thousands of programs
                self._end()
                self._begin()
        self._end()
        self.found.put(None)

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, self.answer), daemon=True)
        self.process.start()
        other.close()

    def _end(self) -> None:
        self.pipe.send(None)
        self.process.join(self.patience)

    def _finish(self, task: Task) -> None:
        outcomes: list[Outcome] = []
        while len(outcomes) < self.most + 1:
            ended = ""
            self.pipe.send((task, len(outcomes)))
            try:
                while True:
                    ended = self._wait() or ended
                    outcome = self.pipe.recv()
                    if outcome is None:
                        self.found.put((task, outcomes))
                        return
                    outcomes.append(outcome)
            except (EOFError, OSError):
                self.process.join()
                why = ended or f"crash: the process ended with {self.process.exitcode}"
                outcomes.append({"passed": False, "why": why})
                self._begin()
        self.found.put((task, outcomes[: self.most]))

    def _wait(self) -> str:
        """Wait until the process answers or has ended; the reason if it had to be ended."""
        begin = time.monotonic()
        while not self.pipe.poll(LOOK):
            if time.monotonic() - begin > self.patience:
                self.process.kill()
                return f"hang: no answer in {self.patience:.0f} s"
            if (held := resident(self.process.pid)) > MEMORY:
                self.process.kill()
                return f"memory: the process held {held >> 20} MB"
        return ""


def resident(pid: int | None) -> int:
    """The bytes of memory that a process holds; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def run(
    tasks: Sequence[Task],
    answer: Answer,
    *,
    most: int,
    workers: int,
    patience: float = PATIENCE,
    until: float | None = None,
) -> Iterator[tuple[Task, list[Outcome]]]:
    """The outcomes of each task, at most so many, as they come. None is begun after a time of the monotonic clock."""
    found: queue.Queue[Any] = queue.Queue()
    pending = deque(tasks)
    for _ in range(workers):
        Worker(pending, answer, most, patience, found).start()
    while workers:
        item = found.get()
        if item is None:
            workers -= 1
        else:
            if until is not None and time.monotonic() > until:
                pending.clear()
            yield item


def show_progress(done: int, total: int, failed: int, name: str, begin: float) -> None:
    """A bar on standard error, for people; some lines in a log."""
    left = (time.monotonic() - begin) * (total - done) / max(done, 1)
    if not sys.stderr.isatty():
        if done * REPORTS // total > (done - 1) * REPORTS // total:
            sys.stderr.write(f"{done}/{total}  {failed} failed  {left:.0f} s left\n")
            sys.stderr.flush()
        return
    width = 30
    full = width * done // max(total, 1)
    bar = "#" * full + "." * (width - full)
    sys.stderr.write(f"\r\x1b[K[{bar}] {done}/{total}  {failed} failed  {left:.0f} s left  {name[:40]}")
    if done == total:
        sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()
