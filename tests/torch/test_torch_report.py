"""What smelt.torch says of programs: graphs that never came, and the IR of those that did."""

from __future__ import annotations

import pytest
import smelt
import smelt.torch
import torch
from torch_compiled import compiled

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_torch")]


@pytest.mark.xfail(reason="known gap: after other tests Dynamo gives a graph of nn.LSTM", strict=False)
def test_a_report_without_graphs_says_why() -> None:
    assert smelt.torch.report() == "nothing was compiled yet"
    with torch.no_grad():
        torch.compile(torch.nn.LSTM(4, 4), backend="smelt")(torch.randn(3, 2, 4))
    said = smelt.torch.report()
    assert said.startswith("Dynamo gave smelt no graph: PyTorch runs all that was compiled\n")
    assert "Dynamo broke off (1 times): Attempted to wrap RNN, GRU, or LSTM: Dynamo does not support" in said
    smelt.torch.reset_stats()
    assert smelt.torch.report() == "nothing was compiled yet"


def test_a_report_has_graph_breaks() -> None:
    def function(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    torch.compile(function, backend="smelt")(torch.ones(3))
    said = smelt.torch.report()
    assert (
        said.startswith("graph 0 (inference)")
        and "Dynamo broke off (1 times): Call to `torch._dynamo.graph_break()`" in said
    )


def test_graphs_at_any_stage() -> None:
    compiled(lambda x: x.sort()[0] * 2 + x.exp())(torch.randn(8))
    found = smelt.torch.graphs()
    assert [item.kind for item in found] == ["inference"] * len(found) and found
    assert str(found[0]) == found[0].text("graph") and "exp(" in "".join(map(str, found))
    assert "kernel @" in found[0].text("loops") and "define" in found[0].text("llvm")
    with pytest.raises(smelt.SmeltError, match="unknown stage 'loop' .did you mean 'loops'"):
        found[0].text("loop")
    smelt.torch.reset_stats()
    assert smelt.torch.graphs() == []
