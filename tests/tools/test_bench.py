"""`smelt bench`: every workload is right at a tiny size, and the command measures, compares and reports."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from smelt.tools import bench, bench_report, bench_setup
from smelt.tools.workloads import measure
from smelt.tools.workloads.contenders import CONTENDERS, Prepared, arrays_of, installed, prepare, takes
from smelt.tools.workloads.define import SIZES
from smelt.tools.workloads.suite import MODULES, all_workloads

WORKLOADS = all_workloads()


@pytest.fixture(autouse=True)
def same_settings() -> Any:
    """A contender sets threads and gradients for the whole process: put them back."""
    import torch

    threads, ours, errors = torch.get_num_threads(), smelt.get_num_threads(), np.geterr()
    yield
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    smelt.set_num_threads(ours)
    np.seterr(**errors)


def results(contender: str, name: str) -> list[np.ndarray]:
    workload = WORKLOADS[name]
    return arrays_of(prepare(contender, workload, workload.make_inputs("tiny", "f64"), threads=2).call())


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_agree(name: str) -> None:
    expected = results("eager", name)
    present = [item for item in ("smelt", "numpy", "jax", "numba") if item in installed()]
    for contender in present:
        if takes(contender, WORKLOADS[name]):
            found = results(contender, name)
            assert len(found) == len(expected)
            for left, right in zip(found, expected):
                assert left.dtype == right.dtype or left.dtype.kind == right.dtype.kind == "i"
                np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-11, err_msg=contender)


def test_suite() -> None:
    assert len(WORKLOADS) >= 40
    declared = [item for module in MODULES for item in vars(module).values() if type(item).__name__ == "Workload"]
    assert len({item.name for item in declared}) == len({id(item) for item in declared}), "a name is used twice"
    for item in WORKLOADS.values():
        assert item.summary.endswith((".", ")")), f"{item.name} does not say what it computes"
        sizes = [math.prod(item.sizes[size]) for size in SIZES]
        assert list(item.sizes) == list(SIZES) and sizes == sorted(sizes)


def test_namespaces_have_the_same_names() -> None:
    from smelt.tools.workloads import names_numpy, names_smelt, names_torch

    assert names_smelt.__all__ == names_torch.__all__
    without = {"value_and_grad", "binary_cross_entropy_with_logits", "upsample"}
    assert set(names_numpy.__all__) == set(names_smelt.__all__) - without
    if "jax" in installed():
        from smelt.tools.workloads import names_jax

        assert names_jax.__all__ == names_smelt.__all__


# ----- the measurements


def test_inputs_are_the_same_every_time() -> None:
    workload = WORKLOADS["mlp_training"]
    first, second = (arrays_of(workload.make_inputs("tiny")) for _ in range(2))
    assert all(np.array_equal(left, right) for left, right in zip(first, second, strict=True))
    assert {array.dtype.name for array in first} == {"float32", "int64"}


def test_differences_are_found() -> None:
    right = [np.linspace(1, 2, 8, dtype=np.float32)]
    assert measure.distance(right, right) == 0
    assert measure.distance([right[0] * np.float32(1.00001)], right) < 1
    assert measure.distance([right[0] * np.float32(1.01)], right) > 1
    assert measure.distance([right[0][:4]], right) == math.inf
    assert measure.distance([], right) == math.inf
    spoilt = right[0].copy()
    spoilt[3] = np.nan
    assert measure.distance([spoilt], right) == math.inf
    assert measure.distance([spoilt], [spoilt]) == 0
    assert measure.distance([np.array([1, 2])], [np.array([1, 3])]) > 1
    found: dict[str, Any] = {"smelt": {}, "eager": {}}
    measure.compare({"smelt": [right[0] + 1], "eager": right}, found)
    assert found["smelt"]["agrees"] is False and found["eager"]["agrees"] is True
    record = {"workload": "sum", "setting": "large", "contenders": found}
    assert bench_setup.verdict([record]) == 1
    assert bench_setup.verdict([{**record, "contenders": {"eager": found["eager"]}}]) == 0
    assert bench_setup.verdict([{**record, "contenders": {"smelt": {"error": "no"}}}]) == 1


def test_turns() -> None:
    calls: list[str] = []
    ready = [measure.Prepared(name, lambda name=name: calls.append(name), lambda: None) for name in "ab"]
    times = measure.take_turns(ready, repeat=4, seconds=10)
    assert {name: len(values) for name, values in times.items()} == {"a": 4, "b": 4}
    changes = sum(left != right for left, right in zip(calls, calls[1:]))
    assert changes >= 4, "one after the other, not taking turns"
    assert len(measure.take_turns(ready, repeat=100, seconds=0)["a"]) == measure.FEWEST_ROUNDS


def test_turns_come_after_all_others() -> None:
    """Nobody always runs with the caches as the same one has left them."""
    calls: list[str] = []
    ready = [Prepared(name, functools.partial(calls.append, name), lambda: None) for name in "abcd"]
    measure.take_turns(ready, repeat=60, seconds=10)
    pairs = Counter(first + second for first, second in itertools.pairwise(calls) if first != second)
    assert len(pairs) == 12 and max(pairs.values()) < 3 * min(pairs.values())


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for the states of threads")
def test_a_turn_waits_for_threads_that_spin() -> None:
    """Also on the first look: the time that a thread has used is known some milliseconds late."""
    begun = threading.Event()

    def spin() -> None:
        begun.set()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000)  # native code: about 5 ms without the interpreter's lock

    for _ in range(5):
        begun.clear()
        spinning = threading.Thread(target=spin)
        spinning.start()
        begun.wait()
        measure.settle()
        assert not spinning.is_alive()
        spinning.join()


def test_ratios() -> None:
    record: dict[str, Any] = {
        "contenders": {
            "smelt": {"median": 2.0},
            "eager": {"median": 8.0},
            "jax": {"median": 4.0},
            "numpy": {"median": 1},
        }
    }
    assert bench_report.ratio(record) == 2
    record["contenders"]["inductor"] = {"error": "failed"}
    assert bench_report.ratio(record) == 2
    assert bench_report.ratio({"contenders": {"smelt": {"median": 2.0}}}) is None
    assert bench_report.geometric_mean([1, 4]) == pytest.approx(2)


DYING = """
import json, os, sys
request = json.load(sys.stdin)
for name in request["workloads"]:
    print(json.dumps({"event": "begin", "workload": name}), flush=True)
    if name == "sum_rows":
        print(json.dumps({"event": "contender", "workload": name, "contender": "smelt"}), flush=True)
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(7)
    print(json.dumps({"event": "end", "workload": name, "contenders": {"smelt": {"median": 1.0}}}), flush=True)
