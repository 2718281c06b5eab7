"""The `smelt` command from outside: output, exit codes, and what it says about mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from smelt import __version__
from smelt.passes.manager import NOUNS, PASSES

MODULE = """
import smelt
from smelt.ops import exp, relu, softmax

def layer(x, w):
    return relu(x @ w)

layer.example_args = ["f32[N, 8]", "f32[8, 4]"]

@smelt.jit
def compiled(x):
    return softmax(x, -1)

def scaled(x, factor):
    return exp(x) * factor

def wrong(x):
    return x @ x

def nothing():
    return relu(smelt.ops.arange(3.0))

number = 3
"""

KERNELS = """
// kernels as smelt dump shows them
kernel @exps(%y: out f32[N, 3], %x: f32[N, 3]) where N >= 2 {
  serial %i in 0..N {
    serial %j in 0..3 {
      %0 = load %x[%i, %j]
      %1 = exp(%0) : f32
      store %y[%i, %j], %1
    }
  }
}
kernel @sums(%z: out f32[N], %y: f32[N, 3]) where N >= 2 {
  serial %i in 0..N {
    serial %j in 0..3 reduce %1: f32 = add {
      %0 = load %y[%i, %j]
      yield %0
    }
    store %z[%i], %1
  }
}
"""
GRAPH = """
graph @twice(%x: f32[N, 3]) where N >= 1 {
  %0 = exp(%x) : f32[N, 3]
  %1 = exp(%x) : f32[N, 3]
  %2 = add(%0, %1) : f32[N, 3]
  return %2
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODULE)
    (tmp_path / "twice.ir").write_text(GRAPH)
    (tmp_path / "sums.loops").write_text(KERNELS)
    (tmp_path / "outside.loops").write_text(KERNELS.replace("load %x[%i, %j]", "load %x[%i, %j + 1]"))
    (tmp_path / "broken.py").write_text("import smelt\nvalue = 1 / 0\n")
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3) / 8)
    np.save(tmp_path / "wide.npy", np.zeros((2, 5), np.float32))
    (tmp_path / "ten.ir").write_text(
        "graph @ten(%x: f32[N, 3]) where N >= 10 { %0 = slice(%x) {start = 6, end = 10} return %0 }"
    )
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "torn.npy").write_bytes(b"PK\3\4 and no more")
    return tmp_path


def smelt(folder: Path, *words: str, code: int = 0, text: str | None = None) -> subprocess.CompletedProcess[str]:
    shown = subprocess.run(
        [sys.executable, "-m", "smelt.tools.main", *words],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
    )
    assert shown.returncode == code, f"exit code {shown.returncode}\n{shown.stdout[-2000:]}\n{shown.stderr[-4000:]}"
    assert "\x1b" not in shown.stdout + shown.stderr
    if code:
        assert shown.stderr.startswith("error: ")
        assert "Traceback" not in shown.stderr or "broken.py" in shown.stderr
    return shown


STAGE_MARKS = {
    "graph": "relu(",
    "decompose": "bmm(",
    "simplify": "graph @layer",
    "fuse": "layer",
    "loops": "kernel @",
    "llvm": "define ",
    "asm": "ret",
}


@pytest.mark.parametrize("stage", STAGE_MARKS)
def test_dump_prints_each_stage(folder: Path, stage: str) -> None:
    assert STAGE_MARKS[stage] in smelt(folder, "dump", "model.py:layer", "--stage", stage).stdout


def test_dump_all_stages_in_order(folder: Path) -> None:
    text = smelt(folder, "dump", "model.py:layer", "--stage", "all").stdout
    places = [text.index(f"// ----- {stage}\n") for stage in STAGE_MARKS]
    assert places == sorted(places)


def test_dump_keeps_open_sizes(folder: Path) -> None:
    text = smelt(folder, "dump", "model.py:layer", "--args", "f32[M, 8]", "f32[8, 4]").stdout
    assert "f32[M, 4]" in text


def test_dump_names_the_line(folder: Path) -> None:
    assert "// model.py:6" in smelt(folder, "dump", "model.py:layer").stdout


def test_dump_takes_what_jit_returns_and_literals(folder: Path) -> None:
    assert "softmax(" in smelt(folder, "dump", "model.py:compiled", "--args", "f32[4, 4]").stdout
    assert "2.5" in smelt(folder, "dump", "model.py:scaled", "--args", "f32[4]", "2.5").stdout


def test_dump_of_a_function_without_parameters(folder: Path) -> None:
    assert "relu(" in smelt(folder, "dump", "model.py:nothing").stdout


