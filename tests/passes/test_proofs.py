"""What the verifier proves of many programs, a spread of `make proofs`; and that it sees defects of the past."""

from __future__ import annotations

import os

import pytest
from proofs.answer import outcome
from smelt.tools.workloads.suite import all_workloads
from support import IMPORTED, run

SEEDS = {"random": range(40), "open": (1, 2, 3, 4, 5, 6), "drawn": range(40)}
OPS = ("gather", "scatter_add", "softmax", "index_put", "conv2d", "cat", "cumsum", "unfold", "var_mean", "matmul")
PROGRAMS = {
    "workloads": [("workload", name) for name in all_workloads()],
    "samples of ops": [("parity", name) for name in OPS],
    **{kind: [(kind, str(seed)) for seed in seeds] for kind, seeds in SEEDS.items()},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_is_proved(name: str) -> None:
    outcomes = [outcome(*program, few=True) for program in PROGRAMS[name]]
    assert not (wrong := [item["why"] for item in outcomes if not item["passed"]]), "\n".join(wrong)
    assert sum(item["counts"].get("proved", 0) for item in outcomes) > 10


DEFECTS = """
import numpy as np
import smelt
from fuzz.defects import put_back
from proofs.prove import TARGETS, prove
from smelt import ops
from support import floats, trace

def unequal(x, i):
    return ops.gather(x + 1, 1, i)

def unwritten(x, y, i):
    found = ops.exp(x)
    return found, ops.exp(y) + ops.gather(found, 0, i)

def columns(x):
    return smelt.value_and_grad(lambda x: ops.sum(ops.softmax(x, 0) * x))(x)

def one_place(x, s):
    return ops.index_add(x, 0, ops.zeros((2**15,), dtype=smelt.i64), s)

PROGRAMS = {
    unequal: (floats(4096, 1, dtype="f8"), np.zeros((2, 1), np.int64)),
    unwritten: (floats(1, 11), floats(1, 8), np.zeros((1, 8), np.int64)),
    columns: (floats(4, 32, 1),),
    one_place: (floats(4096, 16), floats(2**15, 16)),
}

def show(title):
    for function, arrays in PROGRAMS.items():
        graph = trace(function, arrays)
        for target in TARGETS:
            for text in prove(graph, target)[1]:
                print(title, function.__name__, text)

show("mended:")
for defect in ("gather", "race", "hoist"):
    put_back(defect)
show("put back:")
"""


def test_defects_that_are_put_back_are_seen() -> None:
    """A gather of unequal sizes, scratch that lanes share, a load that leaves the loop which changes it."""
    path = os.pathsep.join([*map(str, IMPORTED), os.environ.get("PYTHONPATH", "")])
    lines = run(DEFECTS, PYTHONPATH=path).splitlines()
    assert not [line for line in lines if line.startswith("mended:")]
    for wanted in (
        "unequal cpu @k0_add_gather_along: dim 0 of %x1 has size 2, the index goes up to 4095",
        "unequal cuda @k0_add_gather_along: dim 0 of %x1 has size 2, the index goes up to 4095",
        "unwritten cpu @k0_exp_gather_along_add: dim 1 of %x1 has size 8, the index goes up to 10",
        "unwritten cuda @k0_exp_gather_along_add: dim 1 of %x1 has size 8, the index goes up to 10",
        "columns cuda @k0_amax_sub_exp_sum: %row0.1 is each thread's own, and lies where its team shares it",
        "one_place cpu @k0_index_update: %k0_index_update.next is loaded before a loop over",
        "one_place cuda @k0_index_update: %k0_index_update.next is loaded before a loop over",
    ):
        assert any(wanted in line for line in lines), (wanted, lines)
