"""Golden cases: files of them, and the text that each stage makes of a program.

The folder of a file in tests/golden is the stage, its `// run:` line the passes:

    graph     graph passes                      -> a graph
    autodiff  `vjp` or `jvp`, then graph passes -> the graph of the gradients or tangents
    fuse      `fuse` with options               -> groups of ops, after all graph passes
    lower     (none)                            -> kernels of serial loops
    loops     loop passes                       -> kernels
    grid      loop passes                       -> kernels for a GPU
    llvm      (none)                            -> LLVM text of kernels, for vectors of 256 bits
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from smelt.backend.compile import compile_graph
from smelt.backend.options import CompileOptions
from smelt.ir.graph import Graph, Value
from smelt.ir.parser import parse_graph
from smelt.ir.printer import print_graph
from smelt.ir.verify import verify_graph
from smelt.kernels.loop.ir import Kernel
from smelt.kernels.loop.parser import parse_kernels
from smelt.kernels.loop.text import print_kernel
from smelt.passes.autodiff.jvp import jvp
from smelt.passes.autodiff.vjp import vjp, zeros
from smelt.passes.fusion.fuse import fuse
from smelt.passes.fusion.fused import print_fused
from smelt.passes.lower.lower import lower
from smelt.passes.manager import Pipeline, parse_pipeline
from smelt.passes.pipelines import GRAPH

FOLDER = Path(__file__).resolve().parent.parent / "golden"
SPLIT = "// =====\n"
EXPECT = "// ----- expect\n"
LLVM_KERNEL = re.compile(r"^define void @k\d.*?^}$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Case:
    file: Path
    position: int
    pipeline: str
    source: str
    expected: str
    errors: tuple[str, ...]

    @property
    def stage(self) -> str:
        return self.file.parent.name

    def __str__(self) -> str:
        name = re.search(r"@([\w.]+)", self.source)
        return f"{self.stage}-{self.file.stem}-{self.position}-{name[1] if name else 'text'}"


def read_cases(file: Path) -> list[Case]:
    """Read the cases of a file; one without a `// run:` line takes the line above it."""
    cases: list[Case] = []
    pipeline = ""
    for position, section in enumerate(file.read_text().split(SPLIT)):
        run = re.search(r"^// run: *(.*)$", section, re.MULTILINE)
        pipeline = run[1].strip() if run else pipeline
        source, _, expected = section.partition(EXPECT)
        errors = tuple(re.findall(r"^// error: *(.*)$", section, re.MULTILINE))
        cases.append(Case(file, position, pipeline, source, expected.strip(), errors))
    return cases


def write_expected(case: Case, text: str) -> None:
    """Write what a case is expected to give into its file."""
    sections = case.file.read_text().split(SPLIT)
    sections[case.position] = f"{case.source.rstrip()}\n{EXPECT}{text}\n"
    case.file.write_text(SPLIT.join(sections))


def found_text(case: Case) -> str:
    """Return what the stage makes of the program of a case."""
    graph = parse_graph(case.source, case.file.name)
    verify_graph(graph)
    return STAGES[case.stage](graph, case.pipeline)


def of_graph(graph: Graph, pipeline: str) -> str:
    return print_graph(parse_pipeline(pipeline).run(graph, verify_each=True), locations=False)


def of_autodiff(graph: Graph, pipeline: str) -> str:
    """Of all inexact parameters, with a parameter for each cotangent or tangent."""
    mode, _, rest = pipeline.partition(",")
    inputs = [value for value in graph.params if value.dtype.is_inexact]
    around = graph.results if mode == "vjp" else inputs
    given = [Value(value.type, name=f"d{number}") for number, value in enumerate(around)]
    shaped: Sequence[Value]
    if mode == "vjp":
        found, shaped = vjp(graph.results, given, inputs), inputs
    else:
        assert mode == "jvp", f"run: vjp or jvp, not {mode}"
        found, shaped = jvp(graph.results, inputs, given), graph.results
    results = [zeros(like.type) if value is None else value for value, like in zip(found, shaped, strict=True)]
    return of_graph(Graph.build(graph.name, [*graph.params, *given], results), rest)


def of_fuse(graph: Graph, pipeline: str) -> str:
    fused = parse_pipeline(pipeline).run(Pipeline(GRAPH).run(graph, verify_each=True))
    return print_fused(fused, locations=False)


def lowered(graph: Graph, gpu: bool) -> list[Kernel]:
    fused = fuse(Pipeline(GRAPH).run(graph, verify_each=True), whole_rows=not gpu)
    return lower(fused, gpu=gpu)


def of_loops(graph: Graph, pipeline: str, gpu: bool = False) -> str:
    passes = parse_pipeline(pipeline)
    kernels = [passes.run(kernel, verify_each=True) for kernel in lowered(graph, gpu)]
    return "\n\n".join(print_kernel(kernel, locations=False) for kernel in kernels)


def of_grid(graph: Graph, pipeline: str) -> str:
    return of_loops(graph, pipeline, gpu=True)


def of_llvm(graph: Graph, pipeline: str) -> str:
    seen: dict[str, str] = {}
    options = CompileOptions(vector_bits=256)
    compile_graph(graph, options, on_stage=lambda stage, thing: seen.__setitem__(stage, str(thing)))
    return "\n".join(LLVM_KERNEL.findall(seen["llvm"]))


STAGES: dict[str, Callable[[Graph, str], str]] = {
    "graph": of_graph,
    "autodiff": of_autodiff,
    "fuse": of_fuse,
    "lower": of_loops,
    "loops": of_loops,
    "grid": of_grid,
    "llvm": of_llvm,
}


def reprinted_graph(text: str) -> str:
    return print_graph(parse_graph(text), locations=False)


def reprinted_kernels(text: str) -> str:
    return "\n\n".join(map(print_kernel, parse_kernels(text)))


# Stages whose text parses back.
READERS: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("graph", "autodiff"), reprinted_graph),
    **dict.fromkeys(("lower", "loops", "grid"), reprinted_kernels),
}
