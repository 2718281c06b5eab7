"""Measure workloads in this process, which `smelt bench` starts for every setting.

A request comes as JSON on standard input; events leave as lines of JSON on standard output, one by one, so that
little is lost when a contender crashes the process. Output of libraries goes to standard error.

The method (docs/benchmarks.md explains the choices):

- All contenders get the same inputs; results are compared before anything is timed.
- Their samples are interleaved, each round in another order: a busy moment of the machine affects all of them, and so
  does the state of the caches after each of them.
- Before each sample the process waits until its threads are idle. OpenMP's threads spin for some milliseconds after a
  loop and would take a core from the next contender.
- A sample of a short call is many calls, after a warm-up call that is not counted.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import random
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from ... import set_cache_dir
from .contenders import CONTENDERS, Prepared, arrays_of, prepare, takes
from .define import Workload, sizes, workload
from .hit import hit_seconds
from .pointwise import one
from .suite import all_workloads

SAMPLE_SECONDS = 3e-3  # least duration of a sample: steady state, not the first call after a pause
WARM_SECONDS = 5e-3  # shorter calls get a warm-up call before each sample
FEWEST_ROUNDS = 3
MEMORY_CALLS = 5  # calls whose memory is measured; the median counts
TOLERANCES = {"float32": 1e-3, "float64": 1e-9}


def main() -> None:
    request = json.load(sys.stdin)
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    use_processors(request["threads"])
    set_cache_dir(None)
    if request["startup"]:
        for name in request["contenders"]:
            report(channel, event="startup", contender=name, seconds=first_use(name, request["threads"]))
    if request["compile"] and "inductor" in request["contenders"]:
        forget_compiled()
    workloads = all_workloads()
    for name in request["workloads"]:
        report(channel, event="begin", workload=name)
        found = measure(workloads[name], request, channel)
        report(channel, event="end", workload=name, contenders=found)


def report(channel: TextIO, **event: Any) -> None:
    channel.write(json.dumps(event) + "\n")
    channel.flush()


def use_processors(count: int) -> None:
    """Restrict this process to so many processors, and with it the threads of all libraries, also of those without a
    setting for their number (XLA, BLAS)."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def forget_compiled() -> None:
    """Disable Inductor's disk caches, so that nothing is reused from an earlier run."""
    import torch._inductor.config

    torch._inductor.config.force_disable_caches = True


@workload("warm-up", one, sizes(tiny=(8,), small=(8,), medium=(8,), large=(8,)))
def warm_up(xp: Any, x: Any) -> Any:
    """The first compile of each contender, which loads its compiler."""
    return xp.exp(x) + 1


def first_use(name: str, threads: int) -> float | None:
    """Return the seconds that loading a contender takes, with its first compile; None if it has no version."""
    if not takes(name, warm_up):
        return None
    begin = time.perf_counter()
    if name == "inductor":
        forget_compiled()
    prepare(name, warm_up, warm_up.make_inputs("tiny"), threads).call()
    return time.perf_counter() - begin


def measure(workload: Workload, request: dict[str, Any], channel: TextIO) -> dict[str, dict[str, Any]]:
    """Return the results of each contender for a workload."""
    inputs = workload.make_inputs(request["size"])
    found: dict[str, dict[str, Any]] = {}
    prepared: list[Prepared] = []
    results: dict[str, list[np.ndarray]] = {}
    for name in CONTENDERS:
        if name not in request["contenders"] or not takes(name, workload):
            continue
        report(channel, event="contender", workload=workload.name, contender=name)
        # Collect the previous contender's garbage, which takes longer than compiling, and wait for its threads.
        gc.collect()
        settle()
        try:
            begin = time.perf_counter()
            ready = prepare(name, workload, inputs, request["threads"])
            result = ready.call()
            seconds = time.perf_counter() - begin
            # The first call's results are alive, so that this call allocates, too: the difference is the compile time.
            begin = time.perf_counter()
            again = ready.call()
            run = time.perf_counter() - begin
            results[name] = arrays_of(result)
            del result, again
        except Exception as error:
            # A contender that fails is a result like any other; the others still run.
            found[name] = {"error": describe(error)}
            continue
        found[name] = {"first_call": seconds, "compile": max(seconds - run, 0.0)}
        prepared.append(ready)
    compare(results, found)
    del results
    gc.collect()
    gc.disable()
    try:
        report(channel, event="timing", workload=workload.name)
        for name, times in take_turns(prepared, request["repeat"], request["seconds"]).items():
            found[name].update(
                median=statistics.median(times), minimum=min(times), samples=len(times), spread=spread(times)
            )
        for ready in prepared:
            found[ready.name]["memory"] = memory_of(ready)
        if request["compile"] and "median" in found.get("smelt", {}):
            found["smelt"] |= hit_seconds(workload, request["size"], request["threads"])
    finally:
        gc.enable()
    return found


def describe(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0]} ({os.path.basename(last.filename)}:{last.lineno})"