"""


def test_a_process_that_dies_costs_one_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def start(setting: Any, request: dict[str, Any], errors: Any) -> Any:
        begun.append(list(request["workloads"]))
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", DYING], stdin=pipe, stdout=pipe, stderr=errors, text=True)
        assert process.stdin is not None
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        return process

    monkeypatch.setattr(bench, "start", start)
    chosen = [WORKLOADS[name] for name in ("softmax_rows", "sum_rows", "sum_all")]
    request = {"contenders": ["smelt"]}
    found = {
        item.name: result
        for item, result in bench.measure_all(chosen, bench.Setting("tiny", 1, "default"), request, [])
    }
    assert list(found) == ["softmax_rows", "sum_rows", "sum_all"] and begun[1] == ["sum_all"]
    assert "code 7" in found["sum_rows"]["smelt"]["error"] and "out of luck" in found["sum_rows"]["smelt"]["error"]
    assert found["sum_all"]["smelt"]["median"] == 1


# ----- the command


def command(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    shown = subprocess.run(
        [sys.executable, "-m", "smelt.tools.main", "bench", *words], cwd=folder, capture_output=True, text=True
    )
    assert shown.returncode == code, shown.stdout + shown.stderr
    return shown


def test_command(tmp_path: Path) -> None:
    words = [
        "--only",
        "softmax_rows,mlp_training",
        "--size",
        "tiny",
        "--repeat",
        "3",
        "--contenders",
        "smelt,numpy,eager",
    ]
    shown = command(tmp_path, *words, "--threads", "1", "--compile", "--memory", "--json", "out.json")
    assert "softmax_rows" in shown.stdout and "geometric means" in shown.stdout and "\x1b[" not in shown.stdout
    written = json.loads((tmp_path / "out.json").read_text())
    by_name = {item["workload"]: item["contenders"] for item in written["results"]}
    assert set(by_name["softmax_rows"]) == {"smelt", "numpy", "eager"}
    assert set(by_name["mlp_training"]) == {"smelt", "eager"}
    ours = by_name["softmax_rows"]["smelt"]
    assert ours["agrees"] and ours["samples"] == 3 and 0 < ours["minimum"] <= ours["median"]
    assert 0 < ours["compile"] < ours["first_call"]
    assert {item["contender"] for item in written["startups"]} == {"smelt", "numpy", "eager"}


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is glibc's")
def test_settings_have_processes_of_their_own(tmp_path: Path) -> None:
    words = ["--only", "sum_all", "--size", "tiny,small", "--repeat", "3", "--contenders", "smelt", "--threads", "1"]
    command(tmp_path, *words, "--malloc", "both", "--json", "out.json")
    written = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [(item["size"], item["malloc"]) for item in written] == [
        ("tiny", "default"), ("tiny", "tuned"), ("small", "default"), ("small", "tuned"),
    ]  # fmt: skip


def test_list(tmp_path: Path) -> None:
    shown = command(tmp_path, "--list", "--group", "science").stdout
    assert "equation_of_state" in shown and "softmax_rows" not in shown


MISTAKES = {
    "misspelt-workload": (["--only", "softmax_row"], 2, "did you mean 'softmax_rows'"),
    "misspelt-group": (["--group", "softmaxes"], 2, "did you mean 'softmax'"),
    "misspelt-contender": (["--contenders", "numpi"], 2, "did you mean 'numpy'"),
    "misspelt-size": (["--size", "larg"], 2, "did you mean 'large'"),
    "no-threads": (["--threads", "0"], 2, "--threads: expected numbers from 1"),
    "no-number": (["--repeat", "often"], 2, "expected a number above 0"),
    "no-folder": (["--json", "missing/out.json"], 1, "cannot write"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(tmp_path: Path, name: str) -> None:
    words, code, expected = MISTAKES[name]
    assert expected in command(tmp_path, *words, code=code).stderr


def test_what_is_not_installed_is_said(tmp_path: Path) -> None:
    for name in set(CONTENDERS) - set(installed()):
        assert "not installed" in command(tmp_path, "--contenders", name, code=1).stderr


def test_calls_by_parts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from smelt.tools import calls

    monkeypatch.setattr(calls, "ROUNDS", 1)
    monkeypatch.setattr(calls, "SECONDS", 1e-5)
    calls.show_calls()
    lines = capsys.readouterr().out.strip().splitlines()[1:]
    assert [word for word in lines[0].split() if word != "made"] == [
        "call", "whole", "Python", "guards", "results", "kernels", "by",
    ]  # fmt: skip
    assert len(lines) == 1 + len(calls.kinds_of_calls())
    assert all(line.endswith("native code") for line in lines[1:])
