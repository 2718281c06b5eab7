"""Signals whose handlers raise, while two threads compile and call: `python interrupts.py 2000 2000`, interrupts and
alarms. Prints what happened; ends with an error if an exception turned into another one, a lock stayed held, a thread
hung, a result was wrong or memory was lost."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import smelt
from llvmlite.binding import ffi
from smelt import ops
from smelt.backend.process.forks import no_forks

X = np.linspace(0.1, 1.0, 24 * 24).reshape(24, 24)
PROGRAMS = [
    lambda x, k: np.exp(x * k).sum(0),
    lambda x, k: (x + k) @ x,
    lambda x, k: np.cumsum(np.flip(x - k, 1), 1),
    lambda x, k: {"a": np.concatenate([x, x.T * k]), "b": (x > k, x.argmax(1))},
    lambda x, k: ops.softmax(x * k, 1).T + 1,
]
LONGEST = 0.04  # seconds until a signal: about as long as it takes to compile
LEAK = 24 << 20  # bytes by which the process may grow after the first quarter


class Alarm(Exception):
    pass


def raise_alarm(number: int, frame: Any) -> None:
    raise Alarm


def memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def leaves(item: Any) -> list[np.ndarray]:
    if isinstance(item, dict):
        item = tuple(item.values())
    return [part for member in item for part in leaves(member)] if isinstance(item, tuple) else [np.asarray(item)]


def compiled(program: Any, constant: float) -> Any:
    return smelt.jit(lambda x: program(x, constant))


def check(function: Any, program: Any, constant: float) -> None:
    for found, wanted in zip(leaves(function(X)), leaves(EXPECTED[program](X, constant)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def softmax(x: np.ndarray, k: float) -> np.ndarray:
    e = np.exp(x * k)
    return (e / e.sum(1, keepdims=True)).T + 1


EXPECTED = {program: program for program in PROGRAMS[:-1]} | {PROGRAMS[-1]: softmax}


class Campaign:
    def __init__(self, interrupts: int, alarms: int):
        self.kinds = ["interrupt"] * interrupts + ["alarm"] * alarms
        random.Random(0).shuffle(self.kinds)
        self.caught = {"interrupt": 0, "alarm": 0}
        self.wrong: list[str] = []
        self.done = threading.Event()
        self.others = 0  # programs that the second thread has compiled

    def second_thread(self) -> None:
        while not self.done.is_set():
            program, constant = PROGRAMS[self.others % len(PROGRAMS)], 2 + self.others * 1e-6
            try:
                check(compiled(program, constant), program, constant)
            except BaseException as error:
                self.wrong.append(f"the second thread: {error!r}")
            self.others += 1

    def once(self, number: int, kind: str) -> None:
        """Compile and call until a signal comes, then without one."""
        program, constant = PROGRAMS[number % len(PROGRAMS)], 1 + number * 1e-6
        function = compiled(program, constant)
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, LONGEST))
                end = time.monotonic() + 2 * LONGEST
                while time.monotonic() < end:
                    function(X)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except (Alarm, KeyboardInterrupt):
            self.caught[kind] += 1
        except BaseException as error:
            self.wrong.append(f"{kind} {number}: {error!r}")
        check(function, program, constant)

    def run(self) -> None:
        thread = threading.Thread(target=self.second_thread, daemon=True)
        thread.start()
        before = 0
        for number, kind in enumerate(self.kinds):
            if number == len(self.kinds) // 4:
                before = memory()
            signal.signal(signal.SIGALRM, raise_alarm if kind == "alarm" else signal.default_int_handler)
            self.once(number, kind)
        self.done.set()
        thread.join(60)
        if thread.is_alive():
            self.wrong.append("the second thread hangs")
        self.grown = memory() - before
        if self.grown > LEAK:
            self.wrong.append(f"{self.grown >> 10} KB were lost")
        self.look_at_locks()
        if not gc.isenabled():
            self.wrong.append("no garbage is collected any more")
        print(*(f"{count} {kind}s" for kind, count in self.caught.items()), f"{self.others} programs beside", end=", ")
        print(f"{self.grown >> 10} KB, {len(os.listdir('/proc/self/task'))} threads")

    def look_at_locks(self) -> None:
        """From another thread: the one that got the signals may enter again what it has lost."""
        lost: list[str] = []

        def look() -> None:
            locks = {"llvmlite's lock": ffi.lib._lock._lock, "the guard of forks": no_forks.guard}
            locks |= {f"the lock of thread {at}": lock for at, lock in no_forks.locks.items()}
            for name, lock in locks.items():
                if lock.acquire(timeout=20):
                    lock.release()
                else:
                    lost.append(name)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        self.wrong += lost
        begin = time.monotonic()
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        if time.monotonic() - begin > 10:
            self.wrong.append("a fork waited")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(float(os.environ.get("SECONDS", "100")), exit=True)
    for tried in PROGRAMS:
        check(compiled(tried, 1.5), tried, 1.5)
    campaign = Campaign(*map(int, sys.argv[1:]))
    campaign.run()
    if campaign.wrong:
        sys.exit("\n".join(campaign.wrong))
