"""A kind of op that smelt does not have: what docs/adding-a-kind.md registers is all that one needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import smelt
from smelt.backend.compile import explain_graph
from smelt.backend.interp import graph as interpreter
from smelt.backend.options import CompileOptions
from smelt.ir.errors import CompileError
from smelt.ir.parser import parse_graph
from smelt.ops.define import REGISTRY
from smelt.passes.lower.lower import LOWERINGS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "adding-a-kind.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHECKED = CompileOptions(verify=True)


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The document's declarations, without its checks."""
    module = ModuleType("adding_a_kind")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = [(table, dict(table)) for table in (REGISTRY, interpreter.EVALUATE, LOWERINGS)]
    declarations = BLOCK.findall(DOCUMENT.read_text())[:4]
    exec(compile("\n".join(declarations), "<document>", "exec"), module.__dict__)
    yield module
    for table, entries in before:
        table.clear()
        table.update(entries)


def test_the_document_names_five_places_at_most() -> None:
    places = re.findall(r"^\| \d \| (.*?) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert 1 <= len(places) <= 5


@pytest.mark.parametrize("shape, size", [((10,), 3), ((4, 300), 7), ((3, 5, 8), 8), ((0, 6), 2), ((2, 6), 1)])
@pytest.mark.parametrize("combiner", ["sum", "max"])
def test_kernels_agree_with_the_interpreter(window: Any, combiner: str, shape: tuple[int, ...], size: int) -> None:
    op = getattr(window, f"window_{combiner}")

    def function(x: Any) -> Any:
        return op((x * 2).exp(), size) + 1

    x = np.random.default_rng(0).uniform(-1, 1, shape)
    spec = smelt.spec(f"f64[{', '.join(map(str, shape))}]")
    (wanted,) = interpreter.interpret(smelt.jit(function).trace(spec), [x])
    np.testing.assert_allclose(smelt.jit(function, options=CHECKED)(x), wanted, rtol=1e-12)


def test_it_is_a_citizen(window: Any) -> None:
    """Text both ways, open sizes, both derivatives twice, errors, and the way to a GPU."""
    graph = smelt.jit(lambda x: window.window_sum(x, 4)).trace(smelt.spec("f32[N, M]"))
    assert str(parse_graph(str(graph))) == str(graph)
    cube = smelt.grad(lambda x: (window.window_sum(x, 2) ** 3).sum())
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(smelt.jit(cube, options=CHECKED)(x), [27, 27 + 75, 75])
    np.testing.assert_allclose(smelt.jvp(cube, (x,), (np.ones(3),))[1], [36, 36 + 60, 60])
    with pytest.raises(smelt.SmeltError, match="windows of 0 elements"):
        window.window_sum(x, 0)
    fixed = smelt.jit(lambda x: window.window_sum(x.exp(), 4)).trace(smelt.spec("f32[64, 256]"))
    report = explain_graph(fixed, CompileOptions(target="cuda", architecture="sm_80", verify=True))
    assert [kernel.name for kernel in report.kernels] == ["k0_exp", "k1_window_sum"]
    assert report.refused == {"own_kernel": 1}
    assert "not fused: 1 own kernel\n    exp -> window_sum: window_sum has a kernel of its own" in str(report)


def test_a_kind_without_an_interpretation_says_so(window: Any) -> None:
    graph = smelt.jit(lambda x: window.window_sum(x, 2)).trace(smelt.spec("f32[4]"))
    del interpreter.EVALUATE[window.Window]
    with pytest.raises(CompileError, match="the interpreter does not know the kind Window"):
        interpreter.interpret(graph, [np.ones(4, np.float32)])
