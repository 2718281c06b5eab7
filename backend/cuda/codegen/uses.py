"""Collect the uses of statements of loop IR: registers, buffers, quotients."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.symbolic import Compound, Dim, symbols_of
from ....kernels.gpu import GPU
from ....kernels.loop.ir import Alloc, Check, Gemm, Load, Loop, Statement, used, walk
from ....kernels.loop.roles import all_expressions, defines, expressions, reads, writes


def needed(lead: Sequence[Statement], tree: Loop) -> list[Statement]:
    """Keep those pure statements that a tree uses, directly or indirectly."""
    wanted = mentioned([tree])
    kept: list[Statement] = []
    for statement in reversed(lead):
        if any(item.name in wanted for item in defines(statement)):
            kept.insert(0, statement)
            wanted |= mentioned([statement])
    return kept


def mentioned(statements: Sequence[Statement]) -> set[str]:
    """Collect the names of registers and symbols that statements read."""
    found: set[str] = set()
    for item in walk(statements):
        found.update(used(item))
        found.update(symbol.name for value in expressions(item) for symbol in symbols_of(value))
    return found


def accesses(statements: Sequence[Statement]) -> tuple[set[str], set[str]]:
    """Collect the names of the buffers that statements read, and of those they write."""
    found = list(walk(statements))
    return (
        {buffer.name for item in found for buffer in reads(item)},
        {buffer.name for item in found for buffer in writes(item)},
    )


def behind_loops(statements: Sequence[Statement]) -> int:
    """Return the index of the first statement after the last loop, GEMM or allocation."""
    loops = [number for number, item in enumerate(statements) if isinstance(item, (Loop, Gemm, Alloc))]
    return loops[-1] + 1 if loops else 0


def fetches_first(statements: Sequence[Statement], changing: set[str]) -> list[Statement]:
    """Move independent loads before all other statements, so that threads wait for memory once: compilers do not move
    loads across branches."""
    chosen = {item.position.name for item in statements if isinstance(item, Check)}
    early: list[Statement] = []
    for item in statements:
        if (
            isinstance(item, Load)
            and item.guard is None
            and item.buffer.name not in changing
            and len(early) < GPU.loads
        ):
            if not any(symbol.name in chosen for part in item.index for symbol in symbols_of(part)):
                early.append(item)
    first = set(map(id, early))
    return [*early, *(item for item in statements if id(item) not in first)]


def compounds(statements: Sequence[Statement]) -> list[Compound]:
    """Collect the quotients and remainders in the statements' index expressions, inner before outer."""
    found: dict[Compound, None] = {}

    def look(value: Dim) -> None:
        if isinstance(value, int):
            return
        for monomial, _ in value.terms:
            for atom in monomial:
                if isinstance(atom, Compound):
                    look(atom.left)
                    look(atom.right)
                    if atom.operator in ("//", "%"):
                        found[atom] = None

    for value in all_expressions(statements):
        look(value)
    return list(found)
