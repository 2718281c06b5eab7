"""PyTorch's OpenMP threads in long calls, smelt's own pool in all others."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from smelt.backend.cpu.runtime.openmp import Team, openmp_threads
from smelt.backend.cpu.runtime.threads import pool

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.platform != "linux", reason="OpenMP is looked for on Linux"),
]


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(before)


def layer(x, w):
    return torch.softmax(x @ w, 1) @ w


def test_a_long_call_is_a_parallel_loop_of_openmps():
    function = torch.compile(layer, backend="smelt")
    function(torch.randn(300, 300), torch.randn(300, 300))
    team = openmp_threads()
    assert isinstance(team, Team)
    before, jobs = team.block.generation, _jobs_of_the_pool()
    function(torch.randn(300, 300), torch.randn(300, 300))
    assert team.block.generation > before
    assert _jobs_of_the_pool() == jobs


def test_a_short_call_leaves_openmp_alone():
    function = torch.compile(torch.sin, backend="smelt")
    function(torch.randn(100))
    before = openmp_threads().block.generation
    function(torch.randn(100))
    assert openmp_threads().block.generation == before


def _jobs_of_the_pool() -> int:
    return pool().block.generation


def test_any_number_of_threads_gives_the_same_bits():
    function = torch.compile(layer, backend="smelt")
    x, w = torch.randn(500, 300), torch.randn(300, 300) / 300
    expected = layer(x, w)
    results = []
    for count in (1, 2, 3, 5):
        torch.set_num_threads(count)
        for _ in range(20):
            torch.sin(x)  # OpenMP's threads are awake
            results.append(function(x, w))
    torch.testing.assert_close(results[0], expected)
    assert all(torch.equal(item, results[0]) for item in results)


def test_many_python_threads_have_a_team_each():
    function = torch.compile(layer, backend="smelt")
    data = [(torch.randn(200, 200), torch.randn(200, 200)) for _ in range(4)]
    expected = [function(*item) for item in data]

    def work(turn: int) -> None:
        assert torch.equal(function(*data[turn % 4]), expected[turn % 4])
        assert isinstance(openmp_threads(), Team)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(100)))


FORKED = """
import os
import torch

torch.set_num_threads(2)
function = torch.compile(lambda x: torch.softmax(x @ x, 1), backend="smelt")
x = torch.randn(300, 300)
expected = function(x)
torch.sin(x)
child = os.fork()
if not child:
    # OpenMP itself, and so torch.equal, would wait forever here for threads that a child does not have.
    os._exit(0 if (function(x).numpy() == expected.numpy()).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert torch.equal(function(x), expected)
print("fine")
"""


def test_a_forked_child_uses_the_pool():
    environment = {**os.environ, "SMELT_CACHE_DIR": "off"}
    done = subprocess.run([sys.executable, "-c", FORKED], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "fine", done.stderr
