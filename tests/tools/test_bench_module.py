"""`smelt bench FILE.py:FUNCTION`: a PyTorch module, measured and compared."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import smelt.torch
import torch
from smelt.tools.bench import OPTIMIZERS
from smelt.tools.main import main
from smelt.tools.workloads.module import TrainStep

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

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.norm = nn.LayerNorm(32)

    def forward(self, x):
        parts = (part(x).unflatten(-1, (4, 8)).transpose(1, 2) for part in (self.query, self.key, self.value))
        return self.norm(nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))

def make_attention():
    return Attention(), (torch.randn(2, 16, 32),)

def make_other_type():
    return nn.Sequential(nn.Linear(4, 4), Narrow(), nn.Linear(4, 4)), (torch.randn(2, 4),)

class Narrow(nn.Module):
    def forward(self, x):
        return x.float()

def make_nothing():
    return 3

def make_bare():
    return nn.Linear(3, 3)

def make_three():
    return nn.Linear(3, 3), (torch.randn(3),), {}

def make_function():
    return torch.sin, (torch.randn(3),)

a_module = nn.Linear(3, 3)
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


def test_training_with_an_optimizer(file: Path, capsys: pytest.CaptureFixture[str]):
    record = bench(file, "make_model", "--train", "--optimizer", "AdamW")
    assert record["contenders"]["smelt"]["agrees"]
    assert "training step with AdamW" in capsys.readouterr().out


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_compiled_as_the_module_is(name: str):
    module = torch.nn.Linear(4, 4)
    before = module.weight.detach().clone()
    step = TrainStep(name, "smelt")
    smelt.torch.reset_stats()
    try:
        step(module, module, (torch.ones(2, 4),), {})
        assert smelt.torch.stats()["kernels"] > 0 and not torch.equal(module.weight, before)
    finally:
        torch._dynamo.reset()


def test_gradients_that_are_nothing_but_rounding_agree(file: Path):
    """That of the bias of the keys is zero: softmax does not see it."""
    found = bench(file, "make_attention", "--train")["contenders"]["smelt"]
    assert found["agrees"] and found["reference"] == "float64"


def test_what_cannot_run_in_float64_is_compared_with_eager(file: Path):
    found = bench(file, "make_other_type", "--train")["contenders"]["smelt"]
    assert found["agrees"] and found["reference"] == "eager"


def test_errors_are_measured_by_those_of_eager():
    from smelt.tools.workloads.accuracy import MULTIPLE, exact_results, excess, in_float64

    torch.manual_seed(0)
    module, x = torch.nn.Linear(256, 64), torch.randn(128, 256)

    def step(module: Any, x: Any) -> list[torch.Tensor]:
        module.zero_grad()
        result = module(x).tanh()
        (result * result.detach().cos()).sum().backward()
        return [result, module.weight.grad, module.bias.grad, result.argmax(1)]

    eager = [item.clone() for item in step(module, x)]
    wide, wide_x = in_float64(module, x)
    exact = exact_results(lambda: step(wide, wide_x))
    assert exact is not None and exact[1].dtype == torch.float64 and module.weight.dtype == torch.float32
    assert excess(eager, eager, exact) == pytest.approx(1 / MULTIPLE)
    # The same in another order of the sums.
    order = torch.randperm(256)
    weight = module.weight.detach()[:, order].requires_grad_()
    result = (x[:, order] @ weight.T + module.bias).tanh()
    (result * result.detach().cos()).sum().backward()
    other = [result, weight.grad[:, order.argsort()], *eager[2:]]
    assert 0 < excess(other, eager, exact) < 1
    # A fault in the fifth digit: of all numbers, of one number, of a single bias.
    for at, change in ((1, 1 + 1e-4), (2, 1 + 1e-4)):
        wrong = [item * change if number == at else item for number, item in enumerate(eager)]
        assert excess(wrong, eager, exact) > 1
    wrong = [item.clone() for item in eager]
    wrong[1][3, 5] += 3e-4 * wrong[1].abs().max()
    assert excess(wrong, eager, exact) > 1
    # What is not finite, has another shape, or is another integer.
    wrong[1][3, 5] = math.inf
    assert excess(wrong, eager, exact) == math.inf
    assert excess([item[:1] for item in eager], eager, exact) == math.inf
    endless, other_end = torch.tensor([1.0, math.inf]), torch.tensor([1.0, -math.inf])
    assert excess([endless], [endless], [endless.double()]) == 0
    assert excess([other_end], [endless], [endless.double()]) == math.inf
    assert excess([*eager[:3], eager[3] + 1], eager, exact) > 1


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
        (["--optimizer", "Adam"], "--optimizer needs a module"),
        (["a_model.py:make_model", "--optimizer", "Adam"], "--optimizer is a part of a training step"),
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


@pytest.mark.parametrize(
    ("name", "message"),
    (
        ("make_bare", "make_bare returns Linear: expected a function without arguments that returns a PyTorch module"),
        ("make_three", "make_three returns Linear and tuple and dict: expected"),
        ("make_function", "make_function returns builtin_function_or_method and tuple: expected"),
        ("a_module", "a_module is a PyTorch module: expected"),
    ),
)
@pytest.mark.parametrize("command", ("bench", "explain"))
def test_what_is_not_a_module_and_its_inputs(
    file: Path, command: str, name: str, message: str, capsys: pytest.CaptureFixture[str]
):
    assert main([command, f"{file}:{name}"]) == 1
    assert message in capsys.readouterr().err
