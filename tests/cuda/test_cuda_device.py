"""What runs programs on a GPU, without one: a stand-in for cuda.core, and what kernels expect of their arguments."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import smelt
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.ir.errors import CompileError

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: it comes with the extra [cuda]")

import cuda_stand_in as stand_in  # noqa: E402
from smelt.backend.cuda.toolchain.code import Code  # noqa: E402
from smelt.backend.cuda.variant import Variant  # noqa: E402
from test_cuda import PROGRAMS  # noqa: E402

LAUNCHED = [str(Path(__file__).parent / name) for name in ("cuda_launched.py", "cuda_torch_launched.py")]
SOFTMAX = "f32[64, 1024]"


def compile_softmax(**options: Any) -> Any:
    graph = smelt.jit(lambda x: ops.softmax(x, 1)).trace(smelt.spec(SOFTMAX))
    return compile_graph(graph, CompileOptions(target="cuda", **{"architecture": "sm_80", **options}))


def test_launches() -> None:
    """In a process that has the simulator."""
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--show-capture=no",
        *LAUNCHED,
    ]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


METHODS = {
    "Device": ("set_current", "create_stream", "allocate", "create_graph_builder"),
    "Stream": ("wait", "sync", "from_handle"),
    "ObjectCode": ("from_cubin", "get_kernel"),
    "Buffer": ("close",),
    "graph.GraphBuilder": ("begin_building", "end_building", "complete", "close"),
    "graph.Graph": ("launch",),
    "utils.StridedMemoryView": ("from_buffer", "__dlpack__", "__dlpack_device__"),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_stand_in_is_like_the_library(name: str) -> None:
    """Parameters have the same names and kinds, as far as smelt calls them."""
    from cuda import core

    module, _, leaf = name.rpartition(".")
    real: Any = getattr(getattr(core, module) if module else core, leaf)
    for method in METHODS[name]:
        wanted, found = (parameters(getattr(owner, method)) for owner in (real, getattr(stand_in, leaf)))
        assert found == wanted, method


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    return [(item.name, item.kind) for item in inspect.signature(function).parameters.values() if item.name != "self"]


def test_the_library_has_what_is_read_of_it() -> None:
    from cuda import core
    from cuda.bindings import driver

    assert parameters(core.launch) == parameters(stand_in.launch)
    attributes = {core.Device: "arch device_id", core.Stream: "handle", core.Buffer: "handle", core.Kernel: ""}
    attributes |= {core.graph.GraphBuilder: "stream", core.utils.StridedMemoryView: "ptr shape strides dtype device_id"}
    for owner, names in attributes.items():
        assert all(hasattr(owner, name) for name in names.split())
    config = core.LaunchConfig(grid=5, block=128)
    assert config.grid == (5, 1, 1) and config.block == (128, 1, 1)
    shown = {
        name: getattr(driver, name).__doc__.partition("\n")[0] for name in ("cuMemsetD32Async", "cuMemcpyDtoDAsync")
    }
    assert shown["cuMemsetD32Async"] == "cuMemsetD32Async(dstDevice, unsigned int ui, size_t N, hStream)"
    assert shown["cuMemcpyDtoDAsync"] == "cuMemcpyDtoDAsync(dstDevice, srcDevice, size_t ByteCount, hStream)"


@pytest.mark.parametrize("name", ["softmax", "open sizes", "scatter", "scan"])
def test_parameters_of_machine_code(name: str) -> None:
    """What PTX declares is what a launch passes: addresses of 64 bits, sizes as wide as indices, and errors."""
    function, types = PROGRAMS[name]
    graph = smelt.jit(function).trace(*map(smelt.spec, types))
    executable = compile_graph(graph, CompileOptions(target="cuda", architecture="sm_80"))
    (code,) = executable.codes.values()
    for launch, item in zip(code.program.launches, code.compiled, strict=True):
        (declared,) = re.findall(r"\.entry \w+\((.*?)\)", item.ptx, re.DOTALL)
        widths = re.findall(r"\.param \.[bu](\d+)", declared)
        size = "32" if launch.narrow else "64"
        assert widths == ["64"] * len(launch.buffers) + [size] * len(launch.sizes) + ["64"] * launch.sites


def test_kernels_that_differ_only_in_names_are_compiled_once() -> None:
    def layers(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = ops.softmax(x @ weight, 1)
        return x

    graph = smelt.jit(layers).trace(*[smelt.spec("f32[128, 128]")] * 4)
    code = compile_graph(graph, CompileOptions(target="cuda", architecture="sm_80")).codes[Variant("sm_80")]
    assert [len(code.compiled), len(code.functions)] == [6, 2]
    read = Code.from_entry(code.header(), code.content())
    assert read.compiled == code.compiled and len(read.content()) == len(code.content())


def test_constants_tell_kernels_apart() -> None:
    from smelt.backend.cuda.toolchain.compiler import meaning

    launch = compile_softmax().artifact.launches[0]
    space: dict[str, Any] = {}
    for name, constant in {"a": "0.0", "b": "-0.0", "c": "0", "d": "0.0"}.items():
        exec(f"def {name}({name}x):\n    y{name} = {name}x + {constant}\n    return y{name}", space)
    found = {name: meaning(space[name], launch) for name in "abcd"}
    assert found["a"] == found["d"] and len({found[name] for name in "abc"}) == 3


# The disk cache.


def test_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from smelt.backend.cuda import build
    from smelt.backend.cuda.toolchain import compiler, versions

    smelt.set_cache_dir(tmp_path)
    first = compile_softmax()
    assert first.cache.state == "missed" and "it was not compiled before" in str(first.report)
    # Asking for the stages builds them, but NVIDIA's compilers have nothing to do.
    seen: dict[str, Any] = {}
    with monkeypatch.context() as without:
        without.setattr(compiler, "compile_launches", None)
        compile_graph(first.graph, CompileOptions(target="cuda"), seen.__setitem__)
        without.setattr(build, "build", None)
        second = compile_softmax()
    assert second.cache.state == "hit"
    (before,), (after,) = first.codes.values(), second.codes.values()
    assert after.compiled == before.compiled and str(seen["ptx"]) == before.compiled[0].ptx
    assert after.program.source == before.program.source and after.header() == before.header()
    assert compile_softmax(architecture="sm_90").cache.detail == "options: architecture is sm_90, the entry has sm_80"
    monkeypatch.setattr(versions, "versions", lambda: {"nvidia-nvvm": "99"})
    assert compile_softmax().cache.detail.startswith("cuda: nvidia-nvvm is 99, the entry has ")


HIT = """
import sys
from unittest.mock import MagicMock, patch
import numpy as np
import smelt
from cuda import core
from cuda.bindings import driver

