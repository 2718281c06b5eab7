"""The disk cache: what is found, what is not and why."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from cached_programs import PROGRAM, X, call, entry_of, files, fresh, missed, run, state_of, wave
from smelt import ops
from smelt.backend.artifact import decode, encode
from smelt.backend.compile import compile_graph, graph_key, start_graph
from smelt.backend.cpu import host as host_module
from smelt.backend.cpu.host import Processor, host
from smelt.backend.options import CompileOptions
from smelt.backend.store import cache, sources
from smelt.ir.errors import IndexRangeError
from smelt.ir.proofs import ceil_divide, maximum, minimum
from smelt.ir.symbolic import Dim, Symbol, evaluate
from smelt.tools.workloads.contenders import arrays_of, prepare
from smelt.tools.workloads.suite import all_workloads

WORKLOADS = all_workloads()


# ----- hits


def test_what_was_compiled_is_found_again(folder: Path) -> None:
    first = call()
    assert state_of(first) == "missed"
    again = call()
    assert state_of(again) == "hit" and again.report().cache.detail == str(entry_of(folder, "wave"))
    for left, right in zip(first.results, again.results):
        assert left.tobytes() == right.tobytes()


def test_a_new_process_compiles_nothing_and_loads_little(tmp_path: Path) -> None:
    environment = {**os.environ, cache.VARIABLE: str(tmp_path)}
    first, second = (json.loads(run(PROGRAM, environment=environment).stdout) for _ in range(2))
    assert first["state"] == "missed" and "llvm" in first["stages"]
    assert second["state"] == "hit" and second["stages"] == ["key", "look up", "link", "matrix products"]
    assert "smelt.backend.cpu.llvm.engine" in first["heavy"]
    assert second["heavy"] == [], "the run time, too, comes from the cache"
    assert second["bits"] == first["bits"]


def test_graphs_that_are_compiled_at_the_same_time(folder: Path) -> None:
    sizes = (3, 4, 3)
    graphs = [smelt.jit(lambda x: ops.exp(x) @ x.mT).trace(smelt.spec(f"f32[{size}, 5]")) for size in sizes]
    waiting = [start_graph(graph) for graph in graphs]
    found = [finish() for finish in reversed(waiting)][::-1]
    assert [program.cache.state for program in found] == ["missed", "missed", "hit"], "equal ones are compiled once"
    for size, program in zip(sizes, found):
        x = np.random.default_rng(size).standard_normal((size, 5)).astype(np.float32)
        np.testing.assert_allclose(program([x])[0], np.exp(x) @ x.T, rtol=1e-5)
    assert [compile_graph(graph).cache.state for graph in graphs] == ["hit"] * 3


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_from_the_cache(folder: Path, name: str) -> None:
    inputs = WORKLOADS[name].make_inputs("tiny")
    threads = smelt.get_num_threads()
    found = []
    for expected in ("missed", "hit"):
        fresh(folder)
        # The seed is part of what a workload with random numbers computes.
        smelt.manual_seed(0)
        ready = prepare("smelt", WORKLOADS[name], inputs, threads)
        found.append(arrays_of(ready.call()))
        assert state_of(ready.call.func) == expected  # type: ignore[attr-defined]
    for left, right in zip(*found, strict=True):
        assert left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def rows(x: Any) -> Any:
    """Scratch, temporaries and results whose sizes are formulas."""
    wide = ops.cat([x, x * 2], 1)
    return ops.softmax(wide, 1) @ wide.mT, x.flatten() + 1, x


def test_symbolic_sizes_from_the_cache(folder: Path) -> None:
    def results() -> tuple[Any, list[np.ndarray]]:
        fresh(folder)
        program = smelt.jit(rows)
        arrays = [np.arange(n * m, dtype=np.float32).reshape(n, m) / 7 for n, m in ((3, 4), (5, 6), (17, 9))]
        return program, [item for array in arrays for item in program(array)]

    compiled, expected = results()
    found, actual = results()
    assert compiled.compiles == found.compiles == 2
    assert state_of(compiled) == "missed" and state_of(found) == "hit"
    for left, right in zip(expected, actual, strict=True):
        assert left.shape == right.shape and left.tobytes() == right.tobytes()


N, M = Symbol("N", 2).expr(), Symbol("M", 1).expr()

FORMULAS: list[Dim] = [
    0,
    7,
    N,
    3 * N * M + N - 2,
    ceil_divide(N * 4, 64) * 64,
    (N + M) % 5,
    maximum(N, M) + minimum(N, 8),
]


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_formulas_survive(formula: Dim) -> None:
    again = decode(json.loads(json.dumps(encode(formula))))
    assert str(again) == str(formula)
    for sizes in ({"N": 2, "M": 1}, {"N": 33, "M": 7}):
        assert evaluate(again, sizes) == evaluate(formula, sizes)


def test_errors_name_the_line_at_hand(folder: Path) -> None:
    def pick(x: Any, a: Any, b: Any) -> Any:
        return ops.index_select(x, 1, a), ops.cross_entropy(x, b)

    smelt.jit(pick)(X, np.array([0, 1]), np.array([0, 1, 2]))
    fresh(folder)

    def pick(x: Any, a: Any, b: Any) -> Any:  # type: ignore[no-redef]
        chosen = ops.index_select(x, 1, a)
        # The same graph, on other lines.
        loss = ops.cross_entropy(x, b)
        return chosen, loss

    again = smelt.jit(pick)
    again(X, np.array([0, 1]), np.array([0, 1, 2]))
    assert state_of(again) == "hit"
    for op, line, a, b in (("index_select", 1, [0, 7], [0, 1, 2]), ("cross_entropy", 3, [0, 1], [0, 9, 2])):
        with pytest.raises(IndexRangeError) as caught:
            again(X, np.array(a), np.array(b))
        location = caught.value.location
        assert location is not None and location.line == pick.__code__.co_firstlineno + line
        assert f"{op}: index" in str(caught.value)


def test_where_a_graph_was_traced_and_what_was_traced_before_does_not_matter(folder: Path) -> None:
    def name_of(shift: int) -> str:
        for _ in range(shift):
            smelt.jit(wave).trace(X, X)
        key, _ = graph_key(smelt.jit(wave).trace(X, X), CompileOptions())
        assert key is not None
        return key.name

    assert name_of(0) == name_of(3)


def test_different_programs_have_different_keys() -> None:
    def name_of(function: Any, array: np.ndarray = X, **options: Any) -> str:
        key, _ = graph_key(smelt.jit(function).trace(array), CompileOptions(**options))
        assert key is not None
        return key.name

    names = [
        name_of(lambda x: x + 1),
        name_of(lambda x: x + 2),
        name_of(lambda x: x * 0.0),
        name_of(lambda x: x * -0.0),
        name_of(lambda x: x + 1, X.astype(np.float64)),
        name_of(lambda x: x + 1, X[:2]),
        name_of(lambda x: x + 1, vector_bits=128),
        name_of(lambda x: x + 1, max_cost=3),
    ]
    assert len(set(names)) == len(names)


# ----- misses, and what they say


def test_a_miss_names_the_field(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missed(folder).startswith("program: ")
    text = missed(folder, options=CompileOptions(max_cost=7))
    assert text == "options: max_cost is 7, the entry has 1024"
    with monkeypatch.context() as patch:
        patch.setattr(host(), "instructions", [*host().instructions, "sse9"])
        assert missed(folder) == "isa: only this machine has sse9"
    with monkeypatch.context() as patch:
        patch.setattr(host(), "llvm", "99.1")
        assert missed(folder).startswith("llvm: llvm is 99.1, the entry has ")
    with monkeypatch.context() as patch:
        patch.setattr(cache, "fingerprint", lambda folder: "0" * 64)
        assert missed(folder).startswith("smelt: ")
    fresh(folder)
    assert state_of(call()) == "hit"


def test_tuning_is_no_part_of_the_key() -> None:
    one = Processor("x86_64-linux", "znver3", "+avx2,+fma,-sse9,+rtm", "22.1")
    other = Processor("x86_64-linux", "raptorlake", "+fma,+avx2,+pku", "22.1")
    assert one.instructions == other.instructions == ["avx2", "fma"]


def test_the_report_as_text_and_json(folder: Path) -> None:
    program = call()
    assert "cache: missed: program" in str(program.report())
    fresh(folder)
    report = call().report()
    read = json.loads(report.json())
    assert f"cache: hit: {read['cache']['detail']}" in str(report)
    assert read["cache"]["state"] == "hit" and set(read["milliseconds"]) == {"key", "look up", "link"}
    assert read["kernels"] == json.loads(program.report().json())["kernels"]


def test_threads_of_a_kernel() -> None:
    program = smelt.jit(lambda x: ops.sin(x) * 2)
    program(np.ones((1024, 1024), np.float32))
    program_small = smelt.jit(lambda x: x + 1)
    program_small(np.ones(8, np.float32))
    with smelt.threads(2):
        (large,), (small,) = program.report().kernels, program_small.report().kernels
        assert large.pieces > 2 and large.threads == 2 and "2 threads" in str(large)
        assert small.pieces == small.threads == 1
    with smelt.threads(1):
        assert program.report().kernels[0].threads == 1


def test_off() -> None:
    smelt.set_cache_dir(None)
    assert smelt.get_cache_dir() is None
    assert str(call().report().cache) == str(call().report().cache) == "off"


@pytest.mark.parametrize(
    "options", [CompileOptions(verify=True), CompileOptions(annotate=True)], ids=["verify", "annotate"]
)
def test_who_asks_for_the_stages_gets_them(folder: Path, options: CompileOptions) -> None:
    call()
    program = call(options=options)
    assert state_of(program) == "off" and "graph passes" in program.report().milliseconds
    seen: list[str] = []
    compile_graph(smelt.jit(wave).trace(X, X), CompileOptions(), lambda stage, thing: seen.append(stage))
    assert "loops" in seen


def test_smelt_edited_while_it_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call()
    before = files(folder)
    monkeypatch.setattr(sources, "LOADED", 0.0)
    call(lambda x, y: x - y)
    assert files(folder) == before, "what a changed smelt compiled belongs to no key"
    sources.fingerprint.cache_clear()
    try:
        assert call().report().cache.detail == "smelt's own files were changed since it was imported"
    finally:
        sources.fingerprint.cache_clear()


@pytest.mark.skipif(not os.path.exists("/proc/cpuinfo"), reason="nobody describes the processor")
def test_the_machine_is_remembered_as_long_as_it_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    ask_llvm = host_module.ask_llvm
    monkeypatch.setattr(host_module, "ask_llvm", lambda: asked.append(ask_llvm()) or asked[-1])

    def look() -> list[str]:
        found = host.__wrapped__()
        return [found.triple, found.cpu, found.features, found.llvm]

    true = list(ask_llvm())
    assert [look(), look()] == [true, true] and len(asked) == 1
    (file,) = folder.glob("machine-*")
    for damage in ("", "nonsense", file.read_text()[:-1], file.read_text().replace("+", "-")):
        file.write_text(damage)
        assert look() == true
        assert look() == true
    assert len(asked) == 5
    monkeypatch.setattr(host_module, "DECISIVE", {"flags", "Features"})
    assert look() == true and len(asked) == 6, "what is known of another processor does not count"
