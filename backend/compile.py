"""The driver of all targets: compile a graph to an executable, or load it from the cache."""

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
    """Compile for options.target; return the executable. `on_stage(name, thing)` sees the program at every stage;
    str(thing) is its text."""
    return start_graph(graph, options, on_stage)()


def start_graph(
    graph: Graph, options: CompileOptions | None = None, on_stage: StageHook | None = None
) -> Callable[[], Any]:
    """Begin to compile; return a function that completes it and returns the executable. Between the two, threads
    compile this graph while other graphs go through their passes."""
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
    """Look up the code of a graph for a machine, or begin to make it; return a function that returns the code and where
    it came from."""
    key: Key | None = None
    code: Any = None
    complete: Complete | None = None
    lock: Lock | None = None
    lookup = Lookup("off")
    # Stages that are shown or verified are always built.
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
                # Two processes that have each started a program must not wait for each other's.
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
    """Replace users' composites by their bodies; return the graph for the key. A user's name may mean another op in the
    next process, or in another project."""
    if all(op.defn.is_own for op in graph.ops):
        return graph
    with no_forks():
        from ..passes.graph.decompose import expand_foreign

        return expand_foreign(graph)


class _Enough(Exception):
    """Ends a compile after the last stage that is shown."""


def compile_stages(graph: Graph, wanted: Sequence[str], options: CompileOptions) -> dict[str, Any]:
    """Compile up to the last stage wanted; return what each stage made, by its name."""
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
    """Return the key of a graph's code in the cache, or None and the reason why the code is not kept."""
    target = targets.find(options.target)
    return code_key(target, graph, options, target.machine(options, False))


def code_key(target: Target, graph: Graph, options: CompileOptions, machine: Any) -> tuple[Key | None, str]:
    """Return the same for one of the target's machines."""
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
