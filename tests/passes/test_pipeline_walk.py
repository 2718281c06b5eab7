"""The line of stages: each stage takes what stages before it made, and a compile goes through the rooms in one way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend import stages
from smelt.backend.compile import compile_graph, start_graph
from smelt.backend.cpu import build as cpu
from smelt.backend.cuda import build as cuda
from smelt.backend.stages import Line, Stage, Streamed
from smelt.ir.graph import Graph

WIDTH = 512
BACK = 2  # from backend/ to passes/: once behind the start of libraries, and once behind the first part for LLVM
KNOWN = {"graph", "settings", "hook"}
LINES = {
    "cpu": (cpu.LINE, {*KNOWN, "options", "machine"}, "artifact"),
    "cuda": (cuda.LINE, {*KNOWN, "simulated", "small"}, "program"),
}


def layer(x: Any, w: Any, scale: Any, bias: Any) -> Any:
    return ops.sum(ops.gelu(ops.layer_norm(x @ w, (WIDTH,), scale, bias)))


def gradient() -> Graph:
    shapes = ((256, 256), (256, WIDTH), (WIDTH,), (WIDTH,))
    return smelt.jit(smelt.grad(layer, argnums=(0, 1, 2, 3))).trace(*(np.zeros(item, np.float32) for item in shapes))


def rooms(compile: Callable[[], Any]) -> list[str]:
    """Return the functions of passes/ and backend/ that were called first after each change of the room."""
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        # The driver stands between the rooms.
        name = frame.f_globals.get("__name__", "")
        room = name.split(".")[1] if name.startswith("smelt.") else ""
        if event == "call" and room in ("passes", "backend") and name != stages.__name__:
            if not found or found[-1][0] != room:
                found.append((room, f"{name}.{frame.f_code.co_name}"))

    sys.setprofile(note)
    try:
        compile()
    finally:
        sys.setprofile(None)
    return [f"{room}: {function}" for room, function in found]


def went_back(walk: list[str]) -> int:
    return sum(item.startswith("passes") for item in walk) - 1


def test_a_compile_goes_through_the_rooms_in_one_way() -> None:
    graph = gradient()
    compile_graph(graph)  # all modules are loaded, and the run time is there
    with smelt.threads(2):
        walk = rooms(lambda: start_graph(graph))
    assert walk[0].startswith("backend") and walk[-1].startswith("backend")
    assert 0 < went_back(walk) <= BACK, walk


def test_one_thread_makes_all_kernels_before_code() -> None:
    """With nobody to compile meanwhile, only the start of libraries comes between."""
    graph = gradient()
    compile_graph(graph)
    with smelt.threads(1):
        assert went_back(rooms(lambda: start_graph(graph))) == 1


def test_the_walk_sees_what_goes_back() -> None:
    def compile() -> None:
        for _ in range(3):
            smelt.backend.options.CompileOptions()  # type: ignore[attr-defined]
            smelt.passes.pipelines.graph_passes("kernel")  # type: ignore[attr-defined]

    assert went_back(rooms(compile)) == 2


def steps(line: Line) -> Iterator[tuple[Stage | Streamed, set[str]]]:
    """Yield the stages in the order in which they begin, each with the names that it adds before the next."""
    for stage in line:
        if isinstance(stage, Stage):
            yield stage, {stage.makes} - {""}
        else:
            yield stage, {"kernels", "finished", "batch"}
            for inner in (*stage.whole, *stage.each):
                yield inner, {inner.makes} - {""}


@pytest.mark.parametrize("target", LINES)
def test_a_stage_takes_what_stages_before_it_made(target: str) -> None:
    line, known, last = LINES[target]
    made = set(known)
    for stage, adds in steps(line):
        assert made.issuperset(stage.takes), f"{stage.name}: {set(stage.takes) - made} is not made before it"
        assert not made & adds, f"{stage.name} makes {made & adds} again"
        made |= adds
    assert last in made


@pytest.mark.parametrize("target", LINES)
def test_a_stage_takes_the_types_that_others_make(target: str) -> None:
    types: dict[str, str] = {}
    compared = 0
    for stage, _ in steps(LINES[target][0]):
        hints = dict(stage.run.__annotations__)
        result = hints.pop("return")
        for name, kind in zip(stage.takes, hints.values()):
            if kind.isidentifier() and types.get(name, "").isidentifier():
                assert types[name] == kind, f"{stage.run.__name__} takes {name} as {kind}, not {types[name]}"
                compared += 1
        if isinstance(stage, Stage) and stage.makes:
            types[stage.makes] = result
    assert compared >= 8


def test_a_text_is_made_when_somebody_asks_for_it() -> None:
    made: list[int] = []
    text = stages.Text(lambda: made.append(1) or "text")  # type: ignore[func-returns-value]
    assert not made
    assert [str(text), str(text)] == ["text", "text"] and made == [1]


def test_a_hook_that_looks_at_no_text_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> str:
        raise AssertionError("nobody asked for this text")

    monkeypatch.setattr(cpu, "readable_text", refuse)
    monkeypatch.setattr(cpu, "readable_assembly", refuse)
    seen: dict[str, Any] = {}
    compile_graph(gradient(), on_stage=seen.__setitem__)
    assert {"graph", "simplify", "fuse", "loops", "llvm", "asm"} <= seen.keys()
    with pytest.raises(AssertionError, match="nobody asked"):
        str(seen["llvm"])
