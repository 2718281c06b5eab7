"""The memory of results: aligned, kept for the next result, bounded, and ordinary to everybody else."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import smelt
from smelt.backend.cpu.runtime import records
from smelt.backend.cpu.runtime.allocator import Allocator, allocator, empty_arrays
from smelt.backend.cpu.runtime.records import ALLOCATOR

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the allocator needs Linux")

F32 = np.dtype(np.float32)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return empty_arrays([(shape, dtype)])[0]


def start(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.fixture
def own() -> Allocator:
    """The allocator, with nothing waiting, and no memory of what others had in use a moment ago."""
    found = allocator()
    assert found is not None
    gc.collect()
    smelt.empty_cache()
    found.state.peak = found.state.earlier = found.used
    return found


@pytest.mark.parametrize("count", [256, 1000, 4096, 65_535, 65_536, 700_001, 1 << 22])
def test_results_are_aligned(own: Allocator, count: int) -> None:
    function = smelt.jit(lambda x: x + 1)
    for _ in range(4):  # by Python, then by native code
        assert start(function(np.zeros(count, np.float32))) % records.ALIGNMENT == 0


@pytest.mark.parametrize("count", [10, 256, 5_000, 100_000, 3_000_000])
def test_arrays_are_ordinary(own: Allocator, count: int) -> None:
    function = smelt.jit(lambda x: x * 2)
    for _ in range(3):
        array = function(np.arange(count, dtype=np.float32))
    assert type(array) is np.ndarray and array.flags.owndata and array.flags.writeable and array.base is None
    wanted = np.arange(count, dtype=np.float32) * 2
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), wanted)
    np.testing.assert_array_equal(np.from_dlpack(array), wanted)
    array += 1
    # In place, by the allocator's own way of growing and shrinking blocks.
    for length in (count + 7, 2 * count, 3, 2 * ALLOCATOR.large):
        array.resize((length,), refcheck=False)
        kept = min(length, count)
        np.testing.assert_array_equal(array[: min(kept, 3)], (wanted + 1)[: min(kept, 3)])
        count = kept
    assert not array[count:].any()


def test_results_for_torch() -> None:
    torch = pytest.importorskip("torch")
    array = smelt.jit(lambda x: x + 1)(np.zeros((600, 500), np.float32))
    tensor = torch.from_numpy(array)
    del array
    gc.collect()
    tensor += 1
    assert float(tensor.sum()) == 600_000


def test_a_block_serves_again(own: Allocator) -> None:
    first = empty((1 << 20,), F32)
    place = start(first)
    assert own.used == 1 << 22 and own.waiting == 0
    view = first[5:]
    del first
    assert own.waiting == 0, "a view still looks at it"
    del view
    assert (own.used, own.waiting) == (0, 1 << 22)
    assert start(empty((1 << 20,), F32)) == place
    # For a smaller array too, but not for one that is smaller than half.
    assert start(empty((600_000,), F32)) == place
    kept = empty((400_000,), F32)
    assert start(kept) != place


def test_several_arrays_at_once(own: Allocator) -> None:
    """Small and large ones, in the order that was asked for; NumPy's own allocator is in place again behind it."""
    layouts = [((3,), F32), ((1 << 20,), F32), ((), F32), ((40, 50), np.dtype(np.float64)), ((0, 7), F32)]
    arrays = empty_arrays(layouts)
    assert [(array.shape, array.dtype) for array in arrays] == layouts
    assert all(start(array) % records.ALIGNMENT == 0 for array in arrays if array.nbytes >= records.ALLOCATOR.middle)
    assert own.used == 1 << 22
    assert np.empty(1 << 20, np.float32).nbytes == own.used, "not one of this allocator's"


def test_blocks_take_their_own_pages_and_no_more(own: Allocator) -> None:
    def resident() -> int:
        with open("/proc/self/smaps_rollup") as file:  # counted page by page
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))

    size, number = ALLOCATOR.large, 256
    order = np.random.default_rng(0).permutation(number)
    [empty((size,), np.dtype(np.uint8)) for _ in range(number)].clear()  # what the sizes of blocks need
    smelt.empty_cache()
    before = resident()
    arrays = []
    for _ in range(number):
        arrays.append(empty((size,), np.dtype(np.uint8)))
        arrays[-1].fill(1)
    assert size * number <= resident() - before < (size + 2048) * number
    # A block begins in each of these addresses, and all of them are found again, in any order.
    for place in order:
        assert arrays[place][-1] == 1
        arrays[place] = None
    assert own.used == 0
    smelt.empty_cache()
    assert resident() - before < 2048 * number


def test_blocks_of_the_c_library_that_start_on_pages(own: Allocator) -> None:
    # Those that start on a page look like mapped ones, and must be given back to the C library nevertheless.
    mapped = [empty((ALLOCATOR.large,), np.dtype(np.uint8)) for _ in range(8)]
    arrays = [
        empty((count,), np.dtype(np.uint8)) for count in range(4032 - 16, ALLOCATOR.large, 4096 - 64) for _ in range(20)
    ]
    assert any(start(array) % 4096 == 0 for array in arrays)
    used = own.used
    for array in arrays:
        array.fill(7)
    arrays.clear()
    assert own.used == used and own.waiting == 0 and len(mapped) == 8


