"""CUDA kernels without a GPU: their numbers in Numba's simulator, and their code as PTX and machine code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.backend.compile import compile_graph
from smelt.ir.errors import CompileError

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: it comes with the extra [cuda]")

from smelt.backend.cuda.build import Program, build  # noqa: E402
from smelt.backend.cuda.codegen.indices import reaches  # noqa: E402
from smelt.backend.cuda.codegen.launch import fits  # noqa: E402
from smelt.backend.cuda.codegen.module import emit_module  # noqa: E402
from smelt.backend.cuda.toolchain.compiler import architectures, compile_launches  # noqa: E402
from smelt.backend.options import CompileOptions  # noqa: E402
from smelt.backend.report.timings import Stages  # noqa: E402
from smelt.kernels.loop.parser import parse_kernels  # noqa: E402
from smelt.passes.pipelines import GRAPH  # noqa: E402

SIMULATED = Path(__file__).parent / "cuda_simulated.py"

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "elements": (lambda x, y: ops.relu(x * y + 1) / 2, ("f32[4096, 1000]", "f32[4096, 1000]")),
    "open sizes": (lambda x: ops.softmax(x, 1), ("f32[N, M]",)),
    "softmax": (lambda x: ops.softmax(x, 1), ("f32[512, 1024]",)),
    "long rows of bf16": (lambda x: ops.log_softmax(x, 1), ("bf16[64, 5000]",)),
    "norm and gelu": (lambda x: ops.gelu(ops.layer_norm(x, (768,))), ("f32[512, 768]",)),
    "sums": (lambda x: (x.sum(), x.sum(0), ops.var(x, 1)), ("f32[1000, 1000]",)),
    "sums in f32": (lambda x: (x.sum(), x.sum(0), ops.layer_norm(x, (1000,))), ("f32[1000, 1000]",)),
    "a row for each thread": (
        lambda x: smelt.value_and_grad(lambda x: ops.sum(ops.softmax(x, 0) * x))(x),
        ("f32[24, 1000, 1]",),
    ),
    "transpose": (lambda x, y: ops.t(x) + y, ("f32[1000, 300]", "f32[300, 1000]")),
    "product": (lambda x, y: ops.gelu(x @ y), ("f32[200, 300]", "f32[300, 100]")),
    "product in f64": (lambda x, y: x @ y, ("f64[1024, 128]", "f64[128, 1024]")),
    "large": (lambda x, y: x * 2 + y, ("f32[3000000, 1001]", "f32[3000000, 1]")),
    "several results": (lambda x, y, z: (x + 1, x / y, x / y - ops.sqrt(z)), ("f32[4096, 1024]",) * 3),
    "half product": (lambda x, y: x @ y, ("f16[256, 128]", "f16[128, 256]")),
    "scan": (lambda x: (ops.cumsum(x, 1), ops.cumsum(x, 0)), ("f64[300, 5000]",)),
    "scatter": (lambda x, i, u: ops.index_add(x, 0, i, u), ("f32[1000, 64]", "i64[5000]", "f32[5000, 64]")),
    "complex": (lambda x: ops.exp(x) * x.sum(), ("c64[100, 33]",)),
}
WIDE = ("complex", "sums")  # programs of f32 that compute in f64: sines of complex numbers, sums of squares of var


def built(function: Callable[..., Any], types: Sequence[str]) -> Program:
    graph = smelt.jit(function).trace(*map(smelt.spec, types))
    return build(graph, CompileOptions(verify=True), Stages(), None, False)


def code(name: str, architecture: str) -> list[Any]:
    program = built(*PROGRAMS[name])
    return compile_launches(program.source, program.launches, architecture)


@pytest.mark.parametrize("name", PROGRAMS)
def test_machine_code(name: str) -> None:
    for item in code(name, "sm_80"):
        assert item.cubin.startswith(b"\x7fELF") and ".target sm_80" in item.ptx
        assert item.resources.registers > 0 and not item.resources.spills, item.name
        if "f64" not in "".join(PROGRAMS[name][1]) and name not in WIDE:
            assert ".f64" not in item.ptx  # Numba makes floats of signed and unsigned integers that meet


@pytest.mark.parametrize("architecture", architectures())
def test_architectures(architecture: str) -> None:
    for item in code("softmax", architecture):
        assert f".target {architecture}" in item.ptx and not item.resources.spills


def test_vector_accesses() -> None:
    (item,) = code("elements", "sm_80")
    assert item.ptx.count("ld.global.v4.f32") == 2 and "st.global.v4.f32" in item.ptx


def test_loads_before_stores() -> None:
    """Threads wait for memory once."""
    (item,) = code("several results", "sm_80")
    lines = re.findall(r"(ld\.global\S*|st\.global\S*|div\.\S*)", item.ptx)
    assert lines[:3] == ["ld.global.v4.f32"] * 3
    assert not any(line.startswith("ld") for line in lines[3:])


@pytest.mark.parametrize("architecture", [item for item in ("sm_75", "sm_100") if item in architectures()])
@pytest.mark.parametrize("kind", ["f16", "bf16", "i8", "bool"])
def test_vectors_of_small_elements(kind: str, architecture: str) -> None:
    """Eight of them are one access, of 16 or 8 bytes."""
    program = built(lambda x, y: ops.maximum(x, y), [f"{kind}[4096, 1024]"] * 2)
    (item,) = compile_launches(program.source, program.launches, architecture)
    widths = re.findall(r"(?:ld|st)\.global(?:\.nc)?\.v(\d)\.[bu]32", item.ptx)
    assert widths == [str(8 * smelt.dtype(kind).bytes // 4)] * 3
    assert len(re.findall(r"(?:ld|st)\.global", item.ptx)) == 3


def test_rows_are_loaded_once() -> None:
    """A thread has 32 elements of a row of 1024: eight loads of four, and as many stores."""
    (item,) = code("softmax", "sm_80")
    assert item.ptx.count("ld.global.nc.v4.f32") == 8 and item.ptx.count("st.global.v4.f32") == 8


@pytest.mark.parametrize("architecture", [item for item in ("sm_90", "sm_100", "sm_120") if item in architectures()])
def test_vectors_of_16_bytes_at_most(architecture: str) -> None:
    """Buffers are aligned to 16 bytes. Newer GPUs would move 32 at a time, if the code said that they may."""
    (item,) = code("product in f64", architecture)
    assert ".v2." in item.ptx and not re.search(r"\.v4\.[bfsu]64|\.v8\.[bfsu]32", item.ptx)


@pytest.mark.parametrize(
    ("function", "types", "narrow"),
    [
        (lambda x: x + 1, ["i8[2000000000]"], True),
        # Threads step over the end of a grid by as many elements as the grid has threads.
        (lambda x: x + 1, ["i8[2147483000]"], False),
        (lambda x: x + 1, ["f32[3000000000]"], False),
        (lambda x: ops.sum(x, 1), ["f32[3, 1000000000]"], False),
        # Memory is small here, and the loop is long.
        (lambda x: ops.amax(ops.expand(x, (1 << 20, 1 << 20)) * 2), ["f32[1, 1048576]"], False),
        (lambda x, i: ops.index(x, [i]), ["f32[70000, 40000]", "i64[5]"], False),
        (lambda x, y: x @ y, ["f32[40000, 60000]", "f32[60000, 64]"], False),
        (lambda x, y: x @ y, ["f32[4000, 6000]", "f32[6000, 64]"], True),
        (lambda x: x + 1, ["f32[N, 1024]"], False),
    ],
)
def test_bits_of_indices(function: Callable[..., Any], types: Sequence[str], narrow: bool) -> None:
    assert built(function, types).launches[0].narrow == narrow


def test_ranges_are_those_of_the_loops() -> None:
    """What was known about another variable of the same name, here %i of eight rows, counts no more."""
    for part in (8, 3_000_000):
        text = f"""
          kernel @f(%y: out f32[{part}], %x: f32[3000000, 1000]) {{
            warp<128> %i in 0..{part} {{
              thread %j in 0..1000 reduce %1: f32 = add {{
                %0 = load %x[%i, %j]
                yield %0
              }}
              store %y[%i], %1
            }}
          }}
        """
        (kernel,) = parse_kernels(text)
        found = reaches(kernel.body, [])
        assert found is not None and max(found) >= part * 1000
    assert not built(lambda x: ops.sum(x, 1), ["f32[3000000, 1000]"]).launches[0].narrow


def test_symbolic_sizes_that_are_small() -> None:
    graph = smelt.jit(lambda x, y: ops.softmax(x @ y, 1)).trace(smelt.spec("f32[N, 1024]"), smelt.spec("f32[1024, M]"))
    seen: dict[str, Any] = {}
    build(graph, CompileOptions(), Stages(), seen.__setitem__, False)
    module = emit_module(seen["loops"], small=True)
    assert all(item.narrow for item in module.launches)
    assert fits(module.reaches, {"N": 4096, "M": 50000})
    assert not fits(module.reaches, {"N": 1 << 21, "M": 7})
    assert not fits(module.reaches, {"N": 1 << 16, "M": 1 << 15})
    compile_launches(module.source, module.launches, "sm_80")


def test_a_depth_of_64_bits() -> None:
    program = built(lambda x, y: x @ y, ["f16[3, 3000000000]", "f16[3000000000, 3]"])
    assert "start = int64(0)" in program.source and "start = int32(0)" not in program.source


def test_large_arrays_are_counted_with_64_bits() -> None:
    (item,) = code("large", "sm_80")
    assert re.search(r"setp\.\w+\.s64.*3003000000;", item.ptx) and re.search(r"(div|mul\.hi)\.u64", item.ptx)


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x, y: ops.softmax(x, 1) * ops.softmax(y * 2, 1), ["f64[64, 4000]"] * 2),
        (lambda x, y, z: ops.softmax(x, 1) * ops.softmax(y, 1) * ops.softmax(z, 1), ["f64[64, 1000]"] * 3),
        (lambda x: ops.exp(x) / ops.sum(ops.exp(x), 1, keepdim=True), ["c128[64, 4000]"]),
        (lambda *x: sum(map(ops.t, x[:13])) * sum(x[13:]), ["f32[200, 300]"] * 13 + ["f32[300, 200]"] * 13),
        (lambda *x: sum(map(ops.t, x[:4])) * sum(x[4:]), ["c128[200, 300]"] * 4 + ["c128[300, 200]"] * 4),
        (lambda x, y: ops.exp(x @ y), ["f64[1024, 1024]"] * 2),
    ],
)
def test_shared_memory(function: Callable[..., Any], types: Sequence[str]) -> None:
    """What does not fit into a block's shared memory stays where it is, or is computed again."""
    program = built(function, types)
    for item in compile_launches(program.source, program.launches, "sm_80"):
        assert item.resources.shared <= 48 << 10


