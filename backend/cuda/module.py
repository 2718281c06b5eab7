"""The kernels of a graph as one module of Python source: a function for each launch, and those that they call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...ir.symbolic import Symbol
from ...kernels.loop_ir import Check, Concurrent, Index, Kernel, Let, Load, Loop, Statement
from .emit import Emitter
from .launch import Launch
from .scalars import Functions
from .uses import needed

PURE = (Let, Load, Index, Check)


@dataclass
class Module:
    """The source of all kernels of a graph, and their launches in order."""

    launches: list[Launch] = field(default_factory=list)
    functions: Functions = field(default_factory=Functions)
    bodies: list[list[str]] = field(default_factory=list)

    @property
    def source(self) -> str:
        devices = ["\n".join(lines) for lines in self.functions.sources.values()]
        return "\n\n\n".join([*devices, *("\n".join(lines) for lines in self.bodies)]) + "\n"


def emit_module(kernels: Sequence[Kernel], simulated: bool = False) -> Module:
    """Source and launches of kernels that were mapped to a grid. The simulator knows no alignment of shared memory."""
    module = Module()
    alignment = "" if simulated else ", alignment=16"
    first = 0
    for kernel in kernels:
        for lines, launch in _launches(kernel, module.functions, first, alignment):
            module.bodies.append(lines)
            module.launches.append(launch)
        first += len(kernel.sites)
    return module


def _launches(
    kernel: Kernel, functions: Functions, first_site: int, alignment: str
) -> Iterable[tuple[list[str], Launch]]:
    """Each tree of a kernel with what stands before it at the top."""
    trees: list[tuple[list[Statement], Loop]] = []
    before: list[Statement] = []
    for statement in kernel.body:
        if isinstance(statement, Concurrent):
            trees += [(list(before), branch) for branch in statement.branches]
        elif isinstance(statement, Loop):
            trees.append((list(before), statement))
        elif isinstance(statement, PURE):
            before.append(statement)
        else:
            once = Loop("grid", Symbol("%once", 0, 0), 0, 1, (statement,), 1)
            trees.append((list(before), once))
    for number, (lead, tree) in enumerate(trees):
        name = kernel.name if len(trees) == 1 else f"{kernel.name}_{number}"
        yield Emitter(kernel, name, functions, first_site, alignment).launch(needed(lead, tree), tree)
