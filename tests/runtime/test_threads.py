"""Threads of Python that call compiled code, and its own: any number of them, the same bits."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.cpu.abi import FIRST_FREE, WORKERS
from smelt.backend.cpu.runtime.threads import pool as shared_pool
from support import run

# Python threads.


def test_many_python_threads_call_at_once() -> None:
    function = smelt.jit(lambda x, k: (ops.softmax(x * k, 1), (x + k).sum()))
    data = [np.random.default_rng(seed).standard_normal((150, 64)).astype("float32") for seed in range(6)]
    expected = [[out.copy() for out in function(x, float(number))] for number, x in enumerate(data)]

    def work(turn: int) -> None:
        number = turn % len(data)
        soft, total = function(data[number], float(number))
        np.testing.assert_array_equal(soft, expected[number][0])
        np.testing.assert_array_equal(total, expected[number][1])

    with smelt.threads(3), ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(600)))


def test_many_python_threads_compile_at_once() -> None:
    function = smelt.jit(lambda x: ops.layer_norm(x, (x.shape[-1],)).sum(0))
    barrier = threading.Barrier(6)

    def work(turn: int) -> None:
        barrier.wait()
        for rows in (3, 5, 8, turn + 2):
            x = np.random.default_rng(rows).standard_normal((rows, 16)).astype("float32")
            wanted = ((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)).sum(0)
            np.testing.assert_allclose(function(x), wanted, rtol=1e-3, atol=1e-4)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert function.compiles <= 3


def test_each_call_has_results_of_its_own() -> None:
    function = smelt.jit(lambda x: (x + 1, ops.cumsum(x.reshape(-1), 0)))
    first = function(np.zeros((40, 50), np.float32))
    kept = [array.copy() for array in first]
    for number in range(1, 30):
        function(np.full((40, 50), number, np.float32))
    for array, wanted in zip(first, kept, strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_native_code_lets_other_python_threads_run() -> None:
    # The lock of the interpreter is free while a kernel runs: else the counter could not move.
    function = smelt.jit(lambda x: ops.erfinv(ops.tanh(ops.sin(x) * ops.exp(x)) * 0.9).sum())
    data = np.random.default_rng(0).standard_normal(3_000_000).astype("float32")
    function(data)
    ticks, running = [0], threading.Event()

    def count() -> None:
        while not running.is_set():
            ticks[0] += 1

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.2)
    counter = threading.Thread(target=count)
    try:
        with smelt.threads(1):
            counter.start()
            start = ticks[0]
            function(data)
            moved = ticks[0] - start
    finally:
        sys.setswitchinterval(before)
        running.set()
        counter.join()
    assert moved > 0


# Any number of threads, the same bits.

LARGE = np.random.default_rng(0).standard_normal((700, 510)).astype("float32")

WEIGHT = np.random.default_rng(1).standard_normal((510, 130)).astype("float32")

TABLE = np.random.default_rng(2).standard_normal((300, 48)).astype("float32")

INDEX = np.random.default_rng(3).integers(0, 300, 20_000)

SAME_BITS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "pointwise": (lambda x: ops.gelu(x * 2 + 1), (LARGE,)),
    "sum of everything": (lambda x: x.sum(), (LARGE,)),
    "sum of many": (lambda x: (x.reshape(-1) * 0.1).sum(), (np.tile(LARGE, (4, 1)),)),
    "sum of rows": (lambda x: x.sum(1), (LARGE,)),
    "sum of columns": (lambda x: x.sum(0), (LARGE,)),
    "sum of the middle": (lambda x: x.reshape(7, 100, 510).sum(1), (LARGE,)),
    "product and mean": (lambda x: (x.mean(), ops.prod(1 + x * 1e-4)), (LARGE,)),
    "norm and variance": (lambda x: (ops.norm(x), x.var(0), x.std()), (LARGE,)),
    "logsumexp": (lambda x: ops.logsumexp(x.reshape(-1), 0), (LARGE,)),
    "argmax": (lambda x: x.reshape(-1).argmax(0), (np.round(LARGE, 1),)),
    "softmax": (lambda x: ops.softmax(x, 1), (LARGE,)),
    "softmax of columns": (lambda x: ops.softmax(x, 0), (LARGE,)),
    "layer_norm gradient": (
        smelt.value_and_grad(lambda x, w: (ops.layer_norm(x, (510,), w) ** 3).mean(), argnums=(0, 1)),
        (LARGE, LARGE[0]),
    ),
    "matmul": (lambda x, w: ops.relu(x @ w), (LARGE, WEIGHT)),
    "matmul gradient": (
        smelt.grad(lambda x, w: ops.tanh(x @ w).mean(), argnums=(0, 1)), (LARGE, WEIGHT),
    ),
    "batched matmul": (lambda x: x.reshape(10, 70, 510) @ x.reshape(10, 70, 510).mT, (LARGE,)),
    "running sum": (lambda x: (x.cumsum(0), x.reshape(-1).cumsum(0)), (LARGE,)),
    "scatter": (lambda t, i: ops.index_add(t, 0, i, ops.ones((20_000, 48)) * 0.1), (TABLE, INDEX)),
    "embedding gradient": (smelt.grad(lambda t, i: (ops.embedding(t, i) ** 3).sum()), (TABLE, INDEX)),
    "cross_entropy gradient": (
        smelt.value_and_grad(lambda x, y: ops.cross_entropy(x, y)), (LARGE, np.arange(700) % 510),
    ),
    "dropout": (lambda x: ops.dropout(x, 0.3), (LARGE,)),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME_BITS)
def test_the_same_bits_for_any_number_of_threads(name: str) -> None:
    function, arrays = SAME_BITS[name]
    compiled = smelt.jit(function)
    found = []
    for count in (1, 2, 3, 2, 5, 1):
        smelt.manual_seed(0)
        with smelt.threads(count):
            result = compiled(*arrays)
        leaves = result if isinstance(result, tuple) else (result,)
        leaves = [leaf for item in leaves for leaf in (item if isinstance(item, tuple) else (item,))]
        found.append([leaf.tobytes() for leaf in leaves])
    assert all(item == found[0] for item in found)


@pytest.mark.parametrize("threads", (2, 3, 20))
def test_each_iteration_of_a_job_runs_once(threads: int) -> None:
    pool = shared_pool()
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 4)
    parallel = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, signature, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_bool
    )(pool.parallel)
    context = (ctypes.c_int64 * FIRST_FREE)()
    context[WORKERS] = threads
    arguments = ctypes.c_void_p(ctypes.addressof(context))
    with smelt.threads(threads):
        pool.ready()
        for count, grain in ((2, 1), (7, 3), (64, 1), (65, 4), (1000, 7), (1000, 999)):
            runs: list[tuple[int, int, int, int]] = []
            body = signature(lambda _, *run, runs=runs: runs.append(run))
            parallel(pool.address, body, ctypes.addressof(arguments), count, grain, True)
            covered = [number for begin, end, *_ in sorted(runs) for number in range(begin, end)]
            assert covered == list(range(count))
            assert all(0 < end - begin <= grain and begin % grain == 0 for begin, end, *_ in runs)
            assert all(worker < threads for _, _, worker, _ in runs)
            # Each is told where the run before of the same thread ended.
            for number in range(threads):
                own = [(end, before) for _, end, worker, before in runs if worker == number]
                assert [before for _, before in own] == [0, *(end for end, _ in own)][: len(own)]


def test_number_of_threads() -> None:
    before = smelt.get_num_threads()
    assert before >= 1
    with smelt.threads(3):
        assert smelt.get_num_threads() == 3
        with smelt.threads(1):
            assert smelt.get_num_threads() == 1
        assert smelt.get_num_threads() == 3
        with pytest.raises(KeyError), smelt.threads(2):
            raise KeyError
        assert smelt.get_num_threads() == 3
    assert smelt.get_num_threads() == before
    smelt.set_num_threads(2)
    assert smelt.get_num_threads() == 2
    smelt.set_num_threads(before)


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", None, True])
def test_a_number_of_threads_that_is_none(count: Any) -> None:
    before = smelt.get_num_threads()
    with pytest.raises(ValueError, match="the number of threads must be a positive int, got"):
        smelt.set_num_threads(count)
    assert smelt.get_num_threads() == before


def test_threads_may_be_set_while_others_compute() -> None:
    # A fresh process: its pool has to grow while jobs that know nothing of the new workers are under way.
    code = """