def test_values_without_elements() -> None:
    """Loops of no iterations, which store and reduce one element at a time, are not shared out."""
    built(
        lambda x, w: smelt.value_and_grad(lambda x: ops.sum(ops.group_norm(x, 5) * w))(x),
        ["f64[0, 0, 0]"] * 2,
    )


NAMES = [
    "min",
    "max",
    "exp",
    "expf",
    "load4",
    "fetch1",
    "sum32",
    "int32",
    "uint32",
    "cuda",
    "lane",
    "errors",
    "inf",
    "complex",
    "maximum",
    "v0",
    "v0_1",
    "v1_re",
    "e1",
    "s1",
    "x_0",
    "i",
    "g0",
    "warp_add_f32",
    "combine_add_f32",
    "lambda_",
    "while_",
]


def test_names_of_parameters() -> None:
    """A parameter may be called like anything that generated source has."""
    space: dict[str, Any] = {"softmax": lambda x: ops.softmax(x, 1)}
    exec(f"def function({', '.join(NAMES)}):\n    return softmax({' * '.join(NAMES)} + v0)", space)
    program = built(space["function"], ["f32[64, 96]"] * len(NAMES))
    compile_launches(program.source, program.launches, "sm_80")


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
    from smelt.backend.compile import explain_graph

    size = 1024
    graph = smelt.jit(lambda x, y: (x @ y, x + 1)).trace(*[smelt.spec(f"f32[{size}, {size}]")] * 2)
    product, element = explain_graph(graph, CompileOptions(target="cuda")).kernels
    assert product.microseconds["A100"] == pytest.approx(3 + 1e6 * 2 * size**3 / 19.5e12, rel=0.01)
    assert element.microseconds["A100"] == pytest.approx(3 + 1e6 * 8 * size**2 / 1555e9, rel=0.01)


