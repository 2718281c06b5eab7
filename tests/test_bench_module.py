"""`smelt bench FILE.py:FUNCTION`: a PyTorch module, measured and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from smelt.tools.main import main

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.linear, self.dropout = nn.Linear(8, 4), nn.Dropout(dropout)

    def forward(self, x, scale):
        return {"loss": self.dropout(self.linear(x) * scale).square().sum(), "hidden": x + 1}

def make_model():
    return Model(), {"x": torch.randn(3, 8), "scale": torch.ones(4)}

def make_random():
    return Model(0.5), (torch.randn(3, 8), torch.ones(4))

def make_nothing():
    return 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "a_model.py"
    made.write_text(MODEL)
    return made


def bench(file: Path, name: str, *words: str) -> dict[str, Any]:
    out = file.parent / "out.json"
    command = ["bench", f"{file}:{name}", "--contenders", "smelt,eager", "--repeat", "3", "--seconds", "0"]
    assert main([*command, "--json", str(out), *words]) == 0
    (record,) = json.loads(out.read_text())["results"]
    return record


def test_forward(file: Path, capsys: pytest.CaptureFixture[str]):
    record = bench(file, "make_model")
    for name in ("smelt", "eager"):
        found = record["contenders"][name]
        assert found["agrees"] and found["median"] > 0 and found["samples"] == 3
    assert "make_model forward" in capsys.readouterr().out


def test_training_and_compilation(file: Path, capsys: pytest.CaptureFixture[str]):
    record = bench(file, "make_model", "--train", "--compile", "--threads", "1")
    found = record["contenders"]["smelt"]
    assert found["agrees"] and record["threads"] == 1
    assert all(found[part] > 0 for part in ("dynamo", "aot", "compile", "hit"))
    assert found["hit"] < found["first_call"]
    text = capsys.readouterr().out
    assert "training step" in text and "AOTAutograd" in text and "disk cache" in text


def test_random_results_are_not_compared(file: Path):
    record = bench(file, "make_random", "--train")
    assert "agrees" not in record["contenders"]["smelt"]
    assert record["contenders"]["smelt"]["median"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    (
        (
            ["a_model.py:make_nothing"],
            "error: a_model.py:make_nothing: expected a function without arguments that returns",
        ),
        (["a_model.py:make_modle"], "error: a_model.py has no function 'make_modle' (did you mean 'make_model'?)"),
        (["a_modle.py:make_model"], "error: no file a_modle.py (did you mean 'a_model.py'?)"),
        (["a_model.py"], "error: expected module.py:function, got 'a_model.py'"),
        (["a_model.py:make_model", "--only", "softmax"], "--only is for the suite"),
        (["a_model.py:make_model", "--contenders", "numpy"], "unknown contender 'numpy'"),
        (["--train"], "--train needs a module"),
    ),
)
def test_errors(
    file: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(file.parent)
    assert main(["bench", *words]) != 0
    shown = capsys.readouterr()
    assert message in shown.err
    assert "smelt.tools" not in shown.err and "malloc" not in shown.out
