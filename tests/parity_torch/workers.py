"""Processes that check samples: what crashes one, or never ends, costs one sample."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

PATIENCE = 120.0  # seconds until a process that does not answer is ended: its own limit for a sample is shorter
Task = tuple[str, str]  # back end, subject


def work(pipe: Connection, samples: int) -> None:
    """A worker: takes a back end, a subject and how many of its samples are done, answers for each other sample."""
    os.environ["SMELT_CACHE_DIR"] = "off"
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    import torch

    from .cases import subjects
    from .check import check

    torch.set_num_threads(1)
    while (task := pipe.recv()) is not None:
        backend, name, skip = task
        try:
            found = subjects()[name].samples(samples)
        except Exception as error:
            found = []
            if not skip:
                text = f"no samples: {type(error).__name__}: {error}"
                pipe.send({"passed": True, "why": text, "void": True})
        for run in found[skip:]:
            pipe.send(check(subjects()[name], run, backend))
        pipe.send(None)


class Worker(threading.Thread):
    """A thread that gives tasks to a process of its own and makes a new one whenever that dies."""

    def __init__(self, tasks: deque[Task], samples: int, found: queue.Queue[Any]):
        super().__init__(daemon=True)
        self.tasks, self.samples, self.found = tasks, samples, found

    def run(self) -> None:
        self._begin()
        while self.tasks:
            self._finish(self.tasks.popleft())
        self.pipe.send(None)
        self.process.join(PATIENCE)
        self.found.put(None)

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, self.samples), daemon=True)
        self.process.start()
        other.close()

    def _finish(self, task: Task) -> None:
        outcomes: list[Any] = []
        while len(outcomes) < self.samples + 1:
            self.pipe.send((*task, len(outcomes)))
            try:
                while True:
                    if not self.pipe.poll(PATIENCE):
                        self.process.kill()
                    outcome = self.pipe.recv()
                    if outcome is None:
                        self.found.put((*task, outcomes))
                        return
                    outcomes.append(outcome)
            except (EOFError, OSError):
                self.process.join()
                outcomes.append({"passed": False, "why": f"crash: the process ended with {self.process.exitcode}"})
                self._begin()
        self.found.put((*task, outcomes[: self.samples]))


def run(tasks: list[Task], samples: int, workers: int) -> Iterator[tuple[str, str, list[Any]]]:
    """Outcomes as they come."""
    found: queue.Queue[Any] = queue.Queue()
    pending = deque(tasks)
    for _ in range(workers):
        Worker(pending, samples, found).start()
    while workers:
        item = found.get()
        if item is None:
            workers -= 1
        else:
            yield item
