"""Emit the kernels of a graph as one module of Python source: a function for each launch, and device functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ....ir.symbolic import Dim, Expr, Symbol
from ....kernels.loop.ir import Check, Concurrent, Index, Kernel, Let, Load, Loop, Statement
from ....kernels.loop.text import size_symbols
from .emit import Emitter
from .indices import reaches
from .launch import LIMIT, Launch
from .scalars import Functions
from .uses import needed

PURE = (Let, Load, Index, Check)


@dataclass
class Module:
    """Source of all kernels of a graph, and their launches in order."""

    launches: list[Launch] = field(default_factory=list)
    functions: Functions = field(default_factory=Functions)
    bodies: list[list[str]] = field(default_factory=list)
    reaches: dict[Dim, None] = field(default_factory=dict)  # upper bounds of the indices that are int32
    common: set[tuple[str, str]] = field(default_factory=set)  # (kernel, scratch) pairs in shared memory

    @property
    def source(self) -> str:
        devices = ["\n".join(lines) for lines in self.functions.sources.values()]
        return "\n\n\n".join([*devices, *("\n".join(lines) for lines in self.bodies)]) + "\n"


def emit_module(kernels: Sequence[Kernel], simulated: bool = False, small: bool = False) -> Module:
    """Emit source and launches of kernels that were mapped to a grid. The simulator has no alignment of shared memory.
    small: indices have 32 bits for all symbolic sizes; fits(module.reaches, sizes) tells whether that is right."""
    module = Module()
    alignment = "" if simulated else ", alignment=16"
    first = 0
    for kernel in kernels:
        for name, lead, tree in _trees(kernel):
            found = reaches([*lead, tree], size_symbols(kernel))
            symbolic = [item for item in found or () if isinstance(item, Expr)]
            narrow = found is not None and found[0] < LIMIT and (small or not symbolic)
            module.reaches |= dict.fromkeys(symbolic) if narrow else {}
            emitter = Emitter(kernel, name, module.functions, first, alignment, narrow)
            lines, launch = emitter.launch(lead, tree)
            module.bodies.append(lines)
            module.launches.append(launch)
            module.common |= {(kernel.name, buffer) for buffer in emitter.common}
        first += len(kernel.sites)
    return module


def _trees(kernel: Kernel) -> Iterator[tuple[str, list[Statement], Loop]]:
    """Yield each tree of a kernel: its name, the preceding top-level statements that it uses, and the tree."""
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
        yield name, needed(lead, tree), tree
