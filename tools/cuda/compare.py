"""smelt's CUDA kernels beside hand-written ones that nvcc compiled: `make cuda-compare`.

No GPU is needed: instructions per element are counted in machine code (sass.py), bytes moved per element by walking its
PTX (traffic.py). smelt's kernels may not move more bytes than the hand-written ones.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import smelt
from smelt.backend.cuda.build import build
from smelt.backend.cuda.codegen.launch import blocks
from smelt.backend.cuda.toolchain.compiler import architectures, compile_launches, sass, supported
from smelt.backend.options import CompileOptions
from smelt.backend.report.timings import Stages

from ..terminal import table
from .sass import Segment, functions, segments
from .traffic import Function, Traffic, parse, traffic

MOST = 1.25  # upper limit of smelt's instructions, as a multiple of the hand-written kernel's. Chosen
REFERENCE = Path(__file__).parent / "reference.cu"


@dataclass(frozen=True)
class Pair:
    """A smelt program and the equivalent hand-written kernel."""

    name: str
    program: Callable[..., Any]
    types: tuple[str, ...]
    loads: int  # arrays that a segment without stores reads
    stores: int  # arrays that a segment writes
    elements: int  # of the whole program
    sizes: tuple[int, ...] = ()  # size arguments of the hand-written kernel
    each: float = 0  # elements per thread and iteration of the outermost loop, if it has inner loops
    per: str = "element"


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * (g * g)
    return p - 0.001 * (m / (smelt.ops.sqrt(v) + 1e-8)), m, v


def cross_entropy(x: Any, labels: Any) -> Any:
    return smelt.ops.cross_entropy(x, labels, reduction="none")


def layer_norm_gelu(x: Any, weight: Any, bias: Any) -> Any:
    return smelt.ops.gelu(smelt.ops.layer_norm(x, (1024,), weight, bias))


@dataclass(frozen=True)
class Measured:
    """The machine code and the PTX of one kernel."""

    segments: list[Segment]
    function: Function

    @property
    def widest(self) -> int:
        return max((item.widest for item in self.segments), default=0)


MANY = 4 << 20
ROWS = "f32[4096, 1024]"
FLAT = "f32[4194304]"
SQUARE = "f32[2048, 2048]"
PAIRS = (
    Pair("pointwise", lambda x, y, z: smelt.ops.relu(x * y + z) / 2, (FLAT,) * 3, 3, 1, MANY, (MANY // 4,)),
    Pair("softmax", lambda x: smelt.ops.softmax(x, 1), (ROWS,), 1, 1, MANY, (4096,), 1024 / 32),
    Pair("layer_norm_gelu", layer_norm_gelu, (ROWS, "f32[1024]", "f32[1024]"), 1, 1, MANY, (4096,), 1024 / 32),
    Pair("column_sum", lambda x: smelt.ops.sum(x, 0), (ROWS,), 1, 1, MANY, (16384,), 256),
    Pair("transpose_add", lambda x, y: smelt.ops.t(x) + y, (SQUARE, SQUARE), 1, 1, MANY, (), 1024 / 128),
    Pair("cross_entropy", cross_entropy, ("f32[512, 32000]", "i64[512]"), 1, 1, 512 * 32000, (), 32000 / 512),
    Pair("adam", adam, (FLAT,) * 4, 4, 3, MANY, (MANY // 4,)),
    Pair("matmul", lambda x, y: x @ y, ("f32[1024, 1024]",) * 2, 1, 1, 1 << 30, per="multiplication"),
)


def reference_code(architecture: str) -> dict[str, Measured]:
    """Compile the hand-written kernels with nvcc -O3."""
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = Path(folder) / "reference.ptx", Path(folder) / "reference.cubin"
        for source, how, target in ((REFERENCE, "-ptx", ptx), (ptx, "-cubin", cubin)):
            command = ["nvcc", "-O3", "-arch", architecture, how, "-o", str(target), str(source)]
            subprocess.run(command, check=True)
        found = parse(ptx.read_text())
        code = functions(sass(cubin.read_bytes()))
        return {name: Measured(segments(code[name]), function) for name, function in found.items()}


def own_code(pair: Pair, architecture: str) -> tuple[Measured, int]:
    """Return smelt's first kernel of a program, and the number of blocks of its grid."""
    graph = smelt.jit(pair.program).trace(*map(smelt.spec, pair.types))
    program = build(graph, CompileOptions(), Stages(), None, False)
    launch = program.launches[0]
    (compiled,) = compile_launches(program.source, [launch], architecture)
    code = functions(sass(compiled.cubin))[compiled.entry]
    assert isinstance(launch.count, int)
    return Measured(segments(code), parse(compiled.ptx)[compiled.entry]), blocks(launch, launch.count)


