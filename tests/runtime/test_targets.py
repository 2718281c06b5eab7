"""Targets: one class is a target of every driver, and the table knows which there are.

The target is the class of docs/adding-a-target.md: code is a simplified graph as text, which the reference interpreter
runs. A mixin logs what the target is asked for.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.compile import compile_graph, compile_stages, explain_graph, graph_key, start_graph
from smelt.backend.options import CompileOptions
from smelt.backend.report.timings import Stages
from smelt.backend.targets import Target, targets
from smelt.ir.errors import CompileError
from smelt.tools.main import main

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "adding-a-target.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FAKE = CompileOptions(target="fake")
pytestmark = pytest.mark.usefixtures("folder")
X = np.arange(12, dtype=np.float32).reshape(3, 4)


class Fake(Target):
    """What stands in front of the document's class."""

    name = "fake"

    def __init__(self) -> None:
        self.log: list[str] = []

    def build(self, *given: Any) -> Callable[[Stages], Any]:
        self.log.append("build")
        complete = super().build(*given)

        def completed(stages: Stages) -> Any:
            self.log.append("complete")
            return complete(stages)

        return completed

    def write(self, code: Any) -> tuple[dict[str, Any], bytes]:
        self.log.append("write")
        return super().write(code)

    def read(self, header: dict[str, Any], content: bytes) -> Any:
        self.log.append("read")
        return super().read(header, content)

    def load(self, *given: Any) -> Any:
        self.log.append("load")
        return super().load(*given)

    def prepare(self) -> None:
        self.log.append("prepare")


@pytest.fixture(scope="module")
def reference() -> type[Target]:
    """The class of the document, without its checks."""
    module: dict[str, Any] = {}
    exec(compile(BLOCK.findall(DOCUMENT.read_text())[0], "<document>", "exec"), module)
    return module["Reference"]


@pytest.fixture
def fake(reference: type[Target]) -> Iterator[Fake]:
    target = type("Logged", (Fake, reference), {})()
    targets.register(target)
    yield target
    targets.remove(target.name)


def layer(x: Any, scale: Any = 2.0) -> Any:
    return ops.softmax(x, 1) * scale, x.shape[0]


def expected(x: np.ndarray, scale: float) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) * np.float32(scale)


def test_a_function_runs_on_it(fake: Fake) -> None:
    """Arrays and numbers, a second call, open sizes, other memory orders."""
    function = smelt.jit(layer, target="fake")
    for _ in range(2):
        result, rows = function(X, 3.0)
        np.testing.assert_allclose(result, expected(X, 3.0), rtol=1e-6)
        assert rows == 3
    assert fake.log == ["build", "complete", "write", "load"]
    for rows in (5, 6, 7):
        x = np.ones((rows, 4), np.float32)
        assert function(x, 1.0)[1] == rows
    assert function.compiles == 2 and fake.log.count("build") == 2
    turned = np.asfortranarray(X)
    np.testing.assert_allclose(function(turned, 3)[0], expected(X, 3.0), rtol=1e-6)
    assert function.report().cache.state == "missed"


def test_results_are_new_arrays(fake: Fake) -> None:
    captured = np.ones((3, 4), np.float32)
    same, other, drawn = smelt.jit(lambda x: (x, x + captured, ops.rand_like(x)), target="fake")(X)
    assert not np.shares_memory(same, X)
    np.testing.assert_array_equal(same, X)
    np.testing.assert_array_equal(other, X + 1)
    assert drawn.shape == X.shape and (drawn != same).any()


def test_it_goes_into_a_trace(fake: Fake) -> None:
    """A call with known arguments inside a trace is inlined, by whichever target compiles the whole."""
    inner = smelt.jit(lambda x: x * 2, target="fake")
    np.testing.assert_array_equal(smelt.jit(lambda x: x + inner(np.ones(4, np.float32)))(X), X + 2)
    assert fake.log.count("load") <= 1


def test_its_code_is_kept(fake: Fake, tmp_path: Path) -> None:
    graph = smelt.jit(layer).trace(smelt.spec("f32[N, 4]"))
    key, _ = graph_key(graph, FAKE)
    other, _ = graph_key(graph, CompileOptions())
    assert key is not None and other is not None and key.program != other.program
    assert key.fields["target"] == "fake" and key.fields["numpy"] == np.__version__
    first = compile_graph(graph, FAKE)
    assert first.cache.state == "missed" and fake.log == ["build", "complete", "write", "load"]
    fake.log.clear()
    second = compile_graph(graph, FAKE)
    assert second.cache.state == "hit" and fake.log == ["read", "load"]
    np.testing.assert_array_equal(first([X])[0], second([X])[0])
    (path,) = tmp_path.rglob("*.smelt")
    assert path.name == key.name


def test_equal_graphs_are_compiled_once(fake: Fake) -> None:
    graph = smelt.jit(layer).trace(smelt.spec("f32[N, 4]"))
    first, second = start_graph(graph, FAKE), start_graph(graph, FAKE)
    assert fake.log == ["build"]
    made = [second(), first()]
    assert fake.log == ["build", "complete", "write", "load", "complete", "load"]
    assert ["being compiled" in str(item.cache) for item in made] == [True, False]


def test_a_build_that_fails_leaves_no_lock(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Any:
        raise CompileError("no such instruction")

    graph = smelt.jit(layer).trace(smelt.spec("f32[N, 4]"))
    with monkeypatch.context() as patched:
        patched.setattr(fake, "build", broken)
        with pytest.raises(CompileError, match="no such instruction"):
            compile_graph(graph, FAKE)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name.endswith("lock")]
    assert compile_graph(graph, FAKE).cache.state == "missed"


