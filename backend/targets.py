"""Targets: the interface of everything that differs between the CPU, GPUs and other machines to compile for.

    class Mine(Target):
        name = "mine"
        ...

    targets.register(Mine())
    smelt.jit(f, target="mine")

The driver (`compile.py`), the front end and the command call its methods. docs/adding-a-target.md has a complete one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..ir.errors import CompileError
from ..ir.process import process
from .process.forks import no_forks

if TYPE_CHECKING:
    from ..ir.graph import Graph
    from .call_plan import CallPlan, SizedPlan
    from .options import CompileOptions
    from .report.report import Report
    from .report.timings import Stages
    from .stages import StageHook
    from .store.cache import Lookup


class Executable(Protocol):
    """A graph's code, ready to be called with arrays of the parameters' types; the results are new arrays."""

    target: str
    plan: CallPlan
    cache: Lookup
    stages: Stages

    @property
    def report(self) -> Report: ...
    def launcher(self, plan: SizedPlan) -> Callable[[Sequence[Any]], list[Any]]: ...
    def __call__(self, arrays: Sequence[Any]) -> list[Any]: ...


class Target:
    """A machine to compile for. The default methods are right for arrays in the host's memory.

    Compiled code is a value of the target's own type: `build` makes it, `write` and `read` take it to the disk cache
    and back, `load` makes an executable of it.
    """

    name: str
    stages: tuple[str, ...]  # names for `smelt dump --stage`, in the order in which a stage hook sees them
    has_architectures = False  # whether CompileOptions.architecture names the machine
    inlines = True  # whether a call inside a trace is inlined even if all of its arguments are known
    takes_parts = False  # whether a program may be cut where data decide a size
    keeps_watched = False  # whether the cache is used while stages are shown or verified: the code is the same then

    # A graph to an executable.

    def machine(self, options: CompileOptions, is_shown: bool) -> Any:
        """Return the machine that code is made for. is_shown: only the stages are wanted; no machine has to be
        present."""
        raise NotImplementedError

    def chosen(self, options: CompileOptions, machine: Any) -> dict[str, Any]:
        """Return the options and facts of the machine that the code of a graph depends on, for its key."""
        raise NotImplementedError

    def environment(self) -> dict[str, Any]:
        """Return the facts of the process that all code depends on, for keys: versions, instruction sets."""
        return {}

    def not_kept(self, machine: Any) -> str:
        """Return why code for a machine is not kept on disk, or ''."""
        return ""

    def label(self, machine: Any) -> str:
        """Return the machine's name in titles of cache entries, or '' if there is only one machine."""
        return ""

    def build(
        self, graph: Graph, options: CompileOptions, machine: Any, stages: Stages, hook: StageHook | None, found: Any
    ) -> Callable[[Stages], Any]:
        """Run the passes; return a function that completes the code. Between the two, threads may compile it while
        other graphs go through their passes. found: the code in the cache, where its stages are shown."""
        raise NotImplementedError

    def write(self, code: Any) -> tuple[dict[str, Any], bytes]:
        """Return the header (JSON) and the content (bytes) of code for a cache entry."""
        raise NotImplementedError

    def read(self, header: dict[str, Any], content: bytes) -> Any:
        """Return the code of a cache entry. Any exception means that the entry is damaged."""
        raise NotImplementedError

    def load(
        self, graph: Graph, options: CompileOptions, machine: Any, code: Any, cache: Lookup, stages: Stages
    ) -> Executable:
        """Return the executable of a graph's code. cache: where the code came from, for the report."""
        raise NotImplementedError

    def explain(self, graph: Graph, options: CompileOptions) -> Any:
        """Return the report of `smelt explain`, or None for that of the executable."""
        return None

    def prepare(self) -> None:
        """Compile the code that calls of all programs share, so that `smelt bake` keeps it."""

    # Calls.

    def argument(self, leaf: Any, function: str) -> Any:
        """Return an argument in this target's own memory in the form that compiled code takes, with dtype, shape, ndim
        and the memory order of its dims (`order`); None if it is in the host's memory."""
        return None

    def check_arguments(self, arrays: Sequence[Any], function: str) -> None:
        """Raise ArgumentError if arguments, some of them in this target's memory, are in different memories."""

    def constants(self, arrays: list[np.ndarray]) -> list[Any]:
        """Return a program's captured arrays in the form that its calls pass."""
        return arrays

    # Returns a result as a view with its dims in another order.
    turned: Callable[[Any, Sequence[int]], Any] = staticmethod(np.ndarray.transpose)

    def make_entry(
        self,
        launcher: Any,
        call: Mapping[str, Any],
        draw_seed: Callable[[], np.ndarray] | None,
        structure: Any,
        fixed: dict[int, Any],
    ) -> Any:
        """Return a native entry for calls like this one (cpu/call/entry.py), or None if calls go through Python."""
        return None


class Targets:
    """The table of targets by name. A built-in target is `TARGET` of a module that is imported at its first use."""

    def __init__(self) -> None:
        self.modules = {"cpu": ".cpu.compile", "cuda": ".cuda.compile"}
        self.loaded: dict[str, Target] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.modules | self.loaded)

    def find(self, name: str) -> Target:
        """Return a target; raise CompileError for an unknown name."""
        found = self.loaded.get(name)
        if found is None:
            if name not in self.modules:
                *others, last = self.names
                raise CompileError(f"unknown target {name!r}; there are {', '.join(others)} and {last}")
            with no_forks():
                found = self.loaded[name] = import_module(self.modules[name], __package__).TARGET
        return found

    def register(self, target: Target) -> None:
        """Add a target; raise ValueError if its name is taken."""
        if target.name in self.names:
            raise ValueError(f"there is a target {target.name!r} already")
        self.loaded[target.name] = target

    def remove(self, name: str) -> None:
        """Remove a registered target."""
        del self.loaded[name]


targets = process.keep("targets", Targets())
