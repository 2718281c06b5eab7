"""Compiled code in forked processes."""

from __future__ import annotations

import os
from pathlib import Path

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

IN_THE_MIDST = """
import os, signal, sys, threading, time
import numpy as np
import smelt

inside = threading.Event()
x = np.ones((3, 3), np.float32)

def pause(*arguments):
    if not inside.is_set():
        inside.set()
        time.sleep(0.3)

{slow}

def multiply():
    assert (smelt.jit(lambda x: x @ x)(x) == 3).all()

threads = [threading.Thread(target=multiply) for _ in range(2)]
for thread in threads:
    thread.start()
inside.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    multiply()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for thread in threads:
    thread.join()
"""
SLOW = {
    "loads the compiler": """
class Finder:
    def find_spec(name, *rest):
        if name == "smelt.backend.cpu.build":
            pause()

sys.meta_path.insert(0, Finder)
""",
    "compiles": """
from smelt.backend.cpu.llvm.engine import Compiler

usual = Compiler.take
Compiler.take = lambda *arguments: (pause(), usual(*arguments))[1]
""",
    "links routines of products": """
from smelt.backend.cpu.microkernels import loaded

usual = loaded.Image
loaded.Image = lambda code: (pause(), usual(code))[1]
""",
}
CACHED = """
child = os.fork()
if not child:
    smelt.jit(lambda x: x @ x)(x)
    os._exit(0)
os.waitpid(child, 0)

class Finder:
    def find_spec(name, *rest):
        if name == "smelt.backend.cpu.microkernels.products":
            pause()

sys.meta_path.insert(0, Finder)
"""
CASES = {"draws": DRAWN} | {name: IN_THE_MIDST.replace("{slow}", code) for name, code in SLOW.items()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("name", CASES)
def test_a_child_does_not_wait_for_what_another_thread_does_at_the_fork(name: str) -> None:
    assert run(CASES[name]) == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_does_not_wait_for_what_another_thread_loads_beside_code_of_the_cache(tmp_path: Path) -> None:
    assert run(IN_THE_MIDST.replace("{slow}", CACHED), SMELT_CACHE_DIR=str(tmp_path)) == "0"


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