device = MagicMock(arch="80", device_id=0)
device.allocate().handle = 4096
code = MagicMock(from_ptx=core.ObjectCode.from_ptx)
replaced = dict(Device=lambda *given: device, ObjectCode=code, launch=MagicMock())
copies = dict.fromkeys(("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"), lambda *given: (0,))
with patch.multiple(core, **replaced), patch.multiple(driver, **copies):
    function = smelt.jit(lambda x: smelt.ops.softmax(x, 1), target="cuda")
    assert function(np.zeros((64, 1024), np.float32)).shape == (64, 1024)
assert core.launch is not replaced["launch"] and replaced["launch"].call_count == 1
print(function.report().cache.state)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"numba", "numba_cuda", "llvmlite"}))
"""


def test_what_is_found_needs_no_compiler(tmp_path: Path) -> None:
    """A call in a process of its own, with a driver: Numba is not loaded where its code was found on disk."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"}
    environment["SMELT_CACHE_DIR"] = str(tmp_path)
    shown = [
        subprocess.run([sys.executable, "-c", HIT], env=environment, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    ]
    assert [item.returncode for item in shown] == [0, 0], "".join(item.stderr[-2000:] for item in shown)
    assert shown[0].stdout.split("\n")[:2] == ["missed", "['llvmlite', 'numba', 'numba_cuda']"]
    assert shown[1].stdout.split("\n")[:2] == ["hit", "[]"]


def test_damaged_code_is_made_anew(tmp_path: Path) -> None:
    smelt.set_cache_dir(tmp_path)
    compile_softmax()
    (path,) = tmp_path.rglob("*.smelt")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    again = compile_softmax()
    assert again.cache.state == "missed" and "checksum" in again.cache.notes[0]
    hit = compile_softmax()
    assert hit.cache.state == "hit" and hit.codes[Variant("sm_80")].compiled == again.codes[Variant("sm_80")].compiled


@pytest.mark.parametrize("name", ["open sizes", "scatter", "complex"])
def test_all_that_a_call_needs_is_in_the_entry(name: str) -> None:
    function, types = PROGRAMS[name]
    graph = smelt.jit(function).trace(*map(smelt.spec, types))
    (code,) = compile_graph(graph, CompileOptions(target="cuda", architecture="sm_80")).codes.values()
    read = Code.from_entry(code.header(), code.content())
    assert read.header() == code.header() and read.compiled == code.compiled


def test_the_command(tmp_path: Path) -> None:
    def smelt_command(*words: str) -> str:
        ran = subprocess.run([sys.executable, "-m", "smelt.tools.main", *words], capture_output=True, text=True)
        return ran.stdout + ran.stderr

    program = ("examples/softmax.py:softmax", "--args", SOFTMAX, "--target", "cuda", "--arch")
    place = ("--dir", str(tmp_path))
    assert "hit: softmax(x: f32[64, 1024]) for sm_90" in smelt_command("bake", *program, "sm_90", "--verify", *place)
    listed = smelt_command("cache", *place)
    assert "for sm_90" in listed and "yes" in listed
    assert "architecture is sm_80, the entry has sm_90" in smelt_command("cache", "why", *program, "sm_80", *place)
    assert "1 entries, all intact" in smelt_command("cache", "verify", *place)
    assert "1 entries removed" in smelt_command("cache", "clear", *place)


# Errors.


def test_architectures_that_are_unknown() -> None:
    with pytest.raises(CompileError, match="unknown architecture 'sm_81' .did you mean 'sm_8"):
        compile_softmax(architecture="sm_81")
    assert ".target sm_89" in compile_softmax(architecture="sm_89").codes[Variant("sm_89")].compiled[0].ptx


def test_code_without_a_gpu() -> None:
    """Code for a named architecture is compiled; calling it needs the GPU."""
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    import numpy as np

    executable = compile_softmax()
    with pytest.raises(CompileError, match="no NVIDIA GPU was found"):
        executable([np.ones((64, 1024), np.float32)])
