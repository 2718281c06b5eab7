"""CUDA kernels without a GPU: their numbers in Numba's simulator, and their code as PTX and machine code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.ir.errors import CompileError

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: it comes with the extra [cuda]")

from smelt.backend.cuda.build import build  # noqa: E402
from smelt.backend.cuda.compiler import architectures, compile_launches  # noqa: E402
from smelt.backend.options import CompileOptions  # noqa: E402
from smelt.backend.stages import Stages  # noqa: E402

SIMULATED = Path(__file__).parent / "cuda_simulated.py"

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "elements": (lambda x, y: ops.relu(x * y + 1) / 2, ("f32[4096, 1000]", "f32[4096, 1000]")),
    "open sizes": (lambda x: ops.softmax(x, 1), ("f32[N, M]",)),
    "softmax": (lambda x: ops.softmax(x, 1), ("f32[512, 1024]",)),
    "long rows of bf16": (lambda x: ops.log_softmax(x, 1), ("bf16[64, 5000]",)),
    "norm and gelu": (lambda x: ops.gelu(ops.layer_norm(x, (768,))), ("f32[512, 768]",)),
    "sums": (lambda x: (x.sum(), x.sum(0), ops.var(x, 1)), ("f32[1000, 1000]",)),
    "transpose": (lambda x, y: ops.t(x) + y, ("f32[1000, 300]", "f32[300, 1000]")),
    "product": (lambda x, y: ops.gelu(x @ y), ("f32[200, 300]", "f32[300, 100]")),
    "half product": (lambda x, y: x @ y, ("f16[256, 128]", "f16[128, 256]")),
    "scan": (lambda x: (ops.cumsum(x, 1), ops.cumsum(x, 0)), ("f64[300, 5000]",)),
    "scatter": (lambda x, i, u: ops.index_add(x, 0, i, u), ("f32[1000, 64]", "i64[5000]", "f32[5000, 64]")),
    "complex": (lambda x: ops.exp(x) * x.sum(), ("c64[100, 33]",)),
}


def code(name: str, architecture: str) -> list[Any]:
    function, types = PROGRAMS[name]
    graph = smelt.jit(function).trace(*map(smelt.spec, types))
    program = build(graph, CompileOptions(verify=True), Stages(), lambda stage, thing: None, False)
    return compile_launches(program.source, program.launches, architecture)


@pytest.mark.parametrize("name", PROGRAMS)
def test_machine_code(name: str) -> None:
    for item in code(name, "sm_80"):
        assert item.cubin.startswith(b"\x7fELF") and ".target sm_80" in item.ptx
        assert item.resources.registers > 0 and not item.resources.spills, item.name


@pytest.mark.parametrize("architecture", architectures())
def test_architectures(architecture: str) -> None:
    for item in code("softmax", architecture):
        assert f".target {architecture}" in item.ptx and not item.resources.spills


def test_vector_accesses() -> None:
    (item,) = code("elements", "sm_80")
    assert item.ptx.count("ld.global.v4.f32") == 2 and "st.global.v4.f32" in item.ptx


def test_rows_are_loaded_once() -> None:
    """A thread has 32 elements of a row of 1024: eight loads of four, and as many stores."""
    (item,) = code("softmax", "sm_80")
    assert item.ptx.count("ld.global.v4.f32") == 8 and item.ptx.count("st.global.v4.f32") == 8


def test_no_gpu() -> None:
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(CompileError, match="NUMBA_ENABLE_CUDASIM=1"):
        smelt.jit(lambda x: x + 1, target="cuda")(np.ones(3, np.float32))


def test_simulator() -> None:
    """A spread of programs, in a process that has the simulator."""
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(SIMULATED)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


def test_explained_times() -> None:
    """A product takes as long as its arithmetic, what is elementwise as long as its bytes."""
    from smelt.backend.cuda.compile import explain_for_cuda

    size = 1024
    graph = smelt.jit(lambda x, y: (x @ y, x + 1)).trace(*[smelt.spec(f"f32[{size}, {size}]")] * 2)
    product, element = explain_for_cuda(graph, CompileOptions(target="cuda")).kernels
    assert product.microseconds["A100"] == pytest.approx(3 + 1e6 * 2 * size**3 / 19.5e12, rel=0.01)
    assert element.microseconds["A100"] == pytest.approx(3 + 1e6 * 8 * size**2 / 1555e9, rel=0.01)
