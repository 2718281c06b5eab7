"""The driver of all targets: a graph in, something that can be called out; from the cache if it was compiled before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..ir.graph import Graph
from ..ir.printer import Printer
from ..ir.process import process
from .options import CompileOptions
from .process.forks import no_forks
from .process.stack_chunk import with_room
from .report.timings import Stages
from .store.cache import Key, Lookup, current, make_key
from .store.files import Lock
from .targets import Target, targets

if TYPE_CHECKING:
    from .stages import StageHook

Complete = Callable[[Stages], Any]

# Programs that are being compiled, by the names of their keys: equal ones wait for the same code.
_started: dict[str, Complete] = process.keep("programs that are being compiled", {})


def compile_graph(graph: Graph, options: CompileOptions | None = None, on_stage: StageHook | None = None) -> Any:
    """Compile for options.target. `on_stage(name, thing)` sees the program at every stage; str(thing) is its text."""
    return start_graph(graph, options, on_stage)()


def start_graph(
    graph: Graph, options: CompileOptions | None = None, on_stage: StageHook | None = None
) -> Callable[[], Any]:
    """Compile, and leave to threads what they can do while others of many graphs go through their passes. Call what is
    returned for what can be called."""
    options = options or CompileOptions()
    target = targets.find(options.target)
    if on_stage is None:
        graph = with_own_ops(graph)
    stages = Stages()

    def start() -> tuple[Any, Callable[[], tuple[Any, Lookup]]]:
        with stages.timed("key"):  # which begins with the machine
            machine = target.machine(options, on_stage is not None)
        return machine, start_code(target, graph, options, machine, stages, on_stage)

    with no_forks():
        machine, complete = with_room(start)

    def finish() -> Any:
        with no_forks():
            code, lookup = complete()
            return target.load(graph, options, machine, code, lookup, stages)

    return finish


def start_code(
    target: Target, graph: Graph, options: CompileOptions, machine: Any, stages: Stages, hook: StageHook | None = None
) -> Callable[[], tuple[Any, Lookup]]:
    """Find or make the code of a graph for a machine. Call what is returned for the code, and where it came from."""
    key: Key | None = None
    code: Any = None
    complete: Complete | None = None
    lock: Lock | None = None
    lookup = Lookup("off")
    # Whoever wants to see or to check the stages gets them.
    is_watched = hook is not None or options.verify or options.annotate
    if is_watched and not target.keeps_watched:
        lookup = Lookup("off", "the stages of compilation were asked for")
    elif current().is_on:
        with stages.timed("key"):
            key, reason = code_key(target, graph, options, machine)
        lookup = Lookup("off", reason)
    if key is not None:
        with stages.timed("look up"):
            complete = None if is_watched else _started.get(key.name)
            if complete is not None:
                lookup = Lookup("hit", f"{key.name} that was being compiled")
            else:
                # Who has started something that others may wait for waits for nobody.
                code, lookup, lock = current().find_or_lock(key, target.read, not _started)
    if complete is None and (code is None or is_watched):
        try:
            complete = target.build(graph, options, machine, stages, hook, code)
        except BaseException:
            release(lock)
            raise
        if key is not None:
            _started[key.name] = complete

    def finish() -> tuple[Any, Lookup]:
        if complete is None:
            return code, lookup
        try:
            try:
                made = complete(stages)
            finally:
                is_first = key is not None and _started.pop(key.name, None) is not None
            if key is not None and is_first and code is None:
                with stages.timed("store"):
                    current().store(key, *target.write(made))
        finally:
            release(lock)
        return made, lookup

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


def explain_graph(graph: Graph, options: CompileOptions) -> Any:
    """Return what `smelt explain` prints: str(report) and report.json()."""
    found = targets.find(options.target).explain(graph, options)
    return compile_graph(graph, options).report if found is None else found


def graph_key(graph: Graph, options: CompileOptions) -> tuple[Key | None, str]:
    """What a graph's code is kept under, or why it is not."""
    target = targets.find(options.target)
    return code_key(target, graph, options, target.machine(options, False))


def code_key(target: Target, graph: Graph, options: CompileOptions, machine: Any) -> tuple[Key | None, str]:
    """The same for the code for one machine."""
    reason = target.not_kept(machine)
    if reason:
        return None, reason
    printer = Printer(graph)
    text = printer.text(locations=False)
    if printer.unsaid:
        return None, printer.unsaid
    label = target.label(machine)
    params = ", ".join(f"{param.name}: {param.type}" for param in graph.params)
    title = f"{graph.name}({params}){f' for {label}' if label else ''}"
    key = make_key(target.name, title, text, target.chosen(options, machine), target.environment())
    return key, "smelt's own files were changed since it was imported" if key is None else ""
