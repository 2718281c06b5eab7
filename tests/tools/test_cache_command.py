"""`smelt bake` and `smelt cache`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cached_programs import entry_of, flip, run
from smelt.backend.store import cache

MODULE = """
import os
import smelt
from smelt import ops

def layer(x, w):
    return ops.relu(x @ w)

layer.example_args = ["f32[24, 8]", "f32[8, 4]"]

@smelt.jit(static_argnames="axis", options=smelt.CompileOptions(max_cost=9))
def norm(x, scale, axis):
    return ops.softmax(x, axis) * scale

def moody(x):
    return x * os.getpid()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODULE)
    return tmp_path


def command(project: Path, *words: str, code: int = 0, place: str | None = None) -> str:
    environment = {**os.environ, cache.VARIABLE: place or str(project / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "smelt.tools.main", *words], cwd=project, env=environment, capture_output=True, text=True
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


def test_bake_and_look(project: Path) -> None:
    shown = command(project, "bake", "model.py:layer", "--verify")
    assert "layer(x: f32[24, 8], w: f32[8, 4])" in shown and "hit:" in shown
    assert "found in" in command(project, "bake", "model.py:layer")
    assert "hit:" in command(project, "cache", "why", "model.py:layer")
    listed = json.loads(command(project, "cache", "list", "--json"))
    assert {item["usable"] for item in listed} == {"yes"} and len(listed) == 3
    text = command(project, "cache")
    for part in ("layer(x: f32[24, 8]", "the run time", "matrix products of f32", "3 entries"):
        assert part in text
    assert command(project, "cache", "dir").strip() == str(project / "cache")
    assert "3 entries, all intact" in command(project, "cache", "verify")
    flip(entry_of(project / "cache", "layer"))
    assert "1 of 3 entries are damaged" in command(project, "cache", "verify", code=1)
    again = json.loads(command(project, "cache", "list", "--json"))
    assert sorted((item["usable"], item["damage"]) for item in again) == [
        ("no", "its checksum is wrong"),
        ("yes", ""),
        ("yes", ""),
    ], "the list says what verify says"
    assert "no, damaged" in command(project, "cache")
    assert "checksum" in command(project, "cache", "why", "model.py:layer", code=1)
    assert "3 entries removed" in command(project, "cache", "clear")
    assert "0 entries" in command(project, "cache")


def test_why_not(project: Path) -> None:
    assert "program" in command(project, "cache", "why", "model.py:layer", code=1)
    command(project, "bake", "model.py:layer")
    said = command(project, "cache", "why", "model.py:layer", "--args", "f32[7, 8]", "f32[8, 4]", code=1)
    assert "there is layer(x: f32[24, 8], w: f32[8, 4])" in said
    assert "the cache is off" in command(project, "cache", code=1, place="off")
    assert "the cache is off" in command(project, "bake", "model.py:layer", code=1, place="off")


def test_what_is_baked_is_what_a_program_runs(project: Path) -> None:
    """With the options and static arguments that jit was given."""
    command(project, "bake", "model.py:norm", "--args", "f32[24, 8]", "2.5", "-1", "--dir", "baked", "--verify")
    program = """
import numpy as np, model
model.norm(np.ones((24, 8), np.float32), 2.5, axis=-1)
print(model.norm.report().cache.state)
"""
    environment = {
        **os.environ,
        cache.VARIABLE: f"off{os.pathsep}{project / 'baked'}",
        "PYTHONPATH": os.pathsep.join([str(project), *sys.path]),
    }
    assert run(program, environment=environment, cwd=project).stdout.strip() == "hit"


def test_bake_fails_where_a_fresh_process_would_compile(project: Path) -> None:
    said = command(project, "bake", "model.py:moody", "--args", "f32[4]", "--verify", code=1)
    assert "a fresh process does not find the code" in said and "program" in said
    (project / "cache.txt").write_text("")
    assert "could not be kept" in command(project, "bake", "model.py:layer", "--dir", "cache.txt", code=1)