import threading
import numpy as np
import smelt
from smelt import ops

def chain(x):
    for _ in range(4):
        x = ops.softmax(ops.softmax(x, 1), 0) * 100
    return x

smelt.set_num_threads(2)
function, total = smelt.jit(chain), smelt.jit(lambda x: x.sum())
data = np.random.default_rng(0).standard_normal((300, 1000)).astype("float32")
expected = function(data)

def grow():
    for count in range(3, 24):
        smelt.set_num_threads(count)
        total(data)
        smelt.set_num_threads(1)
        total(data)

growing = threading.Thread(target=grow)
growing.start()
turns = 0
while growing.is_alive() or not turns:
    assert np.array_equal(function(data), expected)
    turns += 1
print("fine")
"""
    assert run(code) == "fine"


def cpus_of_workers() -> list[set[int]]:
    from smelt.backend.cpu.runtime.threads import pool

    count = smelt.get_num_threads()
    return [os.sched_getaffinity(thread) for number, thread in pool().threads.items() if number < count]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be given CPUs here")
def test_workers_have_cpus_of_their_own_where_there_are_enough() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one CPU")
    function = smelt.jit(lambda x: ops.gelu(x).sum())
    data = np.random.default_rng(0).standard_normal((900, 700)).astype("float32")
    with smelt.threads(len(allowed)):
        function(data)
        homes = cpus_of_workers()
        assert all(len(home) == 1 and home < allowed for home in homes)
        assert len(set.union(*homes)) == len(homes)
    with smelt.threads(len(allowed) + 1):
        function(data)
        assert all(home == allowed for home in cpus_of_workers())
    assert os.sched_getaffinity(0) == allowed, "the caller stays free"


MOVED = """
import os, time
import numpy as np
import smelt
from smelt.backend.cpu.runtime.threads import pool

