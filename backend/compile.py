"""The driver: a graph in, something that can be called out; from the cache if it was compiled before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir.errors import CompileError
from ..ir.graph import Graph
from ..ir.printer import Printer
from .artifact import Artifact
from .cache import Key, Lookup, current
from .forks import no_forks
from .options import CompileOptions
from .room import with_room
from .stages import Stages

if TYPE_CHECKING:
    from .cpu.engine import Started
    from .plan import StageHook

TARGETS = ("cpu", "cuda")


# Programs that are being compiled, by the names of their keys: equal ones wait for the same code.
_started: dict[str, tuple[Artifact, Started]] = {}


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
    if options.target == "cuda":
        from .cuda.compile import compile_for_cuda

        executable = compile_for_cuda(graph, options, on_stage)
        return lambda: executable
    with no_forks:
        return with_room(lambda: _start_for_cpu(graph, options, on_stage))


def _start_for_cpu(graph: Graph, options: CompileOptions, on_stage: StageHook | None) -> Callable[[], Any]:
    from .cpu.executable import Executable

    stages = Stages()
    key: Key | None = None
    artifact: Artifact | None = None
    code: Started | None = None
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
                artifact, lookup = current().find(key, Artifact.from_header)
    if artifact is None:
        from .cpu.build import build

        artifact, code = build(graph, options, stages, on_stage or _ignore)
        if key is not None:
            _started[key.name] = artifact, code

    def finish() -> Any:
        with no_forks:
            if code is not None:
                try:
                    with stages.timed("llvm"):
                        artifact.code = code.image()
                finally:
                    is_first = key is not None and _started.pop(key.name, None) is not None
                if key is not None and is_first:
                    with stages.timed("store"):
                        current().store(key, artifact.header(), artifact.code)
            return Executable(graph, artifact, lookup, stages)

    return finish


def check_target(options: CompileOptions) -> None:
    if options.target not in TARGETS:
        raise CompileError(f"unknown target {options.target!r}; there are {' and '.join(TARGETS)}")


def graph_key(graph: Graph, options: CompileOptions) -> tuple[Key | None, str]:
    """What a graph's code is kept under, or why it is not."""
    if options.target == "cuda":
        from .cuda.cached import cuda_key
        from .cuda.compile import check_installed, wanted_architecture

        check_installed()
        return cuda_key(graph, options, wanted_architecture(options))
    from .cpu.cached import native_key
    from .cpu.runtime import DATA_OFFSET
    from .cpu.target import host

    printer = Printer(graph)
    text = printer.text(locations=False)
    if not printer.is_complete:
        return None, "an attribute of an op has no text"
    chosen = {
        "vector_bits": options.vector_bits or host().vector_bits,
        "max_cost": options.max_cost,
        "replaced": list(options.replaced),
        "shared": list(options.shared),
        "data_offset": None if options.addresses else DATA_OFFSET,
    }
    title = f"{graph.name}({', '.join(f'{param.name}: {param.type}' for param in graph.params)})"
    key = native_key(title, text, chosen)
    return key, "smelt's own files were changed since it was imported" if key is None else ""


def _ignore(stage: str, thing: Any) -> None:
    return None
