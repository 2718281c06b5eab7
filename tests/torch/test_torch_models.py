"""Real models through torch.compile(backend="smelt"): inference and a training step against eager.

A few of them here; `--long` takes all.
"""

from __future__ import annotations

import pytest
import torch
from torch_models import MODELS, compare, compare_lengths, compare_narrow, compare_written

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


@pytest.mark.parametrize("name", ("bert", "llama", "gpt2", "t5"))
def test_bf16(name: str, request: pytest.FixtureRequest) -> None:
    if name != "bert" and not request.config.getoption("--long"):
        pytest.skip("only with --long")
    pytest.importorskip("transformers")
    torch._dynamo.reset()
    excess, fallback = compare_narrow(name)
    assert excess < 0.1
    assert not fallback


@pytest.mark.parametrize("train", (False, True), ids=("inference", "training"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("name", ("bert", "llama"))
def test_lengths(name: str, dtype: torch.dtype, train: bool, request: pytest.FixtureRequest) -> None:
    """Five lengths of text, one compilation of each graph."""
    quick = (("bert", torch.float32, True), ("llama", torch.bfloat16, False))
    if (name, dtype, train) not in quick and not request.config.getoption("--long"):
        pytest.skip("only with --long")
    pytest.importorskip("transformers")
    torch._dynamo.reset()
    error, receipt = compare_lengths(name, dtype, train, (12, 7, 20, 33, 9))
    assert error < (1e-4 if dtype is torch.float32 else 0.1)
    assert receipt["graphs"] == receipt["compilations"] == 1 + train
    assert receipt["fallback_names"] == {}


@pytest.mark.parametrize("name", ("gpt2", "llama", "t5"))
def test_writing(name: str, request: pytest.FixtureRequest) -> None:
    """A text grows word by word, and so do the caches of keys and values: still one compilation of each graph."""
    if not request.config.getoption("--long"):
        pytest.skip("only with --long")
    pytest.importorskip("transformers")
    torch._dynamo.reset()
    equal, receipt = compare_written(name)
    assert equal
    assert receipt["compilations"] == receipt["graphs"] <= 3
    assert receipt["fallback_names"] == {}
