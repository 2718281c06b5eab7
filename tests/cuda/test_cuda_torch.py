"""torch.compile for tensors on a GPU, up to machine code: PyTorch's fake tensors say where they are without one."""

from __future__ import annotations

from typing import Any

import pytest
import smelt.torch
import torch
from smelt.ir.errors import CompileError
from smelt.torch import gpu
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: it comes with the extra [cuda]")

from smelt.backend.cuda.variant import Variant  # noqa: E402
from smelt.torch.backend import Options, compile_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:smelt has no code for")


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "architecture", lambda device: "sm_80")
    smelt.torch.reset_stats()


def compiled(function: Any, *shapes: tuple[int, ...], fallback: str = "allow") -> Any:
    with FakeTensorMode():
        tensors = [torch.empty(shape, device="cuda") for shape in shapes]
    return compile_program("inference", Options(fallback=fallback), make_fx(function)(*tensors))


def test_machine_code() -> None:
    def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        return nn.functional.gelu(nn.functional.linear(x, w, b)).softmax(1).t(), x.sum(0)

    program = compiled(layer, (64, 32), (128, 32), (128,), fallback="error")
    (step,) = program.natives
    (version,) = step.versions
    for item in version.executable.codes[Variant("sm_80")].compiled:
        assert item.cubin.startswith(b"\x7fELF") and item.resources.registers
    assert step.device == torch.device("cuda", 0)
    # Eager's strides: the transpose of what is dense.
    assert [tuple(item.layout.strides) for item in step.outputs] == [(1, 128), (1,)]
    assert "native calls on cuda:0" in smelt.torch.report()


def test_two_devices() -> None:
    """Each has steps of its own; what moves tensors between them is PyTorch's, and the receipt says why."""

    def function(x: torch.Tensor) -> Any:
        y = x.exp() + 1
        return y.cpu().exp() * 2, y * 3

    program = compiled(function, (4, 8))
    assert [str(step.device) for step in program.natives] == ["cuda:0", "cpu"]
    shown = smelt.torch.report()
    assert "on cuda:0 and cpu" in shown
    assert "PyTorch runs aten._to_copy (1 times): its tensors are on cpu and cuda:0" in shown


def test_fallbacks() -> None:
    program = compiled(lambda x: torch.linalg.qr(x.exp()).R * 2, (4, 8))
    assert [str(step.device) for step in program.natives] == ["cuda:0"] * 2
    with pytest.raises(CompileError, match="aten.linalg_qr: smelt has no such op"):
        compiled(lambda x: torch.linalg.qr(x.exp()).R * 2, (4, 8), fallback="error")


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch runs everything that is on the GPU."""
    monkeypatch.setattr(gpu, "refusal", lambda: "numba-cuda is missing")
    program = compiled(lambda x: x.exp().cpu() + 1, (4,))
    assert [str(step.device) for step in program.natives] == ["cpu"]
    assert "PyTorch runs aten.exp (1 times): numba-cuda is missing" in smelt.torch.report()