# ----- right or wrong


def compare(results: dict[str, list[np.ndarray]], found: dict[str, dict[str, Any]]) -> None:
    """Compare every contender's results with those of PyTorch eager; without it, with the first of the others."""
    if not results:
        return
    reference = next((name for name in ("eager", "numpy") if name in results), next(iter(results)))
    for name, arrays in results.items():
        error = distance(arrays, results[reference])
        found[name]["difference"] = error if math.isfinite(error) else None
        found[name]["agrees"] = error <= 1.0
        found[name]["reference"] = reference


def distance(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """Return the largest difference relative to the tolerance: 1 is just acceptable. The scale is that of the whole
    array, since the error of a sum that nearly cancels is relative to its terms."""
    if len(ours) != len(theirs):
        return math.inf
    worst = 0.0
    for left, right in zip(ours, theirs):
        if left.shape != right.shape:
            return math.inf
        if right.dtype.kind != "f":
            # An argmax of nearly equal numbers may differ, in a few elements.
            wrong = float(np.mean(left != right)) if right.size else 0.0
            worst = max(worst, wrong / 1e-3)
            continue
        both = np.isfinite(left) & np.isfinite(right)
        if not np.array_equal(left[~both], right[~both], equal_nan=True):
            return math.inf
        wide_left, wide_right = left[both].astype(np.float64), right[both].astype(np.float64)
        if not wide_right.size:
            continue
        tolerance = TOLERANCES.get(right.dtype.name, 1e-3)
        scale = np.abs(wide_right) + np.sqrt(np.mean(wide_right * wide_right)) + np.finfo(np.float64).tiny
        worst = max(worst, float(np.max(np.abs(wide_left - wide_right) / scale)) / tolerance)
    return worst


# ----- time


def take_turns(prepared: Sequence[Prepared], repeat: int, seconds: float) -> dict[str, list[float]]:
    """Return samples of the seconds of one call, for each contender."""
    counts: dict[str, int] = {}
    warm: dict[str, bool] = {}
    for ready in prepared:
        estimate = min(sample(ready.call, 1) for _ in range(2))
        warm[ready.name] = estimate < WARM_SECONDS
        if warm[ready.name]:  # estimate again after the slower first calls
            estimate = sample(ready.call, calls_in_sample(estimate))
        counts[ready.name] = calls_in_sample(estimate)
    times: dict[str, list[float]] = {ready.name: [] for ready in prepared}
    order = list(prepared)
    shuffle = random.Random(0).shuffle
    end = time.perf_counter() + seconds
    for number in range(repeat):
        if number >= FEWEST_ROUNDS and time.perf_counter() > end:
            break
        shuffle(order)  # not rotated: each would always follow the same one
        for ready in order:
            settle()
            if warm[ready.name]:
                ready.call()
            times[ready.name].append(sample(ready.call, counts[ready.name]))
    return times


def calls_in_sample(seconds: float) -> int:
    return min(max(math.ceil(SAMPLE_SECONDS / seconds), 1), 1000)


def sample(call: Callable[[], Any], count: int) -> float:
    """Return the seconds of one call. Results are freed at once, as a part of the cost."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def settle() -> None:
    """Wait until the other threads of this process are idle, and some time more."""
    for _ in range(50):
        busy = others_run()
        time.sleep(5e-4)
        if not busy:
            return


def others_run() -> bool:
    """Whether another thread of this process is running, or wants to.

    Linux updates the CPU time of a thread on another processor only at ticks, some milliseconds apart, so the states of
    threads are read there."""
    own = str(threading.get_native_id())
    try:
        for number in os.listdir("/proc/self/task"):
            if number == own:
                continue
            with open(f"/proc/self/task/{number}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "R":
                    return True
        return False
    except OSError:  # no such files, or a thread that has just ended
        before = time.process_time()
        time.sleep(5e-4)
        return time.process_time() - before > 2e-4


def spread(times: Sequence[float]) -> float:
    """Return the interquartile range of the samples over their median."""
    if len(times) < 4:
        return 0.0
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / middle


# ----- memory


def memory_of(ready: Prepared) -> int | None:
    """Return the bytes that become resident during a call, results included: the median of some calls; None where the
    system does not tell."""
    try:
        return statistics.median_low(memory_of_call(ready) for _ in range(MEMORY_CALLS))
    except (OSError, StopIteration):
        return None


def memory_of_call(ready: Prepared) -> int:
    ready.release()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    # Reading /proc allocates memory of Python's, which malloc_trim has just freed: the second reading is exact.
    for _ in range(2):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the peak to the resident size
        before = resident("VmRSS")
    result = ready.call()
    # Read while the results are alive: the kernel updates the peak exactly for the current resident size, but for an
    # earlier one only when memory is freed, without the last pages of each processor.
    peak = resident("VmHWM")
    del result
    return max(peak - before, 0)


def resident(what: str) -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(what))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