def test_dump_of_a_gradient(folder: Path) -> None:
    forward = smelt(folder, "dump", "model.py:layer").stdout
    backward = smelt(folder, "dump", "model.py:layer", "--grad").stdout
    assert len(backward.splitlines()) > len(forward.splitlines())
    returned = backward[backward.index("return") :].splitlines()[0]
    assert returned.count("%") == 2


def test_dump_reads_back(folder: Path) -> None:
    text = smelt(folder, "dump", "model.py:layer").stdout
    assert smelt(folder, "opt", "-", text=text).stdout == text


def test_explain(folder: Path) -> None:
    assert "kernel" in smelt(folder, "explain", "model.py:layer").stdout
    assert json.loads(smelt(folder, "explain", "model.py:layer", "--json").stdout)["kernels"]


def test_opt_runs_passes(folder: Path) -> None:
    text = smelt(folder, "opt", "twice.ir", "-p", "cse", "--verify-each").stdout
    assert text.count("exp(") == 1
    assert smelt(folder, "opt", "-", "-p", "cse", text=GRAPH).stdout.count("exp(") == 1


def test_opt_prints_between_and_timings(folder: Path) -> None:
    shown = smelt(folder, "opt", "twice.ir", "-p", "decompose,cse", "--print-between", "--timings")
    assert shown.stdout.count("graph @twice") == 2
    assert "cse" in shown.stderr


def test_opt_lists_all_passes_with_whole_sentences(folder: Path) -> None:
    rows = [line.split(maxsplit=2) for line in smelt(folder, "opt", "--list").stdout.splitlines()]
    assert {name: kind for name, kind, _ in rows} == {name: NOUNS[entry.kind] for name, entry in PASSES.items()}
    for name, _, sentence in rows:
        assert " ".join(PASSES[name].doc.split()).startswith(sentence + ".")


def test_opt_on_kernels(folder: Path) -> None:
    text = smelt(folder, "opt", "sums.loops", "-p", "vectorize,parallelize", "--verify-each").stdout
    assert text.startswith("kernel @exps(") and "\n\nkernel @sums(" in text and "vector<" in text
    assert smelt(folder, "opt", "-", text=text).stdout == text
    assert smelt(folder, "opt", "sums.loops", "-p", "vectorize", "--print-between").stdout.count("----- vectorize") == 2


@pytest.mark.parametrize("way", [(), ("--interpret",), ("--check-bounds",)], ids=["compiled", "interpreted", "checked"])
def test_run_kernels(folder: Path, way: tuple[str, ...]) -> None:
    """What the kernels store, those results included that a later one reads."""
    smelt(folder, "run", "sums.loops", "--inputs", "x.npy", "--output", "out.npz", *way)
    wanted = np.exp(np.load(folder / "x.npy"))
    with np.load(folder / "out.npz") as results:
        np.testing.assert_allclose(results["arr_0"], wanted, rtol=1e-6)
        np.testing.assert_allclose(results["arr_1"], wanted.sum(1), rtol=1e-6)


@pytest.mark.parametrize("interpret", [(), ("--interpret",)], ids=["compiled", "interpreted"])
def test_run(folder: Path, interpret: tuple[str, ...]) -> None:
    smelt(folder, "run", "twice.ir", "--inputs", "x.npy", "--output", "out.npz", *interpret)
    with np.load(folder / "out.npz") as results:
        np.testing.assert_allclose(results["arr_0"], 2 * np.exp(np.load(folder / "x.npy")), rtol=1e-6)
    assert "f32[2, 3]" in smelt(folder, "run", "twice.ir", "--inputs", "x.npy", *interpret).stdout


def test_ops(folder: Path) -> None:
    lines = smelt(folder, "ops").stdout.splitlines()
    assert any(line.split()[:2] == ["exp", "elementwise"] for line in lines)
    assert smelt(folder, "ops", "exp*").stdout.splitlines()[1].startswith("exp")
    (entry,) = [item for item in json.loads(smelt(folder, "ops", "--json", "relu").stdout) if item["name"] == "relu"]
    assert entry["kind"] == "composite" and entry["vjp"] and entry["jvp"] and entry["doc"]


def test_doctor(folder: Path) -> None:
    before = sorted(folder.iterdir())
    text = smelt(folder, "doctor").stdout
    assert "llvmlite" in text and "threads" in text
    assert json.loads(smelt(folder, "doctor", "--json").stdout)["problems"] == []
    assert sorted(folder.iterdir()) == before


def test_demo(folder: Path) -> None:
    text = smelt(folder, "demo", "--steps", "30").stdout
    assert "the same within" in text and "accuracy" in text and "kernel @" in text


