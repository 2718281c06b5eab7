"""Compiled code in forked processes."""

from __future__ import annotations

import os

import pytest
from support import run

FORKED = """
import os
import threading
import numpy as np
import smelt
from smelt import ops

smelt.set_num_threads(3)
big = np.random.default_rng(0).standard_normal((2000, 300)).astype("float32")
function = smelt.jit(lambda x: ops.softmax(x, 1).sum(0))
expected = function(big)

def check():
    assert smelt.get_num_threads() == 3
    assert np.array_equal(function(big), expected)
    # New code compiles in the child, too, and several threads share the new pool.
    other = smelt.jit(lambda x: x.exp().sum())
    results = []
    workers = [threading.Thread(target=lambda: results.append(other(big))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(map(float, results))) == 1
    assert np.array_equal(function(big), expected)

for _ in range(3):
    child = os.fork()
    if not child:
        try:
            check()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
check()
print("parent", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_computes_with_threads_of_its_own() -> None:
    assert run(FORKED).splitlines() == ["0", "0", "0", "parent"]


DRAWN = """
import os, signal, sys, threading
import numpy as np
import smelt
from smelt import ops

sys.setswitchinterval(1e-5)
function = smelt.jit(lambda: ops.rand((3,)))
function()
done = threading.Event()

def draw():
    while not done.is_set():
        function()

thread = threading.Thread(target=draw)
thread.start()
found = set()
for _ in range(100):
    child = os.fork()
    if not child:
        signal.alarm(10)
        function()
        os._exit(0)
    found.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
thread.join()
print(*found)
"""

LINKED = """
import os, signal, threading, time
import numpy as np
import smelt
from smelt.backend.cpu import products

inside = threading.Event()

def link():
    with products._guard:
        inside.set()
        time.sleep(0.2)

thread = threading.Thread(target=link)
thread.start()
inside.wait()
child = os.fork()
if not child:
    signal.alarm(10)
    x = np.ones((3, 3), np.float32)
    os._exit(0 if (smelt.jit(lambda x: x @ x)(x) == 3).all() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("code", [DRAWN, LINKED], ids=["draws", "links routines of products"])
def test_a_child_does_not_wait_for_what_another_thread_does_at_the_fork(code: str) -> None:
    assert run(code) == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_what_is_loaded_in_the_midst_of_a_fork_releases_only_what_it_held() -> None:
    code = """
import os
from smelt.backend.cpu.once import Once

made = []

def load():
    # As if another thread imported a module now, and began to make its object.
    if not made:
        made.append(Once(list))
        made[0].lock.acquire()

os.register_at_fork(before=load)
if not os.fork():
    os._exit(0)
os.wait()
print(made[0].lock.locked())
made[0].lock.release()
for _ in range(2):
    if not os.fork():
        os._exit(0 if made[0]() == [] else 1)
    print(os.wait()[1])
print(made[0]())
"""
    assert run(code).split() == ["True", "0", "0", "[]"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_multiprocessing_pool_after_use_in_the_parent() -> None:
    code = """
import multiprocessing
import numpy as np
import smelt

function = smelt.jit(lambda x: (x * 2).sum())
data = np.ones((400, 1000), np.float32)

def work(number):
    return float(function(data * number))

if __name__ == "__main__":
    function(data)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(4)))
"""
    assert run(code) == "[0.0, 800000.0, 1600000.0, 2400000.0]"
