"""Calls of aten ops against eager, all derivatives: a spread of what `make parity` runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from parity_aten.check import Comparison, check
from parity_aten.gaps import GAPS, reason
from parity_aten.recorded import Call, calls_of
from parity_torch.cases import subjects
from smelt.ops.define import REGISTRY

SPREAD = [
    "cumprod", "gather", "logaddexp", "nn.functional.layer_norm", "nn.functional.softplus", "amax", "index_put",
    "where",
]  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_calls_agree_with_eager(name: str, dtype: str) -> None:
    calls = list(calls_of(subjects()[name], 2, getattr(torch, dtype)))
    assert calls
    own = [call for call in calls if call.op == name.rpartition(".")[2]] or calls
    for call in own[:2]:
        outcome = check(call)
        words = {mode: why.partition(":")[0] for mode, why in outcome["modes"].items()}
        wrong = [mode for mode, word in words.items() if word == "wrong" and not reason(call.op, mode, outcome["call"])]
        assert not wrong and words["forward"] == "same", outcome
        if dtype == "float64" and call.op in ("cumprod", "gather", "logaddexp", "softplus", "where"):
            assert words == dict.fromkeys(("forward", "reverse", "tangent", "second"), "same")


@pytest.mark.parametrize("mode", ["forward", "reverse", "tangent", "second"])
def test_wrong_numbers_are_seen(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the comparison is worth: one that differs in one mode alone does not pass."""
    made = Comparison.own_mode

    def off(self: Comparison, given: str, *args: Any) -> list[Any]:
        found = made(self, given, *args)
        return [item * 1.001 for item in found] if given == mode else found

    monkeypatch.setattr(Comparison, "own_mode", off)
    x = torch.linspace(0.5, 2.0, 6, dtype=torch.float64).reshape(2, 3)
    outcome = check(Call(torch.ops.aten.mul.Tensor, (x, x.flip(0)), {}))
    assert {name for name, why in outcome["modes"].items() if why.startswith("wrong")} == {mode}


def test_a_refusal_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(REGISTRY, "relu")
    outcome = check(Call(torch.ops.aten.relu.default, (torch.ones(3),), {}))
    assert outcome["modes"] == {"forward": "refused: Unsupported: smelt has no such op"}


def test_gaps_name_ops() -> None:
    assert all(hasattr(torch.ops.aten, name) for name, _, _ in GAPS)