def per_element(found: Sequence[Segment], pair: Pair) -> float:
    """Return the instructions per element, summed over all segments."""
    if pair.per == "multiplication":
        inner = max(found, key=lambda item: item.multiplications)
        return inner.instructions / max(inner.multiplications, 1)
    total = 0.0
    for item in found:
        elements = item.stores / 4 / pair.stores if item.stores else item.loads / 4 / pair.loads
        if item.between and pair.each:
            elements = pair.each
        total += item.instructions / elements if elements else 0.0
    return total


def moved(function: Function, pair: Pair, sizes: Sequence[int], grid: int) -> tuple[float, float]:
    """Return the bytes of global and of shared memory per element, sampled from the first, middle and last block."""
    sampled = sorted({0, grid // 2, grid - 1})
    found: Traffic = traffic(function, sizes, grid, sampled)
    elements = pair.elements * len(sampled) / grid
    return found.moved / elements, found.shared / elements


def compared(pair: Pair, own: Measured, other: Measured, grid: int) -> tuple[tuple[str, ...], bool]:
    """Return a row of the table, and whether smelt's kernel passes. Both kernels get the same number of blocks."""
    mine, hand = per_element(own.segments, pair), per_element(other.segments, pair)
    bytes_own, shared_own = moved(own.function, pair, (), grid)
    bytes_other, shared_other = moved(other.function, pair, pair.sizes, grid)
    faults = [
        text
        for text, fault in (
            ("more instructions", mine > MOST * hand),
            ("more bytes", bytes_own > bytes_other),
            ("narrower accesses", own.widest < other.widest),
        )
        if fault
    ]
    cells = [f"{mine:.2f}", f"{hand:.2f}", f"{mine / hand:.2f}", f"{bytes_own:.3f}", f"{bytes_other:.3f}"]
    cells += [f"{shared_own:.2f} and {shared_other:.2f}", f"{own.widest} and {other.widest}"]
    return (pair.name, pair.per, *cells, ", ".join(faults)), not faults


HEAD = ("kernel", "per", "smelt", "nvcc", "ratio", "bytes: smelt", "nvcc", "in shared memory", "widest access", "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="cuda-compare", description=__doc__)
    parser.add_argument(
        "--arch", default=",".join(architectures()), help="architectures, separated by commas (default: all)"
    )
    wanted = parser.parse_args(arguments).arch.split(",")
    if unknown := [item for item in wanted if item not in supported()]:
        parser.error(f"--arch {','.join(unknown)}: the compiler knows {', '.join(supported())}")
    if shutil.which("nvcc") is None:
        parser.error("the hand-written kernels need nvcc, which is not on PATH")
    fine = True
    for architecture in wanted:
        theirs = reference_code(architecture)
        rows: list[tuple[str, ...]] = [HEAD]
        for pair in PAIRS:
            own, grid = own_code(pair, architecture)
            row, good = compared(pair, own, theirs[pair.name], grid)
            rows.append(row)
            fine = fine and good
        print(f"{architecture}: instructions in machine code, and bytes moved, smelt beside nvcc -O3")
        print(table(rows), flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