MISTAKES = {
    "no-command": ([], 2, ""),
    "misspelt-command": (["dmup"], 2, "did you mean 'dump'"),
    "misspelt-option": (["ops", "--jsno"], 2, "did you mean '--json'"),
    "misspelt-stage": (["dump", "model.py:layer", "--stage", "lops"], 2, "did you mean 'loops'"),
    "option-twice": (["opt", "twice.ir", "-p", "fuse{max_cost=1, max_cost=2}"], 1, "max_cost is given twice"),
    "missing-argument": (["dump"], 2, "function"),
    "not-a-function-name": (["dump", "model.py"], 2, "module.py:function"),
    "no-types": (["dump", "model.py:wrong"], 2, "--args"),
    "misspelt-file": (["dump", "modle.py:layer"], 1, "did you mean 'model.py'"),
    "misspelt-function": (["dump", "model.py:layr"], 1, "did you mean 'layer'"),
    "not-a-function": (["dump", "model.py:number", "--args", "f32[4]"], 1, "expected a function"),
    "misspelt-type": (["dump", "model.py:layer", "--args", "flaot32[4]"], 1, "float32"),
    "neither-type-nor-literal": (["dump", "model.py:layer", "--args", "hello"], 1, "expected a type"),
    "broken-module": (["dump", "broken.py:layer"], 1, "ZeroDivisionError"),
    "wrong-shapes": (["dump", "model.py:wrong", "--args", "f32[2, 3]"], 1, "model.py:18"),
    "misspelt-pass": (["opt", "twice.ir", "-p", "csee"], 1, "did you mean 'cse'"),
    "pass-over-kernels": (["opt", "twice.ir", "-p", "cse,vectorize"], 2, "vectorize works on kernels"),
    "pass-over-graphs": (["opt", "sums.loops", "-p", "cse"], 2, "cse works on graphs, and sums.loops has kernels"),
    "too-few-inputs-of-kernels": (["run", "sums.loops"], 1, "@exps takes 1: %x: f32[N, 3]"),
    "kernels-that-leave-memory": (["run", "outside.loops", "--inputs", "x.npy"], 1, "dim 1 of %x has size 3"),
    "no-graph-file": (["opt", "missing.ir"], 1, "missing.ir"),
    "too-few-inputs": (["run", "twice.ir"], 1, "%x: f32[N, 3]"),
    "wrong-input": (["run", "twice.ir", "--inputs", "wide.npy"], 1, "expected f32[N, 3]"),
    "not-an-array": (["run", "twice.ir", "--inputs", "model.py"], 1, "not a .npy file"),
    "an-empty-file": (["run", "twice.ir", "--inputs", "empty.npy"], 1, "not a .npy file"),
    "a-torn-archive": (["run", "twice.ir", "--inputs", "torn.npy"], 1, "not a .npy file"),
    "sizes-out-of-range": (["run", "ten.ir", "--inputs", "x.npy"], 1, "N is 2, the program is for N >= 10"),
    "sizes-out-of-range-interpreted": (["run", "ten.ir", "--inputs", "x.npy", "--interpret"], 1, "N >= 10"),
    "broken-package": (["dump", "broken:layer"], 1, "could not be loaded"),
    "no-cache-there": (["cache", "verify", "--dir", "missing"], 1, "no directory missing"),
    "no-cache-to-list": (["cache", "--dir", "missing"], 1, "no directory missing"),
    "steps-below-zero": (["demo", "--steps", "-1"], 2, "expected a number above 0, got '-1'"),
    "gpu-of-a-cpu": (["dump", "model.py:layer", "--arch", "sm_90"], 2, "add --target cuda"),
    "gpu-of-a-cpu-explained": (["explain", "model.py:layer", "--arch", "sm_90"], 2, "add --target cuda"),
    "op-like-no-other": (["ops", "nosuch"], 1, "nosuch"),
    "misspelt-op": (["ops", "sofmax"], 1, "did you mean 'softmax'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(folder: Path, name: str) -> None:
    words, code, expected = MISTAKES[name]
    if not words:
        shown = subprocess.run([sys.executable, "-m", "smelt.tools.main"], capture_output=True, text=True)
        assert shown.returncode == code and "doctor" in shown.stdout
        return
    assert expected in smelt(folder, *words, code=code).stderr


def test_parse_errors_point_at_the_place(folder: Path) -> None:
    text = GRAPH.replace("add(%0, %1)", "add(%0, %7)")
    assert "<stdin>:5" in smelt(folder, "opt", "-", code=1, text=text).stderr


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_colour_on_a_terminal_unless_asked_not_to() -> None:
    assert "\x1b[" in on_terminal({})
    assert "\x1b[" not in on_terminal({"NO_COLOR": "1"})


def on_terminal(extra: dict[str, str]) -> str:
    """What `smelt ops` writes to a terminal."""
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "smelt.tools.main", "ops", "exp"]
    with subprocess.Popen(command, stdout=theirs, env={**environment, "TERM": "xterm", **extra}):
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 4096):
                parts.append(part)
        except OSError:  # Linux ends a pseudo-terminal this way
            pass
    os.close(ours)
    return b"".join(parts).decode()