def test_temporaries_go_back_after_each_call(own: Allocator) -> None:
    # The transposed product is a temporary of 4 MB, the result is a number.
    function = smelt.jit(lambda x: (x @ x.T).sum())
    data = np.ones((1000, 1000), np.float32)
    for _ in range(4):  # by Python, then by native code
        function(data)
        assert own.used == 0
    assert own.waiting >= 4_000_000
    smelt.empty_cache()
    assert own.waiting == 0


def test_empty_cache_gives_back(own: Allocator) -> None:
    del_me = [empty((1 << 20,), F32) for _ in range(3)]
    del del_me
    assert own.waiting == 3 << 22
    smelt.empty_cache()
    assert (own.used, own.waiting) == (0, 0)


def test_what_waits_is_bounded_by_what_was_in_use(own: Allocator) -> None:
    # One array at a time, of ever other sizes: no more than twice the largest of them may stay.
    for number in range(1, 40):
        empty((number * 200_000,), F32)
        assert own.used == 0 and own.waiting <= 2 * (40 * 200_000 * 4 * 9 // 8)


def test_what_waits_is_bounded_by_the_memory(own: Allocator, monkeypatch: pytest.MonkeyPatch) -> None:
    most = own.state.most
    try:
        own.state.most = 8 << 20
        arrays = [empty((1 << 20,), F32) for _ in range(6)]
        del arrays
        assert own.waiting <= 8 << 20
    finally:
        own.state.most = most


def test_more_blocks_than_may_wait(own: Allocator) -> None:
    arrays = [empty((ALLOCATOR.large // 4,), F32) for _ in range(records.ALLOCATOR.blocks + 10)]
    places = {start(array) for array in arrays}
    assert len(places) == len(arrays)
    del arrays
    assert own.state.count == records.ALLOCATOR.blocks and own.used == 0


def test_memory_that_does_not_exist(own: Allocator) -> None:
    with pytest.raises(MemoryError):
        empty((1 << 58,), F32)
    assert own.used == 0
    function = smelt.jit(lambda x: ops_outer(x))
    for _ in range(3):
        with pytest.raises(MemoryError):
            function(np.zeros(1 << 24, np.float32))


def ops_outer(x: object) -> object:
    return x.reshape(-1, 1) + x.reshape(1, -1)  # type: ignore[attr-defined]


def test_zeros_of_a_block_that_was_used(own: Allocator) -> None:
    used = empty((1 << 20,), F32)
    used.fill(7)
    del used
    before = own._set(own.handler)
    try:
        assert not np.zeros((1 << 20,), F32).any()
    finally:
        own._set(before)


def test_many_threads_allocate_at_once(own: Allocator) -> None:
    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        held: list[np.ndarray] = []
        for turn in range(150):
            array = empty((int(random.integers(1, 400_000)),), F32)
            array.fill(seed * 1000 + turn)
            held.append(array)
            if len(held) > 5:
                old = held.pop(int(random.integers(0, 5)))
                assert (old == old[0]).all()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    gc.collect()
    assert own.used == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forks_while_others_allocate() -> None:
    code = """
import os, threading
import numpy as np
from smelt.backend.cpu.runtime.allocator import empty_arrays

f32 = np.dtype(np.float32)
done = threading.Event()

def work():
    while not done.is_set():
        empty_arrays([((100_000,), f32)])[0].fill(1)

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if not child:
        for _ in range(50):
            empty_arrays([((100_000,), f32)])[0].fill(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
done.set()
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "fine", done.stderr


def test_arrays_that_outlive_everything() -> None:
    code = """
import sys
import numpy as np
import smelt
f = smelt.jit(lambda x: x + 1)
x = np.zeros(1_000_000, np.float32)
for _ in range(3):
    sys.kept = f(x)   # freed after all modules are gone
class Late:
    def __init__(self, array):
        self.array = array
    def __del__(self):
        self.array.sum()
sys.late = Late(f(x))
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "fine", done.stderr


def test_threads_do_not_share_results() -> None:
    function = smelt.jit(lambda x: x + 1)
    data = [np.full((300, 300), number, np.float32) for number in range(4)]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(100):
            if not (function(data[number]) == number + 1).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_pages_of_another_size() -> None:
    code = """
import os
real = os.sysconf
os.sysconf = lambda name: 1 << 16 if name == "SC_PAGE_SIZE" else real(name)
import numpy as np
import smelt
from smelt.backend.cpu.runtime.allocator import allocator
from smelt.backend.cpu.runtime.records import PAGE
function = smelt.jit(lambda x: x + 1)
for count in (1000, 100_000, 600_000, 3_000_000) * 3:
    assert function(np.zeros(count, np.float32)).sum() == count
assert PAGE == 1 << 16
smelt.empty_cache()
print(allocator().used, allocator().waiting)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert shown.stdout.split() == ["0", "0"], shown.stderr