cpus = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, cpus)
smelt.set_num_threads(2)
function = smelt.jit(lambda x: (x * 2 + 1).sum())
data = np.ones((2000, 1000), np.float32)
function(data)
for cpu in (0, 1, 1, 0, 1):
    os.sched_setaffinity(0, {cpus[cpu]})
    time.sleep(0.01)
    assert function(data) == 6e6
    # Native code looked where the caller is, and gave the other CPU to the worker.
    print(os.sched_getaffinity(pool().threads[1]) == {cpus[1 - cpu]})
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs on Linux"
)
def test_a_worker_makes_room_for_the_caller() -> None:
    # The first caller is on the CPU that the pool was made on, wherever that is.
    assert run(MOVED).splitlines()[1:] == ["True"] * 4


GROUPS = {
    # What /proc says, files below /sys/fs/cgroup, and the CPUs and the memory that this leaves.
    "no bound": ("0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}, None, None),
    "a container": ("0::/\n", {"cpu.max": "250000 100000", "memory.max": "4096000"}, 2, 4096000),
    "less than one CPU": ("0::/\n", {"cpu.max": "50000 100000"}, 1, None),
    "a service": (
        "0::/system.slice/some.service\n",
        {"system.slice/cpu.max": "max 100000", "system.slice/some.service/cpu.max": "300000 100000"},
        3,
        None,
    ),
    "a bound further out": (
        "0::/a.slice/b.service\n",
        {"a.slice/cpu.max": "100000 50000", "a.slice/b.service/cpu.max": "max 50000", "a.slice/memory.max": "8192000"},
        2,
        8192000,
    ),
    "version 1": (
        "4:cpu,cpuacct:/docker/77\n2:memory:/docker/77\n1:name=systemd:/docker/77\n",
        {
            "cpu/cpu.cfs_quota_us": "400000",
            "cpu/cpu.cfs_period_us": "200000",
            "memory/memory.limit_in_bytes": "16384000",
        },
        2,
        16384000,
    ),
    "version 1, no bound": (
        "4:cpu,cpuacct:/\n2:memory:/\n",
        {
            "cpu/cpu.cfs_quota_us": "-1",
            "cpu/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
        None,
        None,
    ),
    "what nobody understands": ("x\n0::/\n", {"cpu.max": "many", "memory.max": ""}, None, None),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="control groups are Linux's")
@pytest.mark.parametrize("name", GROUPS)
def test_control_groups(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from smelt.backend.cpu.runtime import allocator, threads
    from smelt.backend.cpu.runtime import cgroup as control_group

    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    own, files, cpus, memory = GROUPS[name]
    (tmp_path / "own").write_text(own)
    for path, text in files.items():
        (tmp_path / "groups" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / path).write_text(f"{text}\n")
    monkeypatch.setattr(control_group, "OWN", str(tmp_path / "own"))
    monkeypatch.setattr(control_group, "ROOT", str(tmp_path / "groups"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(range(64)))
    assert threads.available_cpus() == (64 if cpus is None else cpus)
    assert allocator.memory_size() == (whole if memory is None else memory)


INHERITED = """
import os
import numpy as np
import smelt
from smelt.backend.cpu.runtime.threads import pool

smelt.set_num_threads(2)
function = smelt.jit(lambda x: (x * 2 + 1).sum())
data = np.ones((2000, 1000), np.float32)
function(data)
child = os.fork()
if not child:
    only = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(0, only)
    right = function(data) == 6e6
    os._exit(0 if right and os.sched_getaffinity(pool().threads[1]) == only else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_workers_stay_on_the_cpus_that_a_forked_process_was_given() -> None:
    assert run(INHERITED) == "0"


STARTING = """
import time
import numpy as np
import smelt
from smelt import ops
from smelt.backend.cpu.runtime import threads

smelt.set_num_threads(4)
function = smelt.jit(lambda x: ops.softmax(x, 1).sum(0))
data = np.random.default_rng(0).standard_normal((2000, 300)).astype("float32")
usual = threads.start_thread
"""


def test_an_interrupt_while_workers_start_leaves_no_two_of_one_number() -> None:
    code = f"""{STARTING}
def interrupted(*arguments):
    usual(*arguments)
    raise KeyboardInterrupt

threads.start_thread = interrupted
try:
    function(data)
except KeyboardInterrupt:
    threads.start_thread = usual
function(data)
while len(threads.pool().threads) < 3:
    time.sleep(0.001)
print(*sorted(threads.pool().threads))
"""
    assert run(code) == "1 2 3"


def test_where_no_thread_can_be_started_the_caller_does_it_all() -> None:
    code = f"""{STARTING}
threads.start_thread = lambda serve, address, number: number != 2 and usual(serve, address, number)
results = [function(data) for _ in range(4)]
print(smelt.get_num_threads(), all(np.array_equal(item, results[0]) for item in results))
"""
    assert run(code) == "2 True"


def test_many_sleepers_wake_each_other() -> None:
    code = """
import os, time
import numpy as np
import smelt
from smelt import ops
from smelt.backend.cpu.runtime.threads import pool

smelt.set_num_threads(9)
function = smelt.jit(lambda x: ops.erfinv(ops.tanh(ops.sin(x))))
data = np.random.default_rng(0).standard_normal(4_000_000).astype("float32")
function(data[:1000])
def used():
    items = pool().threads.values()
    return [sum(map(int, open(f"/proc/self/task/{item}/schedstat").read().split()[2:3])) for item in items]

for _ in range(3):
    function(data)
time.sleep(0.1)
before = used()
for _ in range(5):
    time.sleep(0.02)
    function(data)
print(sum(new > old for new, old in zip(used(), before)))
"""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs Linux")
    assert int(run(code)) >= 4
