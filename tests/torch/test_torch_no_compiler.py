"""torch.compile(backend="smelt") where no C or C++ compiler can be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cl", "ld", "as", "nvcc", "icx", "icpx")

# Inference, a training step, a compiled optimizer, open sizes, f64 and bf16, a fallback, frozen parameters, an export.
PROGRAM = """
import torch, smelt, smelt.torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
compiled = torch.compile(model, backend="smelt", dynamic=True)
step = torch.compile(torch.optim.AdamW(model.parameters(), foreach=True).step, backend="smelt")
for rows in (3, 5):
    x = torch.randn(rows, 8)
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).square().sum().backward()
    step()
for dtype in (torch.float64, torch.bfloat16):
    x = torch.randn(6, 8).to(dtype)
    f = lambda x: torch.softmax(x @ x.t(), -1).sort().values
    torch.testing.assert_close(torch.compile(f, backend="smelt")(x), f(x))
with torch.no_grad():
    frozen = torch.compile(model, backend="smelt", options={"freeze": True})
    x = torch.randn(7, 8)
    torch.testing.assert_close(frozen(x), model(x))
    torch.testing.assert_close(smelt.from_exported(torch.export.export(model, (x,)))(x), model(x))
assert smelt.torch.stats()["native_ops"] > 30, smelt.torch.stats()
print("done")
"""


@pytest.mark.parametrize("path", ("empty", "poisoned"))
def test_no_compiler(path: str, tmp_path: Path):
    """An empty PATH; and one on which every compiler says that it was called, and fails."""
    called = tmp_path / "called"
    tools = tmp_path / "bin"
    tools.mkdir()
    if path == "poisoned":
        for name in COMPILERS:
            tool = tools / name
            tool.write_text(f"#!/bin/sh\necho {name} >> {called}\nexit 1\n")
            tool.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "LD", "AS")}
    environment = kept | {"PATH": str(tools), "SMELT_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.endswith("done\n")
    assert not called.exists(), called.read_text()