def test_explained_resources() -> None:
    """What decides how many threads of a multiprocessor are at work, by NVIDIA's rules: blocks of 128 threads with 80
    registers take 10240 of 65536, so there are 6."""
    from smelt.backend.compile import explain_graph
    from smelt.backend.cuda.toolchain.code import Resources
    from smelt.backend.cuda.toolchain.gpus import ARCHITECTURES, occupancy

    assert occupancy(Resources(80, 0, 0, 0), 128, "sm_89") == 6 * 128 / 1536
    assert occupancy(Resources(32, 40 << 10, 0, 0), 256, "sm_80") == 4 * 256 / 2048  # shared memory for four
    assert set(architectures()) <= set(ARCHITECTURES)
    graph = smelt.jit(lambda x: ops.softmax(x, 1)).trace(smelt.spec("f32[4096, 1024]"))
    shown = str(explain_graph(graph, CompileOptions(target="cuda", architecture="sm_89")))
    assert "moves 33.6 MB" in shown and "A100 24.6" in shown
    assert re.search(r"blocks of 128 threads, \d+ registers, 0 B shared, no spills, occupancy \d+%", shown)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_graph_is_that_of_the_cpu(name: str) -> None:
    """Both targets have the same program up to fusion, text by text; what differs is how it is scheduled."""
    function, types = PROGRAMS[name]
    graph = smelt.jit(function).trace(*map(smelt.spec, types))
    seen: dict[str, dict[str, str]] = {"cpu": {}, "cuda": {}}

    def hook(target: str) -> Callable[[str, Any], None]:
        return lambda stage, thing: seen[target].setdefault(stage, str(thing)) and None

    build(graph, CompileOptions(), Stages(), hook("cuda"), False)
    compile_graph(graph, CompileOptions(), hook("cpu"))
    stages = ["graph", *GRAPH]
    for stage in stages:
        assert seen["cpu"][stage] == seen["cuda"][stage], stage
    assert seen["cpu"]["loops"] != seen["cuda"]["loops"]


def test_results_of_a_run_that_goes_on(tmp_path: Path) -> None:
    """What make parity-cuda keeps: another run knows what passed, unless the sources are others."""
    from parity_cuda.__main__ import Kept

    path = tmp_path / "results.json"
    tasks = [("forward", "exp"), ("forward", "log"), ("vjp", "exp")]
    first = Kept(path)
    first.add(tasks[0], [{"passed": True, "why": "", "seconds": 3.0}])
    first.add(tasks[1], [{"passed": False, "why": "result 0 differs", "seconds": 1.0}])
    again = Kept(path)
    assert [again.has_passed(task) for task in tasks] == [True, False, False]
    shown = again.table(tasks)
    assert "forward/log: result 0 differs" in shown
    assert re.search(r"forward +1 +1 +0 +4 +exp 3, log 1", shown) and re.search(r"vjp +0 +0 +1 +0", shown)
    path.write_text(path.read_text().replace(str(first.sources), "other"))
    assert not Kept(path).has_passed(tasks[0])
