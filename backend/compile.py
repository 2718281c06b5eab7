"""The driver: a graph in, something that can be called out."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from ..ir.errors import CompileError
from ..ir.graph import Graph
from ..kernels.loop_ir import Kernel
from ..kernels.loop_verify import verify_kernel
from ..passes.fuse import Fused, fuse
from ..passes.lower import lower
from ..passes.manager import PASSES, Pipeline
from ..passes.memory import plan_memory
from ..passes.pipelines import GRAPH, LOOPS
from .options import CompileOptions
from .report import make_report

StageHook = Callable[[str, Any], None]


class Kernels(list[Kernel]):
    """The kernels of a graph; its text is theirs."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))


def compile_graph(graph: Graph, options: CompileOptions | None = None, on_stage: StageHook | None = None) -> Any:
    """Compile for options.target. `on_stage(name, thing)` sees the program at every stage; str(thing) is its text."""
    options = options or CompileOptions()
    if options.target != "cpu":
        raise CompileError(f"unknown target {options.target!r}; there is cpu")
    from .cpu.debug import readable_text
    from .cpu.executable import Executable
    from .cpu.target import host

    hook = on_stage or _ignore
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(stage: str) -> Any:
        start = time.perf_counter()
        yield
        seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start

    hook("graph", graph)
    with timed("graph passes"):
        simple = Pipeline(GRAPH).run(graph, verify_each=options.verify, on_stage=hook)
    with timed("fuse"):
        fused = fuse(simple, max_ops=options.max_ops)
    name_values(fused)
    hook("fuse", fused)
    bits = options.vector_bits or host().vector_bits
    with timed("loops"):
        kernels = Kernels(schedule(kernel, bits, options.verify) for kernel in lower(fused, bits))
    hook("loops", kernels)
    outside = {f"%{fused.names[value]}" for value in (*simple.params, *map(fused.stored, simple.results))}
    plan = plan_memory(kernels, outside)
    executable = Executable(fused, kernels, plan, bits, options.annotate)
    with timed("emit"):
        module = executable.emit()
    hook("llvm", readable_text(module.text))
    if options.want_asm:
        hook("asm", executable.assembly())
    with timed("llvm"):
        executable.link()
    executable.report = make_report(simple, fused, kernels, plan.size, seconds)
    return executable


def _ignore(stage: str, thing: Any) -> None:
    return None


def schedule(kernel: Kernel, bits: int, verify: bool) -> Kernel:
    """Vectors and threads."""
    for name in LOOPS:
        options = {"bits": bits} if name == "vectorize" else {}
        kernel = PASSES[name](kernel, **options)
        if verify:
            verify_kernel(kernel)
    return kernel


def name_values(fused: Fused) -> None:
    """Names of buffers: the parameters' own, and numbers for the rest."""
    taken: set[str] = set()
    for param in fused.graph.params:
        name = param.name or f"p{len(taken)}"
        while name in taken:
            name += "_"
        taken.add(name)
        fused.names[param] = name
    number = constants = 0
    for op in fused.graph.ops:
        if op.name == "constant":
            # Numbered apart: the printer numbers only what has a line.
            fused.names[op.results[0]] = f"constant{constants}"
            constants += 1
            continue
        for value in op.results:
            name = f"t{number}"
            while name in taken:
                name += "_"
            fused.names[value] = name
            number += 1
