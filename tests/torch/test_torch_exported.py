"""smelt.from_exported: programs of torch.export, against eager."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import smelt
import smelt.torch
import torch
from torch import nn
from torch_compiled import same

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]


def test_exported_programs():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU()).eval()
    rows = torch.export.Dim("rows", min=2, max=100)
    function = smelt.from_exported(torch.export.export(model, (torch.randn(4, 8),), dynamic_shapes=({0: rows},)))
    for count in (4, 7, 20):
        x = torch.randn(count, 8)
        same(function(x), model(x))
    assert len(function.graphs) == 1
    with pytest.raises(smelt.SmeltError, match=r"was exported for arguments \(\.\.\.\), got \(\.\.\., \.\.\.\)"):
        function(x, x)


def test_exported_programs_take_names_in_any_order():
    class Model(nn.Module):
        def forward(self, x, *, scale, others):
            return x * scale + others["more"] - others["less"]

    x, scale, more, less = torch.randn(4, 3).unbind()
    given = {"scale": scale, "others": {"more": more, "less": less}}
    function = smelt.from_exported(torch.export.export(Model(), (x,), given))
    same(function(x, others={"less": less, "more": more}, scale=scale), Model()(x, **given))
    expected = r"arguments \(\.\.\., scale=\.\.\., others={'more': \.\.\., 'less': \.\.\.}\), "
    with pytest.raises(smelt.SmeltError, match=expected + r"got \(\.\.\., scale=\.\.\.\)"):
        function(x, scale=scale)
    with pytest.raises(smelt.SmeltError, match=expected + r"got \(\.\.\., scale=\[\.\.\.\], others=\.\.\.\)"):
        function(x, scale=[scale], others=more)


def test_exported_programs_have_a_report():
    exported = torch.export.export(nn.Sequential(nn.Linear(8, 16), nn.GELU()).eval(), (torch.randn(4, 8),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = smelt.from_exported(exported).report()
    assert [kernel.name for kernel in report.kernels] == [
        item["name"] for item in json.loads(report.json())[0]["kernels"]
    ]
    assert report.kernels and report.kernels[0].name in str(report)


def test_only_exported_programs_are_taken_for_such():
    with pytest.raises(smelt.SmeltError, match=r"what torch.export.export\(module, inputs\) returns, got Linear"):
        smelt.from_exported(nn.Linear(2, 3))


@pytest.mark.parametrize(
    ("x", "message"),
    (
        (torch.randn(101, 8), "not what the program was exported for"),
        (torch.randn(4, 7), "not what the program was exported for"),
        (torch.randn(4, 8).half(), "exported for torch.float32"),
        (3.0, "not what the program was exported for"),
    ),
)
def test_exported_programs_refuse_what_they_were_not_exported_for(x: Any, message: str):
    rows = torch.export.Dim("rows", min=2, max=100)
    exported = torch.export.export(nn.Linear(8, 16).eval(), (torch.randn(4, 8),), dynamic_shapes=({0: rows},))
    function = smelt.from_exported(exported)
    assert function(torch.randn(100, 8)).shape == (100, 16)
    with pytest.raises(smelt.SmeltError, match=message):
        function(x)