# ----- what new users met


def test_the_example_of_the_help(folder: Path) -> None:
    shown = smelt(folder, "opt", "--help").stdout
    assert "decompose,cse,fuse{max_cost=64}" in shown
    text = smelt(folder, "opt", "twice.ir", "-p", "decompose,cse,fuse{max_cost=64}").stdout
    assert text.startswith("fused @twice(") and "kernel 0 {" in text and "// twice.ir:" in text
    between = smelt(folder, "opt", "twice.ir", "-p", "cse,fuse", "--print-between", "--no-locations").stdout
    assert "----- fuse" in between and "fused @twice(" in between and "twice.ir" not in between
    assert (
        "fuse, which makes kernels of one, comes last"
        in smelt(folder, "opt", "twice.ir", "-p", "fuse,cse", code=1).stderr
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["ops"], ["opt", "--list"], ["run", "twice.ir", "--inputs", "x.npy"]])
def test_a_full_device_is_an_error_without_a_traceback(folder: Path, words: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "smelt", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: the output could not be written: No space left on device\n")


def test_a_full_device_named_as_the_output(folder: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no full device")
    (folder / "full.npy").symlink_to("/dev/full")
    for name in ("full.npy", "/dev/full"):
        said = smelt(folder, "run", "twice.ir", "--inputs", "x.npy", "--output", name, code=1).stderr
        assert said.startswith(f"error: {name}: ") and "None" not in said and len(said.splitlines()) == 1


def test_no_standard_output_at_all(folder: Path) -> None:
    done = subprocess.run(f"{sys.executable} -m smelt ops >&-", cwd=folder, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_as_a_module(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "smelt", "--version"], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"smelt {__version__}\n")


LIBRARIES = """
import numpy as np, scipy.special, scipy.stats, smelt
def scores(x):
    return scipy.stats.zscore(x)
def weights(x):
    return scipy.special.softmax(x)
named = smelt.jit(lambda x, kind: x)
largest = max
"""


def test_errors_name_the_users_file_not_a_librarys_or_smelts(folder: Path) -> None:
    (folder / "library.py").write_text(LIBRARIES)
    for name, line in (("scores", 4), ("weights", 6)):
        said = smelt(folder, "dump", f"library.py:{name}", "--args", "f32[3, 4]", code=1).stderr
        assert said.startswith(f"error: library.py:{line}: ")
    said = smelt(folder, "dump", "library.py:named", "--args", "f32[3, 4]", "'text'", code=1).stderr
    assert said.startswith("error: lambda: got the string")
    command = Path(sys.executable).with_name("smelt")
    words = ["dump", "library.py:largest", "--args", "f32[3, 4]"]
    done = subprocess.run([command, *words], cwd=folder, capture_output=True, text=True)
    assert done.stderr.startswith("error: a Python branch on a traced tensor"), done.stderr


OPTIMISED = """
import numpy as np, smelt
from smelt import ops
from smelt.ops.define import Tensor, composite
from smelt.passes.manager import parse_pipeline
from smelt.tools.main import main
x = np.ones((4, 4), np.float32)
@composite
def mine(self: "Tensor") -> "Tensor":
    "Gone with -OO."
    return self * 2
assert_equal = np.testing.assert_allclose
assert_equal(smelt.jit(lambda x: mine(ops.softmax(x, 1)) @ x)(x), 2 * x)
assert_equal(smelt.grad(lambda x: (x * x).sum())(x), 2 * x)
assert_equal(ops.exp(x), np.exp(x), rtol=1e-6)
print(parse_pipeline("decompose,cse,fuse{max_cost=64}"))
raise SystemExit(main(["ops", "mine"]))
"""


def test_python_without_docstrings(folder: Path) -> None:
    (folder / "program.py").write_text("from __future__ import annotations\n" + OPTIMISED.replace('"Tensor"', "Tensor"))
    done = subprocess.run([sys.executable, "-OO", "program.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("decompose,cse,fuse{max_cost=64}") and "mine" in done.stdout
