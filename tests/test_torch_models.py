"""Real models through torch.compile(backend="smelt"): inference and a training step against eager.

A few of them here; `--long` takes all.
"""

from __future__ import annotations

import pytest
import torch
from torch_models import MODELS, compare

pytestmark = pytest.mark.filterwarnings("ignore")
QUICK = ("bert", "llama", "vit", "resnet")


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str, request: pytest.FixtureRequest) -> None:
    if name not in QUICK and not request.config.getoption("--long"):
        pytest.skip("only with --long")
    pytest.importorskip("transformers")
    torch._dynamo.reset()
    error, fallback = compare(name)
    assert error < 1e-4
    assert set(fallback) <= MODELS[name]
