"""smelt's CUDA kernels beside hand-written ones that nvcc compiled: `make cuda-compare`.

Instructions for each element are counted in machine code (sass.py), so no GPU is needed. Bytes are what kernels must
move once: arguments and results of the launch.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import smelt
from smelt.backend.cuda.build import build
from smelt.backend.cuda.compiler import compile_launches, sass
from smelt.backend.options import CompileOptions
from smelt.backend.stages import Stages

from ..terminal import table
from .sass import Segment, functions, segments

ARCHITECTURE = "sm_80"
MOST = 1.25  # times the instructions of the hand-written kernel
REFERENCE = Path(__file__).parent / "reference.cu"


@dataclass(frozen=True)
class Pair:
    """One of smelt's programs and the hand-written kernel that does the same."""

    name: str
    program: Callable[..., Any]
    types: tuple[str, ...]
    loads: int  # arrays of elements that a pass reads, where it stores none
    stores: int  # that it writes
    each: float = 0  # elements that a thread does in one iteration of its outermost loop, where others are inside
    per: str = "element"


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * (g * g)
    return p - 0.001 * (m / (smelt.ops.sqrt(v) + 1e-8)), m, v


def cross_entropy(x: Any, labels: Any) -> Any:
    return smelt.ops.cross_entropy(x, labels, reduction="none")


def layer_norm_gelu(x: Any, weight: Any, bias: Any) -> Any:
    return smelt.ops.gelu(smelt.ops.layer_norm(x, (1024,), weight, bias))


ROWS = "f32[4096, 1024]"
FLAT = "f32[4194304]"
SQUARE = "f32[2048, 2048]"
PAIRS = (
    Pair("pointwise", lambda x, y, z: smelt.ops.relu(x * y + z) / 2, (FLAT, FLAT, FLAT), 3, 1),
    Pair("softmax", lambda x: smelt.ops.softmax(x, 1), (ROWS,), 1, 1, 1024 / 32),
    Pair("layer_norm_gelu", layer_norm_gelu, (ROWS, "f32[1024]", "f32[1024]"), 1, 1, 1024 / 32),
    Pair("column_sum", lambda x: smelt.ops.sum(x, 0), (ROWS,), 1, 1, 256),
    Pair("transpose_add", lambda x, y: smelt.ops.t(x) + y, (SQUARE, SQUARE), 1, 1, 1024 / 128),
    Pair("cross_entropy", cross_entropy, ("f32[512, 32000]", "i64[512]"), 1, 1, 32000 / 512),
    Pair("adam", adam, (FLAT, FLAT, FLAT, FLAT), 4, 3),
    Pair("matmul", lambda x, y: x @ y, ("f32[1024, 1024]", "f32[1024, 1024]"), 1, 1, per="multiplication"),
)


def reference_code(architecture: str) -> dict[str, list[Segment]]:
    """The segments of the hand-written kernels, compiled by nvcc -O3."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "reference.cubin"
        subprocess.run(["nvcc", "-O3", "-arch", architecture, "-cubin", "-o", str(cubin), str(REFERENCE)], check=True)
        return {name: segments(code) for name, code in functions(sass(cubin.read_bytes())).items()}


def own_code(pair: Pair, architecture: str) -> list[Segment]:
    """The segments of smelt's first kernel for a program."""
    graph = smelt.jit(pair.program).trace(*map(smelt.spec, pair.types))
    program = build(graph, CompileOptions(), Stages(), lambda stage, thing: None, False)
    compiled = compile_launches(program.source, program.launches[:1], architecture)[0]
    return segments(functions(sass(compiled.cubin))[compiled.entry])


def per_element(found: Sequence[Segment], pair: Pair) -> float:
    """Instructions for each element, over all passes."""
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


def main() -> int:
    architecture = sys.argv[1] if len(sys.argv) > 1 else ARCHITECTURE
    theirs = reference_code(architecture)
    rows: list[tuple[str, ...]] = [("kernel", "per", "smelt", "nvcc", "ratio", "widest access", "")]
    fine = True
    for pair in PAIRS:
        own, other = own_code(pair, architecture), theirs[pair.name]
        mine, hand = per_element(own, pair), per_element(other, pair)
        widths = [max((item.widest for item in found), default=0) for found in (own, other)]
        good = mine <= MOST * hand and widths[0] >= widths[1]
        fine = fine and good
        numbers = (f"{mine:.2f}", f"{hand:.2f}", f"{mine / hand:.2f}", f"{widths[0]} and {widths[1]} bytes")
        rows.append((pair.name, pair.per, *numbers, "" if good else "more"))
    print(f"{architecture}: instructions in machine code, smelt beside nvcc -O3")
    print(table(rows))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
