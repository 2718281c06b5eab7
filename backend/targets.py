"""Targets: the machines that smelt compiles for, each behind one interface.

    class Mine(Target):
        name = "mine"
        ...

    targets.register(Mine())
    smelt.jit(f, target="mine")

The driver (`compile.py`), the front end and the command ask a target for everything that is not the same for all.
docs/adding-a-target.md has a whole one.
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
    """A machine to compile for. What a subclass does not define is as it is for arrays in the host's memory.

    Compiled code is a value of the target's own type: `build` makes it, `write` and `read` take it to the disk cache
    and back, `load` makes an executable of it.
    """

    name: str
    stages: tuple[str, ...]  # that `smelt dump` knows, of those that a stage hook sees, in order
    has_architectures = False  # CompileOptions.architecture names the machine
    inlines = True  # a call inside a trace becomes a part of it, though all of its arguments are known
    keeps_watched = False  # code is kept, too, when somebody watches its stages: that changes nothing of it

    # A graph to an executable.

    def machine(self, options: CompileOptions, is_shown: bool) -> Any:
        """Return the machine that code is made for. is_shown: it need not be at hand, the stages are all that is
        wanted."""
        raise NotImplementedError

    def chosen(self, options: CompileOptions, machine: Any) -> dict[str, Any]:
        """Return the options and facts of the machine that decide the code of a graph, for its key."""
        raise NotImplementedError

    def environment(self) -> dict[str, Any]:
        """Return the facts of this process that decide the code of all graphs, for their keys."""
        return {}

    def not_kept(self, machine: Any) -> str:
        """Return why no code for a machine is kept on disk; empty if it is."""
        return ""

    def label(self, machine: Any) -> str:
        """Return the machine's name in titles of entries of the cache, if there are several."""
        return ""

    def build(
        self, graph: Graph, options: CompileOptions, machine: Any, stages: Stages, hook: StageHook | None, found: Any
    ) -> Callable[[Stages], Any]:
        """Compile as far as passes go; return a function that completes the code. Between the two, threads may work on
        it while other graphs go through their passes. found: the code in the cache, if its stages are watched."""
        raise NotImplementedError

    def write(self, code: Any) -> tuple[dict[str, Any], bytes]:
        """Return code as a file holds it: what JSON can say of it, and bytes."""
        raise NotImplementedError

    def read(self, header: dict[str, Any], content: bytes) -> Any:
        """Return the code that `write` took apart. Any error says that the entry is damaged."""
        raise NotImplementedError

    def load(
        self, graph: Graph, options: CompileOptions, machine: Any, code: Any, cache: Lookup, stages: Stages
    ) -> Executable:
        """Return the executable of a graph."""
        raise NotImplementedError

    def explain(self, graph: Graph, options: CompileOptions) -> Any:
        """Return what `smelt explain` prints; None for the report of the executable."""
        return None

    def prepare(self) -> None:
        """Compile what calls of all programs share, so that `smelt bake` keeps it as well."""

    # Calls.

    def argument(self, leaf: Any, function: str) -> Any:
        """Return an argument in memory of this target's own, as compiled code takes it; None for any other. It has
        dtype, shape and ndim, and `order`, that of its dims in memory."""
        return None

    def check_arguments(self, arrays: Sequence[Any], function: str) -> None:
        """Raise ArgumentError if arguments, some of which are in this target's memory, cannot be used together."""

    def constants(self, arrays: list[np.ndarray]) -> list[Any]:
        """Return the arrays that a program captured, as all of its calls get them."""
        return arrays

    turned: Callable[[Any, Sequence[int]], Any] = staticmethod(np.ndarray.transpose)  # a result, by the order of dims

    def make_entry(
        self,
        launcher: Any,
        call: Mapping[str, Any],
        draw_seed: Callable[[], np.ndarray] | None,
        structure: Any,
        fixed: dict[int, Any],
    ) -> Any:
        """Return a native entry for calls like this one (cpu/call/entry.py), or None if only Python makes them."""
        return None


class Targets:
    """All targets, by name. The module of one of smelt's own is loaded when it is first asked for: `TARGET` in it."""

    def __init__(self) -> None:
        self.modules = {"cpu": ".cpu.compile", "cuda": ".cuda.compile"}
        self.loaded: dict[str, Target] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.modules | self.loaded)

    def find(self, name: str) -> Target:
        """Return a target; raise CompileError if there is none of this name."""
        found = self.loaded.get(name)
        if found is None:
            if name not in self.modules:
                *others, last = self.names
                raise CompileError(f"unknown target {name!r}; there are {', '.join(others)} and {last}")
            with no_forks():
                found = self.loaded[name] = import_module(self.modules[name], __package__).TARGET
        return found

    def register(self, target: Target) -> None:
        """Add a target."""
        if target.name in self.names:
            raise ValueError(f"there is a target {target.name!r} already")
        self.loaded[target.name] = target

    def remove(self, name: str) -> None:
        """Forget a target that was registered."""
        del self.loaded[name]


targets = process.keep("targets", Targets())
