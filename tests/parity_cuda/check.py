"""One task: an op in one mode, or a workload, in the simulator against the CPU; or its kernels as machine code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import smelt
from parity.compare import difference
from parity.gaps import KNOWN_GAPS
from parity.runner import MODES, Case, cases, entry_of, matching, run
from parity.table import Entry
from smelt.backend.options import CompileOptions
from smelt.backend.report.timings import Stages
from smelt.ops.define import REGISTRY
from smelt.ops.opdef import OpDef
from smelt.tools.workloads import names_smelt
from smelt.tools.workloads.contenders import arrays_of
from smelt.tools.workloads.define import Workload
from smelt.tools.workloads.suite import all_workloads
from support import trace

ARCHITECTURE = "sm_80"
Outcome = dict[str, Any]


def answer(task: tuple[str, ...], skip: int) -> Iterator[Outcome]:
    """How a task fares: the work of a process."""
    what, name = task
    if skip:
        return
    begin = time.monotonic()
    try:
        why = {"workload": check_workload, "compile": check_code}.get(what, lambda name: check_op(name, what))(name)
    except Exception as error:
        why = [f"{type(error).__name__}: {error}"]
    yield {"passed": not why, "why": "\n".join(why), "seconds": time.monotonic() - begin}


def check_op(name: str, mode: str) -> list[str]:
    """All samples of an op in one mode in the simulator against PyTorch."""
    return [
        f"{name}{failure.case.shown} in {failure.case.dtype} ({failure.name}): {failure.message}"
        for failure in run(REGISTRY[name], mode, "cuda")
        if matching(KNOWN_GAPS, name, mode, "cuda", failure.name) is None
    ]


def check_workload(name: str) -> list[str]:
    """A workload of `smelt bench` in the simulator against the CPU, at the small size."""
    workload = all_workloads()[name]
    found = _workload_results(workload, "cuda", workload.dtype)
    expected = _workload_results(workload, "cpu", workload.dtype)
    exact = _workload_results(workload, "cpu", "f64")
    messages = [
        difference(mine, other, lambda best=best: best)
        for mine, other, best in zip(found, expected, exact, strict=True)
    ]
    return [f"result {number}: {text}" for number, text in enumerate(messages) if text]


def _workload_results(workload: Workload, target: str, dtype: str) -> list[np.ndarray]:
    call = smelt.jit(partial(workload.function, names_smelt), target=target)
    return arrays_of(call(*workload.make_inputs("small", dtype)))


def check_code(name: str) -> list[str]:
    """The kernels of some samples of an op as machine code: what is refused, and what is short of registers."""
    from smelt.backend.cuda.build import build
    from smelt.backend.cuda.toolchain.compiler import compile_launches

    op = REGISTRY[name]
    entry = entry_of(op)
    assert entry is not None
    messages: list[str] = []
    for case in _few(op, entry):
        try:
            if not case.prepare():
                continue
            graph = trace(case.program, case.arrays)
        except Exception:
            continue  # the other tasks say so
        try:
            program = build(graph, CompileOptions(verify=True), Stages(), None, False)
            made = compile_launches(program.source, program.launches, ARCHITECTURE)
        except Exception as error:
            messages.append(f"{case.mode} {case.name}: {type(error).__name__}: {error}")
            continue
        messages += [f"{case.mode} {case.name}: {item.name} spills" for item in made if item.resources.spills]
    return messages


def _few(op: OpDef, entry: Entry) -> Iterator[Case]:
    """A sample of each element type, and one for each derivative."""
    for mode in MODES:
        seen: set[str] = set()
        for case in cases(op, entry, mode):
            if case.dtype not in seen and (mode == "forward" or not seen):
                seen.add(case.dtype)
                yield case
