"""The driver: a graph in, something that can be called out; from the cache if it was compiled before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..ir.errors import CompileError
from ..ir.graph import Graph
from ..ir.printer import Printer
from ..ir.process import process
from .artifact import Artifact
from .options import CompileOptions
from .process.forks import no_forks
from .process.stack_chunk import with_room
from .report.timings import Stages
from .store.cache import Key, Lookup, current
from .store.files import Lock

if TYPE_CHECKING:
    from .cpu.llvm.engine import Started
    from .stages import StageHook

TARGETS = ("cpu", "cuda")


# Programs that are being compiled, by the names of their keys: equal ones wait for the same code.
_started: dict[str, tuple[Artifact, Started]] = process.keep("programs that are being compiled", {})


def compile_graph(graph: Graph, options: CompileOptions | None = None, on_stage: StageHook | None = None) -> Any:
    """Compile for options.target. `on_stage(name, thing)` sees the program at every stage; str(thing) is its text."""
    return start_graph(graph, options, on_stage)()


def start_graph(
    graph: Graph, options: CompileOptions | None = None, on_stage: StageHook | None = None
) -> Callable[[], Any]:
    """Compile, and leave to threads what they can do while others of many graphs go through their passes. Call what is
    returned for what can be called."""
    options = options or CompileOptions()
    check_target(options)
    if on_stage is None:
        graph = with_own_ops(graph)
    if options.target == "cuda":
        from .cuda.compile import compile_for_cuda

        executable = compile_for_cuda(graph, options, on_stage)
        return lambda: executable
    with no_forks():
        return with_room(lambda: _start_for_cpu(graph, options, on_stage))


def _start_for_cpu(graph: Graph, options: CompileOptions, on_stage: StageHook | None) -> Callable[[], Any]:
    from .cpu.call.executable import Executable

    stages = Stages()
    key: Key | None = None
    artifact: Artifact | None = None
    code: Started | None = None
    lock: Lock | None = None
    lookup = Lookup("off")
    if on_stage is not None or options.verify or options.annotate:
        # Who wants to see or to check the stages gets them.
        lookup = Lookup("off", "the stages of compilation were asked for")
    elif current().is_on:
        with stages.timed("key"):
            key, reason = graph_key(graph, options)
        lookup = Lookup("off", reason)
    if key is not None:
        with stages.timed("look up"):
            found = _started.get(key.name)
            if found is not None:
                (artifact, code), lookup = found, Lookup("hit", f"{key.name} that was being compiled")
            else:
                # Who has started something that others may wait for waits for nobody.
                artifact, lookup, lock = current().find_or_lock(key, Artifact.from_header, not _started)
    if artifact is None:
        from .cpu.build import build

        try:
            artifact, code = build(graph, options, stages, on_stage)
        except BaseException:
            release(lock)
            raise
        if key is not None:
            _started[key.name] = artifact, code

    def finish() -> Any:
        with no_forks():
            if code is not None:
                try:
                    try:
                        with stages.timed("llvm"):
                            artifact.code = code.image()
                    finally:
                        is_first = key is not None and _started.pop(key.name, None) is not None
                    if key is not None and is_first:
                        with stages.timed("store"):
                            current().store(key, artifact.header(), artifact.code)
                finally:
                    release(lock)
            return Executable(graph, artifact, lookup, stages)

    return finish


def release(lock: Lock | None) -> None:
    if lock is not None:
        lock.release()


def with_own_ops(graph: Graph) -> Graph:
    """The graph as keys take it: users' composites replaced by their bodies. A name of theirs may mean something else
    in the next process, or in another project."""
    if all(op.defn.is_own for op in graph.ops):
        return graph
    with no_forks():
        from ..passes.graph.decompose import expand_foreign

        return expand_foreign(graph)


class _Enough(Exception):
    """The last stage that somebody wants to see."""


def compile_stages(graph: Graph, wanted: Sequence[str], options: CompileOptions) -> dict[str, Any]:
    """What the compiler makes of a graph at each stage up to the last one wanted, by the stage's name."""
    seen: dict[str, Any] = {}

    def keep(stage: str, thing: Any) -> None:
        seen[stage] = thing
        if stage == wanted[-1]:
            raise _Enough

    with suppress(_Enough):
        compile_graph(graph, replace(options, annotate=True), on_stage=keep)
    return seen


def check_target(options: CompileOptions) -> None:
    if options.target not in TARGETS:
        raise CompileError(f"unknown target {options.target!r}; there are {' and '.join(TARGETS)}")


def graph_key(graph: Graph, options: CompileOptions) -> tuple[Key | None, str]:
    """What a graph's code is kept under, or why it is not."""
    if options.target == "cuda":
        from .cuda.compile import check_installed, wanted_architecture
        from .cuda.toolchain.cached import cuda_key

        check_installed()
        return cuda_key(graph, options, wanted_architecture(options))
    from .cpu.image.cached import native_key
    from .cpu.runtime.records import DATA_OFFSET
    from .cpu.target import host

    printer = Printer(graph)
    text = printer.text(locations=False)
    if printer.unsaid:
        return None, printer.unsaid
    chosen = {
        "vector_bits": options.vector_bits or host().machine.vector_bits,
        "max_cost": options.max_cost,
        "rounding": options.rounding,
        "check_bounds": options.check_bounds,
        "replaced": list(options.replaced),
        "shared": list(options.shared),
        "data_offset": None if options.addresses else DATA_OFFSET,
    }
    title = f"{graph.name}({', '.join(f'{param.name}: {param.type}' for param in graph.params)})"
    key = native_key(title, text, chosen)
    return key, "smelt's own files were changed since it was imported" if key is None else ""