def test_whoever_watches_gets_the_stages(fake: Fake, tmp_path: Path) -> None:
    """By a target that says so, out of the cache as well."""
    graph = smelt.jit(layer).trace(smelt.spec("f32[3, 4]"))
    seen = compile_stages(graph, fake.stages, FAKE)
    assert [name for name in seen if name in fake.stages] == list(fake.stages)
    assert "softmax" in str(seen["graph"]) and "softmax" not in seen["text"]
    assert "complete" not in fake.log  # nothing behind the last stage is made
    watched = compile_graph(graph, CompileOptions(target="fake", verify=True))
    assert str(watched.cache) == "off: the stages of compilation were asked for" and not list(tmp_path.rglob("*.smelt"))
    fake.keeps_watched = True
    assert [compile_graph(graph, FAKE, lambda *_: None).cache.state for _ in range(2)] == ["missed", "hit"]
    assert fake.log.count("build") == 4 and fake.log.count("write") == 1


def test_the_command_knows_it(fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.py"
    file.write_text("from smelt import ops\n\ndef layer(x):\n    return ops.softmax(x, 1)\n")
    program = [f"{file}:layer", "--args", "f32[3, 4]", "--target", "fake"]
    place = ["--dir", str(tmp_path / "kept")]

    def shown(*words: str) -> str:
        with suppress(SystemExit):
            main([*words])
        out, error = capsys.readouterr()
        return out + error

    assert "amax(%x)" in shown("dump", *program, "--stage", "text")
    assert "// ----- text" in shown("dump", *program, "--stage", "all")
    assert "there are graph, layout, decompose, simplify, text, all" in shown("dump", *program, "--stage", "llvm")
    assert "--arch sm_80 is for GPUs" in shown("dump", *program, "--arch", "sm_80")
    assert "layer: 6 ops" in shown("explain", *program)
    assert "compiled in" in shown("bake", *program, *place) and "prepare" in fake.log
    assert "yes" in shown("cache", "list", *place)
    assert "1 entries, all intact" in shown("cache", "verify", *place)
    assert "hit: layer(x: f32[3, 4])" in shown("cache", "why", *program, *place)
    targets.remove("fake")
    assert "other target" in shown("cache", "list", *place)
    assert "1 entries, all intact" in shown("cache", "verify", *place)
    assert "invalid choice: 'fake'" in shown("dump", *program)
    targets.register(fake)


def test_explaining_is_the_targets(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = smelt.jit(layer).trace(smelt.spec("f32[3, 4]"))
    assert explain_graph(graph, FAKE).name == "layer"
    monkeypatch.setattr(fake, "explain", lambda graph, options: "short")
    assert explain_graph(graph, FAKE) == "short"


class OnTape:
    """An array somewhere else than in the host's memory."""

    def __init__(self, array: np.ndarray):
        self.array = array


def test_arguments_may_be_in_memory_of_its_own(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []

    def argument(leaf: Any, function: str) -> Any:
        if not isinstance(leaf, OnTape):
            return None
        array = leaf.array.view(Taken)
        array.order = None
        return array

    class Taken(np.ndarray):
        order: Any

    monkeypatch.setattr(fake, "argument", argument)
    monkeypatch.setattr(fake, "check_arguments", lambda arrays, function: checked.append(len(arrays)))
    function = smelt.jit(lambda x, y: x + y, target="fake")
    np.testing.assert_array_equal(function(X, 1.0), X + 1)
    assert not checked
    np.testing.assert_array_equal(function(OnTape(X), 1.0), X + 1)
    assert checked == [2]


def test_the_table(fake: Fake) -> None:
    assert targets.names == ("cpu", "cuda", "fake") and targets.find("fake") is fake
    with pytest.raises(ValueError, match="there is a target 'fake' already"):
        targets.register(fake)
    with pytest.raises(CompileError, match="unknown target 'gpu'; there are cpu, cuda and fake"):
        compile_graph(smelt.jit(layer).trace(smelt.spec("f32[3, 4]")), CompileOptions(target="gpu"))


def test_a_target_that_was_removed() -> None:
    with pytest.raises(CompileError, match="unknown target 'fake'; there are cpu and cuda"):
        smelt.jit(layer, target="fake")(X)


LOADED = """
import sys
import numpy as np
import smelt
from smelt.backend.targets import targets

def loaded():
    return sorted(name for name in sys.modules if name in ("llvmlite.binding", "numba", "cuda", "sympy", "torch"))

print(targets.names, list(targets.loaded), "smelt.backend.compile" in sys.modules, loaded())
for name in targets.names:
    assert targets.find(name).name == name
print(list(targets.loaded), "smelt.backend.cpu.build" in sys.modules, loaded())
smelt.jit(lambda x: x + 1)(np.ones(4, np.float32))
print("smelt.passes.manager" in sys.modules, loaded())
"""


def test_targets_are_loaded_when_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`import smelt` loads none, a target loads its tools when it compiles, and a hit in the cache loads no LLVM."""
    monkeypatch.setenv("SMELT_CACHE_DIR", str(tmp_path))
    shown = [
        subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout.splitlines()
        for _ in range(2)
    ]
    for lines in shown:
        assert lines[0] == "('cpu', 'cuda') [] False []"
        assert lines[1] == "['cpu', 'cuda'] False []"
    assert shown[0][2] == "True ['llvmlite.binding']"
    assert shown[1][2] == "False []"
